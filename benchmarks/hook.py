"""One run of the remediation hook on a fleet of 200,000 GPUs, step by step, in CPU seconds.

The scores, the cluster and its jobs are made here from a seed and held in memory; the ledger is a
real file with a day of earlier ticks. No scheduler is asked: what reading one costs is not in it.

Run as `python -m benchmarks.hook`.
"""

import os
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Final

import polars as pl

from features.tables import GPU_SCORES, NODE_SCORES
from remediation.actuators.dry_run import DryRunActuator
from remediation.cluster.state import ClusterState, FakeCluster, JobView, NodeView
from remediation.hook import HookRun, run_once
from remediation.ledger.journal import Journal
from remediation.ledger.sqlite import SqliteLedger
from remediation.ledger.view import Observed
from remediation.plan import render_plan
from remediation.policy.choice import decide, node_scores_of
from remediation.score_source import FakeScoreSource, PublishedScores
from remediation.site import LevelRule, Site

NODES: Final = 25_000
JOBS: Final = 50_000
RUNS: Final = 3
DAYS: Final = {"usual day": 0.005, "bad day": 0.12}
NOW: Final = datetime(2026, 2, 1, 12, tzinfo=UTC)
TICK: Final = timedelta(minutes=15)
EARLIER_TICKS: Final = 96
FAULTS: Final = (None, "hbm_uncorrectable", "nvlink", "thermal", "off_bus", "nic_fabric")
GPUS_PER_NODE: Final = 8
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
WEIGHTS: Final = (30, 20, 15, 12, 10, 6, 4, 3)
"""Nodes of the jobs that use whole nodes, and how often each size comes."""


def make_cluster(*, seed: int = 1, n_nodes: int = NODES, n_jobs: int = JOBS) -> ClusterState:
    """A fleet in racks of 8 and switches of 32, nearly all of it up, with jobs of all sizes."""
    draw = random.Random(seed)  # noqa: S311 - a reproducible fleet, no secret
    names = [f"gpu-{number:05d}" for number in range(n_nodes)]
    nodes = tuple(
        NodeView(
            name=name,
            state=draw.choices(("up", "drain", "down", "unknown"), (970, 15, 10, 5))[0],
            reason="disk replacement",
            boot_id=f"boot-{number}",
            rack=f"r{number // 8}",
            switch=f"s{number // 32}",
            partitions=(f"p{number % 4}",),
            n_gpus=GPUS_PER_NODE,
        )
        for number, name in enumerate(names)
    )
    # Whole-node jobs fill the first half of the fleet, one after the other; small ones the rest.
    sizes: list[int] = []
    while sum(sizes) < n_nodes // 2:
        sizes.append(min(draw.choices(SIZES, WEIGHTS)[0], n_nodes // 2 - sum(sizes)))
    ends = list(accumulate(sizes))
    places = [(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    small = n_jobs - len(places)
    places += [(at, at + 1) for at in (ends[-1] + n % (n_nodes - ends[-1]) for n in range(small))]
    jobs = tuple(
        JobView(
            job_id=str(number),
            nodes=tuple(names[first:last]),
            n_gpus=GPUS_PER_NODE * (last - first) if number < len(sizes) else draw.choice((1, 2)),
            partition=f"p{first % 4}",
            start=NOW - timedelta(hours=draw.expovariate(1 / 6)),
            checkpoint_age_h=draw.choice((None, draw.random())),
            remaining_h=draw.choice((None, draw.expovariate(1 / 8))),
            is_requeue_allowed=draw.choice((True, False, None)),
        )
        for number, (first, last) in enumerate(places)
    )
    return ClusterState(as_of=NOW, nodes=nodes, jobs=jobs)


def make_scores(cluster: ClusterState, *, above: float, seed: int = 2) -> PublishedScores:
    """Scores of one tick: a share of the nodes above the threshold, one in fifty unknown."""
    draw = random.Random(seed)  # noqa: S311 - as above
    rows = []
    for node in cluster.nodes:
        is_above = draw.random() < above
        score = draw.uniform(0.5, 0.99) if is_above else draw.betavariate(1, 60)
        is_known = draw.random() < 0.98
        rows.append(
            {
                "entity_kind": "node",
                "entity_id": node.name,
                "node": node.name,
                "as_of": NOW,
                "horizon_h": 24,
                "score": score if is_known else None,
                "status": "ok" if is_known else "unknown",
                "status_reason": None if is_known else "no telemetry",
                "fault_type": draw.choice(FAULTS) if is_known else None,
                "fault_probability": None,
                "reasons": ["corrected errors rise"],
                "missing_share": 0.0,
                "model_version": "17",
                "trained_on": "real",
            }
        )
    return PublishedScores(
        as_of=NOW,
        expires_at=NOW + timedelta(minutes=30),
        model_versions={24: "17"},
        trained_on="real",
        node_scores=pl.DataFrame(rows, schema=NODE_SCORES.schema),
        gpu_scores=GPU_SCORES.empty(),
    )


def open_site() -> Site:
    """A site with the default caps whose levels let every action pass."""
    return Site(levels=(LevelRule(level="notify_then_drain"),))


def write_earlier(ledger: SqliteLedger, scores: PublishedScores, cluster: ClusterState) -> None:
    """A day of ticks in which the same nodes were above, so that they are alerts and no burst."""
    rows = scores.node_scores.filter(pl.col("score") >= open_site().warning.threshold)
    for back in range(EARLIER_TICKS, 0, -1):
        as_of = NOW - back * TICK
        above = [
            Observed(name, cluster.by_name[name].boot_id, as_of, score)
            for name, score in rows.select("entity_id", "score").iter_rows()
        ]
        journal = Journal(ledger, DryRunActuator.name, lambda as_of=as_of: as_of)  # type: ignore[misc]
        journal.observed(above, as_of=as_of, horizon_h=24)


def measure(run: Callable[[], object], times: int = RUNS) -> float:
    """Median CPU seconds of all threads, of a call that is given a fresh state each time."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def run_hook(
    folder: Path, cluster: ClusterState, scores: PublishedScores
) -> tuple[float, float, HookRun]:
    """CPU and wall seconds of one run on a ledger of its own that holds the earlier ticks."""
    with SqliteLedger(folder / "ledger.sqlite") as ledger:
        write_earlier(ledger, scores, cluster)
        reader = FakeCluster(ClusterState(as_of=NOW, nodes=cluster.nodes, jobs=cluster.jobs))
        began, at = time.process_time(), time.perf_counter()
        run = run_once(
            scores=FakeScoreSource(scores),
            cluster=reader,
            actuator=DryRunActuator(reader),
            ledger=ledger,
            site=open_site(),
            clock=lambda: NOW,
        )
        run.decisions  # noqa: B018 - the table is part of a run
        return time.process_time() - began, time.perf_counter() - at, run


def rows() -> Iterator[str]:
    """What a run costs on a usual and on a bad day; under two seconds is the goal."""
    yield f"{NODES:,} nodes, {JOBS:,} jobs; load {os.getloadavg()[0]:.1f}; CPU s, median of {RUNS}"
    cluster = make_cluster()
    for day, above in DAYS.items():
        scores = make_scores(cluster, above=above)
        taken, waited = [], []
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as folder:
                seconds, wall, run = run_hook(Path(folder), cluster, scores)
                taken.append(seconds)
                waited.append(wall)
        rated = node_scores_of(scores, 24)
        site = open_site()
        alone = measure(
            lambda rated=rated, site=site: decide(  # type: ignore[misc]
                rated,
                ClusterState(as_of=NOW, nodes=cluster.nodes, jobs=cluster.jobs),
                site=site,
                now=NOW,
            )
        )
        shown = measure(lambda run=run: render_plan(run))  # type: ignore[misc]
        acted = sum(outcome.status == "would_do" for outcome in run.outcomes.values())
        yield (
            f"{day}: {above:.1%} above: whole run {statistics.median(taken):.2f} "
            f"(wall {statistics.median(waited):.2f}, decide alone {alone:.2f}), plan as text "
            f"{shown:.2f}; {acted} actions"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield f"peak memory {peak:,.0f} MB"


if __name__ == "__main__":
    for line in rows():
        print(line, flush=True)
