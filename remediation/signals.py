"""What alerts mean together: which persist for n of k ticks, and which are one common cause.

Pure; which scores count as alerts is `models.warnings`, remembering them is the ledger's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from models.warnings import WarningPolicy, raise_alerts
from remediation.cluster import ClusterState, NodeView
from remediation.site import Burst, Warning

_COMPONENTS: Final[Mapping[str, Callable[[NodeView], str | None]]] = {
    "rack": lambda node: node.rack,
    "switch": lambda node: node.switch,
}


def persistent_nodes(alerts: pl.DataFrame, *, as_of: datetime, warning: Warning) -> frozenset[str]:
    """Nodes above the threshold now and in `n` of the last `k` ticks.

    Args:
        alerts: `entity_id`, `as_of`, `score` above the threshold, this tick included.
        as_of: The present tick.
        warning: The site's warning policy. There is no cooldown here: an alert that a guard
            blocked is still one at the next tick.
    """
    policy = WarningPolicy(
        threshold=warning.threshold,
        n=warning.n,
        k=warning.k,
        tick=timedelta(minutes=warning.tick_minutes),
        cooldown=timedelta(0),
    )
    raised = raise_alerts(alerts.filter(pl.col("as_of") <= as_of), policy)
    return frozenset(raised.filter(pl.col("as_of") == as_of)["entity_id"])


@dataclass(frozen=True, kw_only=True)
class BurstFound:
    """Many new alerts at once.

    Attributes:
        scope: `fleet`, or the component, such as `rack r7`.
        nodes: Nodes with a new alert, by name.
        text: What happened, in words with numbers.
    """

    scope: str
    nodes: tuple[str, ...]
    text: str


def find_bursts(
    alerts: pl.DataFrame,
    state: ClusterState,
    *,
    as_of: datetime,
    n_manageable: int,
    settings: Burst,
) -> tuple[BurstFound, ...]:
    """Finds bursts of the fleet, of a rack and of a switch.

    Args:
        alerts: `entity_id`, `as_of`, `score` above the threshold, this tick included.
        state: The cluster, for racks and switches.
        as_of: The present tick.
        n_manageable: Nodes that the hook could manage.
        settings: The site's limits.

    Returns:
        The bursts, the fleet's first.
    """
    new = _newly_above(alerts, as_of=as_of, settings=settings)
    share = math.ceil(settings.fleet_percent / 100 * n_manageable)
    limits = {"fleet": max(settings.fleet_nodes, share)}
    members = {"fleet": new}
    for word, component in _COMPONENTS.items():
        for name in new:
            node = state.by_name.get(name)
            place = component(node) if node else None
            if place is not None:
                members.setdefault(f"{word} {place}", []).append(name)
    within = f"{settings.within_minutes:g} minutes"
    return tuple(
        BurstFound(
            scope=scope,
            nodes=tuple(nodes),
            text=f"{len(nodes)} nodes of the {scope} have a new alert within {within}: "
            f"a common cause is likely, and that is for a person",
        )
        for scope, nodes in members.items()
        if len(nodes) >= limits.get(scope, settings.component_nodes)
    )


def _newly_above(alerts: pl.DataFrame, *, as_of: datetime, settings: Burst) -> list[str]:
    """Nodes above in the last `within` and not in the `quiet` time before, by name."""
    recent = as_of - timedelta(minutes=settings.within_minutes)
    before = recent - timedelta(hours=settings.quiet_hours)
    at = pl.col("as_of")
    now_above = alerts.filter(at > recent, at <= as_of)["entity_id"].unique()
    was_above = alerts.filter(at > before, at <= recent)["entity_id"].unique()
    return sorted(set(now_above) - set(was_above))
