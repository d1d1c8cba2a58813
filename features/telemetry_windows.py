"""Statistics of telemetry over trailing windows, in two levels: samples to buckets to windows.

Which statistics make features is in `features.telemetry_features`.

Windows are [as_of - w, as_of). Buckets have the length of the greatest common divisor of the
windows and are laid so that they end at the wanted moments; each window is then a whole number
of buckets, and no sample outside it is looked at. Spreads and slopes are merged from buckets by
their own means (Chan, Golub, LeVeque 1983), so that a large mean does not swallow a small spread.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import polars as pl
from polars.dataframe.group_by import GroupBy

Statistic = Literal["mean", "std", "min", "max", "last", "slope", "delta", "sum", "count", "age"]

_US: Final = timedelta(microseconds=1)
_HOUR_US: Final = 3_600_000_000
_ROWS_AT_ONCE: Final = 400_000  # bounds the memory of a window's join to a few hundred MB


@dataclass(frozen=True)
class WindowStatistic:
    """One statistic of one column over one window.

    Attributes:
        name: Name of the result.
        column: Column of the samples.
        window: Length w of [as_of - w, as_of).
        statistic: `mean`, `std` (of the sample, null below two values), `min`, `max`; `last`
            value; `slope` per hour by least squares; `delta`: last value less the last value of
            the window before; `sum`; `count` of known values (0 without any); `age`: hours from
            the last known value to as_of.
    """

    name: str
    column: str
    window: timedelta
    statistic: Statistic


_MOMENTS: Final[dict[Statistic, tuple[str, ...]]] = {
    "mean": ("n", "mean"),
    "std": ("n", "mean", "m2"),
    "min": ("min",),
    "max": ("max",),
    "last": ("last",),
    "slope": ("n", "mean", "t_mean", "tx", "tt"),
    "delta": ("last",),
    "sum": ("sum",),
    "count": ("n",),
    "age": ("t_last",),
}


def window_statistics(
    samples: pl.DataFrame, rows: pl.DataFrame, wanted: Sequence[WindowStatistic]
) -> pl.DataFrame:
    """Computes statistics for each row's entity over windows that end at its as_of.

    Args:
        samples: `entity_id`, `ts` and numeric columns, sorted by (entity_id, ts).
        rows: `entity_id`, `as_of`, each pair once.
        wanted: What to compute.

    Returns:
        `entity_id`, `as_of` and one Float64 column per statistic, in the order of `rows`. Null:
        the window holds no known value (too few for `std` and `slope`).
    """
    if not wanted:
        return rows.select("entity_id", "as_of")
    bucket = math.gcd(*(w.window // _US for w in wanted)) * _US
    by_window: dict[timedelta, list[WindowStatistic]] = {}
    for statistic in wanted:
        by_window.setdefault(statistic.window, []).append(statistic)
    needed = sorted({(w.column, m) for w in wanted for m in _MOMENTS[w.statistic]})
    reach = max(w.window * (2 if w.statistic == "delta" else 1) for w in wanted)
    phase = pl.col("as_of").dt.epoch("us") % (bucket // _US)
    parts = []
    for _, same_phase in rows.group_by(phase.alias("phase"), maintain_order=True):
        buckets = _buckets(samples, same_phase, length=bucket, reach=reach, needed=needed)
        for some in _slices(same_phase, by_window, bucket):
            parts += [_windows(buckets, some, by_window, length=bucket)]
    names = [w.name for w in wanted]
    empty = pl.DataFrame(schema=dict.fromkeys(names, pl.Float64))
    computed = pl.concat(parts) if parts else rows.select("entity_id", "as_of").hstack(empty)
    return rows.select("entity_id", "as_of").join(
        computed.select("entity_id", "as_of", *names),
        on=["entity_id", "as_of"],
        how="left",
        maintain_order="left",
    )


def _slices(
    rows: pl.DataFrame, by_window: Mapping[timedelta, object], bucket: timedelta
) -> Iterator[pl.DataFrame]:
    """Cuts rows so that none of the joins with buckets grows large."""
    n_rows = max(1, _ROWS_AT_ONCE // (max(by_window) // bucket))
    return rows.iter_slices(n_rows)


def _buckets(
    samples: pl.DataFrame,
    rows: pl.DataFrame,
    *,
    length: timedelta,
    reach: timedelta,
    needed: Sequence[tuple[str, str]],
) -> pl.DataFrame:
    """Moments of each entity's samples per bucket: entity_id, bucket, `<column>:<moment>`.

    Bucket b holds [phase + b * length, phase + (b + 1) * length), where the phase is that of
    the rows' as_of.
    """
    first = rows["as_of"].min()
    last = rows["as_of"].max()
    phase = rows["as_of"].dt.epoch("us").to_list()[0] % (length // _US)
    seen = samples.filter((pl.col("ts") >= pl.lit(first) - reach) & (pl.col("ts") < pl.lit(last)))
    since_phase = pl.col("ts").dt.epoch("us") - phase
    keyed = seen.with_columns(
        (since_phase // (length // _US)).alias("bucket"),
        (since_phase / _HOUR_US).alias("t"),
    )
    return keyed.group_by("entity_id", "bucket").agg(
        _MOMENT_OF[moment](column).alias(f"{column}:{moment}") for column, moment in needed
    )


def _known_t(column: str) -> pl.Expr:
    return pl.when(pl.col(column).is_not_null()).then("t")


def _from_mean(column: str) -> pl.Expr:
    return pl.col(column) - pl.col(column).mean()


def _t_from_mean(column: str) -> pl.Expr:
    return _known_t(column) - _known_t(column).mean()


_MOMENT_OF: Final[dict[str, Callable[[str], pl.Expr]]] = {
    "n": lambda c: pl.col(c).count().cast(pl.Float64),
    "mean": lambda c: pl.col(c).mean(),
    "m2": lambda c: _from_mean(c).pow(2).sum(),
    "min": lambda c: pl.col(c).min(),
    "max": lambda c: pl.col(c).max(),
    "last": lambda c: pl.col(c).last(ignore_nulls=True),
    "sum": lambda c: pl.when(pl.col(c).count() > 0).then(pl.col(c).sum()),
    "t_mean": lambda c: _known_t(c).mean(),
    "t_last": lambda c: _known_t(c).max(),
    "tx": lambda c: (_t_from_mean(c) * _from_mean(c)).sum(),
    "tt": lambda c: _t_from_mean(c).pow(2).sum(),
}


def _windows(
    buckets: pl.DataFrame,
    rows: pl.DataFrame,
    by_window: Mapping[timedelta, Sequence[WindowStatistic]],
    *,
    length: timedelta,
) -> pl.DataFrame:
    """Merges buckets into windows for each row."""
    # A row's window ends with the bucket before the one that starts at as_of.
    end = pl.col("as_of").dt.epoch("us") // (length // _US)
    keyed = rows.select(
        "entity_id",
        "as_of",
        end.alias("end"),
        (end * (length // _US) / _HOUR_US).alias("end_t"),
    )
    result = rows.select("entity_id", "as_of")
    for window, wanted in by_window.items():
        n_buckets = window // length
        merged = _merged(buckets, keyed, range(1, n_buckets + 1)).agg(
            _MERGE[w.statistic](w.column).alias(w.name) for w in wanted
        )
        deltas = [w for w in wanted if w.statistic == "delta"]
        if deltas:
            before = _merged(buckets, keyed, range(n_buckets + 1, 2 * n_buckets + 1)).agg(
                _last_of(w.column).alias(f"{w.name}:before") for w in deltas
            )
            merged = merged.join(before, on=["entity_id", "as_of"], how="left").with_columns(
                pl.col(w.name) - pl.col(f"{w.name}:before") for w in deltas
            )
        result = result.join(
            merged.select("entity_id", "as_of", *(w.name for w in wanted)),
            on=["entity_id", "as_of"],
            how="left",
            maintain_order="left",
        )
    counts = [w.name for ws in by_window.values() for w in ws if w.statistic == "count"]
    return result.with_columns(pl.col(counts).fill_null(0.0))


def _merged(buckets: pl.DataFrame, keyed: pl.DataFrame, back: range) -> GroupBy:
    """Groups, per row, the buckets that lie `back` buckets before its as_of, in time order."""
    steps = pl.DataFrame({"back": list(reversed(back))}, schema={"back": pl.Int64})
    return (
        keyed.join(steps, how="cross", maintain_order="left_right")
        .with_columns((pl.col("end") - pl.col("back")).alias("bucket"))
        .join(buckets, on=["entity_id", "bucket"], maintain_order="left")
        .group_by("entity_id", "as_of")
    )


def _n(column: str) -> pl.Expr:
    return pl.col(f"{column}:n")


def _mean_of(column: str) -> pl.Expr:
    return _weighted(column, pl.col(f"{column}:mean"))


def _weighted(column: str, value: pl.Expr) -> pl.Expr:
    n = _n(column)
    return pl.when(n.sum() > 0).then((n * value).sum() / n.sum())


def _last_of(column: str) -> pl.Expr:
    return pl.col(f"{column}:last").last(ignore_nulls=True)


def _std_of(column: str) -> pl.Expr:
    n = _n(column)
    between = n * (pl.col(f"{column}:mean") - _mean_of(column)).pow(2)
    m2 = pl.col(f"{column}:m2").sum() + between.sum()
    return pl.when(n.sum() > 1).then((m2 / (n.sum() - 1)).sqrt())


def _slope_of(column: str) -> pl.Expr:
    n = _n(column)
    t = pl.col(f"{column}:t_mean")
    t_off = t - _weighted(column, t)
    x_off = pl.col(f"{column}:mean") - _mean_of(column)
    tx = pl.col(f"{column}:tx").sum() + (n * t_off * x_off).sum()
    tt = pl.col(f"{column}:tt").sum() + (n * t_off * t_off).sum()
    return pl.when(tt > 0).then(tx / tt)


def _sum_of(column: str) -> pl.Expr:
    part = pl.col(f"{column}:sum")
    return pl.when(part.count() > 0).then(part.sum())


def _age_of(column: str) -> pl.Expr:
    return pl.col("end_t").first() - pl.col(f"{column}:t_last").max()


_MERGE: Final[dict[Statistic, Callable[[str], pl.Expr]]] = {
    "mean": _mean_of,
    "std": _std_of,
    "min": lambda c: pl.col(f"{c}:min").min(),
    "max": lambda c: pl.col(f"{c}:max").max(),
    "last": _last_of,
    "slope": _slope_of,
    "delta": _last_of,
    "sum": _sum_of,
    "count": lambda c: _n(c).sum(),
    "age": _age_of,
}
