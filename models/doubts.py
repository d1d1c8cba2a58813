"""Why a score is not to be trusted: stale, missing or unusual inputs, in words and as a cause.

Scores are made in `models.scoring`, which says unknown wherever there is a doubt.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.errors import DataError
from models.calibration import FloatArray
from models.failure_model import Values
from models.reasons import UsualValues

_NO_SAMPLE: Final = "no telemetry sample was seen"
_STALE: Final = "newest sample is {} min old"
_MISSING: Final = "{} % of the telemetry features are missing"
_OUTSIDE: Final = "{} % of the features are far outside what the model was trained on"
FAILED_INPUT: Final = "inputs could not be read: "
FAILED_MODEL: Final = "the model cannot score: "
UNUSUAL_SPREADS: Final = 10.0
"""Beyond so many spreads (10 % to 90 % point in training) a value is far outside."""

_MOST_LOOKED_AT: Final = 64
"""Features of a model that are looked at: a foreign fleet shows in any few dozen of them."""

_CAUSES: Final[tuple[tuple[str, str], ...]] = (
    # The causes of a failure first: its text may hold anything.
    (FAILED_INPUT, "failed_input"),
    (FAILED_MODEL, "failed_model"),
    (_NO_SAMPLE, "no_samples"),
    ("newest sample is ", "stale"),
    (" of the telemetry features are missing", "missing_inputs"),
    (" far outside what the model was trained on", "out_of_distribution"),
)
CAUSES: Final = (*(cause for _, cause in _CAUSES), "other")
"""What makes a score unknown; one word each, for counts."""


def doubt(
    matrix: pl.DataFrame,
    *,
    missing: FloatArray,
    outside: FloatArray,
    max_missing_share: float,
    max_outside_share: float,
    sample_age: str | None,
    max_sample_age: timedelta,
    failed: Mapping[str, str] | None = None,
) -> pl.Series:
    """Why each row's score is not to be trusted; null where it is.

    Args:
        matrix: features/gpu_matrix.
        missing: Share of telemetry features that are null, shape (rows,).
        outside: From `outside_share`, shape (rows,).
        max_missing_share: From there on a row is doubted.
        max_outside_share: From there on a row is doubted.
        sample_age: Column with the age of the newest sample, hours; None: not checked.
        max_sample_age: Oldest newest sample.
        failed: Entities whose inputs could not be read, with the cause.

    Returns:
        Text, shape (rows,).

    Raises:
        DataError: The column of the sample age is missing.
    """
    checks: list[tuple[pl.Expr, pl.Expr]] = []
    if failed:
        named = pl.col("entity_id").replace_strict(dict(failed), default=None)
        checks.append((named.is_not_null(), pl.format(FAILED_INPUT + "{}", named)))
    if sample_age is not None:
        if sample_age not in matrix.columns:
            raise DataError(
                f"score limits: column {sample_age!r} (sample age) is missing in the "
                f"matrix. Name a feature of the matrix, or None for sites without telemetry."
            )
        age = pl.col(sample_age).cast(pl.Float64)
        minutes = (age * 60.0).round(0).cast(pl.Int64)
        checks.append((age.is_null(), pl.lit(_NO_SAMPLE)))
        checks.append((age > max_sample_age / timedelta(hours=1), pl.format(_STALE, minutes)))
    for share, most, words in (
        (missing, max_missing_share, _MISSING),
        (outside, max_outside_share, _OUTSIDE),
    ):
        value = pl.lit(pl.Series(share, dtype=pl.Float64))
        percent = (value * 100.0).round(0).cast(pl.Int64)
        checks.append((value > most, pl.format(words, percent)))
    found = pl.coalesce(*(pl.when(is_doubted).then(words) for is_doubted, words in checks))
    return matrix.select(found.alias("doubt")).to_series()


def outside_share(values: Values, names: Sequence[str], usual: UsualValues) -> FloatArray:
    """Share of a row's features that lie far outside what they were in training.

    At most 64 features are looked at, spread evenly over the model's.

    A feature that hardly ever moved in training (its 10 % and 90 % points are the same, as with
    error counts) takes no part: one error is news to the model, not a foreign fleet. A share of
    many features means that units, sensors or the kind of machine are others, and that the model
    has never seen the like.

    Args:
        values: Features, shape (rows, features), NaN where unknown.
        names: Their names.
        usual: What they were in training.

    Returns:
        Shape (rows,); 0 for a model without such features.
    """
    moving = [
        (position, usual.low[name], usual.high[name])
        for position, name in enumerate(names)
        if usual.high.get(name, 0.0) > usual.low.get(name, 0.0)
    ]
    looked_at = moving[:: -(-len(moving) // _MOST_LOOKED_AT) or 1]
    count = np.zeros(values.shape[0], dtype=np.uint16)
    for position, low, high in looked_at:
        reach = UNUSUAL_SPREADS * (high - low)
        column = values[:, position]
        count += (column < np.float32(low - reach)) | (column > np.float32(high + reach))
    return np.asarray(count / max(1, len(looked_at)), dtype=np.float64)


def cause_of(status_reason: str = "status_reason") -> pl.Expr:
    """The cause of an unknown score, one of `CAUSES`; null where it has no reason.

    Args:
        status_reason: The column with the words, of GPUs or nodes.
    """
    text = pl.col(status_reason)
    known = pl.coalesce(
        *(
            pl.when(text.str.contains(words, literal=True)).then(pl.lit(cause))
            for words, cause in _CAUSES
        ),
        pl.lit("other"),
    )
    return pl.when(text.is_not_null()).then(known)
