"""A node that we hold comes back after its cause was settled and a check under load passed."""

import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from features.clock import utc_now
from remediation.checks import CheckResult, CheckRunner
from remediation.hook_settings import HookSettings
from remediation.lease.leadership import Leadership
from remediation.program.loop import loop_on, run_one
from remediation.program.parts import open_leadership
from remediation.program.round import Round, opened, run_round
from remediation.program.status import status_of
from tests.remediation.program_world import ProgramWorld, make_world
from tests.remediation.slurm_world import FakeJob, drain_as

BOOT = "slurmd-1795993535"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramWorld:
    return make_world(tmp_path, monkeypatch)


def checked_by(world: ProgramWorld, *command: str) -> HookSettings:
    check = {"name": "burn", "command": list(command), "is_under_load": True}
    return world.write(returns={"check": check})


def one(settings: HookSettings) -> Round:
    return run_one(settings, core_tables=None)


def test_g24_repaired_and_a_passed_check_return_a_node(world: ProgramWorld) -> None:
    settings = checked_by(world, "true", "{node}")
    world.publish({"n1": 0.9})
    one(settings)
    one(settings)
    assert world.drained == ["n1"]  # nobody has said anything of its cause
    world.ask("repaired", node="n1", boot_id=BOOT)
    one(settings)
    assert world.drained == ["n1"]  # the check of this round counts in the next
    made = one(settings)
    assert (world.drained, made.returned, made.messages) == ([], ("n1",), ())


@pytest.mark.parametrize("what", ["repaired", "false_alarm"])
def test_g24_a_failed_check_sends_a_node_to_repair_whatever_was_said(
    world: ProgramWorld, what: str
) -> None:
    settings = checked_by(world, "false")
    world.publish({"n1": 0.9})
    one(settings)
    world.ask(what, node="n1", boot_id=BOOT)
    one(settings)
    made = one(settings)
    assert world.drained == ["n1"]
    assert "burn failed" in made.messages[0]


def test_g24_without_a_check_nothing_comes_back_by_itself(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    one(settings)
    world.ask("repaired", node="n1", boot_id=BOOT)
    one(settings)
    one(settings)
    assert world.drained == ["n1"]


def test_g24_no_check_is_begun_beside_running_jobs(world: ProgramWorld, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    settings = checked_by(world, "touch", str(seen))
    world.publish({"n1": 0.9})
    one(settings)
    world.slurm.jobs.append(FakeJob("7", ("n1",), state="COMPLETING"))
    world.ask("repaired", node="n1", boot_id=BOOT)
    one(settings)
    assert world.drained == ["n1"]
    assert not seen.exists()
    world.slurm.jobs.clear()
    one(settings)
    assert seen.exists()


def test_g09_no_check_is_begun_on_a_node_that_somebody_else_has_taken_since(
    world: ProgramWorld, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    settings = checked_by(world, "touch", str(seen))
    world.publish({"n1": 0.9})
    one(settings)
    drain_as("n1", "root", "disk")(world.slurm)
    world.ask("repaired", node="n1", boot_id=BOOT)
    one(settings)
    assert not seen.exists()
    assert world.drained == ["n1"]


def test_a_loop_that_ends_during_a_check_kills_it_and_leaves_the_lease_free(
    world: ProgramWorld,
) -> None:
    settings = checked_by(world, "sleep", "300")
    world.publish({"n1": 0.9})
    one(world.write())
    world.ask("repaired", node="n1", boot_id=BOOT)
    free: list[bool] = []

    def end(_: str) -> None:
        if not free:
            free.append(open_leadership(settings).take())
            os.kill(os.getpid(), signal.SIGTERM)

    loop_on(settings, core_tables=None, say=end)
    assert free == [False]  # another hook would begin the same check
    assert open_leadership(settings).take()


def test_g22_the_kill_switch_stops_returns_too(world: ProgramWorld) -> None:
    settings = world.write()
    world.publish({"n1": 0.9})
    one(settings)
    world.ask("undrain", node="n1", boot_id=BOOT)
    settings.kill_switch.touch()
    one(settings)
    assert world.drained == ["n1"]
    settings.kill_switch.unlink()
    one(settings)
    assert world.drained == []


def test_a_return_that_comes_to_nothing_is_a_persons(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish({"n1": 0.9})
    with opened(world.write()) as hook:
        run_round(hook)
        world.ask("undrain", node="n1", boot_id=BOOT)
        monkeypatch.setattr(world.slurm, "_update", lambda *_: (1, "", "Invalid user id"))
        first = run_round(hook)
        for _ in range(3):
            last = run_round(hook)
    assert world.drained == ["n1"]
    assert "n1: not returned: " in first.messages[0]
    assert "3 tries came to nothing" in last.messages[0]
    asked = status_of(hook.settings, now=datetime.now(UTC)).questions
    assert [one.why for one in asked] == ["return"]


def test_g22_a_kill_switch_set_between_two_returns_keeps_the_second_node(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = world.write()
    world.publish({"n1": 0.9, "n2": 0.9})
    one(settings)
    assert world.drained == ["n1", "n2"]
    for node in world.drained:
        world.ask("undrain", node=node, boot_id=BOOT)
    update = world.slurm._update

    def returned_and_stopped(*order: Any) -> tuple[int, str, str]:
        settings.kill_switch.touch()
        return update(*order)

    monkeypatch.setattr(world.slurm, "_update", returned_and_stopped)
    one(settings)
    assert world.drained == ["n2"]


def test_a_check_whose_node_is_no_longer_held_does_not_keep_the_lease(
    world: ProgramWorld,
) -> None:
    settings = checked_by(world, "sleep", "0.2")
    world.publish({"n1": 0.9})
    one(world.write())
    world.ask("repaired", node="n1", boot_id=BOOT)
    lease = open_leadership(settings)
    checks = CheckRunner(clock=utc_now, environment={"PATH": os.environ["PATH"]})
    with checks, opened(settings, checks=checks) as hook:
        run_round(hook, leadership=lease)
        assert checks.running == {"n1"}
        world.slurm.nodes["n1"].flags = frozenset()
        run_round(hook, leadership=lease)
        while not all(one.done() for one in checks._running.values()):
            time.sleep(0.05)
        run_round(hook, leadership=lease)
    assert lease.token is None
    assert open_leadership(settings).take()


def test_a_single_round_keeps_its_lease_while_its_check_runs(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = checked_by(world, "sleep", "0.5")
    world.publish({"n1": 0.9})
    one(world.write())
    world.ask("repaired", node="n1", boot_id=BOOT)
    kept: list[str | None] = []
    finished = CheckRunner.finished

    def noted(self: CheckRunner, *, wait_s: float = 0.0) -> tuple[CheckResult, ...]:
        if wait_s:  # the wait for the check, after the round
            monkeypatch.setattr(Leadership, "fence", lambda lease: kept.append(fence(lease)))
        return finished(self, wait_s=min(wait_s, 0.1))

    fence = Leadership.fence
    monkeypatch.setattr(CheckRunner, "finished", noted)
    one(settings)
    assert set(kept) == {None}


@pytest.mark.parametrize(
    ("command", "said"), [(None, "returns.check is not set"), (("sh", "-c", "exit 255"), "255")]
)
def test_a_check_that_cannot_be_had_is_a_persons(
    world: ProgramWorld, command: tuple[str, ...] | None, said: str
) -> None:
    settings = world.write() if command is None else checked_by(world, *command)
    world.publish({"n1": 0.9})
    one(settings)
    world.ask("repaired", node="n1", boot_id=BOOT)
    one(settings)
    made = one(settings)
    assert said in made.messages[0]
    assert "forewarn remediate undrain n1" in made.messages[0]
    asked = status_of(settings, now=datetime.now(UTC)).questions
    assert [question.why for question in asked] == ["check"]
