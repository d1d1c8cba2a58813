"""Training that hangs, slows or diverges, found in what the job and its GPUs report.

Rules after ByteRobust (SOSP'25): NaN, a jump to five times, no RDMA traffic for ten minutes, low
tensor activity. Only reports before `as_of` count. Which machine is to blame is in
`models.localization`, what to do in `models.recovery.ladder`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from features.contracts import UTC_TIME

FINDING_SCHEMA: Final = pl.Schema(
    {
        "job_id": pl.String(),
        "kind": pl.String(),
        "signal": pl.String(),
        "at": UTC_TIME,
        "value": pl.Float64(),
        "usual": pl.Float64(),
    }
)
"""`kind`: nan, jump, hang or slow. `signal`: what showed it. `at`: when it began. `value` against
`usual`: losses and norms as reported, bytes per second, shares, seconds."""

TRAFFIC_SCHEMA: Final = pl.Schema(
    {"job_id": pl.String(), "ts": UTC_TIME, "rdma_bytes_s": pl.Float64()}
)
ACTIVITY_SCHEMA: Final = pl.Schema(
    {"job_id": pl.String(), "ts": UTC_TIME, "tensor_active_ratio": pl.Float64()}
)


@dataclass(frozen=True, kw_only=True)
class HealthRules:
    """Thresholds.

    Attributes:
        jump: Times the usual level that a loss or gradient norm must reach.
        usual_steps: Earlier steps whose median is usual; with fewer nothing is.
        quiet: Time without RDMA traffic, and without a step, that is a hang.
        missed_steps: Usual step times without a step that are a hang, if that is longer.
        low_activity: Share of the usual tensor activity below which a job is slow.
        low_for: How long it must be low.
        usual_for: Time before that which says what is usual.
        slow_step: Times the usual step time at which a job is slow.
    """

    jump: float = 5.0
    usual_steps: int = 10
    quiet: timedelta = timedelta(minutes=10)
    missed_steps: float = 10.0
    low_activity: float = 0.5
    low_for: timedelta = timedelta(minutes=10)
    usual_for: timedelta = timedelta(hours=2)
    slow_step: float = 1.5


DEFAULT_RULES: Final = HealthRules()


def find_divergence(
    metrics: pl.DataFrame, *, as_of: datetime, rules: HealthRules = DEFAULT_RULES
) -> pl.DataFrame:
    """Losses and gradient norms that are not finite, or jumped.

    Usual is the median of the finite values of the last steps before; a level that is not above
    zero, or a value that is unknown, says nothing.

    Args:
        metrics: core/training_metrics.
        as_of: Moment of the look.
        rules: Thresholds.

    Returns:
        FINDING_SCHEMA, the first of each job, kind and signal, by job and time.
    """
    known = _before(metrics, as_of).sort("job_id", "step")
    found = [_not_finite(known, name) for name in ("loss", "grad_norm")]
    found += [_jumps(known, name, rules) for name in ("loss", "grad_norm")]
    return _first(pl.concat(found))


def find_stalls(
    metrics: pl.DataFrame,
    traffic: pl.DataFrame,
    *,
    as_of: datetime,
    rules: HealthRules = DEFAULT_RULES,
) -> pl.DataFrame:
    """Jobs that stand still: no RDMA traffic, or no step, for ten minutes.

    Samples of traffic must reach over the whole time and all be zero: a gap is unknown, not a
    hang. A job whose logger stopped looks like one without steps; look at both signals.

    Args:
        metrics: core/training_metrics of jobs that run.
        traffic: TRAFFIC_SCHEMA: RDMA bytes per second of a job, all its ports together.
        as_of: Moment of the look.
        rules: Thresholds.

    Returns:
        FINDING_SCHEMA, by job and time.
    """
    return _first(pl.concat([_no_traffic(traffic, as_of, rules), _no_step(metrics, as_of, rules)]))


def find_slowdowns(
    metrics: pl.DataFrame,
    activity: pl.DataFrame,
    *,
    as_of: datetime,
    rules: HealthRules = DEFAULT_RULES,
) -> pl.DataFrame:
    """Jobs whose tensor cores work less, or whose steps take longer, than before.

    Args:
        metrics: core/training_metrics.
        activity: ACTIVITY_SCHEMA, as `job_activity` gives it.
        as_of: Moment of the look.
        rules: Thresholds.

    Returns:
        FINDING_SCHEMA, by job and time.
    """
    return _first(
        pl.concat([_low_activity(activity, as_of, rules), _long_steps(metrics, as_of, rules)])
    )


def job_activity(jobs: pl.DataFrame, telemetry: pl.DataFrame) -> pl.DataFrame:
    """Tensor activity by job: the mean over its GPUs at each moment of sampling.

    Args:
        jobs: core/jobs.
        telemetry: core/gpu_telemetry with node, ts and tensor_active_ratio; null is unknown.

    Returns:
        ACTIVITY_SCHEMA. A node that several jobs share tells nothing of any of them and is left
        out at those moments.
    """
    stays = jobs.filter(pl.col("start").is_not_null()).explode("nodes", empty_as_null=False)
    samples = telemetry.filter(pl.col("tensor_active_ratio").is_not_null())
    joined = samples.join(stays.select("job_id", "start", "end", node="nodes"), on="node").filter(
        pl.col("ts") >= pl.col("start"),
        pl.col("end").is_null() | (pl.col("ts") < pl.col("end")),
    )
    alone = joined.filter(pl.col("job_id").n_unique().over("node", "ts") == 1)
    return (
        alone.group_by("job_id", "ts")
        .agg(pl.col("tensor_active_ratio").cast(pl.Float64).mean())
        .sort("job_id", "ts")
        .select(ACTIVITY_SCHEMA.names())
    )


def _before(frame: pl.DataFrame, as_of: datetime) -> pl.DataFrame:
    """Rows known to be from before; a row without a time may be from later."""
    return frame.filter(pl.col("ts") < as_of)


def _not_finite(known: pl.DataFrame, name: str) -> pl.DataFrame:
    return known.filter(~pl.col(name).is_finite()).select(
        "job_id",
        kind=pl.lit("nan"),
        signal=pl.lit(name),
        at="ts",
        value=name,
        usual=pl.lit(None, pl.Float64),
    )


def _jumps(known: pl.DataFrame, name: str, rules: HealthRules) -> pl.DataFrame:
    finite = known.filter(pl.col(name).is_finite())
    usual = (
        pl.col(name)
        .shift(1)
        .rolling_median(rules.usual_steps, min_samples=rules.usual_steps)
        .over("job_id")
    )
    jumped = (pl.col("usual") > 0) & (pl.col(name) >= rules.jump * pl.col("usual"))
    return (
        finite.with_columns(usual=usual)
        .filter(jumped)
        .select(
            "job_id",
            kind=pl.lit("jump"),
            signal=pl.lit(name),
            at="ts",
            value=name,
            usual="usual",
        )
    )


def _no_traffic(traffic: pl.DataFrame, as_of: datetime, rules: HealthRules) -> pl.DataFrame:
    since = as_of - rules.quiet
    known = _before(traffic, as_of).filter(pl.col("rdma_bytes_s").is_not_null())
    # The last sample before the window says what was so when it began.
    seen = known.group_by("job_id").agg(
        last_flow=pl.col("ts").filter(pl.col("rdma_bytes_s") > 0).max(),
        before=pl.col("ts").filter(pl.col("ts") <= since).max(),
        count=(pl.col("ts") >= since).sum(),
        usual=pl.col("rdma_bytes_s").filter(pl.col("rdma_bytes_s") > 0).median(),
        began=pl.col("ts")
        .filter(pl.col("ts") > pl.col("ts").filter(pl.col("rdma_bytes_s") > 0).max())
        .min(),
        widest=pl.col("ts").filter(pl.col("ts") >= since).sort().diff().max(),
        latest=pl.col("ts").max(),
    )
    # A job that never sent anything (one node) is not one that stopped.
    is_quiet = pl.col("last_flow").is_not_null() & (pl.col("began") <= since)
    is_whole = (
        (pl.col("count") >= 2)
        & (pl.col("widest") <= rules.quiet / 2)
        & (pl.col("latest") >= as_of - rules.quiet / 2)
        & pl.col("before").is_not_null()
    )
    return seen.filter(is_quiet, is_whole).select(
        "job_id",
        kind=pl.lit("hang"),
        signal=pl.lit("rdma_traffic"),
        at="began",
        value=pl.lit(0.0),
        usual="usual",
    )


def _no_step(metrics: pl.DataFrame, as_of: datetime, rules: HealthRules) -> pl.DataFrame:
    known = _before(metrics, as_of).sort("job_id", "ts")
    paced = known.group_by("job_id").agg(
        at=pl.col("ts").max(),
        steps=pl.len(),
        gap_s=pl.col("ts").diff().dt.total_microseconds().median() / 1e6,
    )
    silent_s = (pl.lit(as_of, UTC_TIME) - pl.col("at")).dt.total_microseconds() / 1e6
    limit_s = pl.max_horizontal(
        pl.lit(rules.quiet.total_seconds()), rules.missed_steps * pl.col("gap_s")
    )
    return (
        paced.with_columns(value=silent_s)
        .filter(pl.col("steps") > rules.usual_steps, pl.col("value") >= limit_s)
        .select(
            "job_id",
            kind=pl.lit("hang"),
            signal=pl.lit("steps"),
            at="at",
            value="value",
            usual="gap_s",
        )
    )


def _low_activity(activity: pl.DataFrame, as_of: datetime, rules: HealthRules) -> pl.DataFrame:
    cut = as_of - rules.low_for
    known = _before(activity, as_of).filter(
        pl.col("ts") >= cut - rules.usual_for, pl.col("tensor_active_ratio").is_not_null()
    )
    is_late = pl.col("ts") >= cut
    ratio = pl.col("tensor_active_ratio")
    levels = known.group_by("job_id").agg(
        value=ratio.filter(is_late).max(),
        usual=ratio.filter(~is_late).median(),
        count=(~is_late).sum(),
        at=pl.col("ts").filter(is_late).min(),
    )
    # Not one sample may reach the limit, so that a checkpoint or an evaluation is no finding.
    return levels.filter(
        pl.col("count") >= rules.usual_steps,
        pl.col("value") < rules.low_activity * pl.col("usual"),
    ).select(
        "job_id",
        kind=pl.lit("slow"),
        signal=pl.lit("tensor_activity"),
        at="at",
        value="value",
        usual="usual",
    )


def _long_steps(metrics: pl.DataFrame, as_of: datetime, rules: HealthRules) -> pl.DataFrame:
    known = _before(metrics, as_of).filter(pl.col("step_time_s") > 0).sort("job_id", "step")
    half = rules.usual_steps
    levels = known.group_by("job_id", maintain_order=True).agg(
        value=pl.col("step_time_s").tail(half).median(),
        usual=pl.col("step_time_s").head(pl.len() - half).median(),
        count=pl.len(),
        at=pl.col("ts").tail(half).min(),
    )
    return levels.filter(
        pl.col("count") >= 2 * half, pl.col("value") >= rules.slow_step * pl.col("usual")
    ).select(
        "job_id",
        kind=pl.lit("slow"),
        signal=pl.lit("step_time"),
        at="at",
        value="value",
        usual="usual",
    )


def _first(found: pl.DataFrame) -> pl.DataFrame:
    key = ["job_id", "kind", "signal"]
    return (
        found.sort("at", maintain_order=True)
        .unique(key, keep="first", maintain_order=True)
        .sort("job_id", "at", "kind", "signal")
        .select(FINDING_SCHEMA.names())
        .cast(FINDING_SCHEMA)
    )
