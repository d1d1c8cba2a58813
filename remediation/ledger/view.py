"""What the ledger's entries mean at present: who is held, what is settled, open, failed or paused.

Pure: entries are read and written in `remediation.hook`; the cluster is not looked at.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Self

from remediation.actuators.protocol import EFFECTIVE
from remediation.ledger.entries import Entry

STATE_KINDS: Final = ("intent", "result", "released", "escalation", "acknowledged")
"""Kinds that say how things stand; they are read whole, for a node may be held for weeks."""

RATE_WINDOW: Final = timedelta(hours=1)
ATTEMPTS_WINDOW: Final = timedelta(hours=24)
_OPEN: Final = "open"


@dataclass(frozen=True, kw_only=True)
class Held:
    """A node that the ledger says we hold.

    Attributes:
        intent_key: The intent it was taken with.
        action: How.
        boot_id: Instance and boot that was taken; None: unknown.
        since: When.
        is_seen: Whether the node showed it right after; False: an order was accepted only.
    """

    intent_key: str
    action: str
    boot_id: str | None
    since: datetime
    is_seen: bool = True


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A stop of automation after a burst.

    Attributes:
        scope: `fleet`, `rack r1`, `switch s1`.
        nodes: The nodes that made it.
        text: What happened, in words.
        until: When it ends by itself.
        is_acknowledged: Whether a person has ended it.
    """

    scope: str
    nodes: tuple[str, ...]
    text: str
    until: datetime
    is_acknowledged: bool

    def is_active(self, now: datetime) -> bool:
        """Whether it stops automation at `now`."""
        return not self.is_acknowledged and now < self.until


@dataclass(frozen=True)
class Observed:
    """A node at or above the threshold in one tick.

    Attributes:
        node: Node.
        boot_id: Its boot then; None: unknown.
        as_of: The tick.
        score: The score.
    """

    node: str
    boot_id: str | None
    as_of: datetime
    score: float


@dataclass(frozen=True)
class SeenTick:
    """The nodes at or above the threshold in one earlier tick, by columns.

    A day of ticks of a large fleet on a bad day is several hundred thousand rows; as one value
    each they would cost more than everything else in a run.

    Attributes:
        as_of: The tick.
        nodes: The nodes.
        boot_ids: Boot of each then; None: unknown.
        scores: Score of each.
    """

    as_of: datetime
    nodes: tuple[str, ...]
    boot_ids: tuple[str | None, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class LedgerView:
    """How things stand for one actuator.

    Attributes:
        held: Nodes we hold.
        settled: Action carried out, by decision id.
        tries: Intents written, by decision id.
        open_intents: Intents without result, in order.
        unclear: Intents of which nobody knows what came of them, in order.
        ambiguous: Why a node must be left alone until a person has looked, by node.
        acted_at: When nodes were acted on; tries that surely changed nothing do not count.
        failed: Tries that came to nothing within `ATTEMPTS_WINDOW`, by node and boot.
        undrained: When a node that we held was last let go.
        holds: Stops after bursts, ended ones included.
        steps: Outcomes of what was done with a hold later, in order, by hold and step.
        unfinished: Holds whose node was not empty when it was last seen to, and that go on.
        acknowledged: Keys of the escalations that a person has looked at.
    """

    held: Mapping[str, Held] = field(default_factory=dict)
    settled: Mapping[str, str] = field(default_factory=dict)
    tries: Mapping[str, int] = field(default_factory=dict)
    open_intents: tuple[Entry, ...] = ()
    unclear: tuple[Entry, ...] = ()
    ambiguous: Mapping[str, str] = field(default_factory=dict)
    acted_at: tuple[datetime, ...] = ()
    failed: Mapping[tuple[str, str | None], int] = field(default_factory=dict)
    undrained: Mapping[str, datetime] = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    steps: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    unfinished: frozenset[str] = frozenset()
    acknowledged: frozenset[str | None] = frozenset()


def escalation_key(about: str) -> str:
    """Key of the escalation about a thing, such as an intent's key."""
    return f"escalation:{about}"


def view_of(
    entries: Iterable[Entry], *, actuator: str, now: datetime, would_hold: timedelta
) -> LedgerView:
    """Reads how things stand out of the entries.

    Args:
        entries: Entries of `STATE_KINDS`, in order.
        actuator: Only its entries count, so that dry runs and real ones never mix.
        now: The present.
        would_hold: How long a node that a dry run would have taken counts as held.
    """
    own = [entry for entry in entries if entry.actuator == actuator]
    answers = {
        kind: {entry.refers_to: entry for entry in own if entry.kind == kind}
        for kind in ("result", "released", "acknowledged")
    }
    begun = [_Taken.of(entry, answers) for entry in own if entry.kind == "intent"]
    taken = [one for one in begun if "step" not in one.intent.body]
    ambiguous = {one.node: _why_unclear(one.intent, one.result) for one in begun if one.is_unclear}
    return LedgerView(
        held={one.node: _held(one) for one in taken if one.is_held(now, would_hold)},
        settled={
            str(one.intent.decision_id): one.intent.body["action"]
            for one in taken
            if one.status in EFFECTIVE
        },
        tries=Counter(str(one.intent.decision_id) for one in taken),
        open_intents=tuple(one.intent for one in begun if one.result is None),
        unclear=tuple(one.intent for one in begun if one.is_unclear),
        ambiguous=ambiguous,
        acted_at=tuple(one.intent.recorded_at for one in taken if one.status != "not_done"),
        failed=_failed(taken, since=now - ATTEMPTS_WINDOW),
        undrained=_undrained(answers["released"].values()),
        holds=_holds(own, answers["acknowledged"]),
        steps=_steps(begun),
        unfinished=_unfinished(begun),
        acknowledged=frozenset(answers["acknowledged"]),
    )


def observed_of(entries: Iterable[Entry], *, actuator: str) -> tuple[SeenTick, ...]:
    """The nodes above the threshold in earlier ticks.

    Args:
        entries: Entries of kind `observed`.
        actuator: Only its entries count.
    """
    return tuple(
        SeenTick(
            datetime.fromisoformat(body["as_of"]),
            tuple(body["nodes"]),
            tuple(body["boot_ids"]),
            tuple(body["scores"]),
        )
        for entry in entries
        if entry.kind == "observed" and entry.actuator == actuator
        for body in (entry.body,)
    )


def observed_body(above: Sequence[Observed], *, as_of: datetime) -> dict[str, Any]:
    """The body of an `observed` entry; `observed_of` reads it back."""
    return {
        "as_of": as_of.isoformat(),
        "nodes": [one.node for one in above],
        "boot_ids": [one.boot_id for one in above],
        "scores": [one.score for one in above],
    }


@dataclass(frozen=True)
class _Taken:
    """An intent with what answers it."""

    intent: Entry
    result: Entry | None
    is_released: bool
    is_acknowledged: bool

    @classmethod
    def of(cls, intent: Entry, answers: Mapping[str, Mapping[str | None, Entry]]) -> Self:
        return cls(
            intent,
            answers["result"].get(intent.key),
            is_released=intent.key in answers["released"],
            is_acknowledged=escalation_key(intent.key) in answers["acknowledged"],
        )

    @property
    def node(self) -> str:
        return str(self.intent.node)

    @property
    def status(self) -> str:
        return _OPEN if self.result is None else str(self.result.body["status"])

    @property
    def is_unclear(self) -> bool:
        return self.status in (_OPEN, "ambiguous") and not self.is_acknowledged

    def is_held(self, now: datetime, would_hold: timedelta) -> bool:
        if self.status == "would_do":
            return now < self.intent.recorded_at + would_hold
        return self.is_unclear or (self.status == "done" and not self.is_released)


def _held(one: _Taken) -> Held:
    body = one.intent.body
    after = None if one.result is None else one.result.body.get("after")
    return Held(
        intent_key=one.intent.key,
        action=body["action"],
        boot_id=body["boot_id"],
        since=one.intent.recorded_at,
        is_seen=after is None or after["state"] != "up",
    )


def _steps(begun: Iterable[_Taken]) -> dict[tuple[str, str], tuple[str, ...]]:
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for one in begun:
        if "step" in one.intent.body:
            key = (one.intent.body["of"], one.intent.body["step"])
            found[key] = (*found.get(key, ()), one.status)
    return found


def _unfinished(begun: Iterable[_Taken]) -> frozenset[str]:
    """By the last outcome of each hold that says what is left; one that does not leaves it so."""
    is_left: dict[str, bool] = {}
    for one in begun:
        if one.result is not None and one.status == "done":
            hold = str(one.intent.body.get("of", one.intent.key))
            is_left[hold] = bool(one.result.body.get("left"))
    return frozenset(hold for hold, is_one in is_left.items() if is_one)


def _why_unclear(intent: Entry, result: Entry | None) -> str:
    what = intent.body.get("step") or intent.body["action"]
    said = f"{what} of {intent.recorded_at:%Y-%m-%d %H:%M} UTC"
    if result is None:
        return f"{said} was begun and has no result: nobody knows whether it was done"
    return f"{said} ended unclear: {result.body['detail']}"


def _failed(taken: Iterable[_Taken], *, since: datetime) -> dict[tuple[str, str | None], int]:
    """A node that was replaced does not inherit what came to nothing before."""
    return Counter(
        (one.node, one.intent.body["boot_id"])
        for one in taken
        if one.status == "not_done" and one.intent.recorded_at > since
    )


def _undrained(released: Iterable[Entry]) -> dict[str, datetime]:
    """When a node was last let go, by whomever and however.

    By a person, by us after a check or because it was stuck, by a restart, or to somebody who holds
    it in their own name: its score is as high as before, and would have it taken again at once.
    """
    return {str(entry.node): entry.recorded_at for entry in released}


def _holds(own: Sequence[Entry], acknowledged: Mapping[str | None, Entry]) -> tuple[Hold, ...]:
    return tuple(
        Hold(
            scope=entry.body["scope"],
            nodes=tuple(entry.body["nodes"]),
            text=entry.body["text"],
            until=datetime.fromisoformat(entry.body["until"]),
            is_acknowledged=entry.key in acknowledged,
        )
        for entry in own
        if entry.kind == "escalation" and entry.body["why"] == "burst"
    )
