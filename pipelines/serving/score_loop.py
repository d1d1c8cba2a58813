"""Runs ticks: once, or for as long as the process lives; stops in good order when told to.

What a tick is, is in `scorer`; what follows it in `delivery`.
"""

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from features.catalogue import FaultCatalogue
from features.clock import Clock, utc_now
from features.errors import ForewarnError
from pipelines.flow.champions import Champions
from pipelines.flow.publish import discard_later
from pipelines.flow.steps import registry_of
from pipelines.serving.delivery import Delivery, delivery_of, read_book
from pipelines.serving.scorer import Say, TickReport, due_tick, score_tick
from pipelines.serving.scorer_status import ScorerStatus
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.file_lock import alone

_LOG: Final = logging.getLogger(__name__)
_LOCK: Final = ".scorer.lock"
Reporter = Callable[[TickReport], None]


class StoppedError(ForewarnError):
    """The scorer was told to stop; the tick it was at was given up, and nothing of it is seen."""


@dataclass
class Scorer:
    """A scorer with all that it keeps between ticks.

    Attributes:
        settings: The installation.
        champions: Its models.
        catalogue: Fault catalogue.
        delivery: What follows a tick.
        say: Told of progress.
        now: Clock.
        report: Told of each tick that was stored; None: nobody.
        stop: Set when the scorer is to stop.
        status: What it is at.
    """

    settings: Settings
    champions: Champions
    catalogue: FaultCatalogue
    delivery: Delivery
    say: Say
    now: Clock = utc_now
    report: Reporter | None = None
    stop: Event = field(default_factory=Event)
    status: ScorerStatus = field(default_factory=ScorerStatus)

    def once(self) -> TickReport | None:
        """Scores the tick that is due, if one is, and tells of what is published.

        Returns:
            What was scored; None: nothing was due.

        Raises:
            ForewarnError: It could not be scored; nothing was published.
            StoppedError: The scorer was told to stop.
        """
        try:
            with alone(self.settings.scores_dir / _LOCK) as is_alone:
                self.status.why = "another forewarn score is at work"
                made = self._score() if is_alone else None
        finally:
            # Also where nothing was scored: what could not be told before is told now.
            if not self.stop.is_set():
                self._deliver()
        if made is not None and self.report is not None:
            self._report(made, self.report)
        return made

    def _score(self) -> TickReport | None:
        """Scores the tick that is due, if one is."""
        due = due_tick(self.settings, now=self.now())
        self.status.why = due.why
        if due.as_of is None:
            return None
        made = score_tick(
            self.settings,
            as_of=due.as_of,
            now=self.now,
            catalogue=self.catalogue,
            champions=self.champions,
            say=self._at,
        )
        self._note(made)
        self.say(made.words())
        return made

    def _report(self, made: TickReport, report: Reporter) -> None:
        """Tells of a tick; it is published, whether or not it can be told of."""
        try:
            report(made)
        except (ForewarnError, OSError) as error:
            self.status.problems["dagster"] = str(error)
            _LOG.error("dagster: %s", error)
            self._write_status()

    def run(self) -> None:
        """Scores tick after tick until it is told to stop; a tick that fails is tried again."""
        self.status.started_at = self.now().isoformat()
        notify("READY=1")
        while not self.stop.is_set():
            try:
                self.once()
            except StoppedError:
                break
            except (ForewarnError, OSError) as error:
                self.status.n_failures += 1
                self.status.last_error = str(error)
                _LOG.error("the tick failed, it will be tried again: %s", error)
            self._at("idle")
            notify(f"WATCHDOG=1\nSTATUS={self.status.why}")
            self.stop.wait(self.settings.serving.every_s)
        notify("STOPPING=1")
        self.status.phase = "stopped"
        self._write_status()

    def _at(self, phase: str) -> None:
        """Notes a phase; between two of them a tick can be given up."""
        if self.stop.is_set() and phase != "idle":
            raise StoppedError("told to stop: the tick was given up before it was published")
        self.status.phase = phase
        self._write_status()
        if phase != "idle":
            self.say(f"{phase} ...")

    def _note(self, made: TickReport) -> None:
        self.status.as_of = made.as_of.isoformat()
        self.status.tick_seconds = dict(made.seconds)
        self.status.unknown = dict(made.unknown)
        self.status.n_ticks += 1
        self.status.last_error = ""

    def _deliver(self) -> None:
        self.status.phase = "delivery"
        self.delivery.run(self.now())
        self.status.problems = dict(self.delivery.problems)
        self.status.n_database_errors += "database" in self.delivery.problems
        self.status.n_open_alerts = len(read_book(self.settings.scores_dir).open)
        self.status.phase = "idle"
        self._write_status()

    def _write_status(self) -> None:
        self.status.updated_at = self.now().isoformat()
        try:
            self.status.write(self.settings.scores_dir)
        except OSError as error:
            _LOG.warning("the status file cannot be written: %s", error)


def scorer_of(settings: Settings, *, say: Say, report: Reporter | None = None) -> Scorer:
    """The scorer of an installation.

    Args:
        settings: The installation.
        say: Told of progress.
        report: Told of each tick that was stored.

    Raises:
        SettingsError: Settings cannot be used.
    """
    return Scorer(
        settings=settings,
        champions=Champions(registry_of(settings), settings),
        catalogue=load_catalogue(settings.fault_catalogue),
        delivery=delivery_of(settings),
        say=say,
        report=report,
    )


def discard_future(settings: Settings, *, now: Clock = utc_now) -> str:
    """Takes back published ticks that are later than now; what was done, in words.

    Alerts and database follow at the next delivery.
    """
    n_ticks = discard_later(settings.scores_dir, now=now())
    return f"{n_ticks} published ticks of the future taken back"


@contextmanager
def stopped_by_signals(stop: Event) -> Iterator[None]:
    """Sets `stop` on SIGTERM and SIGINT while the block runs; a second SIGINT ends it at once."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}

    def note(number: int, _: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt  # who asks twice does not want to wait for the phase to end
        stop.set()

    for one in before:
        signal.signal(one, note)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def notify(state: str) -> None:
    """Tells systemd, where it started us and wants to know (sd_notify)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(state.encode(), address.replace("@", "\0", 1))
        except OSError as error:
            _LOG.warning("systemd cannot be told: %s", error)
