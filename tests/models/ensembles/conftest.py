"""Made-up rows of sixty GPUs whose one useful feature has gaps."""

import numpy as np
import polars as pl
import pytest

from features.contracts import UTC_TIME
from tests.models.ensembles.made_up import DAY, NAMES, START


@pytest.fixture(scope="session")
def rows() -> pl.DataFrame:
    """60 GPUs on 30 days: hot ones fail within the day, some heat is unknown."""
    rng = np.random.default_rng(3)
    gpus, days = 60, 30
    size = gpus * days
    label = rng.random(size) < 0.06
    heat = rng.normal(size=size) + 2.5 * label
    heat[rng.random(size) < 0.1] = np.nan
    frame = pl.DataFrame(
        {
            "entity_id": [f"gpu-{g:02d}" for g in range(gpus) for _ in range(days)],
            "as_of": [START + d * DAY for _ in range(gpus) for d in range(days)],
            "label": label.astype(np.int8),
            "incident_id": [f"inc-{i}" if hit else None for i, hit in enumerate(label)],
            "heat": heat,
            "noise": rng.normal(size=size),
            "silent": np.full(size, np.nan),
        },
        schema_overrides={"as_of": UTC_TIME},
    )
    return frame.with_columns(pl.col(NAMES).cast(pl.Float32).fill_nan(None))


@pytest.fixture(scope="session")
def early(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("as_of") < START + 20 * DAY)


@pytest.fixture(scope="session")
def late(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("as_of") >= START + 21 * DAY)
