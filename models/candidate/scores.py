"""Scores of a candidate on validation and test, of GPUs and of the nodes they make up.

How they are judged is in `models.candidate.judgement`.
"""

from typing import NamedTuple

import polars as pl

from models.failure_model import FailureModel
from models.node_scores import NodeCombination
from models.training.splits import TimeSplit


class ScoredRows(NamedTuple):
    """Rows of validation and test with their scores.

    Attributes:
        nodes: How node scores were made, calibrated.
        gpu_valid: Rows of GPUs with features, label and score.
        gpu_test: Likewise.
        node_valid: Labelled rows of nodes with their score.
        node_test: Likewise.
    """

    nodes: NodeCombination
    gpu_valid: pl.DataFrame
    gpu_test: pl.DataFrame
    node_valid: pl.DataFrame
    node_test: pl.DataFrame


def score_rows(
    model: FailureModel, nodes: NodeCombination, *, gpu: TimeSplit, node: TimeSplit
) -> ScoredRows:
    """Scores GPUs, calibrates the nodes' combination on validation, and scores nodes.

    Args:
        model: The failure score, calibrated.
        nodes: How GPU scores become node scores, not calibrated yet.
        gpu: Rows of GPUs.
        node: Rows of nodes.
    """
    valid, test = (
        part.with_columns(score=pl.Series(model.scores(part), dtype=pl.Float64))
        for part in (gpu.valid, gpu.test)
    )
    nodes = nodes.calibrated_on(valid, node.valid)
    node_valid, node_test = (
        _node_scored(part, nodes.combine(scored))
        for part, scored in ((node.valid, valid), (node.test, test))
    )
    return ScoredRows(nodes, valid, test, node_valid, node_test)


def _node_scored(rows: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """Every labelled row of a node with its score; null, and counted, where no GPU was scored."""
    known = ("entity_id", "as_of", "node", "label", "fault_type", "incident_id")
    return rows.select(known).join(
        scores.select("node", "as_of", "score"),
        on=["node", "as_of"],
        how="left",
        maintain_order="left",
    )
