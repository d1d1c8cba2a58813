"""What reading a source gives: tables, refused records, and a count of what became of each record.

No format is known here; each source has its own module.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from features.contracts import TableContract
from features.errors import DataError
from features.monitoring_tables import QUARANTINE, READS
from features.tables import TABLE_BY_KEY

EXAMPLE_LENGTH: Final = 300
"""Characters of a refused record that are kept: enough to find it, too few to fill a disk."""


@dataclass(frozen=True)
class SourceResult:
    """What one or several reads gave.

    Attributes:
        tables: Frames by asset key, each with the columns of its contract.
        quarantine: Refused records by rule (`monitoring/quarantine`).
        reads: Counts per file, read = parsed + skipped + quarantined (`monitoring/reads`).
    """

    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    quarantine: pl.DataFrame = field(default_factory=QUARANTINE.empty)
    reads: pl.DataFrame = field(default_factory=READS.empty)

    def table(self, asset_key: str) -> pl.DataFrame:
        """The rows of one table; its empty frame where nothing gave any.

        Args:
            asset_key: The table, `raw/kernel_log`.

        Returns:
            A frame with the contract's columns.
        """
        return self.tables.get(asset_key, TABLE_BY_KEY[asset_key].empty())


class ReadTally:
    """Counts the records of one file and keeps one example per broken rule.

    Args:
        table: Asset key of the table the records are meant for.
        source: Kind of source.
        origin: File or address.
    """

    def __init__(self, *, table: str, source: str, origin: str) -> None:
        self._table = table
        self._source = source
        self._origin = origin
        self._read = 0
        self._parsed = 0
        self._skipped = 0
        self._refused: dict[str, tuple[int, str]] = {}

    def read(self, count: int = 1) -> None:
        """Records seen. Counted apart from their fate, so that a lost record shows."""
        self._read += count

    def parsed(self, count: int = 1) -> None:
        """Records that gave at least one row, or a part of one."""
        self._parsed += count

    def skipped(self, count: int = 1) -> None:
        """Comments, blanks, records about something else, repeats of what was taken."""
        self._skipped += count

    def quarantined(self, rule: str, example: str, *, count: int = 1) -> None:
        """Records refused.

        Args:
            rule: The rule they break.
            example: The first of them.
            count: How many.
        """
        seen, first = self._refused.get(rule, (0, _cut(example)))
        self._refused[rule] = (seen + count, first)

    def result(self, tables: Mapping[str, pl.DataFrame]) -> SourceResult:
        """The outcome of the file.

        Args:
            tables: Frames by asset key.

        Returns:
            The frames with their quarantine and reads.

        Raises:
            DataError: A record went missing or was counted twice, a fault of the reader.
        """
        n_refused = sum(count for count, _ in self._refused.values())
        if self._read != self._parsed + self._skipped + n_refused:
            raise DataError(
                f"{self._source} {self._origin}: {self._read} records read, but {self._parsed} "
                f"parsed + {self._skipped} skipped + {n_refused} quarantined do not add up. "
                f"This is a fault of the reader; please report it with the file."
            )
        origin = {"source": self._source, "origin": self._origin}
        refused = [
            {"table": self._table, **origin, "rule": rule, "count": count, "example": example}
            for rule, (count, example) in self._refused.items()
        ]
        reads = {
            **origin,
            "n_read": self._read,
            "n_parsed": self._parsed,
            "n_skipped": self._skipped,
            "n_quarantined": n_refused,
        }
        return SourceResult(
            tables, as_table(QUARANTINE, refused), pl.DataFrame([reads], schema=READS.schema)
        )


def as_table(contract: TableContract, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Makes a contract's frame of rows.

    Args:
        contract: The table.
        rows: Column -> value; a column left out is null.

    Returns:
        A frame with the contract's columns and types.
    """
    names = contract.schema.names()
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pl.DataFrame(columns, schema=contract.schema)


def merge(results: Iterable[SourceResult]) -> SourceResult:
    """Joins the outcomes of several reads.

    Args:
        results: Outcomes, in order.

    Returns:
        The rows of each table below each other; quarantine and reads summed where the same
        file was read more than once.
    """
    parts: dict[str, list[pl.DataFrame]] = {}
    quarantines, reads = [QUARANTINE.empty()], [READS.empty()]
    for result in results:
        for asset_key, frame in result.tables.items():
            parts.setdefault(asset_key, []).append(frame)
        quarantines.append(result.quarantine)
        reads.append(result.reads)
    tables = {key: pl.concat(frames) for key, frames in parts.items()}
    return SourceResult(
        tables, _summed(QUARANTINE, pl.concat(quarantines)), _summed(READS, pl.concat(reads))
    )


def _summed(contract: TableContract, frame: pl.DataFrame) -> pl.DataFrame:
    """One row per key: counts added, the first example kept."""
    others = [name for name in contract.schema.names() if name not in contract.key]
    counts = [name for name in others if contract.schema[name].is_integer()]
    return (
        frame.group_by(contract.key, maintain_order=True)
        .agg(pl.col(name).sum() if name in counts else pl.col(name).first() for name in others)
        .select(contract.schema.names())
    )


def _cut(text: str) -> str:
    return text if len(text) <= EXAMPLE_LENGTH else f"{text[: EXAMPLE_LENGTH - 1]}…"
