"""Chooses the threshold of one warning policy: by alert budget, or with a guarantee of precision.

Persistence and cooldown are chosen in `models.policies.tuning`; what an alert is decides
`models.policies.warnings`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from scipy.special import betainc, nbdtrik
from scipy.stats import binom

from models.policies.rows import Episodes, PolicyRows
from models.policies.warnings import WarningPolicy

BUDGET_CONFIDENCE = 0.95
"""With which as many nodes keep to an alert budget for as long again."""

PLAIN_COUNT = 10
"""So many alerts need not prove anything: to be sure of 10, a site could have 3."""


@dataclass(frozen=True)
class ThresholdChoice:
    """A threshold with the reason it was chosen, or the reason there is none.

    Attributes:
        threshold: Score from which on a row is above; None when no threshold qualifies.
        explanation: The choice in words.
        n_tried: Thresholds tried.
        policy: The whole policy; None when no threshold qualifies.
    """

    threshold: float | None
    explanation: str
    n_tried: int
    policy: WarningPolicy | None = None

    def to_dict(self) -> dict[str, Any]:
        """The choice as plain values, for JSON."""
        return {
            "threshold": self.threshold,
            "explanation": self.explanation,
            "n_tried": self.n_tried,
            "policy": self.policy.to_dict() if self.policy is not None else None,
        }


@dataclass(frozen=True)
class Spending:
    """What a policy at the lowest threshold within a budget spends and catches.

    Attributes:
        policy: The policy; None when even the strictest threshold spends more.
        n_alerts: Its alerts; those of the strictest where there is none.
        n_expected: Alerts that as many nodes raise in as long a time, at most: see `next_alerts`.
        caught: Codes of the incidents it catches, rising.
        n_tried: Thresholds tried.
    """

    policy: WarningPolicy | None
    n_alerts: int
    n_expected: int
    caught: tuple[int, ...]
    n_tried: int


class _Promise(NamedTuple):
    """Alerts allowed, and the confidence that there are no more."""

    allowed: float
    confidence: float


NOTHING_SPENT = Spending(None, 0, 0, (), 0)
"""Before any threshold is tried."""


@dataclass(frozen=True)
class SequenceEnd:
    """The end of a sequence of tests.

    Attributes:
        policy: The last policy that passed; None when the first did not.
        episodes: Its episodes; those of the first where none passed.
        n_tried: Policies tested.
    """

    policy: WarningPolicy | None
    episodes: Episodes
    n_tried: int


def spend_budget(
    rows: PolicyRows,
    policy: WarningPolicy,
    *,
    allowed: float,
    confidence: float = BUDGET_CONFIDENCE,
) -> Spending:
    """The lowest threshold at which it and every stricter one promise to keep to what is allowed.

    The promise is about as many other nodes for as long (`next_alerts`). Of up to `PLAIN_COUNT`
    alerts, and of the strictest threshold, only the count itself must be within: a small site
    could prove nothing, and would be left without any alert.

    Args:
        rows: Validation rows.
        policy: Persistence and cooldown; its threshold is ignored.
        allowed: Number of alerts.
        confidence: Of the promise; 0.5 takes the count as it is.

    Returns:
        What it spends and catches.
    """
    promised = _Promise(allowed, confidence)
    spent, beyond = _walk(rows, policy, rows.thresholds, promised=promised)
    if spent.policy is None or beyond is None:
        return spent
    # Growing ranks are coarse there: up to a fifth of the budget would be left unused.
    finer = rows.thresholds_between(spent.policy.threshold, beyond)
    return _walk(rows, policy, finer, promised=promised, spent=spent)[0]


def _walk(
    rows: PolicyRows,
    policy: WarningPolicy,
    thresholds: Sequence[float],
    *,
    promised: _Promise,
    spent: Spending = NOTHING_SPENT,
) -> tuple[Spending, float | None]:
    """The last threshold within the budget, and the first beyond it."""
    for threshold in thresholds:
        one = replace(policy, threshold=threshold)
        alerts = rows.alerts(one)
        expected = next_alerts(
            alerts.size, clustering=rows.clustering(alerts), confidence=promised.confidence
        )
        tried = spent.n_tried + 1
        is_plain = alerts.size <= PLAIN_COUNT or spent.policy is None
        if (alerts.size if is_plain else expected) > promised.allowed:
            if spent.policy is not None:
                return replace(spent, n_tried=tried), threshold
            return Spending(None, alerts.size, expected, (), tried), threshold
        caught = tuple(rows.caught_by(alerts).tolist())
        spent = Spending(one, alerts.size, expected, caught, tried)
    return spent, None


def next_alerts(n_alerts: int, *, clustering: float, confidence: float) -> int:
    """The most alerts that as many nodes raise in as long a time, with confidence.

    Exact for independent alerts: of two Poisson counts with one mean each alert is of either with
    equal chance (Nelson 1970). Where counts vary `clustering` times as much as independent ones
    would, N alerts are N / clustering causes, each of so many (quasi-likelihood, as for
    `models.policies.rows.PolicyRows.episodes`).

    Args:
        n_alerts: Alerts raised.
        clustering: Variance of counts over that of independent ones, at least 1.
        confidence: That they are no more, [0.5, 1).

    Returns:
        An upper prediction bound, at least `n_alerts`.

    >>> [next_alerts(10, clustering=phi, confidence=0.95) for phi in (1.0, 3.0)]
    [19, 29]
    """
    causes = float(nbdtrik(confidence, n_alerts / clustering + 1.0, 0.5))
    # A whole number is met but for rounding; half of the causes are no fewer than seen.
    return max(n_alerts, math.ceil(clustering * causes - 1e-9 * (n_alerts + 1)))


def try_in_order(
    rows: PolicyRows, policies: Sequence[WarningPolicy], *, precision: float, confidence: float
) -> SequenceEnd:
    """Tests "its precision is lower" for one policy after the other until one cannot be rejected.

    Fixed-sequence testing (Learn then Test, Angelopoulos et al. 2021): whichever policy is
    taken, the chance that it has a lower precision is at most `1 - confidence`, as long as the
    order was fixed without these rows.

    Args:
        rows: Rows that had no part in the order.
        policies: In the order of the tests.
        precision: Wanted precision.
        confidence: 1 - the chance of being wrong.

    Returns:
        The last that passed.
    """
    best, seen, tried = None, Episodes(0, 0, 0.0), 0
    for policy in policies:
        tried += 1
        found = rows.outcome(policy)
        if chance_if_lower(found, precision=precision) > 1.0 - confidence:
            seen = seen if best is not None else found
            break
        best, seen = policy, found
    return SequenceEnd(best, seen, tried)


def chance_if_lower(found: Episodes, *, precision: float) -> float:
    """The chance of as many true episodes were the precision just `precision`.

    The upper tail of the binomial distribution, exact where every episode is independent; of
    fewer effective ones as Korn and Graubard (1998) do it, by the beta function.

    Args:
        found: Episodes.
        precision: (0, 1).

    Returns:
        A p-value.

    >>> round(chance_if_lower(Episodes(19, 0, 19.0), precision=0.85), 3)
    0.046
    """
    true = found.precision * found.n_effective
    if true <= 0.0:
        return 1.0
    return float(betainc(true, found.n_effective - true + 1.0, precision))


def missing_episodes(found: Episodes, *, precision: float, confidence: float) -> str:
    """What episodes of a test part lack to show a precision, in words.

    Args:
        found: Episodes of the test part.
        precision: Wanted precision.
        confidence: 1 - the chance of being wrong.

    Returns:
        A sentence.

    >>> missing_episodes(Episodes(8, 1, 9.0), precision=0.85, confidence=0.95)
    'At least 19 of 19 independent episodes must be true; 8 of 9 were.'
    """
    alone = math.ceil(math.log1p(-confidence) / math.log(precision))
    worth = f", worth {found.n_effective:.0f} independent ones" * (
        found.size - found.n_effective >= 0.5
    )
    n = max(alone, math.floor(found.n_effective))
    # The smallest number whose upper tail is as improbable.
    needed = int(binom.isf(1.0 - confidence, n, precision)) + 1
    return (
        f"At least {needed} of {n} independent episodes must be true; {found.n_true} of "
        f"{found.size} were{worth}."
    )
