"""Which nodes are alerts in this tick, and whether so many are new that a common cause is likely.

Pure: scores above the threshold in earlier ticks are given; they are kept in the ledger.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, inf
from typing import Final

import polars as pl

from features.contracts import UTC_TIME
from models.policies.warnings import WarningPolicy, raise_alerts
from remediation.cluster.state import ClusterState, NodeView
from remediation.ledger.view import Hold, Observed, SeenTick
from remediation.policy.choice import NodeScore
from remediation.site import Site

FLEET: Final = "fleet"
_DRIVER: Final = "driver "


def warning_policy(site: Site) -> WarningPolicy:
    """When scores become an alert; the hook has its own cool-down, by the ledger."""
    return WarningPolicy(
        threshold=site.warning.threshold,
        n=site.warning.n,
        k=site.warning.k,
        tick=timedelta(minutes=site.warning.tick_minutes),
        cooldown=timedelta(0),
    )


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
    above: Sequence[Observed], earlier: Sequence[SeenTick], *, site: Site
) -> frozenset[str]:
    """The nodes that are above in n of the last k ticks, by the models' own warning policy.

    Only ticks of the present boot count, so that a replaced node starts clean. What kind of
    failure is feared does not matter: a changed reason does not start the count anew.

    Args:
        above: Nodes above in this tick.
        earlier: Earlier ticks; rows of this tick give way to `above`.
        site: n, k and the tick.
    """
    boots = {one.node: (one.boot_id, one.as_of) for one in above}
    oldest = min((one.as_of for one in above), default=None)
    if oldest is None:
        return frozenset()
    # Earlier ticks go back a day, for bursts; no count reaches further than k of them.
    since = oldest - site.warning.k * timedelta(minutes=site.warning.tick_minutes)
    rows = {
        (node, tick.as_of): score
        for tick in earlier
        if tick.as_of > since
        for node, boot_id, score in zip(tick.nodes, tick.boot_ids, tick.scores, strict=True)
        if node in boots and boot_id == boots[node][0]
    }
    rows |= {(one.node, one.as_of): one.score for one in above}
    frame = pl.DataFrame(
        [(node, as_of, score) for (node, as_of), score in rows.items()],
        schema={"entity_id": pl.String(), "as_of": UTC_TIME, "score": pl.Float64()},
        orient="row",
    )
    alerts = raise_alerts(frame, warning_policy(site))
    return frozenset(
        node
        for node, as_of in alerts.select("entity_id", "as_of").iter_rows()
        if as_of == boots[node][1]
    ) - _of_another_boot(earlier, boots)


def _of_another_boot(
    earlier: Iterable[SeenTick], boots: Mapping[str, tuple[str | None, datetime]]
) -> frozenset[str]:
    """Nodes that an earlier run saw in this same tick with another boot: the score is of that."""
    ticks = {as_of for _, as_of in boots.values()}
    return frozenset(
        node
        for tick in earlier
        if tick.as_of in ticks
        for node, boot_id in zip(tick.nodes, tick.boot_ids, strict=True)
        if node in boots and boots[node][1] == tick.as_of and boots[node][0] != boot_id
    )


def new_bursts(
    above: Sequence[Observed],
    earlier: Iterable[SeenTick],
    *,
    state: ClusterState,
    n_manageable: int,
    holds: Sequence[Hold],
    site: Site,
    now: datetime,
) -> tuple[Hold, ...]:
    """The bursts that begin with this tick: of the fleet, of a rack, of a switch, of a driver.

    A node is new if it is above now, has been so for at most `within_minutes`, and was not in the
    `quiet_hours` before. Nodes that made an earlier hold are a person's already and make no other.

    Args:
        above: Nodes above in this tick.
        earlier: Earlier ticks.
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
    places: dict[str, list[str]] = {FLEET: new}
    for name in new:
        for scope in scopes_of(state.by_name[name])[1:]:
            places.setdefault(scope, []).append(name)
    sizes = {FLEET: n_manageable, **_drivers(state)}
    found = [
        (scope, nodes)
        for scope, nodes in places.items()
        if len(nodes) >= _needed(scope, sizes, site=site)
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


def _drivers(state: ClusterState) -> dict[str, int]:
    """Nodes of each driver version; none where all have the same, for that is the fleet."""
    counts = Counter(node.driver for node in state.nodes)
    return {_of_driver(d): n for d, n in counts.items() if d is not None and len(counts) > 1}


def _needed(scope: str, sizes: Mapping[str, int], *, site: Site) -> float:
    """New nodes that make a burst of a scope: few of a place, a share of what is spread widely."""
    if scope in sizes:
        return max(site.burst.fleet_nodes, ceil(sizes[scope] * site.burst.fleet_percent / 100))
    return inf if scope.startswith(_DRIVER) else site.burst.component_nodes


def scopes_of(node: NodeView) -> tuple[str, ...]:
    """The scopes a node is in: the fleet, and its rack, switch and driver where known."""
    rack = () if node.rack is None else (f"rack {node.rack}",)
    switch = () if node.switch is None else (f"switch {node.switch}",)
    driver = () if node.driver is None else (_of_driver(node.driver),)
    return (FLEET, *rack, *switch, *driver)


def _of_driver(version: str) -> str:
    return f"{_DRIVER}{version}"


def _new(above: Sequence[Observed], earlier: Iterable[SeenTick], *, site: Site) -> set[str]:
    within = timedelta(minutes=site.burst.within_minutes)
    quiet = timedelta(hours=site.burst.quiet_hours)
    new_at: dict[datetime, set[str]] = {}
    for one in above:
        new_at.setdefault(one.as_of, set()).add(one.node)
    for tick in earlier:
        for as_of, nodes in new_at.items():
            if quiet > as_of - tick.as_of >= within:
                nodes.difference_update(tick.nodes)
    return set().union(*new_at.values())
