"""Learns on synthetic fleets that fail often, as if they failed as rarely as those judged.

Fleets come from `pipelines.studies.fleet.cache`; calibration and policies are in
`pipelines.studies.fleet.study`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.contracts import UTC_TIME
from models.host_part import HOST_FEATURES, fit_host
from models.node_scores import NodeCombination, host_probability
from models.training.boosters import train, training_rows
from models.training.monotone import with_rising
from models.training.uncertain import WEIGHT
from pipelines.studies.fleet.cache import ToldShard
from pipelines.studies.fleet.plan import Learned, StudyPlan
from simulation.fleet.generate import Fleet

TRACE: Final = timedelta(days=1)
"""How long after their end signs are fresh. Later, what they left in counts over a week says who
failed lately, and whoever did fails again in proportion to the rates."""

_NO_FEATURE: Final = (
    "entity_id",
    "as_of",
    "node",
    "label",
    "fault_type",
    "incident_id",
    "censored_by",
    WEIGHT,
)


def learn(
    plan: StudyPlan, shards: Iterator[ToldShard], *, say: Callable[[str], None]
) -> dict[int, Learned]:
    """Uncalibrated models and combinations by horizon.

    Args:
        plan: What and how.
        shards: Of fleets with `plan.dilution` times the failures, signs and decoys.
        say: Where progress lines go.

    Returns:
        By horizon.
    """
    kept: dict[int, list[pl.DataFrame]] = {h: [] for h in plan.horizons_h}
    nodes: dict[int, list[pl.DataFrame]] = {h: [] for h in plan.horizons_h}
    counts: list[pl.DataFrame] = []
    incidents: list[pl.DataFrame] = []
    rng = np.random.default_rng(plan.seed)
    for shard in shards:
        incidents.append(shard.incidents)
        busy = busy_times(shard.truth, name=shard.name)
        for stretch in shard.stretches:
            counts.append(host_counts(stretch.matrix).unique(["node", "as_of"], keep="any"))
            for horizon_h in plan.horizons_h:
                rows = training_rows(stretch.matrix, stretch.labels, horizon_h=horizon_h)
                rows = weighed(rows, busy, density=plan.dilution)
                kept[horizon_h].append(thinned(rows, plan=plan, rng=rng))
                of_nodes = node_labels(stretch.labels, horizon_h=horizon_h)
                nodes[horizon_h].append(weighed(of_nodes, busy, density=plan.dilution))
        say(f"learning: shard {shard.name} with {shard.incidents.height} incidents read")
    found, counted = pl.concat(incidents), pl.concat(counts)
    return {
        horizon_h: _learned(
            plan,
            pl.concat(kept.pop(horizon_h)),
            pl.concat(nodes.pop(horizon_h)),
            counts=counted,
            incidents=found,
            horizon_h=horizon_h,
        )
        for horizon_h in plan.horizons_h
    }


def _learned(
    plan: StudyPlan,
    rows: pl.DataFrame,
    nodes: pl.DataFrame,
    *,
    counts: pl.DataFrame,
    incidents: pl.DataFrame,
    horizon_h: int,
) -> Learned:
    names = [name for name in rows.columns if name not in _NO_FEATURE]
    # Leaves are counted in rows, and of these a share is left.
    least = max(1, round(plan.spec.min_data_in_leaf * plan.busy_share))
    spec = replace(plan.spec, min_data_in_leaf=least)
    model = train(
        rows,
        feature_names=names,
        task=plan.task(horizon_h, "gpu"),
        spec=with_rising(spec, names),
    )
    of_nodes = plan.task(horizon_h)
    combination = NodeCombination(
        host_probability(nodes, incidents=incidents, task=of_nodes) / plan.dilution,
        host=fit_host(counts, nodes, incidents=incidents, task=of_nodes),
    )
    return Learned(model, combination)


def busy_times(truth: Fleet, *, name: str) -> pl.DataFrame:
    """When nodes show signs, of failures or of nothing, or have shown them just before.

    Args:
        truth: What really happened to a shard's nodes.
        name: Name of the shard, told before those of nodes.

    Returns:
        `node`, `start`, `end`.
    """
    episodes = [
        (f"{name}/{one.node.name}", truth.moment(sign.start_s), truth.moment(sign.end_s) + TRACE)
        for one in truth.nodes
        for sign in (*(i.precursor for i in one.incidents if i.precursor), *one.decoys)
    ]
    schema = {"node": pl.String(), "start": UTC_TIME, "end": UTC_TIME}
    return pl.DataFrame(episodes, schema=schema, orient="row")


def weighed(rows: pl.DataFrame, busy: pl.DataFrame, *, density: float) -> pl.DataFrame:
    """Rows with a weight: quiet ones without a failure count as often as where it is judged.

    Where failures, signs and decoys come `density` times as often, all else that happens on a
    node, jobs that crash above all, does not: learned as it is, such a fleet would teach that
    every crash is a sign.

    Args:
        rows: `node`, `as_of`, `label`.
        busy: Of `busy_times`.
        density: How many times more often.

    Returns:
        The rows with `weight` and `is_quiet`.
    """
    keys = ["node", "as_of"]
    marked = (
        rows.select(keys)
        .unique()
        .join(busy, on="node")
        .filter(pl.col("as_of").is_between("start", "end"))
        .select(keys)
        .unique()
        .with_columns(is_busy=True)
    )
    told = rows.join(marked, on=keys, how="left", maintain_order="left")
    is_quiet = pl.col("is_busy").is_null() & (pl.col("label") == 0)
    weight = pl.when(is_quiet).then(density).otherwise(1.0).cast(pl.Float32)
    return told.with_columns(weight.alias(WEIGHT), is_quiet=is_quiet).drop("is_busy")


def thinned(rows: pl.DataFrame, *, plan: StudyPlan, rng: np.random.Generator) -> pl.DataFrame:
    """Every positive row, and shares of the negatives, which stand for all of them by weight.

    Args:
        rows: Of `weighed`; rows without label are left out.
        plan: Shares of the negatives that are kept, quiet or not.
        rng: What is drawn with.
    """
    share = (
        pl.when(pl.col("label") == 1)
        .then(1.0)
        .when("is_quiet")
        .then(plan.quiet_share)
        .otherwise(plan.busy_share)
    )
    drawn = pl.Series(rng.random(rows.height), dtype=pl.Float64)
    kept = rows.filter(pl.col("label").is_not_null() & (drawn < share))
    weight = (pl.col(WEIGHT) / share).cast(pl.Float32)
    return kept.with_columns(weight.alias(WEIGHT)).drop("is_quiet")


def node_labels(labels: pl.DataFrame, *, horizon_h: int) -> pl.DataFrame:
    """Labels of nodes for a horizon."""
    chosen = (pl.col("entity_kind") == "node") & (pl.col("horizon_h") == horizon_h)
    return labels.filter(chosen).select(
        "entity_id", "as_of", "label", "incident_id", node="entity_id"
    )


def host_counts(matrix: pl.DataFrame) -> pl.DataFrame:
    """What of a matrix the host part reads, small: all rows of the validation are in memory."""
    counts = [name for name in HOST_FEATURES if name in matrix.columns]
    return matrix.select("node", "as_of", pl.col(counts).fill_null(0).cast(pl.UInt16))
