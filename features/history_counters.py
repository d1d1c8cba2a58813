"""Features from slow counters in force: levels, changes, time since a rise.

It serves sites that keep counters (SMART, ECC, row remaps) without telemetry: a row says what held
from when to when. Counters sampled by telemetry are in `features.telemetry_features`.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from features.contracts import UTC_TIME
from features.errors import DataError
from features.history_rows import join_last
from features.registry import Feature, window_suffix
from features.tables import CORE_COUNTERS

_US_PER_DAY: Final = 86_400_000_000
_HOURS_PER_DAY: Final = 24.0
_INPUTS: Final = ("counters.valid_from", "counters.valid_to")


@dataclass(frozen=True, kw_only=True)
class CounterSpec:
    """Which counters are looked at, and how far back.

    Attributes:
        names: Counters, as the table's columns are called; () gives no feature.
        clocks: Those of them that count hours: between rows they go on with the time.
        spans: Times over which the change of each is taken, shortest first.

    Raises:
        DataError: A clock is no counter, or a span is not positive.
    """

    names: tuple[str, ...] = ()
    clocks: tuple[str, ...] = ()
    spans: tuple[timedelta, ...] = (timedelta(30), timedelta(90))

    def __post_init__(self) -> None:
        unknown = sorted(set(self.clocks) - set(self.names))
        if unknown:
            raise DataError(
                f"counter spec: clock {', '.join(unknown)} is no counter; there are "
                f"{', '.join(self.names) or 'none'}."
            )
        if not self.spans or min(self.spans) <= timedelta(0):
            raise DataError(
                f"counter spec: spans must be one or more positive lengths, got {self.spans}."
            )

    @property
    def levels(self) -> tuple[str, ...]:
        """The counters that count events, not hours."""
        return tuple(name for name in self.names if name not in self.clocks)


def counter_names(counters: pl.DataFrame) -> tuple[str, ...]:
    """The counters a table has, in its order."""
    return tuple(name for name in counters.columns if name not in CORE_COUNTERS.schema)


def counter_features(spec: CounterSpec) -> tuple[Feature, ...]:
    """The features that `build_counters` gives, in order; none without counters."""
    if not spec.names:
        return ()
    found = []
    for name in spec.clocks:
        meaning = f"Hours on {name}, with the time since it was read"
        found.append(_feature(name, f"{name}_hours", "h", meaning, "null where it is not read"))
    for name in spec.levels:
        null = f"null where {name} is not known"
        found.append(_feature(name, f"{name}_level", "1", f"Level of {name}", null))
        for span in spec.spans:
            words = window_suffix(span)
            meaning = f"Change of {name} in the last {words}"
            missing = f"null where {name} is not known now or was not {words} ago"
            found.append(_feature(name, f"{name}_change_{words}", "1", meaning, missing, span))
        meaning, null = f"Time since {name} last rose", "null where it never rose in the record"
        found.append(_feature(name, f"{name}_days_since_rise", "d", meaning, null))
    totals = [
        ("counters_above_zero", "1", "Counters above zero", "0 where none is"),
        ("counters_ever_risen", "1", "Counters that rose in the record", "0 where none did"),
        ("days_since_rise", "d", "Time since any counter rose", "null where none ever rose"),
        ("days_in_force", "d", "Time since any counter changed", "null without counters"),
    ]
    return (*found, *(_feature(None, *total) for total in totals))


def _feature(
    counter: str | None,
    name: str,
    unit: str,
    meaning: str,
    availability: str,
    window: timedelta | None = None,
) -> Feature:
    inputs = _INPUTS if counter is None else (f"counters.{counter}", *_INPUTS)
    return Feature(name, "telemetry_counter", unit, window, meaning, inputs, availability)


def build_counters(
    grid: pl.DataFrame, counters: pl.DataFrame, *, spec: CounterSpec
) -> pl.DataFrame:
    """Computes the counter features for every row of a grid.

    Args:
        grid: Rows with `entity_id` and `as_of`.
        counters: core/counters; rows with `valid_from < as_of` count. What held until before
            `as_of` is no longer known to hold.
        spec: Which counters.

    Returns:
        `entity_id`, `as_of` and one Float32 column per feature of `counter_features`, in the
        grid's order.
    """
    rows = grid.select("entity_id", "as_of")
    if not spec.names:
        return rows
    known = _with_rises(counters, spec)
    now = _in_force(rows, known, at=pl.col("as_of"))
    columns = [pl.col(name) for name in ("entity_id", "as_of")]
    # Of the clocks the time since their row is added.
    elapsed = (pl.col("as_of") - pl.col("valid_from")).dt.total_microseconds() / _US_PER_DAY
    found = now.select(
        *columns,
        *((pl.col(c) + _HOURS_PER_DAY * elapsed).alias(f"{c}_hours") for c in spec.clocks),
        *(pl.col(c).alias(f"{c}_level") for c in spec.levels),
        *(_days_since(f"rise of {c}").alias(f"{c}_days_since_rise") for c in spec.levels),
        pl.sum_horizontal((pl.col(c) > 0).cast(pl.Int32) for c in spec.levels).alias(
            "counters_above_zero"
        ),
        pl.sum_horizontal(pl.col(f"rise of {c}").is_not_null() for c in spec.levels).alias(
            "counters_ever_risen"
        ),
        _days_since(*(f"rise of {c}" for c in spec.levels)).alias("days_since_rise"),
        elapsed.alias("days_in_force"),
    )
    for span in spec.spans:
        then = _in_force(rows, known, at=pl.col("as_of") - span)
        found = found.hstack(
            [(now[c] - then[c]).alias(f"{c}_change_{window_suffix(span)}") for c in spec.levels]
        )
    names = [feature.name for feature in counter_features(spec)]
    return found.select("entity_id", "as_of", pl.col(names).cast(pl.Float32))


def _with_rises(counters: pl.DataFrame, spec: CounterSpec) -> pl.DataFrame:
    """The table by GPU and time, with the last time at which each counter had risen by then."""
    over = "entity_id"
    known = counters.filter(pl.col("valid_from").is_not_null()).sort("gpu_uuid", "valid_from")
    known = known.rename({"gpu_uuid": over})
    before = [
        pl.col(c).forward_fill().shift(1).over(over).alias(f"before {c}") for c in spec.levels
    ]
    rose = [
        pl.when(pl.col(c) > pl.col(f"before {c}"))
        .then("valid_from")
        .forward_fill()
        .over(over)
        .alias(f"rise of {c}")
        for c in spec.levels
    ]
    return (
        known.with_columns(before)
        .with_columns(rose)
        .select(over, "valid_from", "valid_to", *spec.names, *(f"rise of {c}" for c in spec.levels))
    )


def _in_force(rows: pl.DataFrame, known: pl.DataFrame, *, at: pl.Expr) -> pl.DataFrame:
    """What held just before a moment of each row; nulls where nothing did."""
    asked = rows.with_columns(at.alias("at"))
    found = join_last(asked, known, on=("at", "valid_from"), by=("entity_id",))
    is_over = (pl.col("valid_to") < pl.col("at")).fill_null(value=False)
    gone = [name for name in known.columns if name not in ("entity_id", "valid_to")]
    return found.with_columns(pl.when(~is_over).then(name).alias(name) for name in gone)


def _days_since(*times: str) -> pl.Expr:
    last = pl.max_horizontal(*times)
    return (pl.col("as_of") - last.cast(UTC_TIME)).dt.total_microseconds() / _US_PER_DAY
