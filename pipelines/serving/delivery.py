"""After a tick is published: the database is brought up to it, alerts are raised and told.

Everything here is made from the published folder and can be done again: what fails is noted,
stays to be done, and is done at the next call. Scores are made in `scorer`.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
import sqlalchemy as sa

from features.errors import ForewarnError, SourceError
from features.tables import NODE_SCORES
from pipelines.atomic_files import replace_file
from pipelines.publish import forget_ticks, published_ticks
from pipelines.serving.alert_book import AlertBook, advance, alerts_frame
from pipelines.serving.alertmanager import payload, send
from pipelines.serving.event_webhook import tell
from pipelines.serving.node_marks import write_marks
from pipelines.serving.place import history_rule, read_secret, score_engine
from pipelines.serving.published import PublishedTick, latest_published, read_tick
from pipelines.serving.score_database import write_alerts, write_tick
from pipelines.serving.score_reader import latest_tick
from pipelines.settings import Settings
from remediation.actuators.webhook import poster
from remediation.actuators.webhook_signature import SigningKey

_LOG: Final = logging.getLogger(__name__)
BOOK: Final = "alerts.json"


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
    _told: tuple[datetime, str] | None = None

    def run(self, now: datetime) -> None:
        """Does what is to be done by now; nothing is lost by what fails.

        Args:
            now: The present.
        """
        self.problems = {}
        folder = self.settings.scores_dir
        latest: list[PublishedTick] = []
        self._part("alerts", lambda: latest.extend(self._raise_alerts(folder)))
        self._part("database", lambda: self._fill_database(folder))
        if latest:
            self._part("alertmanager", lambda: self._send(latest[0], now))
            self._part("webhook", lambda: self._tell(now))
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
        book = read_book(folder)
        later = published_ticks(folder, since=book.as_of) if book.as_of else []
        due = _newest_of_each([*(read_tick(path, folder) for path in later), latest])
        for one in due:
            if book.as_of is not None and one.tick.as_of <= book.as_of:
                continue
            book = advance(
                book,
                one.tick,
                one.node_scores(),
                earlier=_earlier(folder, one),
                lead=self.settings.lead,
                has_webhook=self.settings.serving.webhook is not None,
            )
            write_book(folder, book)
        write_marks(folder, book, latest.tick)
        return [latest]

    def _fill_database(self, folder: Path) -> None:
        """Writes the ticks that the database lacks, oldest first, then alerts."""
        latest = latest_published(folder)
        if latest is None:
            return
        held = latest_tick(self.engine)
        later = published_ticks(folder, since=held.as_of if held else None)
        for one in _newest_of_each([*(read_tick(path, folder) for path in later), latest]):
            if held is not None and (one.tick.as_of, one.tick.digest) == (held.as_of, held.digest):
                continue
            try:
                nodes, gpus = one.node_scores(), one.gpu_scores()
            except SourceError as error:
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

    def _send(self, latest: PublishedTick, now: datetime) -> None:
        chosen = self.settings.serving.alertmanager
        if chosen is None:
            return
        told = (latest.tick.as_of, latest.tick.digest)
        is_known = self.sent_at is not None and self._told == told
        if is_known and now - (self.sent_at or now) < timedelta(minutes=chosen.resend_minutes):
            return
        alerts = payload(
            read_book(latest.folder),
            site=self.settings.site,
            tick=latest.tick,
            min_coverage=self.settings.serving.min_coverage,
        )
        token = read_secret(chosen.token, what="serving.alertmanager.token")
        send(chosen.url, alerts, token=token, ca_file=_text(chosen.ca_file))
        self.sent_at, self._told = now, told

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
    since = one.tick.as_of - back
    before = [
        tick
        for tick in (read_tick(path, folder) for path in published_ticks(folder, since=since))
        if tick.tick.as_of < one.tick.as_of
    ]
    columns = ("node", "horizon_h", "as_of", "score")
    frames = [tick.node_scores().select(columns) for tick in _newest_of_each(before)]
    return pl.concat([NODE_SCORES.empty().select(columns), *frames])


def _newest_of_each(ticks: list[PublishedTick]) -> list[PublishedTick]:
    """Of ticks of one moment the one published last, in the order of moments."""
    newest: dict[datetime, PublishedTick] = {}
    for one in sorted(ticks, key=lambda each: (each.tick.as_of, each.tick.published_at)):
        newest[one.tick.as_of] = one
    return list(newest.values())
