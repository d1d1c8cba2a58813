"""Files that a command is given by name: traces and tables read, places for results checked.

The first and last step of a command, so that a wrong name costs a second and not the hour between.
Nothing is worked out here.
"""

import tempfile
from io import BytesIO
from pathlib import Path

import polars as pl
from polars.exceptions import PolarsError

from features.errors import SettingsError, SourceError
from pipelines.sources.files import read_bytes
from simulation.job_trace import TRACE_COLUMNS, usable_jobs


def read_job_trace(path: Path) -> pl.DataFrame:
    """Reads a CSV of real jobs.

    Args:
        path: CSV with a header, see `simulation.job_trace.TRACE_COLUMNS`.

    Returns:
        Rows of `simulation.job_trace.usable_jobs`.

    Raises:
        SourceError: It cannot be read, or is no such CSV.
        DataError: Columns are absent, or values wrong.
    """
    kinds = dict.fromkeys(TRACE_COLUMNS[1:], pl.Float64)
    try:
        frame = pl.read_csv(read_bytes(path), try_parse_dates=True, schema_overrides=kinds)
    except (PolarsError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{path}: expected a CSV file with the columns {', '.join(TRACE_COLUMNS)}; "
            f"{_first_line(error)}"
        ) from error
    return usable_jobs(frame, origin=str(path))


def read_parquet(path: Path) -> pl.DataFrame:
    """Reads a Parquet file.

    Args:
        path: The file.

    Raises:
        SourceError: It cannot be read.
    """
    try:
        return pl.read_parquet(BytesIO(read_bytes(path)))
    except PolarsError as error:
        raise SourceError(f"{path} cannot be read as Parquet: {_first_line(error)}") from error


def check_places(*places: Path | None) -> None:
    """Refuses files that could not be written, before the work whose result they are for.

    Args:
        places: Files to write later; None: none. Their folders are made then.

    Raises:
        SettingsError: One is a folder, or nothing can be written where it is to be.
    """
    for place in places:
        if place is None:
            continue
        if place.is_dir():
            raise SettingsError(f"{place} is a folder; name a file to write")
        folder = place.absolute().parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        try:
            # Permissions do not tell of full disks and read-only mounts; trying does.
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise SettingsError(
                f"{place} cannot be written: {folder}: {error.strerror or error}. Name a file in "
                "a folder that this user may write to"
            ) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
