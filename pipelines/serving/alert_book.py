"""The alerts of the live system: which are open, which were raised, what is still to be told.

Which scores become alerts is decided in `models.policies.warnings`; who is told, and how, is in
`alertmanager` and `event_webhook`. Nothing is read or written here.

An alert is raised by the policy that was published with the scores. It stays open while the node's
score is at or above the threshold, and while the score is unknown: silence is no good news. It is
closed when the score was known and below for `k` ticks, when lead and horizon have passed since it
was last above, or when the horizon has no policy any more. Within the policy's cooldown no other is
raised: a node that is above again opens the one that was closed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from features.contracts import UTC_TIME
from models.policies.warnings import WarningPolicy, raise_alerts
from pipelines.serving.score_database import Tick

_RAISED_SCHEMA: Final = pl.Schema(
    [
        ("node", pl.String()),
        ("horizon_h", pl.Int32()),
        ("as_of", UTC_TIME),
        ("ends_at", UTC_TIME),
        ("score", pl.Float64()),
        ("threshold", pl.Float64()),
        ("fault_type", pl.String()),
        ("model_version", pl.String()),
    ]
)
_KEEP_CLOSED: Final = timedelta(hours=6)
"""How long a closed alert is told to be over, also once Alertmanager has taken it."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One alert of a node.

    Attributes:
        node: Node.
        horizon_h: Horizon, hours.
        as_of: When it was raised.
        last_above: The last tick at which the score was at or above the threshold.
        ends_at: Until then an incident may come, as the alert has it.
        score: The score at the last tick above.
        threshold: The policy's.
        fault_type: Most probable one.
        reasons: In words.
        model_version: Model that scored.
        closed_at: When it was closed; None: it is open.
        why_closed: In words.
    """

    node: str
    horizon_h: int
    as_of: datetime
    last_above: datetime
    ends_at: datetime
    score: float
    threshold: float
    fault_type: str | None
    reasons: tuple[str, ...]
    model_version: str
    closed_at: datetime | None = None
    why_closed: str = ""

    @property
    def place(self) -> tuple[str, int]:
        """Node and horizon: of these there is one open alert at most."""
        return self.node, self.horizon_h

    @property
    def key(self) -> str:
        """Names the alert, the same in every message about it."""
        text = f"{self.node}\0{self.horizon_h}\0{self.as_of.isoformat()}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def to_dict(self) -> dict[str, Any]:
        """The alert as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in values.items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Alert":
        """The alert from what `to_dict` gave, or JSON of it."""
        times = {
            name: datetime.fromisoformat(values[name])
            for name in ("as_of", "last_above", "ends_at", "closed_at")
            if values[name] is not None
        }
        return cls(**{**values, **times, "reasons": tuple(values["reasons"])})


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that is to be told to the webhook once; an alert may fire and be over in turn.

    Attributes:
        kind: fired or resolved.
        alert: The alert.
        at: When it happened.
        attempts: Tries so far.
        next_try: Not before then.
        is_held_for_all: Whether what it met with would be met by other nodes' events, too.
    """

    kind: str
    alert: Alert
    at: datetime
    attempts: int = 0
    next_try: datetime | None = None
    is_held_for_all: bool = True

    @property
    def key(self) -> str:
        """Idempotency key."""
        return f"{self.alert.key}-{self.kind}-{self.at:%Y%m%dT%H%M}"

    def to_dict(self) -> dict[str, Any]:
        """The event as plain values."""
        return {
            "kind": self.kind,
            "alert": self.alert.to_dict(),
            "at": self.at.isoformat(),
            "attempts": self.attempts,
            "next_try": self.next_try and self.next_try.isoformat(),
            "is_held_for_all": self.is_held_for_all,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Event":
        """The event from what `to_dict` gave."""
        next_try = values["next_try"]
        return cls(
            kind=values["kind"],
            alert=Alert.from_dict(values["alert"]),
            at=datetime.fromisoformat(values["at"]),
            attempts=values["attempts"],
            next_try=datetime.fromisoformat(next_try) if next_try else None,
            is_held_for_all=values.get("is_held_for_all", True),
        )


@dataclass(frozen=True, kw_only=True)
class AlertBook:
    """All that is known of alerts after a tick.

    Attributes:
        as_of: The tick.
        open: Open alerts.
        closed: Alerts closed of late: they are still told to be over.
        raised: `node`, `horizon_h`, `as_of` of alerts raised within the longest cooldown.
        outbox: Events that the webhook has not taken.
        unstored: Alerts that the score database has not taken.
        told_at: The newest tick whose alerts Alertmanager has taken.
    """

    as_of: datetime | None = None
    open: tuple[Alert, ...] = ()
    closed: tuple[Alert, ...] = ()
    raised: tuple[tuple[str, int, datetime], ...] = ()
    outbox: tuple[Event, ...] = ()
    unstored: tuple[Alert, ...] = ()
    told_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """The book as plain values."""
        return {
            "schema": 1,
            "as_of": self.as_of and self.as_of.isoformat(),
            "open": [one.to_dict() for one in self.open],
            "closed": [one.to_dict() for one in self.closed],
            "raised": [(node, h, at.isoformat()) for node, h, at in self.raised],
            "outbox": [one.to_dict() for one in self.outbox],
            "unstored": [one.to_dict() for one in self.unstored],
            "told_at": self.told_at and self.told_at.isoformat(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "AlertBook":
        """The book from what `to_dict` gave, or JSON of it."""
        told_at = values.get("told_at")
        return cls(
            as_of=datetime.fromisoformat(values["as_of"]) if values["as_of"] else None,
            open=tuple(Alert.from_dict(one) for one in values["open"]),
            closed=tuple(Alert.from_dict(one) for one in values["closed"]),
            raised=tuple((n, h, datetime.fromisoformat(at)) for n, h, at in values["raised"]),
            outbox=tuple(Event.from_dict(one) for one in values["outbox"]),
            unstored=tuple(Alert.from_dict(one) for one in values["unstored"]),
            told_at=datetime.fromisoformat(told_at) if told_at else None,
        )


def advance(
    book: AlertBook,
    tick: Tick,
    scores: pl.DataFrame,
    *,
    earlier: pl.DataFrame,
    lead: timedelta,
    has_webhook: bool = False,
    has_alertmanager: bool = False,
) -> AlertBook:
    """The book after one more tick; a tick that it knows changes nothing.

    Args:
        book: The book so far.
        tick: The tick, with its policies.
        scores: Its scores/node_scores.
        earlier: Node scores of earlier ticks, at least the last `k` of each policy.
        lead: Minimum lead L.
        has_webhook: Whether events are to be told.
        has_alertmanager: Whether a closed alert must be kept until Alertmanager was told of it.

    Returns:
        The new book.
    """
    if book.as_of is not None and tick.as_of <= book.as_of:
        return book
    found = [
        _raised(book, tick, scores, earlier, horizon_h, policy, lead=lead)
        for horizon_h, policy in tick.policies.items()
    ]
    raised = [one for fresh, _ in found for one in fresh]
    again = [one for _, reopened in found for one in reopened]
    known = pl.col("node").is_in([one.node for one in book.open])
    rows = {(row["node"], row["horizon_h"]): row for row in scores.filter(known).to_dicts()}
    still = [_seen(one, tick, rows.get(one.place), lead=lead) for one in book.open]
    is_open = {one.place for one in still if one.closed_at is None}
    # Of an alert that is open already, a new one is an update: whoever is told knows it.
    fired = [one for one in (*raised, *again) if one.place not in is_open]
    resolved = [one for one in still if one.closed_at is not None]
    kinds = [("fired", one) for one in fired] + [("resolved", one) for one in resolved]
    events = [Event(kind=kind, alert=one, at=tick.as_of) for kind, one in kinds]
    is_back = {one.key for one in again}
    over = _still_told(book, tick, has_alertmanager=has_alertmanager)
    recent = [*book.raised, *((*one.place, one.as_of) for one in raised)]
    return replace(
        book,
        as_of=tick.as_of,
        open=(*(one for one in still if one.closed_at is None), *fired),
        closed=(*(one for one in over if one.key not in is_back), *resolved),
        raised=tuple(one for one in recent if one[2] > tick.as_of - _longest_cooldown(tick)),
        outbox=(*book.outbox, *(events if has_webhook else ())),
        unstored=(*book.unstored, *raised),
    )


def rewind(book: AlertBook, *, to: datetime) -> AlertBook:
    """The book as if nothing later had been, after ticks of a wrong clock were taken back.

    Args:
        book: A book of a later tick.
        to: The tick that is the newest now.
    """
    open_then = [
        replace(one, closed_at=None, why_closed="")
        for one in (*book.open, *book.closed)
        if one.as_of <= to and (one.closed_at is None or one.closed_at > to)
    ]
    return AlertBook(
        as_of=to,
        open=tuple(replace(one, last_above=min(one.last_above, to)) for one in open_then),
        closed=tuple(one for one in book.closed if one.closed_at and one.closed_at <= to),
        raised=tuple(one for one in book.raised if one[2] <= to),
        outbox=tuple(one for one in book.outbox if one.at <= to),
        unstored=tuple(one for one in book.unstored if one.as_of <= to),
    )


def alerts_frame(alerts: Sequence[Alert]) -> pl.DataFrame:
    """Alerts as the score database takes them (`score_database.write_alerts`)."""
    rows = [{name: getattr(one, name) for name in _RAISED_SCHEMA} for one in alerts]
    return pl.DataFrame(rows, schema=_RAISED_SCHEMA)


def _longest_cooldown(tick: Tick) -> timedelta:
    return max((policy.cooldown for policy in tick.policies.values()), default=timedelta(0))


def _still_told(book: AlertBook, tick: Tick, *, has_alertmanager: bool) -> list[Alert]:
    """The closed alerts that are still told to be over.

    One that Alertmanager has not heard to be over is kept until its horizon ends it there.
    """
    since = tick.as_of - max(_KEEP_CLOSED, _longest_cooldown(tick))

    def is_kept(one: Alert, closed_at: datetime) -> bool:
        is_told = book.told_at is not None and closed_at <= book.told_at
        return closed_at > since or (has_alertmanager and not is_told and tick.as_of < one.ends_at)

    return [one for one in book.closed if is_kept(one, one.closed_at or one.as_of)]


def _raised(
    book: AlertBook,
    tick: Tick,
    scores: pl.DataFrame,
    earlier: pl.DataFrame,
    horizon_h: int,
    policy: WarningPolicy,
    *,
    lead: timedelta,
) -> tuple[list[Alert], list[Alert]]:
    """The alerts that the policy raises at this tick, and those that would be but for the cooldown.

    Of the latter, the closed alerts that are opened again.
    """
    columns = (pl.col("node").alias("entity_id"), "as_of", "score")
    own = scores.filter(pl.col("horizon_h") == horizon_h, pl.col("score") >= policy.threshold)
    since = tick.as_of - policy.k * policy.tick
    before = earlier.filter(
        pl.col("horizon_h") == horizon_h, pl.col("as_of") > since, pl.col("as_of") < tick.as_of
    )
    known = pl.DataFrame(
        [(node, at) for node, h, at in book.raised if h == horizon_h],
        schema={"entity_id": pl.String, "as_of": UTC_TIME},
        orient="row",
    )
    both = pl.concat([before.select(*columns), own.select(*columns)])
    is_now = pl.col("as_of") == tick.as_of
    fresh = set(raise_alerts(both, policy, earlier=known).filter(is_now)["entity_id"])
    without = replace(policy, cooldown=timedelta(0))
    ready = set(raise_alerts(both, without).filter(is_now)["entity_id"]) - fresh
    is_open = {one.node for one in book.open if one.horizon_h == horizon_h}
    closed = {one.node: one for one in book.closed if one.horizon_h == horizon_h}
    raised, again = [], []
    for row in own.sort("node").iter_rows(named=True):
        if row["node"] in fresh:
            raised.append(_alert(row, tick, policy, lead=lead))
        elif row["node"] in ready & closed.keys() - is_open:
            over = replace(closed[row["node"]], closed_at=None, why_closed="")
            again.append(_seen(over, tick, row, lead=lead))
    return raised, again


def _alert(row: Mapping[str, Any], tick: Tick, policy: WarningPolicy, *, lead: timedelta) -> Alert:
    """A new alert of a node's row."""
    return Alert(
        node=row["node"],
        horizon_h=row["horizon_h"],
        as_of=tick.as_of,
        last_above=tick.as_of,
        ends_at=tick.as_of + lead + timedelta(hours=row["horizon_h"]),
        score=row["score"],
        threshold=policy.threshold,
        fault_type=row["fault_type"],
        reasons=tuple(row["reasons"]),
        model_version=row["model_version"],
    )


def _seen(alert: Alert, tick: Tick, row: Mapping[str, Any] | None, *, lead: timedelta) -> Alert:
    """An open alert after one more tick."""
    policy = tick.policies.get(alert.horizon_h)
    score = None if row is None else row["score"]
    if policy is None:
        # A model that cannot be loaded says nothing, not even its policy.
        if score is None and tick.as_of < alert.ends_at:
            return alert
        return replace(alert, closed_at=tick.as_of, why_closed="this horizon has no policy now")
    if row is not None and score is not None and score >= policy.threshold:
        return replace(
            alert,
            last_above=tick.as_of,
            ends_at=tick.as_of + lead + timedelta(hours=alert.horizon_h),
            score=score,
            threshold=policy.threshold,
            fault_type=row["fault_type"],
            reasons=tuple(row["reasons"]),
            model_version=row["model_version"],
        )
    if tick.as_of >= alert.ends_at:
        return replace(alert, closed_at=tick.as_of, why_closed="its horizon has passed")
    if score is not None and tick.as_of - alert.last_above >= policy.k * policy.tick:
        return replace(alert, closed_at=tick.as_of, why_closed="the score is below the threshold")
    return alert
