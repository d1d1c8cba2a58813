"""The jobs that wait, in the order in which they may start.

Where they start is in `simulation.scheduling.engine`.
"""

import heapq
from collections.abc import Callable

from simulation.scheduling.jobs import Progress
from simulation.scheduling.policies import Policy

_Line = tuple[int, bool]
_Entry = tuple[float, int, Progress]


class Queue:
    """The waiting jobs; jobs of one size and kind stand in one line, as they find room alike."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lines: dict[_Line, list[_Entry]] = {}

    def push(self, one: Progress) -> None:
        """Lets a job wait."""
        job = one.job
        # A strict order is one line for all, whose head holds up everybody.
        line = (0, False) if self._policy.is_strict else (job.n_gpus, job.is_fungible)
        key = job.submit_s if self._policy.order == "fifo" else one.remaining_s
        heapq.heappush(self._lines.setdefault(line, []), (key, job.number, one))

    def start(
        self, place: Callable[[Progress], bool], *, largest: int, largest_fungible: int
    ) -> None:
        """Starts jobs in order for as long as any finds room.

        Args:
            place: Starts a job and says so, or says that there is no room.
            largest: GPUs of the largest job that finds room; larger ones are not tried.
            largest_fungible: The same for jobs that may run on inference GPUs.
        """
        heads = [
            (*entries[0], line)
            for line, entries in self._lines.items()
            if entries and line[0] <= (largest_fungible if line[1] else largest)
        ]
        heapq.heapify(heads)
        while heads:
            *_, one, line = heapq.heappop(heads)
            if place(one):
                entries = self._lines[line]
                heapq.heappop(entries)
                if entries:
                    heapq.heappush(heads, (*entries[0], line))
