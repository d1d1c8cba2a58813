"""A trace of real jobs, as the scheduling and the replay simulations take it: checked once, here.

Reading its file is in `pipelines.studies.given_files`; what becomes of the jobs is the
simulations'.
"""

from typing import Final

import polars as pl

from features.errors import DataError

TRACE_COLUMNS: Final = ("timestamp", "duration", "num_gpus")
"""Submit time, seconds it ran, GPUs; further columns are ignored."""
LONGEST_S: Final = 10 * 365 * 86_400.0
"""A longer duration is a mistake, and would overflow microseconds."""


def usable_jobs(trace: pl.DataFrame, *, origin: str = "job trace") -> pl.DataFrame:
    """The jobs that ran, in one form.

    Args:
        trace: Rows with `TRACE_COLUMNS`.
        origin: What messages call it: the file.

    Returns:
        `timestamp` without zone, `duration` in seconds, `num_gpus` whole, all above 0; rows
        without one of them are left out.

    Raises:
        DataError: A column is absent or of another kind, a value cannot be, or no job is left.
    """
    missing = [name for name in TRACE_COLUMNS if name not in trace.columns]
    if missing:
        raise DataError(
            f"{origin}: expected columns {', '.join(TRACE_COLUMNS)}, got "
            f"{', '.join(trace.columns)}; missing {', '.join(missing)}"
        )
    rows = trace.select(TRACE_COLUMNS).drop_nulls()
    if not rows.is_empty():
        _check_values(rows, origin)
        rows = rows.filter(pl.col("duration") > 0, pl.col("num_gpus") > 0)
    if rows.is_empty():
        raise DataError(
            f"{origin}: none of {trace.height:,} rows has a time, and duration and GPUs above 0"
        )
    return rows.with_columns(
        pl.col("timestamp").cast(pl.Datetime("us")),
        pl.col("duration").cast(pl.Float64),
        pl.col("num_gpus").cast(pl.Int64),
    )


def _check_values(rows: pl.DataFrame, origin: str) -> None:
    for name in TRACE_COLUMNS:
        kind = rows.schema[name]
        wanted = "times" if name == "timestamp" else "numbers"
        is_time = kind.base_type() in (pl.Date, pl.Datetime)
        if not (is_time if wanted == "times" else kind.is_numeric()):
            raise DataError(
                f"{origin}: column {name}: expected {wanted}, got {kind}, for example "
                f"{rows[name][0]!r}"
            )
    rules = {
        "duration": ("at most 10 years in seconds", pl.col("duration") > LONGEST_S),
        "num_gpus": ("whole numbers", pl.col("num_gpus") != pl.col("num_gpus").round()),
    }
    for name, (wanted, is_wrong) in rules.items():
        wrong = rows.filter(is_wrong | ~pl.col(name).cast(pl.Float64).is_finite())
        if not wrong.is_empty():
            raise DataError(
                f"{origin}: column {name}: expected {wanted}, got {wrong.height:,} other values, "
                f"for example {wrong[name][0]}; take these rows out"
            )
