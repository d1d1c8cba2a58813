"""What an approval, a hold or an undrain would do, said before anything is asked of the hook.

Asking is in `pipelines.api.hook_requests`; the hook alone judges and acts.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.api.answers import ApiError
from pipelines.api.hook_requests import What, Wish
from pipelines.board.hook_view import HookView
from pipelines.board.words import age
from pipelines.board.zone import Zone
from pipelines.report.words import ACTION_WORDS
from remediation.actuators.slurm_commands import is_plain_node_name

HOLDS: Final = (1, 4, 12, 24, 72, 168)
"""Hours that a node may be left alone for."""

TITLES: Final[dict[str, str]] = {
    "approve": "Approve",
    "hold": "Leave alone",
    "undrain": "Undrain",
}
_GUARDS: Final = (
    "The kill switch, the caps of fleet, rack, partition and job, the rate of actions, working "
    "hours, maintenance windows and the burst stop all still apply."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What would be asked for.

    Attributes:
        what: approve, hold or undrain.
        node: About which node.
        title: Heading.
        effect: What will happen, sentence by sentence.
        guards: What still applies.
        warnings: What a person should know first.
        decision_id: Decision that would be approved; None: not an approval.
        needs_name: Whether the node's name must be typed: something is done to it.
    """

    what: What
    node: str
    title: str
    effect: tuple[str, ...]
    guards: tuple[str, ...]
    warnings: tuple[str, ...]
    decision_id: str | None
    needs_name: bool


def plan_of(what: str, node: str, hook: HookView, *, now: datetime, zone: Zone) -> Plan:
    """What a request would do.

    Args:
        what: What is asked for; it comes from outside.
        node: The node; it comes from outside.
        hook: How the hook stands.
        now: The present.
        zone: Whose clocks times are shown on.

    Raises:
        ApiError: There is no such request, or nothing that it could mean for this node.
    """
    if not is_plain_node_name(node):
        raise ApiError(404, "This is not the plain name of one node.")
    if hook.problem:
        raise ApiError(503, f"The hook's ledger cannot be read: {hook.problem}")
    warnings = []
    if hook.requested.stopped_by is not None:
        warnings.append(f"Automation is stopped at present: {hook.requested.stopped_by}.")
    if hook.is_dry_run:
        warnings.append("The hook makes a dry run: it will record this and touch nothing.")
    make = {"approve": _approve, "hold": _hold, "undrain": _undrain}.get(what)
    if make is None:
        raise ApiError(404, "Only approve, hold and undrain can be asked for here.")
    return make(node, hook, tuple(warnings), now, zone)


def _approve(
    node: str, hook: HookView, warnings: tuple[str, ...], now: datetime, zone: Zone
) -> Plan:
    decided = hook.decided.get(node)
    if decided is None or not decided.is_to_approve or now >= decided.expires_at:
        raise ApiError(
            409,
            "No decision about this node waits for a person's leave: it was made, another guard "
            "stops it, or its scores have expired.",
        )
    return Plan(
        what="approve",
        node=node,
        title=f"Approve for {node}: {ACTION_WORDS.get(decided.wanted, decided.wanted).lower()}",
        effect=(
            decided.sentence,
            f"It counts once, for this decision and boot, until {zone.text(decided.expires_at)}.",
            "The hook carries it out in its next round, if every other guard lets it.",
        ),
        guards=(
            "Your approval stands in for the policy level only.",
            _GUARDS,
            *(f"{guard.replace('_', ' ')} said yes: {why}" for guard, why in decided.passed),
        ),
        warnings=warnings,
        decision_id=decided.decision_id,
        needs_name=True,
    )


def _hold(node: str, hook: HookView, warnings: tuple[str, ...], now: datetime, zone: Zone) -> Plan:
    alone = hook.requested.held_back(node, now)
    more = (
        (f"{alone.actor} asked for this already, until {zone.text(alone.until)}.",) if alone else ()
    )
    held = node in hook.view.held
    return Plan(
        what="hold",
        node=node,
        title=f"Leave {node} alone",
        effect=(
            "Until the time you choose, Forewarn leaves the node as it is, whatever its score.",
            "Scores, alerts and this board go on as before.",
            "If it fails in that time, its jobs fail with it.",
        ),
        guards=("This only takes away what may be done; it lets nothing more happen.",),
        warnings=(
            *warnings,
            *more,
            *(
                ("It is held at present, and stays so: undrain it to have it back.",)
                if held
                else ()
            ),
        ),
        decision_id=None,
        needs_name=False,
    )


def _undrain(
    node: str, hook: HookView, warnings: tuple[str, ...], now: datetime, zone: Zone
) -> Plan:
    held = hook.view.held.get(node)
    if held is None:
        raise ApiError(409, "The ledger does not say that Forewarn holds this node.")
    since = f"since {zone.text(held.since)}, {age(held.since, now)}"
    return Plan(
        what="undrain",
        node=node,
        title=f"Undrain {node}",
        effect=(
            f"Forewarn holds it ({held.action.replace('_', ' ')}, {since}).",
            "The hook gives it back to the scheduler in its next round; jobs may start on it.",
            "If somebody else drained it too, their drain stays.",
        ),
        guards=(
            "The hook refuses if the node has rebooted since: then look at it again.",
            "It is not drained again until its cool-down has passed.",
        ),
        warnings=warnings,
        decision_id=None,
        needs_name=True,
    )


def wish_of(plan: Plan, *, confirm: str, seen: str, hours: str, now: datetime) -> Wish:
    """What is asked for, once a person has confirmed.

    Args:
        plan: What it would be at present.
        confirm: The node's name as they typed it; not looked at where none is needed.
        seen: For an approval: the decision that they were shown.
        hours: For a hold: for how long, one of `HOLDS`.
        now: The present.

    Raises:
        ApiError: The time is none of those offered, or another decision was made since.
    """
    if plan.decision_id is not None and seen != plan.decision_id:
        raise ApiError(
            409, "Another decision was made since you looked. Nothing was asked for; look again."
        )
    until = None
    if plan.what == "hold":
        if hours not in map(str, HOLDS):
            raise ApiError(422, "Choose for how long. Nothing was asked for.")
        until = now + timedelta(hours=int(hours))
    return Wish(
        what=plan.what,
        node=plan.node,
        confirm=confirm.strip() if plan.needs_name else plan.node,
        decision_id=plan.decision_id,
        until=until,
    )


def hold_choices() -> list[tuple[int, str]]:
    """How long a node may be left alone, in words."""
    return [(h, f"{h} hours" if h > 1 else "1 hour") for h in HOLDS[:4]] + [
        (72, "3 days"),
        (168, "a week"),
    ]


def values_of(plan: Plan) -> dict[str, Any]:
    """What the page shows."""
    return {"plan": plan, "holds": hold_choices()}
