"""What people's accepted requests mean at present: approvals, holds, causes, returns, and stops.

Pure: how a request is read and checked is in `remediation.signed_requests`; entries are written
elsewhere.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from remediation.cluster.state import ClusterState
from remediation.ledger.entries import Entry, Ledger, NewEntry, time_text
from remediation.signed_requests import LONGEST_LIFE, Open, Present, RefusedError, SignedRequest
from remediation.site import Site

CauseVerdict = Literal["repaired", "false_alarm"]

_OPEN_FOR: Final = timedelta(days=7)
"""How far back a decision is looked for; no score holds that long."""


@dataclass(frozen=True, kw_only=True)
class Approval:
    """Leave to carry out once, on one node and boot, what the policy only recommends.

    Attributes:
        actor: Who gave it.
        decision_id: The decision that was approved.
        boot_id: Instance and boot; None: unknown then.
        wanted: The most that may be done.
        expires_at: When the scores that the decision rests on expire.
        recorded_at: When the hook took it.
    """

    actor: str
    decision_id: str
    boot_id: str | None
    wanted: str
    expires_at: datetime
    recorded_at: datetime


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a person asked of one node.

    Attributes:
        actor: Who.
        at: When it was asked; at the latest when the hook took it.
        boot_id: Instance and boot that the person saw; None: unknown.
    """

    actor: str
    at: datetime
    boot_id: str | None


@dataclass(frozen=True, kw_only=True)
class Cause(Wish):
    """What a person found to be the cause of a drain.

    Attributes:
        verdict: The cause was repaired, or there was none.
    """

    verdict: CauseVerdict


@dataclass(frozen=True, kw_only=True)
class LeftAlone:
    """A node that a person wants left alone.

    Attributes:
        actor: Who.
        until: Until when.
    """

    actor: str
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Requested:
    """All that people asked for and that still counts.

    Attributes:
        approvals: Approvals that nothing was done with yet, by node.
        left_alone: Nodes to leave alone, by node; ended ones included.
        causes: The last finding, by node.
        undrains: The last wish to have a node back, by node.
        stopped_by: Why automation is stopped, in words; None: it is not.
    """

    approvals: Mapping[str, Approval] = field(default_factory=dict)
    left_alone: Mapping[str, LeftAlone] = field(default_factory=dict)
    causes: Mapping[str, Cause] = field(default_factory=dict)
    undrains: Mapping[str, Wish] = field(default_factory=dict)
    stopped_by: str | None = None

    def approval(self, node: str, boot_id: str | None, now: datetime) -> Approval | None:
        """The approval that lets a node be acted on now, if there is one.

        Args:
            node: Node.
            boot_id: Its boot, as decided for.
            now: The present.
        """
        found = self.approvals.get(node)
        if found is None or found.boot_id != boot_id or now >= found.expires_at:
            return None
        return found

    def held_back(self, node: str, now: datetime) -> LeftAlone | None:
        """Who wants a node left alone now, if anyone."""
        found = self.left_alone.get(node)
        return found if found is not None and now < found.until else None


def requested_of(entries: Iterable[Entry], *, actuator: str) -> Requested:
    """Reads what people asked for out of the entries.

    The order in which requests came does not matter, only when each was made: a stop that was
    delayed still stops, and a `unkill` made before it does not end it.

    Args:
        entries: Entries of the kinds request, intent and result, in order.
        actuator: Only requests to its hook count; a stop counts for all.
    """
    known = list(entries)
    accepted = [one for one in known if one.kind == "request" and one.body["status"] == "accepted"]
    own = sorted((one for one in accepted if one.actuator == actuator), key=_asked_at)
    spent = _last_act(known, actuator=actuator)
    return Requested(
        approvals={
            node: _approval(one)
            for node, one in _last(own, "approve").items()
            if not _is_spent(one, spent)
        },
        left_alone={
            node: LeftAlone(actor=one.actor, until=datetime.fromisoformat(one.body["until"]))
            for node, one in _last(own, "hold").items()
        },
        causes={
            node: Cause(verdict=one.body["what"], **_wish(one))
            for node, one in _last(own, "repaired", "false_alarm").items()
        },
        undrains={node: Wish(**_wish(one)) for node, one in _last(own, "undrain").items()},
        stopped_by=_stopped_by(accepted),
    )


def request_entry(
    signed: SignedRequest,
    *,
    actuator: str,
    present: Present,
    refused: RefusedError | None = None,
) -> NewEntry:
    """The entry that keeps a request, accepted or refused; `requested_of` reads it back.

    Args:
        signed: The request, its signature checked.
        actuator: The hook's actuator.
        present: What it was judged by.
        refused: Why it is refused; None: it is accepted.
    """
    request = signed.request
    body = {
        "what": request.what,
        "status": "accepted" if refused is None else "refused",
        "rule": None if refused is None else refused.rule,
        "reason": None if refused is None else refused.reason,
        "boot_id": request.boot_id,
        "created": time_text(request.created),
        "expires": time_text(request.expires),
        "until": None if request.until is None else time_text(request.until),
        "escalation": request.escalation,
        "key_id": request.key_id,
        "digest": signed.digest,
        "signature": signed.signature,
    }
    return NewEntry(
        key=request.ledger_key,
        kind="request",
        recorded_at=present.now,
        actuator=actuator,
        actor=request.actor,
        node=request.node,
        decision_id=request.decision_id,
        body={**body, **_approved(request.decision_id, present)},
    )


def present_of(
    ledger: Ledger,
    state: ClusterState,
    *,
    actuator: str,
    actors: Mapping[str, Sequence[str]],
    site: Site,
    now: datetime,
) -> Present:
    """What requests are judged by.

    Args:
        ledger: The ledger.
        state: The cluster now.
        actuator: The hook's actuator; approvals are of its decisions.
        actors: What each known actor may ask for.
        site: Gives the present policy level.
        now: The present.
    """
    escalations = ledger.entries(kinds=("escalation",))
    return Present(
        now=now,
        actors={name: tuple(may) for name, may in actors.items()},
        boots={node.name: node.boot_id for node in state.nodes},
        open_decision=_finder(ledger, actuator=actuator, site=site, now=now),
        escalations=frozenset(one.key for one in escalations),
    )


def _finder(
    ledger: Ledger, *, actuator: str, site: Site, now: datetime
) -> Callable[[str], Open | None]:
    """Reads decisions only when one is asked for, for most runs have nothing to approve."""

    def find(decision_id: str) -> Open | None:
        recent = ledger.entries(kinds=("decision",), since=now - _OPEN_FOR - LONGEST_LIFE)
        for one in reversed(recent):
            body = one.body if (one.decision_id, one.actuator) == (decision_id, actuator) else {}
            if "expires_at" in body:
                return Open(
                    node=str(one.node),
                    boot_id=body["boot_id"],
                    wanted=body["wanted"],
                    expires_at=datetime.fromisoformat(body["expires_at"]),
                    level=site.level_of(str(one.node), body["fault_type"])[0],
                )
        return None

    return find


def _approved(decision_id: str | None, present: Present) -> dict[str, Any]:
    """What an approval needs to know of its decision when that is no longer looked for."""
    found = None if decision_id is None else present.open_decision(decision_id)
    if found is None:
        return {}
    return {"wanted": found.wanted, "scores_expire_at": time_text(found.expires_at)}


def _last(own: Iterable[Entry], *whats: str) -> dict[str, Entry]:
    """The last such request of each node."""
    return {str(one.node): one for one in own if one.body["what"] in whats}


def _wish(entry: Entry) -> dict[str, Any]:
    return {"actor": entry.actor, "at": _asked_at(entry), "boot_id": entry.body["boot_id"]}


def _approval(entry: Entry) -> Approval:
    body = entry.body
    return Approval(
        actor=entry.actor,
        decision_id=str(entry.decision_id),
        boot_id=body["boot_id"],
        wanted=body["wanted"],
        expires_at=datetime.fromisoformat(body["scores_expire_at"]),
        recorded_at=entry.recorded_at,
    )


def _last_act(entries: Iterable[Entry], *, actuator: str) -> dict[str | None, int]:
    """The place of each node's last act, or what may be one; it spends the approvals before it.

    By place, for a clock that was set back must not let an approval count twice.
    """
    own = [one for one in entries if one.actuator == actuator]
    undone = {
        one.refers_to for one in own if one.kind == "result" and one.body["status"] == "not_done"
    }
    return {one.node: one.seq for one in own if one.kind == "intent" and one.key not in undone}


def _is_spent(approval: Entry, last_act: Mapping[str | None, int]) -> bool:
    return last_act.get(approval.node, 0) > approval.seq


def _asked_at(entry: Entry) -> datetime:
    # A clock that runs ahead must not make a request outlast later ones.
    return min(datetime.fromisoformat(entry.body["created"]), entry.recorded_at)


def _stopped_by(accepted: Iterable[Entry]) -> str | None:
    last: dict[str, Entry] = {}
    for one in accepted:
        what = one.body["what"]
        if what in ("kill", "unkill") and (
            what not in last or _asked_at(one) >= _asked_at(last[what])
        ):
            last[what] = one
    kill, unkill = last.get("kill"), last.get("unkill")
    if kill is None or (unkill is not None and _asked_at(unkill) > _asked_at(kill)):
        return None
    return f"stopped by {kill.actor} at {_asked_at(kill):%Y-%m-%d %H:%M} UTC"
