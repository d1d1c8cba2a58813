"""Features of the jobs on a GPU's node: is it busy, how long, and how jobs ended there lately.

Why a job ended is decided in `features.core_build`; nothing is known here of its own metrics.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.event_index import EventIndex, Floats, Ints, group_codes
from features.registry import Feature, window_suffix

_US: Final = timedelta(microseconds=1)
_US_PER_HOUR: Final = 3_600_000_000.0

_GOOD_ENDS: Final = ("COMPLETED", "CANCELLED", "TIMEOUT", "PREEMPTED")
"""Ends that say nothing against the node."""

_INPUTS: Final = ("jobs.nodes", "jobs.start", "jobs.end")

_PRESENT: Final = (
    Feature(
        "running_job_count",
        "job",
        "1",
        None,
        "Number of jobs running on the node",
        _INPUTS,
        "0 without such a job",
    ),
    Feature(
        "hours_since_job_start",
        "job",
        "h",
        None,
        "Time since a job last started on the node",
        _INPUTS,
        "null before the first job on the node",
    ),
)
"""How things stand, in no window."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """Which job features are built.

    Attributes:
        windows: Windows in which starts and bad ends are counted.
    """

    windows: tuple[timedelta, ...] = (timedelta(hours=24), timedelta(days=7))


def job_features(spec: JobSpec) -> tuple[Feature, ...]:
    """The features that `build_job_features` gives, in order."""
    counted = (feature for window in spec.windows for feature in _counted(window))
    return (*_PRESENT, *counted)


def _counted(window: timedelta) -> tuple[Feature, ...]:
    """What is counted in one window."""
    suffix, default = window_suffix(window), "0 without such a job in the window"
    return (
        Feature(
            f"job_start_count_{suffix}",
            "job",
            "1",
            window,
            "Number of jobs started on the node",
            _INPUTS,
            default,
        ),
        Feature(
            f"failed_job_count_{suffix}",
            "job",
            "1",
            window,
            "Number of jobs that ended badly on the node",
            (*_INPUTS, "jobs.end_state"),
            default,
        ),
    )


def build_job_features(rows: pl.DataFrame, jobs: pl.DataFrame, *, spec: JobSpec) -> pl.DataFrame:
    """Computes job features.

    Args:
        rows: `entity_id` (GPU), `node`, `as_of`.
        jobs: core/jobs. A start counts when it lay before `as_of`, an end and its state likewise:
            a job whose end lies at or after `as_of` is running.
        spec: Which features.

    Returns:
        `entity_id`, `as_of` and one Float32 column per feature of `job_features`, in the order of
        `rows`.
    """
    runs = (
        jobs.filter(pl.col("start").is_not_null(), pl.col("nodes").is_not_null())
        .select("start", "end", "end_state", node="nodes")
        .explode("node", empty_as_null=True, keep_nulls=True)
    )
    ended = runs.filter(pl.col("end").is_not_null(), pl.col("end") > pl.col("start"))
    as_of = _micros(rows["as_of"])
    is_good = pl.col("end_state").is_in(_GOOD_ENDS).fill_null(value=True)
    momentary = pl.col("end").is_not_null() & (pl.col("end") <= pl.col("start"))
    begun, codes = _index(rows, runs.filter(~momentary), time="start")
    over, over_codes = _index(rows, ended, time="end")
    bad, bad_codes = _index(rows, ended.filter(~is_good), time="end")
    columns: dict[str, Floats] = {
        "running_job_count": (begun.count(codes, as_of) - over.count(over_codes, as_of)).astype(
            np.float64
        ),
        "hours_since_job_start": (as_of - begun.last_time(codes, as_of)) / _US_PER_HOUR,
    }
    for window in spec.windows:
        suffix, since = window_suffix(window), as_of - window // _US
        for name, index, of_row in (
            ("job_start_count", begun, codes),
            ("failed_job_count", bad, bad_codes),
        ):
            within = index.count(of_row, as_of) - index.count(of_row, since)
            columns[f"{name}_{suffix}"] = within.astype(np.float64)
    return rows.select("entity_id", "as_of").with_columns(
        pl.Series(feature.name, columns[feature.name], nan_to_null=True).cast(pl.Float32)
        for feature in job_features(spec)
    )


def _index(rows: pl.DataFrame, runs: pl.DataFrame, *, time: str) -> tuple[EventIndex, Ints]:
    codes, run_codes = group_codes(rows, runs, key=("node",))
    return EventIndex(run_codes, _micros(runs[time])), codes


def _micros(times: pl.Series) -> Ints:
    return times.dt.epoch("us").to_numpy().astype(np.int64)
