"""Chooses the threshold of a warning policy: by alert budget, or with a guarantee of precision.

What an alert is decides `models.warnings`; how it is judged, `models.event_metrics`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import binom

from features.errors import DataError
from models.event_metrics import Episodes, alert_episodes
from models.specs import Task
from models.warnings import WarningPolicy, raise_alerts

CANDIDATES = 60
"""Thresholds tried, at ranks that grow by a constant factor from the strictest on."""


@dataclass(frozen=True)
class ThresholdChoice:
    """A threshold with the reason it was chosen, or the reason there is none.

    Attributes:
        threshold: Score from which on a row is above; None when no threshold qualifies.
        explanation: The choice in words.
        n_tried: Thresholds tried.
    """

    threshold: float | None
    explanation: str
    n_tried: int

    def to_dict(self) -> dict[str, Any]:
        """The choice as plain values, for JSON."""
        return asdict(self)


def threshold_for_budget(
    rows: pl.DataFrame, *, policy: WarningPolicy, alerts_per_1000_nodes_per_day: float
) -> ThresholdChoice:
    """The lowest threshold at which neither it nor any stricter one spends more than the budget.

    Args:
        rows: Validation rows: `entity_id`, `as_of`, `node`, `score`.
        policy: Persistence and cooldown; its threshold is ignored.
        alerts_per_1000_nodes_per_day: Alert budget.

    Returns:
        The choice; no threshold when even the strictest spends more.

    Raises:
        DataError: The budget is not positive, or no row has a score.
    """
    if not alerts_per_1000_nodes_per_day > 0:
        raise DataError(
            f"alert budget: must be positive, got {alerts_per_1000_nodes_per_day:g} alerts per "
            f"1,000 nodes per day. To raise no alert, set policy level observe."
        )
    places = rows.select(pl.coalesce("node", "entity_id"), "as_of").unique().height
    node_days = places * (policy.tick / timedelta(days=1))
    allowed = alerts_per_1000_nodes_per_day * node_days / 1000.0
    best, spent, tried = None, 0, 0
    for threshold in _candidates(rows):
        tried += 1
        count = raise_alerts(rows, replace(policy, threshold=threshold)).height
        if count > allowed:
            break
        best, spent = threshold, count
    budget = f"{alerts_per_1000_nodes_per_day:g} alerts per 1,000 nodes per day"
    if best is None:
        words = (
            f"No threshold keeps to {budget}: {allowed:.1f} alerts are allowed in "
            f"{node_days:.0f} node-days, the strictest raises {count}."
        )
    else:
        words = (
            f"Lowest threshold within {budget}: {spent} alerts in {node_days:.0f} node-days of "
            f"validation, {allowed:.1f} allowed."
        )
    return ThresholdChoice(best, words, tried)


def threshold_for_precision(
    tune: pl.DataFrame,
    test: pl.DataFrame,
    *,
    incidents: pl.DataFrame,
    task: Task,
    policy: WarningPolicy,
    precision: float,
    confidence: float = 0.95,
) -> ThresholdChoice:
    """The lowest threshold whose precision is at least `precision` with the given confidence.

    Fixed-sequence testing (Learn then Test, Angelopoulos et al. 2021): `tune` says which
    thresholds are worth testing, `test` rejects "precision is lower" for one after the other,
    strictest first, by an exact binomial test until the first that it cannot. The unit is an
    episode: an incident caught, or an entity falsely alarmed, for alerts of one entity are not
    independent.

    Args:
        tune: Rows with `entity_id`, `as_of`, `node`, `score`, `label`; none shared with `test`.
        test: Rows of other entities or another time.
        incidents: core/incidents.
        task: Lead, horizon, entity kind.
        policy: Persistence and cooldown; its threshold is ignored.
        precision: Wanted precision, (0, 1).
        confidence: 1 - the chance of being wrong.

    Returns:
        The choice; no threshold when none qualifies.

    Raises:
        DataError: A share is out of range, or no row has a score.
    """
    for name, share in (("precision", precision), ("confidence", confidence)):
        if not 0.0 < share < 1.0:
            raise DataError(f"threshold with a guarantee: {name} must be in (0, 1), got {share:g}.")
    wanted = f"precision >= {precision:g} with {confidence:.0%} confidence"

    def episodes(rows: pl.DataFrame, threshold: float) -> Episodes:
        alerts = raise_alerts(rows, replace(policy, threshold=threshold))
        return alert_episodes(alerts, rows, incidents=incidents, task=task)

    def chance(found: Episodes) -> float:
        return float(binom.sf(found.n_true - 1, found.n_true + found.n_false, precision))

    # Start at the threshold the tuning part is surest of: stricter ones have too few episodes
    # to pass, and the first that does not pass ends the sequence.
    tuned = [(threshold, chance(episodes(tune, threshold))) for threshold in _candidates(tune)]
    surest = min(range(len(tuned)), key=lambda i: tuned[i][1])
    allowed = 1.0 - confidence
    worth = [threshold for threshold, p in tuned[surest:] if p <= allowed]
    best, tried, seen = None, 0, Episodes(0, 0)
    for threshold in worth:
        tried += 1
        found = episodes(test, threshold)
        if chance(found) > allowed:
            seen = seen if best is not None else found
            break
        best, seen = threshold, found
    if best is not None:
        words = (
            f"Lowest threshold tested with {wanted}: {seen.n_true} of "
            f"{seen.n_true + seen.n_false} episodes were true."
        )
    elif not worth:
        words = (
            f"No threshold qualifies for {wanted}: on the tuning part none has enough true "
            f"episodes to be worth a test."
        )
    else:
        words = (
            f"No threshold qualifies for {wanted}: on the test part {seen.n_true} of "
            f"{seen.n_true + seen.n_false} episodes were true, which is not enough to tell."
        )
    return ThresholdChoice(best, words, tried)


def _candidates(rows: pl.DataFrame) -> Iterator[float]:
    """Distinct scores from the highest on, at geometrically growing ranks."""
    score = np.sort(rows["score"].drop_nulls().to_numpy())[::-1]
    if not score.size:
        raise DataError("threshold: no row has a score. Score the validation rows first.")
    ranks = np.unique(np.geomspace(1, score.size, CANDIDATES).round().astype(int)) - 1
    yield from dict.fromkeys(score[ranks].tolist())
