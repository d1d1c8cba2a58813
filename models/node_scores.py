"""Combines the scores of a node's GPUs with its host part into one calibrated node score.

GPU scores come from `models.scoring`; no booster is used here.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from features.errors import DataError
from models.calibration import (
    UNCALIBRATED,
    Calibration,
    FloatArray,
    fit_calibration,
    incidents_behind,
    log_odds_of,
)
from models.host_part import HostPart, own_pairs
from models.specs import Task


@dataclass(frozen=True)
class NodeCombination:
    """Node score = calibration of 1 - (1 - host) x prod(1 - p_gpu).

    GPUs of a node do not fail independently; the calibration on node labels makes up for it.

    Attributes:
        host_probability: Probability of an incident of the node itself within the horizon, the
            same for every node: its mean rate in training.
        calibration: From log-odds of the product to those of node labels.
        host: Probability of such an incident by the node's counts; None: its mean rate for all.
    """

    host_probability: float
    calibration: Calibration = UNCALIBRATED
    host: HostPart | None = None

    def combine(self, gpus: pl.DataFrame) -> pl.DataFrame:
        """Node scores of GPU scores.

        Args:
            gpus: `node`, `as_of`, `score`; null scores are unknown and take no part. With the
                counts of the host part, which are alike on a node's GPUs, that part is used.

        Returns:
            `node`, `as_of`, `score` (null when no GPU has one), `n_gpus`, `n_unknown`, sorted.
        """
        raw = self._raw(gpus)
        score = self.calibration.apply(raw["log_odds"].to_numpy())
        return raw.select(
            "node",
            "as_of",
            pl.when(pl.col("n_unknown") < pl.col("n_gpus"))
            .then(pl.lit(pl.Series(score)))
            .alias("score"),
            "n_gpus",
            "n_unknown",
        )

    def calibrated_on(self, gpus: pl.DataFrame, node_labels: pl.DataFrame) -> "NodeCombination":
        """The same combination, calibrated on validation rows of nodes.

        Args:
            gpus: As for `combine`.
            node_labels: `entity_id` (node), `as_of`, `label` of the same horizon and, where known,
                `incident_id`.

        Returns:
            A new combination.

        Raises:
            DataError: Too few positives to calibrate on.
        """
        ids = [name for name in ("incident_id",) if name in node_labels.columns]
        known = (
            self._raw(gpus)
            .filter(pl.col("n_unknown") < pl.col("n_gpus"))
            .join(
                node_labels.select(pl.col("entity_id").alias("node"), "as_of", "label", *ids),
                on=["node", "as_of"],
            )
            .filter(pl.col("label").is_not_null())
        )
        label = known["label"].to_numpy().astype(np.int8)
        fitted = fit_calibration(
            known["log_odds"].to_numpy(), label, n_incidents=incidents_behind(known)
        )
        return replace(self, calibration=fitted)

    def _raw(self, gpus: pl.DataFrame) -> pl.DataFrame:
        healthy = (1.0 - pl.col("score")).log().sum()
        counts = self.host.features if self.host else ()
        has_counts = bool(counts) and set(counts) <= set(gpus.columns)
        grouped = (
            gpus.filter(pl.col("node").is_not_null())
            .group_by("node", "as_of")
            .agg(
                healthy=healthy,
                n_gpus=pl.len(),
                n_unknown=pl.col("score").is_null().sum(),
                **{name: pl.col(name).max() for name in counts if has_counts},
            )
            .sort("node", "as_of")
        )
        host: FloatArray = np.full(grouped.height, self.host_probability)
        if self.host and has_counts:
            host = self.host.probability(grouped)
        probability: FloatArray = -np.expm1(grouped["healthy"].to_numpy() + np.log1p(-host))
        return grouped.with_columns(log_odds=pl.Series(log_odds_of(probability), dtype=pl.Float64))

    def to_dict(self) -> dict[str, Any]:
        """The combination as plain values, for JSON."""
        return {
            "host_probability": self.host_probability,
            "calibration": self.calibration.to_dict(),
            "host": self.host.to_dict() if self.host else None,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "NodeCombination":
        """The combination from what `to_dict` gave."""
        host = values.get("host")  # bundles of earlier releases have none
        return cls(
            values["host_probability"],
            Calibration.from_dict(values["calibration"]),
            HostPart.from_dict(host) if host else None,
        )


def host_probability(node_rows: pl.DataFrame, *, incidents: pl.DataFrame, task: Task) -> float:
    """Share of node rows followed by an incident of the node itself within the horizon.

    Args:
        node_rows: Training rows of nodes: `entity_id` (node), `as_of`, `label`.
        incidents: core/incidents; those of GPUs are left out.
        task: Lead and horizon.

    Returns:
        The share, add-one smoothed.

    Raises:
        DataError: No row has a label.
    """
    known = node_rows.filter(pl.col("label").is_not_null())
    if known.is_empty():
        raise DataError("host part: no node row has a label. Give node labels of training time.")
    followed = own_pairs(known, incidents=incidents, task=task).unique(["entity_id", "as_of"])
    return (followed.height + 1.0) / (known.height + 2.0)
