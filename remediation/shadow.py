"""Shadow: what a hook that only observed would have done, read from its ledger.

Pure. What then became of the nodes is in `remediation.shadow_outcomes`; ledger and tables are read
in `pipelines.report.shadow.input`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from remediation.cluster.state import ClusterState
from remediation.decision import HARM, Decision, Judged, Verdict, touches_node
from remediation.guards.caps import CAPS
from remediation.guards.judge import (
    CEILING_OF_LEVEL,
    Guard,
    GuardContext,
    count_by_partition,
    judge,
    limits,
    manageable_nodes,
    passes,
)
from remediation.ledger.entries import Entry
from remediation.ledger.view import RATE_WINDOW, LedgerView
from remediation.site import Site

DRY_RUN: Final = "dry_run"
LEVEL: Final = "policy_level"
REPLAYED: Final = frozenset({LEVEL, "not_held", *(cap.__name__ for cap in CAPS)})
"""Guards whose verdict depends on what was held: nothing was, so they are asked anew."""

ClusterAt = Callable[[datetime], ClusterState]


@dataclass(frozen=True, kw_only=True)
class WouldBe:
    """What would have been one action, or one alarm that guards held back.

    Attributes:
        decision: The decision it would have been done by; held back: the first that wanted one.
        action: What would have been done; `watch`: held back.
        until: End of the would-be hold; later decisions on the node up to it are the same.
        n_decisions: Decisions in it.
        held_back_by: Guards that held back decisions before it, each once, with its first reason.
    """

    decision: Decision
    action: str
    until: datetime
    n_decisions: int = 1
    held_back_by: tuple[tuple[str, str], ...] = ()

    @property
    def is_acting(self) -> bool:
        """Whether the node would have been touched."""
        return touches_node(self.action)

    @property
    def since(self) -> datetime:
        """When it would have been done; held back: when it was first wanted."""
        return self.decision.decided_at

    def holds(self, now: datetime) -> bool:
        """Whether it would hold the node at `now`."""
        return self.is_acting and now < self.until


def is_shadow(entry: Entry) -> bool:
    """Whether a decision could not have been carried out: a dry run, or a level that only looks."""
    if entry.actuator == DRY_RUN:
        return True
    return any(
        guard == LEVEL and HARM[ceiling] <= HARM["watch"]
        for guard, _, _, ceiling in entry.body["verdicts"]
    )


def read_wishes(
    entries: Iterable[Entry], *, since: datetime, until: datetime
) -> tuple[Judged, ...]:
    """The decisions of a time that wanted an action and could not be carried out.

    Args:
        entries: Entries of kind `decision`, in order.
        since: First moment of a decision's recording.
        until: End, exclusive.

    Returns:
        Each with the verdicts that do not depend on what was held, and what they leave of it.
    """
    found = []
    for entry in entries:
        if entry.kind != "decision" or not since <= entry.recorded_at < until:
            continue
        body = entry.body  # parsed once: a season of a large fleet is some 100,000 entries
        if touches_node(body["wanted"]) and is_shadow(entry):
            found.append(_wish(entry, body))
    return tuple(found)


def _wish(entry: Entry, body: Mapping[str, Any]) -> Judged:
    verdicts = tuple(Verdict(*one) for one in body["verdicts"] if one[0] not in REPLAYED)
    copied = ("boot_id", "wanted", "score", "status", "horizon_h", "fault_type", "model_version")
    decision = Decision(
        decision_id=str(entry.decision_id),
        node=str(entry.node),
        as_of=datetime.fromisoformat(body["as_of"]),
        decided_at=entry.recorded_at,
        trained_on=body["trained_on"],
        sentence=body["sentence"],
        jobs=tuple(body["jobs"]),
        **{name: body[name] for name in copied},
    )
    left = [decision.wanted, *(verdict.ceiling for verdict in verdicts)]
    return Judged(decision, verdicts, min(left, key=HARM.__getitem__))


def hold_time(site: Site, horizon_h: int) -> timedelta:
    """How long a node that would have been taken counts as held."""
    hours = site.caps.dry_run_hold_hours
    return timedelta(hours=horizon_h if hours is None else hours)


def replay(
    wishes: Sequence[Judged],
    *,
    cluster_at: ClusterAt,
    site: Site,
    level: str,
    guards: tuple[Guard, ...] = CAPS,
) -> tuple[WouldBe, ...]:
    """Goes through the wishes as if automation had been allowed, with caps and rates counted.

    The caps are the hook's own, asked about the cluster of that moment and the nodes that would
    have been held. A hold lasts `hold_time`, whatever became of the node.

    Args:
        wishes: Decisions in the order of the ledger.
        cluster_at: The cluster at a moment.
        site: The site's caps and lists.
        level: How far automation would have been allowed to go, everywhere.
        guards: What is asked anew about each wish that the recorded verdicts leave standing.

    Returns:
        Would-be actions and alarms held back, in order of time; no two of a node overlap.
    """
    open_by_node: dict[str, WouldBe] = {}
    found: list[WouldBe] = []
    acting: list[WouldBe] = []
    context: GuardContext | None = None
    for wish in wishes:
        decision, now = wish.decision, wish.decision.decided_at
        before = open_by_node.get(decision.node)
        if before is not None and now >= before.until:
            found.append(open_by_node.pop(decision.node))
            before = None
        if before is not None and before.is_acting:
            open_by_node[decision.node] = replace(before, n_decisions=before.n_decisions + 1)
            continue
        verdicts, action = wish.verdicts, _lesser(wish.action, CEILING_OF_LEVEL[level])
        if touches_node(action):
            if context is None or context.now != now:
                # Once for a round: a fleet is counted through for it.
                context = _context(cluster_at(now), site=site, now=now)
            acting = [one for one in acting if now < max(one.until, one.since + RATE_WINDOW)]
            again = judge(replace(decision, wanted=action), _with(context, acting), guards)
            verdicts, action = (*verdicts, *again.verdicts), again.action
        made = _would_be(before, wish, verdicts, action, hold=hold_time(site, decision.horizon_h))
        open_by_node[decision.node] = made
        if made.is_acting:
            acting.append(made)
    return tuple(sorted([*found, *open_by_node.values()], key=lambda o: (o.since, o.decision.node)))


def _lesser(one: str, other: str) -> str:
    return one if HARM[one] <= HARM[other] else other


def _would_be(
    before: WouldBe | None,
    wish: Judged,
    verdicts: Sequence[Verdict],
    action: str,
    *,
    hold: timedelta,
) -> WouldBe:
    """A wish after the alarm of its node that was held back so far, if there is one."""
    if before is None:
        before = WouldBe(
            decision=wish.decision,
            action="watch",
            until=wish.decision.decided_at + hold,
            n_decisions=0,
        )
    n_decisions = before.n_decisions + 1
    if touches_node(action):
        return replace(
            before,
            decision=wish.decision,
            action=action,
            until=wish.decision.decided_at + hold,
            n_decisions=n_decisions,
        )
    known = dict(before.held_back_by)
    for verdict in verdicts:
        if not verdict.is_allowed:
            known.setdefault(verdict.guard, verdict.reason)
    return replace(before, n_decisions=n_decisions, held_back_by=tuple(known.items()))


def _context(cluster: ClusterState, *, site: Site, now: datetime) -> GuardContext:
    manageable = manageable_nodes(cluster, site=site, now=now)
    return GuardContext(
        now=now,
        site=site,
        cluster=cluster,
        expires_at=now,
        is_rehearsal=True,
        stopped_by=None,
        alerts=frozenset(),
        manageable=manageable,
        n_manageable_in=count_by_partition(cluster, manageable),
        held=frozenset(),
        n_recent=0,
        record=LedgerView(),
    )


def _with(context: GuardContext, acting: Sequence[WouldBe]) -> GuardContext:
    """The context with what would be held, and with the actions of the last hour."""
    now = context.now
    return replace(
        context,
        held=frozenset(one.decision.node for one in acting if one.holds(now)),
        n_recent=sum(now - RATE_WINDOW < one.since for one in acting),
    )


def is_known_up(decision: Decision, context: GuardContext) -> Verdict:
    """For a rule that has no ledger: only a node that the tables know, and that is up, is taken."""
    node = context.node(decision)
    if node is None or node.state != "up":
        return limits("node_state", f"the node is {'unknown' if node is None else node.state}")
    return passes("node_state", "up")
