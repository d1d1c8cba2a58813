"""A plan is carried out only while scores, nodes and guards are what they were."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from features.errors import SourceError
from remediation.program.plan import (
    Plan,
    PlanRefusedError,
    apply_plan,
    plan_of,
    read_plan,
    write_plan,
)
from remediation.program.rehearsal import rehearse
from remediation.program.round import DONE, REFUSED, Hook, opened
from tests.remediation.program_world import ProgramWorld, make_world
from tests.remediation.slurm_world import FakeJob, drain_as


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramWorld:
    return make_world(tmp_path, monkeypatch)


@pytest.fixture
def hook(world: ProgramWorld) -> Iterator[Hook]:
    world.publish({"n1": 0.9, "n2": 0.8, "n3": 0.1})
    with opened(world.write()) as found:
        yield found


def planned(hook: Hook) -> Plan:
    return plan_of(rehearse(hook), actuator=hook.name)


def test_a_plan_is_read_back_as_it_was_written(hook: Hook, tmp_path: Path) -> None:
    plan = planned(hook)
    write_plan(plan, tmp_path / "p.json")
    assert read_plan(tmp_path / "p.json") == plan
    assert [one.node for one in plan.nodes] == ["n1", "n2"]
    assert all(one.commands for one in plan.nodes)


def test_what_is_planned_is_done_and_nothing_else(world: ProgramWorld, hook: Hook) -> None:
    plan = planned(hook)
    part = plan.model_copy(update={"nodes": plan.nodes[:1]})
    assert apply_plan(hook, part).exit_code == DONE
    assert world.drained == ["n1"]


def test_a_plan_never_leads_beyond_its_own_action(world: ProgramWorld, hook: Hook) -> None:
    plan = planned(hook)
    less = tuple(one.model_copy(update={"action": "watch"}) for one in plan.nodes)
    apply_plan(hook, plan.model_copy(update={"nodes": less}))
    assert world.drained == []


def test_a_plan_gives_no_leave_of_its_own(world: ProgramWorld, hook: Hook) -> None:
    plan = planned(hook)
    hook.settings.kill_switch.parent.mkdir(exist_ok=True)
    hook.settings.kill_switch.touch()
    assert apply_plan(hook, plan).exit_code == REFUSED
    assert world.drained == []


def test_a_plan_of_nothing_does_nothing(world: ProgramWorld, hook: Hook) -> None:
    assert apply_plan(hook, planned(hook).model_copy(update={"nodes": ()})).exit_code == DONE
    assert world.drained == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"expires_at": datetime.now(UTC) - timedelta(seconds=1)}, "expired"),
        ({"digest": "0" * 64}, "were published"),
        ({"actuator": "kubernetes"}, "made for the actuator kubernetes"),
    ],
)
def test_an_old_plan_or_one_of_another_hook_is_refused_whole(
    world: ProgramWorld, hook: Hook, changes: dict[str, object], told: str
) -> None:
    with pytest.raises(PlanRefusedError, match=told):
        apply_plan(hook, planned(hook).model_copy(update=changes))
    assert world.drained == []


def test_new_scores_refuse_an_earlier_plan(world: ProgramWorld, hook: Hook) -> None:
    plan = planned(hook)
    world.publish({"n1": 0.9, "n2": 0.8, "n3": 0.1})
    with pytest.raises(PlanRefusedError, match="were published"):
        apply_plan(hook, plan)


@pytest.mark.parametrize("change", ["drained", "booted", "job", "gone"])
def test_a_changed_node_refuses_the_whole_plan(
    world: ProgramWorld, hook: Hook, change: str
) -> None:
    plan = planned(hook)
    if change == "drained":
        drain_as("n2", "root", "disk")(world.slurm)
    elif change == "booted":
        world.slurm.nodes["n2"].started += 1
    elif change == "job":
        world.slurm.jobs.append(FakeJob("8", ("n2",)))
    else:
        del world.slurm.nodes["n2"]
    with pytest.raises(PlanRefusedError, match="n2"):
        apply_plan(hook, plan)
    assert "n1" not in world.drained


@pytest.mark.parametrize("content", ["", "[]", '{"schema_version": 2}', "\x00"])
def test_a_file_that_is_no_plan_is_one_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    with pytest.raises(SourceError, match=r"plan .*p\.json: "):
        read_plan(path)


def test_a_plan_with_an_unknown_key_is_none(hook: Hook, tmp_path: Path) -> None:
    values = {**planned(hook).model_dump(mode="json"), "force": True}
    (tmp_path / "p.json").write_text(json.dumps(values))
    with pytest.raises(SourceError, match="force"):
        read_plan(tmp_path / "p.json")
