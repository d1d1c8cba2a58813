"""How probable an incident of the node itself is, by its links and its own history.

GPUs are scored by boosters; both are combined in `models.node_scores`. Nodes fail by themselves
so rarely that a handful of weights is all that their incidents can carry.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.linear_model import LogisticRegression

from models.calibration import MIN_POSITIVES, FloatArray, sigmoid
from models.evaluation.event_metrics import caught_pairs
from models.specs import Task
from models.training.uncertain import WEIGHT

HOST_FEATURES: Final = (
    "node_link_event_count_1h",
    "node_link_event_count_24h",
    "node_link_event_count_7d",
    "node_incident_count_30d",
    "node_incident_count_180d",
)
"""Counts, alike on all GPUs of a node; those that a matrix has are used."""

_LINKS: Final = "node_link_event_count_"
_TOLERANCE: Final = 1e-9
"""Of the slope of the mean loss. Hardly one row in a thousand has a link change: by the usual 1e-4
the search ended before it had looked at them."""


@dataclass(frozen=True)
class HostPart:
    """Logistic regression on counts.

    Attributes:
        features: Counts.
        weights: Of log(1 + count), or of the count being above zero.
        intercept: Log-odds without any of them.
        seen: Those counts of which only matters whether there is any: a link that changed once is
            as bad a sign as one that changed often.
    """

    features: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float
    seen: tuple[str, ...] = ()

    def probability(self, rows: pl.DataFrame) -> FloatArray:
        """Probability of an incident of the node itself within the horizon, shape (rows,).

        Args:
            rows: The counts; null counts as 0.
        """
        terms = _terms(rows, self.features, seen=self.seen)
        return sigmoid(terms @ np.asarray(self.weights) + self.intercept)

    def to_dict(self) -> dict[str, Any]:
        """The weights as plain values, for JSON."""
        return {
            "features": list(self.features),
            "weights": list(self.weights),
            "intercept": self.intercept,
            "seen": list(self.seen),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "HostPart":
        """The weights from what `to_dict` gave."""
        return cls(
            tuple(values["features"]),
            tuple(values["weights"]),
            values["intercept"],
            tuple(values.get("seen", ())),  # bundles of earlier releases took all logarithms
        )


def fit_host(
    gpu_rows: pl.DataFrame, node_rows: pl.DataFrame, *, incidents: pl.DataFrame, task: Task
) -> HostPart | None:
    """Learns the host part.

    Args:
        gpu_rows: Training rows of GPUs: `node`, `as_of` and the counts.
        node_rows: Training rows of nodes: `entity_id` (node), `as_of`, `label` and, where known,
            `weight`.
        incidents: core/incidents; those of GPUs are left out.
        task: Lead and horizon.

    Returns:
        None where no count is there, or too few nodes failed by themselves: their mean rate says
        it all.
    """
    names = tuple(name for name in HOST_FEATURES if name in gpu_rows.columns)
    known = node_rows.filter(pl.col("label").is_not_null()).select(
        "entity_id", "as_of", *(name for name in (WEIGHT,) if name in node_rows.columns)
    )
    rows = known.join(
        gpu_rows.select(pl.col("node").alias("entity_id"), "as_of", *names).unique(
            ["entity_id", "as_of"], keep="any"
        ),
        on=["entity_id", "as_of"],
    ).sort("as_of", "entity_id")
    pairs = own_pairs(rows, incidents=incidents, task=task)
    label = _is_in(rows, pairs)
    if not names or pairs["incident_id"].n_unique() < MIN_POSITIVES or label.all():
        return None
    weight = rows[WEIGHT].to_numpy() if WEIGHT in rows.columns else None
    while names:
        # Weakly drawn to zero: the rows before one incident resemble each other.
        seen = tuple(name for name in names if name.startswith(_LINKS))
        fitted = LogisticRegression(C=1.0, max_iter=1000, tol=_TOLERANCE).fit(
            _terms(rows, names, seen=seen), label, sample_weight=weight
        )
        weights = fitted.coef_[0]
        if (weights > 0).all():
            return HostPart(names, tuple(weights.tolist()), float(fitted.intercept_[0]), seen)
        # A count of troubles never speaks for a node: that is chance, or another count's doing.
        names = tuple(name for name, weight in zip(names, weights, strict=True) if weight > 0)
    return None


def own_pairs(rows: pl.DataFrame, *, incidents: pl.DataFrame, task: Task) -> pl.DataFrame:
    """Rows of nodes with each incident of the node itself that follows within the horizon.

    Args:
        rows: `entity_id` (node), `as_of`.
        incidents: core/incidents; those of GPUs are left out.
        task: Lead and horizon.

    Returns:
        `entity_id`, `as_of`, `incident_id`.
    """
    of_node = incidents.filter(pl.col("entity_kind") == "node")
    return caught_pairs(rows, of_node, task=replace(task, entity_kind="node")).drop("lead_h")


def _is_in(rows: pl.DataFrame, pairs: pl.DataFrame) -> npt.NDArray[np.bool_]:
    keys = ["entity_id", "as_of"]
    marked = pairs.select(keys).unique().with_columns(is_in=True)
    told = rows.select(keys).join(marked, on=keys, how="left", maintain_order="left")
    return told["is_in"].fill_null(value=False).to_numpy()


def _terms(rows: pl.DataFrame, names: Sequence[str], *, seen: Sequence[str]) -> FloatArray:
    counts = rows.select(pl.col(names).fill_null(0.0).cast(pl.Float64)).to_numpy()
    is_seen = np.isin(np.asarray(names), np.asarray(seen))
    return np.where(is_seen, (counts > 0).astype(np.float64), np.log1p(counts))
