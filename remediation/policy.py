"""The policy: which action on a node is the cheapest adequate one, in one sentence with numbers.

Pure, and without regard to what may be done: that is for the guards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import polars as pl

from features.errors import DataError
from remediation.cluster import ClusterState, JobView, NodeView
from remediation.costs import Weighing, weigh
from remediation.decision import Decision, decision_id_of
from remediation.score_source import PublishedScores
from remediation.site import Site

# A hot node is slow before it is lost, and cools when its jobs end.
PATIENT_FAULTS: Final = frozenset({"thermal"})
# Uncorrectable memory ends the job on it with its next bad read; waiting for jobs is no answer.
IMPATIENT_FAULTS: Final = frozenset({"hbm_uncorrectable", "row_remap_failure"})
_WAITING_FOR_JOBS: Final = ("cordon", "drain_after_jobs")
_INTERRUPTING: Final = ("checkpoint_then_drain", "drain_now")
_DOING: Final = {
    "cordon": "a cordon",
    "drain_after_jobs": "a drain after its jobs",
    "checkpoint_then_drain": "a checkpoint and a drain",
    "drain_now": "a drain at once",
}


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
    return tuple(
        NodeScore(node=row.pop("entity_id"), **row)
        for row in rows.select("entity_id", *names, "model_version", "trained_on").iter_rows(
            named=True
        )
    )


def decide(
    scores: Sequence[NodeScore], state: ClusterState, *, site: Site, now: datetime
) -> tuple[Decision, ...]:
    """Decides for every scored node, the greatest expected saving first.

    Args:
        scores: Node scores of one horizon.
        state: The cluster now.
        site: Costs and threshold.
        now: When it is decided.

    Returns:
        One decision per score. Their order is by `p_fail x unplanned cost - drain cost`, then
        by Lyra's preemption cost, then by name; those not weighed come last.
    """
    decisions = [
        _decide_one(
            score, state.by_name.get(score.node), state.jobs_on(score.node), site=site, now=now
        )
        for score in scores
    ]
    return tuple(sorted(decisions, key=lambda d: (-d.benefit, d.preemption_cost, d.node)))


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

    A job is interrupted only if it may be requeued or its partition is listed; unknown is no.

    Args:
        fault_type: Most probable fault type.
        jobs: Running jobs on the node.
        site: Names the interruptible partitions.
    """
    if not jobs or fault_type in PATIENT_FAULTS:
        return _WAITING_FOR_JOBS
    may_interrupt = all(
        job.is_requeue_allowed is True or job.partition in site.interruptible_partitions
        for job in jobs
    )
    if not may_interrupt:
        return _WAITING_FOR_JOBS
    if fault_type in IMPATIENT_FAULTS:
        return _INTERRUPTING
    return (*_WAITING_FOR_JOBS, *_INTERRUPTING)


def _decide_one(
    score: NodeScore, node: NodeView | None, jobs: Sequence[JobView], *, site: Site, now: datetime
) -> Decision:
    blank = _undecided(score, node, jobs, now=now)
    if score.score is None or score.status == "unknown":
        why = score.status_reason or "no reason given"
        return replace(blank, sentence=f"Score unknown ({why}): neither sick nor healthy.")
    if node is None:
        said = f"{score.score:.0%} to fail within {score.horizon_h} h, but the cluster does not"
        return replace(blank, sentence=f"{said} know this node: nothing to act on.")
    weighing = weigh(node, jobs, score=score.score, horizon_h=score.horizon_h, costs=site.costs)
    best = min(
        adequate_actions(score.fault_type, jobs, site=site), key=lambda a: weighing.acting[a]
    )
    is_alert = score.score >= site.warning.threshold
    is_worth_it = weighing.acting[best] < weighing.waiting
    wanted = (best if is_worth_it else "watch") if is_alert else "none"
    return replace(
        blank,
        wanted=wanted,
        cost_of_acting=weighing.acting[best],
        cost_of_waiting=weighing.waiting,
        preemption_cost=weighing.preemption,
        sentence=_sentence(score, weighing, len(jobs), best=best, wanted=wanted, site=site),
    )


def _undecided(
    score: NodeScore, node: NodeView | None, jobs: Sequence[JobView], *, now: datetime
) -> Decision:
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
        wanted="none",
        score=score.score,
        status=score.status,
        horizon_h=score.horizon_h,
        fault_type=score.fault_type,
        model_version=score.model_version,
        trained_on=score.trained_on,
        jobs=tuple(job.job_id for job in jobs),
        sentence="",
    )


def _sentence(
    score: NodeScore, weighing: Weighing, n_jobs: int, *, best: str, wanted: str, site: Site
) -> str:
    fault = (score.fault_type or "fault type unknown").replace("_", " ")
    on_it = (
        f"{n_jobs} {'job' if n_jobs == 1 else 'jobs'} of {weighing.job_gpus:,.0f} GPUs on it, "
        f"preemption cost {weighing.preemption:.2f}"
        if n_jobs
        else "no job on it"
    )
    if weighing.free_gpus > 0:
        on_it += f", new jobs expected on {weighing.free_gpus:g} free GPUs"
    assumed = f"; assumed: {', '.join(weighing.assumed)}" if weighing.assumed else ""
    prior = ", a prior" if score.status == "prior" else ""
    threshold = site.warning.threshold
    ends = {
        "none": f", and the score is below the alert threshold of {threshold:.0%}",
        "watch": ", so watching is cheaper",
    }
    return (
        f"{score.score:.0%} to fail within {score.horizon_h} h ({fault}{prior}): waiting is "
        f"expected to cost {weighing.waiting:,.1f} GPU-hours and {_DOING[best]} "
        f"{weighing.acting[best]:,.1f}{ends.get(wanted, '')} ({on_it}{assumed})."
    )
