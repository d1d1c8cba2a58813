"""What became of a node that is held: how long, what it cost, and which failure it spared whom.

The rules of the world that did not happen; docs/replay.md gives them in words. When a node is held
is decided in `simulation.replay.engine`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from remediation.site import Site
from simulation.replay.books import Charge
from simulation.replay.history import HOUR, MINUTE, Attempt, History, Outage

Finding = Literal["check", "kept"]
"""`check`: the check of a drained node finds a failure that would come within the horizon, and the
node is mended; otherwise the node returns. `kept`: no check finds anything, and the node stays out
for the horizon: the other end of what is possible."""

VERDICTS: Final = ("useful", "late", "wasted", "open")
"""`useful`: a failure came within the horizon and the hold left nobody for it to hurt. `late`: it
came while jobs that it ended were still there. `wasted`: none came. `open`: the record ends before
the horizon does."""


@dataclass(frozen=True, kw_only=True)
class HoldOutcome:
    """All that a hold leads to.

    Attributes:
        node: Node code.
        action: cordon, drain_after_jobs or checkpoint_then_drain.
        since: When it was taken.
        release: When it is given back.
        verdict: One of `VERDICTS`.
        charges: What the hold itself costs; restarts of moved jobs are not in it.
        moved: Attempts that it interrupts.
        told: When it interrupts them.
        unused: GPU-hours that recorded jobs used on the node while it was held, and could not.
        changed: Outages that it changes, by number.
    """

    node: int
    action: str
    since: int
    release: int
    verdict: str
    charges: tuple[Charge, ...]
    moved: tuple[Attempt, ...]
    told: int
    unused: float
    changed: Mapping[int, "ChangedOutage"]

    @property
    def prevented(self) -> tuple[int, ...]:
        """Outages that do not come any more, by number."""
        return tuple(number for number, one in self.changed.items() if one.is_prevented)


@dataclass(frozen=True)
class ChangedOutage:
    """An outage in the world with the hold.

    Attributes:
        hurt: Keys of the attempts that it still ends.
        repair: The charge for its repair.
        is_prevented: Whether it was found and mended before it came.
    """

    hurt: frozenset[tuple[str, int]]
    repair: Charge
    is_prevented: bool


@dataclass(frozen=True)
class _Leaving:
    """How the jobs leave: each when, and when the last has."""

    running: tuple[Attempt, ...]
    moved: tuple[Attempt, ...]
    leaves: tuple[int, ...]
    told: int
    empty: int


def outcome_of_hold(
    history: History,
    site: Site,
    *,
    node: int,
    action: str,
    since: int,
    finding: Finding = "check",
    gone: Collection[int] = (),
) -> HoldOutcome:
    """Works out what holding a node leads to; pure, and with the whole record in view.

    Args:
        history: The record.
        site: Costs, horizon, and how long a drain may take.
        node: Node code.
        action: What is done.
        since: When.
        finding: What a check finds.
        gone: Numbers of outages that an earlier hold has prevented.
    """
    leaving = _leaving(history, site, node=node, action=action, since=since)
    horizon_end = since + site.horizon_h * HOUR
    plan = _plan(site, leaving, action=action, since=since, finding=finding)
    coming = [
        one
        for one in history.outages_of.get(node, ())
        if one.start >= since and one.number not in gone
    ]
    until = max(plan.end, horizon_end) if plan.is_found else plan.end
    met = next((one for one in coming if one.start < until), None)
    stop, release = _ends(met, plan, site)
    changed = {
        one.number: _change(one, leaving, history, site, since=since, is_found=is_found)
        for one in coming
        for is_found in (one is met and plan.is_found,)
        if one is met or one.start < release
    }
    return HoldOutcome(
        node=node,
        action=action,
        since=since,
        release=release,
        verdict=_verdict(met, changed, horizon_end, history),
        charges=(Charge("idle", since, _idle(history, node, since, stop, leaving)),),
        moved=leaving.moved,
        told=leaving.told,
        unused=_unused(history, node, since, stop, leaving),
        changed=changed,
    )


@dataclass(frozen=True)
class _Plan:
    """When a hold ends if no failure comes, and whether its check finds one that would."""

    end: int
    is_found: bool


def _plan(site: Site, leaving: _Leaving, *, action: str, since: int, finding: Finding) -> _Plan:
    horizon_end = since + site.horizon_h * HOUR
    if action == "cordon":
        # It lasts as long as the score does, and nothing is checked.
        return _Plan(horizon_end, is_found=False)
    longest = since + round(site.drains.longest_hours * HOUR)
    if leaving.empty > longest:
        # Stuck: the hook gives it back, or the person whom it tells.
        return _Plan(longest, is_found=False)
    checked = leaving.empty + round(site.costs.drain_hours * HOUR)
    if finding == "check":
        return _Plan(checked, is_found=True)
    return _Plan(max(checked, horizon_end), is_found=False)


def _leaving(history: History, site: Site, *, node: int, action: str, since: int) -> _Leaving:
    running = history.attempts[node].running(since)
    if action != "checkpoint_then_drain":
        ends = tuple(one.end for one in running)
        return _Leaving(running, (), ends, since, max(ends, default=since))
    told = since + round(site.costs.notice_minutes * MINUTE)
    moved = tuple(one for one in running if one.end > told)
    leaves = tuple(min(one.end, told) for one in running)
    return _Leaving(running, moved, leaves, told, max(leaves, default=since))


def _ends(met: Outage | None, plan: _Plan, site: Site) -> tuple[int, int]:
    """Until when the node is idle by the hold, and when it is given back.

    From the onset of a failure, or from the check that finds it, the node is mended, which is
    another charge.
    """
    if met is None:
        return plan.end, plan.end
    if met.start < plan.end:
        return met.start, met.end
    return plan.end, plan.end + round((met.end - met.start) * _planned(site))


def _planned(site: Site) -> float:
    """How long planned repair takes, against repair after a failure."""
    costs = site.costs
    return costs.planned_repair_hours / costs.repair_hours if costs.repair_hours else 1.0


def _change(
    one: Outage,
    leaving: _Leaving,
    history: History,
    site: Site,
    *,
    since: int,
    is_found: bool,
) -> ChangedOutage:
    """An outage that begins while the node is held, or that its check finds."""
    moved = {attempt.key for attempt in leaving.moved}
    hurt = frozenset(
        hit.attempt.key
        for hit in one.hits
        if hit.attempt.start < since
        and not (hit.attempt.key in moved and leaving.told <= hit.onset)
    )
    is_prevented = is_found and not hurt and one.start >= leaving.empty
    length = (one.end - one.start) * (_planned(site) if is_prevented else 1.0)
    # Entered where it would have been without the hold: moved to another week of the books, a long
    # repair would look like a saving in one and a loss in the other.
    repair = Charge("repair", one.start, history.sizes[one.node] * length / HOUR)
    return ChangedOutage(hurt, repair, is_prevented)


def _verdict(
    met: Outage | None, changed: Mapping[int, ChangedOutage], horizon_end: int, history: History
) -> str:
    if met is None:
        return "wasted" if horizon_end <= history.end else "open"
    return "late" if changed[met.number].hurt else "useful"


def _idle(history: History, node: int, since: int, stop: int, leaving: _Leaving) -> float:
    """GPU-hours of the node that the jobs left on it do not use, until `stop`."""
    busy = sum(
        one.share * (min(at, stop) - since)
        for one, at in zip(leaving.running, leaving.leaves, strict=True)
    )
    return max(0.0, history.sizes[node] * (stop - since) - busy) / HOUR


def _unused(history: History, node: int, since: int, stop: int, leaving: _Leaving) -> float:
    """GPU-hours that attempts used there in the record and that the hold took from them."""
    left = {one.key: at for one, at in zip(leaving.running, leaving.leaves, strict=True)}
    total = 0.0
    for one in history.attempts[node].within(since, stop):
        began = max(left.get(one.key, one.start), since)
        total += one.share * max(0, min(one.end, stop) - began)
    return total / HOUR
