"""What the test rows say of a candidate: events, baselines, truth of its probabilities.

What is trained, tuned and in which order is in `models.candidate.build`; metrics are defined
elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import polars as pl

from features.registry import Feature
from models.evaluation.baselines import all_baselines
from models.evaluation.calibration_metrics import CalibrationCheck, check_calibration
from models.evaluation.event_metrics import EventMetrics, evaluate_events
from models.evaluation.row_metrics import Bootstrap, Estimate, Evaluation, compare, evaluate
from models.policies.warnings import WarningPolicy, raise_alerts
from models.specs import Task
from models.training.splits import TimeSplit


@dataclass(frozen=True, kw_only=True)
class Judge:
    """How rows are judged, the same for every part of a candidate.

    Attributes:
        task: GPU task: horizon, lead.
        incidents: core/incidents.
        tick: Time between two rows of an entity.
        bootstrap: How intervals are made.
    """

    task: Task
    incidents: pl.DataFrame
    tick: timedelta
    bootstrap: Bootstrap

    def events(self, rows: pl.DataFrame, policy: WarningPolicy, *, kind: str) -> EventMetrics:
        """Alerts of a policy on scored test rows of an entity kind."""
        return evaluate_events(
            raise_alerts(rows, policy),
            rows,
            incidents=self.incidents,
            task=replace(self.task, entity_kind=kind),
            tick=self.tick,
            bootstrap=self.bootstrap,
        )

    def calibration(
        self, rows: pl.DataFrame, *, threshold: float, split: TimeSplit
    ) -> CalibrationCheck:
        """Probabilities of scored test rows, against the base rate of training."""
        return check_calibration(
            rows,
            threshold=threshold,
            base_rate=_share_of_positives(split.train) or 0.0,
            fitted_prevalence=_share_of_positives(split.valid),
            bootstrap=self.bootstrap,
        )

    def baselines(
        self, train_rows: pl.DataFrame, test: pl.DataFrame, *, features: Sequence[Feature]
    ) -> tuple[dict[str, Evaluation | None], dict[str, Estimate]]:
        """Each baseline on the scored test rows, and the model against it."""
        judged: dict[str, Evaluation | None] = {}
        gains: dict[str, Estimate] = {}
        scored = test.select("entity_id", "label", "score")
        for baseline in all_baselines(train_rows, test, features=features):
            if baseline.scores is None:
                judged[baseline.name] = None
                continue
            rows = scored.with_columns(baseline=baseline.scores)
            judged[baseline.name] = evaluate(
                rows, score="baseline", kind=baseline.kind, bootstrap=self.bootstrap
            )
            gains[baseline.name] = compare(
                rows, score="score", other="baseline", bootstrap=self.bootstrap
            )
        return judged, gains


def available(baselines: Mapping[str, Evaluation | None]) -> dict[str, Evaluation]:
    """Baselines whose columns the matrix has."""
    return {name: one for name, one in baselines.items() if one is not None}


def _share_of_positives(rows: pl.DataFrame) -> float | None:
    label = rows["label"].drop_nulls().cast(pl.Float64)
    return float(label.sum()) / label.len() if label.len() else None
