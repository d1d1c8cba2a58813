"""The oracle: a strategy that knows the record, as a bound on what any score could save.

It sees the future by definition; its actions pass the same guards and caps as all others.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from features.vocabulary import ACTIONS
from remediation.decision import HARM
from remediation.guards.judge import CEILING_OF_LEVEL
from remediation.policy.choice import adequate_actions
from remediation.site import Site
from simulation.replay.books import failure_charges, restart_hours
from simulation.replay.history import HOUR, FloatArray, History, Outage
from simulation.replay.holds import Finding, HoldOutcome, outcome_of_hold
from simulation.replay.signals import Signals, signals_of

_ACTS: Final = ("cordon", "drain_after_jobs", "checkpoint_then_drain")
_WATCH: Final = ACTIONS.index("watch")


def oracle(history: History, site: Site, *, finding: Finding = "check") -> Signals:
    """For each outage the cheapest action at the cheapest tick, where it saves anything at all.

    It takes outages one by one, in order of time, and leaves a node alone until an earlier hold of
    its own has ended. Should guards hold it back at the best tick, it tries again at the later ones
    that still save.

    Args:
        history: The record.
        site: Costs, horizon, levels, and how often a node must be above before it is an alert.
        finding: What the check of a drained node finds.
    """
    rows: dict[tuple[int, int], tuple[float, int, int]] = {}
    free_from: dict[int, int] = {}
    for outage in history.outages:
        if outage.start < free_from.get(outage.node, history.start):
            continue
        ways = list(_ways(outage, history, site, finding, since=free_from.get(outage.node)))
        if not ways:
            continue
        best = max(ways, key=lambda way: way[0])
        if best[0] <= 0:
            continue
        first = best[2]
        free_from[outage.node] = best[1].release
        # Above for as long as the warning policy wants to see, then acting until it is too late.
        for tick in range(max(0, first - site.warning.k + 1), first):
            rows.setdefault((tick, outage.node), (best[0], _WATCH, outage.number))
        for saved, made, tick in ways:
            known = rows.get((tick, outage.node), (0.0, _WATCH, outage.number))
            if tick >= first and saved > 0 and (known[1] == _WATCH or saved > known[0]):
                action = ACTIONS.index(made.action)
                rows[tick, outage.node] = (saved, action, outage.number)
    pairs = np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)
    found = [rows[key] for key in sorted(rows)]
    return signals_of(
        "oracle",
        tick=pairs[:, 0],
        node=pairs[:, 1],
        score=_as_scores([saved for saved, _, _ in found]),
        action=np.array([action for _, action, _ in found], dtype=np.int64),
        about=np.array([number for _, _, number in found], dtype=np.int64),
    )


def _as_scores(saved: list[float]) -> FloatArray:
    """Savings as scores of at most 1, in the same order: the greatest comes first."""
    values: FloatArray = np.array(saved, dtype=np.float64)
    return np.asarray(values / max(saved, default=1.0))


def _ways(
    outage: Outage, history: History, site: Site, finding: Finding, *, since: int | None
) -> Iterable[tuple[float, HoldOutcome, int]]:
    """Each tick and action before an outage, with what it saves; by tick."""
    # A drain that waits for long jobs may outlast its horizon, and still keep new ones away.
    longest = round(max(site.horizon_h, site.drains.longest_hours) * HOUR)
    lowest = max(outage.start - longest + 1, since or history.start)
    first = int(np.searchsorted(history.ticks, lowest))
    last = int(np.searchsorted(history.ticks, outage.start, side="right"))
    for tick in range(first, last):
        at = int(history.ticks[tick])
        for action in _actions(outage, history, site, at):
            made = outcome_of_hold(
                history, site, node=outage.node, action=action, since=at, finding=finding
            )
            yield _saved(made, history, site), made, tick


def _actions(outage: Outage, history: History, site: Site, at: int) -> list[str]:
    level, _ = site.level_of(history.names[outage.node], outage.fault_type)
    most = HARM[CEILING_OF_LEVEL[level]]
    jobs = tuple(one.view for one in history.attempts[outage.node].running(at))
    adequate = adequate_actions(None, jobs, site=site)
    return [one for one in _ACTS if HARM[one] <= most and one in adequate]


def _saved(made: HoldOutcome, history: History, site: Site) -> float:
    """GPU-hours that a hold saves against leaving the node alone."""
    # With standby nodes at the site, it reckons that one will be there.
    restart_h = restart_hours(site.costs, has_standby=bool(site.standby))
    spent = sum(charge.gpu_hours for charge in made.charges)
    spent += sum(one.gpus * restart_h for one in made.moved)
    saved = 0.0
    for outage in history.outages_of[made.node]:
        changed = made.changed.get(outage.number)
        if changed is None:
            continue
        length = (outage.end - outage.start) / HOUR
        saved += history.sizes[made.node] * length - changed.repair.gpu_hours
        for hit in outage.hits:
            if hit.attempt.key not in changed.hurt:
                charges = failure_charges(
                    hit.attempt, hit.onset, costs=site.costs, restart_h=restart_h
                )
                saved += sum(charge.gpu_hours for charge in charges)
    return saved - spent
