"""The policy: which action on a node is the cheapest adequate one, in one sentence with numbers.

Pure, and without regard to what may be done: that is for the guards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Self

import polars as pl

from features.errors import DataError
from remediation.cluster.state import ClusterState, JobView, NodeView
from remediation.decision import Decision, decision_id_of, touches_node
from remediation.policy.capacity import Capacity, capacity_of
from remediation.policy.costs import NOTHING_KNOWN, Outlook, Weighing, weigh
from remediation.policy.evidence import APPLICATIONS, rests_on_applications_alone
from remediation.policy.reclaim import greedy_order
from remediation.policy.sentence import (
    absent_sentence,
    alert_sentence,
    quiet_sentence,
    risk_words,
    unknown_sentence,
)
from remediation.score_source import PublishedScores
from remediation.site import Site, Window, matches

# A hot node is slow before it is lost, and cools when its jobs end.
PATIENT_FAULTS: Final = frozenset({"thermal"})
# Uncorrectable memory ends the job on it with its next bad read; waiting for jobs is no answer.
IMPATIENT_FAULTS: Final = frozenset({"hbm_uncorrectable", "row_remap_failure"})
LEAST_SAVING: Final = 0.1
"""GPU-hours that an action must be expected to save; less is rounding, and no reason to act."""
_WAITING_FOR_JOBS: Final = ("cordon", "drain_after_jobs")
_INTERRUPTING: Final = ("checkpoint_then_drain", "drain_now")


@dataclass(frozen=True, kw_only=True)
class NodeScore:
    """One row of scores/node_scores, as far as the policy needs it.

    Attributes:
        node: Node name.
        as_of: Moment of the score.
        horizon_h: Horizon.
        score: Calibrated probability; None: unknown.
        status: ok, prior or unknown.
        status_reason: Why it is not ok.
        fault_type: Most probable fault type.
        model_version: Model.
        trained_on: synthetic or real.
        is_application_only: Whether all that raised the score are signals of applications.
    """

    node: str
    as_of: datetime
    horizon_h: int
    score: float | None
    status: str
    status_reason: str | None
    fault_type: str | None
    model_version: str
    trained_on: str
    is_application_only: bool = False


def node_scores_of(published: PublishedScores, horizon_h: int) -> tuple[NodeScore, ...]:
    """The node scores of one horizon.

    Args:
        published: One tick.
        horizon_h: Horizon the site acts on.

    Raises:
        DataError: The tick has no such horizon, or scores a node twice in it.
    """
    rows = published.node_scores.filter(pl.col("horizon_h") == horizon_h)
    if rows.is_empty():
        found = sorted(published.node_scores["horizon_h"].unique())
        raise DataError(
            f"node scores of {published.as_of}: none has horizon_h {horizon_h}, found "
            f"{found or 'no rows'}. Set horizon_h in the site file to one that is published."
        )
    twice = rows.filter(pl.col("entity_id").is_duplicated())
    if not twice.is_empty():
        raise DataError(
            f"node scores of {published.as_of}: node {twice['entity_id'][0]} has "
            f"{rows.filter(pl.col('entity_id') == twice['entity_id'][0]).height} scores for "
            f"horizon_h {horizon_h}. Publish one model's."
        )
    names = ("as_of", "horizon_h", "score", "status", "status_reason", "fault_type")
    speaking = rows.filter(
        pl.col("reasons").list.join(" ").str.contains(APPLICATIONS, literal=True)
    )
    alone = {
        node
        for node, reasons in speaking.select("entity_id", "reasons").iter_rows()
        if rests_on_applications_alone(reasons)
    }
    return tuple(
        NodeScore(node=(node := row.pop("entity_id")), is_application_only=node in alone, **row)
        for row in rows.select("entity_id", *names, "model_version", "trained_on").iter_rows(
            named=True
        )
    )


def decide(
    scores: Sequence[NodeScore], state: ClusterState, *, site: Site, now: datetime
) -> tuple[Decision, ...]:
    """Decides for every scored node, those to be acted on first; below the threshold is nothing.

    Args:
        scores: Node scores of one horizon, each node once.
        state: The cluster now.
        site: Costs and threshold.
        now: When it is decided.

    Returns:
        One decision per score. Those that want an action come first, by
        `p_fail x unplanned cost - drain cost`, then by Lyra's preemption cost, then by name; once
        a node's jobs would be interrupted, the nodes that share them are ranked anew. A
        replacement is given to the first that interrupts jobs; those after it do without. The
        others follow by the same rank, those not weighed last.
    """
    outlooks = _Outlooks.of(scores, state, site=site, now=now)
    decided = {score.node: _decide_one(score, state, outlooks, site=site) for score in scores}
    acting = [name for name, one in decided.items() if touches_node(one.wanted)]
    by_node = {score.node: score for score in scores}

    def rank(name: str, jobs: Sequence[JobView]) -> tuple[float, float, str]:
        one = decided[name]
        if jobs == state.jobs_on(name):
            return _rank(one)
        weighing = _weigh(by_node[name], state.by_name[name], jobs, outlooks, site=site)
        actions = adequate_actions(one.fault_type, jobs, site=site)
        saved = weighing.waiting - min(weighing.acting[action] for action in actions)
        return (-saved, weighing.preemption, name)

    order = greedy_order(
        acting,
        {name: state.jobs_on(name) for name in acting},
        rank=rank,
        takes_jobs=lambda name: decided[name].wanted in _INTERRUPTING,
    )
    first = []
    for name in order:
        one = decided[name]
        if outlooks.is_changed and one.jobs and one.wanted in _INTERRUPTING:
            one = _decide_one(by_node[name], state, outlooks, site=site)
        if one.jobs and one.wanted in _INTERRUPTING:
            outlooks = outlooks.after_taking(state.by_name[name])
        first.append(one)
    others = [one for one in decided.values() if not touches_node(one.wanted)]
    return (*first, *sorted(others, key=_rank))


def decide_unscored(
    state: ClusterState, scored: Sequence[NodeScore], *, published: PublishedScores, site: Site
) -> tuple[NodeScore, ...]:
    """Stands in an unknown score for each node of the cluster that was not scored.

    Returns:
        Scores of status unknown, by node name.
    """
    known = {score.node for score in scored}
    return tuple(
        NodeScore(
            node=node.name,
            as_of=published.as_of,
            horizon_h=site.horizon_h,
            score=None,
            status="unknown",
            status_reason="no score was published for it",
            fault_type=None,
            model_version=published.model_versions.get(site.horizon_h, "none"),
            trained_on=published.trained_on,
        )
        for node in sorted(state.nodes, key=lambda node: node.name)
        if node.name not in known
    )


def adequate_actions(
    fault_type: str | None, jobs: Sequence[JobView], *, site: Site
) -> tuple[str, ...]:
    """The actions that suit a fault and the jobs on the node.

    A job is interrupted only if it may be requeued, is elastic with a node to spare, or its
    partition is listed; unknown is no.

    Args:
        fault_type: Most probable fault type.
        jobs: Running jobs on the node.
        site: Names the interruptible partitions.
    """
    if not jobs or fault_type in PATIENT_FAULTS:
        return _WAITING_FOR_JOBS
    may_interrupt = all(
        job.is_requeue_allowed is True
        or job.n_flexible > 0
        or job.partition in site.interruptible_partitions
        for job in jobs
    )
    if not may_interrupt:
        return _WAITING_FOR_JOBS
    if fault_type in IMPATIENT_FAULTS:
        return _INTERRUPTING
    return (*_WAITING_FOR_JOBS, *_INTERRUPTING)


@dataclass(frozen=True)
class _Outlooks:
    """What every node's weighing shares: replacements, planned work, and whether some are gone."""

    capacity: Capacity
    windows: tuple[Window, ...]
    now: datetime
    is_changed: bool = False

    @classmethod
    def of(
        cls, scores: Sequence[NodeScore], state: ClusterState, *, site: Site, now: datetime
    ) -> Self:
        until = now + timedelta(hours=site.horizon_h)
        near = [window for window in site.maintenance if now < window.end and window.start < until]
        suspects = {
            score.node
            for score in scores
            if score.score is not None and score.score >= site.warning.threshold
        }
        # A node that is in maintenance, or soon will be, takes nobody's place.
        suspects.update(
            node.name
            for node in (state.nodes if near else ())
            if any(matches(node.name, window.nodes) for window in near)
        )
        coming = sorted(
            (window for window in near if now < window.start), key=lambda window: window.start
        )
        capacity = capacity_of(state, site=site, suspects=frozenset(suspects))
        return cls(capacity, tuple(coming), now)

    def of_node(self, node: NodeView, jobs: Sequence[JobView]) -> Outlook:
        spare = self.capacity.replacement(node) if jobs else None
        window = next((one for one in self.windows if matches(node.name, one.nodes)), None)
        if window is None:
            return NOTHING_KNOWN if spare is None else Outlook(replacement=spare)
        starts_in = (window.start - self.now) / timedelta(hours=1)
        return Outlook(replacement=spare, maintenance=window.name, maintenance_in_h=starts_in)

    def after_taking(self, node: NodeView) -> "_Outlooks":
        """What is left once a node's jobs have moved."""
        spare = self.capacity.replacement(node)
        if spare is None:
            return self
        return replace(self, capacity=self.capacity.without(spare), is_changed=True)


def _rank(decision: Decision) -> tuple[float, float, str]:
    return (-decision.benefit, decision.preemption_cost, decision.node)


def _weigh(
    score: NodeScore, node: NodeView, jobs: Sequence[JobView], outlooks: _Outlooks, *, site: Site
) -> Weighing:
    return weigh(
        node,
        jobs,
        score=score.score or 0.0,
        horizon_h=score.horizon_h,
        costs=site.costs,
        outlook=outlooks.of_node(node, jobs),
    )


def _decide_one(
    score: NodeScore, state: ClusterState, outlooks: _Outlooks, *, site: Site
) -> Decision:
    node, jobs = state.by_name.get(score.node), state.jobs_on(score.node)
    if score.score is None or score.status == "unknown":
        return decision_of(
            score, node, jobs, now=outlooks.now, sentence=unknown_sentence(score.status_reason)
        )
    if node is None:
        said = absent_sentence(score.score, score.horizon_h)
        return decision_of(score, node, jobs, now=outlooks.now, sentence=said)
    risk = risk_words(
        score.score, score.horizon_h, score.fault_type, is_prior=score.status == "prior"
    )
    if score.score < site.warning.threshold:
        # Not weighed: nearly all nodes are here, and no action on them would be taken.
        said = quiet_sentence(risk, threshold=site.warning.threshold)
        return decision_of(score, node, jobs, now=outlooks.now, sentence=said)
    return _decide_alert(score, node, jobs, outlooks, risk=risk, site=site)


def _decide_alert(
    score: NodeScore,
    node: NodeView,
    jobs: tuple[JobView, ...],
    outlooks: _Outlooks,
    *,
    risk: str,
    site: Site,
) -> Decision:
    """Weighs the actions on a node above the threshold and takes the cheapest adequate one."""
    weighing = _weigh(score, node, jobs, outlooks, site=site)
    actions = adequate_actions(score.fault_type, jobs, site=site)
    best = min(actions, key=weighing.acting.__getitem__)
    is_worth_it = weighing.waiting - weighing.acting[best] >= LEAST_SAVING
    sentence = alert_sentence(
        risk,
        weighing,
        jobs,
        best=best,
        is_watch=not is_worth_it,
        why_waits=_why_waits(score.fault_type, weighing, actions, jobs),
        outlook=outlooks.of_node(node, jobs),
        site=site,
    )
    return decision_of(
        score,
        node,
        jobs,
        now=outlooks.now,
        wanted=best if is_worth_it else "watch",
        cost_of_acting=weighing.acting[best],
        cost_of_waiting=weighing.waiting,
        preemption_cost=weighing.preemption,
        is_application_only=score.is_application_only,
        sentence=sentence,
    )


def _why_waits(
    fault_type: str | None, weighing: Weighing, actions: Sequence[str], jobs: Sequence[JobView]
) -> str | None:
    """Why the cheapest action of all is not taken, where it is not adequate."""
    cheapest = min(weighing.acting, key=weighing.acting.__getitem__)
    if cheapest in actions:
        return None
    if cheapest in _WAITING_FOR_JOBS:
        return "such a fault does not wait for jobs to end"
    if fault_type in PATIENT_FAULTS:
        return "such a fault waits for an idle gap"
    if any(job.is_requeue_allowed is False for job in jobs):
        return "its jobs may not be interrupted"
    return "it is unknown whether its jobs may be requeued, so they are left alone"


def decision_of(
    score: NodeScore,
    node: NodeView | None,
    jobs: Sequence[JobView],
    *,
    now: datetime,
    sentence: str,
    wanted: str = "none",
    cost_of_acting: float | None = None,
    cost_of_waiting: float | None = None,
    preemption_cost: float = 0.0,
    is_application_only: bool = False,
) -> Decision:
    """What is wanted of a node, as the ledger will have it."""
    boot_id = node.boot_id if node else None
    return Decision(
        decision_id=decision_id_of(
            node=score.node,
            boot_id=boot_id,
            as_of=score.as_of,
            horizon_h=score.horizon_h,
            model_version=score.model_version,
        ),
        node=score.node,
        boot_id=boot_id,
        as_of=score.as_of,
        decided_at=now,
        wanted=wanted,
        score=score.score,
        status=score.status,
        horizon_h=score.horizon_h,
        fault_type=score.fault_type,
        model_version=score.model_version,
        trained_on=score.trained_on,
        jobs=tuple(job.job_id for job in jobs),
        cost_of_acting=cost_of_acting,
        cost_of_waiting=cost_of_waiting,
        preemption_cost=preemption_cost,
        is_application_only=is_application_only,
        sentence=sentence,
    )
