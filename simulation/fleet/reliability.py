"""How long jobs of many GPUs live between failures, and the mix of Xids, beside what is published.

Rates, leads and downtimes against the fault table are in `simulation.fleet.calibration`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from scipy.stats import chi2

from simulation.fleet.events import tell_node
from simulation.fleet.generate import Fleet
from simulation.fleet.schedule import attempts_by_node
from simulation.fleet.seeds import Layer, random_stream

RSC1_PER_NODE_DAY: Final = 6.50e-3
RSC2_PER_NODE_DAY: Final = 2.34e-3
"""Failures per 8-GPU node and day of two A100 clusters (Kokolis et al. 2025)."""
JOB_CAP_H: Final = 168.0
JOB_SIZES: Final = (8, 16, 64, 256, 1024, 4096, 16384)

MTTF_SCHEMA: Final = pl.Schema(
    {
        "n_gpus": pl.Int64(),
        "failures": pl.Int64(),
        "job_h": pl.Float64(),
        "mttf_h": pl.Float64(),
        "low_h": pl.Float64(),
        "high_h": pl.Float64(),
        "law_h": pl.Float64(),
        "rsc1_h": pl.Float64(),
        "rsc2_h": pl.Float64(),
    }
)

SUMMIT_XIDS: Final[Mapping[str, tuple[int, str]]] = {
    "Memory page fault": (31, ""),
    "Graphics engine exception": (13, ""),
    "Stopped processing": (43, ""),
    "Preemptive cleanup": (45, "newer drivers report it after many other Xids"),
    "Double-bit error": (48, ""),
    "Fallen off the bus": (79, ""),
    "NVLINK error": (74, "nearly all on one node"),
    "Page retirement event": (63, "V100 retires pages, newer GPUs remap rows"),
    "Page retirement failure": (64, "V100 retires pages, newer GPUs remap rows"),
    "Internal microcontroller halt": (62, ""),
}
"""Summit's name of a failure -> its Xid, and why its count cannot be compared; empty: it can.

V100 has no row remapping and no GSP: Xids 63 and 64 mean other things there, 92, 94, 95, 119 and
120 do not occur."""


def failure_rate_per_node_day(fleet: Fleet) -> float:
    """Noticed failures per node and day in service."""
    days = sum(truth.exposure_s for truth in fleet.nodes) / 86400
    return sum(incident.is_noticed for incident in fleet.incidents) / days


def mttf_by_size(
    fleet: Fleet, *, sizes: Sequence[int] = JOB_SIZES, starts: int = 2000
) -> pl.DataFrame:
    """Mean time to failure of jobs of N GPUs on random nodes, against 1 / (N r).

    At random moments a job of each size starts on nodes in service and runs until the first of
    them fails; it is cut off, not failed, by planned work, after a week, or by the record's end.
    The mean is time run by failures seen. Jobs share failures, so that the intervals, which take
    failures as independent, are too narrow once `failures` nears those of the fleet.

    Args:
        fleet: A fleet; failures alone suffice.
        sizes: GPUs of a job; those above half of the fleet are left out.
        starts: Number of moments.

    Returns:
        One row per size, columns of `MTTF_SCHEMA`: mean with a 95 % interval, the law with the
        fleet's own rate, and with the rates of two published clusters.
    """
    per_node = fleet.regime.gpus_per_node
    rng = random_stream(fleet.seed, Layer.SAMPLED_JOBS)
    fitting = [size for size in sizes if size // per_node <= len(fleet.nodes) // 2]
    run_s, failed = np.zeros(len(fitting)), np.zeros(len(fitting), dtype=np.int64)
    from_s, stops_s, is_failure = _services(fleet)
    for at_s in rng.uniform(0, fleet.end_s, starts):
        up, which = np.nonzero((from_s <= at_s) & (at_s < stops_s))
        to_s, is_failed = stops_s[up, which], is_failure[up, which]
        for i, size in enumerate(fitting):
            n_nodes = -(-size // per_node)
            if n_nodes > up.size:
                continue
            chosen = rng.choice(up.size, n_nodes, replace=False)
            first = chosen[np.argmin(to_s[chosen])]
            length_s = to_s[first] - at_s
            is_cut = length_s > JOB_CAP_H * 3600
            run_s[i] += min(length_s, JOB_CAP_H * 3600)
            failed[i] += bool(is_failed[first]) and not is_cut
    rows = [
        (size, int(n), *_mean_time(float(run / 3600), int(n)), *_laws(fleet, size))
        for size, n, run in zip(fitting, failed, run_s, strict=True)
    ]
    return pl.DataFrame(rows, schema=MTTF_SCHEMA, orient="row")


def _mean_time(hours: float, n: int) -> tuple[float, float | None, float, float | None]:
    """Hours run, hours per failure, and the ends of its exact interval (null: unbounded)."""
    low = 2 * hours / float(chi2.ppf(0.975, 2 * n + 2))
    if n == 0:
        return hours, None, low, None
    return hours, hours / n, low, 2 * hours / float(chi2.ppf(0.025, 2 * n))


def _laws(fleet: Fleet, size: int) -> list[float | None]:
    """1 / (N r) in hours, with the fleet's own rate and two published ones."""
    nodes = size / fleet.regime.gpus_per_node
    rates = (failure_rate_per_node_day(fleet), RSC1_PER_NODE_DAY, RSC2_PER_NODE_DAY)
    return [24 / (nodes * rate) if rate else None for rate in rates]


def _services(fleet: Fleet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts and ends of stretches in service, and whether a failure ended them.

    Arrays of (nodes, most stretches of a node), padded with stretches that never come.
    """
    most = max(len(truth.services) for truth in fleet.nodes)
    from_s, to_s = (np.full((len(fleet.nodes), most), np.inf) for _ in range(2))
    is_failure = np.zeros(from_s.shape, dtype=bool)
    for i, truth in enumerate(fleet.nodes):
        onsets = {incident.onset_s for incident in truth.incidents}
        for j, service in enumerate(truth.services):
            from_s[i, j], to_s[i, j] = service.from_s, service.to_s
            is_failure[i, j] = int(service.to_s) in onsets
    return from_s, to_s, is_failure


def count_xids(fleet: Fleet) -> Counter[int]:
    """Xid lines of all nodes by code; with jobs, applications' too."""
    counts: Counter[int] = Counter()
    by_node = attempts_by_node(fleet.attempts, len(fleet.nodes))
    for truth, attempts in zip(fleet.nodes, by_node, strict=True):
        events = tell_node(fleet.regime, truth, attempts, seed=fleet.seed)
        counts.update(line.code for line in events.lines if line.code is not None)
    return counts


def compare_with_summit(
    simulated: Mapping[int, int], summit: Mapping[str, int], *, gpu_years: float
) -> pl.DataFrame:
    """The mix of simulated Xids beside that of Summit's V100.

    Args:
        simulated: Events by Xid.
        summit: Events by Summit's name of the failure.
        gpu_years: GPU-years simulated.

    Returns:
        One row per failure of `SUMMIT_XIDS` in order: `failure`, `xid`, `summit_events`,
        `simulated_events`, `summit_share` and `simulated_share` among comparable ones,
        `simulated_per_gpu_year`, `is_comparable`, `why_not`.
    """
    rows = [
        (name, code, summit.get(name, 0), simulated.get(code, 0), why)
        for name, (code, why) in SUMMIT_XIDS.items()
    ]
    names = ["failure", "xid", "summit_events", "simulated_events", "why_not"]
    is_comparable = pl.col("why_not") == ""
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(
        *(
            pl.when(is_comparable)
            .then(pl.col(f"{side}_events") / pl.col(f"{side}_events").filter(is_comparable).sum())
            .alias(f"{side}_share")
            for side in ("summit", "simulated")
        ),
        (pl.col("simulated_events") / gpu_years).alias("simulated_per_gpu_year"),
        is_comparable.alias("is_comparable"),
    )
