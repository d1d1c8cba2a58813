"""Judges node scores and alerts where the ceiling is known: recall by class, truth of scores.

What an alert is decides `models.policies.warnings`; where rows and ceilings come from is not known
here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from models.calibration import FloatArray
from models.evaluation.calibration_metrics import CalibrationCheck, check_calibration
from models.evaluation.event_metrics import caught_pairs
from models.evaluation.intervals import exact_share
from models.evaluation.row_metrics import (
    Bootstrap,
    Estimate,
    estimate,
    group_codes,
    resample_groups,
    row_losses,
)
from models.specs import Task

ALL: Final = "all"


@dataclass(frozen=True)
class ClassRecall:
    """How many incidents of a class were caught, against how many could be.

    Attributes:
        fault_type: The class, or `all`.
        n_incidents: Incidents that some row could catch.
        n_caught: Those that an alert caught.
        recall: With its exact 95 % interval.
        ceiling: Largest recall of any reader at the budget; None: not known.
        by_signs: Share of the class that announces itself in time; None: not known.
        by_record: Largest recall by signs and the record of incidents; None: not known.
        lead_h: Median lead of the first alert that caught each, hours; None: none was caught.
    """

    fault_type: str
    n_incidents: int
    n_caught: int
    recall: Estimate
    ceiling: float | None
    by_signs: float | None
    by_record: float | None
    lead_h: float | None

    @property
    def ratio(self) -> float | None:
        """Recall over ceiling."""
        return self._over(self.ceiling)

    @property
    def ratio_by_signs(self) -> float | None:
        """Recall over what announces itself; chance and history may take it above 1."""
        return self._over(self.by_signs)

    @property
    def ratio_by_record(self) -> float | None:
        """Recall over what signs and the record of incidents give."""
        return self._over(self.by_record)

    def _over(self, bound: float | None) -> float | None:
        if not bound or self.recall.value is None:
            return None
        return self.recall.value / bound

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        ratios = ("ratio", "ratio_by_signs", "ratio_by_record")
        return {**asdict(self), **{name: getattr(self, name) for name in ratios}}


@dataclass(frozen=True)
class ScoreTruth:
    """How far scores can be taken at their word.

    Attributes:
        check: Held against what came; its base rate is that of the rows themselves.
        log_loss_gain: Log loss of this base rate minus that of the scores.
    """

    check: CalibrationCheck
    log_loss_gain: Estimate

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


def recall_by_class(
    alerts: pl.DataFrame,
    rows: pl.DataFrame,
    *,
    incidents: pl.DataFrame,
    task: Task,
    ceilings: Mapping[str, float],
    by_signs: Mapping[str, float],
    by_record: Mapping[str, float],
) -> tuple[ClassRecall, ...]:
    """Recall of each class, most frequent first, `all` before them.

    Args:
        alerts: `entity_id`, `as_of`, of the rows.
        rows: Scored rows: `entity_id`, `as_of`, `label`.
        incidents: core/incidents.
        task: Lead, horizon and entity kind.
        ceilings: Largest recall by class at the budget.
        by_signs: Share of each class that announces itself in time.
        by_record: Largest recall by class of signs and the record of incidents.

    Returns:
        One entry per class with an incident that some row could catch.
    """
    known = rows.filter(pl.col("label").is_not_null()).select("entity_id", "as_of")
    asked = alerts.select("entity_id", "as_of").join(known, on=["entity_id", "as_of"], how="semi")
    kinds = incidents.select("incident_id", "fault_type").unique("incident_id")
    catchable = caught_pairs(known, incidents, task=task).select("incident_id").unique()
    first = (
        caught_pairs(asked, incidents, task=task)
        .group_by("incident_id")
        .agg(pl.col("lead_h").max())
    )
    found = catchable.join(kinds, on="incident_id").join(first, on="incident_id", how="left")
    classes = (
        found["fault_type"]
        .value_counts(sort=True, name="n")
        .sort("n", "fault_type", descending=[True, False])
    )
    parts = [(ALL, found)]
    parts += [(name, found.filter(pl.col("fault_type") == name)) for name in classes["fault_type"]]
    return tuple(
        _class_recall(
            name,
            part,
            ceiling=ceilings.get(name),
            by_signs=by_signs.get(name),
            by_record=by_record.get(name),
        )
        for name, part in parts
        if part.height
    )


def judge_scores(
    rows: pl.DataFrame, *, threshold: float, bootstrap: Bootstrap | None = None
) -> ScoreTruth:
    """Holds scores against what came; intervals are over whole entities.

    Args:
        rows: `entity_id`, `label`, `score`, and the bootstrap's group column, at least one row
            with both; rows without label or score are left out.
        threshold: The check's bands are made of the rows at or above it.
        bootstrap: How intervals are made.

    Returns:
        The judgement; without rows above the threshold there are no bands.
    """
    bootstrap = bootstrap or Bootstrap()
    known = rows.drop_nulls(["label", "score"])
    label = known["label"].cast(pl.Float64).to_numpy()
    check = check_calibration(
        known, threshold=threshold, base_rate=float(label.mean()), bootstrap=bootstrap
    )
    losses = row_losses(known["score"].cast(pl.Float64).to_numpy(), label)
    return ScoreTruth(check, _gain(losses, label, groups=known[bootstrap.group], drawn=bootstrap))


def _class_recall(
    name: str,
    part: pl.DataFrame,
    *,
    ceiling: float | None,
    by_signs: float | None,
    by_record: float | None,
) -> ClassRecall:
    n, leads = part.height, part["lead_h"].drop_nulls()
    k = leads.len()
    lead = leads.median()
    return ClassRecall(
        name,
        n,
        k,
        Estimate(k / n, *exact_share(k, n)),
        ceiling,
        by_signs,
        by_record,
        float(lead) if isinstance(lead, float) else None,
    )


def _gain(
    losses: FloatArray, label: FloatArray, *, groups: pl.Series, drawn: Bootstrap
) -> Estimate:
    """Log loss of the base rate, that of each resample, minus that of the scores."""
    group, n_groups = group_codes(groups)
    weights = np.vstack([np.ones(n_groups), resample_groups(n_groups, drawn)])
    n, k, loss = (
        weights @ np.bincount(group, weights=values, minlength=n_groups)
        for values in (np.ones_like(label), label, losses)
    )
    rate = np.clip(k / n, 1e-12, 1 - 1e-12)
    base = -(k * np.log(rate) + (n - k) * np.log1p(-rate)) / n
    gain = base - loss / n
    return estimate(float(gain[0]), gain[1:])
