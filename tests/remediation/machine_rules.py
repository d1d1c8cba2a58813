"""What happens in the world of the state machine, as rules; each may happen at any time.

What may never happen is in `machine_oracle` and `machine_books`, walks are in `machine_walk`.
"""

# ruff: noqa: S311 - seeded worlds, no secrets

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from remediation.actuators.dry_run import DryRunActuator
from remediation.cluster.state import NodeView
from remediation.ledger.journal import acknowledge
from simulation.chaos.actuator import FAULTS
from tests.remediation.machine_oracle import held_in
from tests.remediation.machine_world import TICK, Machine, Planned, job

Rule = Callable[[Machine, random.Random], None]

MOST_STEPS_IN_A_RUN = 30


def tick(machine: Machine, rng: random.Random) -> None:
    """A quarter of an hour passes, scores are published, the hook runs."""
    machine.now += TICK
    machine.publish(rng)
    machine.run()


def odd_tick(machine: Machine, rng: random.Random) -> None:
    """The same with scores that must not be acted on, or are lacking."""
    machine.now += TICK
    names = frozenset(machine.sick) or frozenset(machine.cluster.nodes)
    some = frozenset(n for n in sorted(names) if rng.random() < 0.7)
    changes: dict[str, Any] = rng.choice(
        (
            {"trained_on": "synthetic"}, {"missing": some}, {"unknown": some}, {"prior": some},
            {"application_only": some}, {"expires_at": machine.now},
            {"expires_at": machine.now - TICK},
        )
    )  # fmt: skip
    machine.publish(rng, **changes)
    machine.run()


def silent_tick(machine: Machine, rng: random.Random) -> None:
    """Scores are published and the hook does not run."""
    machine.now += TICK
    machine.publish(rng)


def run_again(machine: Machine, rng: random.Random) -> None:
    machine.now += timedelta(minutes=rng.choice((0, 1, 5)))
    machine.run()


def fall_ill(machine: Machine, rng: random.Random) -> None:
    for name in rng.sample(sorted(machine.cluster.nodes), k=rng.choice((1, 1, 1, 2))):
        machine.sick[name] = rng.choice((0.55, 0.9, 0.97))


def fall_ill_together(machine: Machine, rng: random.Random) -> None:
    """Many at once: of one rack, one driver, or anywhere."""
    nodes = list(machine.cluster.nodes.values())
    one = rng.choice(nodes)
    what = rng.choice(("rack", "driver", "switch", "name"))
    alike = [n.name for n in nodes if what == "name" or getattr(n, what) == getattr(one, what)]
    for name in rng.sample(alike, k=min(len(alike), rng.choice((3, 4, 5, 6)))):
        machine.sick[name] = 0.9


def job_falls_ill(machine: Machine, rng: random.Random) -> None:
    """Two nodes of one job at once."""
    wide = [one for _, one in sorted(machine.cluster.jobs.items()) if one.n_nodes > 1]
    if wide:
        for name in rng.sample(rng.choice(wide).nodes, k=2):
            machine.sick[name] = 0.97


def recover(machine: Machine, rng: random.Random) -> None:
    for name in list(machine.sick):
        if rng.random() < 0.5:
            del machine.sick[name]


def start_job(machine: Machine, rng: random.Random) -> None:
    up = sorted(n.name for n in machine.cluster.nodes.values() if n.state == "up")
    size = min(len(up), rng.choice((1, 1, 2, 4)))
    if size:
        may, hours = rng.choice((True, True, False, None)), rng.choice((0.2, 3.0, 30.0))
        machine.cluster.start_job(job(machine, tuple(rng.sample(up, k=size)), may=may, hours=hours))


def end_job(machine: Machine, rng: random.Random) -> None:
    if machine.cluster.jobs:
        machine.cluster.end_jobs([rng.choice(sorted(machine.cluster.jobs))])


def _pick(machine: Machine, rng: random.Random, *, ours: bool | None = None) -> NodeView | None:
    held = held_in(machine.cluster.nodes.values())
    nodes = [
        node
        for name, node in sorted(machine.cluster.nodes.items())
        if ours is None or (name in held) == ours
    ]
    return rng.choice(nodes) if nodes else None


def _free(machine: Machine, node: NodeView) -> None:
    """Whatever held the node, nobody does now."""
    machine.watcher.foreign.pop(node.name, None)


def goes_down(machine: Machine, rng: random.Random) -> None:
    node = _pick(machine, rng)
    if node is not None and node.state == "up":
        machine.cluster.change(node.name, state=rng.choice(("down", "unknown")))


def held_goes_down(machine: Machine, rng: random.Random) -> None:
    node = _pick(machine, rng, ours=True)
    if node is not None:
        machine.cluster.change(node.name, state=rng.choice(("down", "unknown")))


def comes_back(machine: Machine, rng: random.Random) -> None:
    """What was down is there again: as it was held before, or up."""
    for node in list(machine.cluster.nodes.values()):
        if node.state in ("down", "unknown"):
            state = "drain" if node.reason else "up"
            machine.cluster.change(node.name, state=state)


def reboots(machine: Machine, rng: random.Random) -> None:
    """A node comes back with another boot, still held by whoever held it."""
    node = _pick(machine, rng)
    if node is not None:
        machine.n_boots += 1
        machine.cluster.change(node.name, boot_id=f"again-{machine.n_boots}")


def is_replaced(machine: Machine, rng: random.Random) -> None:
    """Another machine takes the name, held by nobody."""
    node = _pick(machine, rng)
    if node is None:
        return
    if node.name in held_in([node]):
        machine.watcher.person_undrained(node.name)
    machine.n_boots += 1
    _free(machine, node)
    machine.cluster.change(
        node.name, boot_id=f"new-{machine.n_boots}", state="up", reason=None, actor=None
    )


def sick_is_replaced(machine: Machine, rng: random.Random) -> None:
    """A node in service that scores high is another from now on, and scores high again."""
    up = [n for n in sorted(machine.sick) if machine.cluster.nodes[n].state == "up"]
    if up:
        machine.n_boots += 1
        machine.cluster.change(rng.choice(up), boot_id=f"other-{machine.n_boots}")


def person_undrains(machine: Machine, rng: random.Random) -> None:
    node = _pick(machine, rng, ours=True)
    if node is not None and node.state == "drain":
        machine.watcher.person_undrained(node.name)
        machine.cluster.change(node.name, state="up", reason=None, actor=None)


def person_takes_over(machine: Machine, rng: random.Random) -> None:
    """Somebody holds what we held, in their own name."""
    node = _pick(machine, rng, ours=True)
    if node is not None and node.state == "drain":
        machine.cluster.change(node.name, reason="disk, eve", actor="eve")
        machine.watcher.foreign[node.name] = "disk, eve"


def person_drains(machine: Machine, rng: random.Random) -> None:
    node = _pick(machine, rng, ours=False)
    if node is not None and node.state == "up":
        reason = rng.choice(("bad fan", "see forewarn: ticket 7", "Forewarn: no"))
        machine.cluster.change(node.name, state="drain", reason=reason, actor="eve")
        machine.watcher.foreign[node.name] = reason


def person_returns(machine: Machine, rng: random.Random) -> None:
    """Somebody ends a drain of their own; a taken over one counts as an undrain of ours."""
    names = sorted(machine.watcher.foreign)
    if names:
        name = rng.choice(names)
        del machine.watcher.foreign[name]
        machine.cluster.change(name, state="up", reason=None, actor=None)


def person_acknowledges(machine: Machine, rng: random.Random) -> None:
    entries = machine.book(("escalation", "acknowledged"))
    answered = {one.refers_to for one in entries}
    asked = [one for one in entries if one.kind == "escalation" and one.key not in answered]
    if asked:
        one = rng.choice(asked)
        acknowledge(machine.ledger, one.key, actor="eve", at=machine.clock())
        machine.watcher.acknowledged(str(one.node))


def kill(machine: Machine, rng: random.Random) -> None:
    machine.stopped = True


def unkill(machine: Machine, rng: random.Random) -> None:
    machine.stopped = False


def stops_for_hours(machine: Machine, rng: random.Random) -> None:
    """The kill switch is on while notices and bounds run out."""
    machine.stopped = True
    machine.now += timedelta(hours=3)
    machine.publish(rng)
    machine.run()
    machine.stopped = False


def pause(machine: Machine, rng: random.Random) -> None:
    machine.now += timedelta(minutes=rng.choice((20, 40, 70, 180, 600)))


def clock_jumps(machine: Machine, rng: random.Random) -> None:
    before = machine.skew
    machine.skew = timedelta(minutes=rng.choice((0, 0, 20, 200, -10, -50, -300)))
    if machine.skew < before:
        machine.watcher.clock_went_back()


def clock_right(machine: Machine, rng: random.Random) -> None:
    if machine.skew > timedelta(0):
        machine.watcher.clock_went_back()
    machine.skew = timedelta(0)


def relives(machine: Machine, rng: random.Random) -> None:
    """Scores expire before a run, and the clock goes back to when they held."""
    machine.now += TICK
    published = machine.publish(rng)
    machine.now += timedelta(minutes=45)
    machine.run()
    machine.skew = published.as_of + timedelta(minutes=5) - machine.now
    machine.watcher.clock_went_back()
    machine.run()


def api_fault(machine: Machine, rng: random.Random) -> None:
    machine.fault += [(rng.choice(FAULTS), None) for _ in range(rng.choice((1, 1, 3)))]


def late_effects(machine: Machine, rng: random.Random) -> None:
    machine.actuator.land()


def hangs(machine: Machine, rng: random.Random) -> None:
    machine.hung = None if machine.hung else rng.choice(sorted(machine.cluster.nodes))


def stale_read(machine: Machine, rng: random.Random) -> None:
    """After a run, the next one reads the cluster as it was before."""
    before = machine.cluster.read()
    tick(machine, rng)
    machine.stale = before
    run_again(machine, rng)


def crash(machine: Machine, rng: random.Random) -> None:
    """The hook dies right before, or right after, a step of a run on new scores."""
    where = rng.randrange(MOST_STEPS_IN_A_RUN)
    is_before = rng.random() < 0.5
    machine.plans = [Planned(where, lambda: None, is_crash=True, is_before=is_before)]
    tick(machine, rng)
    machine.plans = []


def meddle(machine: Machine, rng: random.Random) -> None:
    """In the middle of a run on new scores something else happens."""
    name = rng.choice(MEDDLERS)
    seed = rng.randrange(1 << 30)
    where = rng.randrange(MOST_STEPS_IN_A_RUN)
    machine.plans = [Planned(where, lambda: RULES[name](machine, random.Random(seed)))]
    tick(machine, rng)
    machine.plans = []


def rehearse(machine: Machine, rng: random.Random) -> None:
    """A dry run on the same ledger: it holds nothing, and real runs know nothing of it."""
    before = dict(machine.cluster.nodes)
    machine.run(actuator=DryRunActuator(machine.cluster))
    machine.watcher.check("1 dry run", before == machine.cluster.nodes)


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(tick, odd_tick, silent_tick, run_again, relives, rehearse, crash, meddle),
        *(fall_ill, fall_ill_together, job_falls_ill, recover, start_job, end_job),
        *(goes_down, held_goes_down, comes_back, reboots, is_replaced, sick_is_replaced),
        *(person_undrains, person_takes_over, person_drains, person_returns, person_acknowledges),
        *(kill, unkill, stops_for_hours, pause, clock_jumps, clock_right),
        *(api_fault, late_effects, hangs, stale_read),
    )
}
WEIGHTS = {
    "tick": 30, "odd_tick": 4, "run_again": 5, "meddle": 10, "crash": 6, "fall_ill": 12,
    "job_falls_ill": 3, "recover": 3, "start_job": 5, "end_job": 2, "sick_is_replaced": 2,
    "comes_back": 3, "person_undrains": 2, "person_acknowledges": 4, "unkill": 4, "api_fault": 3,
    "clock_right": 4, "stops_for_hours": 2,
}  # fmt: skip
MEDDLERS = (
    "run_again", "run_again", "run_again", "person_drains", "person_undrains", "person_takes_over",
    "goes_down", "is_replaced", "kill", "pause", "late_effects", "start_job",
)  # fmt: skip
