"""Status and why tell what a person at night must know, also while parts cannot be read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from remediation.hook import ALL_GUARDS
from remediation.hook_settings import HookSettings
from remediation.program.round import (
    CANNOT_RUN,
    DONE,
    NEEDS_A_PERSON,
    REFUSED,
    opened,
    run_round,
)
from remediation.program.status import Status, status_of
from remediation.program.why import CHANGES, Why, changes_of, why_node
from remediation.program.words import render_status, render_why
from tests.remediation.program_world import ProgramWorld, make_world
from tests.remediation.slurm_world import FakeJob, drain_as


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramWorld:
    return make_world(tmp_path, monkeypatch)


def status(settings: HookSettings, *, hours_later: float = 0.0) -> Status:
    return status_of(settings, now=datetime.now(UTC) + timedelta(hours=hours_later))


def run(settings: HookSettings) -> None:
    with opened(settings) as hook:
        run_round(hook)


def why(settings: HookSettings, node: str) -> Why:
    with opened(settings) as hook:
        return why_node(hook, node)


def test_a_quiet_hook_has_nothing_for_a_person(world: ProgramWorld) -> None:
    world.publish({"n1": 0.1})
    found = status(world.write())
    assert (found.exit_code, found.held, found.questions) == (DONE, (), ())
    assert "For a person nothing" in render_status(found)
    assert "from 40% in 1 of 1 ticks" in render_status(found)


def test_held_nodes_are_shown_with_stage_and_since(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    run(settings)
    (one,) = status(settings).held
    assert (one.node, one.stage, one.action) == ("n1", "drained", "drain_after_jobs")
    world.slurm.jobs.append(FakeJob("7", ("n1",)))
    found = status(settings, hours_later=73)
    assert (found.held[0].stage, found.held[0].jobs) == ("stuck", ("7",))
    assert found.exit_code == NEEDS_A_PERSON


def test_a_node_of_ours_that_this_ledger_does_not_know_is_shown(world: ProgramWorld) -> None:
    world.publish({"n1": 0.1})
    drain_as("n2", "hook", "forewarn:v1 anything")(world.slurm)
    (one,) = status(world.write()).held
    assert (one.node, one.since) == ("n2", None)
    assert "not by this ledger" in one.text


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    run(settings)
    (settings.scores.folder / "LATEST.json").unlink()
    world.slurm.fault = (len(world.slurm.asked), "late_before")
    settings.ledger_file.write_text("no ledger")
    found = status(settings)
    assert [one.partition(":")[0] for one in found.cannot_read] == ["scores", "cluster", "ledger"]
    assert found.exit_code == CANNOT_RUN
    assert render_status(found).count("\n  ! ") == 3


def test_a_ledger_alone_is_enough_to_show_what_is_held(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    run(settings)
    world.slurm.fault = (len(world.slurm.asked), "late_before")
    assert [one.node for one in status(settings).held] == ["n1"]


def test_an_unclear_result_is_a_question_until_it_is_acknowledged(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    update = world.slurm._update
    world.slurm._update = lambda *_: (1, "", "Socket timed out")  # type: ignore[method-assign]
    run(settings)
    world.slurm._update = update  # type: ignore[method-assign]
    found = status(settings)
    (asked,) = found.questions
    assert (asked.why, asked.node, found.exit_code) == ("ambiguous", "n1", NEEDS_A_PERSON)
    assert f"acknowledge {asked.id}" in render_status(found)
    assert "UNCLEAR" in render_why(why(settings, "n1"))
    world.ask("acknowledge", escalation=asked.key)
    run(settings)
    assert status(settings).questions == ()


def test_what_was_settled_since_is_no_question(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    update = world.slurm._update

    def late(*args: object) -> tuple[int, str, str]:
        update(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt  # the hook dies before it notes what came of it

    world.slurm._update = late  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(settings)
    world.slurm.nodes["n1"].flags = frozenset()  # and slurmctld still has it to do
    world.slurm._update = update  # type: ignore[method-assign]
    run(settings)
    assert [one.why for one in status(settings).questions] == ["ambiguous"]
    world.slurm.nodes["n1"].flags = frozenset({"DRAIN"})
    run(settings)
    found = status(settings)
    assert (found.questions, [one.node for one in found.held]) == ((), ["n1"])


def test_a_burst_is_a_question_while_it_stops_automation(world: ProgramWorld) -> None:
    site = {
        "levels": [{"level": "notify_then_drain"}],
        "burst": {"fleet_nodes": 3, "fleet_percent": 50, "hold_hours": 2},
    }
    settings = world.write(site=site)
    world.publish({"n1": 0.9, "n2": 0.9, "n3": 0.9})
    run(settings)
    assert world.drained == []
    assert [one.why for one in status(settings).questions] == ["burst"]
    assert status(settings, hours_later=3).questions == ()


def test_the_kill_switch_is_the_first_thing_said(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.1})
    settings.kill_switch.parent.mkdir()
    settings.kill_switch.touch()
    found = status(settings)
    assert found.exit_code == REFUSED
    assert "STOP is set" in render_status(found).splitlines()[1]


def test_expired_scores_are_a_persons(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.1})
    found = status(settings, hours_later=1)
    assert found.exit_code == NEEDS_A_PERSON
    assert "EXPIRED" in render_status(found)


def test_why_says_what_took_a_node_and_what_came_of_it(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    run(settings)
    world.publish({"n1": 0.9})
    found = why(settings, "n1")
    assert found.last is not None
    assert found.now is not None
    assert found.last.came_of_it.startswith("done at ")
    assert all(one.is_allowed for one in found.last.verdicts)
    noes = {one.guard: one.would_change for one in found.now.verdicts if not one.is_allowed}
    assert "undrain" in str(noes["not_held"])
    assert "held since" in render_why(found)


def test_why_of_a_node_that_was_not_taken_names_every_no_first(world: ProgramWorld) -> None:
    settings = world.write(site={"deny": ["n1"]})
    world.publish({"n1": 0.9})
    lines = render_why(why(settings, "n1")).splitlines()
    assert "nothing was ever wanted" in lines[-1]
    verdicts = [line.split()[0] for line in lines if line.startswith("    ") and ":" in line]
    first_ok = verdicts.index("ok")
    assert first_ok > 0
    assert "NO" not in verdicts[first_ok:]


def test_why_without_scores_tells_what_the_ledger_knows(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    run(settings)
    (settings.scores.folder / "LATEST.json").unlink()
    found = why(settings, "n1")
    assert found.last is not None
    assert found.now is None
    assert found.exit_code == NEEDS_A_PERSON


def test_hostile_names_reach_no_terminal(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n\x1b[2J": 0.9})
    assert "\x1b" not in render_why(why(settings, "n\x1b[2J"))


def test_each_guard_has_words_on_what_would_change_its_no() -> None:
    names = {guard.__name__ for guard in ALL_GUARDS} | {"may_go_on", "left_alone", "in_plan"}
    assert set(CHANGES) <= names
    assert changes_of("a guard that is not listed")
