"""Lines of `sacct --parsable2` to rows: the plain ones in bulk, the others by the careful reader.

How a record is cut and read when it is not plain is in `slurm.sacct_records` and
`slurm.sacct_rows`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.sources.result import ReadTally
from pipelines.sources.slurm import field_values as values
from pipelines.sources.slurm.fields import RefusedError
from pipelines.sources.slurm.sacct_form import SacctForm
from pipelines.sources.slurm.sacct_frames import rows_in_order
from pipelines.sources.slurm.sacct_plain import SacctFields
from pipelines.sources.slurm.sacct_records import cut_records
from pipelines.sources.slurm.sacct_rows import careful_row, is_valid


@dataclass(frozen=True)
class Chunk:
    """What lines gave.

    Attributes:
        frames: Rows of `raw/job_log` without source and ingested_at, in file order.
        n_used: Bytes that they are made of: the last record may go on in bytes not here yet.
    """

    frames: Iterator[pl.DataFrame]
    n_used: int


def read_chunk(
    buffer: values.Bytes, form: SacctForm, tally: ReadTally, *, more_follows: bool
) -> Chunk:
    """Reads whole lines.

    Args:
        buffer: (n + PADDING,) the lines, after the header, and room for whole words at the end.
        form: How they are read.
        tally: Told what became of each line that is used.
        more_follows: Whether more lines will come.

    Returns:
        Rows, in order, and how many bytes are used.

    Raises:
        SourceError: A time is local and the zone is not known.
    """
    fields = SacctFields(buffer, form)
    if form.layout.may_trail and fields.n_lines:
        # What follows a line may be the rest of its last field.
        fields.is_plain[:-1] &= fields.is_plain[1:]
        fields.is_plain[-1] &= not more_follows
    plain = np.flatnonzero(fields.is_plain)
    odd = np.flatnonzero(~fields.is_plain)
    tally.read(plain.size)
    tally.parsed(plain.size)
    rows, rest_from = _odd_rows(fields, odd, form, tally, more_follows=more_follows)
    return Chunk(rows_in_order(fields, plain, rows), int(fields.bounds[rest_from]))


def _odd_rows(
    fields: SacctFields,
    odd: npt.NDArray[np.int64],
    form: SacctForm,
    tally: ReadTally,
    *,
    more_follows: bool,
) -> tuple[list[tuple[int, dict[str, Any]]], int]:
    """Reads the lines that are not plain, run by run.

    A plain line ends a run: it is a whole record, which no torn record before it may swallow.

    Returns:
        Line and row of each record; the line from which on nothing was decided.
    """
    rows: list[tuple[int, dict[str, Any]]] = []
    for run in _runs(odd):
        may_go_on = more_follows and run[-1] == fields.n_lines - 1
        lines = [(int(at), fields.line(at)) for at in run]
        body = [(at, line) for at, line in lines if line.strip() and line != form.header]
        texts = [line for _, line in body]
        done = 0
        for record in cut_records(texts, form.layout, is_valid=is_valid, more_follows=may_go_on):
            try:
                rows.append((body[done][0], careful_row(record, form.zone)))
                tally.parsed(record.n_lines)
            except RefusedError as refused:
                tally.quarantined(str(refused), record.text, count=record.n_lines)
            done += record.n_lines
        rest_from = body[done][0] if done < len(body) else fields.n_lines
        n_decided = sum(at < rest_from for at, _ in lines)
        tally.read(n_decided)
        tally.skipped(n_decided - done)
        if rest_from < fields.n_lines:
            return rows, rest_from
    return rows, fields.n_lines


def _runs(odd: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Cuts line numbers where one is missing between them."""
    if odd.size:
        cuts = np.flatnonzero(np.diff(odd) > 1) + 1
        yield from np.split(odd, cuts)
