"""How often a warning policy breaks its promise: 200 fresh fleets a regime, truth known.

For each regime and each way to choose a policy, every fleet tunes one for each promise of
precision; its true precision is that on 30,000 other nodes of the same process. Under drift the
truth comes from another process than validation. Budgets are judged by what is truly spent.

Run as `OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 python -m benchmarks.guarantees`; 25 minutes.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from models.policy_tuning import PolicyGrid
from simulation.guarantees import Kept, Size, Spent, check_budget, check_precision
from simulation.score_fleets import TICK, ScoreProcess

PRECISIONS: Final = (0.5, 0.7, 0.85, 0.95)
BUDGET: Final = 5.0
DAY: Final = (timedelta(hours=24),)
GRIDS: Final = {
    "all 12 policies": PolicyGrid(tick=TICK),
    "1 of 1": PolicyGrid(tick=TICK, persistence=((1, 1),), cooldowns=DAY),
    "2 of 3": PolicyGrid(tick=TICK, persistence=((2, 3),), cooldowns=DAY),
}
USUAL: Final = ScoreProcess()
SHARED: Final = ScoreProcess(incidents_per_node_day=0.003, shared_causes_per_day=0.5)
STATIONARY: Final = {
    "independent": USUAL,
    "no false precursors": ScoreProcess(spells_per_node_day=0.0),
    "wrong about single nodes": ScoreProcess(level_sd=1.0, slope=2.0),
    "3 % of nodes alarm ten times as often": ScoreProcess(chronic_share=0.03),
    "half of incidents in batches of 6": SHARED,
    "rare false alarms of 6 nodes at once": ScoreProcess(false_waves_per_day=0.04),
    "both": ScoreProcess(
        incidents_per_node_day=0.003, shared_causes_per_day=0.5, false_waves_per_day=0.04
    ),
}
DRIFT: Final = {
    "precursors a third weaker": ScoreProcess(height=4.0),
    "false precursors five times as many": ScoreProcess(spells_per_node_day=0.001),
    "incidents a third as many": ScoreProcess(incidents_per_node_day=0.002),
}


def main() -> None:
    """Prints the tables in Markdown."""
    size = Size(n_fleets=int(sys.argv[1]) if len(sys.argv) > 1 else 200)
    print("| regime | policies | promise | given | broken | interval | recall |")
    print("|---|---|---|---|---|---|---|")
    for regime, process in STATIONARY.items():
        kept = check_precision(process, grids=GRIDS, precisions=PRECISIONS, size=size)
        print("\n".join(_rows(regime, kept)), flush=True)
    for regime, served in DRIFT.items():
        kept = check_precision(USUAL, grids=GRIDS, precisions=PRECISIONS, size=size, served=served)
        print("\n".join(_rows(f"drift: {regime}", kept)), flush=True)
    print("\n| regime | policies | given | mean rate | 95 % point | recall |")
    print("|---|---|---|---|---|---|")
    for regime, process in STATIONARY.items():
        spent = check_budget(process, grids=GRIDS, budget=BUDGET, size=size)
        for name, one in spent.items():
            print(_budget_row(regime, name, one), flush=True)
    for regime, served in DRIFT.items():
        spent = check_budget(USUAL, grids=GRIDS, budget=BUDGET, size=size, served=served)
        for name, one in spent.items():
            print(_budget_row(f"drift: {regime}", name, one), flush=True)


def _rows(regime: str, found: Mapping[str, Sequence[Kept]]) -> Iterator[str]:
    for policies, promises in found.items():
        for kept in promises:
            low, high = kept.broken_interval
            yield (
                f"| {regime} | {policies} | {kept.precision:g} "
                f"| {kept.n_given} of {kept.n_fleets} "
                f"| {kept.n_broken}{'' if kept.is_within_error else ' (!)'} "
                f"| {low:.1%} to {high:.1%} | {_number(kept.mean_recall)} |"
            )


def _budget_row(regime: str, policies: str, spent: Spent) -> str:
    return (
        f"| {regime} | {policies} | {spent.n_given} | {_number(spent.mean_rate)} "
        f"| {_number(spent.high_rate)} | {_number(spent.mean_recall)} |"
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
