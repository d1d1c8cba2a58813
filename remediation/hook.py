"""The remediation hook: one run from the latest scores to actions, journaled at every step.

What is decided is in `remediation.policy.choice`, what is held back in `remediation.guards.judge`
and `remediation.guards.caps`, how it is done in `remediation.actuators`; the CLI gives it its
parts.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import polars as pl

from features.clock import Clock
from features.errors import DataError
from remediation.actuators.kill_switch import stopped_by
from remediation.actuators.protocol import (
    EFFECTIVE,
    Actuator,
    Order,
    Outcome,
    carry_out,
    read_state,
)
from remediation.cluster.reasons import Reason
from remediation.cluster.state import ClusterReader, ClusterState, NodeView
from remediation.decision import HARM, Decision, Judged, decisions_frame, touches_node
from remediation.guards.alerts import above_now, alerts_of, lookback, new_bursts
from remediation.guards.caps import CAPS, TELLS_A_PERSON
from remediation.guards.judge import (
    GUARDS,
    Guard,
    GuardContext,
    count_by_partition,
    judge,
    manageable_nodes,
    settled,
)
from remediation.guards.wrong_clock import stopped_by_clock
from remediation.holds.recovery import (
    carries_ours,
    check_chain,
    close_open_intents,
    note_released,
    tell_ambiguous,
    tell_unknown_holds,
)
from remediation.holds.tending import tend
from remediation.lease.leadership import Fence
from remediation.ledger.entries import Ledger
from remediation.ledger.journal import Journal
from remediation.ledger.view import RATE_WINDOW, STATE_KINDS, LedgerView, observed_of, view_of
from remediation.policy.choice import NodeScore, decide, decide_unscored, node_scores_of
from remediation.score_source import PublishedScores, ScoreSource
from remediation.site import Site

ALL_GUARDS: Final[tuple[Guard, ...]] = (*GUARDS, *CAPS)


@dataclass(frozen=True, kw_only=True)
class HookRun:
    """What one run found, decided and did.

    Attributes:
        now: When it ran.
        is_dry_run: Whether the actuator only records.
        horizon_h: Horizon acted on.
        published: The scores it rests on.
        cluster: The cluster as it was read.
        n_manageable: Nodes that percentages are of.
        judged: Every decision with its verdicts, the greatest expected saving first.
        outcomes: What came of the actions of this run, by decision id.
        messages: What a person must look at, in words.
    """

    now: datetime
    is_dry_run: bool
    horizon_h: int
    published: PublishedScores
    cluster: ClusterState
    n_manageable: int
    judged: tuple[Judged, ...]
    outcomes: Mapping[str, Outcome]
    messages: tuple[str, ...]

    @cached_property
    def decisions(self) -> pl.DataFrame:
        """The run as the table remediation/decisions."""
        return decisions_frame(self.judged, is_dry_run=self.is_dry_run)


def run_once(
    *,
    scores: ScoreSource,
    cluster: ClusterReader,
    actuator: Actuator,
    ledger: Ledger,
    site: Site,
    clock: Clock,
    guards: tuple[Guard, ...] = ALL_GUARDS,
    is_simulation: bool = False,
    may_act: Fence = lambda: None,
) -> HookRun:
    """Runs the hook once: recover, read, decide, guard, and act node by node.

    The same scores give the same decision ids, and a decision that was carried out is not
    carried out again, so that a run may be repeated at any time, also after a crash.

    Args:
        scores: The latest scores; older ones are never acted on.
        cluster: The cluster's present state.
        actuator: What carries actions out.
        ledger: The journal of all runs.
        site: The site's settings.
        clock: The present; asked anew for each node.
        guards: The guards, in the order of their verdicts.
        is_simulation: Whether the cluster is a simulated one, so that scores of a synthetic
            model and priors may be acted on.
        may_act: Says why what is held must not be seen to: tries are counted, and none is to be
            spent where none can be made.

    Raises:
        LedgerError: The ledger cannot be read or written, or was tampered with.
        SourceError: Scores or cluster cannot be read.
        DataError: The scores lack the site's horizon.
    """
    check_chain(ledger)
    journal = Journal(ledger, actuator.name, clock)
    site = stopped_by_clock(site, journal=journal)
    state = cluster.read()
    view = _recover(state, actuator=actuator, journal=journal, site=site, may_act=may_act)
    now = clock()
    published = scores.latest(now)
    rated = node_scores_of(published, site.horizon_h)
    rated = (*rated, *decide_unscored(state, rated, published=published, site=site))
    context = _look(rated, state, view, published=published, journal=journal, site=site)
    context = replace(context, is_rehearsal=actuator.is_dry_run or is_simulation)
    judged, outcomes = _act_on_all(
        decide(rated, state, site=site, now=now),
        context,
        guards=guards,
        actuator=actuator,
        journal=journal,
    )
    _tell_held_back(judged, journal=journal, now=now)
    return HookRun(
        now=now,
        is_dry_run=actuator.is_dry_run,
        horizon_h=site.horizon_h,
        published=published,
        cluster=state,
        n_manageable=len(context.manageable),
        judged=judged,
        outcomes=outcomes,
        messages=tuple(journal.messages),
    )


def _recover(
    state: ClusterState, *, actuator: Actuator, journal: Journal, site: Site, may_act: Fence
) -> LedgerView:
    close_open_intents(_view(journal, site=site), actuator=actuator, journal=journal)
    view = _view(journal, site=site)
    tell_ambiguous(view, journal=journal)
    if not actuator.is_dry_run:
        note_released(view, state, actuator=actuator, journal=journal)
        tell_unknown_holds(view, state, journal=journal)
    if not actuator.is_dry_run and may_act() is None:
        tend(_view(journal, site=site), state, actuator=actuator, journal=journal, site=site)
    return _view(journal, site=site)


def _view(journal: Journal, *, site: Site, without: str | None = None) -> LedgerView:
    hours = site.caps.dry_run_hold_hours
    return view_of(
        (one for one in journal.ledger.entries(kinds=STATE_KINDS) if one.key != without),
        actuator=journal.actuator,
        now=journal.clock(),
        would_hold=timedelta(hours=site.horizon_h if hours is None else hours),
    )


def _look(
    rated: Sequence[NodeScore],
    state: ClusterState,
    view: LedgerView,
    *,
    published: PublishedScores,
    journal: Journal,
    site: Site,
) -> GuardContext:
    """Notes who is above the threshold, finds alerts and bursts, and gathers all for the guards."""
    now = journal.clock()
    manageable = manageable_nodes(state, site=site, now=now)
    above = above_now(rated, state, site=site)
    observed = journal.ledger.entries(kinds=("observed",), since=published.as_of - lookback(site))
    earlier = observed_of(observed, actuator=journal.actuator)
    holds = view.holds
    if not published.is_expired(now):
        journal.observed(above, as_of=published.as_of, horizon_h=site.horizon_h)
        new = new_bursts(
            above,
            earlier,
            state=state,
            n_manageable=len(manageable),
            holds=holds,
            site=site,
            now=now,
        )
        for hold in new:
            journal.burst(hold)
        holds = (*holds, *new)
    return GuardContext(
        now=now,
        site=site,
        cluster=state,
        expires_at=published.expires_at,
        is_rehearsal=False,
        stopped_by=stopped_by(site),
        alerts=alerts_of(above, earlier, site=site),
        manageable=manageable,
        n_manageable_in=count_by_partition(state, manageable),
        held=_held_by_us(state, view),
        n_recent=0,
        record=replace(view, holds=holds),
    )


def _held_by_us(state: ClusterState, view: LedgerView) -> frozenset[str]:
    """By the ledger, and by the reason on the node should the ledger be lost."""
    return frozenset(view.held) | {node.name for node in state.nodes if carries_ours(node)}


def _act_on_all(
    decisions: Sequence[Decision],
    context: GuardContext,
    *,
    guards: tuple[Guard, ...],
    actuator: Actuator,
    journal: Journal,
) -> tuple[tuple[Judged, ...], dict[str, Outcome]]:
    """Judges and acts one node at a time, so that each guard sees what was done before."""
    judged: list[Judged] = []
    outcomes: dict[str, Outcome] = {}
    acted_at = list(context.record.acted_at)
    for decision in decisions:
        one = settled(decision, context.record.settled)
        if one is None:
            if touches_node(decision.wanted):
                now = journal.clock()
                context = replace(
                    context,
                    now=now,
                    stopped_by=stopped_by(context.site),
                    n_recent=_n_recent(acted_at, now),
                )
            one = judge(decision, context, guards)
            if decision.wanted != "none":
                journal.decision(one, expires_at=context.expires_at)
        judged.append(one)
        if one.is_settled or not touches_node(one.action):
            continue
        outcome = _act(one, context, guards=guards, actuator=actuator, journal=journal)
        outcomes[decision.decision_id] = outcome
        if outcome.status != "not_done":
            acted_at.append(context.now)
            context = replace(context, held=context.held | {decision.node})
    journal.flush()
    return tuple(judged), outcomes


def _n_recent(acted_at: Sequence[datetime], now: datetime) -> int:
    return sum(now - RATE_WINDOW < at for at in acted_at)


def _act(
    one: Judged,
    context: GuardContext,
    *,
    guards: tuple[Guard, ...],
    actuator: Actuator,
    journal: Journal,
) -> Outcome:
    """Intent, re-read, act, result; whatever one node does, the next gets its turn."""
    decision = one.decision
    expected = context.cluster.by_name[decision.node]
    attempt = 1 + context.record.tries.get(decision.decision_id, 0)
    key = journal.intent(one, attempt=attempt, before=expected)
    if key is None:
        return Outcome(status="not_done", detail="another run is doing it")
    after: NodeView | None = None
    try:
        outcome = _carry_out(
            one,
            expected,
            context,
            actuator=actuator,
            judge_again=lambda: judge(decision, _renewed(context, key, journal=journal), guards),
        )
    except DataError as error:
        # Our own refusal of an order; an actuator raises it before it has begun.
        outcome = Outcome(status="not_done", detail=str(error))
    except Exception as error:  # noqa: BLE001 - one node's trouble must not starve the others
        outcome = Outcome(status="ambiguous", detail=f"{type(error).__name__}: {error}")
    if outcome.status in EFFECTIVE:
        with suppress(Exception):  # what was done stays done, also where nobody can look
            after = read_state(actuator, decision.node)
    journal.result(key, outcome, about=decision, after=after)
    return outcome


def _renewed(context: GuardContext, key: str, *, journal: Journal) -> GuardContext:
    """What guards look at right before an act: the clock, the kill switch, what other hooks did.

    Two hooks on one ledger each write their intent first, so each sees the other's here.
    """
    view = _view(journal, site=context.site, without=key)
    now = journal.clock()  # last, for reading the ledger may wait
    return replace(
        context,
        now=now,
        stopped_by=stopped_by(context.site),
        held=context.held | frozenset(view.held),
        n_recent=_n_recent(view.acted_at, now),
        record=view,
    )


def _carry_out(
    one: Judged,
    expected: NodeView,
    context: GuardContext,
    *,
    actuator: Actuator,
    judge_again: Callable[[], Judged],
) -> Outcome:
    decision = one.decision
    if decision.score is None:
        return Outcome(status="not_done", detail="the score is unknown")
    order = Order(
        action=one.action,
        expected=expected,
        reason=Reason(
            score=decision.score,
            horizon_h=decision.horizon_h,
            fault_type=decision.fault_type,
            model_version=decision.model_version,
            decision_id=decision.decision_id,
        ),
        jobs=context.cluster.jobs_on(decision.node),
        notice_minutes=context.site.costs.notice_minutes,
        attempt=1 + context.record.tries.get(decision.decision_id, 0),
    )
    found = read_state(actuator, decision.node)
    if found is None:
        return Outcome(status="not_done", detail="the node's present state cannot be told")
    if found != expected:
        changed = f"the node changed: {expected.state} before, {found.state} now"
        return Outcome(status="not_done", detail=f"{changed}; judged anew in the next run")
    # The process may have been stopped since, for hours; another hook may have acted.
    again = judge_again()
    if HARM[again.action] < HARM[one.action]:
        why = "; ".join(again.blocked_by)
        return Outcome(status="not_done", detail=f"no longer allowed: {why}")
    return carry_out(actuator, order)


def _tell_held_back(judged: Sequence[Judged], *, journal: Journal, now: datetime) -> None:
    """Brings each cap or budget that alone held a node back to a person, once a day."""
    tripped: dict[str, list[str]] = {}
    for one in judged:
        # A guard that leaves a milder action, such as a level, has not held the node back.
        no = [v.guard for v in one.verdicts if not v.is_allowed and not touches_node(v.ceiling)]
        if TELLS_A_PERSON.issuperset(no):
            for guard in no:
                tripped.setdefault(guard, []).append(one.decision.node)
    for guard, nodes in tripped.items():
        shown = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
        journal.escalate(
            f"guard:{journal.actuator}:{guard}:{now.date().isoformat()}",
            why="guard",
            text=f"{guard} held back {shown}",
            more={"nodes": nodes},
        )
