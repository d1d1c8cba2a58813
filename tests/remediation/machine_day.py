"""A day of a large cluster on which everything goes wrong at once; no assertion lives here.

Its invariants are those of the state machine: `machine_oracle` and `machine_books`.
"""

# ruff: noqa: S311 - seeded worlds, no secrets

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from remediation.cluster.state import JobView, NodeView
from remediation.hook import HookRun
from remediation.ledger.journal import acknowledge
from remediation.site import Burst, LevelRule, Site
from simulation.chaos.actuator import Fault, Kind
from tests.remediation.machine_books import Watcher
from tests.remediation.machine_oracle import held_in
from tests.remediation.machine_world import START, TICK, WATCHED, Machine

TICKS = 96
ROLLOUT_AT, ROLLBACK_AT = 32, 44
"""Ticks at which a new driver trips its nodes, and at which it is taken back."""
_SIZES = (1, 1, 1, 2, 2, 4, 8, 16, 32, 64, 128, 256)
_FAULTS: tuple[Fault, ...] = (
    "not_done", "raises_before", "unclear_before", "raises_after", "unclear_after", "late",
)  # fmt: skip


@dataclass
class Day:
    """A day as it went.

    Attributes:
        machine: The world.
        seconds: Time of each round.
        runs: What each round found.
        true_failures: Nodes outside the rollout that fell truly ill, with the tick.
        rolled_out: Nodes of the rollout.
        held: Nodes held at the end of each round.
        told: Messages by their kind.
    """

    machine: Machine
    seconds: list[float] = field(default_factory=list)
    true_failures: dict[str, int] = field(default_factory=dict)
    rolled_out: frozenset[str] = frozenset()
    held: list[int] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    n_faults: int = 0

    @property
    def start(self) -> datetime:
        return START

    @property
    def acted_on(self) -> list[str]:
        orders = self.machine.watcher.orders
        return [one.node for one in orders if one.kind == "hold" and one.had_effect]


def make_day(n_nodes: int, *, n_rollout: int, seed: int) -> Day:
    """The morning: a fleet in racks of eight with one old driver, and jobs of many sizes."""
    rng = random.Random(seed)
    nodes = [
        NodeView(
            name=f"n{i}", state="up", boot_id=f"boot-{i}", rack=f"r{i // 8}",
            switch=f"s{i // 64}", partitions=("train",), n_gpus=8,
            driver="560" if i < n_rollout else "550",
        )
        for i in range(n_nodes)
    ]  # fmt: skip
    site = Site(
        groups={"watched": (WATCHED,)},
        levels=(LevelRule(group="watched", level="observe"), LevelRule(level="notify_then_drain")),
        deny=("n8",),
        burst=Burst(fleet_percent=20),
    )
    machine = Machine(seed, site=site, nodes=nodes)
    machine.watcher = Watcher(machine)
    day = Day(machine, rolled_out=frozenset(node.name for node in nodes[:n_rollout]))

    def fault(kind: Kind, node: str) -> Fault | None:
        del kind, node
        if rng.random() >= 0.2:
            return None
        day.n_faults += 1
        return rng.choice(_FAULTS)

    machine.actuator._faults = fault
    _start_jobs(machine, rng, used=0.85)
    return day


def live(day: Day, *, ticks: int, seed: int) -> None:
    """Lives through the day, tick by tick; a violation ends it."""
    rng = random.Random(seed + 1)
    machine = day.machine
    for place in range(ticks):
        machine.now += TICK
        _fall_ill(day, rng, place)
        _people(machine, rng)
        ended = rng.sample(sorted(machine.cluster.jobs), k=len(machine.cluster.jobs) // 20)
        machine.cluster.end_jobs(ended)
        _start_jobs(machine, rng, used=0.85)
        machine.actuator.land()
        names = list(machine.cluster.nodes)
        silent = frozenset(name for name in names if rng.random() < 0.05)
        machine.publish(rng, unknown=silent)
        begun = time.perf_counter()
        made = machine.run()
        day.seconds.append(time.perf_counter() - begun)
        machine.watcher.after_step()
        _note(day, made)
    machine.watcher.at_end()


def _fall_ill(day: Day, rng: random.Random, place: int) -> None:
    sick = day.machine.sick
    if place == ROLLOUT_AT:
        sick.update(dict.fromkeys(day.rolled_out, 0.8))
    if place == ROLLBACK_AT:
        for name in day.rolled_out:
            sick.pop(name, None)
    if place % 4 == 1:
        others = [n for n in day.machine.cluster.nodes if n not in day.rolled_out and n not in sick]
        name = rng.choice(others)
        sick[name] = rng.choice((0.7, 0.9, 0.97))
        day.true_failures[name] = place


def _people(machine: Machine, rng: random.Random) -> None:
    """Drains and returns at random; what is unclear is looked at within the hour."""
    names = sorted(machine.cluster.nodes)
    for name in rng.sample(names, k=3):
        node = machine.cluster.nodes[name]
        if node.state == "up":
            machine.cluster.change(name, state="drain", reason="bad fan", actor="eve")
            machine.watcher.foreign[name] = "bad fan"
    for name in rng.sample(sorted(machine.watcher.foreign), k=len(machine.watcher.foreign) // 10):
        del machine.watcher.foreign[name]
        machine.cluster.change(name, state="up", reason=None, actor=None)
    for name in sorted(held_in(machine.cluster.nodes.values())):
        if rng.random() < 0.03:
            machine.watcher.person_undrained(name)
            machine.cluster.change(name, state="up", reason=None, actor=None)
            machine.sick.pop(name, None)
    entries = machine.book(("escalation", "acknowledged"))
    answered = {one.refers_to for one in entries}
    for one in entries:
        is_asked = one.kind == "escalation" and one.body["why"] == "ambiguous"
        if is_asked and one.key not in answered and rng.random() < 0.25:
            acknowledge(machine.ledger, one.key, actor="eve", at=machine.now)
            machine.watcher.acknowledged(str(one.node))


def _start_jobs(machine: Machine, rng: random.Random, *, used: float) -> None:
    """Fills free nodes with jobs until a share of the fleet is used."""
    busy = {name for job in machine.cluster.jobs.values() for name in job.nodes}
    nodes = machine.cluster.nodes
    free = [n for n, node in nodes.items() if node.state == "up" and n not in busy]
    left = int(used * len(nodes)) - len(busy)
    while left > 0 and free:
        size = min(rng.choice(_SIZES), len(free))
        machine.n_jobs += 1
        machine.cluster.start_job(
            JobView(
                job_id=f"j{machine.n_jobs}", nodes=tuple(free[:size]), n_gpus=8 * size,
                partition="train", remaining_h=rng.choice((1.0, 6.0, 24.0)),
                is_requeue_allowed=rng.choice((True, True, False, None)),
            )
        )  # fmt: skip
        free, left = free[size:], left - size


def _note(day: Day, made: HookRun | None) -> None:
    day.held.append(len(held_in(day.machine.cluster.nodes.values())))
    for text in made.messages if made is not None else ("no round",):
        kinds = ("common cause", "unclear", "held back", "nobody knows", "stuck", "our reason")
        day.told[next((kind for kind in kinds if kind in text), text[:40])] += 1


def summary(day: Day) -> str:
    """The day in a few lines."""
    later = sorted(day.seconds)
    handled = [name for name in day.true_failures if name in day.acted_on]
    lines = (
        f"rounds {len(later)}: median {later[len(later) // 2]:.2f} s, longest {later[-1]:.2f} s",
        f"ledger entries {len(day.machine.ledger.entries())}, faults injected {day.n_faults}",
        f"holds {len(day.acted_on)}, held at most {max(day.held)}",
        f"of the rollout {len(day.rolled_out & set(day.acted_on))}",
        f"true failures {len(day.true_failures)}, held {len(handled)}",
        f"told: {dict(day.told)}",
        f"invariants checked: {day.machine.watcher.checked.total()}",
    )
    return "\n".join(lines)
