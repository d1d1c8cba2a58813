"""Which nodes are alerts in this tick, and whether so many are new that a common cause is likely.

Pure: scores above the threshold in earlier ticks are given; they are kept in the ledger.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil

import polars as pl

from features.contracts import UTC_TIME
from models.warnings import WarningPolicy, raise_alerts
from remediation.cluster import ClusterState, NodeView
from remediation.ledger_view import Hold, Observed
from remediation.policy import NodeScore
from remediation.site import Site

FLEET = "fleet"


def lookback(site: Site) -> timedelta:
    """How far back earlier ticks must be given."""
    ticks = site.warning.k * timedelta(minutes=site.warning.tick_minutes)
    return max(ticks, timedelta(hours=site.burst.quiet_hours))


def above_now(
    scores: Iterable[NodeScore], state: ClusterState, *, site: Site
) -> tuple[Observed, ...]:
    """The nodes of the cluster whose score is at or above the threshold; unknown is not above."""
    return tuple(
        Observed(score.node, state.by_name[score.node].boot_id, score.as_of, score.score)
        for score in scores
        if score.score is not None
        and score.status != "unknown"
        and score.score >= site.warning.threshold
        and score.node in state.by_name
    )


def alerts_of(
    above: Sequence[Observed], earlier: Iterable[Observed], *, site: Site
) -> frozenset[str]:
    """The nodes that are above in n of the last k ticks, by the models' own warning policy.

    Only ticks of the present boot count, so that a replaced node starts clean. What kind of
    failure is feared does not matter: a changed reason does not start the count anew.

    Args:
        above: Nodes above in this tick.
        earlier: Nodes above in earlier ticks; rows of this tick give way to `above`.
        site: n, k and the tick.
    """
    boots = {one.node: (one.boot_id, one.as_of) for one in above}
    rows = {
        (one.node, one.as_of): one.score
        for one in earlier
        if one.node in boots and one.boot_id == boots[one.node][0]
    }
    rows |= {(one.node, one.as_of): one.score for one in above}
    frame = pl.DataFrame(
        [(node, as_of, score) for (node, as_of), score in rows.items()],
        schema={"entity_id": pl.String(), "as_of": UTC_TIME, "score": pl.Float64()},
        orient="row",
    )
    policy = WarningPolicy(
        threshold=site.warning.threshold,
        n=site.warning.n,
        k=site.warning.k,
        tick=timedelta(minutes=site.warning.tick_minutes),
        cooldown=timedelta(0),
    )
    alerts = raise_alerts(frame, policy)
    return frozenset(
        node
        for node, as_of in alerts.select("entity_id", "as_of").iter_rows()
        if as_of == boots[node][1]
    )


def new_bursts(
    above: Sequence[Observed],
    earlier: Iterable[Observed],
    *,
    state: ClusterState,
    n_manageable: int,
    holds: Sequence[Hold],
    site: Site,
    now: datetime,
) -> tuple[Hold, ...]:
    """The bursts that begin with this tick: of the fleet, of a rack, of a switch.

    A node is new if it is above now, has been so for at most `within_minutes`, and was not in the
    `quiet_hours` before. Nodes that made an earlier hold are a person's already and make no other.

    Args:
        above: Nodes above in this tick.
        earlier: Nodes above in earlier ticks.
        state: The cluster.
        n_manageable: Manageable nodes, the denominator of the fleet's share.
        holds: Holds so far.
        site: When it is a burst.
        now: The present.
    """
    known = {
        node
        for hold in holds
        if now < hold.until + timedelta(hours=site.burst.quiet_hours)
        for node in hold.nodes
    }
    new = sorted(_new(above, earlier, site=site) - known)
    needed = max(site.burst.fleet_nodes, ceil(n_manageable * site.burst.fleet_percent / 100))
    places: dict[str, list[str]] = {}
    for name in new:
        for scope in scopes_of(state.by_name[name])[1:]:
            places.setdefault(scope, []).append(name)
    found = [(FLEET, new)] if len(new) >= needed else []
    found += [
        (scope, nodes)
        for scope, nodes in places.items()
        if len(nodes) >= site.burst.component_nodes
    ]
    return tuple(
        Hold(
            scope=scope,
            nodes=tuple(nodes),
            text=f"{len(nodes)} nodes of {scope} newly above the threshold within "
            f"{site.burst.within_minutes:g} min: a common cause is likely",
            until=now + timedelta(hours=site.burst.hold_hours),
            is_acknowledged=False,
        )
        for scope, nodes in found
    )


def scopes_of(node: NodeView) -> tuple[str, ...]:
    """The scopes a node is in: the fleet, and its rack and switch where known."""
    rack = () if node.rack is None else (f"rack {node.rack}",)
    switch = () if node.switch is None else (f"switch {node.switch}",)
    return (FLEET, *rack, *switch)


def _new(above: Sequence[Observed], earlier: Iterable[Observed], *, site: Site) -> set[str]:
    as_of_by_node = {one.node: one.as_of for one in above}
    within = timedelta(minutes=site.burst.within_minutes)
    quiet = timedelta(hours=site.burst.quiet_hours)
    old = {
        one.node
        for one in earlier
        if one.node in as_of_by_node
        and as_of_by_node[one.node] - quiet < one.as_of <= as_of_by_node[one.node] - within
    }
    return set(as_of_by_node) - old
