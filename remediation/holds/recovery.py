"""What the hook does before anything else: closes what a crash left open, notices what others did.

No new action is taken here, and what nobody knows is never guessed.
"""

from datetime import timedelta
from typing import Final

from remediation.actuators.protocol import Actuator, Outcome, read_state
from remediation.cluster.reasons import is_ours, parse_reason
from remediation.cluster.state import ClusterState, NodeView
from remediation.ledger.entries import Entry, Ledger, LedgerError
from remediation.ledger.journal import Journal
from remediation.ledger.view import Held, LedgerView, escalation_key

ACCEPTED: Final = timedelta(hours=1)
"""How long a node may stay up after an order for it was accepted and before it shows it."""


def check_chain(ledger: Ledger) -> None:
    """Refuses to go on with a ledger that was tampered with.

    Raises:
        LedgerError: The chain does not hold.
    """
    found = ledger.verify()
    if not found.is_whole:
        raise LedgerError(
            f"ledger: {found.problem}. Nothing was done. Compare it with the last export, and "
            f"put it aside only after a person has looked at every node that it names."
        )


def close_open_intents(view: LedgerView, *, actuator: Actuator, journal: Journal) -> None:
    """Gives each intent without result one, if it can be known; the rest go to a person.

    A dry run surely changed nothing. Interrupting jobs is safe to repeat. A node that carries the
    decision's own id was surely taken. A node that does not may yet be, by a command under way:
    nobody knows, so it stays open.

    Args:
        view: How things stood.
        actuator: Reads nodes.
        journal: Where results are noted.
    """
    for intent in view.open_intents:
        if actuator.is_dry_run:
            detail = "the run stopped before it noted the result; a dry run changes nothing"
            journal.result(
                intent.key, Outcome(status="not_done", detail=detail), about=intent, after=None
            )
            continue
        if intent.body.get("step") in ("carry_on", "end_notice"):
            detail = "the run stopped before it noted the result; it is repeated"
            journal.step_result(
                intent.key, Outcome(status="not_done", detail=detail), node=str(intent.node)
            )
            continue
        node = read_state(actuator, str(intent.node))
        if node is not None and _carries(node, intent):
            done = Outcome(status="done", detail="found on the node by its reason after a stop")
            journal.result(intent.key, done, about=intent, after=node)


def tell_ambiguous(view: LedgerView, *, journal: Journal) -> None:
    """Brings every node whose state nobody knows to a person, in every run until one has looked."""
    for intent in view.unclear:
        text = f"{intent.node}: {view.ambiguous[str(intent.node)]}"
        journal.escalate(intent.key, why="ambiguous", text=text, node=intent.node)


def note_released(
    view: LedgerView, state: ClusterState, *, actuator: Actuator, journal: Journal
) -> None:
    """Notes the nodes that we held and that are no longer ours.

    A node that cannot be told, is down, or is gone still counts as held; one that is gone until a
    person says that it does not come back, for it would count for ever. Each is read again: the
    state may be older than a hold that another hook has just taken.

    Args:
        view: How things stood.
        state: The cluster now.
        actuator: Reads nodes.
        journal: Where it is noted.
    """
    for name, held in view.held.items():
        node = state.by_name.get(name)
        if node is None and name not in view.ambiguous:
            _see_to_gone(name, held, view, actuator=actuator, journal=journal)
        why = _released(node, held) if node is not None and name not in view.ambiguous else None
        if why == "undrained" and not held.is_seen and journal.clock() - held.since < ACCEPTED:
            continue  # a webhook's receiver takes its time; released now, it would not be counted
        if why is not None and "done" in view.steps.get((held.intent_key, "return"), ()):
            why = "returned"
        if why is not None and read_state(actuator, name) == node:
            journal.released(held.intent_key, node=name, why=why)


def _see_to_gone(
    name: str, held: Held, view: LedgerView, *, actuator: Actuator, journal: Journal
) -> None:
    if read_state(actuator, name) is not None:
        return
    about = f"gone:{held.intent_key}"
    if escalation_key(about) in view.acknowledged:
        journal.released(held.intent_key, node=name, why="gone")
        return
    text = (
        f"{name}: held by forewarn, but the cluster no longer knows it; it counts as held, also "
        f"in each rack, until you say that it is gone for good"
    )
    journal.escalate(about, why="gone", text=text, node=name)


def tell_unknown_holds(view: LedgerView, state: ClusterState, *, journal: Journal) -> None:
    """Brings each node to a person that carries our reason and that no entry says we hold.

    An unclear act that a person has acknowledged may have been done after all, or the ledger is
    another than the one it was taken with: nobody would ever return the node.

    Args:
        view: How things stood.
        state: The cluster now.
        journal: Where it is noted.
    """
    for node in state.nodes:
        if carries_ours(node) and node.name not in view.held:
            text = f"{node.name}: carries our reason, but the ledger does not say that we hold it"
            journal.escalate(
                f"unknown_hold:{node.name}:{node.reason}",
                why="unknown_hold",
                text=text,
                node=node.name,
            )


def carries_ours(node: NodeView) -> bool:
    """Whether our reason keeps a node out of service, also one that has gone down since."""
    return node.state != "up" and is_ours(node.reason)


def _released(node: NodeView, held: Held) -> str | None:
    if node.owner == "other":
        return "taken_over"
    if node.state != "up":
        return None
    is_other_boot = node.boot_id is not None and node.boot_id != held.boot_id
    return "replaced" if is_other_boot and held.boot_id is not None else "undrained"


def _carries(node: NodeView, intent: Entry) -> bool:
    if "step" in intent.body:
        return node.state == "up"  # it was to be returned
    reason = parse_reason(node.reason) if node.owner == "forewarn" else None
    return reason is not None and reason.decision_id == intent.decision_id
