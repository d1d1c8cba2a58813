"""What a page of exposition text holds, in columns, and the symbols that pages share.

How pages are read is in `telemetry.exposition_scan`, the grammar of a line in `exposition`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from pipelines.sources.telemetry.exposition import Comment, Malformed, parse_line

NO_TIME: Final = -(2**63)
"""Stands in `Page.ts_ns` for a sample without a time of its own."""

BEYOND: Final = 2**63 - 1
"""Stands in `Page.ts_ns` for a time outside the years that 64 bits of nanoseconds hold."""

NO_LABELS: Final = -1


@dataclass
class Symbols:
    """Names, label blocks and comments met so far; a page refers to them by number.

    Attributes:
        names: Metric names.
        labels: Labels of a block; None where the block is not valid.
        comments: Comment lines.
    """

    names: list[str] = field(default_factory=list)
    labels: list[Mapping[str, str] | None] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    name_ids: dict[bytes, int] = field(default_factory=dict)
    block_ids: dict[bytes, int] = field(default_factory=dict)
    comment_ids: dict[bytes, int] = field(default_factory=dict)

    def add_name(self, name: bytes) -> int:
        """Gives a name its number."""
        number = self.name_ids[name] = len(self.names)
        self.names.append(name.decode("utf-8", errors="replace"))
        return number

    def add_block(self, block: bytes, labels: Mapping[str, str] | None) -> int:
        """Gives a label block its number."""
        number = self.block_ids[block] = len(self.labels)
        self.labels.append(labels)
        return number

    def add_comment(self, line: bytes) -> int:
        """Gives a comment its number."""
        comment = parse_line(line.decode("utf-8", errors="replace"))
        number = self.comment_ids[line] = len(self.comments)
        self.comments.append(comment if isinstance(comment, Comment) else Comment(None, None, ""))
        return number


class Lines(Protocol):
    """The lines of a page, found when they are asked for."""

    def __getitem__(self, number: int, /) -> bytes: ...


@dataclass(frozen=True)
class Page:
    """What one page says; shapes are (samples,) and (comments,).

    Attributes:
        name: Number of each sample's name.
        labels: Number of its label block; `NO_LABELS` without one.
        value: The numbers, correctly rounded.
        ts_ns: Times of their own in nanoseconds since 1970, `NO_TIME` or `BEYOND`.
        line: The number by which `lines` finds its line; it grows down the page.
        comment: Number of each comment that is not blank.
        comment_line: As `line`.
        malformed: Lines that are not valid, with the numbers of their lines.
        n_lines: Lines in all, the empty end after the last line feed left out.
        n_plain: Comments and blank lines among them.
        lines: The lines.
    """

    name: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    value: npt.NDArray[np.float64]
    ts_ns: npt.NDArray[np.int64]
    line: npt.NDArray[np.int64]
    comment: npt.NDArray[np.int32]
    comment_line: npt.NDArray[np.int64]
    malformed: tuple[tuple[int, Malformed], ...]
    n_lines: int
    n_plain: int
    lines: Lines

    def text(self, number: int) -> str:
        """A line as it stands on the page."""
        return self.lines[number].decode("utf-8", errors="replace").removesuffix("\r")

    def with_others(self, others: "Columns", keep: npt.NDArray[np.bool_]) -> "Page":
        """Some of the samples together with others, in the order of the lines.

        Args:
            others: Samples that were read by the whole grammar.
            keep: Which of the page's own stay, shape (samples,).

        Returns:
            The page with both.
        """
        added = others.arrays()
        order = np.argsort(np.concatenate([self.line[keep], added["line"]]), kind="stable")
        columns = {
            key: np.concatenate([getattr(self, key)[keep], column])[order]
            for key, column in added.items()
        }
        return replace(self, **columns, malformed=tuple(others.malformed))  # type: ignore[arg-type]


class Scan(Protocol):
    """A way to read a page."""

    def __call__(self, data: bytes, symbols: Symbols, *, openmetrics: bool) -> Page:
        """Reads a page; `symbols` grows by what is new, `openmetrics`: times are seconds."""
        ...


class Columns:
    """The columns of a page under construction, and what is common to all ways of reading."""

    def __init__(self, symbols: Symbols, *, openmetrics: bool) -> None:
        self.symbols = symbols
        self.openmetrics = openmetrics
        self.name: list[int] = []
        self.labels: list[int] = []
        self.value: list[float] = []
        self.ts_ns: list[int] = []
        self.line: list[int] = []
        self.malformed: list[tuple[int, Malformed]] = []

    def take_slowly(self, number: int, line: bytes) -> None:
        """Reads an unusual sample line by the whole grammar."""
        read = parse_line(line.decode("utf-8", errors="replace"), openmetrics=self.openmetrics)
        if isinstance(read, Malformed):
            self.malformed.append((number, read))
            return
        if isinstance(read, Comment):
            return
        ts_ns = NO_TIME if read.ts_ns is None else read.ts_ns
        ts_ns = ts_ns if abs(ts_ns) < BEYOND or read.ts_ns is None else BEYOND
        self.add(number, read.name, read.labels, value=float(read.value), ts_ns=ts_ns)

    def add(
        self, number: int, name: str, labels: Mapping[str, str], *, value: float, ts_ns: int
    ) -> None:
        """Takes one sample."""
        text = name.encode("utf-8", errors="replace")
        known = self.symbols.name_ids.get(text)
        self.name.append(self.symbols.add_name(text) if known is None else known)
        # No block begins so: the key is in no one's way.
        key = repr(sorted(labels.items())).encode("utf-8", errors="replace")
        block = self.symbols.block_ids.get(key)
        self.labels.append(self.symbols.add_block(key, labels) if block is None else block)
        self.value.append(value)
        self.ts_ns.append(ts_ns)
        self.line.append(number)

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The columns as a page has them."""
        return {
            "name": np.array(self.name, np.int32),
            "labels": np.array(self.labels, np.int32),
            "value": np.array(self.value, np.float64),
            "ts_ns": np.array(self.ts_ns, np.int64),
            "line": np.array(self.line, np.int64),
        }
