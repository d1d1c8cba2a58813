"""Frames as Parquet files: put in place in one step, read in one go.

Which files a table has is known to `pipelines.storage.store`.
"""

import io
from collections.abc import Sequence
from typing import Final

import polars as pl
from polars.exceptions import PolarsError

from features.errors import DataError
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.object_paths import Place, read_all

GENERATION: Final = "forewarn.generation"
"""Metadata of a file: number of the latest reading in the landing that its rows rest on."""


def write_table(
    path: Place, frame: pl.DataFrame, *, sync: bool = False, generation: int | None = None
) -> None:
    """Puts a frame at `path` as Parquet, in one step.

    Args:
        path: Final place.
        frame: The rows.
        sync: As in `replace_file`.
        generation: Kept in the file's metadata.
    """
    buffer = io.BytesIO()
    metadata = None if generation is None else {GENERATION: str(generation)}
    frame.write_parquet(buffer, compression="zstd", metadata=metadata)
    replace_file(path, buffer.getvalue(), sync=sync)


def read_files(paths: Sequence[Place]) -> pl.DataFrame:
    """All files at once, which takes half the time; one by one where they do not fit together.

    Each is read in one go: Polars opens a path more than once, and it may be replaced in between.

    Raises:
        DataError: One is damaged.
        FileNotFoundError: One is not there any more.
    """
    try:
        return pl.read_parquet(read_all(paths))
    except (PolarsError, OSError):
        return pl.concat([read_file(path) for path in paths], how="diagonal")


def read_file(path: Place) -> pl.DataFrame:
    """One file; raises as `read_files`."""
    try:
        return pl.read_parquet(path.read_bytes())
    except FileNotFoundError:
        raise
    except (PolarsError, OSError) as error:
        raise DataError(
            f"{path} cannot be read: {str(error).splitlines()[0]}. Materialise its partition again."
        ) from error
