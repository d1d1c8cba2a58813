"""What operators plan for a node: the driver update, reboots, and holds.

What breaks unplanned is in `simulation.fleet.incidents`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import DAYS_PER_YEAR
from simulation.fleet.seeds import Layer, log_uniform, random_stream

HOUR_S: Final = 3600
POSTPONED_S: Final = HOUR_S
"""A driver update that fell into a repair is begun this long after it."""


@dataclass(frozen=True)
class PlannedWork:
    """A node taken out by its operators: drained, worked on, back.

    Times are seconds since the fleet's start.

    Attributes:
        what: A driver update, a reboot, or a hold: kept out for no hardware's sake, not rebooted.
        drain_s: From when it takes no new jobs.
        work_s: When what still runs is ended and the work begins.
        end_s: When it is back in service.
    """

    what: Literal["driver", "reboot", "hold"]
    drain_s: int
    work_s: int
    end_s: int

    def shifted(self, drain_s: int) -> "PlannedWork":
        """The same work begun at another time."""
        by = drain_s - self.drain_s
        return replace(self, drain_s=drain_s, work_s=self.work_s + by, end_s=self.end_s + by)


def plan_work(regime: Regime, *, seed: int, index: int) -> tuple[PlannedWork, ...]:
    """A node's planned work, by start, before failures come in between.

    Driver updates follow each other from node to node, so that few are out at a time; reboots and
    holds come at random, and not where something else is planned.

    Args:
        regime: The fleet's parameters.
        seed: The fleet's seed.
        index: Number of the node.

    Returns:
        Work that falls into the record as a whole.
    """
    plan, end_s = regime.disturbances, int(regime.days * 86400)
    notice_s = int(plan.driver_drain_h * HOUR_S)
    at_s = int(plan.driver_day * 86400 + index * plan.driver_stagger_h * HOUR_S)
    driver = PlannedWork("driver", at_s - notice_s, at_s, at_s + int(plan.driver_work_min * 60))
    kept = [driver] if driver.drain_s > 0 and driver.end_s < end_s else []
    for work in _draw_work(regime, seed=seed, index=index, notice_s=notice_s):
        is_free = all(work.end_s < other.drain_s or work.drain_s > other.end_s for other in kept)
        if is_free and work.end_s < end_s:
            kept.append(work)
    return tuple(sorted(kept, key=lambda work: work.drain_s))


def _draw_work(regime: Regime, *, seed: int, index: int, notice_s: int) -> list[PlannedWork]:
    """Reboots and holds at random times of the record."""
    plan, end_s = regime.disturbances, int(regime.days * 86400)
    kinds: tuple[tuple[Literal["reboot", "hold"], float], ...] = (
        ("reboot", plan.reboots_per_node_year),
        ("hold", plan.holds_per_node_year),
    )
    if not any(rate for _, rate in kinds):
        return []
    rng = random_stream(seed, Layer.PLANNED, index)
    years = regime.days / DAYS_PER_YEAR
    drawn = []
    for what, rate in kinds:
        for drain_s in rng.integers(1, max(2, end_s), int(rng.poisson(rate * years))):
            length_s = plan.reboot_min * 60
            if what == "hold":
                length_s = log_uniform(rng, plan.hold_h) * HOUR_S
            work_s = int(drain_s) + notice_s
            drawn.append(PlannedWork(what, int(drain_s), work_s, work_s + int(length_s)))
    return drawn


def around_repair(
    planned: Sequence[PlannedWork], *, onset_s: int, end_s: int, last_s: int
) -> tuple[PlannedWork, ...]:
    """What is left of a plan when a repair takes its time.

    The driver update is postponed until after the repair; other work is part of the repair.

    Args:
        planned: The plan, by start.
        onset_s: When the node failed.
        end_s: When it is back.
        last_s: The fleet's last second.

    Returns:
        The plan without clashes, by start.
    """
    clashing = [w for w in planned if onset_s < w.end_s and w.drain_s < end_s]
    if not clashing:
        return tuple(planned)
    kept = [work for work in planned if work not in clashing]
    for work in clashing:
        later = work.shifted(end_s + POSTPONED_S)
        if work.what == "driver" and later.end_s < last_s:
            kept = [w for w in kept if w.end_s < later.drain_s or w.drain_s > later.end_s]
            kept.append(later)
    return tuple(sorted(kept, key=lambda work: work.drain_s))
