"""Speed of the replay against real time, and how it grows with nodes and with time.

A made-up record in memory: 3.6 failures per 1,000 node-days, whole-node jobs of a day on average,
hourly scores of which 0.5 % are above the threshold. Reading the store comes on top. CPU seconds
of one core; the policy, guards and caps are the hook's own.

Run as `python -m benchmarks.replay`; with `--year` a year of 1,000 nodes instead.
"""

import sys
import time
from typing import Final

import numpy as np

from remediation.cluster.state import JobView, NodeView
from remediation.site import Burst, Caps, LevelRule, Site
from remediation.site import Warning as WarningSettings
from simulation.replay.comparison import signals_for
from simulation.replay.engine import replay
from simulation.replay.history import (
    HOUR,
    Attempt,
    Change,
    History,
    Hit,
    NodeAttempts,
    Outage,
    ScoreRows,
    moment_of,
)

STRATEGIES: Final = ("never", "always", "history rank", "model", "oracle")
SIZES: Final = ((16, 720), (250, 2190), (500, 2190), (500, 4380))
"""Nodes and hours: a month of the demo's fleet, then doublings of nodes and of time."""
YEAR: Final = (1000, 8760)
START: Final = 490_000 * HOUR
SITE: Final = Site(
    levels=(LevelRule(level="notify_then_drain"),),
    warning=WarningSettings(threshold=0.5, n=2, k=3, tick_minutes=60),
    caps=Caps(per_rack=2),
    burst=Burst(component_nodes=100),
)


def made_up(nodes: int, hours: int, *, seed: int = 1) -> History:
    """A record of `nodes` x `hours`."""
    rng = np.random.default_rng(seed)
    end = START + hours * HOUR
    outages = _outages(rng, nodes, hours)
    attempts = [_attempts(rng, node, end, outages) for node in range(nodes)]
    hits = {hit.onset: hit for one in attempts for hit in one[1]}
    with_hits = tuple(
        Outage(
            number=number,
            node=node,
            start=at,
            end=at + 8 * HOUR,
            fault_type=None,
            hits=(hits[at],) if at in hits and hits[at].attempt.nodes == (node,) else (),
        )
        for number, (at, node) in enumerate(outages)
    )
    names = tuple(f"n{node:05d}" for node in range(nodes))
    return History(
        names=names,
        sizes=(8,) * nodes,
        start=START,
        end=end,
        ticks=START + HOUR * np.arange(hours, dtype=np.int64),
        changes=tuple(
            Change(
                START,
                node,
                NodeView(
                    name=name, state="up", rack=f"r{node // 8}", partitions=("batch",), n_gpus=8
                ),
            )
            for node, name in enumerate(names)
        ),
        attempts=tuple(one[0] for one in attempts),
        outages=with_hits,
        past=tuple(tuple(at for at, node in outages if node == own) for own in range(nodes)),
        scores=_scores(rng, nodes, hours, outages),
    )


def _outages(rng: np.random.Generator, nodes: int, hours: int) -> list[tuple[int, int]]:
    count = round(3.6e-3 * nodes * hours / 24)
    times = START + (rng.random(count) * hours * HOUR).astype(np.int64)
    return sorted(zip(times.tolist(), rng.integers(0, nodes, count).tolist(), strict=True))


def _attempts(
    rng: np.random.Generator, node: int, end: int, outages: list[tuple[int, int]]
) -> tuple[NodeAttempts, list[Hit]]:
    own = [at for at, where in outages if where == node]
    found: list[Attempt] = []
    hits: list[Hit] = []
    at, number = START, 0
    while at < end:
        until = at + round(rng.exponential(24) * HOUR)
        onset = next((one for one in own if at < one <= until), None)
        stop = until if onset is None else onset + HOUR // 4
        key = (f"{node}-{number}", 0)
        view = JobView(
            job_id=key[0], nodes=(f"n{node:05d}",), n_gpus=8, start=moment_of(at), partition="batch"
        )
        found.append(Attempt(key=key, nodes=(node,), gpus=8.0, start=at, end=stop, view=view))
        if onset is not None:
            hits.append(Hit(attempt=found[-1], onset=onset))
        at, number = stop + HOUR // 2, number + 1
    return NodeAttempts(tuple(found)), hits


def _scores(
    rng: np.random.Generator, nodes: int, hours: int, outages: list[tuple[int, int]]
) -> ScoreRows:
    score = rng.random(nodes * hours, dtype=np.float32).astype(np.float64)
    score = np.where(score < 0.005, 0.5 + 100 * score / 2, 0.01).reshape(hours, nodes)
    for at, node in outages:
        # Half of the failures are announced, for some of the hours before them.
        if rng.random() < 0.5:
            hour = (at - START) // HOUR
            score[max(0, hour - int(rng.integers(1, 24))) : hour + 1, node] = 0.8
    none = np.zeros(nodes * hours, dtype=bool)
    return ScoreRows(
        tick=np.repeat(np.arange(hours), nodes),
        node=np.tile(np.arange(nodes), hours),
        score=score.ravel(),
        fault=np.full(nodes * hours, -1),
        is_prior=none,
        is_application_only=none,
    )


def timed(history: History, name: str) -> tuple[float, int]:
    """CPU seconds of one strategy, and its drains."""
    began = time.process_time()
    run = replay(history, SITE, signals_for(name, history, SITE, finding="check"))
    return time.process_time() - began, len(run.holds)


def rows(sizes: tuple[tuple[int, int], ...] = SIZES) -> list[str]:
    """One line per size and strategy: CPU seconds, drains, and times faster than real time."""
    said = []
    for nodes, hours in sizes:
        history = made_up(nodes, hours)
        for name in STRATEGIES:
            taken, drains = timed(history, name)
            faster = hours * 3600 / max(taken, 1e-3)
            said.append(
                f"replay, {nodes:>5} nodes x {hours / 24:>5.0f} days, {name:<13}{taken:>8.2f} s "
                f"{drains:>6} drains {faster:>14,.0f} x real time"
            )
    return said


if __name__ == "__main__":
    print("\n".join(rows((YEAR,) if "--year" in sys.argv else SIZES)))
