"""The hook's metrics say what a person is woken for, also while parts of it cannot be read."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from remediation.hook_settings import HookSettings
from remediation.program.loop import RoundNote
from remediation.program.metrics import QUESTIONS, HookMetrics
from remediation.program.round import opened, run_round
from tests.remediation.program_world import ProgramWorld, make_world
from tests.remediation.slurm_world import FakeJob

Values = dict[tuple[str, ...], float]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramWorld:
    return make_world(tmp_path, monkeypatch)


def told(settings: HookSettings, *, hours_later: float = 0.0) -> Values:
    now = datetime.now(UTC) + timedelta(hours=hours_later)
    return {
        (one.name.removeprefix("forewarn_hook_"), *one.labels.values()): one.value
        for family in HookMetrics(settings, now=lambda: now).collect()
        for one in family.samples
    }


def run(settings: HookSettings) -> None:
    with opened(settings) as hook:
        run_round(hook)


def test_a_hook_that_never_ran_has_no_round_and_nothing_that_waits(world: ProgramWorld) -> None:
    settings = world.write()
    settings.state.mkdir()
    found = told(settings)
    assert ("round_timestamp_seconds",) not in found
    assert found[("info", "slurm")] == 1
    assert [found[("questions", why)] for why in QUESTIONS] == [0] * len(QUESTIONS)
    assert {key[1]: value for key, value in found.items() if key[0] == "stopped"} == {
        "kill_switch": 0,
        "request": 0,
        "burst": 0,
    }


def test_what_it_holds_and_did_stands_beside_its_limits(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    run(settings)
    found = told(settings)
    assert found[("nodes_held",)] == 1
    assert found[("actions_last_hour",)] == 1
    assert found[("actions_per_hour_limit",)] == 2
    assert told(settings, hours_later=2)[("actions_last_hour",)] == 0


def test_a_stuck_drain_waits_for_a_person(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = world.write(site={"levels": [{"level": "drain_after_jobs"}]})
    world.slurm.jobs.append(FakeJob("7", ("n1",)))
    world.publish({"n1": 0.9})
    run(settings)
    assert told(settings)[("questions", "stuck")] == 0
    short = settings.site.model_copy(
        update={"drains": settings.site.drains.model_copy(update={"longest_hours": 1e-9})}
    )
    run(settings.model_copy(update={"site": short}))
    assert told(settings)[("questions", "stuck")] == 1


def test_the_kill_switch_shows_also_without_a_ledger(world: ProgramWorld) -> None:
    settings = world.write()
    settings.kill_switch.parent.mkdir(parents=True, exist_ok=True)
    settings.kill_switch.touch()
    settings.ledger_file.write_bytes(b"no ledger" * 100)
    found = told(settings)
    assert found[("stopped", "kill_switch")] == 1
    assert found[("ledger_readable",)] == 0
    assert ("nodes_held",) not in found


def test_the_last_round_is_told_whether_or_not_it_failed(world: ProgramWorld) -> None:
    settings = world.write()
    at = datetime(2026, 1, 5, tzinfo=UTC)
    note = RoundNote(ended_at=at, text="x", is_failed=True, failed_in_row=3, rounds=9, failed=4)
    note.write(settings.state)
    found = told(settings)
    assert found[("round_timestamp_seconds",)] == at.timestamp()
    assert found[("failed_rounds",)] == 3


def test_nodes_that_caps_alone_hold_back_are_counted_for_an_hour(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9, "n2": 0.9, "n3": 0.9})
    run(settings)
    found = told(settings)
    assert found[("nodes_held",)] == 2
    assert found[("nodes_stopped", "cap_rate")] == 1
    assert found[("nodes_stopped", "kill_switch")] == 0
    assert found[("nodes_capped",)] == 1
    assert told(settings, hours_later=2)[("nodes_capped",)] == 0


def test_a_node_that_its_level_holds_back_is_not_held_back_by_caps(world: ProgramWorld) -> None:
    settings = world.write(site={"levels": [], "caps": {"actions_per_hour": 0}})
    world.publish({"n1": 0.9})
    run(settings)
    found = told(settings)
    assert found[("nodes_stopped", "policy_level")] == 1
    assert found[("nodes_capped",)] == 0


def test_a_ledger_is_neither_made_nor_brought_forward_nor_missed(world: ProgramWorld) -> None:
    settings = world.write()
    assert told(settings)[("ledger_readable",)] == 1
    assert not settings.ledger_file.exists()
    world.publish({"n1": 0.9})
    run(settings)
    with closing(sqlite3.connect(settings.ledger_file)) as file:
        file.execute("PRAGMA user_version = 1")
    assert told(settings)[("ledger_readable",)] == 0
    with closing(sqlite3.connect(settings.ledger_file)) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (1,)
    RoundNote(
        ended_at=datetime.now(UTC), text="", is_failed=False, failed_in_row=0, rounds=1, failed=0
    ).write(settings.state)
    settings.ledger_file.unlink()
    assert told(settings)[("ledger_readable",)] == 0
    assert not settings.ledger_file.exists()
