"""The end of a job's own output: lines that say why it failed, to `raw/job_output`.

Which line means what is in `jobs.rules` and its rule file, how lines are cut and whose they are in
`jobs.lines`; which of several classes explains the job is decided in `features.job_causes`.
"""

import gzip
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final
from zoneinfo import ZoneInfo

import polars as pl

from features.errors import SourceError
from features.raw_tables import RAW_JOB_OUTPUT
from pipelines.sources.jobs.lines import (
    LineCutter,
    RawLine,
    Tracebacks,
    Writer,
    clean,
    readable,
    split_writer,
    time_of,
)
from pipelines.sources.jobs.log_templates import TemplateTree
from pipelines.sources.jobs.names import DEFAULT_PATTERNS, FileOwner, owner_of
from pipelines.sources.jobs.rules import JobRules, RuleHit
from pipelines.sources.local_time import zone_of
from pipelines.sources.result import ReadTally, SourceResult, as_table

SOURCE: Final = "job_output"
TEMPLATE_RULE: Final = "template"

DEFAULT_TAIL_MB: Final = 1.0
_MB: Final = 1_000_000
_CHUNK: Final = 4 * _MB
_GZIP_CHUNK: Final = 65_536
_BLOCK_LINES: Final = 20_000
_MOST_ROWS: Final = 20_000
_MOST_TEMPLATES: Final = 200
_TEMPLATE_PRIORITY: Final = 900

_LOOKS_BAD: Final = re.compile(
    r"\b(?:error|fatal|exception|critical|panic|abort(?:ed|ing)?|fail(?:ed|ure)?)\b|[a-z]Error\b",
    re.IGNORECASE,
)
_BAD_WORDS: Final = ("error", "fatal", "exception", "critical", "panic", "abort", "fail")
_TRACE_WORDS: Final = ("traceback (most recent", 'file "')


def parse_job_output(
    data: bytes | str,
    *,
    origin: str,
    rules: JobRules,
    time_zone: str,
    ingested_at: datetime,
    owner: FileOwner | None = None,
) -> SourceResult:
    """Reads the output of a job, or the end of it.

    Args:
        data: The output; any bytes.
        origin: File or address, for the account.
        rules: What lines mean.
        time_zone: Zone of clocks that print no offset.
        ingested_at: When it is read, UTC.
        owner: Whose output it is, where lines do not tell.

    Returns:
        `raw/job_output`: one row per rule (or template, for lines that no rule fits and that
        look like an error), job, node and rank, with the first line and how many there were.
        Lines about nothing are skipped.

    Raises:
        SourceError: There is no such time zone.
    """
    reader = _Reader(
        rules, zone_of(time_zone, origin=origin), ingested_at, owner or FileOwner(), origin
    )
    cutter = LineCutter()
    reader.take(cutter.feed(data.encode() if isinstance(data, str) else data))
    reader.take(cutter.finish())
    return reader.result()


def stream_job_output(
    path: Path,
    *,
    rules: JobRules,
    time_zone: str,
    ingested_at: datetime,
    tail_mb: float = DEFAULT_TAIL_MB,
    patterns: Sequence[str] = DEFAULT_PATTERNS,
    chunk_bytes: int = _CHUNK,
) -> Iterator[SourceResult]:
    """Reads the end of one file.

    Args:
        path: A job's output, plain or compressed (.gz).
        rules: What lines mean.
        time_zone: Zone of clocks that print no offset.
        ingested_at: When it is read, UTC.
        tail_mb: How much of its end is read, in MB of text; the first, broken line is left out.
        patterns: Where the file's name tells job, node and rank (`jobs.names`).
        chunk_bytes: Bytes held at a time.

    Yields:
        One result: all lines of a file are one account, and its rows are few.

    Raises:
        SourceError: The file cannot be read.
    """
    zone = zone_of(time_zone, origin=str(path))
    reader = _Reader(rules, zone, ingested_at, owner_of(path, patterns), str(path))
    tail = max(1, round(tail_mb * _MB))
    try:
        if path.suffix == ".gz":
            reader.take_tail(_gzip_tail(path, tail))
        else:
            for part in _tail(path, tail, chunk_bytes):
                reader.take(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(
            f"{path} is no gzip file: {error}. Give it another name, or leave it out."
        ) from error
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {error.strerror or error}. Check that it exists, is a file, "
            f"and that this user may read it."
        ) from error
    yield reader.result()


def _tail(path: Path, tail: int, chunk_bytes: int) -> Iterator[Iterator[RawLine]]:
    with path.open("rb") as file:
        start = max(0, file.seek(0, 2) - tail)
        yield from _lines_from(file, start, chunk_bytes)


def _lines_from(file: BinaryIO, start: int, chunk_bytes: int) -> Iterator[Iterator[RawLine]]:
    """Lines from a position on; one byte before it tells whether a line begins there."""
    begin = max(0, start - 1)
    file.seek(begin)
    cutter = LineCutter(begin)
    is_first = start > 0
    while chunk := file.read(chunk_bytes):
        lines = cutter.feed(chunk)
        if is_first:
            is_first = next(lines, None) is None
        yield lines
    yield cutter.finish()


@dataclass(frozen=True)
class _Tail:
    """The end of a compressed file's text.

    Attributes:
        data: Its bytes, one more than asked for where there are more.
        begin: Where they begin in the text.
        broken: Why nothing follows, where the file is not whole.
    """

    data: bytes
    begin: int
    broken: str | None


def _gzip_tail(path: Path, tail: int) -> _Tail:
    """Decompresses a file and holds on to its end; what can be read of a torn one counts."""
    kept: deque[bytes] = deque()
    held, total = 0, 0
    broken: str | None = None
    with gzip.open(path, "rb") as file:
        try:
            while chunk := file.read(_GZIP_CHUNK):
                kept.append(chunk)
                held, total = held + len(chunk), total + len(chunk)
                while held - len(kept[0]) > tail:  # one byte more than the tail stays
                    held -= len(kept.popleft())
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if not total:
                raise
            broken = str(error)
    data = b"".join(kept)[max(0, held - tail - 1) :]
    return _Tail(data, total - len(data), broken)


@dataclass
class _Finding:
    """Lines of one rule and writer."""

    row: dict[str, Any]
    hit: RuleHit | None
    place: int | None = None
    count: int = 0


@dataclass(frozen=True)
class _Line:
    """A line worth a look."""

    position: int
    text: str
    writer: Writer
    candidates: set[int]


class _Reader:
    """Goes through the lines of one file, block by block."""

    def __init__(
        self,
        rules: JobRules,
        zone: ZoneInfo,
        ingested_at: datetime,
        owner: FileOwner,
        origin: str,
    ) -> None:
        self._rules = rules
        self._zone = zone
        self._ingested_at = ingested_at
        self._owner = owner
        self._tally = ReadTally(table=RAW_JOB_OUTPUT.asset_key, source=SOURCE, origin=origin)
        self._tracebacks = Tracebacks()
        self._tree = TemplateTree(most_templates=_MOST_TEMPLATES)
        self._found: dict[tuple[object, ...], _Finding] = {}

    def take(self, lines: Iterable[RawLine]) -> None:
        """Reads the lines that follow those of the last call."""
        block: list[RawLine] = []
        for line in lines:
            block.append(line)
            if len(block) >= _BLOCK_LINES:
                self._take_block(block)
                block = []
        self._take_block(block)

    def take_tail(self, tail: _Tail) -> None:
        """Reads the end of a compressed file."""
        cutter = LineCutter(tail.begin)
        lines = cutter.feed(tail.data)
        if tail.begin > 0:
            next(lines, None)
        self.take(lines)
        self.take(cutter.finish())
        if tail.broken is not None:
            self._tally.read()
            self._tally.quarantined("the compressed file breaks off here", tail.broken)

    def result(self) -> SourceResult:
        """The outcome of the file."""
        totals: dict[str, int] = {}
        for finding in self._found.values():
            rule = finding.row["rule"]
            totals[rule] = totals.get(rule, 0) + finding.count
        rows = []
        for finding in self._found.values():
            is_few = finding.hit is not None and (
                totals[finding.hit.rule.name] < finding.hit.rule.min_count
            )
            if is_few:
                self._tally.skipped(finding.count)
                continue
            self._tally.parsed(finding.count)
            template = self._tree.text(finding.place) if finding.hit is None else None
            rows.append({**finding.row, "count": finding.count, "template": template})
        return self._tally.result({RAW_JOB_OUTPUT.asset_key: as_table(RAW_JOB_OUTPUT, rows)})

    def _take_block(self, block: Sequence[RawLine]) -> None:
        if not block:
            return
        self._tally.read(len(block))
        lines = list(self._worth_a_look(block))
        self._tally.skipped(len(block) - len(lines))
        hits = self._rules.hits(
            [line.writer.text for line in lines], [line.candidates for line in lines]
        )
        for line, hit in zip(lines, hits, strict=True):
            is_bad = hit is None and _LOOKS_BAD.search(line.writer.text) is not None
            if (hit is None and not is_bad) or (hit is not None and hit.rule.role == "ignore"):
                self._tally.skipped()
            else:
                self._add(line, hit)

    def _worth_a_look(self, block: Sequence[RawLine]) -> Iterator[_Line]:
        """Lines with a marker, a word of trouble, or a traceback's end; frames are left out."""
        texts = [clean(line.data) for line in block]
        marked = self._marked(texts)
        for at, data in enumerate(texts):
            markers = marked.get(at)
            if markers is None and not self._tracebacks.is_any_open:
                continue
            text = readable(data, markers or ())
            writer = split_writer(text)
            kind = self._tracebacks.kind(writer)
            if kind == "frame" or (markers is None and kind == "other"):
                continue
            by_marker = self._rules.markers
            candidates = {place for m in markers or () for place in by_marker.get(m, ())}
            if kind == "exception":
                candidates.update(self._rules.exception_rules)
            yield _Line(block[at].position, text, writer, candidates)

    def _marked(self, texts: Sequence[bytes]) -> dict[int, set[str]]:
        """Line -> the markers and words of trouble in it, for the lines that have any.

        One automaton looks for all of them at once, in a third of the time that it takes to
        search the text for one after the other.
        """
        words = [*self._rules.markers, *_BAD_WORDS, *_TRACE_WORDS]
        lines = pl.Series([text.decode("utf-8", errors="replace") for text in texts])
        has_any = lines.str.contains_any(words, ascii_case_insensitive=True)
        places = has_any.arg_true()
        found = lines.gather(places).str.extract_many(
            words, ascii_case_insensitive=True, overlapping=True
        )
        return {
            at: {word.lower() for word in words_of_line}
            for at, words_of_line in zip(places, found, strict=True)
        }

    def _add(self, line: _Line, hit: RuleHit | None) -> None:
        """Counts a line under its rule, or under its template where it has none."""
        place = self._tree.add(line.writer.text) if hit is None else None
        node = (hit.node if hit else None) or line.writer.node or self._owner.node
        ranks = (line.writer.rank, hit.rank if hit else None, self._owner.rank)
        rank = next((rank for rank in ranks if rank is not None), None)
        job = self._owner.job_id or (hit.job if hit else None)
        key: tuple[object, ...]
        key = (TEMPLATE_RULE, place) if hit is None else (hit.rule.name, job, node, rank)
        if key not in self._found and len(self._found) >= _MOST_ROWS:
            key, node, rank = (hit.rule.name if hit else TEMPLATE_RULE, place), None, None
        if key not in self._found:
            self._found[key] = _Finding(
                {
                    "job_id": job,
                    "node": node,
                    "rank": rank,
                    "ts": time_of(line.text, zone=self._zone, read_until=self._ingested_at),
                    "fault_class": hit.rule.fault_class if hit else "unrecognised",
                    "cause": hit.rule.cause if hit else "unknown",
                    "rule": hit.rule.name if hit else TEMPLATE_RULE,
                    "priority": hit.rule.priority if hit else _TEMPLATE_PRIORITY,
                    "is_collateral": hit is not None and hit.rule.role == "collateral",
                    "position": line.position,
                    "line": line.text,
                    "source": SOURCE,
                    "ingested_at": self._ingested_at,
                },
                hit,
                place,
            )
        self._found[key].count += 1
