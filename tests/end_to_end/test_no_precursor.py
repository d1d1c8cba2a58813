"""Telemetry of a fleet whose failures come without a sign: a model that finds one sees too much."""

from datetime import timedelta
from pathlib import Path

import lightgbm as lgb
import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from features.core_build import build_core_telemetry
from features.core_tables import CoreTables
from features.grid import as_of_times, watched_grid
from features.matrix import MatrixSpec, build_gpu_matrix
from pipelines.sources.site.listing import load_inputs
from pipelines.sources.site.readers import read_inputs
from simulation.fleet.generate import simulate_fleet
from simulation.fleet.regime import Regime
from simulation.regimes.load import load_regime
from simulation.writers.raw import write_fleet
from simulation.writers.truth_tables import incident_table

pytestmark = pytest.mark.slow

LEAD, HORIZON = timedelta(minutes=30), timedelta(hours=24)


def _even(regime: Regime) -> Regime:
    """The regime with nobody frailer than others, so that no trace of history tells of the future.

    After a repair counters start anew; where some fail again and again, that alone says something.
    """
    frailty = regime.frailty.model_copy(update={"node_shape": 1e6, "gpu_shape": 1e6})
    batches = tuple(batch.model_copy(update={"factor": 1.0}) for batch in regime.batches)
    return regime.model_copy(
        update={
            "frailty": frailty,
            "batches": batches,
            "hazard_multiplier": 60.0,
            "scrape_s": 300,
        }
    )


def _auc(regime: Regime, folder: Path) -> float:
    """AUC of a model of telemetry features alone, learned on every other node."""
    fleet = simulate_fleet(regime, seed=11, nodes=64, days=16)
    write_fleet(fleet, folder / "raw", folder / "truth")
    later = fleet.moment(fleet.end_s) + timedelta(days=1)
    read = read_inputs(load_inputs(folder / "raw" / "inputs.yaml"), ingested_at=later)
    inventory = read.tables["core/inventory"]
    telemetry = build_core_telemetry(read.tables["raw/gpu_telemetry"], inventory).frame
    moments = as_of_times(
        fleet.moment(2 * 86400), fleet.moment(14 * 86400), every=timedelta(hours=6)
    )
    matrix = build_gpu_matrix(
        CoreTables(gpu_telemetry=telemetry, inventory=inventory),
        watched_grid(inventory, moments, unknown_start="watched"),
        spec=MatrixSpec(parts=("telemetry",)),
    )
    rows = _with_truth(matrix, incident_table(fleet))
    names = [name for name in matrix.columns if name not in ("entity_id", "as_of", "node")]
    is_even = rows["node"].str.extract(r"(\d+)").cast(pl.Int64) % 2 == 0
    train, test = rows.filter(is_even), rows.filter(~is_even)
    assert test["label"].sum() > 100
    data = lgb.Dataset(train.select(names).to_numpy(), train["label"].to_numpy())
    settings = {"objective": "binary", "num_leaves": 15, "learning_rate": 0.05, "seed": 1}
    settings |= {"min_data_in_leaf": 100, "verbose": -1, "num_threads": 1, "feature_fraction": 0.5}
    scores = np.asarray(lgb.train(settings, data, 150).predict(test.select(names).to_numpy()))
    return float(roc_auc_score(test["label"].to_numpy(), scores))


def _with_truth(matrix: pl.DataFrame, incidents: pl.DataFrame) -> pl.DataFrame:
    """Rows of GPUs that have not failed, with whether they fail within the horizon."""
    of_gpus = incidents.filter(pl.col("entity_kind") == "gpu")
    rows = matrix.with_row_index("row")
    pairs = rows.select("row", "entity_id", "as_of").join(
        of_gpus.select("entity_id", "onset", "end"), on="entity_id"
    )
    first = pl.col("as_of") + LEAD
    is_hit = pl.col("onset").is_between(first, first + HORIZON, closed="left")
    is_open = (pl.col("onset") < first) & (pl.col("end") > pl.col("as_of") - timedelta(hours=1))
    told = pairs.group_by("row").agg(label=is_hit.any(), is_open=is_open.any())
    return (
        rows.join(told, on="row", how="left")
        .with_columns(pl.col("label", "is_open").fill_null(value=False))
        .filter(~pl.col("is_open"))
    )


def test_without_precursors_telemetry_alone_is_no_better_than_chance(tmp_path: Path) -> None:
    # About 70 failures in the test half: a standard error of 0.03 to 0.04.
    assert _auc(_even(load_regime("no-precursor")), tmp_path) == pytest.approx(0.5, abs=0.1)


def test_with_precursors_the_same_model_does_better_than_chance(tmp_path: Path) -> None:
    regime = _even(load_regime("h100"))
    faults = tuple(
        fault.model_copy(
            update={"precursor": fault.precursor.model_copy(update={"share_without": 0.0})}
        )
        if fault.precursor
        else fault
        for fault in regime.faults
    )
    loud = regime.model_copy(update={"faults": faults, "decoys": ()})
    # Seeds give 0.58 to 0.69; a model that read nothing would stay within 0.1 of one half.
    assert _auc(loud, tmp_path) > 0.6
