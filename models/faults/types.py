"""Forecasts the fault type of a failure that is still to come, given that it comes.

The type of an incident that has happened is decided by the catalogue in `features`, not here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import softmax

from features.errors import DataError
from models.calibration import FloatArray
from models.failure_model import Values, check_feature_order, feature_values
from models.forest.scorer import RawScorer
from models.specs import TrainSpec

LAST_EVENT_TYPES: Final[dict[str, str]] = {
    "hours_since_hbm_event": "hbm_uncorrectable",
    "hours_since_precursor_event": "hbm_uncorrectable",
    "hours_since_off_bus_event": "off_bus",
    "hours_since_nvlink_event": "nvlink",
}
"""The fault type that the last event of a group points at; most warning events are of memory.
Application Xids and the rest point at none."""

MIN_CLASS_INCIDENTS = 10
"""Classes with fewer incidents are left to the prior: a tree would learn single machines."""


@dataclass(frozen=True, kw_only=True)
class FaultTypeModel:
    """Shares of fault types: a prior, refined by a booster between the classes it learned.

    Attributes:
        classes: Fault types seen, most frequent first.
        prior: Share of each among incidents, add-one smoothed.
        learned: The classes the booster tells apart; none when too few incidents.
        feature_names: Columns of the booster.
        booster: Multiclass booster over `learned`; None: prior only.
        n_incidents: Incidents it rests on.
        num_threads: Threads of LightGBM.
    """

    classes: tuple[str, ...]
    prior: tuple[float, ...]
    learned: tuple[str, ...]
    feature_names: tuple[str, ...]
    booster: lgb.Booster | None
    n_incidents: int
    num_threads: int = 1

    @cached_property
    def _scorer(self) -> RawScorer | None:
        if self.booster is None:
            return None
        return RawScorer(booster=self.booster, num_threads=self.num_threads)

    def probabilities(self, matrix: pl.DataFrame, *, values: Values | None = None) -> FloatArray:
        """Share of each class, summing to 1.

        Args:
            matrix: Rows with the features.
            values: Its `feature_values` of this model's features, where they are at hand.

        Returns:
            Shape (rows, classes); classes without a place in the booster keep their prior.

        Raises:
            DataError: A feature is missing or not numeric.
        """
        shares = np.tile(np.asarray(self.prior), (matrix.height, 1))
        if self._scorer is None or not matrix.height:
            return shares
        check_feature_order(self._scorer.booster, self.feature_names)
        if values is None:
            values = feature_values(matrix, self.feature_names)
        # The link is applied here, so that the shares do not depend on the way of scoring.
        between = softmax(self._scorer.raw_scores(values), axis=1)
        positions = [self.classes.index(name) for name in self.learned]
        shares[:, positions] = between * shares[:, positions].sum(axis=1, keepdims=True)
        return shares

    def forecast(
        self, matrix: pl.DataFrame, *, values: Values | None = None
    ) -> tuple[list[str], FloatArray]:
        """The most probable fault type of each row, and its share; see `probabilities`."""
        shares = self.probabilities(matrix, values=values)
        best = shares.argmax(axis=1)
        return [self.classes[i] for i in best], shares[np.arange(len(best)), best]

    def to_dict(self) -> dict[str, Any]:
        """All but the booster as plain values, for JSON."""
        return {
            "classes": list(self.classes),
            "prior": list(self.prior),
            "learned": list(self.learned),
            "feature_names": list(self.feature_names),
            "n_incidents": self.n_incidents,
            "num_threads": self.num_threads,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], booster_text: str | None) -> "FaultTypeModel":
        """The model from what `to_dict` gave and the booster's text."""
        return cls(
            classes=tuple(values["classes"]),
            prior=tuple(values["prior"]),
            learned=tuple(values["learned"]),
            feature_names=tuple(values["feature_names"]),
            booster=lgb.Booster(model_str=booster_text) if booster_text is not None else None,
            n_incidents=values["n_incidents"],
            num_threads=values["num_threads"],
        )


@dataclass(frozen=True)
class FaultTypeMetrics:
    """Share of incidents whose type was the first, or among the first two, of a forecast.

    Attributes:
        n_incidents: Incidents judged; each counts once, whatever its number of rows.
        top1: Of the model.
        top2: Of the model.
        prior_top1: Of the class prior.
        prior_top2: Of the class prior.
        last_xid_top1: Of the type the last Xid points at, the prior where there was none;
            None where no guess was given.
    """

    n_incidents: int
    top1: float | None
    top2: float | None
    prior_top1: float | None
    prior_top2: float | None
    last_xid_top1: float | None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


def train_fault_types(
    rows: pl.DataFrame, *, feature_names: Sequence[str], spec: TrainSpec | None = None
) -> FaultTypeModel:
    """Learns fault types from the rows before incidents; each incident weighs the same.

    Args:
        rows: Rows with `label`, `fault_type`, `incident_id` and the features.
        feature_names: Features to learn from.
        spec: How; seeds beyond the first are not used.

    Returns:
        A model with a booster when at least two classes have 10 incidents, else the prior.

    Raises:
        DataError: No row before an incident with a fault type.
    """
    spec = spec or TrainSpec()
    names = tuple(feature_names)
    typed = _typed_rows(rows)
    if typed.is_empty():
        raise DataError(
            f"fault types: none of {rows.height} rows is positive with a fault type and an "
            f"incident. Train on rows joined with features/labels."
        )
    counts = (
        typed.unique("incident_id")
        .group_by("fault_type")
        .len()
        .sort(["len", "fault_type"], descending=[True, False])
    )
    classes = tuple(counts["fault_type"].to_list())
    smoothed = counts["len"].to_numpy() + 1.0
    enough = counts.filter(pl.col("len") >= MIN_CLASS_INCIDENTS)["fault_type"].to_list()
    learned = tuple(enough) if len(enough) >= 2 else ()
    return FaultTypeModel(
        classes=classes,
        prior=tuple((smoothed / smoothed.sum()).tolist()),
        learned=learned,
        feature_names=names,
        booster=_booster(typed, learned, names=names, spec=spec) if learned else None,
        n_incidents=int(counts["len"].sum()),
        num_threads=spec.num_threads,
    )


def evaluate_fault_types(model: FaultTypeModel, rows: pl.DataFrame) -> FaultTypeMetrics:
    """Judges forecasts on rows before incidents, against the class prior and the last Xid.

    Args:
        model: The model.
        rows: Test rows as for `train_fault_types`; the last Xid is known by the times since the
            last event of each group, where the site's features have them.

    Returns:
        The metrics; all None without an incident.
    """
    typed = _typed_rows(rows)
    if typed.is_empty():
        return FaultTypeMetrics(0, None, None, None, None, None)
    true = typed["fault_type"].to_list()
    weight = _incident_weight(typed)
    ranked = np.argsort(-model.probabilities(typed), axis=1, kind="stable")
    last = None
    if (guessed := last_event_type(typed)) is not None:
        guess = guessed.fill_null(model.classes[0]).to_list()
        hits = np.asarray([g == t for g, t in zip(guess, true, strict=True)])
        last = float(np.average(hits, weights=weight))

    def share(order: npt.NDArray[np.intp], k: int) -> float:
        named = [{model.classes[i] for i in row[:k]} for row in order]
        hits = [t in n for t, n in zip(true, named, strict=True)]
        return float(np.average(np.asarray(hits), weights=weight))

    by_prior = np.tile(np.arange(len(model.classes)), (typed.height, 1))
    return FaultTypeMetrics(
        n_incidents=typed["incident_id"].n_unique(),
        top1=share(ranked, 1),
        top2=share(ranked, 2),
        prior_top1=share(by_prior, 1),
        prior_top2=share(by_prior, 2),
        last_xid_top1=last,
    )


def last_event_type(rows: pl.DataFrame) -> pl.Series | None:
    """The fault type that each row's last event points at; null without one that points at any.

    Args:
        rows: Rows with `hours_since_*_event` features.

    Returns:
        One type per row; None where the rows have no such feature.
    """
    names = [name for name in LAST_EVENT_TYPES if name in rows.columns]
    if not names:
        return None
    newest = pl.min_horizontal(names)
    # Of groups whose last events came together the first of the table counts.
    pointed = pl.coalesce(
        *(pl.when(pl.col(name) == newest).then(pl.lit(LAST_EVENT_TYPES[name])) for name in names)
    )
    return rows.select(pointed.alias("last_event_type")).to_series()


def _typed_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows before an incident of a known type, in a fixed order."""
    known = pl.col("fault_type").is_not_null() & pl.col("incident_id").is_not_null()
    return rows.filter(pl.col("label") == 1, known).sort("entity_id", "as_of")


def _incident_weight(typed: pl.DataFrame) -> FloatArray:
    return typed.select(1.0 / pl.len().over("incident_id")).to_series().to_numpy()


def _booster(
    typed: pl.DataFrame, learned: tuple[str, ...], *, names: tuple[str, ...], spec: TrainSpec
) -> lgb.Booster:
    rows = typed.filter(pl.col("fault_type").is_in(learned))
    label = [learned.index(name) for name in rows["fault_type"].to_list()]
    weight = _incident_weight(rows)
    data = lgb.Dataset(
        feature_values(rows, names),
        np.asarray(label, dtype=np.float32),
        weight=weight / weight.mean(),  # mean 1, so that leaf limits keep their meaning
        feature_name=list(names),
    )
    parameters = {
        "objective": "multiclass",
        "num_class": len(learned),
        "num_leaves": min(spec.num_leaves, 15),
        "learning_rate": spec.learning_rate,
        "min_data_in_leaf": spec.min_data_in_leaf,
        "lambda_l2": spec.lambda_l2,
        "feature_fraction": spec.feature_fraction,
        "seed": spec.seeds[0],
        "num_threads": spec.num_threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    return lgb.train(parameters, data, num_boost_round=min(spec.rounds, 100))
