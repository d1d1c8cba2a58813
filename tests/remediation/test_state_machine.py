"""The hook never makes an outage worse: walks through a hostile world, and proof that they see.

The rules are in `machine_rules`, the invariants in `machine_oracle` and `machine_books`.
"""

from datetime import timedelta

import pytest

from remediation.actuators.protocol import FakeActuator
from remediation.cluster.state import JobView
from remediation.ledger.journal import acknowledge
from remediation.site import Caps
from tests.remediation.machine_crash import (
    DryRun,
    Fuse,
    Kubernetes,
    Slurm,
    Webhook,
    steps_of_a_run,
)
from tests.remediation.machine_mutations import EQUIVALENT, MUTATIONS, hunt
from tests.remediation.machine_rules import RULES
from tests.remediation.machine_walk import said, shrink, soak

FAST_STEPS, SLOW_STEPS, MOST_STEPS = 2_000, 20_000, 30_000
INVARIANTS = {
    "1 level", "2 fleet cap", "2 job cap", "2 never all", "2 partition cap", "2 rack cap",
    "2 rate cap", "4 trip told", "5 expired", "6 unknown", "7 n of k", "8 applications", "8 burst",
    "9 foreign", "10 cool-down", "10 no residue", "10 release", "11 re-read", "12 boot",
    "13 forgotten", "13 intent first", "13 results", "13 twice", "15 stuck", "16 give back",
    "17 down", "19 attempts", "20 audit", "20 chain", "22 deny list", "22 hours",
    "22 kill switch", "22 maintenance", "25 notice", "25 requeue", "28 prior", "28 synthetic",
    "1 dry run",
}  # fmt: skip


def check_walks(n_steps: int, *, seed: int) -> tuple[set[str], set[str]]:
    made = soak(n_steps, seed=seed)
    assert made.violation is None, said(shrink(made.walk))
    return set(made.used), set(made.checked)


def test_nothing_that_happens_makes_the_hook_break_a_guarantee():
    used, _ = check_walks(FAST_STEPS, seed=0)
    assert used == set(RULES)


@pytest.mark.slow
def test_20_000_steps_use_every_rule_and_check_every_invariant():
    used, checked = check_walks(SLOW_STEPS, seed=100_000)
    assert used == set(RULES)
    assert checked == INVARIANTS


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(MUTATIONS) - set(EQUIVALENT)))
def test_a_weakened_hook_is_found_out(name, monkeypatch):
    found, steps = hunt(name, monkeypatch.setattr, most_steps=MOST_STEPS)
    assert found is not None, f"{name}: not found within {steps} steps"


@pytest.mark.parametrize(
    "name", ["caps forget held nodes", "skips the re-read", "forgets undrains"]
)
def test_the_machine_has_eyes(name, monkeypatch):
    found, _ = hunt(name, monkeypatch.setattr, most_steps=FAST_STEPS)
    assert found is not None


def test_a_violation_is_shrunk_to_few_steps(monkeypatch):
    found, _ = hunt("sees no burst", monkeypatch.setattr, most_steps=FAST_STEPS)
    short = shrink(found)
    assert short.violation.invariant == found.violation.invariant
    assert len(short.steps) <= min(8, len(found.steps))


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("make", [Slurm, Kubernetes, Webhook, DryRun])
def test_g13_a_crash_at_any_command_of_a_whole_run_acts_on_nothing_twice(make, is_after):
    n_steps = steps_of_a_run(make)
    assert n_steps > 15
    for step in range(n_steps):
        world = make()
        assert world.run(Fuse(left=step, is_after=is_after)) is None, step
        messages = [world.run(Fuse.none()).messages for _ in range(2)]
        assert all(count <= 1 for count in world.holds.values()), step
        world.check_nothing_lost(messages[-1])
        world.next_tick()
        world.check_nothing_lost(world.run(Fuse.none()).messages)
        assert all(count <= 1 for count in world.holds.values()), step


@pytest.mark.parametrize("is_after", [False, True])
def test_g13_a_crash_while_a_notice_ends_interrupts_each_job_once(is_after):
    for step in range(100):
        world = Slurm()
        world.run(Fuse.none())
        world.now += timedelta(minutes=31)
        is_done = world.run(Fuse(left=step, is_after=is_after)) is not None
        for _ in range(3):
            world.run(Fuse.none())
        assert world.requeued <= 1, step
        if is_done:
            break
    assert step > 10


# What the machine found, each as its shortest sequence.


class Raises(FakeActuator):
    """Loses the connection after, or before, a node was taken."""

    is_after = True

    def drain(self, order):
        if self.is_after:
            super().drain(order)
        raise ConnectionError("lost")


def acknowledge_all(world):
    for entry in world.ledger.entries(kinds=("escalation",)):
        acknowledge(world.ledger, entry.key, actor="eve", at=world.now)


def test_g13_an_unclear_result_is_told_in_every_run_until_a_person_has_looked(kit):
    world = kit.world({"a": 0.9})
    world.actuator = Raises(world.cluster)
    world.run()
    assert any("a: " in text for text in world.next_tick({"a": 0.9}).messages)


@pytest.mark.parametrize("state", ["drain", "down"])
def test_g13_a_node_that_is_ours_but_in_no_book_is_told_and_counts_as_held(kit, state):
    caps = Caps(held_percent=100, held_most=1, per_rack=None, actions_per_hour=9)
    world = kit.world({"a": 0.9, "b": 0.1}, site=kit.site(caps=caps))
    world.actuator = Raises(world.cluster)
    world.run()
    acknowledge_all(world)
    world.cluster.set_node("a", state=state)
    world.actuator = FakeActuator(world.cluster)
    run = world.next_tick({"a": 0.9, "b": 0.9})
    assert any("a: carries our reason" in text for text in run.messages)
    assert world.acted_on == []


def at_state(world, do):
    """Something happens while the hook reads a node again, right before it acts."""

    class Slow(FakeActuator):
        def state(self, node):
            found = super().state(node)
            do()
            return found

    world.actuator = Slow(world.cluster)


def test_g05_a_process_that_was_stopped_before_the_act_does_not_act_on_expired_scores(kit):
    world = kit.world({"a": 0.9})
    at_state(world, lambda: setattr(world, "now", world.now + timedelta(hours=3)))
    (outcome,) = world.run().outcomes.values()
    assert (outcome.status, world.acted_on) == ("not_done", [])
    assert "scores_in_time" in outcome.detail


def test_g05_a_clock_that_goes_back_does_not_make_expired_scores_young_again(kit):
    caps = Caps(held_percent=100, actions_per_hour=0)
    world = kit.world({"a": 0.9}, site=kit.site(caps=caps))
    world.run()
    world.site = kit.site()
    world.now += timedelta(hours=2)
    world.run()
    world.now -= timedelta(hours=1, minutes=45)
    messages = [world.run().messages for _ in range(2)]
    assert world.acted_on == []
    assert all("the clock shows" in told[0] for told in messages)


def test_g04_two_hooks_on_one_ledger_do_not_take_more_than_the_caps_together(kit):
    caps = Caps(held_percent=100, held_most=1, per_rack=None, actions_per_hour=9)
    world = kit.world({"a": 0.9, "b": 0.8}, site=kit.site(caps=caps))
    other = FakeActuator(world.cluster)

    class Meanwhile:
        def latest(self, now):
            world.run(actuator=other)
            return world.scores

    world.run(scores=Meanwhile())
    assert [one.expected.name for one in other.orders] == ["a"]
    assert world.acted_on == []


def test_g10_a_stale_read_does_not_release_what_was_just_taken(kit):
    world = kit.world({"a": 0.9})
    seen = world.cluster.read()
    world.run()

    class Stale:
        def read(self):
            return seen

    world.run(cluster=Stale())
    assert world.ledger.entries(kinds=("released",)) == ()


def test_g12_a_score_that_was_seen_for_another_boot_does_not_act(kit):
    world = kit.world({"a": 0.9}, site=kit.site(caps=Caps(held_percent=100, actions_per_hour=0)))
    world.run()
    world.site = kit.site()
    world.cluster.set_node("a", boot_id="boot-2")
    world.run()
    assert world.acted_on == []
    world.next_tick({"a": 0.9})
    assert world.acted_on == ["a"]


def test_g11_a_step_is_taken_only_on_a_node_that_is_still_as_it_was_read(kit):
    job = JobView(job_id="7", nodes=("a",), n_gpus=8, remaining_h=20, is_requeue_allowed=True)
    world = kit.world({"a": 0.99}, jobs=(job,))
    world.run()
    seen = world.cluster.read()
    world.cluster.set_node("a", reason="disk", actor="eve")
    world.now += timedelta(hours=1)

    class Stale:
        def read(self):
            return seen

    world.run(cluster=Stale())
    assert world.cluster.read().jobs == (job,)


def test_g04_a_cap_is_told_also_where_the_level_made_the_action_milder(kit):
    job = JobView(job_id="7", nodes=("a",), n_gpus=8, checkpoint_age_h=0.0, is_requeue_allowed=True)
    caps = Caps(held_percent=100, per_rack=None, actions_per_hour=0)
    world = kit.world({"a": 0.99}, jobs=(job,), site=kit.site(caps=caps))
    run = world.run()
    assert run.judged[0].decision.wanted == "drain_now"
    assert any("cap_rate held back a" in text for text in run.messages)
