"""Lines of a job's output: cutting bytes into them, who wrote each and when, Python tracebacks.

What a line means is decided by the rules of `jobs.rules`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

from pipelines.sources.local_time import latest_year, to_utc, wall_clock

LONGEST_LINE: Final = 65_536
"""Bytes after which a line without a break is cut: base64 and dumped tensors have none."""

LINE_LENGTH: Final = 4096
"""Bytes of a line that are looked at and kept: of a longer one those around its markers."""

_AROUND: Final = 1000  # bytes after a marker that are kept of a very long line
_BEFORE: Final = 200

_BREAK: Final = re.compile(rb"\r\n|\n|\r")  # a progress bar redraws itself after \r
_ANSI: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])?")

_RANK: Final = re.compile(r"\[(?:rank|default|trainer|worker)?(\d{1,9})\]: ?")
_LABEL: Final = re.compile(r" *(\d{1,7}): ")  # srun --label
_MPI_TAG: Final = re.compile(r"\[\d+,(\d{1,9})\](?:<std(?:out|err)>)?: ?")
_RAY: Final = re.compile(r"\((?:[\w.:-]+ )*pid=\d+(?:, ip=([\d.]{7,15}))?\) ?")
_NODE: Final = re.compile(r"([A-Za-z][A-Za-z._-]*-?)(\d[\w.-]{0,200}): ")
_NCCL_HOST: Final = re.compile(
    r"(?:\[[\d :.-]{8,32}\] )?([A-Za-z][\w.-]{0,200}):\d+:\d+ \[-?\d+\] "
)
_RANK_INSIDE: Final = re.compile(r"\bRank (\d{1,9})\]|\bRankID:(\d{1,9})\b")
_NO_NODE: Final = re.compile(
    r"(?:epoch|step|iter(?:ation)?|gpu|cuda|rank|worker|layer|stage|phase|device|loss|batch|line|task"
    r"|v|errno|error|http|fold|trial|chunk|shard|proc(?:ess)?|thread|level|test|exp|run|top)[ _-]*",
    re.IGNORECASE,
)
_MOST_PREFIXES: Final = 4

_ISO: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[T -](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<f>\d{1,9}))?"
    r"(?P<off>Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_GLOG: Final = re.compile(
    r"(?:^|\[)[IWEF](?P<month>\d{1,2})(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d)(?:\.(?P<f>\d{1,9}))?",
    re.ASCII,
)
_TIME_WITHIN: Final = 200  # characters from the start of a line in which its time stands


@dataclass(frozen=True)
class RawLine:
    """A line as cut.

    Attributes:
        position: Where it begins in the file, in bytes.
        data: Its bytes, without the break.
    """

    position: int
    data: bytes


class LineCutter:
    r"""Cuts chunks into lines at \n, \r and \r\n, the same wherever the chunks are cut.

    Args:
        position: Where the first chunk begins in its file.
    """

    def __init__(self, position: int = 0) -> None:
        self._position = position
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[RawLine]:
        """The lines that are complete with this chunk.

        Args:
            chunk: The bytes that follow those of the last call.
        """
        data = self._rest + chunk
        # Whether a last \r stands alone is only known with the next chunk.
        until = len(data) - data.endswith(b"\r")
        start = 0
        for found in _BREAK.finditer(data, 0, until):
            yield from self._pieces(data[start : found.start()])
            self._position += found.end() - found.start()
            start = found.end()
        while until - start > LONGEST_LINE:
            yield self._take(data[start : start + LONGEST_LINE])
            start += LONGEST_LINE
        self._rest = data[start:]

    def finish(self) -> Iterator[RawLine]:
        """The last line, where no break ends it."""
        rest, self._rest = self._rest, b""
        line = rest.removesuffix(b"\r")
        if rest:
            yield from self._pieces(line)

    def _pieces(self, line: bytes) -> Iterator[RawLine]:
        while len(line) > LONGEST_LINE:
            yield self._take(line[:LONGEST_LINE])
            line = line[LONGEST_LINE:]
        yield self._take(line)

    def _take(self, data: bytes) -> RawLine:
        line = RawLine(self._position, data)
        self._position += len(data)
        return line


def clean(data: bytes) -> bytes:
    """A line without colour codes and NULs.

    Args:
        data: The line.
    """
    if b"\x1b" in data:
        data = _ANSI.sub(b"", data)
    return data.replace(b"\x00", b"") if b"\x00" in data else data


def readable(data: bytes, markers: Iterable[str]) -> str:
    """The text of a line; of a very long one its start and what stands around its markers.

    Args:
        data: The line.
        markers: Plain texts in lower case that stand in it.
    """
    if len(data) <= LINE_LENGTH:
        return data.decode("utf-8", errors="replace")
    lower = data.lower()
    parts = [data[:_BEFORE]]
    reached, left = _BEFORE, LINE_LENGTH - _BEFORE
    for offset in sorted(lower.find(marker.encode()) for marker in markers):
        begin, end = max(reached, offset - _BEFORE), offset + _AROUND
        if end <= reached:
            continue
        part = data[begin:end][:left]
        if begin > reached:
            parts.append(b" ... ")
        parts.append(part)
        reached, left = end, left - len(part)
        if left <= 0:
            break
    return b"".join(parts).decode("utf-8", errors="replace")


@dataclass(frozen=True)
class Writer:
    """Who wrote a line, as its prefix tells.

    Attributes:
        node: Node.
        rank: Rank.
        text: The line without the prefixes that a launcher put before it.
    """

    node: str | None
    rank: int | None
    text: str


def split_writer(line: str) -> Writer:
    """Takes the prefixes of launchers off a line.

    Args:
        line: A line: of torchrun (`[rank3]: `, `[default3]:`), srun --label (`3: `), mpirun
            (`[1,3]<stderr>:`), pdsh and kubectl-like tools (`node17: `), Ray, or NCCL itself.

    Returns:
        Node, rank and the rest; a rank named inside the text counts where no prefix gives one.

    >>> split_writer("node17: [rank3]: KeyError: 'x'")
    Writer(node='node17', rank=3, text="KeyError: 'x'")
    """
    node: str | None = None
    rank: int | None = None
    for _ in range(_MOST_PREFIXES):
        if found := _RANK.match(line) or _LABEL.match(line) or _MPI_TAG.match(line):
            rank = int(found[1])
        elif found := _RAY.match(line):
            node = found[1] or node
        elif (found := _NODE.match(line)) and not _NO_NODE.fullmatch(found[1]):
            node = found[1] + found[2]
        else:
            break
        line = line[found.end() :]
    if host := _NCCL_HOST.match(line):
        node = host[1]
    if rank is None and (inside := _RANK_INSIDE.search(line)):
        rank = int(inside[1] or inside[2])
    return Writer(node, rank, line)


def time_of(line: str, *, zone: ZoneInfo, read_until: datetime) -> datetime | None:
    """The time a line gives near its start.

    Args:
        line: A line.
        zone: Zone of clocks that print no offset.
        read_until: When it was read, UTC; a time without a year is not later.

    Returns:
        UTC time, or None where the line tells none.

    >>> from zoneinfo import ZoneInfo
    >>> read = datetime(2026, 1, 2, tzinfo=UTC)
    >>> str(time_of("[E1231 03:31:38.91 x.cpp:607] lost", zone=ZoneInfo("UTC"), read_until=read))
    '2025-12-31 03:31:38.910000+00:00'
    """
    head = line[:_TIME_WITHIN]
    found = _ISO.search(head) or _GLOG.search(head)
    if found is None:
        return None
    hour, minute, second = (int(part) for part in found["time"].split(":"))
    micros = int((found["f"] or "")[:6].ljust(6, "0"))
    clock = (hour, minute, second)
    if found.re is _GLOG:
        month_day = (int(found["month"]), int(found["day"]))
        return latest_year(month_day, clock, micros=micros, zone=zone, read_until=read_until)
    year, month, day = (int(part) for part in found["date"].split("-"))
    local = wall_clock((year, month, day), clock, micros=micros)
    if local is None:
        return None
    return to_utc(local, zone) if found["off"] is None else _at_offset(local, found["off"])


def _at_offset(local: datetime, offset: str) -> datetime | None:
    if offset == "Z":
        return local.replace(tzinfo=UTC)
    digits = offset[1:].replace(":", "")
    ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    try:
        return local.replace(tzinfo=UTC) + (ahead if offset[0] == "-" else -ahead)
    except OverflowError:
        return None


_TRACEBACK: Final = re.compile(
    r"\s*(?:[+|] *)*(?:Exception Group )?Traceback \(most recent call last\)"
)
_FRAME: Final = re.compile(r'\s+(?:\| +)*File ".*", line \d+')
_INSIDE: Final = re.compile(r"[ \t|+\u2500-\u257f]|\[Previous line repeated ")
_CHAIN: Final = re.compile(r"During handling of the above exception|The above exception was the di")
_EXCEPTION: Final = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Timeout|Failure)(?::|\s*$)",
    re.ASCII,
)
_NAMED: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Z]\w*)(?::\s|\s*$)", re.ASCII)
_LEVELS: Final = frozenset({"INFO", "DEBUG", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL"})
_MOST_FRAMES: Final = 2000
_MOST_STREAMS: Final = 10_000

LineKind = Literal["frame", "exception", "other"]


@dataclass
class Tracebacks:
    """Which lines belong to tracebacks: frames hold code, whose words mean nothing.

    Every rank has its own state, as lines of several ranks may be mixed.
    """

    _open: dict[tuple[str | None, int | None], int] = field(default_factory=dict)

    @property
    def is_any_open(self) -> bool:
        """Whether any rank is inside a traceback."""
        return bool(self._open)

    def kind(self, writer: Writer) -> LineKind:
        """What a line is to its rank's traceback.

        Args:
            writer: The line, taken apart.

        Returns:
            `frame` for headers, frames and code; `exception` for the line that ends a traceback
            (or looks like one whose beginning is cut off); else `other`.
        """
        text = writer.text
        stream = (writer.node, writer.rank)
        if _TRACEBACK.match(text) or _FRAME.match(text):
            if len(self._open) >= _MOST_STREAMS:
                self._open.clear()
            self._open[stream] = 0
            return "frame"
        if _CHAIN.match(text):
            return "frame"
        if stream in self._open:
            if not text.strip() or _INSIDE.match(text):
                self._open[stream] += 1
                if self._open[stream] > _MOST_FRAMES:
                    del self._open[stream]
                return "frame"
            named = _NAMED.match(text)
            if named is not None and named["name"] not in _LEVELS:
                del self._open[stream]
                return "exception"
        if _EXCEPTION.match(text):
            self._open.pop(stream, None)
            return "exception"
        return "other"
