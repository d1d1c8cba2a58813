"""How many flexible workers each elastic job gets: Lyra's multiple-choice knapsack, exactly.

On which servers they go is in `simulation.scheduling.scaling`.
"""

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def extra_workers(
    *,
    work: FloatArray,
    min_workers: IntArray,
    max_extra: IntArray,
    worker_gpus: IntArray,
    capacity: int,
) -> IntArray:
    """Workers beyond the base that save the most completion time within a capacity.

    Job j with k more workers of g GPUs weighs k g and saves W / w - W / (w + k), W being its work
    in worker-seconds and w its base workers. The k-th worker saves less than the one before, so
    among jobs of one worker size the best x workers are the x greatest savings, whatever x is;
    only the sizes must be weighed against one another.

    Args:
        work: Worker-seconds left of each job, shape (n,).
        min_workers: Base workers, at least 1, shape (n,).
        max_extra: Most further workers, shape (n,).
        worker_gpus: GPUs of a worker, at least 1, shape (n,).
        capacity: GPUs there are for them.

    Returns:
        Further workers of each job, shape (n,); the sum of the savings is the greatest possible.

    >>> extra_workers(work=np.array([100.0, 90.0]), min_workers=np.array([1, 1]),
    ...               max_extra=np.array([2, 2]), worker_gpus=np.array([1, 1]), capacity=2)
    array([1, 1])
    """
    if int((max_extra * worker_gpus).sum()) <= capacity:
        return max_extra.copy()
    job, gain = _savings(work, min_workers, max_extra)
    found = np.zeros(len(work), dtype=np.int64)
    sizes = [int(size) for size in np.unique(worker_gpus)]
    ranked: list[IntArray] = []
    totals: list[FloatArray] = []
    for size in sizes:
        mine = np.flatnonzero(worker_gpus[job] == size)
        mine = mine[np.argsort(-gain[mine], kind="stable")][: capacity // size]
        ranked.append(job[mine])
        totals.append(np.concatenate(([0.0], np.cumsum(gain[mine]))))
    for taken, owners in zip(_split(sizes, totals, capacity), ranked, strict=True):
        np.add.at(found, owners[:taken], 1)
    return found


def _savings(
    work: FloatArray, min_workers: IntArray, max_extra: IntArray
) -> tuple[IntArray, FloatArray]:
    """What each further worker saves: its job and seconds, job by job, first worker first."""
    job = np.repeat(np.arange(len(work)), max_extra)
    starts = np.cumsum(max_extra) - max_extra
    before = min_workers[job] + np.arange(len(job)) - starts[job]
    return job, work[job] / before / (before + 1)


def _split(sizes: list[int], totals: list[FloatArray], capacity: int) -> list[int]:
    """How many workers of each size; `totals[i][x]` is what the best x of size i save."""
    # best[c]: most that the sizes so far save within c GPUs. Savings only grow with their number,
    # so the first size takes all that fits; the last is asked for the whole capacity alone.
    room = np.arange(capacity + 1)
    choices = [np.minimum(room // sizes[0], len(totals[0]) - 1)]
    best = totals[0][choices[0]]
    for size, total in zip(sizes[1:-1], totals[1:-1], strict=True):
        grown, choice = best.copy(), np.zeros(capacity + 1, dtype=np.int64)
        for count in range(1, len(total)):
            candidate = best[: capacity + 1 - count * size] + total[count]
            is_better = candidate > grown[count * size :]
            grown[count * size :][is_better] = candidate[is_better]
            choice[count * size :][is_better] = count
        best = grown
        choices.append(choice)
    counts: list[int] = []
    left = capacity
    if len(sizes) > 1:
        number = np.arange(len(totals[-1]))
        counts.append(int(np.argmax(best[capacity - number * sizes[-1]] + totals[-1])))
        left -= counts[0] * sizes[-1]
    for size, choice in zip(reversed(sizes[: len(choices)]), reversed(choices), strict=True):
        counts.append(int(choice[left]))
        left -= counts[-1] * size
    return counts[::-1]
