"""The guards: each looks at one decision and says how much of it may be done, and why.

Pure, one function per reason to hold back; nothing is read or done. The counting guards are in
`remediation.guards.caps`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from features.vocabulary import ACTIONS
from remediation.actuators.slurm_commands import is_plain_node_name
from remediation.cluster.state import ClusterState, NodeView
from remediation.decision import HARM, Decision, Judged, Verdict, touches_node
from remediation.guards.alerts import scopes_of
from remediation.ledger.view import LedgerView
from remediation.site import Site, matches

ANYTHING: Final = ACTIONS[-1]
NOTHING: Final = "none"
WATCH: Final = "watch"

CEILING_OF_LEVEL: Final = {
    "observe": WATCH,
    "recommend": WATCH,
    "cordon": "cordon",
    "drain_after_jobs": "drain_after_jobs",
    "notify_then_drain": "checkpoint_then_drain",
}
"""The most that each policy level lets automation do; draining at once is left to people."""


@dataclass(frozen=True, kw_only=True)
class GuardContext:
    """All that guards may look at.

    Attributes:
        now: The present.
        site: The site's settings.
        cluster: The cluster's state.
        expires_at: When the scores expire.
        is_rehearsal: Whether nothing real can be touched: a dry run or a simulation.
        stopped_by: Why automation is stopped; None: it is not.
        alerts: Nodes that are alerts by the warning policy.
        manageable: Nodes that the hook may manage (`manageable_nodes`).
        n_manageable_in: How many of them are in each partition; counted once, for a burst asks
            thousands of times.
        held: Nodes we hold, by the ledger, the cluster, and this run so far.
        n_recent: Actions within the last hour, this run's included.
        record: How things stand by the ledger.
    """

    now: datetime
    site: Site
    cluster: ClusterState
    expires_at: datetime
    is_rehearsal: bool
    stopped_by: str | None
    alerts: frozenset[str]
    manageable: frozenset[str]
    n_manageable_in: Mapping[str, int]
    held: frozenset[str]
    n_recent: int
    record: LedgerView

    def node(self, decision: Decision) -> NodeView | None:
        """The node a decision is about; None: the cluster does not know it."""
        return self.cluster.by_name.get(decision.node)


Guard = Callable[[Decision, GuardContext], Verdict]


def manageable_nodes(cluster: ClusterState, *, site: Site, now: datetime) -> frozenset[str]:
    """The nodes that percentages are of: allowed, out of maintenance, and up or held by us."""
    return frozenset(
        node.name
        for node in cluster.nodes
        if (node.state == "up" or node.owner == "forewarn")
        and matches(node.name, site.allow)
        and not matches(node.name, site.deny)
        and not _windows(node.name, site=site, now=now)
    )


def count_by_partition(cluster: ClusterState, names: frozenset[str]) -> dict[str, int]:
    """How many of some nodes are in each partition; a node counts in each of its own."""
    return {
        partition: len(members & names) for partition, members in cluster.names_by_partition.items()
    }


def passes(guard: str, reason: str) -> Verdict:
    """A verdict that lets everything pass."""
    return Verdict(guard, is_allowed=True, reason=reason, ceiling=ANYTHING)


def limits(guard: str, reason: str, *, ceiling: str = WATCH) -> Verdict:
    """A verdict that leaves at most `ceiling`."""
    return Verdict(guard, is_allowed=False, reason=reason, ceiling=ceiling)


def kill_switch(decision: Decision, context: GuardContext) -> Verdict:
    """Nothing is done while automation is stopped."""
    if context.stopped_by is not None:
        return limits("kill_switch", context.stopped_by)
    return passes("kill_switch", f"not set for {decision.node}")


def scores_in_time(decision: Decision, context: GuardContext) -> Verdict:
    """Expired scores say nothing about the present."""
    expires = f"{context.expires_at:%Y-%m-%d %H:%M} UTC"
    if context.now >= context.expires_at:
        return limits("scores_in_time", f"the score of {decision.as_of:%H:%M} expired at {expires}")
    return passes("scores_in_time", f"holds until {expires}")


def score_known(decision: Decision, _: GuardContext) -> Verdict:
    """An unknown score is neither sick nor healthy."""
    if decision.score is None or decision.status == "unknown":
        return limits("score_known", "the score is unknown", ceiling=NOTHING)
    return passes("score_known", f"{decision.score:.2f}, {decision.status}")


def model_fit_to_act(decision: Decision, context: GuardContext) -> Verdict:
    """A synthetic model or a prior never leads beyond a recommendation."""
    if context.is_rehearsal:
        return passes("model_fit_to_act", "nothing real can be touched")
    if decision.trained_on != "real":
        return limits("model_fit_to_act", f"the model was trained on {decision.trained_on} data")
    if decision.status != "ok":
        return limits("model_fit_to_act", f"the score is {decision.status}, not a model's")
    return passes("model_fit_to_act", "trained on real data")


def policy_level(decision: Decision, context: GuardContext) -> Verdict:
    """Automation goes as far as the site lets it for this group and fault; by default nowhere."""
    level, rule = context.site.level_of(decision.node, decision.fault_type)
    ceiling = CEILING_OF_LEVEL[level]
    said = f"level {level} ({rule})"
    if HARM[decision.wanted] <= HARM[ceiling]:
        return passes("policy_level", said)
    if level == "recommend":
        said += ": a person decides"
    return limits("policy_level", said, ceiling=ceiling)


def listed(decision: Decision, context: GuardContext) -> Verdict:
    """Only nodes that are allowed and not denied, each by a name that means one node."""
    if not is_plain_node_name(decision.node):
        return limits("listed", "the name could mean more than one node")
    if matches(decision.node, context.site.deny):
        return limits("listed", "on the deny list")
    if not matches(decision.node, context.site.allow):
        return limits("listed", "not on the allow list")
    return passes("listed", "allowed")


def not_held_out(decision: Decision, context: GuardContext) -> Verdict:
    """Nodes of the hold-out are never acted on, but for the sake of a large job."""
    hold_out = context.site.hold_out
    if not hold_out.chooses(decision.node):
        return passes("not_held_out", "not in the hold-out")
    job = hold_out.gives_way_to(context.cluster.jobs_on(decision.node))
    if job is not None:
        said = f"in the hold-out, which gives way to job {job.job_id} on {job.n_nodes} nodes"
        return passes("not_held_out", said)
    said = f"in the hold-out of {hold_out.percent:g} % of nodes that are watched, never acted on"
    return limits("not_held_out", said)


def node_state(decision: Decision, context: GuardContext) -> Verdict:
    """Only a node that is up and nobody's is taken; another owner's is never touched."""
    node = context.node(decision)
    if node is None:
        return limits("node_state", "the cluster does not know this node")
    if node.state == "drain" and node.owner == "other":
        owner = f"by {node.actor}" if node.actor else "by someone else"
        return limits("node_state", f"held {owner} already: {node.reason or 'no reason given'}")
    if node.state == "drain":
        return limits("node_state", "held by forewarn already")
    if node.state != "up":
        return limits("node_state", f"the node is {node.state}")
    return passes("node_state", "up, held by nobody")


def same_boot(decision: Decision, context: GuardContext) -> Verdict:
    """A node that was replaced or rebooted since is another node."""
    node = context.node(decision)
    found = node.boot_id if node else None
    if found != decision.boot_id:
        return limits("same_boot", f"decided for boot {decision.boot_id}, found {found}")
    return passes("same_boot", f"boot {found or 'unknown, as decided'}")


def not_held(decision: Decision, context: GuardContext) -> Verdict:
    """A node that the ledger says we hold is not taken again."""
    held = context.record.held.get(decision.node)
    if held is not None:
        return limits("not_held", f"{held.action} since {held.since:%Y-%m-%d %H:%M} UTC")
    return passes("not_held", "not held")


def clear_record(decision: Decision, context: GuardContext) -> Verdict:
    """A node with an unclear earlier action is left alone until a person has looked."""
    why = context.record.ambiguous.get(decision.node)
    return limits("clear_record", why) if why else passes("clear_record", "nothing open")


def attempts_left(decision: Decision, context: GuardContext) -> Verdict:
    """Tries are budgeted; after that it is a person's."""
    failed, most = (
        context.record.failed.get((decision.node, decision.boot_id), 0),
        context.site.caps.attempts,
    )
    said = f"{failed} of {most} tries came to nothing within 24 h"
    return limits("attempts_left", said) if failed >= most else passes("attempts_left", said)


def cooled_down(decision: Decision, context: GuardContext) -> Verdict:
    """A node that was let go is left alone for a while, above all if a person did it."""
    at = context.record.undrained.get(decision.node)
    if at is None:
        return passes("cooled_down", "not let go lately")
    until = at + timedelta(hours=context.site.undrain_cooldown_hours)
    said = f"let go at {at:%Y-%m-%d %H:%M} UTC"
    if context.now < until:
        return limits("cooled_down", f"{said}; left alone until {until:%Y-%m-%d %H:%M} UTC")
    return passes("cooled_down", said)


def out_of_maintenance(decision: Decision, context: GuardContext) -> Verdict:
    """Nodes in a maintenance window are left alone."""
    windows = _windows(decision.node, site=context.site, now=context.now)
    if windows:
        return limits("out_of_maintenance", f"in maintenance: {', '.join(windows)}")
    return passes("out_of_maintenance", "no window")


def working_hours(decision: Decision, context: GuardContext) -> Verdict:
    """The hook acts only in its hours."""
    hours = context.site.working_hours
    if hours and not any(one.holds(context.now) for one in hours):
        return limits("working_hours", f"{context.now:%a %H:%M} UTC is outside of working hours")
    return passes("working_hours", f"{decision.node} may be acted on now")


def warned_often_enough(decision: Decision, context: GuardContext) -> Verdict:
    """One tick above the threshold is no alert yet."""
    warning = context.site.warning
    said = f"above {warning.threshold:.0%} in {warning.n} of the last {warning.k} ticks"
    if decision.node in context.alerts:
        return passes("warned_often_enough", said)
    return limits("warned_often_enough", f"not yet {said}")


def more_than_applications(decision: Decision, _: GuardContext) -> Verdict:
    """What applications cause says nothing about the hardware, and never acts alone."""
    if decision.is_application_only:
        said = "all that raised the score are application Xids, which a job's own errors cause"
        return limits("more_than_applications", said)
    return passes("more_than_applications", "other signals speak too, or none is named")


def no_burst(decision: Decision, context: GuardContext) -> Verdict:
    """Many nodes at once are a common cause, and a person's."""
    node = context.node(decision)
    scopes = scopes_of(node) if node else ()
    for hold in context.record.holds:
        if hold.is_active(context.now) and (hold.scope in scopes or decision.node in hold.nodes):
            until = f"{hold.until:%Y-%m-%d %H:%M} UTC"
            return limits("no_burst", f"{hold.text}; stopped until {until} or acknowledged")
    return passes("no_burst", "no common cause seen")


GUARDS: Final[tuple[Guard, ...]] = (
    kill_switch,
    scores_in_time,
    score_known,
    model_fit_to_act,
    policy_level,
    listed,
    not_held_out,
    node_state,
    same_boot,
    not_held,
    clear_record,
    attempts_left,
    cooled_down,
    out_of_maintenance,
    working_hours,
    warned_often_enough,
    more_than_applications,
    no_burst,
)
"""The guards that look at one node; `remediation.guards.caps.CAPS` count over many."""


def judge(decision: Decision, context: GuardContext, guards: tuple[Guard, ...]) -> Judged:
    """Asks every guard and leaves the least harmful action that any of them leaves.

    All are asked, also after a no, so that a person sees every reason at once.

    Args:
        decision: The decision.
        context: What the guards look at.
        guards: The guards, in the order of their verdicts.
    """
    if not touches_node(decision.wanted):
        return Judged(decision, (), decision.wanted)
    verdicts = tuple(guard(decision, context) for guard in guards)
    action = min(
        [decision.wanted, *(verdict.ceiling for verdict in verdicts)], key=HARM.__getitem__
    )
    return Judged(decision, verdicts, action)


def settled(decision: Decision, done: Mapping[str, str]) -> Judged | None:
    """A decision that an earlier run carried out, as it was then; None: none did."""
    action = done.get(decision.decision_id)
    return None if action is None else Judged(decision, (), action, is_settled=True)


def _windows(node: str, *, site: Site, now: datetime) -> list[str]:
    return [
        window.name
        for window in site.maintenance
        if window.start <= now < window.end and matches(node, window.nodes)
    ]
