"""The scheduling policies that are compared: Lyra, its parts, and the baselines.

What they do is in `simulation.scheduling.engine`.
"""

from dataclasses import dataclass
from typing import Final, Literal

Order = Literal["fifo", "sjf"]
ReclaimRule = Literal["lyra", "random", "fewest_jobs"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One way to schedule.

    Attributes:
        name: As it stands in tables.
        order: fifo: by arrival; sjf: shortest runtime first.
        is_strict: Whether a job that finds no room holds up all those behind it.
        has_loaning: Whether idle inference servers are lent to training.
        has_scaling: Whether elastic jobs get flexible workers.
        reclaim: Which lent servers are given back.
    """

    name: str
    order: Order = "sjf"
    is_strict: bool = False
    has_loaning: bool = False
    has_scaling: bool = False
    reclaim: ReclaimRule = "lyra"


FIFO: Final = Policy(name="FIFO", order="fifo", is_strict=True)
PASSING: Final = Policy(name="FIFO, smaller pass", order="fifo")
SJF: Final = Policy(name="SJF")
LOANING: Final = Policy(name="loaning only", has_loaning=True)
SCALING: Final = Policy(name="scaling only", has_scaling=True)
LYRA: Final = Policy(name="Lyra", has_loaning=True, has_scaling=True)
RANDOM: Final = Policy(
    name="Lyra, random reclaim", has_loaning=True, has_scaling=True, reclaim="random"
)
FEWEST: Final = Policy(
    name="Lyra, fewest-jobs reclaim", has_loaning=True, has_scaling=True, reclaim="fewest_jobs"
)

POLICIES: Final = (FIFO, PASSING, SJF, LOANING, SCALING, LYRA, RANDOM, FEWEST)
"""All of them; the first is what the others are measured against."""
