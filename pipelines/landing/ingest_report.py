"""`forewarn ingest`: runs it, shows its progress, and says what landed and what must be built anew.

What is landed, and how, is in `pipelines.landing.ingest`.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from pipelines.landing.ingest import ingest, landing_of
from pipelines.landing.ingest_run import InputOutcome, SilentProgress
from pipelines.landing.ingest_run import Progress as ProgressProtocol
from pipelines.landing.staleness import Stale, find_stale
from pipelines.settings import Settings
from pipelines.storage.store import TableStore
from remediation.plan import plain

_SHOWN_STRETCHES: Final = 5


class _Bars:
    """A bar per input, on a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, what: str, total: int) -> None:
        """Starts the bar of the next input."""
        self._task = self._progress.add_task(what, total=max(total, 1))

    def advance(self, amount: int) -> None:
        """Moves it on."""
        if self._task is not None:
            self._progress.advance(self._task, amount)


def run_ingest(settings: Settings, *, only: Collection[str] = ()) -> tuple[str, int]:
    """Lands what is new and words the outcome.

    Args:
        settings: The installation.
        only: Names or kinds of inputs; empty: all.

    Returns:
        Text for a terminal, and the exit code: 1 where an input could not be read, else 0.
    """
    with _progress() as progress:
        outcomes = ingest(settings, now=datetime.now(UTC), only=only, progress=progress)
    stale = find_stale(landing_of(settings), TableStore(settings.store_root))
    failed = any(outcome.failures for outcome in outcomes)
    return render_outcomes(outcomes, stale), 1 if failed else 0


def render_outcomes(outcomes: Sequence[InputOutcome], stale: Sequence[Stale]) -> str:
    """Words what a run of ingest did.

    Args:
        outcomes: One per input.
        stale: What must be built anew.
    """
    lines = outcome_lines(outcomes)
    if any(outcome.counts[3] for outcome in outcomes):
        lines += ["", "`forewarn quarantine` shows what was refused, and why."]
    return "\n".join([*lines, *_stale_lines(stale)])


def outcome_lines(outcomes: Sequence[InputOutcome]) -> list[str]:
    """A table with a line per input, and each failure in words.

    Args:
        outcomes: One per input.
    """
    width = max([len("input"), *(len(outcome.name) for outcome in outcomes)])
    head = ("new", "known", "failed", "read", "parsed", "skipped", "refused")
    lines = [f"{'input':<{width}}" + "".join(f"{word:>14}" for word in head)]
    for outcome in outcomes:
        numbers = (outcome.n_landed, outcome.n_known, len(outcome.failures), *outcome.counts)
        lines.append(f"{plain(outcome.name):<{width}}" + "".join(f"{n:>14,}" for n in numbers))
    for outcome in outcomes:
        for failure in outcome.failures:
            lines += ["", f"{plain(outcome.name)} failed and will be tried again: {plain(failure)}"]
    return lines


def _stale_lines(stale: Sequence[Stale]) -> list[str]:
    if not stale:
        return []
    lines = ["", "Data came for hours that had been built before. Materialise again:"]
    for table in dict.fromkeys(item.table for item in stale):
        spans = [item.span for item in stale if item.table == table]
        words = [
            f"{span.start:%Y-%m-%d %H:%M} to {span.end:%Y-%m-%d %H:%M}" if span else "the table"
            for span in spans
        ]
        more = len(words) - _SHOWN_STRETCHES
        shown = ", ".join(words[:_SHOWN_STRETCHES]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"  {table}: {shown}")
    return lines


@contextmanager
def _progress() -> Iterator[ProgressProtocol]:
    """Bars where somebody watches; nothing in a log file."""
    if not sys.stderr.isatty():
        yield SilentProgress()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bars(progress)
