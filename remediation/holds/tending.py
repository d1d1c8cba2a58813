"""What the hook does with nodes that it holds already: ends notices, and gives up what is stuck.

New holds are not taken here. Every step is journaled like a hold, and is safe to repeat.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from remediation.actuators.kill_switch import stopped_by
from remediation.actuators.protocol import Actuator, Order, Outcome, read_state
from remediation.cluster.reasons import parse_reason
from remediation.cluster.state import ClusterState, NodeView
from remediation.holds.progress import Progress, progress_of
from remediation.ledger.journal import Journal
from remediation.ledger.view import Held, LedgerView
from remediation.site import Site

NOTICE: Final = "checkpoint_then_drain"
MOST_TRIES: Final = 3


def tend(
    view: LedgerView, state: ClusterState, *, actuator: Actuator, journal: Journal, site: Site
) -> None:
    """Looks after every node that the ledger says we hold; whatever one does, the next is seen to.

    A notice that is over is ended in the first run after it, and a drain that left something goes
    on. One past its bound is told to a person, also while action is stopped, and where the site
    says so the node is given back; else it still goes on, for what keeps it may yet leave.

    Args:
        view: How things stand.
        state: The cluster now.
        actuator: Acts.
        journal: Where each step is noted.
        site: Notice, bound, and whether stuck nodes are given back.
    """
    now = journal.clock()
    for name, held in sorted(view.held.items()):
        may_act = stopped_by(site) is None
        node = state.by_name.get(name)
        if node is None or name in view.ambiguous:
            continue
        progress = progress_of(
            node,
            state.jobs_on(name),
            since=held.since,
            longest=timedelta(hours=site.drains.longest_hours),
            now=now,
        )
        is_unfinished = held.intent_key in view.unfinished
        if is_unfinished and now - held.since > timedelta(hours=site.drains.longest_hours):
            waited = f"{(now - held.since) / timedelta(hours=1):.1f} h after it was taken"
            progress = replace(progress, stage="stuck", text=f"stuck: not emptied, {waited}")
        is_over = now - held.since >= timedelta(minutes=site.costs.notice_minutes)
        has_ended = "done" in view.steps.get((held.intent_key, "end_notice"), ())
        if progress.stage == "stuck":
            _tell_stuck(held, node, progress, journal=journal)
        if not may_act:
            continue
        if progress.jobs and held.action == NOTICE and is_over and not has_ended:
            _end_notice(held, node, progress, state, view, actuator=actuator, journal=journal)
        elif progress.stage == "stuck" and site.drains.is_stuck_returned:
            _give_up(held, node, state, view, actuator=actuator, journal=journal)
        elif is_unfinished and node.owner == "forewarn":
            take_step("carry_on", held, node, state, view, actuator=actuator, journal=journal)


def _end_notice(
    held: Held,
    node: NodeView,
    progress: Progress,
    state: ClusterState,
    view: LedgerView,
    *,
    actuator: Actuator,
    journal: Journal,
) -> None:
    """Ends a notice that is over; once its tries are spent a person is told, for no run ends it."""
    ended = take_step("end_notice", held, node, state, view, actuator=actuator, journal=journal)
    n_tries = len(view.steps.get((held.intent_key, "end_notice"), ())) + 1
    is_spent = n_tries >= MOST_TRIES and node.owner == "forewarn"
    if is_spent and (ended is None or ended.status == "not_done"):
        text = (
            f"{node.name}: the notice is over, but {MOST_TRIES} tries to end it came to nothing: "
            f"{_jobs(progress)} run on; interrupt or wait for them by hand"
        )
        journal.escalate(f"notice:{held.intent_key}", why="notice", text=text, node=node.name)


def _jobs(progress: Progress) -> str:
    return f"jobs {', '.join(progress.jobs[:5])}" if progress.jobs else "no job of the scheduler"


def _tell_stuck(held: Held, node: NodeView, progress: Progress, *, journal: Journal) -> None:
    text = f"{node.name}: {progress.text}: {_jobs(progress)}"
    journal.escalate(f"stuck:{held.intent_key}", why="stuck", text=text, node=node.name)


def _give_up(
    held: Held,
    node: NodeView,
    state: ClusterState,
    view: LedgerView,
    *,
    actuator: Actuator,
    journal: Journal,
) -> None:
    outcome = take_step("return", held, node, state, view, actuator=actuator, journal=journal)
    if outcome is not None and outcome.status == "done":
        journal.released(held.intent_key, node=node.name, why="returned")


def take_step(
    step: str,
    held: Held,
    node: NodeView,
    state: ClusterState,
    view: LedgerView,
    *,
    actuator: Actuator,
    journal: Journal,
) -> Outcome | None:
    """One step with a node that we hold: intent, act, result.

    Args:
        step: carry_on, end_notice or return.
        held: The hold.
        node: The node now.
        state: The cluster now.
        view: How things stand.
        actuator: Acts.
        journal: Where the step is noted.

    Returns:
        What came of it; None: it is done already, out of tries, or not ours to do.
    """
    reason = parse_reason(node.reason)
    before = view.steps.get((held.intent_key, step), ())
    is_spent = "done" in before or len(before) >= MOST_TRIES
    if reason is None or (is_spent and step != "carry_on"):
        return None
    key = journal.step(held, step, node=node, attempt=1 + len(before))
    if key is None:
        return None
    order = Order(
        action=held.action,
        expected=node,
        reason=reason,
        jobs=state.jobs_on(node.name),
        attempt=1 + len(before),
    )
    try:
        if read_state(actuator, node.name) != node:
            outcome = Outcome(status="not_done", detail="the node changed; seen to in the next run")
        elif step == "carry_on":
            outcome = actuator.drain(order)
        elif step == "end_notice":
            outcome = actuator.end_notice(order)
        else:
            outcome = actuator.undrain(order)
    except Exception as error:  # noqa: BLE001 - one node's trouble must not starve the others
        outcome = Outcome(status="ambiguous", detail=f"{type(error).__name__}: {error}")
    journal.step_result(key, outcome, node=node.name)
    return outcome
