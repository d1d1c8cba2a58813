"""A tick of the long-lived scorer: 200,000 GPUs, state and scores, against LightGBM alone.

The state's part is that of `benchmarks.tick` (320 features of every GPU from its memory).
Then 320 features of 200,000 GPUs are scored for three horizons by one forest of 300 trees of 31
leaves each, with doubts, fault types, reasons and node scores, and published: Parquet, then the
score database. The peer is `lightgbm.predict` of the three forests on as many rows; all on one
thread, CPU time. Publishing is stated apart, as it is no part of the peer's work either.

Run as `python -m benchmarks.serving`; needs some 10 GB of disk. A smaller fleet: `--gpus 20000`.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import sqlalchemy as sa

from benchmarks.features import peak_mb
from benchmarks.tick import ticks
from features.registry import Feature
from features.vocabulary import FAULT_TYPES
from models.bundle import ModelBundle
from models.faults.types import FaultTypeModel
from models.node_scores import NodeCombination
from models.reasons import usual_values
from models.scoring import ScoreLimits, ServedModel
from models.specs import Task, TrainSpec
from models.training.boosters import train
from pipelines.flow.champions import scores_of
from pipelines.flow.publish import publish_scores
from pipelines.serving.published import latest_published
from pipelines.serving.score_database import write_tick
from pipelines.serving.score_schema import open_engine

N_GPUS: Final = 200_000
N_FEATURES: Final = 320
N_TRAINED: Final = 20_000
HORIZONS: Final = (24, 1, 168)
NAMES: Final = tuple(f"feature_{number}" for number in range(N_FEATURES))
T0: Final = datetime(2026, 1, 5, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
AT_MOST: Final = 0.25
MB_AT_MOST: Final = 8_000
_SPEC: Final = TrainSpec(rounds=300, num_leaves=31, min_data_in_leaf=20, seeds=(1,), num_threads=1)


def fleet_rows(n_rows: int, *, seed: int) -> pl.DataFrame:
    """Gauges and counters, a label that some of them explain."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((N_FEATURES, n_rows), dtype=np.float32)
    values[::4] = rng.poisson(0.5, size=values[::4].shape)
    push = values[:40].sum(axis=0) * 0.4
    return pl.DataFrame(
        {
            "entity_id": [f"GPU-{number:032x}" for number in range(n_rows)],
            "as_of": pl.Series([T0]).new_from_index(0, n_rows),
            "node": [f"node-{number // 8:05d}" for number in range(n_rows)],
            **{name: values[position] for position, name in enumerate(NAMES)},
            "label": (push + rng.normal(size=n_rows) > 2).astype(np.int8),
        }
    )


def served_models() -> list[ServedModel]:
    """One model per horizon."""
    rows = fleet_rows(N_TRAINED, seed=1)
    window = timedelta(hours=1)
    features = tuple(
        Feature(name, "telemetry_gauge", "1", window, "A feature", (), "") for name in NAMES
    )
    kinds = FaultTypeModel(
        classes=FAULT_TYPES,
        prior=(1 / len(FAULT_TYPES),) * len(FAULT_TYPES),
        learned=(),
        feature_names=NAMES,
        booster=None,
        n_incidents=1,
    )
    usual, models = usual_values(rows, NAMES), []
    for horizon_h in HORIZONS:
        task = Task(horizon_h=horizon_h, lead=HOUR / 2, trained_on="synthetic")
        bundle = ModelBundle(
            model=train(rows, feature_names=NAMES, task=task, spec=_SPEC),
            features=features,
            usual=usual,
            fault_types=kinds,
            nodes=NodeCombination(host_probability=0.0001),
        )
        models.append(ServedModel(version=f"gpu-failure-{horizon_h}h/1", model=bundle))
    return models


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and what it gave."""
    began = time.process_time()
    made = work()
    return time.process_time() - began, made


def predict_alone(served: list[ServedModel], values: np.ndarray) -> list[Any]:
    """The peer's work: every forest on every row, nothing else."""
    return [
        booster.predict(values, raw_score=True, num_threads=1)
        for one in served
        for booster in one.model.model.boosters  # type: ignore[union-attr]
    ]


def deliver(
    folder: Path, engine: sa.Engine, gpus: pl.DataFrame, nodes: pl.DataFrame, *, at: datetime
) -> tuple[float, float]:
    """CPU seconds of publishing a tick, and of writing it to the score database."""
    published, _ = cpu(
        lambda: publish_scores(
            folder / "scores", gpu_scores=gpus, node_scores=nodes, published_at=at, ttl=HOUR
        )
    )
    tick = latest_published(folder / "scores")
    assert tick is not None  # noqa: S101 - it was published just now
    kept, _ = cpu(lambda: write_tick(engine, tick.tick, node_scores=nodes, gpu_scores=gpus))
    return published, kept


def measure(folder: Path, *, n_gpus: int, n_rounds: int) -> dict[str, float]:
    """All that the table shows; the state's part was measured by `benchmarks.tick`."""
    served, limits = served_models(), ScoreLimits()
    matrix = fleet_rows(n_gpus, seed=2).drop("label")
    part = matrix.head(max(1, n_gpus // 10))
    values = part.select(NAMES).to_numpy(order="fortran")
    engine = open_engine(f"sqlite:///{folder / 'scores.db'}")
    scores_of(part, served, limits=limits)  # compiled loops, packed forests
    taken: list[dict[str, float]] = []
    sizes = [0]
    for number in range(n_rounds):
        at = T0 + number * HOUR
        moved = matrix.with_columns(
            pl.lit(at).cast(pl.Datetime("us", "UTC")).alias("as_of"),
            pl.col(NAMES[number]).reverse(),
        )
        scores, made = cpu(lambda m=moved: scores_of(m, served, limits=limits))
        peer, _ = cpu(lambda: predict_alone(served, values))
        published, kept = deliver(folder, engine, *made, at=at)
        taken.append(
            {
                "scores": scores,
                "peer": peer * n_gpus / part.height,
                "publish": published,
                "database": kept,
            }
        )
        sizes.append(sum(path.stat().st_size for path in folder.glob("scores.db")))
    files = [path.stat().st_size for path in (folder / "scores").rglob("*.parquet")]
    return {
        **{name: statistics.median(one[name] for one in taken) for name in taken[0]},
        "parquet_mb": sum(files) / n_rounds / 1e6,
        "database_mb": sizes[-1] / 1e6,
        "growth_mb": (sizes[-1] - sizes[2]) / max(1, n_rounds - 2) / 1e6,
        "mb": peak_mb(),
    }


def in_process(*words: str) -> dict[str, float]:
    """What a process of its own measured: its peak memory is no other's."""
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", "benchmarks.serving", "measure", name, *words],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rows(n_gpus: int = N_GPUS) -> list[str]:
    """The lines of the table."""
    state = in_process("state")
    state_cpu = state["cpu"] * n_gpus / N_GPUS
    ours = in_process("scores", str(n_gpus))
    tick = state_cpu + ours["scores"]
    return [
        (
            f"a tick of {n_gpus:,} GPUs, {N_FEATURES} features, {len(HORIZONS)} horizons: state "
            f"{state_cpu:.1f} CPU s, scores {ours['scores']:.1f}; lightgbm.predict of all forests "
            f"{ours['peer']:.1f}: {tick / ours['peer']:.3f}x (at most {AT_MOST})"
        ),
        (
            f"publishing: Parquet {ours['publish']:.1f} CPU s, {ours['parquet_mb']:.1f} MB a tick; "
            f"database {ours['database']:.1f} CPU s, {ours['database_mb']:.0f} MB with the latest "
            f"tick, then {ours['growth_mb']:.2f} MB a tick"
        ),
        (
            f"peak memory: state {state['mb']:.0f} MB, scores {ours['mb']:.0f} MB, in one process "
            f"at most their sum, {state['mb'] + ours['mb']:.0f} MB (at most {MB_AT_MOST:,})"
        ),
    ]


def main() -> None:
    """Prints the table, or what one process measured."""
    words = sys.argv[1:]
    if words[:1] == ["measure"]:
        folder = Path(words[1])
        state = words[2] == "state"
        made = ticks(folder) if state else measure(folder, n_gpus=int(words[3]), n_rounds=3)
        print(json.dumps(made))
        return
    n_gpus = int(words[words.index("--gpus") + 1]) if "--gpus" in words else N_GPUS
    print("\n".join(rows(n_gpus)))


if __name__ == "__main__":
    main()
