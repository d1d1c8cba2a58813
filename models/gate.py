"""The gate: whether a candidate may become champion, judged on the same rows.

Aliases are moved by `models.registry`; this only decides, and says why.
"""

from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from models.evaluation import Bootstrap, Estimate, compare
from models.ranking_metrics import auc, average_precision

GROUP = "incident_or_entity"


@dataclass(frozen=True)
class GateDecision:
    """The gate's word on a candidate.

    Attributes:
        is_accepted: Whether it may become champion.
        difference: Average precision, candidate minus champion; area under the ROC curve, less
            0.5, for a first candidate.
        reason: The decision in words.
    """

    is_accepted: bool
    difference: Estimate
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The decision as plain values, for JSON."""
        return asdict(self)


def decide(
    rows: pl.DataFrame,
    *,
    candidate: str,
    champion: str | None = None,
    bootstrap: Bootstrap | None = None,
) -> GateDecision:
    """Accepts a candidate that is better beyond chance than the champion, or than no model.

    Resamples draw whole incidents, and whole entities where there was none. A first candidate is
    judged by the area under the ROC curve: among few positives a ranking by chance has an average
    precision above the base rate, and more so in resamples, where positives repeat (of 60 chance
    scores with 15 incidents each, 19 passed by average precision and 2 by area).

    Args:
        rows: Rows neither has seen: `entity_id`, `label`, `incident_id` and the score columns.
        candidate: Score column of the candidate.
        champion: Score column of the champion; None for a first candidate, which is held
            against the base rate.
        bootstrap: Resamples and seed; its group is not used.

    Returns:
        The decision: accepted when the interval of the difference lies above zero.

    Raises:
        DataError: A column is missing.
    """
    drawn = bootstrap or Bootstrap()
    prepared = rows.with_columns(
        pl.coalesce("incident_id", "entity_id").alias(GROUP), base_rate=pl.lit(0.0)
    )
    other = champion or "base_rate"
    difference = compare(
        prepared,
        score=candidate,
        other=other,
        statistic=average_precision if champion else auc,
        bootstrap=Bootstrap(resamples=drawn.resamples, seed=drawn.seed, group=GROUP),
    )
    against = "the champion" if champion else "the base rate"
    if difference.low is None:
        return GateDecision(
            is_accepted=False,
            difference=difference,
            reason=f"Cannot be held against {against}: {rows.height} rows, none positive.",
        )
    is_accepted = difference.low > 0.0
    verdict = "better than" if is_accepted else "not better beyond chance than"
    judged_by = "Average precision" if champion else "Area under the ROC curve"
    reason = f"{judged_by} is {verdict} {against}: difference {difference}."
    return GateDecision(is_accepted=is_accepted, difference=difference, reason=reason)
