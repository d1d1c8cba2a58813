"""Intervals of a share and of a count, for few cases as for many.

Intervals of other statistics come from resamples, in `models.evaluation.row_metrics`.
"""

from math import sqrt
from typing import Final

from scipy.stats import beta, chi2

_Z: Final = 1.959964


def wilson(n_right: int, n: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927), which stays within 0 and 1; n above zero.

    >>> tuple(round(bound, 3) for bound in wilson(9, 10))
    (0.596, 0.982)
    """
    share = n_right / n
    middle = share + _Z**2 / (2 * n)
    half = _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    scale = 1 + _Z**2 / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def exact_share(count: int, n: int) -> tuple[float, float]:
    """95 % interval of a share that never promises too much (Clopper and Pearson 1934).

    >>> tuple(round(bound, 3) for bound in exact_share(5, 10))
    (0.187, 0.813)
    """
    low = float(beta.ppf(0.025, count, n - count + 1)) if count else 0.0
    return low, float(beta.ppf(0.975, count + 1, n - count)) if count < n else 1.0


def poisson_interval(
    count: int, *, confidence: float = 0.95, clustering: float = 1.0
) -> tuple[float, float]:
    """The exact interval of the mean of a Poisson count (Garwood 1936).

    Of events that cluster, of which counts vary `clustering` times as much, it is the interval of
    `count / clustering` causes: an approximation.

    >>> low, high = poisson_interval(0)
    >>> low, round(high, 2)
    (0.0, 3.69)
    >>> tuple(round(end) for end in poisson_interval(100, clustering=6.0))
    (58, 161)
    """
    tail, causes = (1.0 - confidence) / 2.0, count / clustering
    low = float(chi2.ppf(tail, 2.0 * causes)) / 2.0 if count else 0.0
    return clustering * low, clustering * float(chi2.isf(tail, 2.0 * causes + 2.0)) / 2.0
