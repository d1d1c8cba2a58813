"""Statistics of telemetry over trailing windows, in two levels: samples to buckets to windows.

Which statistics make features is in `features.telemetry_features`.

Windows are [as_of - w, as_of). Buckets have the length of the greatest common divisor of the
windows and are laid so that they end at the wanted moments; each window is then a whole number
of buckets, and no sample outside it is looked at. Spreads and slopes are merged from buckets by
their own means (Chan, Golub, LeVeque 1983), so that a large mean does not swallow a small spread.
A row's result depends on its own buckets alone, to the last bit, whatever else is asked for.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from features.event_index import Floats, Ints

Statistic = Literal["mean", "std", "min", "max", "last", "slope", "delta", "sum", "count", "age"]

_US: Final = timedelta(microseconds=1)
_HOUR_US: Final = 3_600_000_000
_NO_KEY: Final = -1
# Less than a sample a microsecond apart: what rounding leaves of equal times.
_LEAST_TT: Final = 1e-18
_ROWS_AT_ONCE: Final = 8_192  # a day of hourly buckets is then 1.5 MB a moment and stays in cache


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
    keys = rows.select("entity_id", "as_of")
    if not wanted or rows.is_empty():
        return keys.with_columns(pl.lit(None, pl.Float64).alias(w.name) for w in wanted)
    length = math.gcd(*(w.window // _US for w in wanted))
    entities = keys.select("entity_id").unique(maintain_order=True).with_row_index("code")
    asked = keys.join(entities, on="entity_id", how="left", maintain_order="left").select(
        pl.col("code").cast(pl.Int64), pl.col("as_of").dt.epoch("us")
    )
    coded = samples.join(entities, on="entity_id", maintain_order="left")
    code, as_of = asked["code"].to_numpy(), asked["as_of"].to_numpy()
    columns = {w.name: np.full(rows.height, np.nan) for w in wanted}
    for phase in np.unique(as_of % length):
        of_phase = np.flatnonzero(as_of % length == phase)
        buckets = _buckets(coded, as_of[of_phase], length=length, wanted=wanted)
        for some in _slices(of_phase):
            places = buckets.places(code[some], as_of[some] // length)
            for w in wanted:
                view = _View(buckets, places, w.column)
                columns[w.name][some] = _MERGE[w.statistic](view, w.window // _US // length)
    return keys.with_columns(
        pl.Series(name, values, nan_to_null=True) for name, values in columns.items()
    )


def _slices(rows: Ints) -> Iterator[Ints]:
    for start in range(0, rows.size, _ROWS_AT_ONCE):
        yield rows[start : start + _ROWS_AT_ONCE]


@dataclass(frozen=True)
class _Buckets:
    """Moments per entity and bucket.

    Attributes:
        keys: entity code * width + bucket - first, ascending, shape (n,).
        first: The first bucket that counts.
        width: Buckets from the first to the last.
        reach: How many buckets before its as_of a row may need.
        length_h: Length of a bucket in hours.
        moments: `<column>:<moment>` to shape (n + 1,); the last, NaN, stands for no bucket.
    """

    keys: Ints
    first: int
    width: int
    reach: int
    length_h: float
    moments: dict[str, Floats]

    def places(self, code: Ints, end: Ints) -> Ints:
        """Where the `reach` buckets before each row's `end` are in `moments`, in time order.

        Args:
            code: Entity code per row, shape (rows,).
            end: The bucket that starts at as_of, shape (rows,).

        Returns:
            Shape (rows, reach); n where an entity has no such bucket.
        """
        asked = code * self.width + end - self.first
        keys = asked[:, np.newaxis] + np.arange(-self.reach, 0)
        places = np.searchsorted(self.keys, keys)
        nearest = np.append(self.keys, _NO_KEY)[places]
        return np.where(nearest == keys, places, self.keys.size)


def _buckets(
    samples: pl.DataFrame, as_of: Ints, *, length: int, wanted: Sequence[WindowStatistic]
) -> _Buckets:
    """Reduces samples to buckets.

    Bucket b holds [phase + b * length, phase + (b + 1) * length), where the phase is that of
    `as_of`; the window of a row ends with the bucket before the one that starts at its as_of.

    Args:
        samples: The samples with the `code` of their entity.
        as_of: Moments in microseconds, all with the same remainder by `length`.
        length: Length of a bucket in microseconds.
        wanted: What the moments are needed for.
    """
    phase = int(as_of[0]) % length
    reach = max(w.window * (2 if w.statistic == "delta" else 1) for w in wanted) // _US
    first = (int(as_of.min()) - reach) // length
    end = int(as_of.max()) // length
    since_phase = pl.col("ts").dt.epoch("us") - phase
    bucket = since_phase // length
    middle = bucket * length + length // 2
    needed = sorted({(w.column, moment) for w in wanted for moment in _MOMENTS[w.statistic]})
    table = (
        samples.with_columns(bucket.alias("bucket"), ((since_phase - middle) / _HOUR_US).alias("t"))
        .filter(pl.col("bucket").is_between(first, end - 1))
        .group_by("code", "bucket")
        .agg(_MOMENT_OF[moment](column).alias(f"{column}:{moment}") for column, moment in needed)
        .sort("code", "bucket")
    )
    width = max(end - first, 1)
    keys = table["code"].cast(pl.Int64) * width + table["bucket"] - first
    moments = {
        name: np.append(table[name].cast(pl.Float64).fill_null(np.nan).to_numpy(), np.nan)
        for name in table.columns[2:]
    }
    return _Buckets(keys.to_numpy(), first, width, reach // length, length / _HOUR_US, moments)


def _known_t(column: str) -> pl.Expr:
    return pl.when(pl.col(column).is_not_null()).then("t")


# `t` is the time from the middle of the bucket, in hours: small, so that sums of its products
# keep their precision.
_MOMENT_OF: Final[dict[str, Callable[[str], pl.Expr]]] = {
    "n": lambda c: pl.col(c).count(),
    "mean": lambda c: pl.col(c).mean(),
    "m2": lambda c: pl.col(c).var(ddof=0) * pl.col(c).count(),
    "min": lambda c: pl.col(c).min(),
    "max": lambda c: pl.col(c).max(),
    "last": lambda c: pl.col(c).last(ignore_nulls=True),
    "sum": lambda c: pl.when(pl.col(c).count() > 0).then(pl.col(c).sum()),
    "t_mean": lambda c: _known_t(c).mean(),
    "t_last": lambda c: _known_t(c).last(ignore_nulls=True),
    "tx": lambda c: (pl.col("t") * pl.col(c)).sum(),
    "tt": lambda c: _known_t(c).pow(2).sum(),
}


@dataclass(frozen=True)
class _View:
    """One column's buckets as seen from some rows."""

    buckets: _Buckets
    places: Ints
    column: str

    def moment(self, name: str, n_buckets: int, *, skip: int = 0) -> Floats:
        """A moment of the `n_buckets` buckets that end `skip` before as_of, shape (rows, n).

        In time order; NaN where an entity has no bucket or no known value in it.
        """
        end = self.places.shape[1] - skip
        places = self.places[:, end - n_buckets : end]
        return self.buckets.moments[f"{self.column}:{name}"][places]


def _total(values: Floats) -> Floats:
    """Row sums of the known values; NaN without any."""
    return np.where(np.isnan(values).all(axis=1), np.nan, np.nansum(values, axis=1))


def _last(values: Floats) -> Floats:
    """The last known value of each row; NaN without any."""
    reversed_known = ~np.isnan(values[:, ::-1])
    place = values.shape[1] - 1 - reversed_known.argmax(axis=1)
    last: Floats = values[np.arange(values.shape[0]), place]
    return last


def _n_of(view: _View, n_buckets: int) -> Floats:
    return np.nan_to_num(view.moment("n", n_buckets))


def _count(view: _View, n_buckets: int) -> Floats:
    count: Floats = _n_of(view, n_buckets).sum(axis=1)
    return count


def _ratio(over: Floats, under: Floats, *, where: npt.NDArray[np.bool_]) -> Floats:
    """Quotients; NaN elsewhere."""
    ratio: Floats = np.divide(over, under, out=np.full(under.shape, np.nan), where=where)
    return ratio


def _weighted(n: Floats, values: Floats) -> Floats:
    """Row means of values weighted by n; NaN where n is 0."""
    total = n.sum(axis=1)
    summed = np.nansum(n * values, axis=1)
    return _ratio(summed, total, where=total > 0)


def _mean(view: _View, n_buckets: int) -> Floats:
    return _weighted(_n_of(view, n_buckets), view.moment("mean", n_buckets))


def _std(view: _View, n_buckets: int) -> Floats:
    n, mean = _n_of(view, n_buckets), view.moment("mean", n_buckets)
    between = n * (mean - _weighted(n, mean)[:, np.newaxis]) ** 2
    m2 = np.nansum(view.moment("m2", n_buckets), axis=1) + np.nansum(between, axis=1)
    total = n.sum(axis=1)
    return np.sqrt(_ratio(m2, total - 1, where=total > 1))


def _slope(view: _View, n_buckets: int) -> Floats:
    n, mean, t_mean = (view.moment(m, n_buckets) for m in ("n", "mean", "t_mean"))
    n = np.nan_to_num(n)
    # Within buckets: from sums about the middle to sums about the mean.
    within_tx = view.moment("tx", n_buckets) - n * t_mean * mean
    within_tt = view.moment("tt", n_buckets) - n * t_mean * t_mean
    t = t_mean + np.arange(n_buckets) * view.buckets.length_h
    t_off = t - _weighted(n, t)[:, np.newaxis]
    x_off = mean - _weighted(n, mean)[:, np.newaxis]
    tx = np.nansum(within_tx + n * t_off * x_off, axis=1)
    tt = np.nansum(within_tt + n * t_off * t_off, axis=1)
    is_spread = (n.sum(axis=1) > 1) & (tt > _LEAST_TT)
    return _ratio(tx, tt, where=is_spread)


def _delta(view: _View, n_buckets: int) -> Floats:
    before = view.moment("last", n_buckets, skip=n_buckets)
    return _last(view.moment("last", n_buckets)) - _last(before)


def _age(view: _View, n_buckets: int) -> Floats:
    to_end = (n_buckets - 0.5 - np.arange(n_buckets)) * view.buckets.length_h
    return _last(to_end - view.moment("t_last", n_buckets))


_MERGE: Final[dict[Statistic, Callable[[_View, int], Floats]]] = {
    "mean": _mean,
    "std": _std,
    "min": lambda view, n: np.fmin.reduce(view.moment("min", n), axis=1),
    "max": lambda view, n: np.fmax.reduce(view.moment("max", n), axis=1),
    "last": lambda view, n: _last(view.moment("last", n)),
    "slope": _slope,
    "delta": _delta,
    "sum": lambda view, n: _total(view.moment("sum", n)),
    "count": _count,
    "age": _age,
}
