"""Coverage: per source, entity and hour, what was to be expected and what came.

"No data" is data: an entity that a source has spoken of before has a row for every hour, also for
those in which nothing came. Rows are counted here; what they say is not looked at.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from features.contracts import UTC_TIME
from features.tables import CORE_COVERAGE

PATIENCE: Final = 1.5
"""A record vouches for this many usual intervals after it: one late scrape is no gap."""

_ENTITY: Final = ("source", "entity_kind", "entity_id")
_PRESENCE: Final = pl.Schema(
    [
        ("entity_kind", pl.String()),
        ("entity_id", pl.String()),
        ("first", UTC_TIME),
        ("last", UTC_TIME),
    ]
)
_HOUR: Final = timedelta(hours=1)
_LONGEST_INTERVAL_S: Final = 3600.0  # rarer records say nothing of the hour between them


def build_coverage(
    stretches: pl.DataFrame,
    samples: pl.DataFrame,
    *,
    start: datetime,
    end: datetime,
    events: pl.DataFrame | None = None,
    known: pl.DataFrame | None = None,
    presence: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Coverage of the hours of a span.

    Args:
        stretches: raw/coverage: what readings say they speak of.
        samples: Frame[source, entity_kind, entity_id, ts]: regular records, one per row; a missing
            one is a gap.
        start: First hour, UTC.
        end: End of the last hour, exclusive.
        events: Records that come when something happens, in the same columns; they are counted,
            and vouch for nothing.
        known: Frame[source, entity_kind, entity_id]: entities seen before the span, which are
            expected to go on; None: only those seen in it.
        presence: Frame[entity_kind, entity_id, first, last]: when an entity was there at all, null
            where that is open; it is expected from then on, not from its first record on.

    Returns:
        core/coverage, sorted by its key: a row for every hour of every entity.
    """
    every = pl.col("expected_every_s")
    # An interval of nothing, or of no number, is none.
    said = stretches.select(
        *_ENTITY, "start", "end", every=pl.when(every.is_finite() & (every > 0)).then(every)
    ).filter(pl.col("start") < end, pl.col("end") >= start - _HOUR)
    runs = _runs(samples)
    vouched = _merged(pl.concat([_vouched(said), _vouched(runs)]))
    records = pl.concat([samples, events]) if events is not None else samples
    grid = _grid(vouched, records, known=known, presence=presence, start=start, end=end)
    counts = records.group_by(*_ENTITY, pl.col("ts").dt.truncate("1h").alias("hour")).agg(
        pl.len().cast(pl.Int64).alias("n_received")
    )
    usual = pl.concat([said, runs]).group_by(_ENTITY).agg(pl.col("every").min())
    frame = (
        grid.join(counts, on=[*_ENTITY, "hour"], how="left")
        .join(_by_hour(vouched, grid), on=[*_ENTITY, "hour"], how="left", validate="1:1")
        .join(usual, on=list(_ENTITY), how="left")
        .with_columns(
            (3600.0 / pl.col("every")).round().cast(pl.Int64).alias("n_expected"),
            pl.col("n_received").fill_null(0),
            pl.col("covered_s").fill_null(0.0),
            pl.col("longest_gap_s").fill_null(3600.0),
        )
        .sort(*_ENTITY, "hour")
        .with_columns(pl.col("watermark").forward_fill().over(_ENTITY))
    )
    return CORE_COVERAGE.conform(frame.select(CORE_COVERAGE.schema.names()))


def telemetry_records(telemetry: pl.DataFrame) -> pl.DataFrame:
    """One record per GPU and sample of a source.

    Args:
        telemetry: raw/gpu_telemetry.

    Returns:
        Frame[source, entity_kind, entity_id, ts].
    """
    return telemetry.select(
        "source", entity_kind=pl.lit("gpu"), entity_id=pl.col("gpu_uuid"), ts=pl.col("ts")
    ).unique()


def presence_of(inventory: pl.DataFrame) -> pl.DataFrame:
    """From when to when GPUs and nodes were there, by their stays.

    Args:
        inventory: core/inventory.

    Returns:
        Frame[entity_kind, entity_id, first, last]; null where a stay is open on that side.
    """
    kinds = (("gpu", "gpu_uuid"), ("node", "node"))
    return pl.concat(
        inventory.group_by(pl.col(column).alias("entity_id"))
        .agg(
            pl.col("valid_from").min().alias("first"),
            pl.col("valid_to").max().alias("last"),
            pl.col("valid_from").null_count().alias("n_unknown"),
            pl.col("valid_to").null_count().alias("n_open"),
        )
        .select(
            pl.lit(kind).alias("entity_kind"),
            "entity_id",
            pl.when(pl.col("n_unknown") == 0).then("first").alias("first"),
            pl.when(pl.col("n_open") == 0).then("last").alias("last"),
        )
        for kind, column in kinds
    )


def _grid(
    vouched: pl.DataFrame,
    records: pl.DataFrame,
    *,
    known: pl.DataFrame | None,
    presence: pl.DataFrame | None,
    start: datetime,
    end: datetime,
) -> pl.DataFrame:
    """Every hour in which a source should speak of an entity."""
    sights = [vouched.select(*_ENTITY, "start"), records.select(*_ENTITY, start="ts")]
    if known is not None:
        sights.append(known.select(*_ENTITY, pl.lit(start).alias("start").cast(UTC_TIME)))
    seen = pl.concat(sights).group_by(_ENTITY).agg(pl.col("start").min().alias("seen"))
    if presence is None:
        presence = pl.DataFrame(schema=_PRESENCE)
    there = seen.join(
        presence.with_columns(is_listed=pl.lit(value=True)),
        on=["entity_kind", "entity_id"],
        how="left",
    )
    hours = pl.DataFrame({"hour": pl.datetime_range(start, end, _HOUR, closed="left", eager=True)})
    first = pl.when(pl.col("is_listed")).then("first").otherwise("seen")
    grid = there.join(hours.cast(UTC_TIME), how="cross").filter(
        (pl.col("hour") + _HOUR > first) | first.is_null(),
        (pl.col("hour") < pl.col("last")) | pl.col("last").is_null(),
    )
    return grid.select(*_ENTITY, "hour")


def _runs(records: pl.DataFrame) -> pl.DataFrame:
    """Runs of records that follow each other at the entity's usual interval."""
    ordered = records.sort(*_ENTITY, "ts")
    step = pl.col("ts").diff().over(_ENTITY).dt.total_microseconds() / 1e6
    timed = ordered.with_columns(step.alias("step"))
    every = pl.col("step").filter(pl.col("step") > 0).median().over(_ENTITY)
    breaks = (pl.col("step") > PATIENCE * pl.col("every")).fill_null(value=False)
    return (
        timed.with_columns(every.clip(upper_bound=_LONGEST_INTERVAL_S).alias("every"))
        .with_columns(breaks.cum_sum().over(_ENTITY).alias("run"))
        .group_by(*_ENTITY, "run", maintain_order=True)
        .agg(
            pl.col("ts").min().alias("start"),
            pl.col("ts").max().alias("end"),
            pl.col("every").first(),
        )
        .drop("run")
    )


def _vouched(stretches: pl.DataFrame) -> pl.DataFrame:
    """Half-open stretches: the last record vouches for a while after it."""
    more = pl.duration(
        microseconds=(pl.col("every").fill_null(0.0) * PATIENCE * 1e6).cast(pl.Int64)
    )
    return stretches.select(*_ENTITY, "start", (pl.col("end") + more).alias("end"))


def _merged(stretches: pl.DataFrame) -> pl.DataFrame:
    """Overlapping and touching stretches of an entity joined."""
    ordered = stretches.sort(*_ENTITY, "start", "end")
    reached = pl.col("end").cum_max().shift(1).over(_ENTITY)
    is_new = (pl.col("start") > reached).fill_null(value=False)
    return (
        ordered.with_columns(is_new.cum_sum().over(_ENTITY).alias("run"))
        .group_by(*_ENTITY, "run", maintain_order=True)
        .agg(pl.col("start").min(), pl.col("end").max())
        .drop("run")
    )


def _by_hour(vouched: pl.DataFrame, grid: pl.DataFrame) -> pl.DataFrame:
    """Seconds covered, the longest gap and the last moment covered, of each hour with any cover."""
    first = pl.col("start").dt.truncate("1h")
    last = pl.max_horizontal(pl.col("end") - timedelta(microseconds=1), pl.col("start"))
    pieces = (
        vouched.with_columns(pl.datetime_ranges(first, last, "1h").alias("hour"))
        .explode("hour")
        .with_columns(
            pl.max_horizontal("start", "hour").alias("start"),
            pl.min_horizontal("end", pl.col("hour") + _HOUR).alias("end"),
        )
        .join(grid, on=[*_ENTITY, "hour"], how="semi")
        .sort(*_ENTITY, "hour", "start")
    )
    by: Sequence[str] = [*_ENTITY, "hour"]
    before = pl.col("start") - pl.col("end").shift(1).over(by).fill_null(pl.col("hour"))
    return (
        pieces.with_columns(before.alias("gap"))
        .group_by(by)
        .agg(
            (pl.col("end") - pl.col("start")).sum().alias("covered"),
            pl.max_horizontal(
                pl.col("gap").max(), pl.col("hour").first() + _HOUR - pl.col("end").max()
            ).alias("gap"),
            pl.col("end").max().alias("watermark"),
        )
        .select(
            *by,
            _seconds("covered").alias("covered_s"),
            _seconds("gap").alias("longest_gap_s"),
            "watermark",
        )
    )


def _seconds(column: str) -> pl.Expr:
    return pl.col(column).dt.total_microseconds() / 1e6
