"""Says a decision in one sentence, to be read aloud at 3 a.m.: what, how likely, at what cost.

Nothing is decided here.
"""

from collections.abc import Sequence
from typing import Final

from remediation.cluster.state import JobView
from remediation.policy.capacity import Spare
from remediation.policy.costs import Outlook, Weighing
from remediation.site import Site

_FAULTS: Final = {
    "hbm_uncorrectable": "uncorrectable GPU memory",
    "row_remap_failure": "GPU memory out of spare rows",
    "off_bus": "GPU off the bus",
    "gsp": "GPU firmware",
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "thermal": "overheating",
    "power": "power",
    "nic_fabric": "network",
    "host": "host",
    "sdc": "silent data corruption",
    "other_gpu": "other GPU fault",
}
_COURSES: Final = {
    "cordon": "a cordon",
    "drain_after_jobs": "a drain after its jobs",
    "checkpoint_then_drain": "a drain after a checkpoint",
    "drain_now": "a drain now",
}


def unknown_sentence(status_reason: str | None) -> str:
    """For a node without a score."""
    why = status_reason or "no reason given"
    return f"Score unknown ({why}): neither sick nor healthy."


def absent_sentence(score: float, horizon_h: int) -> str:
    """For a node that the cluster does not know."""
    return (
        f"{score:.0%} to fail within {horizon_h} h, but the cluster does not know this node: "
        f"nothing to act on."
    )


def quiet_sentence(risk: str, *, threshold: float) -> str:
    """For a node below the threshold.

    Args:
        risk: `risk_words`.
        threshold: The site's.
    """
    return f"Nothing to do: {risk}, below the alert threshold of {threshold:.0%}."


def risk_words(score: float, horizon_h: int, fault_type: str | None, *, is_prior: bool) -> str:
    """How likely which failure is.

    >>> risk_words(0.81, 24, "nvlink", is_prior=False)
    '81% to fail within 24 h (NVLink)'
    """
    fault = _FAULTS.get(fault_type or "", "fault type unknown")
    prior = ", from published rates only" if is_prior else ""
    chance = f"{score:.0%}" if score >= 0.01 else "under 1%"
    return f"{chance} to fail within {horizon_h} h ({fault}{prior})"


def alert_sentence(
    risk: str,
    weighing: Weighing,
    jobs: Sequence[JobView],
    *,
    best: str,
    is_watch: bool,
    why_waits: str | None,
    outlook: Outlook,
    site: Site,
) -> str:
    """For a node at or above the threshold.

    Args:
        risk: `risk_words`.
        weighing: What each course costs.
        jobs: Jobs on the node.
        best: The cheapest adequate action.
        is_watch: Whether waiting is cheaper still.
        why_waits: Why its jobs are not interrupted, where a choice was taken away; None: none was.
        outlook: Replacement and maintenance.
        site: For the notice.
    """
    saved = weighing.waiting - weighing.acting[best]
    waiting = _hours(weighing.waiting)
    if not is_watch:
        doing = _doing(best, weighing, jobs, site=site)
        said = f"{doing}: {risk}; this saves {_hours(saved)} of the {waiting} GPU-hours that "
        said += "waiting is expected to cost"
    elif round(saved, 1) >= 0:
        said = f"Watch: {risk}, but no action saves any of the {waiting} GPU-hours that waiting is "
        said += "expected to cost"
    else:
        said = f"Watch: {risk}, but {_COURSES[best]}, the cheapest action, costs "
        said += f"{_hours(-saved)} GPU-hours more than waiting, which is expected to cost {waiting}"
    parts = [said]
    if jobs and why_waits:
        parts.append(why_waits)
    if is_watch and jobs:
        parts.append(f"it runs {_jobs(weighing, jobs)}")
    n_elastic = sum(job.n_flexible > 0 for job in jobs)
    if n_elastic and not is_watch:
        parts.append(f"{n_elastic} elastic {_noun(n_elastic)} can go on with a node less")
    if outlook.maintenance_in_h is not None:
        starts = f"starts in {_time(outlook.maintenance_in_h)}"
        parts.append(f"maintenance {outlook.maintenance!r} {starts} and ends the risk")
    if jobs and outlook.replacement is not None:
        parts.append(_standing_in(outlook.replacement))
    if weighing.assumed:
        parts.append(f"assumed: {', '.join(weighing.assumed)}")
    return "; ".join(parts) + "."


def _doing(best: str, weighing: Weighing, jobs: Sequence[JobView], *, site: Site) -> str:
    if not jobs:
        return "Cordon, as it is idle" if best == "cordon" else "Drain, as it is idle"
    on_it = _jobs(weighing, jobs)
    if best == "cordon":
        return f"Cordon and leave {on_it} alone"
    if best == "drain_after_jobs":
        ended = "has ended" if len(jobs) == 1 else "have ended"
        return f"Drain once {on_it} {ended}, in about {_time(weighing.leaves_in_h)}"
    if best == "checkpoint_then_drain":
        notice = site.costs.notice_minutes
        return f"Have {on_it} write a checkpoint, and drain in {notice:g} min"
    return f"Drain now and interrupt {on_it}"


def _jobs(weighing: Weighing, jobs: Sequence[JobView]) -> str:
    gpus = "GPU" if weighing.job_gpus == 1 else "GPUs"
    return f"{len(jobs)} {_noun(len(jobs))} on {weighing.job_gpus:,.0f} {gpus}"


def _noun(n_jobs: int) -> str:
    return "job" if n_jobs == 1 else "jobs"


def _standing_in(spare: Spare) -> str:
    if spare.kind == "standby":
        return f"standby node {spare.name} can take over"
    if spare.kind == "loaned":
        return f"loaned server {spare.name} can be called back"
    return f"elastic job {spare.name} can give up a node"


def _hours(gpu_hours: float) -> str:
    """Two digits are as much as an expectation is good for."""
    return f"{gpu_hours:,.0f}" if gpu_hours >= 10 else f"{gpu_hours:.1f}"


def _time(hours: float) -> str:
    return f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.0f} h"
