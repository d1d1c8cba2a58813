"""Raw scores by the packed forest against LightGBM, the same boosters and rows, one thread both.

The two take turns in one process; ratios are of CPU time, medians pair by pair, and the scores
must agree to the last bit. Values lie column after column in memory, as frames give them, which
costs LightGBM 2 to 5 % over row after row. Packing is once per model, compiling once per machine.

Run as `python -m benchmarks.forest`.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from models.failure_model import FailureModel, feature_values
from models.forest.scorer import Forest
from models.specs import Task, TrainSpec
from models.training.boosters import train

RUNS: Final = 7
N_ROWS: Final = 60_000
N_TRAINED: Final = 20_000
N_FEATURES: Final = 320
N_INFORMATIVE: Final = 40
AT_MOST: Final = 0.15
NAMES: Final = tuple(f"feature_{number}" for number in range(N_FEATURES))
SPECS: Final = {
    "300 trees of 31 leaves": TrainSpec(
        rounds=300, num_leaves=31, min_data_in_leaf=20, feature_fraction=1.0
    ),
    "the default model": TrainSpec(),
}
FIRST_CALL: Final = """
import time
import numpy as np
import lightgbm as lgb
from models.forest.scorer import Forest
values = np.zeros((100, 1), np.float32)
values[50:] = 1
settings = {"verbosity": -1, "num_threads": 1}
packed = Forest.of(lgb.train(settings, lgb.Dataset(values, values[:, 0]), 1))
began = time.process_time()
packed.raw_scores(values)
print(time.process_time() - began)
"""


def fleet_rows() -> pl.DataFrame:
    """Rows with gauges, counters and gaps, a label that some of them explain, and an entity."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
    values[:, ::4] = rng.poisson(0.5, size=values[:, ::4].shape)
    push = values[:, :N_INFORMATIVE].sum(axis=1) * 0.3 + values[:, 5] * values[:, 6]
    values[rng.random(values.shape) < 0.05] = np.nan
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return pl.DataFrame(values, schema=list(NAMES)).with_columns(
        entity_id=pl.format("gpu-{}", pl.int_range(pl.len())),
        as_of=pl.lit(start),
        label=pl.Series(push + rng.normal(size=N_ROWS) > 5).cast(pl.Int8),
    )


def ratio(name: str, model: FailureModel, rows: pl.DataFrame) -> str:
    """CPU per row of ours and of LightGBM, and their ratio pair by pair.

    Raises:
        RuntimeError: The model is not covered, or a score differs.
    """
    booster = model.boosters[0]
    began = time.process_time()
    packed = Forest.of(booster)
    packing_ms = (time.process_time() - began) * 1e3
    values = feature_values(rows, NAMES)
    expected = booster.predict(values, raw_score=True, num_threads=1)
    if packed is None or not np.array_equal(packed.raw_scores(values), expected):
        raise RuntimeError(f"{name}: the scores are not those of LightGBM.")
    taken = []
    for _ in range(RUNS):
        began = time.process_time()
        packed.raw_scores(values)
        between = time.process_time()
        booster.predict(values, raw_score=True, num_threads=1)
        taken.append((between - began, time.process_time() - between))
    ours, peer = (statistics.median(column) / N_ROWS * 1e6 for column in zip(*taken, strict=True))
    median = statistics.median(a / b for a, b in taken)
    return (
        f"{name}, {N_FEATURES} features, {N_ROWS:,} rows: {ours:.2f} us of CPU a row, LightGBM "
        f"{peer:.2f}: {median:.3f} of its time (at most {AT_MOST}); packed in {packing_ms:.0f} ms"
    )


def first_calls() -> str:
    """CPU time of the first call of a process: without compiled loops on disk, then with."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", FIRST_CALL]
        cold, warm = (
            float(
                subprocess.run(  # noqa: S603 - our own text
                    command, check=True, capture_output=True, text=True, env=environment
                ).stdout
            )
            for _ in range(2)
        )
    return f"first call of a process: {cold:.1f} s of CPU compiling, {warm:.1f} with what that left"


def rows() -> list[str]:
    """The lines of the table."""
    table = fleet_rows()
    task = Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="synthetic")
    lines = []
    for name, spec in SPECS.items():
        model = train(table.head(N_TRAINED), feature_names=NAMES, task=task, spec=spec)
        lines.append(ratio(name, model, table))
    return [*lines, first_calls()]


if __name__ == "__main__":
    print("\n".join(rows()))
