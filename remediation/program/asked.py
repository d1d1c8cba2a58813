"""What people asked for, as guards of a round: approvals, nodes to leave alone, stops.

How requests are read and signed is in `remediation.signed_requests`; what they mean is in
`remediation.inbox.requested`.
"""

from typing import Final

from remediation.decision import HARM, Decision, Verdict
from remediation.guards.judge import (
    Guard,
    GuardContext,
    limits,
    not_held_out,
    passes,
    policy_level,
)
from remediation.hook import ALL_GUARDS
from remediation.inbox.requested import Requested, requested_of
from remediation.lease.leadership import Fence
from remediation.ledger.entries import Ledger

_REQUESTS: Final = ("request", "intent", "result")


def asked_of(ledger: Ledger, *, actuator: str) -> Requested:
    """What people asked for and still counts."""
    return requested_of(ledger.entries(kinds=_REQUESTS), actuator=actuator)


def guards_with(
    requested: Requested, *, may_act: Fence = lambda: None, more: tuple[Guard, ...] = ()
) -> tuple[Guard, ...]:
    """All guards, with what people asked for.

    Args:
        requested: What they asked for; an approval stands in for a level of *recommend*, and takes
            its node out of the hold-out once.
        may_act: Says why nothing may be begun now.
        more: Further guards, asked last.
    """

    def may_go_on(decision: Decision, context: GuardContext) -> Verdict:
        del context
        why = requested.stopped_by or may_act()
        if why is not None:
            return limits("may_go_on", why)
        return passes("may_go_on", f"the round may go on with {decision.node}")

    def left_alone(decision: Decision, context: GuardContext) -> Verdict:
        wish = requested.held_back(decision.node, context.now)
        if wish is None:
            return passes("left_alone", "nobody asked for that")
        until = f"{wish.until:%Y-%m-%d %H:%M} UTC"
        return limits("left_alone", f"{wish.actor} asked to leave it alone until {until}")

    def approved(decision: Decision, context: GuardContext) -> Verdict:
        verdict = policy_level(decision, context)
        level, _ = context.site.level_of(decision.node, decision.fault_type)
        found = requested.approval(decision.node, decision.boot_id, context.now)
        if verdict.is_allowed or found is None or level != "recommend":
            return verdict
        said = f"level recommend; {found.actor} approved {found.wanted}"
        if HARM[decision.wanted] > HARM[found.wanted]:
            return limits("policy_level", said, ceiling=found.wanted)
        return passes("policy_level", said)

    instead: dict[Guard, Guard] = {policy_level: approved, not_held_out: _asked_out_of(requested)}
    known = tuple(instead.get(guard, guard) for guard in ALL_GUARDS)
    return (*known, may_go_on, left_alone, *more)


def _asked_out_of(requested: Requested) -> Guard:
    """The hold-out, which gives way to a person's approval as far as that goes."""

    def asked_out(decision: Decision, context: GuardContext) -> Verdict:
        verdict = not_held_out(decision, context)
        found = requested.approval(decision.node, decision.boot_id, context.now)
        if verdict.is_allowed or found is None:
            return verdict
        said = f"{verdict.reason}; {found.actor} approved {found.wanted}"
        if HARM[decision.wanted] > HARM[found.wanted]:
            return limits("not_held_out", said, ceiling=found.wanted)
        return passes("not_held_out", said)

    return asked_out
