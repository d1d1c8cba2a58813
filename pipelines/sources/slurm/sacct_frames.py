"""Frames of `raw/job_log` from the fields of plain lines, with the other rows where they belong.

How fields are read is in `slurm.sacct_plain`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from features.contracts import UTC_TIME
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources.slurm import field_values as values
from pipelines.sources.slurm.sacct_form import MOST_NODES, Meaning
from pipelines.sources.slurm.sacct_plain import TEXTS, SacctFields
from pipelines.sources.slurm.sacct_rows import TIME_COLUMNS

_FEW_ROWS: Final = 100


def rows_in_order(
    fields: SacctFields, plain: npt.NDArray[np.int64], odd: Sequence[tuple[int, dict[str, Any]]]
) -> Iterator[pl.DataFrame]:
    """Frames of all rows in file order, none with more than `MOST_NODES` node names.

    Args:
        fields: The fields of the lines.
        plain: Numbers of the plain lines.
        odd: Line and row of each other record.

    Yields:
        Rows of `raw/job_log` without source and ingested_at; at least one frame.
    """
    schema = {name: dtype for name, dtype in RAW_JOB_LOG.schema.items() if name in _ROW}
    head = _plain_frame(fields, plain)
    columns = {name: [row[name] for _, row in odd] for name in schema}
    careful = pl.DataFrame(columns, schema=schema)
    for part, hosts in _parts(fields, plain):
        low, high = part.start, part.stop
        frame = head.slice(low, high - low).with_columns(hosts).select(list(schema))
        if odd:
            first = plain[low] if low else -1
            last = plain[high] if high < plain.size else fields.n_lines
            here = [i for i, (at, _) in enumerate(odd) if first <= at < last]
            frame = _woven(frame, plain[low:high], careful[here], [odd[i][0] for i in here])
        yield frame


def _woven(
    frame: pl.DataFrame, lines: values.Longs, odd: pl.DataFrame, odd_lines: Sequence[int]
) -> pl.DataFrame:
    """Puts the odd rows where their lines stand among those of the frame.

    A few are put in between slices, which copies nothing; many are sorted in.
    """
    if len(odd_lines) > _FEW_ROWS:
        both = pl.concat([frame, odd])
        return both[np.argsort(np.concatenate([lines, odd_lines]), kind="stable")]
    cuts = np.searchsorted(lines, odd_lines).tolist()
    pieces, at = [], 0
    for row, cut in enumerate(cuts):
        pieces += [frame.slice(at, cut - at), odd.slice(row, 1)]
        at = cut
    return pl.concat([*pieces, frame.slice(at)], rechunk=False)


_ROW: Final = frozenset(set(RAW_JOB_LOG.schema) - {"source", "ingested_at"})


def _parts(fields: SacctFields, plain: npt.NDArray[np.int64]) -> Iterator[tuple[slice, pl.Series]]:
    """Slices of the plain rows with their nodes, each of at most `MOST_NODES` names (or a row)."""
    dtype = pl.List(pl.String)
    if fields.hosts is None:
        yield slice(0, plain.size), pl.Series("nodes", [None] * plain.size, dtype)
        return
    numbers, said = fields.hosts
    numbers = numbers[plain]
    sizes = np.array([size or 0 for _, size in said], np.int64)
    totals = np.cumsum(sizes[numbers]) if plain.size else np.zeros(1, np.int64)
    low = 0
    while True:
        before = totals[low - 1] if low else 0
        high = plain.size
        if totals[-1] - before > MOST_NODES:
            high = max(low + 1, int(np.searchsorted(totals, before + MOST_NODES, side="right")))
        wanted, places = _met(numbers[low:high], len(said))
        words = [said[i][0] for i in wanted]
        lists = [None if word is None else fields.host_lists.names(word) for word in words]
        yield slice(low, high), pl.Series("nodes", lists, pl.String).str.split(",")[places]
        low = high
        if low >= plain.size:
            return


def _met(numbers: values.Ints, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The distinct ones of numbers below `count`, and the place of each number among them."""
    is_met = np.zeros(count, np.bool_)
    is_met[numbers] = True
    return np.flatnonzero(is_met), (np.cumsum(is_met) - 1)[numbers]


def _plain_frame(fields: SacctFields, plain: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Everything but the nodes."""
    series = {"job_id": _text(fields, "job", plain), "step": _text(fields, "step", plain)}
    for name, column in zip(TEXTS, ("job_name", "user", "partition"), strict=True):
        known = _text(fields, name, plain) if fields.has(name) else None
        series[column] = _nulls(plain.size, pl.String()) if known is None else known
    series["state"] = _said(fields.states, plain, place=0, dtype=pl.String())
    series["exit_code"] = _said(fields.exits, plain, place=0, dtype=pl.Int32())
    series["exit_signal"] = _said(fields.exits, plain, place=1, dtype=pl.Int32())
    series["n_gpus"] = _said(fields.gpus, plain, place=0, dtype=pl.Int32())
    for name, column in zip(TIME_COLUMNS, ("submit", "start", "end"), strict=True):
        series[column] = _moments(fields.times[name], plain)
    frame = pl.DataFrame(series)
    return frame.with_columns(pl.coalesce("submit", "start", "end").alias("filed_at"))


def _nulls(count: int, dtype: pl.DataType) -> pl.Series:
    return pl.repeat(None, count, dtype=dtype, eager=True)


def _text(fields: SacctFields, name: str, plain: npt.NDArray[np.int64]) -> pl.Series:
    """Fields as text; an empty one is null."""
    texts = fields.texts[name]
    is_known = np.packbits(fields.text_lengths(name)[plain] > 0, bitorder="little")
    views = texts.views if plain.size == fields.n_lines else texts.views[plain]
    buffers = [pa.py_buffer(is_known), pa.py_buffer(views), pa.py_buffer(texts.held)]
    return pl.Series(pa.Array.from_buffers(pa.string_view(), plain.size, buffers), dtype=pl.String)


def _said(
    said_by: tuple[values.Ints, list[Meaning]] | None,
    plain: npt.NDArray[np.int64],
    *,
    place: int,
    dtype: pl.DataType,
) -> pl.Series:
    """What the distinct values say, for each line."""
    if said_by is None:
        return _nulls(plain.size, dtype)
    numbers, said = said_by
    return pl.Series([words[place] for words in said], dtype=dtype)[numbers[plain]]


def _moments(
    times: tuple[values.Longs, values.Flags] | None, plain: npt.NDArray[np.int64]
) -> pl.Series:
    if times is None:
        return _nulls(plain.size, UTC_TIME)
    micros, is_known = times[0][plain], times[1][plain]
    series = pl.Series(micros).cast(UTC_TIME)
    if is_known.all():
        return series
    return series.to_frame("at").select(pl.when(pl.Series(is_known)).then("at"))["at"]
