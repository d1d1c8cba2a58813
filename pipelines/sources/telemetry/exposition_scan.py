"""Whole pages of exposition text at speed: bytes to columns of sample names, labels and values.

The grammar of an unusual line is in `exposition`; what a metric means is not known here.

Nearly every line of an exporter repeats a name and a block of labels that were read before, so
names, label blocks and comments are read once and then recognised, byte for byte; what remains of
a line is its value. Lines that are not of the usual form go to `exposition.parse_line`, one by
one, so that the result is the same however a line is written.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from pipelines.sources.telemetry.exposition import is_openmetrics, parse_labels
from pipelines.sources.telemetry.exposition_page import (
    BEYOND,
    NO_TIME,
    Columns,
    Page,
    Scan,
    Symbols,
)

PageSample = tuple[str, Mapping[str, str], float, int | None]

COMPILED_FROM: Final = 16_000_000
"""Bytes after which the compiled kernel is loaded: reading them in Python takes about as long as
loading it does."""

_NAME: Final = re.compile(rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*")
_TIME_DIGITS: Final = {True: 10, False: 13}
_BOM: Final = b"\xef\xbb\xbf"
_MOST_SYMBOLS: Final = 200_000  # label blocks kept: about 100 MB, and more GPUs than most sites


class Scanner:
    """Reads pages, remembering what they have in common.

    Args:
        scan: How; None: with the compiled kernel once there is enough to read, where it can be
            had, until then in Python.
    """

    def __init__(self, scan: Scan | None = None) -> None:
        self.symbols = Symbols()
        self._scan = scan
        self._n_bytes = 0
        self._is_settled = scan is not None

    def read(self, data: bytes, *, openmetrics: bool | None = None) -> Page:
        """Reads one page.

        Args:
            data: The page.
            openmetrics: Whether times are in seconds; None: as the page's end mark tells.

        Returns:
            Its samples, comments and refused lines, in their order.
        """
        data = data.removeprefix(_BOM)
        if openmetrics is None:
            openmetrics = is_openmetrics(data)
        self._n_bytes += len(data)
        return self._way()(data, self.symbols, openmetrics=openmetrics)

    def trim(self) -> bool:
        """Forgets all symbols where there are too many; pages read before then lose theirs.

        Returns:
            Whether it did.
        """
        symbols = self.symbols
        n_known = len(symbols.names) + len(symbols.labels) + len(symbols.comments)
        if n_known < _MOST_SYMBOLS:
            return False
        self.symbols = Symbols()
        return True

    def _way(self) -> Scan:
        if not self._is_settled and self._n_bytes >= COMPILED_FROM:
            from pipelines.sources.telemetry.exposition_compiled import compiled_scan

            self._scan = compiled_scan()
            self._is_settled = True
        return self._scan or scan_python


def samples_of(page: Page, symbols: Symbols) -> Iterator[PageSample]:
    """The samples of a page one by one, without their exemplars.

    Args:
        page: The page.
        symbols: Those it was read with.

    Returns:
        Name, labels, value and time (nanoseconds since 1970, or None) of each sample, in the
        page's order. Whole numbers come as floats; samples with the same labels share them.
    """
    names, labels = symbols.names, symbols.labels
    return zip(
        [names[number] for number in page.name.tolist()],
        [(labels[number] if number >= 0 else None) or {} for number in page.labels.tolist()],
        page.value.tolist(),
        [None if ts == NO_TIME else ts for ts in page.ts_ns.tolist()],
        strict=True,
    )


def scan_python(data: bytes, symbols: Symbols, *, openmetrics: bool) -> Page:
    """Reads a page with dictionaries: no compiler is needed.

    Args:
        data: The page.
        symbols: What is known; grows.
        openmetrics: Whether times are in seconds.

    Returns:
        The page.
    """
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    columns = Columns(symbols, openmetrics=openmetrics)
    others: list[int] = []
    comments: list[int] = []
    comment_lines: list[int] = []
    comment_ids = symbols.comment_ids
    for number, line in enumerate(lines):
        bare = line.strip(b" \t\r") if line[:1] in b"# \t\r" else line  # a blank line, too
        if bare[:1] not in b"#":
            others.append(number)
        elif bare:
            known = comment_ids.get(bare)
            comments.append(symbols.add_comment(bare) if known is None else known)
            comment_lines.append(number)
    _take_samples(columns, lines, others)
    return Page(
        **columns.arrays(),  # type: ignore[arg-type]
        comment=np.array(comments, np.int32),
        comment_line=np.array(comment_lines, np.int64),
        malformed=tuple(columns.malformed),
        n_lines=len(lines),
        n_plain=len(lines) - len(others),
        lines=lines,
    )


def _take_samples(columns: Columns, lines: Sequence[bytes], numbers: Sequence[int]) -> None:
    """Reads the sample lines of a page; unusual ones by the whole grammar."""
    symbols, openmetrics = columns.symbols, columns.openmetrics
    name_ids, block_ids = symbols.name_ids, symbols.block_ids
    add_name, add_block = columns.name.append, columns.labels.append
    add_value, add_line = columns.value.append, columns.line.append
    add_ts = columns.ts_ns.append
    for number in numbers:
        line = lines[number]
        begin, end = line.find(b"{"), line.rfind(b"}")
        tail = line[end + 1 :]
        block = block_ids.get(line[begin : end + 1]) if begin > 0 else None
        name = name_ids.get(line[:begin]) if begin > 0 else None
        if block is None or name is None:
            found = _learn(line, begin, end, symbols=symbols)
            if found is None:
                columns.take_slowly(number, line)
                continue
            name, block = found
        try:
            value, ts = float(tail), NO_TIME
        except ValueError:
            value, ts = _value_and_time(tail, openmetrics=openmetrics)
        # NaN (and what was no number), minus zero, 1_000: not of the usual form.
        if value != value or (value == 0.0 and b"-" in tail) or b"_" in tail:  # noqa: PLR0124
            columns.take_slowly(number, line)
            continue
        add_name(name)
        add_block(block)
        add_value(value)
        add_ts(ts)
        add_line(number)


def _learn(line: bytes, begin: int, end: int, *, symbols: Symbols) -> tuple[int, int] | None:
    """Gives the name and the labels of a line their numbers; None where it is not usual."""
    found = _NAME.fullmatch(line, 0, begin) if begin > 0 else None
    if found is None or end < begin:
        return None
    block = line[begin : end + 1]
    number = symbols.block_ids.get(block)
    if number is None:
        labels = parse_labels(block[1:-1].decode("utf-8", errors="replace"))
        if labels is None or "__name__" in labels:
            return None
        number = symbols.add_block(block, labels)
    known = symbols.name_ids.get(found[1])
    name = symbols.add_name(found[1]) if known is None else known
    symbols.name_ids[line[:begin]] = name  # with the blanks around it, next time
    return name, number


def _value_and_time(tail: bytes, *, openmetrics: bool) -> tuple[float, int]:
    """Reads `5 1767225600000`; NaN, for the slow way to judge, where it is anything else."""
    words = tail.split()
    if len(words) != 2 or not words[1].isdigit() or len(words[1]) > _TIME_DIGITS[openmetrics]:
        return math.nan, NO_TIME
    try:
        value = float(words[0])
    except ValueError:
        return math.nan, NO_TIME
    ts_ns = int(words[1]) * (1_000_000_000 if openmetrics else 1_000_000)
    return (value, ts_ns) if ts_ns < BEYOND else (math.nan, NO_TIME)
