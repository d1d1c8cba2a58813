"""How many warm standby nodes a fleet needs: ByteRobust's P99 rule (SOSP'25).

Which standby nodes are idle now is in `remediation.policy.capacity`.
"""

from collections.abc import Iterable
from typing import Final

from features.errors import DataError

QUANTILE: Final = 0.99


def standby_pool_size(n_nodes: int, p_fail: float, *, quantile: float = QUANTILE) -> int:
    """The quantile of Binomial(n_nodes, p_fail): as many nodes rarely fail in one period.

    Args:
        n_nodes: Nodes in service.
        p_fail: Probability that one fails within the time it takes to refill the pool.
        quantile: Share of periods in which the pool suffices.

    Returns:
        Nodes to keep ready; 0 for no nodes.

    Raises:
        DataError: A number is out of range.

    Their Table 5, with 0.0012 failures per node and day:

    >>> [standby_pool_size(n, 0.0012) for n in (128, 256, 512, 1024)]
    [2, 2, 3, 4]
    """
    if n_nodes < 0:
        raise DataError(f"standby pool: expected nodes >= 0, got {n_nodes}")
    return standby_pool_size_for([p_fail] * n_nodes, quantile=quantile)


def standby_pool_size_for(p_fail: Iterable[float], *, quantile: float = QUANTILE) -> int:
    """The same for nodes whose probabilities differ, such as their scores.

    The number of failures is taken as a sum of independent ones; a common cause (a switch, a
    driver) breaks this, and no pool is sized for it.

    Args:
        p_fail: Probability of each node; unknown ones are the caller's to fill in.
        quantile: As in `standby_pool_size`.

    Raises:
        DataError: A number is out of range.

    >>> standby_pool_size_for([0.0012] * 127 + [0.9])
    2
    """
    probabilities = list(p_fail)
    wrong = [p for p in probabilities if not 0.0 <= p <= 1.0]
    if wrong or not 0.0 < quantile < 1.0:
        raise DataError(
            f"standby pool: expected probabilities of 0 to 1 and a quantile between, got "
            f"{wrong[:1] or quantile}"
        )
    # Only as many failure counts are followed as the answer needs, so that 25,000 nodes with few
    # failures take few steps; twice as many where that was not enough.
    most = 8
    while True:
        chances = _chances(probabilities, most)
        total = 0.0
        for count, chance in enumerate(chances):
            total += chance
            # Sums of many floats stay short of 1 by rounding; a quantile is never that close.
            if total >= quantile - 1e-12:
                return count
        most *= 2


def _chances(probabilities: list[float], most: int) -> list[float]:
    """Chance of exactly 0, 1, ... `most` failures."""
    chances = [1.0] + [0.0] * most
    reached = 0
    for p in probabilities:
        reached = min(most, reached + 1)
        for count in range(reached, 0, -1):
            chances[count] += p * (chances[count - 1] - chances[count])
        chances[0] *= 1.0 - p
    return chances
