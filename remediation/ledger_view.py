"""What the ledger says about the present: nodes held, intents left open, actions, alerts, bursts.

Pure folds over entries; nothing is written or read here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from features.contracts import UTC_TIME
from remediation.actuators.protocol import EFFECTIVE
from remediation.ledger import Entry

HOLD_KINDS: Final = ("intent", "result", "released")
SIGNAL_KINDS: Final = ("observed", "escalation", "acknowledged")

ALERT_SCHEMA: Final = pl.Schema(
    {"entity_id": pl.String(), "as_of": UTC_TIME, "score": pl.Float64()}
)


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A node that one of our intents took, or may have taken.

    Attributes:
        intent_key: The intent.
        decision_id: Its decision.
        node: Node.
        boot_id: Boot it was taken at.
        action: What was done.
        since: When it was intended.
        is_open: Whether the intent has no result, so that nobody knows.
        until: End of a dry run's hold; None: until it is released.
    """

    intent_key: str
    decision_id: str
    node: str
    boot_id: str | None
    action: str
    since: datetime
    is_open: bool
    until: datetime | None


@dataclass(frozen=True, kw_only=True)
class LedgerView:
    """The ledger as of now, for one actuator.

    Attributes:
        holds: Nodes held, by name.
        acted_at: Times of the actions that were, or may have been, carried out.
        settled: Decision ids that were carried out.
        attempts: Intents by decision id.
        given_back: When a node we held was last found returned by someone else.
    """

    holds: Mapping[str, Hold] = field(default_factory=dict)
    acted_at: tuple[datetime, ...] = ()
    settled: frozenset[str] = frozenset()
    attempts: Mapping[str, int] = field(default_factory=dict)
    given_back: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def open_holds(self) -> tuple[Hold, ...]:
        """Holds whose outcome is unknown, oldest first."""
        return tuple(
            sorted((hold for hold in self.holds.values() if hold.is_open), key=lambda h: h.since)
        )


def view_ledger(entries: Iterable[Entry], *, actuator: str, now: datetime) -> LedgerView:
    """Folds intents, results and releases.

    Args:
        entries: Entries of `HOLD_KINDS`, in order.
        actuator: Only entries of this actuator count: a dry run holds nothing for a real one.
        now: The present, which ends a dry run's holds.
    """
    intents: dict[str, Entry] = {}
    results: dict[str, Entry] = {}
    released: dict[str, Entry] = {}
    for entry in entries:
        if entry.actuator != actuator:
            continue
        if entry.kind == "intent":
            intents[entry.key] = entry
        elif entry.kind == "result" and entry.refers_to:
            results[entry.refers_to] = entry
        elif entry.kind == "released" and entry.refers_to:
            released[entry.refers_to] = entry
    in_force = {
        key: intent
        for key, intent in intents.items()
        if key not in results or results[key].body["status"] in EFFECTIVE
    }
    holds = [
        _hold(intent, results.get(key)) for key, intent in in_force.items() if key not in released
    ]
    given_back: dict[str, datetime] = {}
    for entry in released.values():
        if entry.node and entry.body["by"] == "other":
            given_back[entry.node] = entry.recorded_at
    return LedgerView(
        holds={h.node: h for h in holds if h.until is None or now < h.until},
        acted_at=tuple(intent.recorded_at for intent in in_force.values()),
        settled=frozenset(
            intent.decision_id or "" for key, intent in in_force.items() if key in results
        ),
        attempts=Counter(intent.decision_id or "" for intent in intents.values()),
        given_back=given_back,
    )


def _hold(intent: Entry, result: Entry | None) -> Hold:
    body = intent.body
    until = result.body.get("held_until") if result else None
    return Hold(
        intent_key=intent.key,
        decision_id=intent.decision_id or "",
        node=intent.node or "",
        boot_id=body["before"]["boot_id"],
        action=body["action"],
        since=intent.recorded_at,
        is_open=result is None,
        until=datetime.fromisoformat(until) if until else None,
    )


def alerts_seen(entries: Iterable[Entry], *, horizon_h: int) -> pl.DataFrame:
    """The scores above the threshold that earlier runs saw.

    A change of model or of fault type does not start the count anew.

    Args:
        entries: Entries of kind `observed`; several of one as_of count once.
        horizon_h: Only scores of this horizon.

    Returns:
        `entity_id` (node), `as_of`, `score`, sorted, one row per node and moment.
    """
    rows = [
        {"entity_id": node, "as_of": datetime.fromisoformat(body["as_of"]), "score": score}
        for entry in entries
        if entry.kind == "observed" and (body := entry.body)["horizon_h"] == horizon_h
        for node, score in body["above"].items()
    ]
    return (
        pl.DataFrame(rows, schema=ALERT_SCHEMA)
        .unique(["entity_id", "as_of"], keep="last", maintain_order=True)
        .sort("entity_id", "as_of")
    )


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Automation stopped by a burst, until a person acknowledges it or its time is over.

    Attributes:
        key: The escalation in the ledger.
        scope: `fleet`, or the component, such as `rack r7`.
        nodes: Nodes it stops; None: every node.
        text: Why, in words.
    """

    key: str
    scope: str
    nodes: frozenset[str] | None
    text: str

    def covers(self, node: str) -> bool:
        """Whether it stops action on a node."""
        return self.nodes is None or node in self.nodes


def stops_in_force(
    entries: Iterable[Entry], *, now: datetime, hold_for: timedelta
) -> tuple[Stop, ...]:
    """Bursts that earlier runs escalated and nobody acknowledged.

    Args:
        entries: Entries of `SIGNAL_KINDS`, in order.
        now: The present.
        hold_for: How long one stops automation at most.
    """
    raised: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind == "escalation" and entry.body.get("rule") == "burst":
            raised[entry.key] = entry
        elif entry.kind == "acknowledged" and entry.refers_to:
            raised.pop(entry.refers_to, None)
    return tuple(
        Stop(
            key=entry.key,
            scope=entry.body["scope"],
            nodes=None if entry.body["scope"] == "fleet" else frozenset(entry.body["nodes"]),
            text=entry.body["text"],
        )
        for entry in raised.values()
        if now < entry.recorded_at + hold_for
    )
