"""Holds that outlive a run: notices end, stuck drains are told and given back, and never twice."""

from dataclasses import replace
from datetime import timedelta

import pytest

from remediation.actuators.protocol import FakeActuator, Outcome
from remediation.cluster.state import JobView
from remediation.ledger.journal import acknowledge
from remediation.site import Drains


def world_of(kit, *, may=True, **drains):
    """A node that is about to fail, with a job that may be requeued or that soon ends."""
    job = JobView(
        job_id="7", nodes=("a",), n_gpus=8, remaining_h=20 if may else 0.2, is_requeue_allowed=may
    )
    nodes = tuple(kit.node(name) for name in ("a", "b", "idle"))
    site = kit.site(drains=Drains(**drains))
    return kit.world({"a": 0.99}, nodes=nodes, jobs=(job,), site=site)


def whys(world, kind):
    return [entry.body["why"] for entry in world.ledger.entries(kinds=(kind,))]


def later(world, **span):
    world.now += timedelta(**span)
    return world.next_tick({"a": 0.1})


def test_g25_a_notice_is_ended_once_in_the_first_run_after_it(kit):
    world = world_of(kit)
    assert world.run().judged[0].action == "checkpoint_then_drain"
    later(world)
    assert world.cluster.read().jobs
    later(world)
    assert world.cluster.read().jobs == ()
    later(world)
    assert len(world.actuator.ended) == 1
    assert world.cluster.read().by_name["a"].owner == "forewarn"


def test_g15_a_stuck_drain_is_told_in_every_run_and_written_once(kit):
    world = world_of(kit, may=False, longest_hours=1)
    assert world.run().judged[0].action == "drain_after_jobs"
    for _ in range(2):
        assert any("stuck: 1 job is left" in text for text in later(world, hours=2).messages)
    assert whys(world, "escalation") == ["stuck"]
    assert world.cluster.read().by_name["a"].state == "drain"


def test_g16_a_stuck_node_is_given_back_if_it_is_ours_and_then_left_alone(kit):
    world = world_of(kit, may=False, longest_hours=1, is_stuck_returned=True)
    world.run()
    later(world, hours=2)
    assert world.cluster.read().by_name["a"].state == "up"
    assert whys(world, "released") == ["returned"]
    later(world)
    assert whys(world, "released") == ["returned"]


def test_g16_a_stuck_node_that_somebody_took_over_is_theirs(kit):
    world = world_of(kit, may=False, longest_hours=1, is_stuck_returned=True)
    world.run()
    world.cluster.set_node("a", reason="disk", actor="eve")
    later(world, hours=2)
    assert world.cluster.read().by_name["a"].reason == "disk"
    assert whys(world, "released") == ["taken_over"]


def test_g15_one_stuck_node_does_not_starve_the_others(kit):
    class Broken(FakeActuator):
        def undrain(self, order):
            raise RuntimeError("connection lost")

    world = world_of(kit, may=False, longest_hours=1, is_stuck_returned=True)
    world.run()
    world.actuator = Broken(world.cluster)
    world.now += timedelta(hours=2)
    world.next_tick({"a": 0.1, "idle": 0.9})
    assert world.acted_on == ["idle"]
    later(world)
    steps = [e.key for e in world.ledger.entries(kinds=("intent",)) if "step" in e.body]
    assert len(steps) == 1


class Crash(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("is_after", [False, True])
def test_g13_a_notice_whose_end_a_crash_left_open_is_ended_again(kit, is_after):
    class Dies(FakeActuator):
        def end_notice(self, order):
            if is_after:
                super().end_notice(order)
            raise Crash

    world = world_of(kit)
    world.run()
    world.actuator = Dies(world.cluster)
    world.now += timedelta(hours=1)
    with pytest.raises(Crash):
        world.next_tick({"a": 0.1})
    world.actuator = FakeActuator(world.cluster)
    assert later(world).messages == ()
    assert world.cluster.read().jobs == ()
    assert world.ledger.verify().is_whole


@pytest.mark.parametrize("is_after", [False, True])
def test_g13_a_return_that_a_crash_left_open_is_known_by_the_node_or_told(kit, is_after):
    class Dies(FakeActuator):
        def undrain(self, order):
            if is_after:
                super().undrain(order)
            raise Crash

    world = world_of(kit, may=False, longest_hours=1, is_stuck_returned=True)
    world.run()
    world.actuator = Dies(world.cluster)
    world.now += timedelta(hours=2)
    with pytest.raises(Crash):
        world.next_tick({"a": 0.1})
    world.actuator = FakeActuator(world.cluster)
    messages = later(world).messages
    assert whys(world, "released") == (["returned"] if is_after else [])
    assert is_after or any("return of" in text for text in messages)


def test_g22_the_kill_switch_stops_steps_too(kit, tmp_path):
    world = world_of(kit)
    world.run()
    world.site = world.site.model_copy(update={"is_stopped": True})
    later(world, hours=1)
    assert world.cluster.read().jobs


class Slow(FakeActuator):
    """Empties a node in several calls, as a budget for evictions makes one."""

    calls = 0

    def drain(self, order):
        self.calls += 1
        if self.calls == 1:
            return replace(super().drain(order), left=("pod web",))
        return Outcome(status="done", left=("pod web",) if self.calls < 4 else ())


def test_g14_a_drain_that_left_something_goes_on_in_every_run_until_nothing_is_left(kit):
    world = world_of(kit, may=False)
    world.actuator = Slow(world.cluster)
    world.run()
    for _ in range(6):
        later(world)
    assert world.actuator.calls == 4
    assert world.ledger.verify().is_whole


def test_g15_a_drain_that_goes_on_for_too_long_is_stuck(kit):
    world = world_of(kit, may=False, longest_hours=1)
    world.actuator = Slow(world.cluster)
    world.cluster.set_jobs(())
    world.run()
    assert any("a:" in text for text in later(world, hours=2).messages)
    assert whys(world, "escalation") == ["stuck"]
    assert world.actuator.calls == 2


def test_g19_a_notice_that_cannot_be_ended_is_a_persons_and_not_forgotten(kit):
    class Refuses(FakeActuator):
        def end_notice(self, order):
            return Outcome(status="not_done", detail="squeue gave no answer")

    world = world_of(kit)
    world.run()
    world.actuator = Refuses(world.cluster)
    made = [later(world, minutes=45) for _ in range(5)]
    assert [bool(run.messages) for run in made] == [False, False, True, True, True]
    assert "3 tries to end it came to nothing: jobs 7 run on" in made[-1].messages[0]
    assert whys(world, "escalation") == ["notice"]


def test_a_round_that_may_not_act_spends_no_tries(kit):
    world = world_of(kit)
    world.run()
    world.now += timedelta(hours=1)
    for _ in range(4):
        world.next_tick({"a": 0.1}, may_act=lambda: "told to end")
    assert [e for e in world.ledger.entries(kinds=("intent",)) if "step" in e.body] == []
    later(world)
    assert world.cluster.read().jobs == ()


def test_a_node_that_is_gone_is_held_until_a_person_says_that_it_does_not_come_back(kit):
    world = world_of(kit, may=False)
    world.run()
    state = world.cluster.state
    world.cluster.state = replace(state, nodes=state.nodes[1:], jobs=())
    assert any("no longer knows it" in text for text in later(world).messages)
    assert whys(world, "released") == []
    (question,) = world.ledger.entries(kinds=("escalation",))
    acknowledge(world.ledger, question.key, actor="eve", at=world.now)
    assert later(world).messages == ()
    assert whys(world, "released") == ["gone"]
