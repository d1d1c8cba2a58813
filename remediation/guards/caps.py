"""The guards that count: how many nodes may be held at once, where, and how fast.

Pure; which nodes are held is given. What a single node's own state forbids is in
`remediation.guards.judge`.
"""

from collections.abc import Collection
from math import floor
from typing import Final

from remediation.decision import Decision, Verdict
from remediation.guards.judge import Guard, GuardContext, limits, passes


def share_of(n_manageable: int, percent: float) -> int:
    """How many nodes a percentage allows: rounded down, at least one, none of none.

    >>> share_of(0, 2.0), share_of(10, 2.0), share_of(199, 2.0)
    (0, 1, 3)
    """
    return min(n_manageable, max(1, floor(n_manageable * percent / 100)))


def cap_fleet(decision: Decision, context: GuardContext) -> Verdict:
    """Nodes held at once in the fleet, as a share of the manageable ones and absolutely."""
    caps = context.site.caps
    most = min(share_of(len(context.manageable), caps.held_percent), caps.held_most)
    n_held = len(context.held - {decision.node})
    said = f"{n_held} held of {most} allowed, {len(context.manageable)} manageable"
    return _verdict("cap_fleet", said, n_held=n_held, most=most)


def cap_partition(decision: Decision, context: GuardContext) -> Verdict:
    """The same share within each partition of the node; the first full one counts."""
    node = context.node(decision)
    said = "in no partition"
    for partition in node.partitions if node else ():
        names = context.cluster.names_by_partition[partition]
        n_manageable = context.n_manageable_in.get(partition, 0)
        most = share_of(n_manageable, context.site.caps.partition_percent)
        n_held = len((context.held & names) - {decision.node})
        said = f"{n_held} held of {most} allowed in {partition}"
        if n_held >= most:
            return limits("cap_partition", said)
    return passes("cap_partition", said)


def cap_rack(decision: Decision, context: GuardContext) -> Verdict:
    """Nodes held at once in the node's rack; nodes of unknown rack count as one rack."""
    most = context.site.caps.per_rack
    if most is None:
        return passes("cap_rack", "no limit")
    node = context.node(decision)
    rack = node.rack if node else None
    in_rack = context.cluster.names_by_rack.get(rack, frozenset())
    # A held node that the cluster no longer shows may be in this rack.
    gone = {name for name in context.held if name not in context.cluster.by_name}
    n_held = len((context.held & in_rack | gone) - {decision.node})
    said = f"{n_held} held of {most} allowed in rack {rack or 'unknown'}"
    return _verdict("cap_rack", said, n_held=n_held, most=most)


def cap_job(decision: Decision, context: GuardContext) -> Verdict:
    """Nodes held at once under each job on the node."""
    most = context.site.caps.per_job
    jobs = context.cluster.jobs_on(decision.node)
    said = "no job on it"
    for job in jobs:
        n_held = len((context.held & set(job.nodes)) - {decision.node})
        said = f"{n_held} held of {most} allowed under job {job.job_id}"
        if n_held >= most:
            return limits("cap_job", said)
    return passes("cap_job", said)


def cap_rate(decision: Decision, context: GuardContext) -> Verdict:
    """Actions within any hour."""
    most = context.site.caps.actions_per_hour
    said = f"{context.n_recent} actions of {most} allowed within 60 min before {decision.node}"
    return _verdict("cap_rate", said, n_held=context.n_recent, most=most)


def never_all(decision: Decision, context: GuardContext) -> Verdict:
    """The last node in service of the fleet or of a partition is never taken."""
    node = context.node(decision)
    partitions = node.partitions if node else ()
    if not _has_others_in_service(context.cluster.by_name, decision, context):
        return limits("never_all", "no other node of the fleet would be in service")
    for partition in partitions:
        names = context.cluster.names_by_partition[partition]
        if not _has_others_in_service(names, decision, context):
            return limits("never_all", f"no other node of {partition} would be in service")
    return passes("never_all", "others stay in service")


CAPS: Final[tuple[Guard, ...]] = (
    cap_fleet,
    cap_partition,
    cap_rack,
    cap_job,
    cap_rate,
    never_all,
)

TELLS_A_PERSON: Final = frozenset({*(cap.__name__ for cap in CAPS), "attempts_left"})
"""Guards that a person hears of when nothing else held the node back."""


def _verdict(guard: str, said: str, *, n_held: int, most: int) -> Verdict:
    return limits(guard, said) if n_held >= most else passes(guard, said)


def _has_others_in_service(
    names: Collection[str], decision: Decision, context: GuardContext
) -> bool:
    return any(
        name != decision.node
        and name not in context.held
        and context.cluster.by_name[name].state == "up"
        for name in names
    )
