"""Replays one strategy: at each tick the hook's own policy, guards and caps, on the replayed world.

How that world goes on is in `simulation.replay.world`. No ledger is kept: its view is made from the
holds, and a test holds the whole against `remediation.hook.run_once`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from features.contracts import UTC_TIME
from features.vocabulary import ACTIONS
from models.policies.warnings import raise_alerts
from remediation.cluster.state import ClusterState
from remediation.decision import Decision, touches_node
from remediation.guards.alerts import lookback, new_bursts, warning_policy
from remediation.guards.caps import share_of
from remediation.guards.judge import GuardContext, count_by_partition, judge, manageable_nodes
from remediation.hook import ALL_GUARDS
from remediation.ledger.view import RATE_WINDOW, Held, Hold, LedgerView, Observed, SeenTick
from remediation.policy.choice import NodeScore, adequate_actions, decide, decision_of
from remediation.site import Site
from simulation.replay.books import Books
from simulation.replay.history import BoolArray, History, moment_of
from simulation.replay.holds import Finding, HoldOutcome
from simulation.replay.signals import Signals
from simulation.replay.world import World

_DRAINS: Final = ("checkpoint_then_drain", "drain_after_jobs")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One strategy gone through.

    Attributes:
        name: The strategy.
        books: What was lost, to what.
        holds: Every hold, by time.
        n_failure_interruptions: Attempts that failures ended.
        n_drain_interruptions: Attempts that drains moved.
    """

    name: str
    books: Books
    holds: tuple[HoldOutcome, ...]
    n_failure_interruptions: int
    n_drain_interruptions: int


def replay(history: History, site: Site, signals: Signals, *, finding: Finding = "check") -> Run:
    """Goes through the record with one strategy; the same arguments give the same run.

    Ticks at which no node could be taken are skipped: none is an alert and up, or the hour's
    actions or the fleet's cap are spent. Nothing else of the hook is left out.

    Args:
        history: The record.
        site: The hook's site settings.
        signals: What the strategy goes by.
        finding: What the check of a drained node finds.
    """
    warning = site.warning.model_copy(update={"threshold": signals.threshold})
    site = site.model_copy(update={"warning": warning})
    world = World(history, site, finding)
    hook = _Hook(world, site, signals)
    is_alert = _alerts(history, site, signals)
    bounds = np.searchsorted(signals.tick, np.arange(history.ticks.size + 1))
    for tick in np.flatnonzero(np.diff(bounds)).tolist():
        world.go_to(int(history.ticks[tick]))
        hook.look(range(int(bounds[tick]), int(bounds[tick + 1])), is_alert)
    world.go_to(history.end)
    return Run(
        name=signals.name,
        books=world.books,
        holds=tuple(world.made),
        n_failure_interruptions=world.n_failures,
        n_drain_interruptions=sum(len(one.moved) for one in world.made),
    )


def _alerts(history: History, site: Site, signals: Signals) -> BoolArray:
    """Which rows are alerts by the models' own warning policy, shape (rows,)."""
    policy = warning_policy(site)
    if policy.n == 1:
        return np.ones(signals.tick.size, dtype=bool)
    frame = pl.DataFrame(
        {
            "entity_id": pl.Series(signals.node).cast(pl.String),
            "as_of": pl.Series(history.ticks[signals.tick]).cast(UTC_TIME),
            "score": signals.score,
            "row": np.arange(signals.tick.size),
        }
    )
    found = raise_alerts(frame, policy).select("entity_id", "as_of")
    is_alert = np.zeros(signals.tick.size, dtype=bool)
    is_alert[frame.join(found, on=["entity_id", "as_of"])["row"].to_numpy()] = True
    return is_alert


@dataclass
class _Hook:
    """One round of the hook at a time, with what it remembers between rounds."""

    world: World
    site: Site
    signals: Signals
    acted_at: deque[datetime] = field(default_factory=deque)
    bursts: tuple[Hold, ...] = ()
    earlier: deque[SeenTick] = field(default_factory=deque)
    counted: tuple[int, frozenset[str]] = (-1, frozenset())

    def look(self, rows: range, is_alert: BoolArray) -> None:
        """One round on the rows of one tick."""
        world, now = self.world, moment_of(self.world.now)
        there = [row for row in rows if world.is_shown(self._node(row))]
        bare = ClusterState(as_of=now, nodes=world.views())
        manageable = self._manageable(bare, now)
        self._note_bursts(there, bare, n_manageable=len(manageable), now=now)
        wanted = [
            row
            for row in there
            if is_alert[row]
            and world.is_free(self._node(row))
            and not world.is_met(int(self.signals.about[row]))
        ]
        if not wanted or self._is_spent(len(manageable), now):
            return
        # The policy orders nodes that share jobs or replacements with those that cannot be taken.
        asked = there if self.signals.is_weighed else wanted
        nodes = {*(self._node(row) for row in asked), *world.standby}
        state = replace(bare, jobs=world.jobs(nodes, world.now))
        context = self._context(state, manageable, wanted, now)
        for decision in self._decisions(asked, state, now):
            if not touches_node(decision.wanted):
                continue
            action = judge(decision, context, ALL_GUARDS).action
            if not touches_node(action):
                continue
            world.hold(world.history.code_of[decision.node], action)
            self.acted_at.append(now)
            if self._is_spent(len(manageable), now):
                return
            held = context.held | {decision.node}
            context = replace(context, held=held, n_recent=len(self.acted_at))

    def _node(self, row: int) -> int:
        return int(self.signals.node[row])

    def _name(self, row: int) -> str:
        return self.world.history.names[self._node(row)]

    def _manageable(self, bare: ClusterState, now: datetime) -> frozenset[str]:
        """As the guards count them; counted anew only where a node or a window may have changed."""
        if self.counted[0] != self.world.n_shifts or self.site.maintenance:
            found = manageable_nodes(bare, site=self.site, now=now)
            self.counted = (self.world.n_shifts, found)
        return self.counted[1]

    def _is_spent(self, n_manageable: int, now: datetime) -> bool:
        """Whether the hour's actions or the fleet's cap leave nothing for any node."""
        while self.acted_at and self.acted_at[0] <= now - RATE_WINDOW:
            self.acted_at.popleft()
        caps = self.site.caps
        most = min(share_of(n_manageable, caps.held_percent), caps.held_most)
        return len(self.acted_at) >= caps.actions_per_hour or len(self.world.held) >= most

    def _note_bursts(
        self, there: Sequence[int], bare: ClusterState, *, n_manageable: int, now: datetime
    ) -> None:
        above = [
            Observed(self._name(row), None, now, float(self.signals.score[row])) for row in there
        ]
        oldest = now - lookback(self.site)
        while self.earlier and self.earlier[0].as_of < oldest:
            self.earlier.popleft()
        new = new_bursts(
            above,
            self.earlier,
            state=bare,
            n_manageable=n_manageable,
            holds=self.bursts,
            site=self.site,
            now=now,
        )
        quiet = timedelta(hours=self.site.burst.quiet_hours)
        self.bursts = (*(one for one in self.bursts if now < one.until + quiet), *new)
        names = tuple(one.node for one in above)
        scores = tuple(one.score for one in above)
        self.earlier.append(SeenTick(now, names, (None,) * len(names), scores))

    def _context(
        self, state: ClusterState, manageable: frozenset[str], alerts: Sequence[int], now: datetime
    ) -> GuardContext:
        names = self.world.history.names
        held = {
            names[node]: Held(
                intent_key="replay", action=one.action, boot_id=None, since=moment_of(one.since)
            )
            for node, one in self.world.held.items()
        }
        return GuardContext(
            now=now,
            site=self.site,
            cluster=state,
            expires_at=now + timedelta(hours=1),
            is_rehearsal=True,
            stopped_by=None,
            alerts=frozenset(self._name(row) for row in alerts),
            manageable=manageable,
            n_manageable_in=count_by_partition(state, manageable),
            held=frozenset(held),
            n_recent=len(self.acted_at),
            record=LedgerView(held=held, undrained=self.world.undrained, holds=self.bursts),
        )

    def _decisions(
        self, rows: Sequence[int], state: ClusterState, now: datetime
    ) -> Iterable[Decision]:
        if self.signals.is_weighed:
            scores = [self._score(row, now) for row in rows]
            return decide(scores, state, site=self.site, now=now)
        ordered = sorted(rows, key=lambda row: (-self.signals.score[row], self._name(row)))
        return (self._by_rule(row, state, now) for row in ordered)

    def _score(self, row: int, now: datetime) -> NodeScore:
        signals = self.signals
        fault = int(signals.fault[row])
        return NodeScore(
            node=self._name(row),
            as_of=now,
            horizon_h=self.site.horizon_h,
            score=float(signals.score[row]),
            status="ok",
            status_reason=None,
            fault_type=None if fault < 0 else signals.faults[fault],
            model_version=signals.name,
            trained_on=signals.trained_on,
            is_application_only=bool(signals.is_application_only[row]),
        )

    def _by_rule(self, row: int, state: ClusterState, now: datetime) -> Decision:
        """A rule weighs nothing: it wants the node out, by the strongest adequate action."""
        score = self._score(row, now)
        jobs = state.jobs_on(score.node)
        place = int(self.signals.action[row])
        adequate = adequate_actions(score.fault_type, jobs, site=self.site)
        wanted = ACTIONS[place] if place >= 0 else next(one for one in _DRAINS if one in adequate)
        return decision_of(score, None, jobs, now=now, sentence="a rule", wanted=wanted)
