"""The hook dies at any step and is run again: nothing acted twice, nothing lost."""

from collections import Counter
from dataclasses import dataclass

import pytest

from remediation.actuators.dry_run import DryRunActuator
from remediation.actuators.protocol import FakeActuator
from remediation.ledger.sqlite import SqliteLedger

SCORES = {"a": 0.95, "b": 0.9, "c": 0.1}


class Crash(BaseException):
    """The process is gone; nothing in the hook may catch it."""


@dataclass
class Fuse:
    """Lets `left` steps pass and dies just before, or just after, the next."""

    left: int
    is_after: bool = False
    is_blown: bool = False

    def step(self, do):
        if self.left > 0:
            self.left -= 1
            return do()
        self.is_blown = True
        if self.is_after:
            do()
        raise Crash


class Fused:
    """A ledger, actuator or reader each of whose calls is a step."""

    def __init__(self, inner, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name: str):
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return lambda *args, **more: self._fuse.step(lambda: found(*args, **more))


def run_until_crash(world, fuse: Fuse) -> bool:
    try:
        world.run(
            cluster=Fused(world.cluster, fuse),
            actuator=Fused(world.actuator, fuse),
            ledger=Fused(world.ledger, fuse),
        )
    except Crash:
        return True
    return False


def steps_of_a_run(kit) -> int:
    fuse = Fuse(left=10_000)
    assert not run_until_crash(kit.world(SCORES), fuse)
    return 10_000 - fuse.left


def check_nothing_lost(world, run) -> None:
    """Every act has its intent, and every intent a result or a person who is told."""
    entries = world.ledger.entries()
    assert world.ledger.verify().is_whole
    answered = {entry.refers_to for entry in entries if entry.kind == "result"}
    intents = [entry for entry in entries if entry.kind == "intent"]
    told = "\n".join(run.messages)
    for intent in intents:
        assert intent.key in answered or f"{intent.node}: " in told
    assert set(world.acted_on) <= {intent.node for intent in intents}


@pytest.mark.parametrize("is_after", [False, True])
def test_g13_a_crash_at_any_step_leaves_nothing_acted_twice_and_nothing_lost(
    kit, tmp_path, is_after
):
    n_steps = steps_of_a_run(kit)
    assert n_steps > 15
    for step in range(n_steps):
        path = tmp_path / f"{is_after}-{step}.db"
        world = kit.world(SCORES, ledger=SqliteLedger(path))
        assert run_until_crash(world, Fuse(left=step, is_after=is_after)), step
        world.ledger.close()
        with SqliteLedger(path) as world.ledger:
            run = world.run()
            check_nothing_lost(world, run)
            world.run()
            again = world.next_tick(SCORES)
            check_nothing_lost(world, again)
        assert max(Counter(world.acted_on).values(), default=0) <= 1
        told = "\n".join(again.messages)
        for name in ("a", "b"):
            assert name in world.acted_on or f"{name}: " in told, step


def test_g13_a_second_crash_during_recovery_is_no_different(kit):
    n_steps = steps_of_a_run(kit)
    for first in range(0, n_steps, 3):
        for second in range(0, n_steps, 5):
            world = kit.world(SCORES)
            run_until_crash(world, Fuse(left=first, is_after=True))
            run_until_crash(world, Fuse(left=second, is_after=True))
            check_nothing_lost(world, world.run())
            assert max(Counter(world.acted_on).values(), default=0) <= 1


def test_g13_what_was_done_before_the_crash_is_found_on_the_node(kit):
    world = kit.world({"a": 0.95})

    class Dies(FakeActuator):
        def drain(self, order):
            super().drain(order)
            raise Crash

    world.actuator = Dies(world.cluster)
    with pytest.raises(Crash):
        world.run()
    world.run()
    (result,) = world.ledger.entries(kinds=("result",))
    assert result.body["status"] == "done"
    assert "found on the node" in result.body["detail"]


def test_g13_what_nobody_knows_is_told_in_every_run_and_written_once(kit):
    world = kit.world({"a": 0.95})

    class Dies(FakeActuator):
        def drain(self, order):
            raise Crash

    world.actuator = Dies(world.cluster)
    with pytest.raises(Crash):
        world.run()
    world.actuator = FakeActuator(world.cluster)
    messages = [world.run().messages, world.run().messages, world.next_tick({"a": 0.95}).messages]
    assert all("a: drain_after_jobs of" in told[0] for told in messages)
    assert len(world.ledger.entries(kinds=("escalation",))) == 1
    assert world.acted_on == []


def test_g13_a_dry_run_that_stopped_is_simply_done_again(kit):
    world = kit.world({"a": 0.95})

    class Dies(DryRunActuator):
        def drain(self, order):
            raise Crash

    with pytest.raises(Crash):
        world.run(actuator=Dies(world.cluster))
    run = world.run(actuator=DryRunActuator(world.cluster))
    assert [outcome.status for outcome in run.outcomes.values()] == ["would_do"]
    assert run.messages == ()
