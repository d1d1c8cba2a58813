"""Alerts that evict a machine at once, without stopping to test: ByteRobust's immediate rules.

What is done about failures that no rule explains is in `.ladder`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

AlertKind = Literal["gpu_unavailable", "disk_fault", "network", "switch_down"]

NETWORK_ALERTS: Final = 2
NETWORK_WITHIN_S: Final = 300.0
"""A port that flaps once often comes back by itself; twice in five minutes it does not."""
SWITCH_CHECKS: Final = 2
"""Checks in a row that must find a switch down."""


@dataclass(frozen=True)
class Alert:
    """What a check of a machine found.

    Attributes:
        at_s: When, in seconds from any origin.
        machine: The machine; for a switch, one that hangs on it.
        kind: What was looked at.
        is_bad: False: the check found it well again, which ends a row of bad ones.
    """

    at_s: float
    machine: str
    kind: AlertKind
    is_bad: bool = True


@dataclass(frozen=True)
class Immediate:
    """A machine to evict now.

    Attributes:
        at_s: When the rule was met.
        machine: The machine.
        kind: By which rule.
    """

    at_s: float
    machine: str
    kind: AlertKind


def immediate_evictions(alerts: Iterable[Alert]) -> tuple[Immediate, ...]:
    """The machines that the rules evict, each once, in the order of time.

    A GPU that cannot be used or a disk that fails: at once. Network: the second alert within
    five minutes. Switch: the second check in a row.

    Args:
        alerts: What the checks found, in any order.

    >>> alerts = [Alert(0, "a", "network"), Alert(299, "a", "network"), Alert(0, "b", "network")]
    >>> [(one.machine, one.at_s) for one in immediate_evictions(alerts)]
    [('a', 299)]
    """
    rows: dict[tuple[str, AlertKind], list[float]] = {}
    evicted: dict[str, Immediate] = {}
    for alert in sorted(alerts, key=lambda alert: (alert.at_s, alert.machine, alert.kind)):
        row = rows.setdefault((alert.machine, alert.kind), [])
        if not alert.is_bad:
            if alert.kind == "switch_down":
                row.clear()
            continue
        row.append(alert.at_s)
        if alert.machine not in evicted and _is_met(alert.kind, row):
            evicted[alert.machine] = Immediate(alert.at_s, alert.machine, alert.kind)
    return tuple(evicted.values())


def _is_met(kind: AlertKind, row: list[float]) -> bool:
    if kind == "network":
        near = [at for at in row if at > row[-1] - NETWORK_WITHIN_S]
        return len(near) >= NETWORK_ALERTS
    if kind == "switch_down":
        return len(row) >= SWITCH_CHECKS
    return True
