"""Brings nodes that we hold back: on a person's word, or after a cause was settled and a check ran.

Whether a node may return is in `remediation.holds.returning`, how checks run in
`remediation.checks`; no score is asked for here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from remediation.actuators.protocol import Actuator
from remediation.checks import CheckResult, CheckRunner
from remediation.cluster.state import ClusterState, NodeView
from remediation.holds.returning import (
    Record,
    Return,
    check_body,
    last_checks,
    may_return,
    offences_of,
)
from remediation.holds.tending import MOST_TRIES, take_step
from remediation.inbox.requested import Cause, Requested
from remediation.lease.leadership import Fence
from remediation.ledger.entries import Ledger, NewEntry, time_text
from remediation.ledger.journal import Journal
from remediation.ledger.view import Held, LedgerView
from remediation.process_settings import ReturnSettings

_RECORD_KINDS: Final = ("intent", "result", "request")


@dataclass(frozen=True, kw_only=True)
class Returns:
    """What returns are decided by.

    Attributes:
        view: How things stand by the ledger.
        state: The cluster now.
        requested: What people asked for.
        settings: The check, and when a node comes back too often.
        now: The present.
        may_act: Says why no further node may be begun; asked before each.
    """

    view: LedgerView
    state: ClusterState
    requested: Requested
    settings: ReturnSettings
    now: datetime
    may_act: Fence


def note_checks(results: Sequence[CheckResult], view: LedgerView, *, journal: Journal) -> None:
    """Notes what checks of nodes that are still held found.

    Args:
        results: What they found.
        view: How things stand.
        journal: Where it is noted.
    """
    for one in results:
        held = view.held.get(one.node)
        if held is None:
            continue
        journal.ledger.append(
            NewEntry(
                key=f"checked:{held.intent_key}:{time_text(one.started_at)}",
                kind="checked",
                recorded_at=journal.clock(),
                actuator=journal.actuator,
                node=one.node,
                body=check_body(one, intent_key=held.intent_key),
            )
        )


def return_nodes(
    returns: Returns, *, actuator: Actuator, journal: Journal, checks: CheckRunner | None
) -> tuple[str, ...]:
    """Returns every node that may come back, and begins the checks that others wait for.

    A person's wish needs neither cause nor check, for who asks has looked. Whatever one node
    does, the next is seen to.

    Args:
        returns: What is decided by.
        actuator: Acts.
        journal: Where each step is noted.
        checks: Runs checks; None: none can be run.

    Returns:
        The nodes that are back in service.
    """
    view = returns.view
    ledger = journal.ledger
    past = last_checks(ledger.entries(kinds=("checked",)), actuator=journal.actuator)
    offences = offences_of(ledger.entries(kinds=_RECORD_KINDS), actuator=journal.actuator)
    back = []
    for name, held in sorted(view.held.items()):
        if returns.may_act() is not None:
            break
        node = returns.state.by_name.get(name)
        if node is None or name in view.ambiguous or node.owner != "forewarn":
            continue
        if _is_wished_back(returns, held, node):
            _stop_check(name, checks)
            # A person's return starts a cool-down, as if it had been done by hand.
            if _return(held, node, returns, actuator=actuator, journal=journal, why="undrained"):
                back.append(name)
            continue
        found = may_return(
            held,
            returns.requested.causes.get(name),
            past.get(name),
            Record(
                now=returns.now,
                boot_id=node.boot_id,
                offences=offences.get(name, ()),
                rules=returns.settings.rules,
            ),
        )
        if found.way == "return":
            if _return(held, node, returns, actuator=actuator, journal=journal, why="returned"):
                back.append(name)
        elif found.way == "repair":
            text = f"{name}: {found.reason}"
            journal.escalate(f"repair:{held.intent_key}", why="repair", text=text, node=name)
        elif found.needs_check and _is_empty(returns, held, name):  # it would compete with jobs
            _tell_of_check(held, node, found, past.get(name), returns, journal=journal)
            _begin_check(held, node, returns, ledger, checks)
    return tuple(back)


def _unknown_checks(held: Held, cause: Cause | None, ledger: Ledger) -> int:
    """Checks of a hold that gave no answer since its cause was last settled."""
    entries = ledger.entries(kinds=("checked",), since=cause.at if cause else held.since)
    own = [one.body for one in entries if one.body["intent"] == held.intent_key]
    return sum(body["status"] == "unknown" for body in own)


def _is_empty(returns: Returns, held: Held, name: str) -> bool:
    return not returns.state.jobs_on(name) and held.intent_key not in returns.view.unfinished


def _is_wished_back(returns: Returns, held: Held, node: NodeView) -> bool:
    wish = returns.requested.undrains.get(node.name)
    return wish is not None and wish.at > held.since and wish.boot_id == node.boot_id


def _tell_of_check(
    held: Held,
    node: NodeView,
    found: Return,
    last: CheckResult | None,
    returns: Returns,
    *,
    journal: Journal,
) -> None:
    """Tells a person once where a check that is waited for cannot be had, or says nothing."""
    by_hand = f"once you have checked it yourself: forewarn remediate undrain {node.name}"
    if returns.settings.check is None:
        text = f"{node.name}: {found.reason}, but returns.check is not set; {by_hand}"
    elif last is not None and last.status == "unknown" and last.started_at >= held.since:
        text = f"{node.name}: {found.reason} and is tried again; look at the check, or {by_hand}"
    else:
        return
    journal.escalate(f"check:{held.intent_key}", why="check", text=text, node=node.name)


def _stop_check(name: str, checks: CheckRunner | None) -> None:
    if checks is not None:
        checks.keep(checks.running - {name})


def _begin_check(
    held: Held, node: NodeView, returns: Returns, ledger: Ledger, checks: CheckRunner | None
) -> None:
    cause = returns.requested.causes.get(node.name)
    if _unknown_checks(held, cause, ledger) >= MOST_TRIES:
        return  # a person was told of the first, and settles the cause anew
    if checks is not None and returns.settings.check is not None:
        checks.start(returns.settings.check, node=node.name, boot_id=node.boot_id)


def _return(
    held: Held,
    node: NodeView,
    returns: Returns,
    *,
    actuator: Actuator,
    journal: Journal,
    why: str,
) -> bool:
    """Returns a node; whether it surely is back."""
    outcome = take_step(
        "return", held, node, returns.state, returns.view, actuator=actuator, journal=journal
    )
    if outcome is None:
        why_not = f"{MOST_TRIES} tries came to nothing, or its reason is of another version"
        text = f"{node.name}: not returned: {why_not}; look at it, and return it by hand"
        journal.escalate(f"return:{held.intent_key}", why="return", text=text, node=node.name)
        return False
    if outcome.status != "done":
        journal.messages.append(f"{node.name}: not returned: {outcome.detail}")
        return False
    journal.released(held.intent_key, node=node.name, why=why)
    return True
