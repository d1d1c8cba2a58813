"""A small made-up fleet: rows with labels, its incidents, and a model trained on it."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.contracts import UTC_TIME
from features.registry import Feature
from features.tables import CORE_INCIDENTS
from models.bundle import ModelBundle
from models.failure_model import FailureModel
from models.faults.types import train_fault_types
from models.node_scores import NodeCombination
from models.reasons import usual_values
from models.specs import Task, TrainSpec
from models.training.boosters import train

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASK = Task(horizon_h=6, lead=timedelta(minutes=30), trained_on="synthetic", catalogue_version="t1")
FEATURES = (
    Feature("power_w_mean_24h", "telemetry_gauge", "W", timedelta(hours=24), "Mean power", (), ""),
    Feature(
        "gpu_temp_c_max_24h", "telemetry_gauge", "degC", timedelta(hours=24), "Hottest", (), ""
    ),
    Feature(
        "own_incident_count_180d", "history", "count", timedelta(days=180), "Incidents", (), ""
    ),
)
NAMES = tuple(feature.name for feature in FEATURES)
N_GPUS, N_TICKS = 40, 150


@pytest.fixture(scope="session")
def incidents() -> pl.DataFrame:
    """Sixty incidents: GPU i fails at hours spread over the record, hot before it."""
    rng = np.random.default_rng(5)
    rows = [
        {
            "incident_id": f"inc-{i}",
            "entity_kind": "gpu",
            "entity_id": f"gpu-{i % N_GPUS:02d}",
            "node": f"node-{(i % N_GPUS) // 4}",
            "start": START + (10 + 70 * (i // N_GPUS) + int(rng.integers(60))) * HOUR,
            "end": None,
            "fault_type": "thermal" if i % 2 else "off_bus",
            "evidence": "made up",
            "detected_by": "test",
            "catalogue_version": "t1",
        }
        for i in range(60)
    ]
    return pl.DataFrame(rows, schema=CORE_INCIDENTS.schema)


@pytest.fixture(scope="session")
def rows(incidents: pl.DataFrame) -> pl.DataFrame:
    """Hourly rows of every GPU with features and labels; heat rises before an incident."""
    rng = np.random.default_rng(7)
    grid = pl.DataFrame(
        {
            "entity_id": [f"gpu-{g:02d}" for g in range(N_GPUS) for _ in range(N_TICKS)],
            "node": [f"node-{g // 4}" for g in range(N_GPUS) for _ in range(N_TICKS)],
            "as_of": [START + t * HOUR for _ in range(N_GPUS) for t in range(N_TICKS)],
        },
        schema_overrides={"as_of": UTC_TIME},
    )
    lead = pl.col("start") - pl.col("as_of")
    coming = (
        grid.join(
            incidents.select("entity_id", "incident_id", "fault_type", "start"), on="entity_id"
        )
        .filter(lead >= TASK.lead, lead < TASK.embargo)
        .sort("start")
        .unique(["entity_id", "as_of"], keep="first")
        .drop("node", "start")
    )
    joined = grid.join(coming, on=["entity_id", "as_of"], how="left", maintain_order="left")
    hot = joined["incident_id"].is_not_null().to_numpy() * 6.0
    thermal = (joined["fault_type"] == "thermal").fill_null(value=False).to_numpy() * 90.0
    size = joined.height
    return joined.with_columns(
        label=pl.col("incident_id").is_not_null().cast(pl.Int8),
        censored_by=pl.lit(None, dtype=pl.String),
        power_w_mean_24h=pl.Series(rng.normal(400, 40, size) + thermal, dtype=pl.Float32),
        gpu_temp_c_max_24h=pl.Series(rng.normal(60, 4, size) + hot, dtype=pl.Float32),
        own_incident_count_180d=pl.Series(rng.poisson(0.3, size), dtype=pl.Float32),
    )


# Spelled out: these tests do not follow the defaults, which are tuned elsewhere.
SPEC = TrainSpec(
    num_leaves=31,
    rounds=30,
    min_data_in_leaf=20,
    lambda_l2=5.0,
    feature_fraction=0.6,
    min_incidents=10,
    seeds=(1, 2),
)


@pytest.fixture(scope="session")
def model(rows: pl.DataFrame) -> FailureModel:
    """Trained on even nodes, calibrated on odd ones."""
    is_even = pl.col("node").str.slice(5).cast(pl.Int64) % 2 == 0
    fitted = train(rows.filter(is_even), feature_names=NAMES, task=TASK, spec=SPEC)
    return fitted.calibrated_on(rows.filter(~is_even))


@pytest.fixture(scope="session")
def bundle(rows: pl.DataFrame, model: FailureModel) -> ModelBundle:
    """The model with fault types, node combination and usual values."""
    return ModelBundle(
        model=model,
        features=FEATURES,
        usual=usual_values(rows, NAMES),
        fault_types=train_fault_types(rows, feature_names=NAMES, spec=SPEC),
        nodes=NodeCombination(host_probability=0.001),
        card={"purpose": "test"},
    )
