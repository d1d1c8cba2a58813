"""What the hook holds, wants, was stopped from, and asks a person, as its ledger tells it.

Read only, and without the cluster: the board has none of its credentials. What the entries mean is
in `remediation.ledger.view` and `remediation.inbox.requested`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.api.ledger_reader import LedgerReader
from remediation.inbox.requested import Requested, requested_of
from remediation.ledger.entries import KINDS, Entry
from remediation.ledger.view import LedgerView
from remediation.program.requests import short_id
from remediation.program.why import CHANGES

_MOST: Final = 5000
"""Entries looked at, newest first: a tick of a large fleet on a bad day has some hundred."""

_OPEN_FOR: Final = timedelta(days=7)
_OWN: Final = tuple(kind for kind in KINDS if kind not in ("request", "acknowledged"))


@dataclass(frozen=True)
class Stop:
    """A guard that said no.

    Attributes:
        guard: Its name.
        reason: Why.
        would_change: What would change it; empty: nobody can say.
    """

    guard: str
    reason: str
    would_change: str


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The newest decision about a node.

    Attributes:
        decision_id: Its id.
        node: Node.
        as_of: Moment of the scores it rests on.
        at: When it was decided.
        expires_at: Until when an approval of it counts.
        boot_id: The boot it is about; None: unknown.
        wanted: What the policy wants.
        action: What the guards leave of it.
        sentence: All of it in one sentence.
        stops: Guards that said no.
        passed: Guards that said yes, each with its reason.
    """

    decision_id: str
    node: str
    as_of: datetime
    at: datetime
    expires_at: datetime
    boot_id: str | None
    wanted: str
    action: str
    sentence: str
    stops: tuple[Stop, ...]
    passed: tuple[tuple[str, str], ...]

    @property
    def is_to_approve(self) -> bool:
        """Whether a person's leave is all that is wanting."""
        return [one.guard for one in self.stops] == ["policy_level"] and self.wanted != "watch"


@dataclass(frozen=True)
class Asked:
    """Something that waits for a person.

    Attributes:
        key: Its key in the ledger.
        why: Its kind.
        node: Node; None: not about one.
        at: When it came up.
        text: In words.
    """

    key: str
    why: str
    node: str | None
    at: datetime
    text: str

    @property
    def id(self) -> str:
        """What it is acknowledged by at a terminal."""
        return short_id(self.key)


@dataclass(frozen=True, kw_only=True)
class HookView:
    """How the hook stands by its ledger.

    Attributes:
        problem: Why the ledger cannot be read; empty: it was.
        actuator: By what it acts; None: it never wrote anything.
        wrote_at: When it wrote last.
        view: Holds and open intents.
        requested: What people asked for and still counts.
        decided: Newest decision by node.
        asked: What waits for a person, the oldest first.
        outcomes: Entries of requests by nonce.
    """

    problem: str = ""
    actuator: str | None = None
    wrote_at: datetime | None = None
    view: LedgerView = field(default_factory=LedgerView)
    requested: Requested = field(default_factory=Requested)
    decided: Mapping[str, Decided] = field(default_factory=dict)
    asked: tuple[Asked, ...] = ()
    outcomes: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def is_dry_run(self) -> bool:
        """Whether it only records what it would do."""
        return self.actuator == "dry_run"

    def of_tick(self, as_of: datetime) -> tuple[Decided, ...]:
        """Decisions that rest on the scores of a moment, those that act first."""
        found = [one for one in self.decided.values() if one.as_of == as_of]
        return tuple(sorted(found, key=lambda one: (bool(one.stops), one.node)))


def hook_view(ledger: LedgerReader, *, now: datetime) -> HookView:
    """How the hook stands.

    Args:
        ledger: Reads its ledger.
        now: The present.

    Raises:
        LedgerError: It cannot be read.
    """
    standing = ledger.standing(now)
    requests = ledger.entries(kinds=("request", "intent", "result"), limit=_MOST)[::-1]
    if standing is None:
        return HookView(outcomes=_outcomes(requests))
    own = ledger.entries(kinds=_OWN, limit=1)
    decisions = ledger.entries(kinds=("decision",), limit=_MOST)[::-1]
    return HookView(
        actuator=standing.actuator,
        wrote_at=own[0].recorded_at if own else None,
        view=standing.view,
        requested=requested_of(requests, actuator=standing.actuator),
        decided=_decided(decisions, actuator=standing.actuator),
        asked=tuple(
            Asked(one.key, str(one.body["why"]), one.node, one.recorded_at, str(one.body["text"]))
            for one in standing.waiting
            if _is_open(one, standing.view, now)
        ),
        outcomes=_outcomes(requests),
    )


def _is_open(one: Entry, view: LedgerView, now: datetime) -> bool:
    """Whether a question still matters: without the cluster, that is told by its age."""
    if one.body["why"] == "ambiguous":
        return one.node in view.ambiguous
    if one.body["why"] == "burst":
        return any(hold.is_active(now) and hold.text == one.body["text"] for hold in view.holds)
    return now - one.recorded_at < _OPEN_FOR


def _outcomes(entries: Sequence[Entry]) -> dict[str, Entry]:
    return {one.key.removeprefix("request:"): one for one in entries if one.kind == "request"}


def _decided(entries: Sequence[Entry], *, actuator: str) -> dict[str, Decided]:
    return {
        str(one.node): _one(one, one.body)
        for one in entries
        if one.kind == "decision" and one.actuator == actuator
    }


def _one(entry: Entry, body: Mapping[str, Any]) -> Decided:
    verdicts = [(str(v[0]), bool(v[1]), str(v[2])) for v in body["verdicts"]]
    return Decided(
        decision_id=str(entry.decision_id),
        node=str(entry.node),
        as_of=datetime.fromisoformat(body["as_of"]),
        at=entry.recorded_at,
        expires_at=datetime.fromisoformat(body["expires_at"]),
        boot_id=body["boot_id"],
        wanted=str(body["wanted"]),
        action=str(body["action"]),
        sentence=str(body["sentence"]),
        stops=tuple(
            Stop(guard, reason, _change(guard, entry))
            for guard, is_allowed, reason in verdicts
            if not is_allowed
        ),
        passed=tuple((guard, reason) for guard, is_allowed, reason in verdicts if is_allowed),
    )


def _change(guard: str, entry: Entry) -> str:
    """The board's own buttons stand beside it, so commands stay for those at a terminal."""
    words = CHANGES.get(guard, "")
    return words.replace("{node}", str(entry.node)).replace("{decision}", str(entry.decision_id))
