"""The hook as a loop: rounds until it is told to end, whatever becomes of one of them.

What a round does is in `remediation.program.round`; how a cluster is acted on is not known here.
"""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Final, Self

from features.clock import Clock, utc_now
from features.errors import ForewarnError
from remediation.actuators.protocol import EFFECTIVE
from remediation.checks import CheckRunner
from remediation.decision import touches_node
from remediation.hook_settings import HookSettings
from remediation.lease.leadership import Leadership, LeaseError
from remediation.ledger.journal import Journal
from remediation.plan import plain
from remediation.program.parts import CoreTables, open_leadership
from remediation.program.returns import note_checks
from remediation.program.round import Round, opened, run_round

ROUND_FILE: Final = "round.json"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

MakeRound = Callable[[], Round]


@dataclass(frozen=True, kw_only=True)
class RoundNote:
    """The last round, for `status` and for who watches the hook.

    Attributes:
        ended_at: When it ended, or failed.
        text: What came of it, in words.
        is_failed: Whether it failed.
        failed_in_row: Rounds that failed since the last that did not.
        rounds: Rounds of this process.
        failed: Those of them that failed.
    """

    ended_at: datetime
    text: str
    is_failed: bool
    failed_in_row: int
    rounds: int
    failed: int

    def write(self, folder: Path) -> None:
        """Writes it, whole or not at all.

        Raises:
            OSError: It cannot be written.
        """
        values = {**asdict(self), "ended_at": self.ended_at.isoformat()}
        part = folder / f".{ROUND_FILE}.{os.getpid()}"
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(values) + "\n", encoding="utf-8")
        part.replace(folder / ROUND_FILE)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The last note; None: there is none that can be read."""
        try:
            values = json.loads((folder / ROUND_FILE).read_text(encoding="utf-8"))
            return cls(**{**values, "ended_at": datetime.fromisoformat(values["ended_at"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None


class Ending:
    """Whether the loop was told to end, and the wait between two rounds that this cuts short."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._why = ""

    def __call__(self, why: str) -> None:
        """Tells the loop to end."""
        self._why = why
        self._event.set()

    def why(self) -> str | None:
        """Why no further node may be begun; None: go on. A `Fence`."""
        return self._why if self._event.is_set() else None

    def wait(self, seconds: float) -> bool:
        """Waits, at most until told to end; returns whether it was."""
        return self._event.wait(seconds)


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """An ending that SIGTERM and Ctrl-C cause: the node in hand is finished, no other is begun.

    A second signal ends the process at once; what was begun is then settled by the next round.
    """
    ending = Ending()

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        ending(f"the hook was told to end ({signal.Signals(number).name})")

    before = {one: signal.signal(one, end) for one in _SIGNALS}
    try:
        yield ending
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def run_loop(
    make_round: MakeRound,
    *,
    state: Path,
    ending: Ending,
    interval_s: float,
    longest_pause_s: float,
    say: Callable[[str], None],
    clock: Clock,
) -> None:
    """Makes rounds until told to end.

    A round that fails is logged, noted and followed by a longer pause; it never ends the loop.

    Args:
        make_round: Makes one round.
        state: Folder in which the last round is noted.
        ending: Tells when to end, and waits.
        interval_s: Seconds between rounds.
        longest_pause_s: Longest pause after rounds that failed.
        say: Logs a line.
        clock: The present.
    """
    rounds = failed = in_row = 0
    said = ""
    while ending.why() is None:
        rounds += 1
        text, is_failed = _one(make_round)
        in_row = in_row + 1 if is_failed else 0
        failed += is_failed
        pause = pause_after(in_row, interval_s=interval_s, longest_pause_s=longest_pause_s)
        if is_failed:
            say(f"round failed ({in_row} in a row, next in {pause:.0f} s): {text}")
        elif text != said:  # once a minute the same line would hide the others
            say(text)
        said = text
        note = RoundNote(
            ended_at=clock(),
            text=text,
            is_failed=is_failed,
            failed_in_row=in_row,
            rounds=rounds,
            failed=failed,
        )
        try:
            note.write(state)
        except OSError as error:
            say(f"the last round cannot be noted in {state}: {error.strerror}")
        ending.wait(pause)
    say(f"{ending.why()}; {rounds} rounds, {failed} failed")


def loop_on(
    settings: HookSettings, *, core_tables: CoreTables | None, say: Callable[[str], None]
) -> None:
    """Runs the loop until a signal ends it; every part but checks is opened anew for each round.

    Args:
        settings: The hook's settings.
        core_tables: Reads stored core tables.
        say: Logs a line.
    """
    # One for all rounds: a lease of another machine ends for who has watched it long enough.
    lease: Leadership | None = None
    try:
        with ended_by_signals() as ending, _checks(settings) as checks:

            def make_round() -> Round:
                nonlocal lease
                lease = lease or open_leadership(settings)
                with opened(settings, core_tables=core_tables, checks=checks) as hook:
                    return run_round(hook, leadership=lease, asked_to_end=ending.why)

            run_loop(
                make_round,
                state=settings.state,
                ending=ending,
                interval_s=settings.loop.interval_s,
                longest_pause_s=settings.loop.longest_pause_s,
                say=say,
                clock=utc_now,
            )
    finally:
        if lease is not None:  # kept while a check ran; a restart must not wait for its end
            with suppress(LeaseError):
                lease.release()


def run_one(settings: HookSettings, *, core_tables: CoreTables | None) -> Round:
    """Makes one round and waits for the checks that it began; a later round acts on what they find.

    Args:
        settings: The hook's settings.
        core_tables: Reads stored core tables.

    Raises:
        ForewarnError: A part cannot be opened, read or written.
    """
    lease = open_leadership(settings)
    with (
        ended_by_signals() as ending,
        _checks(settings) as checks,
        opened(settings, core_tables=core_tables, checks=checks) as hook,
    ):
        try:
            made = run_round(hook, leadership=lease, asked_to_end=ending.why)
        except (ForewarnError, OSError) as error:
            _note(settings.state, plain(str(error)), is_failed=True)
            raise
        _note(settings.state, words_of(made), is_failed=False)
        while checks.running and ending.why() is None:
            lease.fence()  # renews it: another hook would begin the same check
            results = checks.finished(wait_s=1.0)
            note_checks(results, hook.view(), journal=Journal(hook.ledger, hook.name, hook.clock))
        lease.release()
        return made


def pause_after(failed_in_row: int, *, interval_s: float, longest_pause_s: float) -> float:
    """Seconds until the next round: the interval, doubled with each failed round, up to a bound.

    >>> [pause_after(n, interval_s=60, longest_pause_s=300) for n in (0, 1, 2, 3, 9999)]
    [60.0, 120.0, 240.0, 300.0, 300.0]
    """
    doubled = interval_s * 2.0 ** min(failed_in_row, 32)
    return float(min(doubled, max(interval_s, longest_pause_s)))


def words_of(made: Round) -> str:
    """A round in one line, for the log."""
    if made.refused_by is not None:
        return made.refused_by
    run = made.run
    if run is None:
        return "nothing to do"
    acting = [one for one in run.judged if touches_node(one.decision.wanted)]
    done = [
        one.decision.node
        for one in acting
        if (found := run.outcomes.get(one.decision.decision_id)) and found.status in EFFECTIVE
    ]
    verb = "would act on" if run.is_dry_run else "acted on"
    parts = [
        f"scores of {run.published.as_of:%H:%M} UTC",
        f"{len(run.cluster.nodes)} nodes",
        f"{verb} {', '.join(map(plain, done)) or 'none'}",
        f"{sum(not touches_node(one.action) for one in acting)} held back",
    ]
    if made.returned:
        parts.append(f"returned {', '.join(map(plain, made.returned))}")
    if made.stopped_by is not None:
        parts.append(plain(made.stopped_by))
    parts += [f"for a person: {plain(text)}" for text in made.messages]
    return "; ".join(parts)


def _checks(settings: HookSettings) -> CheckRunner:
    return CheckRunner(clock=utc_now, environment=os.environ, at_once=settings.returns.at_once)


def _note(state: Path, text: str, *, is_failed: bool) -> None:
    """Notes the one round of a process; that it cannot be noted stops nothing."""
    before = RoundNote.read(state)
    in_row = (before.failed_in_row if before else 0) + 1 if is_failed else 0
    note = RoundNote(
        ended_at=utc_now(),
        text=text,
        is_failed=is_failed,
        failed_in_row=in_row,
        rounds=1,
        failed=int(is_failed),
    )
    with suppress(OSError):
        note.write(state)


def _one(make_round: MakeRound) -> tuple[str, bool]:
    """What came of one round, in words, and whether it failed."""
    try:
        return words_of(make_round()), False
    except (ForewarnError, OSError) as error:
        return plain(str(error)), True
    except Exception as error:  # noqa: BLE001 - one round's trouble, even our own, ends no loop
        return plain(f"not foreseen, please report it: {type(error).__name__}: {error}"), True
