"""Simulates a fleet and computes everything that its page shows.

Nothing is drawn, judged or written here.
"""

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from features.errors import SourceError
from pipelines.studies.fleet_report.look import Look, look_at
from simulation.fleet.calibration import Calibration, calibrate
from simulation.fleet.ceiling import recall_ceiling
from simulation.fleet.demand import gpu_time_shares
from simulation.fleet.generate import Fleet, simulate_failures, simulate_fleet
from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import DAYS_PER_YEAR
from simulation.fleet.reliability import SUMMIT_XIDS, compare_with_summit, count_xids
from simulation.writers.truth_tables import truth_tables

NODES: Final = 2500
DAYS: Final = 365.0
ENOUGH_FAILURES: Final = 3500
"""Expected failures after which a fleet need not be larger to be judged."""
JOB_NODE_DAYS: Final = 20_000
"""Jobs are simulated for so many days of so many nodes: some 36,000 runs in two seconds."""
LEAST_JOB_DAYS: Final = 2.0


@dataclass(frozen=True)
class Evidence:
    """What a page on a fleet rests on.

    Attributes:
        fleet: Failures over the whole record.
        tables: The fleet against its parameters and published laws.
        ceiling: `simulation.fleet.ceiling.recall_ceiling`.
        jobs: `job_mix` of the fleet's first days.
        job_days: How many.
        summit: `simulation.fleet.reliability.compare_with_summit`; null: no counts were given.
        look: One GPU before its failure, and a decoy; null: the regime gives none.
    """

    fleet: Fleet
    tables: Calibration
    ceiling: pl.DataFrame
    jobs: pl.DataFrame
    job_days: float
    summit: pl.DataFrame | None
    look: Look | None

    @property
    def gpu_years(self) -> float:
        """GPU-years of the record."""
        return _gpu_years(self.fleet.regime)

    @property
    def job_gpu_years(self) -> float:
        """GPU-years of the days with jobs."""
        return _gpu_years(self.fleet.regime) * self.job_days / self.fleet.regime.days


def _gpu_years(regime: Regime) -> float:
    return regime.nodes * regime.gpus_per_node * regime.days / DAYS_PER_YEAR


def gather_evidence(
    regime: Regime,
    *,
    nodes: int | None,
    days: float | None,
    seed: int,
    summit: Mapping[str, int] | None,
) -> Evidence:
    """Simulates a fleet and computes what its page shows.

    Args:
        regime: The fleet's parameters.
        nodes: Number of nodes; null: 2,500, or fewer where they fail so often that fewer tell.
        days: Length; null: 365.
        seed: Seed.
        summit: Events by Summit's name of the failure; null: no comparison.

    Returns:
        The evidence; the same for the same arguments.

    Raises:
        SettingsError: There would be no node or no time.
    """
    length = DAYS if days is None else days
    count = enough_nodes(regime, days=length) if nodes is None else nodes
    sized = regime.with_size(nodes=count, days=length)
    fleet = simulate_failures(sized, seed=seed)
    job_days = min(length, max(LEAST_JOB_DAYS, JOB_NODE_DAYS / count))
    busy = simulate_fleet(_without_chatter(sized), seed=seed, days=job_days)
    return Evidence(
        fleet=fleet,
        tables=calibrate(fleet),
        ceiling=recall_ceiling(truth_tables(fleet)),
        jobs=job_mix(busy),
        job_days=job_days,
        summit=None if summit is None else _xid_mix(busy, summit),
        look=look_at(regime, seed=seed),
    )


def _xid_mix(fleet: Fleet, summit: Mapping[str, int]) -> pl.DataFrame:
    return compare_with_summit(count_xids(fleet), summit, gpu_years=_gpu_years(fleet.regime))


def enough_nodes(regime: Regime, *, days: float) -> int:
    """Nodes that give enough failures to judge a fleet by, at most 2,500.

    Args:
        regime: The fleet's parameters.
        days: Length of the record.
    """
    per_gpu_year = sum(fault.per_gpu_year for fault in regime.faults) * regime.hazard_multiplier
    per_node = per_gpu_year * regime.gpus_per_node * days / DAYS_PER_YEAR
    if per_node * NODES <= ENOUGH_FAILURES:
        return NODES
    return max(1, min(NODES, math.ceil(ENOUGH_FAILURES / per_node)))


def _without_chatter(regime: Regime) -> Regime:
    """Kernel messages of healthy nodes are most of the log, and no Xid."""
    silent = regime.disturbances.model_copy(update={"chatter_per_day": 0.0})
    return regime.model_copy(update={"disturbances": silent})


def job_mix(fleet: Fleet) -> pl.DataFrame:
    """Batch jobs and their GPU time by size, against what the regime asks for.

    Jobs are counted where they were submitted within the record, so that long ones, which were
    there before, do not count twice as much; GPU time is all that was used.

    Args:
        fleet: A fleet with jobs.

    Returns:
        One row per size: `n_gpus`, `jobs`, `gpu_h`, `job_share`, `time_share`, and as stated
        `stated_job_share` and `stated_time_share`; shares are null without any job.
    """
    jobs: Counter[int] = Counter()
    gpu_h: dict[int, float] = defaultdict(float)
    seen: set[int] = set()
    for run in fleet.attempts:
        if run.job.load.kind == "inference" or run.job.is_instance:
            continue
        if run.submit_s >= 0 and run.job.job_id not in seen:
            seen.add(run.job.job_id)
            jobs[run.job.n_gpus] += 1
        if run.start_s is not None:
            end_s = min(fleet.end_s, fleet.end_s if run.end_s is None else run.end_s)
            gpu_h[run.job.n_gpus] += max(0, end_s - max(0, run.start_s)) * run.job.n_gpus / 3600
    stated = gpu_time_shares(fleet.regime)
    weights = fleet.regime.workload.size_weights
    total = sum(weights[size] for size in stated)
    rows = [
        (size, jobs[size], gpu_h[size], weights[size] / total, share)
        for size, share in stated.items()
    ]
    names = ["n_gpus", "jobs", "gpu_h", "stated_job_share", "stated_time_share"]
    table = pl.DataFrame(rows, schema=names, orient="row")
    return table.with_columns(
        pl.when(pl.col(part).sum() > 0).then(pl.col(part) / pl.col(part).sum()).alias(share)
        for part, share in (("jobs", "job_share"), ("gpu_h", "time_share"))
    )


def read_summit_counts(path: Path) -> dict[str, int]:
    """Reads how often each failure occurred on Summit.

    Args:
        path: CSV with the columns `failure` and `events`; lines that begin with # are skipped.

    Returns:
        Events by Summit's name of the failure.

    Raises:
        SourceError: The file is not there, or holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        counts = {row["failure"]: int(row["events"]) for row in csv.DictReader(lines)}
    except (OSError, UnicodeDecodeError, KeyError, ValueError, TypeError) as error:
        raise SourceError(
            f"{path} holds no counts of Summit's Xids: {error!r}. "
            f"Give a CSV file with the columns failure and events."
        ) from error
    if not set(counts) & set(SUMMIT_XIDS):
        raise SourceError(
            f"{path} names none of Summit's failures; expected some of "
            f"{', '.join(SUMMIT_XIDS)}, got {', '.join(list(counts)[:3]) or 'nothing'}. "
            f"Give the counts of Summit's failure table."
        )
    return counts
