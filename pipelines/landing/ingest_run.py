"""One run over the inputs: files by content, servers by windows, each failure kept apart.

What the tables are and who calls is in `pipelines.landing.ingest`; how an input is read in
`pipelines.sources.site.readers`.
"""

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from features.errors import ForewarnError, SourceError
from pipelines.landing.journal import Reading
from pipelines.landing.landed import Landing, LandingWriter, reading_id
from pipelines.landing.schema import LandingError
from pipelines.settings import Settings
from pipelines.sources.kernel.log_bytes import BrokenLogError, read_blocks
from pipelines.sources.result import SourceResult
from pipelines.sources.site.input_base import FileInput, PresentInput, PullInput, WindowInput
from pipelines.sources.site.listing import SiteInputs
from pipelines.sources.site.readers import pull_window, stream_file
from pipelines.sources.site.reading_names import check_name, told_by_name, way_of_reading
from pipelines.storage.store import Span
from remediation.plan import plain

OWN_RECORDS: Final = "history"
"""The kind of input whose stays, places and plans are read as they stand, and so never land."""

STATIC_TABLES: Final = ("raw/incidents", "core/inventory", "core/topology", "core/maintenance")
"""Tables of a site's own records that are read whole: a corrected line replaces the old one."""

_OVERLAP: Final = timedelta(hours=1)
"""How far an answer about the present reaches back over the one before it."""

_LONGEST_QUESTION: Final = timedelta(hours=12)
_BLOCK: Final = 1 << 20
_ROTATES: Final = "kernel_log"
"""The kind of file that is moved away and packed while a new one takes its name."""
_ROTATED: Final = re.compile(r"(?:[.-]\d{1,10}|\.old)?(?:\.(?:gz|xz|bz2|zst))?$")


class Progress(Protocol):
    """Where the progress of long work is shown."""

    def begin(self, what: str, total: int) -> None:
        """Work of `total` units starts: bytes of files, minutes of a server."""

    def advance(self, amount: int) -> None:
        """Some of it is done."""


class SilentProgress:
    """Shows nothing."""

    def begin(self, what: str, total: int) -> None:
        """Says nothing."""

    def advance(self, amount: int) -> None:
        """Says nothing."""


@dataclass
class InputOutcome:
    """What became of one input in one run.

    Attributes:
        name: Its name, or its kind and path.
        kind: Its kind.
        n_landed: Readings that are new.
        n_known: Readings that had landed before.
        counts: Records read, parsed, skipped and quarantined, of the new readings.
        failures: What could not be read, with why; it is tried again in the next run.
    """

    name: str
    kind: str
    n_landed: int = 0
    n_known: int = 0
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    failures: list[str] = field(default_factory=list)

    def add(self, counts: tuple[int, int, int, int]) -> None:
        """Counts a new reading."""
        self.n_landed += 1
        read, parsed, skipped, quarantined = (
            old + new for old, new in zip(self.counts, counts, strict=True)
        )
        self.counts = (read, parsed, skipped, quarantined)


@dataclass(frozen=True)
class Run:
    """One run over the inputs."""

    settings: Settings
    inputs: SiteInputs
    landing: Landing
    now: datetime
    progress: Progress

    def land_files(self, spec: FileInput, writer: LandingWriter, outcome: InputOutcome) -> None:
        """Lands the files of an input that hold something new."""
        try:
            files = self.inputs.files(spec)
        except (SourceError, OSError) as error:
            self._note_failure(outcome, origin=spec.path, error=error)
            return
        sizes = [_size(path) for path in files]
        self.progress.begin(outcome.name, sum(sizes))
        way, failed = way_of_reading(self.inputs, spec), set()
        for path, size in zip(files, sizes, strict=True):
            try:
                self._land_file(spec, path, way=way, writer=writer, outcome=outcome)
            except LandingError:
                raise  # the disk, not the file
            except (ForewarnError, OSError) as error:
                failed.add(self._note_failure(outcome, origin=str(path), error=error))
            self.progress.advance(size)
        self.landing.journal.forget_failures(outcome.name, but=failed)

    def _land_file(
        self, spec: FileInput, path: Path, *, way: str, writer: LandingWriter, outcome: InputOutcome
    ) -> None:
        check_name(path)
        journal, origin = self.landing.journal, str(path)
        stat = _stat(path, way)
        if journal.stat_of(outcome.name, origin) == stat:
            outcome.n_known += 1
            return
        earlier = self._earlier(spec, origin, input_name=outcome.name)
        sizes = [size for *_, size in earlier]
        content, n_bytes, prefixes, end = _content(path, spec.kind, sizes)
        told = told_by_name(spec, path)
        name = reading_id(how=way, what=f"{content} {told}{end}")
        if writer.has(name):
            journal.note_stat(outcome.name, origin, stat)
            outcome.n_known += 1
            return
        # A file that grew holds all that it held; one that was rotated does not.
        outgrown = {i for i, old, size in earlier if prefixes.get(size) == old}
        alike = self._alike(spec, content, told=told, input_name=outcome.name)
        reading = Reading(
            name,
            input=outcome.name,
            source=spec.kind,
            origin=origin,
            content=content,
            size=n_bytes,
            stat=stat,
            supersedes=tuple(outgrown | alike),
        )
        chunks = stream_file(self.inputs, spec, path, ingested_at=self.now)
        if spec.kind == OWN_RECORDS:
            chunks = (_without_static(chunk) for chunk in chunks)
        outcome.add(writer.add(reading, chunks, landed_at=self.now))

    def _earlier(
        self, spec: FileInput, origin: str, *, input_name: str
    ) -> list[tuple[str, str, int]]:
        """Earlier readings of a file: id, SHA-256 of the content and size."""
        listed = {other.label for other in self.inputs.spec.inputs}
        # A log that was read half-written and then moved away is the beginning of this one.
        names = {origin, _live_name(origin)} if spec.kind == _ROTATES else {origin}
        return [
            found
            for name in sorted(names)
            for found in self.landing.journal.readings_of(
                input_name, name, source=spec.kind, listed=listed
            )
        ]

    def _alike(self, spec: FileInput, content: str, *, told: str, input_name: str) -> set[str]:
        """Readings of the same content that took the same from the name: in another way, then."""
        return {
            i
            for i, other in self.landing.journal.origins_of(input_name, content)
            if told_by_name(spec, Path(other)) == told
        }

    def land_windows(self, spec: WindowInput, writer: LandingWriter, outcome: InputOutcome) -> None:
        """Lands the windows of a server that are missing, the newest first."""
        landed = self.landing.journal.windows_of(outcome.name)
        windows = list(_windows(self.settings, spec, self.now))
        missing = [w for w in windows if self._is_missing(w, spec, [span for _, span in landed])]
        outcome.n_known += len(windows) - len(missing)
        questions = _joined(missing, until=self.now - timedelta(hours=spec.late_hours))
        self.progress.begin(outcome.name, len(questions))
        for window in reversed(questions):
            inside = tuple(i for i, s in landed if window.start <= s.start and s.end <= window.end)
            if not self._land_window(spec, window, writer, outcome, supersedes=inside):
                return  # the server is in trouble: the rest stays missing, for the next run
            self.progress.advance(1)

    def land_present(
        self, spec: PresentInput, writer: LandingWriter, outcome: InputOutcome
    ) -> None:
        """Asks a server how things are now."""
        oldest = max(self.settings.start, self.now - timedelta(days=spec.keep_days))
        asked = self.landing.journal.windows_of(outcome.name)
        if asked:
            oldest = max(oldest, asked[-1][1].end - _OVERLAP)
        self.progress.begin(outcome.name, 1)
        if oldest < self.now:
            self._land_window(spec, Span(oldest, self.now), writer, outcome)
        self.progress.advance(1)

    def _land_window(
        self,
        spec: PullInput,
        window: Span,
        writer: LandingWriter,
        outcome: InputOutcome,
        *,
        supersedes: tuple[str, ...] = (),
    ) -> bool:
        """Lands one answer of a server, whole or not at all; false: it gave none."""
        way = way_of_reading(self.inputs, spec)
        what = f"{window.start.isoformat()} {window.end.isoformat()} {self.now.isoformat()}"
        reading = Reading(
            reading_id(how=f"{outcome.name} {way}", what=what),
            input=outcome.name,
            source=spec.kind,
            origin=spec.address,
            window=window,
            supersedes=supersedes,
        )
        if self.landing.journal.has(reading.reading_id):
            outcome.n_known += 1
            return True
        try:
            chunks = pull_window(self.inputs, spec, window, ingested_at=self.now)
            outcome.add(writer.add(reading, chunks, landed_at=self.now))
            writer.commit()
        except LandingError:
            raise  # the disk, not the server
        except (ForewarnError, OSError) as error:
            self._note_failure(outcome, origin=spec.address, error=error)
            return False
        return True

    def _is_missing(self, window: Span, spec: WindowInput, landed: Collection[Span]) -> bool:
        """Whether a window has not landed, or is so young that late data may have come since."""
        if window.end > self.now - timedelta(hours=spec.late_hours):
            return True
        return not any(span.start <= window.start and window.end <= span.end for span in landed)

    def _note_failure(self, outcome: InputOutcome, *, origin: str, error: Exception) -> str:
        """Keeps a failure and returns its origin; both may hold bytes that are no text."""
        outcome.failures.append(str(error))
        noted = plain(origin)
        self.landing.journal.note_failure(
            input_name=outcome.name,
            source=outcome.kind,
            origin=noted,
            at=self.now,
            error=plain(str(error)),
        )
        return noted


def _windows(settings: Settings, spec: WindowInput, now: datetime) -> Iterator[Span]:
    """Consecutive windows from the start of the record until the data has settled."""
    step = timedelta(minutes=spec.window_minutes)
    until = settings.data_end(now - timedelta(minutes=spec.settle_minutes))
    oldest = max(settings.start, now - timedelta(days=spec.keep_days))
    start = oldest - (oldest - settings.start) % step
    while start < until:
        yield Span(start, min(start + step, until))
        start += step


def _joined(windows: list[Span], *, until: datetime) -> list[Span]:
    """Consecutive windows before `until` joined, up to half a day.

    A server answers with whole chunks of hours: many short questions cost several times more than
    a few long ones.
    """
    joined: list[Span] = []
    for window in windows:
        last = joined[-1] if joined else None
        is_next = last is not None and last.end == window.start and window.end <= until
        if last is not None and is_next and window.end - last.start <= _LONGEST_QUESTION:
            joined[-1] = Span(last.start, window.end)
        else:
            joined.append(window)
    return joined


def _hashes(blocks: Iterator[bytes], sizes: Collection[int]) -> tuple[str, int, dict[int, str]]:
    """SHA-256 of bytes, their number, and the hash of the first of them for each of some sizes."""
    digest, at = hashlib.sha256(), 0
    wanted, prefixes = sorted(set(sizes)), {}
    for block in blocks:
        while wanted and wanted[0] <= at + len(block):
            cut = digest.copy()
            cut.update(block[: wanted[0] - at])
            prefixes[wanted.pop(0)] = cut.hexdigest()
        digest.update(block)
        at += len(block)
    return digest.hexdigest(), at, prefixes


def _blocks(path: Path, kind: str) -> Iterator[bytes]:
    """Bytes of a file; those of a log unpacked, for it is the same log after it was packed."""
    if kind == _ROTATES:
        yield from read_blocks(path)
        return
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _content(path: Path, kind: str, sizes: Collection[int]) -> tuple[str, int, dict[int, str], str]:
    """As `_hashes`, and a word where a packed file breaks off: it may be whole the next time."""
    broken: list[str] = []

    def kept() -> Iterator[bytes]:
        try:
            yield from _blocks(path, kind)
        except BrokenLogError:
            broken.append(" breaks off")

    return (*_hashes(kept(), sizes), "".join(broken))


def _live_name(origin: str) -> str:
    """What a rotated and packed log was called while it was written; else its name."""
    return _ROTATED.sub("", origin)


def _size(path: Path) -> int:
    """Bytes of a file, for the progress; 0 where it has gone since it was listed."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _without_static(chunk: SourceResult) -> SourceResult:
    tables = {key: frame for key, frame in chunk.tables.items() if key not in STATIC_TABLES}
    return replace(chunk, tables=tables)


def _stat(path: Path, way: str) -> str:
    """What tells without reading that neither the file nor the way of reading it has changed."""
    now = path.stat()
    way_hash = hashlib.sha256(way.encode()).hexdigest()[:16]
    return f"{now.st_size} {now.st_mtime_ns} {now.st_ino} {way_hash}"
