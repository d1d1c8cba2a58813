"""`sacct --parsable2` output to `raw/job_log`: one row per job and per step, as accounted.

Other Slurm outputs have their own modules (`slurm.json_documents`, `slurm.queue`, ...), and
attempts of a requeued job are told apart in `features`.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.contracts import UTC_TIME
from features.errors import SourceError
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources.local_time import zone_of
from pipelines.sources.result import ReadTally, SourceResult, merge
from pipelines.sources.slurm.field_values import PADDING
from pipelines.sources.slurm.sacct_fast import read_chunk
from pipelines.sources.slurm.sacct_form import SacctForm
from pipelines.sources.slurm.sacct_plain import decode_line
from pipelines.sources.slurm.sacct_records import Layout, check_columns, header_layout

SOURCE: Final = "sacct"

CHUNK_BYTES: Final = 32 * 1024 * 1024
"""Bytes read at a time: about 250,000 records."""

LONGEST_LINE: Final = 256 * 1024 * 1024
"""No record is so long: a file with such a line is none of sacct's."""

_NEWLINE: Final = 10
_SEARCHED: Final = 65_536  # bytes at the end that nearly always hold a line's end
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def stream_sacct(
    path: Path,
    *,
    time_zone: str | None,
    ingested_at: datetime,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[SourceResult]:
    """Reads saved accounting output piece by piece.

    Args:
        path: The file.
        time_zone: Zone of slurmdbd's clock; sacct prints no offset. None: not known, which is an
            error as soon as a time without an offset is met.
        ingested_at: When it is read, UTC.
        delimiter: What stands between fields; None: as the header tells (`|` without header).
        columns: Column names of output without a header (`--noheader`).
        chunk_bytes: Bytes read at a time; the rows do not depend on it.

    Yields:
        `raw/job_log` in file order, each part with its own account.

    Raises:
        SourceError: The file cannot be read or is no output of sacct, there is no such time zone,
            or a time is ambiguous for want of one.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            seekable: BinaryIO = file if file.seekable() and size else BytesIO(file.read())
            yield from _stream(
                seekable,
                origin=str(path),
                chunk_bytes=min(chunk_bytes, size + 1) if size else chunk_bytes,
                time_zone=time_zone,
                ingested_at=ingested_at,
                delimiter=delimiter,
                columns=columns,
            )
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}. Check that it exists, is a "
            f"file, and that this user may read it."
        ) from error


def parse_sacct(
    data: bytes | str,
    *,
    origin: str,
    time_zone: str | None,
    ingested_at: datetime,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> SourceResult:
    """Reads accounting output.

    Args:
        data: The text; bytes that are not UTF-8 become U+FFFD.
        origin: File or address, for quarantine and counts.
        time_zone: See `stream_sacct`.
        ingested_at: When it is read, UTC.
        delimiter: See `stream_sacct`.
        columns: See `stream_sacct`.
        chunk_bytes: See `stream_sacct`.

    Returns:
        `raw/job_log`. A record with a delimiter or line break inside a field is repaired where
        only one reading makes sense, else quarantined.

    Raises:
        SourceError: There is no such time zone, column JobID or State is missing, or a time is
            ambiguous for want of a zone.
    """
    return merge(
        parse_sacct_parts(
            data.encode("utf-8", errors="replace") if isinstance(data, str) else data,
            origin=origin,
            time_zone=time_zone,
            ingested_at=ingested_at,
            delimiter=delimiter,
            columns=columns,
            chunk_bytes=chunk_bytes,
        )
    )


def parse_sacct_parts(
    data: bytes,
    *,
    origin: str,
    time_zone: str | None,
    ingested_at: datetime,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[SourceResult]:
    """Reads accounting output piece by piece.

    Args:
        data: The text.
        origin: See `parse_sacct`.
        time_zone: See `stream_sacct`.
        ingested_at: When it is read, UTC.
        delimiter: See `stream_sacct`.
        columns: See `stream_sacct`.
        chunk_bytes: See `stream_sacct`.

    Yields:
        `raw/job_log` in order, each part with its own account.

    Raises:
        SourceError: See `parse_sacct`.
    """
    yield from _stream(
        BytesIO(data),
        origin=origin,
        chunk_bytes=min(chunk_bytes, len(data) + 1),
        time_zone=time_zone,
        ingested_at=ingested_at,
        delimiter=delimiter,
        columns=columns,
    )


class _Text:
    """Text that is read from any place on, as arrays with room for whole words at the end."""

    def __init__(self, file: BinaryIO, *, origin: str, chunk_bytes: int) -> None:
        self._file = file
        self._origin = origin
        self._chunk_bytes = chunk_bytes
        self._room = np.empty(0, np.uint8)
        self.at = 0

    def lines(self, wish: int) -> tuple[npt.NDArray[np.uint8], bool]:
        """Whole lines from `at` on, about `wish` bytes of them, and whether more follow.

        The lines given before are void: their memory is used again.
        """
        while True:
            if self._room.size < wish + PADDING:
                self._room = np.empty(wish + PADDING, np.uint8)
            buffer = self._room
            self._file.seek(self.at)
            size = _fill(self._file, buffer.data[:wish])
            if size < wish:
                return buffer[: size + PADDING], False
            ends = np.flatnonzero(buffer[max(0, size - _SEARCHED) : size] == _NEWLINE)
            if not ends.size and size > _SEARCHED:
                ends = np.flatnonzero(buffer[:size] == _NEWLINE) - (size - _SEARCHED)
            if ends.size:
                end = int(max(0, size - _SEARCHED) + ends[-1]) + 1
                return buffer[: end + PADDING], True
            wish = self.longer(wish)

    def longer(self, wish: int) -> int:
        """More bytes to read, where `wish` did not hold one whole record."""
        if wish > LONGEST_LINE:
            raise SourceError(
                f"{self._origin}: a line or record has more than {LONGEST_LINE} bytes; this is no "
                f"output of sacct --parsable2. Check which file this is."
            )
        return wish * 2


def _fill(file: BinaryIO, view: memoryview) -> int:
    """Reads until the view is full or the file ends."""
    n_read = 0
    while n_read < len(view) and (got := file.readinto(view[n_read:])):  # type: ignore[attr-defined]
        n_read += got
    return n_read


def _stream(
    file: BinaryIO,
    *,
    origin: str,
    chunk_bytes: int,
    time_zone: str | None,
    ingested_at: datetime,
    delimiter: str | None,
    columns: Sequence[str] | None,
) -> Iterator[SourceResult]:
    zone = zone_of(time_zone, origin=origin) if time_zone is not None else None
    text = _Text(file, origin=origin, chunk_bytes=chunk_bytes)
    tally = ReadTally(table=RAW_JOB_LOG.asset_key, source=SOURCE, origin=origin)
    if file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK:
        text.at = len(_BYTE_ORDER_MARK)
    if columns is not None:
        check_columns(columns, origin=origin)
        form = SacctForm(Layout(tuple(columns), delimiter or "|"), None, zone, origin)
    else:
        header = _past_header(file, text, tally)
        layout = header_layout(header, origin=origin, delimiter=delimiter)
        form = SacctForm(layout, header, zone, origin)
    wish, more_follows = chunk_bytes, True
    while more_follows:
        buffer, more_follows = text.lines(wish)
        chunk = read_chunk(buffer, form, tally, more_follows=more_follows)
        yield from _results(chunk.frames, tally, ingested_at)
        text.at += chunk.n_used
        wish = chunk_bytes if chunk.n_used else text.longer(wish)
        tally = ReadTally(table=RAW_JOB_LOG.asset_key, source=SOURCE, origin=origin)


def _past_header(file: BinaryIO, text: _Text, tally: ReadTally) -> str:
    """Skips to the first line that is neither blank nor a comment, and gives it."""
    file.seek(text.at)
    while data := file.readline(LONGEST_LINE):
        tally.read()
        tally.skipped()
        line = decode_line(data)
        if line.strip() and not line.startswith("#"):
            text.at = file.tell()
            return line
    return ""


def _results(
    frames: Iterator[pl.DataFrame], tally: ReadTally, ingested_at: datetime
) -> Iterator[SourceResult]:
    """One result per frame; the account of all comes with the first."""
    for at, frame in enumerate(frames):
        stamped = frame.with_columns(
            pl.lit(SOURCE).alias("source"), pl.lit(ingested_at, UTC_TIME).alias("ingested_at")
        ).select(RAW_JOB_LOG.schema.names())
        tables = {RAW_JOB_LOG.asset_key: stamped}
        yield SourceResult(tables) if at else tally.result(tables)
