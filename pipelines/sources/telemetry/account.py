"""The account of many pages at once: what became of every line, per file or address.

It holds to the same law as `result.ReadTally`, whose one-file account is too slow to build for
thousands of small pages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from features.errors import DataError
from features.monitoring_tables import QUARANTINE, READS
from pipelines.sources.result import EXAMPLE_LENGTH, SourceResult, as_table

_CUT: Final = "…"


@dataclass
class Account:
    """What became of the lines of one file or address.

    Attributes:
        n_read: Lines.
        n_parsed: Lines that gave a reading, or a part of one.
        n_skipped: Comments, blanks, lines about something else.
        refused: Count and first example by rule.
    """

    n_read: int = 0
    n_parsed: int = 0
    n_skipped: int = 0
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)

    def quarantine(self, rule: str, example: str) -> None:
        """Counts a refused line."""
        count, first = self.refused.get(rule, (0, example))
        self.refused[rule] = (count + 1, first)


@dataclass
class Accounts:
    """The accounts of one source.

    Attributes:
        table: Asset key of the table the lines are meant for.
        source: Kind of source.
        by_origin: Account by file or address.
    """

    table: str
    source: str
    by_origin: dict[str, Account] = field(default_factory=dict)

    def of(self, origin: str) -> Account:
        """The account of one file or address."""
        return self.by_origin.setdefault(origin, Account())

    def result(self, tables: Mapping[str, pl.DataFrame]) -> SourceResult:
        """The outcome of all.

        Args:
            tables: Frames by asset key.

        Returns:
            The frames with quarantine and reads.

        Raises:
            DataError: A line went missing or was counted twice, a fault of the reader.
        """
        refused, reads = [], []
        for origin, account in self.by_origin.items():
            place = {"source": self.source, "origin": origin}
            n_refused = sum(count for count, _ in account.refused.values())
            if account.n_read != account.n_parsed + account.n_skipped + n_refused:
                raise DataError(
                    f"{self.source} {origin}: {account.n_read} lines read, but "
                    f"{account.n_parsed} parsed + {account.n_skipped} skipped + {n_refused} "
                    f"quarantined do not add up. This is a fault of the reader; please report it "
                    f"with the file."
                )
            refused += [
                {"table": self.table, **place, "rule": rule, "count": count, "example": _cut(line)}
                for rule, (count, line) in account.refused.items()
            ]
            reads.append(
                {
                    **place,
                    "n_read": account.n_read,
                    "n_parsed": account.n_parsed,
                    "n_skipped": account.n_skipped,
                    "n_quarantined": n_refused,
                }
            )
        return SourceResult(tables, as_table(QUARANTINE, refused), as_table(READS, reads))


def _cut(text: str) -> str:
    return text if len(text) <= EXAMPLE_LENGTH else text[: EXAMPLE_LENGTH - 1] + _CUT
