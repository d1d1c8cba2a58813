"""Turns a file's times into UTC: ISO 8601, a given format, seconds since 1970, or native times.

Which column holds a time is not known here.
"""

from dataclasses import dataclass
from typing import Final

import polars as pl

from features.contracts import UTC_TIME
from features.errors import SourceError
from pipelines.sources.history.mapping import FileFormat

_EPOCH_TICKS: Final = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
_FIRST_S: Final = -62_135_596_800.0  # year 1
_LAST_S: Final = 253_402_300_800.0  # year 10000
_ISO: Final = (
    r"^(?P<date>\d{4}-\d{2}-\d{2})(?:[T ](?P<time>\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?))?"
    r"\s?(?P<offset>Z|z|[+-]\d{2}(?::?\d{2})?)?$"
)


@dataclass(frozen=True)
class Times:
    """Times as UTC, and why the others are none.

    Attributes:
        utc: Times, null where there was none or it was refused.
        refused: Per row the rule it broke, null where it broke none.
    """

    utc: pl.Series
    refused: pl.Series


def to_utc(values: pl.Series, file: FileFormat, *, where: str) -> Times:
    """Reads times.

    Args:
        values: Text, numbers, dates or times; null: no time.
        file: Time zone and format.
        where: File and column, for messages.

    Returns:
        The times and the rules broken.

    Raises:
        SourceError: Times carry no offset and the mapping gives no zone, or the column's type
            holds no times.
    """
    if isinstance(values.dtype, pl.Datetime):
        if values.dtype.time_zone is not None:
            utc = values.dt.convert_time_zone("UTC").cast(UTC_TIME)
            return Times(utc, pl.repeat(None, values.len(), dtype=pl.String, eager=True))
        return _from_wall_clock(values.cast(pl.Datetime("us")), file, where=where)
    if values.dtype == pl.Date:
        return _from_wall_clock(values.cast(pl.Datetime("us")), file, where=where)
    if file.time_format in _EPOCH_TICKS:
        return _from_epoch(values, _EPOCH_TICKS[file.time_format])
    if values.dtype == pl.Null:
        values = values.cast(pl.String)
    if values.dtype != pl.String:
        raise SourceError(
            f"{where}: {values.dtype} holds no times as they are. Say file.time_format: epoch_s, "
            f"epoch_ms or epoch_us in the mapping if they count from 1970."
        )
    if file.time_format is None:
        return _from_iso(values, file, where=where)
    return _from_format(values, file, where=where)


def _from_epoch(values: pl.Series, ticks: int) -> Times:
    numbers = values.cast(pl.Float64, strict=False)
    # Whole numbers keep all their digits; a float holds microseconds of today only just.
    whole = values.cast(pl.Int64, strict=False) * ticks
    micros = pl.select(
        pl.when(numbers == numbers.floor()).then(whole).otherwise((numbers * ticks).round())
    ).to_series()
    # Seconds that were said to be milliseconds, or the reverse: beyond the years that exist.
    seconds = numbers * (ticks / 1e6)
    is_possible = ((seconds > _FIRST_S) & (seconds < _LAST_S)).fill_null(value=False)
    micros = micros.cast(pl.Int64, strict=False).set(~is_possible, None)
    utc = micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return Times(utc, _refused_where(values, utc, rule="is no number of seconds since 1970"))


def _from_iso(values: pl.Series, file: FileFormat, *, where: str) -> Times:
    parts = values.str.extract_groups(_ISO).struct.unnest()
    clock = parts["time"].fill_null("00:00").str.replace(",", ".", literal=True)
    has_seconds = clock.str.len_chars() > len("00:00")
    clock = pl.select(pl.when(has_seconds).then(clock).otherwise(clock + ":00")).to_series()
    wall = (parts["date"] + " " + clock).str.to_datetime(
        "%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False
    )
    offset = parts["offset"].str.replace_all(":", "", literal=True).str.to_uppercase()
    refused = _refused_where(values, wall, rule="is no ISO 8601 time")
    if (offset.is_null() & wall.is_not_null()).any():
        local = _from_wall_clock(wall.set(offset.is_not_null(), None), file, where=where)
    else:
        local = Times(wall.clear(wall.len()).cast(UTC_TIME), refused.clear(wall.len()))
    hours = offset.str.slice(0, 3).cast(pl.Int64, strict=False)
    minutes = offset.str.slice(3, 2).cast(pl.Int64, strict=False).fill_null(0)
    sign = pl.select(pl.when(offset.str.starts_with("-")).then(-1).otherwise(1)).to_series()
    ahead = pl.select(
        pl.when(offset == "Z").then(0).otherwise(hours * 60 + sign * minutes)
    ).to_series()
    fixed = pl.select(
        wall.dt.replace_time_zone("UTC") - pl.duration(minutes=pl.lit(ahead))
    ).to_series()
    utc = pl.select(pl.coalesce(fixed, local.utc)).to_series()
    return Times(utc, pl.select(pl.coalesce(refused, local.refused)).to_series())


def _from_format(values: pl.Series, file: FileFormat, *, where: str) -> Times:
    form = str(file.time_format)
    rule = f"does not have the form {form}"
    if "%z" in form or "%:z" in form:
        utc = values.str.to_datetime(form, time_unit="us", time_zone="UTC", strict=False)
        return Times(utc, _refused_where(values, utc, rule=rule))
    wall = values.str.to_datetime(form, time_unit="us", strict=False)
    local = _from_wall_clock(wall, file, where=where)
    refused = _refused_where(values, wall, rule=rule)
    return Times(local.utc, pl.select(pl.coalesce(refused, local.refused)).to_series())


def _from_wall_clock(wall: pl.Series, file: FileFormat, *, where: str) -> Times:
    """Times without an offset: the mapping's zone says which moment each is, or that none is."""
    if wall.null_count() == wall.len():
        return Times(wall.cast(UTC_TIME), pl.repeat(None, wall.len(), dtype=pl.String, eager=True))
    if file.time_zone is None:
        raise SourceError(
            f"{where}: times carry no offset (such as {wall.drop_nulls()[0]}). "
            f"Say file.time_zone in the mapping, UTC or the site's zone."
        )
    zone = file.time_zone
    early = wall.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    late = wall.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null")
    refused = pl.select(
        pl.when(wall.is_not_null() & early.is_null())
        .then(pl.lit(f"does not exist in {zone}: the clock was put forward"))
        .when(early != late)
        .then(pl.lit(f"happened twice in {zone}: the clock was put back"))
    ).to_series()
    utc = early.dt.convert_time_zone("UTC").cast(UTC_TIME)
    return Times(utc.set(refused.is_not_null(), None), refused)


def _refused_where(values: pl.Series, parsed: pl.Series, *, rule: str) -> pl.Series:
    is_bad = values.is_not_null() & parsed.is_null()
    return pl.select(pl.when(is_bad).then(pl.lit(rule))).to_series()
