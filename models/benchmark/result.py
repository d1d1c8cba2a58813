"""What a benchmark found: per origin, population and scorer the metrics, as plain values.

How it is found is in `models.benchmark.run`; how it is shown, in
`pipelines.studies.benchmark.text`.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal

from features.errors import DataError
from models.evaluation.row_metrics import Estimate, RowMetrics

MODEL: Final = "model"

Population = Literal[
    "all",
    "old batch",
    "old, no earlier incident",
    "without the top units",
    "unseen entities",
    "leavers count as negatives",
    "leavers negative, old batch",
    "leavers negative, old, no earlier incident",
    "labels dealt anew",
]


@dataclass(frozen=True)
class Gain:
    """What the model has more than another scorer, on the same rows and resamples.

    Attributes:
        auc: In AUC.
        average_precision: In average precision.
        precision_top_1pct: In precision in the top 1 %.
    """

    auc: Estimate
    average_precision: Estimate
    precision_top_1pct: Estimate


@dataclass(frozen=True)
class BenchmarkRow:
    """One scorer on one population of one window.

    Attributes:
        population: Rows that are judged.
        scorer: The model, a rival or a baseline.
        metrics: How it ranks them.
        gain: What the model has more; None for the model itself, and where it is not made.
    """

    population: Population
    scorer: str
    metrics: RowMetrics
    gain: Gain | None = None


@dataclass(frozen=True)
class WindowResult:
    """One origin.

    Attributes:
        origin: S.
        n_features: Features that vary in the training rows.
        n_train: Labelled training rows.
        n_train_positive: Positive ones.
        top_units: The entities with the most positive test rows and with the most incidents.
        rows: Results, the model first in each population.
        unavailable: Baselines that lack their columns, with what they lack.
        fault_types: AUC of telling the two most frequent fault types apart, on positive rows;
            not defined where a window has one only.
    """

    origin: datetime
    n_features: int
    n_train: int
    n_train_positive: int
    top_units: tuple[str, ...]
    rows: tuple[BenchmarkRow, ...]
    unavailable: tuple[str, ...]
    fault_types: Estimate

    def row(self, population: Population = "all", scorer: str = MODEL) -> BenchmarkRow:
        """One scorer on one population.

        Raises:
            DataError: There is none.
        """
        for row in self.rows:
            if (row.population, row.scorer) == (population, scorer):
                return row
        raise DataError(f"benchmark at {self.origin:%Y-%m-%d}: no {scorer!r} on {population!r}.")

    def metrics(self, population: Population = "all", scorer: str = MODEL) -> RowMetrics:
        """The metrics of one scorer on one population.

        Raises:
            DataError: There are none.
        """
        return self.row(population, scorer).metrics


@dataclass(frozen=True)
class BenchmarkResult:
    """A benchmark's outcome.

    Attributes:
        name: Its name.
        n_features: Features of the matrix.
        n_incidents: Incidents in the labels.
        windows: One per origin.
        seconds: Run time.
    """

    name: str
    n_features: int
    n_incidents: int
    windows: tuple[WindowResult, ...]
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)
