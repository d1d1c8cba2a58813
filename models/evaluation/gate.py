"""The gate: whether a candidate may become champion, judged on rows neither has seen.

Aliases are moved by `models.registry.model_registry`; this only decides, and says why.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from models.evaluation.ranking_metrics import auc, average_precision
from models.evaluation.row_metrics import (
    Bootstrap,
    Estimate,
    compare,
    estimate,
    group_codes,
    resample_groups,
    row_losses,
)

GROUP = "incident_or_entity"
RESAMPLES = 500

LEAST_INCIDENTS = 6
"""Fewer incidents, or failed entities, decide nothing: resamples of one incident hardly differ, and
of 60 chance scores 22 passed with one, 9 with two, 7 with three. Six that all lie on the right side
are the fewest that chance gives in less than 2.5 % (sign test)."""

LOG_LOSS_MARGIN = 0.02
"""Share of the other's log-loss that a candidate may lose: a better ranking is worth a little
calibration, but costs and drains are reckoned with the scores as probabilities."""

LOG_LOSS_TOO_MUCH = 0.10
"""Share that no candidate may lose, beyond chance or not: with ten incidents, chance excuses even
scores four times too high (8 of 75 simulated passed, with this rule fewer)."""


@dataclass(frozen=True)
class GateDecision:
    """The gate's word on a candidate.

    Attributes:
        is_accepted: Whether it may become champion.
        difference: Average precision, candidate minus champion; area under the ROC curve, less
            0.5, for a first candidate.
        reason: The decision in words.
        log_loss: Log-loss, candidate minus champion (a constant at the rows' own rate, for a
            first candidate); None where nothing was compared.
        n_rows: Labelled rows it rests on.
        n_incidents: Incidents among them.
    """

    is_accepted: bool
    difference: Estimate
    reason: str
    log_loss: Estimate | None = None
    n_rows: int = 0
    n_incidents: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The decision as plain values, for JSON."""
        return asdict(self)


def decide(
    rows: pl.DataFrame,
    *,
    candidate: str,
    champion: str | None = None,
    champion_seen_until: datetime | None = None,
    bootstrap: Bootstrap | None = None,
) -> GateDecision:
    """Accepts a candidate that is better beyond chance than the champion, or than no model.

    Resamples draw whole incidents, and whole entities where there was none. A first candidate is
    judged by the area under the ROC curve: among few positives a ranking by chance has an average
    precision above the base rate, and more so in resamples, where positives repeat (of 60 chance
    scores with 15 incidents each, 19 passed by average precision and 2 by area).

    A better ranking does not pay for wrong probabilities: a candidate whose log-loss is worse
    beyond chance by more than 2 % of the other's, or as measured by more than 10 %, is refused. So
    is every candidate where fewer than six entities failed: nothing can be told from them.

    Args:
        rows: Rows the candidate has not seen: `entity_id`, `as_of`, `label`, `incident_id` and
            the score columns.
        candidate: Score column of the candidate.
        champion: Score column of the champion; None for a first candidate, which is held
            against the base rate.
        champion_seen_until: Rows before this moment told the champion something: they are left
            out, and the reason says how many.
        bootstrap: Resamples and seed; its group is not used.

    Returns:
        The decision: accepted when the interval of the difference lies above zero.

    Raises:
        DataError: A column is missing.
    """
    drawn = replace(bootstrap or Bootstrap(resamples=RESAMPLES), group=GROUP)
    fair, left_out = _unseen(rows, champion_seen_until)
    prepared = fair.with_columns(
        pl.coalesce("incident_id", "entity_id").alias(GROUP), base_rate=pl.lit(0.0)
    )
    difference = _ranking_gain(prepared, candidate=candidate, champion=champion, drawn=drawn)
    judged = prepared.drop_nulls(["label", candidate, *([champion] if champion else [])])
    positive = judged.filter(pl.col("label") == 1)
    n_incidents, n_failed = positive[GROUP].n_unique(), positive["entity_id"].n_unique()
    decision = GateDecision(
        is_accepted=False,
        difference=difference,
        reason="",
        n_rows=judged.height,
        n_incidents=n_incidents,
    )
    against = _rival(champion)
    if difference.low is None or min(n_incidents, n_failed) < LEAST_INCIDENTS:
        few = f"{judged.height} rows with {n_incidents} incidents of {n_failed} entities"
        said = f"Cannot be held against {against}: {few}, needed {LEAST_INCIDENTS} of each."
        return replace(decision, reason=said + left_out)
    loss, usual = _log_loss_increase(judged, candidate=candidate, champion=champion, drawn=drawn)
    is_better, is_true = difference.low > 0.0, _keeps_calibration(loss, usual)
    verdict = "better than" if is_better else "not better beyond chance than"
    judged_by = "Average precision" if champion else "Area under the ROC curve"
    reason = f"{judged_by} is {verdict} {against}: difference {difference}."
    if not is_true:
        reason += _worse_probabilities(loss, usual, champion=champion)
    is_accepted = is_better and is_true
    return replace(decision, is_accepted=is_accepted, reason=reason + left_out, log_loss=loss)


def features_not_built(champion_features: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Features of a champion that are built no more: without them it cannot score at all.

    Then there is nothing to beat, and a candidate is judged as the first.

    >>> features_not_built(("power_w", "fan_pct"), ("entity_id", "power_w"))
    ('fan_pct',)
    """
    built = set(columns)
    return tuple(name for name in champion_features if name not in built)


def without_champion(decision: GateDecision, absent: Sequence[str]) -> GateDecision:
    """A first candidate's decision that says why the champion was not held against it."""
    named = ", ".join(absent[:3]) + (", ..." if len(absent) > 3 else "")
    said = (
        f" The champion cannot score any more and was not compared: {len(absent)} of its features "
        f"are not built ({named})."
    )
    return replace(decision, reason=decision.reason + said)


def beside_unreadable(decision: GateDecision, cause: str, *, is_lost: bool) -> GateDecision:
    """A first candidate's decision where the champion it would replace cannot be read.

    Args:
        decision: The decision without a champion.
        cause: Why the champion cannot be read.
        is_lost: Whether nothing brings it back (another release wrote it): then there is nothing
            to beat. Files that may be restored keep their place.
    """
    said = f" The champion was not compared: {cause}"
    return replace(
        decision,
        is_accepted=decision.is_accepted and is_lost,
        reason=decision.reason + said + ("" if is_lost else " It stays champion."),
    )


def _keeps_calibration(loss: Estimate, usual: float) -> bool:
    if loss.value is None or loss.low is None:
        return False
    return loss.low <= LOG_LOSS_MARGIN * usual and loss.value <= LOG_LOSS_TOO_MUCH * usual


def _unseen(rows: pl.DataFrame, until: datetime | None) -> tuple[pl.DataFrame, str]:
    """Rows from `until` on, and what was left out in words."""
    if until is None:
        return rows, ""
    fair = rows.filter(pl.col("as_of") >= until)
    count = rows.height - fair.height
    if not count:
        return fair, ""
    return fair, (
        f" Left out: {count} of {rows.height} rows before {until:%Y-%m-%d %H:%M} UTC, which the "
        f"champion was trained or tuned on."
    )


def _rival(champion: str | None) -> str:
    return "the champion" if champion else "the base rate"


def _worse_probabilities(loss: Estimate, usual: float, *, champion: str | None) -> str:
    return (
        f" Its probabilities are worse than {_rival(champion)}'s: log-loss {_signed(loss)} on "
        f"{usual:.4f}. Calibrate it on a longer or later validation, or keep "
        f"{'the champion' if champion else 'the prior'}."
    )


def _ranking_gain(
    prepared: pl.DataFrame, *, candidate: str, champion: str | None, drawn: Bootstrap
) -> Estimate:
    """How much better the candidate ranks, by the statistic that fits what it is held against."""
    return compare(
        prepared,
        score=candidate,
        other=champion or "base_rate",
        statistic=average_precision if champion else auc,
        bootstrap=drawn,
    )


def _log_loss_increase(
    judged: pl.DataFrame, *, candidate: str, champion: str | None, drawn: Bootstrap
) -> tuple[Estimate, float]:
    """Log-loss of the candidate minus the other's with its interval, and the other's."""
    label = judged["label"].to_numpy().astype(np.float64)
    rate = np.full(label.size, label.mean())
    other = judged[champion].to_numpy().astype(np.float64) if champion else rate
    own = row_losses(judged[candidate].to_numpy().astype(np.float64), label)
    reference = row_losses(other, label)
    codes, n_groups = group_codes(judged[drawn.group])
    sums = np.bincount(codes, weights=own - reference, minlength=n_groups)
    sizes = np.bincount(codes, minlength=n_groups).astype(np.float64)
    weights = resample_groups(n_groups, drawn)
    resampled = (weights @ sums) / (weights @ sizes)
    return estimate(float(np.mean(own - reference)), resampled), float(reference.mean())


def _signed(found: Estimate) -> str:
    if found.value is None or found.low is None or found.high is None:
        return "not defined"
    return f"{found.value:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
