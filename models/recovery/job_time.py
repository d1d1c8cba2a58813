"""What became of the time of real jobs: kept, lost, or unknown, from the attempts in core/jobs.

Ratios of any stretches are in `.ettr`; nothing is read here.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from features.errors import DataError
from models.recovery.ettr import Stretch

_ENDED_WELL: Final = ("COMPLETED",)
_INTERRUPTED: Final = (
    "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL", "PREEMPTED", "REQUEUED",
)  # fmt: skip
"""End states that the cluster brought about, not the job."""
_CLUSTER_CAUSES: Final = ("hardware", "hang", "storage")

_MICRO: Final = 1_000_000

SIZE_CLASSES: Final = (1, 8, 64, 256, 1024)
"""Upper ends of the size classes, in GPUs; the last has none."""

PARTS: Final = ("kept_s", "restart_s", "rework_s", "wait_s", "unknown_s")


@dataclass(frozen=True, kw_only=True)
class TimeBasis:
    """What is assumed where core/jobs does not say.

    Attributes:
        as_of: Where the record ends; later starts are not looked at, later ends not known.
        interval_s: Time between two checkpoints, counted from the end of the start-up.
        restart_s: Time an attempt after the first needs before it moves forward.
    """

    as_of: datetime
    interval_s: float
    restart_s: float


def job_time(jobs: pl.DataFrame, *, basis: TimeBasis) -> pl.DataFrame:
    """The time of every attempt that began, in parts.

    An attempt that ended well or still runs keeps its running time but for the start-up after
    an interruption. One that was interrupted (end state or cause say the cluster did it, or
    another attempt follows) keeps its whole checkpoint intervals; the rest is rework, and the
    time until the next attempt a wait. Any other end (failed, cancelled, timed out, no state)
    leaves open whether its last state was used again: that time is unknown, neither kept nor lost.

    Args:
        jobs: core/jobs.
        basis: What is assumed.

    Returns:
        job_id, attempt, partition, n_gpus, start, running_s and the parts `kept_s`, `restart_s`,
        `rework_s`, `wait_s`, `unknown_s`; all but the wait add up to the running time. The wait
        before the first attempt is no loss to a failure and is not counted.
    """
    timed = _began(jobs, basis)
    restart = (
        pl.when(pl.col("is_first"))
        .then(0.0)
        .otherwise(pl.min_horizontal(pl.lit(basis.restart_s), "running_s"))
    )
    return (
        timed.with_columns(restart_s=restart)
        .with_columns(**_parts(basis.interval_s))
        .with_columns(
            restart_s=pl.when(pl.col("fate") == "unknown").then(0.0).otherwise("restart_s"),
            wait_s=_wait(),
        )
        .select("job_id", "attempt", "partition", "n_gpus", "start", "running_s", *PARTS)
    )


def _began(jobs: pl.DataFrame, basis: TimeBasis) -> pl.DataFrame:
    """Attempts that began before `as_of`, as they were known then."""
    end = pl.when(pl.col("end") <= basis.as_of).then(pl.col("end"))
    began = (
        jobs.filter(pl.col("start") < basis.as_of)
        .sort("job_id", "attempt")
        .with_columns(
            end=end,
            next_start=pl.col("start").shift(-1).over("job_id"),
            is_first=pl.int_range(pl.len()).over("job_id") == 0,
        )
    )
    return began.with_columns(
        running_s=_seconds(pl.col("end").fill_null(basis.as_of) - pl.col("start")),
        fate=_fate(),
    )


def job_stretches(time: pl.DataFrame, job_id: str) -> tuple[Stretch, ...] | None:
    """The time of one job, in order: start-up, kept, rework, wait, attempt by attempt.

    Args:
        time: Rows of `job_time`.
        job_id: The job.

    Returns:
        Stretches in seconds since the first start; None where a part of it is unknown.

    Raises:
        DataError: No attempt of such a job began.
    """
    own = time.filter(pl.col("job_id") == job_id).sort("attempt")
    if own.is_empty():
        raise DataError(f"ETTR: no attempt of a job {job_id!r} began in the record")
    if own["unknown_s"].sum() > 0:
        return None
    stretches: list[Stretch] = []
    at = 0.0
    for spans in own.select("restart_s", "kept_s", "rework_s", "wait_s").iter_rows():
        for span, is_productive in zip(spans, (False, True, False, False), strict=True):
            stretches.append(Stretch(at, at + span, is_productive))
            at += span
    return tuple(stretches)


def _fate() -> pl.Expr:
    """running, well, interrupted or unknown."""
    state, cause = pl.col("end_state"), pl.col("cause")
    is_cluster = state.is_in(_INTERRUPTED) | cause.is_in(_CLUSTER_CAUSES).fill_null(value=False)
    return (
        pl.when(pl.col("next_start").is_not_null())
        .then(pl.lit("interrupted"))
        .when(pl.col("end").is_null())
        .then(pl.lit("running"))
        .when(state.is_in(_ENDED_WELL))
        .then(pl.lit("well"))
        .when(is_cluster.fill_null(value=False))
        .then(pl.lit("interrupted"))
        .otherwise(pl.lit("unknown"))
    )


def _parts(interval_s: float) -> dict[str, pl.Expr]:
    moved = pl.col("running_s") - pl.col("restart_s")
    rework = pl.when(pl.col("fate") == "interrupted").then(moved % interval_s).otherwise(0.0)
    is_unknown = pl.col("fate") == "unknown"
    return {
        "rework_s": rework,
        "kept_s": pl.when(is_unknown).then(0.0).otherwise(moved - rework),
        "unknown_s": pl.when(is_unknown).then("running_s").otherwise(0.0),
    }


def _wait() -> pl.Expr:
    gap = _seconds(pl.col("next_start") - pl.col("end"))
    return gap.fill_null(0.0).clip(lower_bound=0.0)


def _seconds(span: pl.Expr) -> pl.Expr:
    return (span.dt.total_microseconds() / _MICRO).clip(lower_bound=0.0)


def ettr_by_family(time: pl.DataFrame) -> pl.DataFrame:
    """ETTR of each job family (partition and size class), weighted with GPU-hours, and of all.

    Args:
        time: Rows of `job_time`.

    Returns:
        One row per family and a last one (`partition` and `size` "all"): n_jobs, n_attempts,
        n_unweighted (attempts whose GPUs are unknown: in no sum), the parts in GPU-hours,
        `ettr` = kept / (kept + restart + rework + wait), null where all is unknown, and its
        bounds `ettr_low`, `ettr_high` with the unknown time taken as lost or as kept.
    """
    hours = {part.replace("_s", "_gpu_h"): pl.col(part) * pl.col("n_gpus") / 3600 for part in PARTS}
    sized = time.with_columns(
        partition=pl.col("partition").fill_null("(unknown)"), size=_size_class(), **hours
    )
    families = _summed(sized.group_by("partition", "size"))
    order = {name: place for place, name in enumerate(_SIZE_NAMES)}
    families = families.sort(
        "partition", pl.col("size").replace_strict(order, default=len(order)), maintain_order=True
    )
    whole = sized.with_columns(partition=pl.lit("all"), size=pl.lit("all"))
    return pl.concat([families, _summed(whole.group_by("partition", "size"))])


_SIZE_NAMES: Final = (
    *(
        str(high) if low + 1 == high else f"{low + 1}-{high}"
        for low, high in zip((0, *SIZE_CLASSES), SIZE_CLASSES, strict=False)
    ),
    f">{SIZE_CLASSES[-1]}",
)


def _size_class() -> pl.Expr:
    chain: pl.Expr = pl.lit(_SIZE_NAMES[-1])
    for high, name in reversed(list(zip(SIZE_CLASSES, _SIZE_NAMES, strict=False))):
        chain = pl.when(pl.col("n_gpus") <= high).then(pl.lit(name)).otherwise(chain)
    return pl.when(pl.col("n_gpus").is_null()).then(pl.lit("(unknown)")).otherwise(chain)


def _summed(groups: "pl.dataframe.group_by.GroupBy") -> pl.DataFrame:
    names = [part.replace("_s", "_gpu_h") for part in PARTS]
    kept, unknown = pl.col("kept_gpu_h"), pl.col("unknown_gpu_h")
    known = kept + pl.col("restart_gpu_h") + pl.col("rework_gpu_h") + pl.col("wait_gpu_h")
    summed = groups.agg(
        n_jobs=pl.col("job_id").n_unique(),
        n_attempts=pl.len(),
        n_unweighted=pl.col("n_gpus").is_null().sum(),
        **{name: pl.col(name).sum() for name in names},
    )
    return summed.with_columns(
        ettr=pl.when(known > 0).then(kept / known),
        ettr_low=pl.when(known + unknown > 0).then(kept / (known + unknown)),
        ettr_high=pl.when(known + unknown > 0).then((kept + unknown) / (known + unknown)),
    )
