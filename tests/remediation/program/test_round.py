"""One round: under the lease, on the policy that came with the scores, with what people asked."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from features.errors import SourceError
from remediation.lease.leadership import Leadership, MemoryLease, forward_clock
from remediation.program.rehearsal import rehearse
from remediation.program.round import (
    DONE,
    NEEDS_A_PERSON,
    REFUSED,
    Fenced,
    Hook,
    Round,
    opened,
    run_round,
)
from tests.remediation.program_world import ProgramWorld, make_world
from tests.remediation.slurm_world import FakeJob


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramWorld:
    return make_world(tmp_path, monkeypatch)


@pytest.fixture
def hook(world: ProgramWorld) -> Iterator[Hook]:
    with opened(world.write()) as found:
        yield found


def of_node(made: Round, node: str) -> dict[str, str]:
    """The noes about a node, by guard."""
    assert made.run is not None
    (one,) = [one for one in made.run.judged if one.decision.node == node]
    return {v.guard: v.reason for v in one.verdicts if not v.is_allowed}


def test_a_node_above_the_published_threshold_is_drained(world: ProgramWorld, hook: Hook) -> None:
    world.publish({"n1": 0.9, "n2": 0.39, "n3": 0.1})
    assert run_round(hook).exit_code == DONE
    assert world.drained == ["n1"]


def test_scores_without_a_policy_are_only_observed(world: ProgramWorld, hook: Hook) -> None:
    world.publish({"n1": 0.9}, policy=None)
    for _ in range(3):
        made = run_round(hook)
    assert world.drained == []
    assert made.exit_code == NEEDS_A_PERSON
    assert "only observing" in made.messages[0]
    assert "level observe" in of_node(made, "n1")["policy_level"]


def test_a_sites_own_warning_outranks_the_published_policy(world: ProgramWorld) -> None:
    site = {"levels": [{"level": "notify_then_drain"}], "warning": {"threshold": 0.95, "n": 1}}
    world.publish({"n1": 0.9})
    with opened(world.write(site=site)) as hook:
        run_round(hook)
    assert world.drained == []


def test_g05_stale_scores_never_act_and_a_person_hears_of_it(
    world: ProgramWorld, hook: Hook
) -> None:
    world.publish({"n1": 0.9}, as_of=datetime.now(UTC) - timedelta(hours=2))
    made = run_round(hook)
    assert (world.drained, made.exit_code) == ([], NEEDS_A_PERSON)
    assert "have expired" in made.messages[0]


def test_scores_that_are_gone_stop_nothing_but_new_actions(world: ProgramWorld, hook: Hook) -> None:
    world.publish({"n1": 0.9})
    run_round(hook)
    (world.root / "scores" / "LATEST.json").unlink()
    world.ask("undrain", node="n1", boot_id="slurmd-1795993535")
    with pytest.raises(SourceError, match=r"LATEST\.json"):
        run_round(hook)
    assert world.drained == []


def test_only_who_has_the_lease_makes_a_round_and_gives_it_back(
    world: ProgramWorld, hook: Hook
) -> None:
    world.publish({"n1": 0.9})
    store = MemoryLease()
    one, other = (
        Leadership(store, holder=name, clock=forward_clock(), seconds=60, act_seconds=10)
        for name in "ab"
    )
    assert other.take()
    made = run_round(hook, leadership=one)
    assert (made.run, made.exit_code, world.drained) == (None, REFUSED, [])
    other.release()
    run_round(hook, leadership=one)
    assert world.drained == ["n1"]
    assert other.take()


def test_a_lease_lost_under_way_lets_no_further_act_begin(world: ProgramWorld, hook: Hook) -> None:
    world.publish({"n1": 0.9})
    made = run_round(hook, asked_to_end=lambda: "told to end")
    assert of_node(made, "n1") == {"may_go_on": "told to end"}
    fenced = Fenced(actuator=hook.ports.actuator, fence=lambda: "the lease ended")
    outcome = fenced.undrain(None)  # type: ignore[arg-type]
    assert (outcome.status, outcome.detail) == ("not_done", "the lease ended")


def test_a_node_that_a_person_wants_left_alone_is_left_alone(
    world: ProgramWorld, hook: Hook
) -> None:
    world.publish({"n1": 0.9})
    until = datetime.now(UTC) + timedelta(hours=1)
    world.ask("hold", node="n1", boot_id="slurmd-1795993535", until=until)
    made = run_round(hook)
    assert world.drained == []
    assert list(of_node(made, "n1")) == ["left_alone"]


def test_a_persons_stop_by_request_stops_until_it_is_lifted(
    world: ProgramWorld, hook: Hook
) -> None:
    world.publish({"n1": 0.9})
    world.ask("kill")
    made = run_round(hook)
    assert (world.drained, made.exit_code) == ([], REFUSED)
    assert "stopped by ada" in str(made.stopped_by)
    world.ask("unkill")
    run_round(hook)
    assert world.drained == ["n1"]


def test_an_approval_carries_out_once_what_is_only_recommended(world: ProgramWorld) -> None:
    site = {"levels": [{"level": "recommend"}]}
    world.publish({"n1": 0.9})
    with opened(world.write(site=site)) as hook:
        made = run_round(hook)
        assert world.drained == []
        assert made.run is not None
        (asked,) = [o.decision for o in made.run.judged if o.decision.node == "n1"]
        about = {"node": "n1", "boot_id": asked.boot_id, "decision_id": asked.decision_id}
        world.ask("approve", **about)
        run_round(hook)
        assert world.drained == ["n1"]
        world.slurm.nodes["n1"].flags = frozenset()
        world.slurm.nodes["n1"].reason = None
        world.publish({"n1": 0.9})
        run_round(hook)
        assert world.drained == []


def test_g09_undrain_returns_what_is_ours_and_starts_a_cooldown(
    world: ProgramWorld, hook: Hook
) -> None:
    world.publish({"n1": 0.9})
    run_round(hook)
    world.ask("undrain", node="n1", boot_id="slurmd-1795993535")
    made = run_round(hook)
    assert (world.drained, made.returned, made.messages) == ([], ("n1",), ())
    world.publish({"n1": 0.9})
    assert "cooled_down" in of_node(run_round(hook), "n1")


def test_g09_undrain_leaves_another_owners_drain(world: ProgramWorld, hook: Hook) -> None:
    world.publish({"n1": 0.9})
    run_round(hook)
    world.slurm.nodes["n1"].reason = "disk"
    world.ask("undrain", node="n1", boot_id="slurmd-1795993535")
    run_round(hook)
    assert world.drained == ["n1"]
    assert world.slurm.nodes["n1"].reason == "disk"


def test_a_rehearsal_changes_neither_cluster_nor_ledger(world: ProgramWorld, hook: Hook) -> None:
    world.publish({"n1": 0.9})
    run_round(hook)
    world.publish({"n1": 0.9, "n2": 0.95})
    before = hook.ledger.entries()
    asked = len(world.slurm.effects)
    run = rehearse(hook).run
    assert [one.decision.node for one in run.judged if run.outcomes.get(one.decision.decision_id)]
    assert hook.ledger.entries() == before
    assert len(world.slurm.effects) == asked


def test_a_rehearsal_ends_no_notice_of_a_node_that_is_held(world: ProgramWorld) -> None:
    costs = {"notice_minutes": 0}
    site = {"levels": [{"level": "notify_then_drain"}], "costs": costs}
    world.slurm.jobs.append(FakeJob("7", ("n1",)))
    world.publish({"n1": 0.99})
    with opened(world.write(site=site)) as hook:
        run_round(hook)
        effects = list(world.slurm.effects)
        rehearse(hook)
        assert world.slurm.effects == effects
        run_round(hook)
    assert world.slurm.effects[len(effects) :] == [("scontrol", "requeue", "7")]
