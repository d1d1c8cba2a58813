"""Why a node was taken, or was not: its last decision, every guard's verdict, what would change it.

Nothing is changed here; the present is found by a rehearsed round.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from features.errors import DataError, ForewarnError
from remediation.actuators.protocol import read_state
from remediation.cluster.state import NodeView
from remediation.decision import Judged
from remediation.ledger.entries import Entry
from remediation.ledger.view import LedgerView
from remediation.plan import plain
from remediation.program.rehearsal import rehearse
from remediation.program.round import DONE, NEEDS_A_PERSON, Hook

CHANGES: Final[Mapping[str, str]] = {
    "kill_switch": "lift it: forewarn remediate kill-switch off",
    "scores_in_time": "new scores; look at what publishes them",
    "score_known": "telemetry of the node",
    "model_fit_to_act": "a promoted model that was trained on real data",
    "policy_level": "a higher level for this group and fault in the site's settings; at level "
    "recommend a person's: forewarn remediate approve {decision}",
    "listed": "the site's allow and deny lists",
    "not_held_out": "the site's hold_out; a person can drain the node by hand, or at level "
    "recommend: forewarn remediate approve {decision}",
    "node_state": "the node being up, and held by nobody",
    "same_boot": "the next round, on the boot that it has now",
    "not_held": "its return: forewarn remediate undrain {node}",
    "clear_record": "a person's look at the node; then acknowledge what `status` lists",
    "attempts_left": "a day without tries; look at why they came to nothing",
    "cooled_down": "time; a person returned it, and that counts",
    "out_of_maintenance": "the end of the maintenance window",
    "working_hours": "the site's working hours",
    "warned_often_enough": "further ticks above the threshold",
    "more_than_applications": "evidence that applications do not cause",
    "no_burst": "a person's look for the common cause; then acknowledge what `status` lists",
    "cap_fleet": "the return of held nodes",
    "cap_partition": "the return of held nodes of its partition",
    "cap_rack": "the return of held nodes of its rack",
    "cap_job": "the return of held nodes under its job",
    "cap_rate": "time, within the hour",
    "never_all": "another node in service",
    "may_go_on": "whoever stopped it letting it go on",
    "left_alone": "the end of that time",
    "in_plan": "a new plan",
}
"""What would change a guard's no, by guard."""

_LIFE: Final = ("decision", "intent", "result", "released")


@dataclass(frozen=True, kw_only=True)
class GuardSaid:
    """What one guard said.

    Attributes:
        guard: Its name.
        is_allowed: Whether it let the wanted action pass whole.
        reason: Why.
        would_change: What would change a no.
    """

    guard: str
    is_allowed: bool
    reason: str
    would_change: str | None


@dataclass(frozen=True, kw_only=True)
class Told:
    """A decision about the node, as it was or as it would be now.

    Attributes:
        decision_id: Its id.
        at: When.
        sentence: All of it in one sentence.
        wanted: What the policy wants.
        action: What the guards leave of it.
        verdicts: What each guard said.
        came_of_it: What was done, in words; empty: nothing.
    """

    decision_id: str
    at: datetime
    sentence: str
    wanted: str
    action: str
    verdicts: tuple[GuardSaid, ...]
    came_of_it: str


@dataclass(frozen=True, kw_only=True)
class Why:
    """Why a node is as it is.

    Attributes:
        node: Node.
        present: The node as the cluster has it now, in words.
        held: How we hold it, in words; None: we do not.
        last: The decision it is held by, else the last that wanted anything; None: there is none.
        now: What a round would decide now; None: it cannot be told.
        cannot_read: What could not be read, and why.
    """

    node: str
    present: str
    held: str | None
    last: Told | None
    now: Told | None
    cannot_read: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0: told whole; 1: a part could not be read."""
        return NEEDS_A_PERSON if self.cannot_read else DONE


def why_node(hook: Hook, node: str) -> Why:
    """Tells why a node is as it is.

    Args:
        hook: The hook.
        node: Node.

    Raises:
        DataError: Neither cluster, scores nor ledger know the node.
        LedgerError: The ledger cannot be read.
    """
    view = hook.view()
    entries = [
        one
        for one in hook.ledger.entries(kinds=_LIFE)
        if one.node == node and one.actuator == hook.name
    ]
    last = _last(entries, view, node)
    present = read_state(hook.ports.actuator, node)
    cannot: list[str] = []
    now: Told | None = None
    try:
        judged = {one.decision.node: one for one in rehearse(hook).run.judged}
        now = _now(judged[node]) if node in judged else None
    except (ForewarnError, OSError) as error:
        cannot.append(f"what a round would do now cannot be told: {error}")
    if present is None and last is None and now is None and not cannot:
        raise DataError(f"node {plain(node)}: neither cluster, scores nor ledger know it")
    return Why(
        node=node,
        present=_present(present),
        held=_held(view, node),
        last=last,
        now=now,
        cannot_read=tuple(cannot),
    )


def changes_of(guard: str) -> str:
    """What would change a guard's no."""
    return CHANGES.get(guard, "what the guard names")


def _present(view: NodeView | None) -> str:
    if view is None:
        return "the cluster does not know it, or cannot be asked"
    if view.owner == "none":
        return f"is {view.state}" + (f" ({view.reason})" if view.reason else "")
    holder = "forewarn" if view.owner == "forewarn" else view.actor or "someone else"
    return f"is drained by {holder} ({view.reason or 'no reason given'})"


def _held(view: LedgerView, node: str) -> str | None:
    unclear, held = view.ambiguous.get(node), view.held.get(node)
    if unclear is not None:
        return f"UNCLEAR: {unclear}. Look at the node; it is left alone until then"
    if held is None:
        return None
    return f"held since {held.since:%Y-%m-%d %H:%M} UTC: {held.action.replace('_', ' ')}"


def _last(entries: Sequence[Entry], view: LedgerView, node: str) -> Told | None:
    decisions = [one for one in entries if one.kind == "decision"]
    held = view.held.get(node)
    intent = next((one for one in entries if held and one.key == held.intent_key), None)
    if intent is not None:
        by_it = [one for one in decisions if one.decision_id == intent.decision_id]
        # The verdicts that let it pass stand in the last entry before the intent's result.
        decisions = [one for one in by_it if one.body["action"] == intent.body["action"]] or by_it
    if not decisions:
        return None
    entry = decisions[-1]
    body = entry.body
    return Told(
        decision_id=str(entry.decision_id),
        at=entry.recorded_at,
        sentence=body["sentence"],
        wanted=body["wanted"],
        action=body["action"],
        verdicts=tuple(
            _said(*verdict[:3], node=node, decision_id=str(entry.decision_id))
            for verdict in body["verdicts"]
        ),
        came_of_it=_came_of(entries, str(entry.decision_id)),
    )


def _came_of(entries: Sequence[Entry], decision_id: str) -> str:
    """What was done because of a decision, from the first try to the last."""
    intents = [one for one in entries if one.kind == "intent" and one.decision_id == decision_id]
    said = []
    for intent in intents:
        answers = [one for one in entries if one.refers_to == intent.key]
        said += [_answered(one.kind, one.body, one.recorded_at) for one in answers]
        if not answers:
            said.append(f"begun at {intent.recorded_at:%Y-%m-%d %H:%M} UTC, no result is noted")
    return "; ".join(said)


def _answered(kind: str, body: Mapping[str, Any], at: datetime) -> str:
    when = f"{at:%Y-%m-%d %H:%M} UTC"
    if kind == "released":
        return f"{body['why'].replace('_', ' ')} by {when}"
    detail = f" ({body['detail']})" if body["detail"] else ""
    return f"{body['status'].replace('_', ' ')} at {when}{detail}"


def _now(one: Judged) -> Told:
    decision = one.decision
    return Told(
        decision_id=decision.decision_id,
        at=decision.decided_at,
        sentence=decision.sentence,
        wanted=decision.wanted,
        action=one.action,
        verdicts=tuple(
            _said(
                v.guard,
                v.is_allowed,
                v.reason,
                node=decision.node,
                decision_id=decision.decision_id,
            )
            for v in one.verdicts
        ),
        came_of_it="carried out already" if one.is_settled else "",
    )


def _said(
    guard: str,
    is_allowed: bool,  # noqa: FBT001 - as it is kept
    reason: str,
    *,
    node: str,
    decision_id: str,
) -> GuardSaid:
    change = changes_of(guard).format(node=node, decision=decision_id)
    return GuardSaid(
        guard=guard,
        is_allowed=is_allowed,
        reason=reason,
        would_change=None if is_allowed else change,
    )
