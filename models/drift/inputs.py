"""Drift of inputs: where last week's values lie against the bins that training fixed.

Drift of calibration is in `models.drift.calibration`, sentences are in `models.drift.words`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import chi2
from scipy.stats import f as f_distribution

from features.errors import DataError
from models.failure_model import finite_values

FloatArray = npt.NDArray[np.float64]

WEEK: Final = timedelta(days=7)
SCORE: Final = "score"
_FIRST_MONDAY: Final = datetime(1970, 1, 5, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
BINS: Final = 10
LARGE_PSI: Final = 0.25
"""Below this a shift is not worth waking anyone for, however sure it is (the usual rule of thumb
calls 0.1 to 0.25 moderate and more than 0.25 large)."""

BORROWED_WEEKS: Final = 10
"""Weeks of evidence that a feature borrows from all others on how much weeks differ: a site trains
on a few weeks, and 170 features with four weeks each would by chance hold some that look still."""

FALSE_ALARMS: Final = 0.01
"""Share of weeks in which chance alone may raise any alarm, shared out over all features."""

MIN_ENTITIES: Final = 30
"""Fewer independent rows than this say nothing about eleven bins."""


@dataclass(frozen=True)
class FeatureBins:
    """How one feature was distributed in training.

    Attributes:
        edges: Upper ends of all bins but the last, rising; a value at an edge is in the lower bin.
        shares: Share of the rows in each bin, nulls last; one more than bins.
        low: 10 % point of the values; None where all were null.
        median: Median.
        high: 90 % point.
        wander: Mean index of one training week against the others beyond what chance gives,
            drawn towards that of all features.
    """

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    low: float | None
    median: float | None
    high: float | None
    wander: float = 0.0

    @property
    def null_share(self) -> float:
        """Share of nulls in training."""
        return self.shares[-1]


@dataclass(frozen=True)
class DriftReference:
    """Distributions of a model's inputs and of its score in training, fixed with the version.

    Attributes:
        features: Bins by feature name; the score is among them by the name `score`.
        n_rows: Independent rows they rest on: one per entity and week.
        n_weeks: Whole weeks of training; below two, nothing is known of how weeks differ.
    """

    features: Mapping[str, FeatureBins]
    n_rows: int
    n_weeks: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "n_rows": self.n_rows,
            "n_weeks": self.n_weeks,
            "features": {name: asdict(bins) for name, bins in self.features.items()},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DriftReference":
        """The reference from what `to_dict` gave."""
        return cls(
            features={
                name: FeatureBins(
                    **{**bins, "edges": tuple(bins["edges"]), "shares": tuple(bins["shares"])}
                )
                for name, bins in values["features"].items()
            },
            n_rows=values["n_rows"],
            n_weeks=values["n_weeks"],
        )


@dataclass(frozen=True)
class FeatureDrift:
    """One feature in one week.

    Attributes:
        name: Feature, or `score`.
        psi: Population stability index against training.
        limit: What it must reach to be an alarm.
        n_rows: Rows of the week, one per entity.
        null_share: Share of nulls.
        low: 10 % point of the values; None where all are null.
        median: Median.
        high: 90 % point.
        training: The same in training.
    """

    name: str
    psi: float
    limit: float
    n_rows: int
    null_share: float
    low: float | None
    median: float | None
    high: float | None
    training: FeatureBins

    @property
    def is_alarm(self) -> bool:
        """Whether someone should look."""
        return self.psi >= self.limit


def sample_moments(start: datetime, *, every: timedelta = timedelta(days=1)) -> list[datetime]:
    """The moments of a week that are looked at: one a day, at seven different hours.

    Args:
        start: Start of the week.
        every: Distance of the days.

    Returns:
        Seven moments in (start, start + 7 d], each on the hour if the start is.

    >>> from datetime import UTC
    >>> [at.hour for at in sample_moments(datetime(2026, 1, 5, tzinfo=UTC))]
    [1, 6, 11, 16, 21, 2, 7]
    """
    return [start + day * every + timedelta(hours=1 + 5 * day % 24) for day in range(7)]


def one_row_per_entity(rows: pl.DataFrame, *, start: datetime) -> pl.DataFrame:
    """Each entity at one moment of a week, by hash: rows of one entity are not independent.

    Args:
        rows: `entity_id`, `as_of` and anything else.
        start: Start of the week.

    Returns:
        At most one row per entity; entities not seen at their moment are left out.
    """
    moments = sample_moments(start)
    entities = rows["entity_id"].unique().sort()
    places = [blake2b(one.encode(), digest_size=1).digest()[0] % len(moments) for one in entities]
    chosen = pl.DataFrame(
        {"entity_id": entities, "as_of": [moments[place] for place in places]},
        schema_overrides={"as_of": rows.schema["as_of"]},
    )
    return rows.join(chosen, on=["entity_id", "as_of"], how="semi").sort("entity_id")


def week_start(at: datetime) -> datetime:
    """Start of the week that `at` ends or lies in: a Monday at 00:00 UTC, exclusive.

    >>> from datetime import UTC
    >>> [week_start(datetime(2026, 1, 12, hour, tzinfo=UTC)).day for hour in (0, 1)]
    [5, 12]
    """
    since = (at - _FIRST_MONDAY) // _MICROSECOND
    return _FIRST_MONDAY + ((since - 1) // (WEEK // _MICROSECOND)) * WEEK


def weekly_rows(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """The weeks of a record, each thinned to one row per entity.

    Args:
        rows: `entity_id`, `as_of` and anything else.

    Returns:
        Weeks in which at least half of the entities were seen at their moment, and thirty.
    """
    first, last = rows["as_of"].min(), rows["as_of"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return []
    enough = max(MIN_ENTITIES, int(rows["entity_id"].n_unique()) / 2)
    weeks, start = [], week_start(first)
    while start < last:
        week = one_row_per_entity(rows, start=start)
        weeks += [week] if week.height >= enough else []
        start += WEEK
    return weeks


def fit_reference(
    rows: pl.DataFrame, names: Sequence[str], *, scored: pl.DataFrame | None = None
) -> DriftReference:
    """Fixes the bins of each feature on training rows.

    Args:
        rows: Training rows with `entity_id`, `as_of` and the features.
        names: Features.
        scored: Rows with `score` that the model was not trained on: on its own it is too sure.

    Returns:
        The reference. Bins hold about a tenth of the values each; a value that fills many bins is
        one bin, and what lies beyond all that training saw has bins of its own.

    Raises:
        DataError: There is no row, or a feature is missing.
    """
    if rows.is_empty():
        raise DataError("drift: there are no training rows to fix bins on. Give training rows.")
    values = _values(rows, names)
    bins = [_bins_of(values[:, place]) for place in range(len(names))]
    weeks = weekly_rows(rows)
    wander = _wander(bins, [_values(week, names) for week in weeks])
    features = {
        name: replace(one, wander=float(usual))
        for name, one, usual in zip(names, bins, wander, strict=True)
    }
    if scored is not None:
        scores = _values(scored, [SCORE])[:, 0]
        features[SCORE] = replace(_bins_of(scores), wander=float(wander.mean()))
    entities = int(rows["entity_id"].n_unique())
    return DriftReference(features, sum(week.height for week in weeks) or entities, len(weeks))


def find_drift(
    week: pl.DataFrame, reference: DriftReference, *, scores: FloatArray | None = None
) -> tuple[FeatureDrift, ...]:
    """Holds a week's rows against training, feature by feature.

    The limit of a feature is the largest of three: an index worth acting on; what sampling gives
    one feature of all these in one of a hundred weeks (n x PSI is about chi-squared, Yurdakul
    2018); and what the feature's own wandering from week to week gives as seldom (the square of a
    common shift, an F quantile with the variance moderated as in Smyth 2004).

    Args:
        week: One row per entity (`one_row_per_entity`) with the features.
        reference: Training.
        scores: Score of each row, shape (rows,), NaN where unknown.

    Returns:
        Features by falling index over limit; none for a week of fewer than 30 entities.

    Raises:
        DataError: A feature is missing.
    """
    names = [name for name in reference.features if name != SCORE]
    if week.height < MIN_ENTITIES:
        return ()
    values = _values(week, names)
    columns = {name: values[:, place] for place, name in enumerate(names)}
    if scores is not None and SCORE in reference.features:
        columns[SCORE] = _values(pl.DataFrame({SCORE: scores}), [SCORE])[:, 0]
    allowed = FALSE_ALARMS / len(columns)
    found = []
    for name, column in columns.items():
        bins = reference.features[name]
        limit = _limit(bins, column.size, reference, allowed=allowed)
        low, median, high = _quantiles(column)
        found.append(
            FeatureDrift(
                name,
                stability_index(bins, column),
                limit,
                column.size,
                float(np.isnan(column).mean()),
                low,
                median,
                high,
                bins,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.psi / one.limit, one.name)))


def stability_index(bins: FeatureBins, values: FloatArray) -> float:
    """Population stability index of values against training; NaN counts as null.

    Half a row is added to each bin of the week, and training shares are kept above what half a
    row of the week would be, so that an empty bin is finite.

    Args:
        bins: Training.
        values: Shape (n,), n > 0.

    Returns:
        Sum over bins of (week - training) x log(week / training); 0 for equal shares.
    """
    counts = _counts(bins.edges, values)
    smoothing = 0.5
    total = values.size + smoothing * counts.size
    week = (counts + smoothing) / total
    training = (np.asarray(bins.shares) * values.size + smoothing) / total
    return float(np.sum((week - training) * np.log(week / training)))


def _values(rows: pl.DataFrame, names: Sequence[str]) -> FloatArray:
    """Columns as they are binned, in training and in each week alike.

    All of them are rounded to float32, scores too: calibration gives many rows the very same score,
    and half of such levels would else lie beyond their own edge.
    """
    return finite_values(rows, names).astype(np.float64)


def _bins_of(values: FloatArray) -> FeatureBins:
    known = values[~np.isnan(values)]
    edges: list[float] = []
    if known.size:
        # Values taken themselves as edges: a count of zero then has a bin of its own.
        inner = np.quantile(known, np.arange(1, BINS) / BINS, method="inverted_cdf")
        inner = np.unique(inner)
        inner = inner[inner < known.max()]
        below = np.nextafter(np.float32(known.min()), np.float32(-np.inf))
        edges = [float(below), *inner.tolist(), float(known.max())]
    counts = _counts(tuple(edges), values)
    low, median, high = _quantiles(values)
    return FeatureBins(tuple(edges), tuple((counts / values.size).tolist()), low, median, high)


def _counts(edges: tuple[float, ...], values: FloatArray) -> FloatArray:
    """Rows in each bin, nulls last."""
    is_null = np.isnan(values)
    places = np.searchsorted(np.asarray(edges), values[~is_null], side="left")
    counts = np.bincount(places, minlength=len(edges) + 1)
    return np.append(counts, is_null.sum()).astype(np.float64)


def _quantiles(values: FloatArray) -> tuple[float | None, float | None, float | None]:
    known = values[~np.isnan(values)]
    if not known.size:
        return None, None, None
    low, median, high = np.quantile(known, [0.1, 0.5, 0.9]).tolist()
    return low, median, high


def _wander(bins: Sequence[FeatureBins], weeks: Sequence[FloatArray]) -> FloatArray:
    """How far one week lies from the others in each feature, shape (features,)."""
    n_weeks = len(weeks)
    if n_weeks < 2:
        return np.zeros(len(bins))
    beyond = np.zeros((n_weeks, len(bins)))
    for row, week in enumerate(weeks):
        for place, one in enumerate(bins):
            by_chance = (_n_used(one) - 1) / week.shape[0]
            beyond[row, place] = stability_index(one, week[:, place]) - by_chance
    # A week is part of what it is held against, which hides one share of its shift.
    own = np.maximum(beyond.mean(axis=0), 0.0) * (n_weeks / (n_weeks - 1)) ** 2
    shared = float(own.mean())
    return np.asarray((n_weeks * own + BORROWED_WEEKS * shared) / (n_weeks + BORROWED_WEEKS))


def _limit(bins: FeatureBins, n_week: int, reference: DriftReference, *, allowed: float) -> float:
    scale = 1.0 / n_week + 1.0 / max(reference.n_rows, 1)
    freedom = _n_used(bins) - 1
    sampling = float(chi2.isf(allowed, freedom)) * scale
    weeks = reference.n_weeks + BORROWED_WEEKS
    wandering = bins.wander * float(f_distribution.isf(allowed, 1, weeks))
    return max(LARGE_PSI, sampling, wandering + freedom * scale)


def _n_used(bins: FeatureBins) -> int:
    return max(2, sum(share > 0 for share in bins.shares))
