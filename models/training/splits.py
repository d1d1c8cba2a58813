"""Cuts rows into train, validation and test by time with an embargo, and by entity.

No model is trained here, and rows are never resampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

import polars as pl

from features.errors import DataError

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class TimeSplit:
    """Rows in three parts that follow each other in time, each an embargo apart.

    Attributes:
        train: Rows the model learns from.
        valid: Rows for early stopping, calibration and thresholds.
        test: Rows looked at once.
        dropped: Rows in no part, by reason.
    """

    train: pl.DataFrame
    valid: pl.DataFrame
    test: pl.DataFrame
    dropped: dict[str, int]


@dataclass(frozen=True)
class Origin:
    """One rolling origin: the three cuts that `split_by_time` takes.

    Attributes:
        train_until: End of training, exclusive.
        valid_until: End of validation, exclusive.
        test_until: End of the test, exclusive.
    """

    train_until: datetime
    valid_until: datetime
    test_until: datetime


def split_by_time(
    frame: pl.DataFrame,
    *,
    train_until: datetime,
    valid_until: datetime,
    test_until: datetime,
    embargo: timedelta,
) -> TimeSplit:
    """Cuts rows by `as_of`; a row whose label could see the next part is dropped.

    A row at `as_of` knows the outcome through `as_of + L + H`. With the embargo L + H, a part
    keeps only rows with `as_of + embargo <= cut`, and the next begins at the cut. An incident
    whose rows still lie on both sides (the label names one that began after the cut) stays in
    the later part alone.

    Args:
        frame: Rows with `as_of` and, where known, `incident_id`.
        train_until: End of training, exclusive.
        valid_until: End of validation, exclusive; equal to `train_until` for no validation.
        test_until: End of the test, exclusive.
        embargo: L + H.

    Returns:
        The parts: `max(as_of) + embargo <= min(as_of)` of the next, no incident in two of them.

    Raises:
        DataError: The cuts are not in order, or the embargo is negative.
    """
    if not train_until <= valid_until <= test_until:
        raise DataError(
            f"time split: cuts must be in order, got train_until {train_until}, valid_until "
            f"{valid_until}, test_until {test_until}. Give them in rising order."
        )
    if embargo < timedelta(0):
        raise DataError(f"time split: embargo must not be negative, got {embargo}. Give L + H.")
    as_of = pl.col("as_of")
    train = frame.filter(as_of + embargo <= train_until)
    valid_end = as_of + embargo <= valid_until
    valid = frame.filter(as_of >= train_until, valid_end)
    test = frame.filter(as_of >= valid_until, as_of < test_until)
    after = frame.filter(as_of >= test_until).height
    embargoed = frame.height - train.height - valid.height - test.height - after
    before = train.height + valid.height
    valid = without_incidents_of(valid, (test,))
    train = without_incidents_of(train, (valid, test))
    shared = before - train.height - valid.height
    dropped = {"embargo": embargoed, "after_test": after, "incident_in_later_part": shared}
    return TimeSplit(train, valid, test, dropped)


def without_incidents_of(part: pl.DataFrame, others: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows of a part whose incident is in none of the others: one may fail several GPUs.

    Args:
        part: Rows; all of them are kept where there is no `incident_id`.
        others: At least one other part.
    """
    if "incident_id" not in part.columns:
        return part
    incidents = pl.concat([other["incident_id"] for other in others]).drop_nulls().unique()
    if incidents.is_empty():
        return part
    is_shared = pl.col("incident_id").is_in(incidents.implode()).fill_null(value=False)
    return part.filter(~is_shared)


def rolling_origins(
    *,
    first: datetime,
    last: datetime,
    step: timedelta,
    valid: timedelta,
    test: timedelta,
) -> tuple[Origin, ...]:
    """Origins from `first` to `last`: train before, validate `valid` long, test `test` long.

    Args:
        first: The first origin: end of training, exclusive.
        last: No origin after this.
        step: Distance between origins.
        valid: Length of validation.
        test: Length of the test.

    Returns:
        Origins in order of time.

    Raises:
        DataError: The step is not positive.

    >>> from datetime import UTC
    >>> day = timedelta(days=1)
    >>> start = datetime(2026, 1, 1, tzinfo=UTC)
    >>> origins = rolling_origins(
    ...     first=start, last=start + 7 * day, step=7 * day, valid=2 * day, test=5 * day
    ... )
    >>> [origin.test_until.day for origin in origins]
    [8, 15]
    """
    if step <= timedelta(0):
        raise DataError(f"rolling origins: step must be positive, got {step}.")
    origins = []
    origin = first
    while origin <= last:
        origins.append(Origin(origin, origin + valid, origin + valid + test))
        origin += step
    return tuple(origins)


def entity_fold(entity_ids: Sequence[str], *, n_folds: int, salt: str = "") -> list[int]:
    """Gives each entity a fold by hash, the same on every machine and in every run.

    Args:
        entity_ids: Ids, any number of times each.
        n_folds: Number of folds.
        salt: Another salt gives another assignment.

    Returns:
        A fold in `[0, n_folds)` per id.

    >>> entity_fold(["gpu-a", "gpu-b", "gpu-a"], n_folds=5)
    [3, 4, 3]
    """
    folds = {
        entity: int.from_bytes(blake2b(f"{salt}{entity}".encode(), digest_size=8).digest())
        % n_folds
        for entity in set(entity_ids)
    }
    return [folds[entity] for entity in entity_ids]


def without_shared_entities(
    split: TimeSplit, *, n_folds: int, test_fold: int, salt: str = ""
) -> TimeSplit:
    """Makes a time split also disjoint in entities.

    Entities of `test_fold` keep only their test rows, all others lose theirs: the result says
    how well the model ranks entities it has never seen.

    Args:
        split: A split by time.
        n_folds: Number of folds.
        test_fold: The fold that is tested.
        salt: See `entity_fold`.

    Returns:
        The same split with fewer rows.
    """

    def keep(part: pl.DataFrame, *, tested: bool) -> pl.DataFrame:
        folds = pl.Series(
            entity_fold(part["entity_id"].to_list(), n_folds=n_folds, salt=salt), dtype=pl.Int64
        )
        is_tested = folds == test_fold
        return part.filter(is_tested if tested else ~is_tested)

    train, valid = keep(split.train, tested=False), keep(split.valid, tested=False)
    test = keep(split.test, tested=True)
    lost = sum(p.height for p in (split.train, split.valid, split.test))
    lost -= train.height + valid.height + test.height
    return TimeSplit(train, valid, test, {**split.dropped, "entity_in_other_fold": lost})
