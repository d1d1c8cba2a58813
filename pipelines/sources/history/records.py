"""Reads the records of a CSV or Parquet file, and counts those that cannot be understood at all.

What the columns mean is decided in `pipelines.sources.history.tables`.
"""

import csv
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import SourceError
from pipelines.sources.history.mapping import FileFormat

_UNDECODED: Final = "\ufffd"


@dataclass
class Refusals:
    """Records that were refused, by table and rule, while a file is being read.

    Attributes:
        n_records: Records in the file.
        counts: (table, rule) -> count.
        examples: (table, rule) -> the first such record.
        is_refused: Per record, whether any table refused it.
    """

    n_records: int
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    is_refused: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.is_refused = np.zeros(self.n_records, dtype=bool)

    def add(self, table: str, rule: str, *, rows: pl.DataFrame) -> None:
        """Counts rows of one record each; `rows` has `record` and what to show as an example."""
        if rows.is_empty():
            return
        key = (table, rule)
        self.counts[key] = self.counts.get(key, 0) + rows.height
        if key not in self.examples:
            shown = rows.drop("record").row(0, named=True)
            self.examples[key] = str({k: str(v) for k, v in shown.items() if v is not None})
        self.is_refused[rows["record"].to_numpy()] = True


@dataclass(frozen=True)
class Records:
    """The records of one file.

    Attributes:
        frame: `record` (position in the file) and the wanted columns, blanks as null.
        n_skipped: Blank lines, which are no records but are counted as read.
        refusals: Records that could not be understood.
    """

    frame: pl.DataFrame
    n_skipped: int
    refusals: Refusals


def read_records(
    path: Path, file: FileFormat, *, wanted: Mapping[str, str], mapping: str, tables: str
) -> Records:
    """Reads the wanted columns of a file.

    Args:
        path: A CSV or Parquet file.
        file: How it is written.
        wanted: File column -> what it is wanted for.
        mapping: Name of the mapping file, for messages.
        tables: Names of the tables drawn from it, for refusals of whole records.

    Returns:
        The records; CSV values are text, Parquet values keep their type.

    Raises:
        SourceError: The file is absent, unreadable or empty, or a column is missing.
    """
    if not path.is_file():
        raise SourceError(f"{path}: no such file. Correct the path in the list of inputs.")
    if file.format == "csv":
        records = _read_csv(path, file, wanted=wanted, mapping=mapping, tables=tables)
    else:
        records = _read_parquet(path, wanted=wanted, mapping=mapping)
    return Records(_with_nulls(records.frame, file), records.n_skipped, records.refusals)


def _read_csv(
    path: Path, file: FileFormat, *, wanted: Mapping[str, str], mapping: str, tables: str
) -> Records:
    # The lines keep their ends: a quoted field may hold some.
    rows = csv.reader(
        _text(path).splitlines(keepends=True),
        delimiter=file.delimiter,
        # A quote that never closes would swallow the rest of the file into one field.
        strict=True,
        quotechar=file.quote,
        quoting=csv.QUOTE_MINIMAL if file.quote is not None else csv.QUOTE_NONE,
    )
    try:
        header = [name.strip() for name in next(rows, [])]
        body = list(rows)
    except csv.Error as error:
        raise SourceError(
            f"{path}, line {rows.line_num}: {error}. Check file.delimiter and file.quote in "
            f"{mapping}."
        ) from error
    if not header:
        raise SourceError(f"{path} is empty: it has no header line. Give the file with its header.")
    _check_columns(path, header, wanted=wanted, mapping=mapping)
    full = [row for row in body if row]
    refusals = Refusals(len(full))
    width = len(header)
    good = [i for i, row in enumerate(full) if len(row) == width]
    if len(good) < len(full):
        bad = [(i, file.delimiter.join(row)) for i, row in enumerate(full) if len(row) != width]
        shown = pl.DataFrame(bad, schema={"record": pl.Int64, "line": pl.String}, orient="row")
        refusals.add(tables, f"number of fields is not {width}", rows=shown)
    columns = {
        name: pl.Series(name, [full[i][header.index(name)] for i in good], dtype=pl.String)
        for name in wanted
    }
    frame = pl.DataFrame({"record": pl.Series(good, dtype=pl.Int64), **columns})
    undecoded = pl.any_horizontal(pl.col(*wanted).str.contains(_UNDECODED, literal=True))
    refusals.add(tables, "text is not UTF-8", rows=frame.filter(undecoded))
    return Records(frame.filter(~undecoded), len(body) - len(full), refusals)


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise SourceError(f"{path} is UTF-16. Save it as UTF-8 and read it again.")
    return content.decode("utf-8-sig", errors="replace")


def _read_parquet(path: Path, *, wanted: Mapping[str, str], mapping: str) -> Records:
    try:
        schema = pl.read_parquet_schema(path)
        _check_columns(path, list(schema), wanted=wanted, mapping=mapping)
        frame = pl.read_parquet(path, columns=list(wanted))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise SourceError(
            f"{path} cannot be read as Parquet: {error}. Correct file.format in {mapping}, or "
            f"give a whole file."
        ) from error
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    if nested:
        raise SourceError(
            f"{path}: column {nested[0]!r} is {frame.schema[nested[0]]}, expected plain values. "
            f"Write one value per row, or map another column in {mapping}."
        )
    record = pl.int_range(frame.height, dtype=pl.Int64, eager=True).alias("record")
    return Records(frame.select(record, pl.all()), 0, Refusals(frame.height))


def _check_columns(
    path: Path, found: list[str], *, wanted: Mapping[str, str], mapping: str
) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        name = missing[0]
        near = difflib.get_close_matches(name, found, n=3, cutoff=0.5)
        folded = [other for other in found if other.casefold() == name.casefold()]
        hint = f" Did you mean {' or '.join(map(repr, folded or near))}?" if near or folded else ""
        others = f" ({len(missing)} missing: {', '.join(missing)})" if len(missing) > 1 else ""
        raise SourceError(
            f"{path}: column {name!r} (for {wanted[name]}) is missing{others}. "
            f"Found: {', '.join(map(repr, found))}.{hint} Correct the name in {mapping}, or "
            f"file.delimiter if all names run together."
        )
    twice = [name for name in wanted if found.count(name) > 1]
    if twice:
        raise SourceError(
            f"{path}: column {twice[0]!r} (for {wanted[twice[0]]}) appears "
            f"{found.count(twice[0])} times in the header. Rename one of them."
        )


def _with_nulls(frame: pl.DataFrame, file: FileFormat) -> pl.DataFrame:
    """Cuts blanks around text and makes nulls of the file's words for "unknown", and of NaN."""
    numbers = [float(word) for word in file.null_values if _is_number(word)]
    changes = []
    for name, dtype in frame.schema.items():
        column = pl.col(name)
        if name == "record":
            continue
        if dtype in (pl.String, pl.Categorical, pl.Enum):
            text = column.cast(pl.String).str.strip_chars()
            is_word = text.is_in(list(file.null_values))
            changes.append(pl.when(~is_word).then(text).alias(name))
        elif dtype.is_numeric():
            known = column.fill_nan(None) if dtype.is_float() else column
            if numbers:
                known = pl.when(~known.cast(pl.Float64).is_in(numbers)).then(known)
            changes.append(known.alias(name))
    return frame.with_columns(changes)


def _is_number(word: str) -> bool:
    try:
        return float(word) == float(word)
    except ValueError:
        return False
