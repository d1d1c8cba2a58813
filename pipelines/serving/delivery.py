"""After a tick is published: the database is brought up to it, alerts are raised and told.

Everything here is made from the published folder and can be done again: what fails is noted,
stays to be done, and is done at the next call. Scores are made in `scorer`.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
import sqlalchemy as sa

from features.errors import ForewarnError, SourceError
from features.tables import NODE_SCORES
from pipelines.flow.publish import forget_ticks
from pipelines.sections.secret_source import read_secret
from pipelines.serving.alert_book import AlertBook, advance, alerts_frame, rewind
from pipelines.serving.alert_replay import replayed_alerts
from pipelines.serving.alertmanager import payload, send
from pipelines.serving.event_webhook import tell
from pipelines.serving.node_marks import write_marks
from pipelines.serving.place import history_rule, score_engine
from pipelines.serving.published import (
    PublishedTick,
    latest_published,
    node_scores_or_none,
    read_ticks,
)
from pipelines.serving.score_database import forget_from, write_alerts, write_tick
from pipelines.serving.score_reader import latest_tick
from pipelines.settings import Settings
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.file_lock import alone
from remediation.actuators.webhook import poster
from remediation.actuators.webhook_signature import SigningKey

_LOG: Final = logging.getLogger(__name__)
BOOK: Final = "alerts.json"
_LOCK: Final = ".delivery.lock"


@dataclass
class Delivery:
    """Tells what was published; keep one between ticks.

    Attributes:
        settings: Whom to tell.
        engine: The score database.
        problems: What failed at the last call, by part: database, alerts, alertmanager, webhook.
        sent_at: When Alertmanager was told last.
    """

    settings: Settings
    engine: sa.Engine
    problems: dict[str, str] = field(default_factory=dict)
    sent_at: datetime | None = None
    _told: tuple[datetime | None, str] | None = None

    def close(self) -> None:
        """Closes what connections it has; it may be used again."""
        self.engine.dispose()

    def run(self, now: datetime) -> None:
        """Does what is to be done by now; nothing is lost by what fails.

        Alertmanager comes before the database, which may let it wait for half a minute.

        Args:
            now: The present.
        """
        self.problems = {}
        folder, began = self.settings.scores_dir, time.monotonic()
        with alone(folder / _LOCK) as is_alone:
            if not is_alone:
                _LOG.info("another process tells of the scores")
                return
            latest: list[PublishedTick] = []
            self._part("alerts", lambda: latest.extend(self._raise_alerts(folder)))
            self._part("alertmanager", lambda: self._send(folder, latest, now))
            self._part("database", lambda: self._fill_database(folder))
            # What comes before may take minutes, and a receiver refuses signatures of long ago.
            self._part(
                "webhook",
                lambda: self._tell(now + timedelta(seconds=time.monotonic() - began)),
            )
            self._part("folder", lambda: self._forget(folder, now))

    def _part(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except (ForewarnError, OSError) as error:
            self.problems[name] = str(error)
            _LOG.error("%s: %s", name, error)

    def _raise_alerts(self, folder: Path) -> list[PublishedTick]:
        """Brings the book of alerts up to the newest tick."""
        latest = latest_published(folder)
        if latest is None:
            return []
        newest = latest.tick.as_of
        book = read_book(folder)
        if book.as_of is not None and book.as_of > newest:
            book = rewind(book, to=newest)
            write_book(folder, book)
        due = [] if book.as_of == newest else [latest]
        if due and book.as_of is not None:
            due = [*read_ticks(folder, since=book.as_of, before=newest), latest]
        for one in due:
            scores = one.node_scores() if one is latest else node_scores_or_none(one)
            if scores is None:
                continue
            book = advance(
                book,
                one.tick,
                scores,
                earlier=_earlier(folder, one),
                lead=self.settings.lead,
                has_webhook=self.settings.serving.webhook is not None,
                has_alertmanager=self.settings.serving.alertmanager is not None,
            )
            write_book(folder, book)
        write_marks(folder, book, latest.tick)
        return [latest]

    def _fill_database(self, folder: Path) -> None:
        """Writes the ticks that the database lacks, oldest first, then alerts."""
        latest = latest_published(folder)
        if latest is None:
            return
        newest = latest.tick.as_of
        held = latest_tick(self.engine)
        if held is None:
            # A new database: of what was raised before it, the folder tells.
            write_alerts(self.engine, replayed_alerts(folder, until=newest, settings=self.settings))
        elif held.as_of > newest:
            forget_from(self.engine, newest)
            held = latest_tick(self.engine)
        later = read_ticks(folder, since=held.as_of if held else None, before=newest)
        for one in (*later, latest):
            if held is not None and (one.tick.as_of, one.tick.digest) == (held.as_of, held.digest):
                continue
            try:
                nodes, gpus = one.node_scores(), one.gpu_scores()
            except SourceError as error:
                if one is latest:
                    raise
                # GPU scores of long ago are gone: a gap in the history, not in the present.
                _LOG.warning("tick %s stays out of the database: %s", one.tick.as_of, error)
                continue
            write_tick(
                self.engine,
                one.tick,
                node_scores=nodes,
                gpu_scores=gpus,
                rule=history_rule(self.settings),
            )
        book = read_book(folder)
        if book.unstored:
            write_alerts(self.engine, alerts_frame(book.unstored))
            write_book(folder, replace(book, unstored=()))

    def _send(self, folder: Path, latest: list[PublishedTick], now: datetime) -> None:
        chosen = self.settings.serving.alertmanager
        if chosen is None:
            return
        book, tick = read_book(folder), latest[0].tick if latest else None
        told = (book.as_of, tick.digest if tick else "")
        wait = timedelta(minutes=chosen.resend_minutes)
        # A clock that was set back must not keep the next word from being said.
        if self.sent_at and self._told == told and timedelta(0) <= now - self.sent_at < wait:
            return
        alerts = payload(
            book,
            site=self.settings.site,
            tick=tick,
            min_coverage=self.settings.serving.min_coverage,
        )
        token = read_secret(chosen.token, what="serving.alertmanager.token")
        send(chosen.url, alerts, token=token, ca_file=_text(chosen.ca_file))
        self.sent_at, self._told = now, told
        if book.told_at != book.as_of:
            write_book(folder, replace(book, told_at=book.as_of))

    def _tell(self, now: datetime) -> None:
        chosen, folder = self.settings.serving.webhook, self.settings.scores_dir
        book = read_book(folder)
        if chosen is None or not book.outbox:
            return
        key = read_secret(chosen.key, what="serving.webhook.key") or ""
        left = tell(
            book.outbox,
            post=poster(chosen.url, ca_file=_text(chosen.ca_file)),
            key=SigningKey(key.encode()),
            site=self.settings.site,
            now=now,
        )
        if left != book.outbox:
            write_book(folder, replace(book, outbox=left))
        if left:
            raise SourceError(f"webhook: {len(left)} events are still to be told")

    def _forget(self, folder: Path, now: datetime) -> None:
        serving = self.settings.serving
        forget_ticks(
            folder,
            before=now - timedelta(days=serving.published_days),
            gpus_before=now - timedelta(days=serving.published_gpu_days),
        )


def delivery_of(settings: Settings) -> Delivery:
    """The delivery of an installation.

    Raises:
        SettingsError: The database's settings cannot be used.
    """
    return Delivery(settings, score_engine(settings))


def read_book(folder: Path) -> AlertBook:
    """The book of alerts; an empty one where there is none, or its content is no book."""
    path = folder / BOOK
    try:
        return AlertBook.from_dict(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return AlertBook()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # Open alerts end by themselves; to raise none for ever would be worse.
        _LOG.error("%s cannot be read, alerts begin anew: %s", path, error)
        return AlertBook()


def write_book(folder: Path, book: AlertBook) -> None:
    """Puts the book into the published folder, in one step."""
    replace_file(folder / BOOK, (json.dumps(book.to_dict()) + "\n").encode(), sync=True)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _earlier(folder: Path, one: PublishedTick) -> pl.DataFrame:
    """Node scores of the ticks before that the policies look back on."""
    back = max((p.k * p.tick for p in one.tick.policies.values()), default=timedelta(0))
    before = read_ticks(folder, since=one.tick.as_of - back, before=one.tick.as_of)
    frames = [scores for each in before if (scores := node_scores_or_none(each)) is not None]
    columns = ("node", "horizon_h", "as_of", "score")
    return pl.concat(frame.select(columns) for frame in (NODE_SCORES.empty(), *frames))
