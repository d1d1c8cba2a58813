"""Survival of entities whose history is known and whose telemetry is not: hazards period by period.

Scores for a fixed horizon are in `models.failure_model`; labels and features come from `features`.

A discrete-time hazard (Cox 1972, section 6; Singer and Willett 1993): each row of the matrix is
asked about every period after its moment for as long as the entity was watched and had not
failed. Survival is the product of what each period leaves, so that a longer horizon never has a
smaller probability. Each period has boosters of its own: one booster for all, told the period,
lost half of the 30-day average precision on Titan, for what announces the next weeks says little
of the next year.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import polars as pl
from scipy.special import logit

from features.errors import DataError
from models.calibration import FloatArray
from models.failure_model import FailureModel
from models.specs import Task, TrainSpec
from models.training.boosters import count_incidents, train

PERIOD: Final = "hazard_period"

DEFAULT_EDGES_D: Final = (30, 90, 180, 365)


@dataclass(frozen=True, kw_only=True)
class HazardSpec:
    """Which periods are told apart, and how their boosters are trained.

    Attributes:
        edges_d: Ends of the periods, in days after the lead, rising. A hazard is constant within
            a period.
        lead: Minimum lead L.
        trained_on: synthetic or real.
        train: How boosters are trained.

    Raises:
        DataError: The edges are not positive and rising.
    """

    edges_d: tuple[int, ...] = DEFAULT_EDGES_D
    lead: timedelta = timedelta(0)
    trained_on: str = "real"
    train: TrainSpec = field(default_factory=TrainSpec)

    def __post_init__(self) -> None:
        if not self.edges_d or sorted({*self.edges_d, 0})[1:] != list(self.edges_d):
            raise DataError(
                f"hazard spec: edges_d must be positive days in rising order, got {self.edges_d}."
            )

    @property
    def horizons_h(self) -> tuple[int, ...]:
        """The horizons whose labels are needed (`features.labels.LabelSpec`)."""
        return tuple(24 * edge for edge in self.edges_d)


@dataclass(frozen=True, kw_only=True)
class PeriodHazard:
    """The hazard of one period.

    Attributes:
        model: Its boosters, or those of the period before where it had too few incidents.
        shift: Log-odds by which its rate differs from that of the model's own period; 0 for its
            own model.
        n_rows: Person-periods it rests on.
        n_failed: Failures among them.
    """

    model: FailureModel
    shift: float
    n_rows: int
    n_failed: int

    def probability(self, matrix: pl.DataFrame) -> FloatArray:
        """Probability to fail in the period, given survival until it; shape (rows,)."""
        return self.model.calibration.apply(self.model.raw_scores(matrix) + self.shift)


@dataclass(frozen=True, kw_only=True)
class HazardModel:
    """Hazards of consecutive periods.

    Attributes:
        periods: One per edge of the spec.
        spec: Periods and training.
    """

    periods: tuple[PeriodHazard, ...]
    spec: HazardSpec

    def survival(self, matrix: pl.DataFrame) -> FloatArray:
        """Probability to be without a failure at the end of each period.

        Args:
            matrix: Rows with the features.

        Returns:
            Shape (rows, periods), falling along each row.

        Raises:
            DataError: A feature is missing or not numeric.
        """
        left = [1.0 - period.probability(matrix) for period in self.periods]
        return np.asarray(np.cumprod(np.column_stack(left), axis=1))

    def probabilities(self, matrix: pl.DataFrame, *, days: Sequence[float]) -> FloatArray:
        """Probability of a failure within each number of days.

        Args:
            matrix: Rows with the features.
            days: Horizons, from 0 to the last edge; between edges the hazard is constant.

        Returns:
            Shape (rows, days); no row falls as the horizon grows.

        Raises:
            DataError: A horizon is out of range.
        """
        last = self.spec.edges_d[-1]
        if not all(0.0 <= day <= last for day in days):
            raise DataError(f"hazard: days must lie in 0 to {last}, got {tuple(days)}.")
        exposed = -np.log(np.maximum(self.survival(matrix), np.finfo(np.float64).tiny))
        edges = np.asarray((0, *self.spec.edges_d), dtype=np.float64)
        known = np.column_stack([np.zeros(matrix.height), exposed])
        at = np.asarray(days, dtype=np.float64)
        period = np.clip(np.searchsorted(edges, at, side="left"), 1, len(edges) - 1)
        share = (at - edges[period - 1]) / (edges[period] - edges[period - 1])
        within = known[:, period - 1] + share * (known[:, period] - known[:, period - 1])
        return np.asarray(-np.expm1(-within))

    def curves(self, matrix: pl.DataFrame) -> pl.DataFrame:
        """Survival curves: `entity_id`, `as_of`, `day`, `survival`, one row per edge."""
        survival = self.survival(matrix)
        columns = [pl.Series(str(edge), survival[:, i]) for i, edge in enumerate(self.spec.edges_d)]
        wide = matrix.select("entity_id", "as_of").with_row_index("row").with_columns(columns)
        long = wide.unpivot(
            [column.name for column in columns],
            index=["row", "entity_id", "as_of"],
            variable_name="day",
            value_name="survival",
        )
        return long.with_columns(pl.col("day").cast(pl.Int32)).sort("row", "day").drop("row")

    def calibrated_on(
        self, matrix: pl.DataFrame, labels: pl.DataFrame, *, until: datetime
    ) -> "HazardModel":
        """The same model, each hazard calibrated on validation rows.

        Args:
            matrix: Validation rows with the features.
            labels: features/labels at `spec.horizons_h`.
            until: Periods that end after it are left out.

        Returns:
            A new model; a period with too few failures to calibrate on stays as it is.
        """
        rows = person_periods(matrix, labels, spec=self.spec, until=until)
        calibrated = []
        for number, period in enumerate(self.periods):
            own = rows.filter(pl.col(PERIOD) == number)
            try:
                model = period.model.calibrated_on(own)
            except DataError:
                calibrated.append(period)
                continue
            # The shift was to bring the rate right; calibration does that, and on raw scores.
            calibrated.append(replace(period, model=model, shift=0.0))
        return replace(self, periods=tuple(calibrated))


def person_periods(
    matrix: pl.DataFrame,
    labels: pl.DataFrame,
    *,
    spec: HazardSpec,
    until: datetime,
) -> pl.DataFrame:
    """One row per matrix row and period in which its entity was at risk and watched to the end.

    The labels of rising horizons tell all of it, each kind of censoring included: an entity is at
    risk in a period when the label of the horizon before it is 0, and the period's outcome is the
    label of the horizon at its end. A period is left out with its label unknown, and so are the
    later ones; likewise where it ends after `until`, whatever happened in it.

    Args:
        matrix: Rows with `entity_id`, `as_of`.
        labels: features/labels with the horizons of `spec.horizons_h`.
        spec: Periods and lead.
        until: What is known: periods end at or before it.

    Returns:
        The matrix's rows with `hazard_period` (from 0), `label`, `fault_type` and `incident_id`,
        in the order of the matrix and the periods.

    Raises:
        DataError: The labels lack a horizon.
    """
    missing = set(spec.horizons_h) - set(labels["horizon_h"].unique())
    if missing and not labels.is_empty():
        raise DataError(
            f"hazard: labels lack horizons {sorted(missing)} h; build them with "
            f"LabelSpec(horizons_h={spec.horizons_h})."
        )
    rows = matrix.select("entity_id", "as_of").with_row_index("row")
    ends = pl.DataFrame(
        {
            PERIOD: range(len(spec.edges_d)),
            "horizon_h": spec.horizons_h,
            "end": [spec.lead + timedelta(days=edge) for edge in spec.edges_d],
        },
        schema_overrides={"horizon_h": pl.Int32, PERIOD: pl.Int32},
    )
    wanted = ["entity_id", "as_of", "horizon_h", "label", "fault_type", "incident_id"]
    told = (
        rows.join(labels.select(wanted), on=["entity_id", "as_of"])
        .join(ends, on="horizon_h")
        .sort("row", PERIOD)
    )
    before = pl.col("label").shift(1).over("row")
    is_at_risk = (before == 0) | (pl.col(PERIOD) == 0)
    told = told.filter(
        is_at_risk & pl.col("label").is_not_null() & (pl.col("as_of") + pl.col("end") <= until)
    )
    outcome = told.select(PERIOD, "label", "fault_type", "incident_id")
    return matrix[told["row"]].hstack(outcome)


def train_hazard(
    matrix: pl.DataFrame,
    labels: pl.DataFrame,
    *,
    feature_names: Sequence[str],
    spec: HazardSpec,
    until: datetime,
) -> HazardModel:
    """Learns hazards from what is known at a moment.

    Args:
        matrix: Rows with the features.
        labels: features/labels of one entity kind at `spec.horizons_h`.
        feature_names: Features to learn from.
        spec: Periods and training.
        until: Nothing after it is known.

    Returns:
        An uncalibrated model. A period with fewer incidents than `spec.train.min_incidents` takes
        the boosters of the one before, moved to its own rate.

    Raises:
        TooFewIncidentsError: The first period has too few incidents.
        DataError: A feature is missing, or labels lack a horizon.
    """
    rows = person_periods(matrix, labels, spec=spec, until=until)
    periods: list[PeriodHazard] = []
    rate = own_rate = 0.0
    for number, horizon_h in enumerate(spec.horizons_h):
        own = rows.filter(pl.col(PERIOD) == number)
        n_failed = int((own["label"] == 1).sum())
        if number and count_incidents(own) < max(spec.train.min_incidents, 1):
            lengths = np.diff((0, *spec.edges_d))[number - 1 : number + 1]
            rate = _rate(n_failed, own.height, before=rate, longer=lengths[1] / lengths[0])
            model, shift = periods[-1].model, float(logit(rate) - logit(own_rate))
        else:
            task = Task(horizon_h=horizon_h, lead=spec.lead, trained_on=spec.trained_on)
            model = train(own, feature_names=feature_names, task=task, spec=spec.train)
            rate, shift = n_failed / own.height, 0.0
            own_rate = rate
        periods.append(PeriodHazard(model=model, shift=shift, n_rows=own.height, n_failed=n_failed))
    return HazardModel(periods=tuple(periods), spec=spec)


def _rate(n_failed: int, n: int, *, before: float, longer: float) -> float:
    """Share that fails in a period with few failures, drawn towards the hazard of the one before.

    That hazard counts as one failure in as many person-periods as it takes for one: of a period
    that the record never reaches, it is all that is known.

    Args:
        n_failed: Failures in the period.
        n: Person-periods.
        before: Share that fails in the period before.
        longer: Length of the period by that of the one before.
    """
    usual = -np.expm1(longer * np.log1p(-before))
    return float((n_failed + 1.0) / (n + 1.0 / usual))
