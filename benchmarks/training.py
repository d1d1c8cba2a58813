"""Training from a scan of Parquet files, against LightGBM on the whole array: memory and CPU time.

The same rows, settings and one thread; each in a process of its own, so that its peak is its own.
The peer reads the features as one float32 array and gives it to `lgb.Dataset`, in its default
layout; ours reads stretch after stretch and keeps bins. The trees must be the same. Peaks are of
the resident memory above what the process has before it touches the rows; bins are a byte a value.
Rows of a tenth of the negatives are compared, too. Last: bins shared by trainings, as in a search.

Run as `python -m benchmarks.training [ROWS]`.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

import lightgbm as lgb
import numpy as np
import polars as pl

from models.failure_model import feature_values
from models.specs import Task, TrainSpec
from models.training.binning import BATCH_ROWS, BIN_PARAMETERS, EDGE_ROWS, edge_sample
from models.training.boosters import bin_rows, booster_parameters, train, train_binned

N_ROWS: Final = 2_000_000
N_FEATURES: Final = 170
NAMES: Final = tuple(f"feature_{number}" for number in range(N_FEATURES))
ENTITIES: Final = 10_000
SHARE: Final = 0.1
TRIALS: Final = 5
SHARED_ROWS: Final = 200_000
MOST_MEMORY: Final = 1.3  # of the bins, beside one batch
TASK: Final = Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="synthetic")
SPEC: Final = TrainSpec(rounds=20)
MB: Final = 2**20


def write_rows(folder: Path, n_rows: int) -> None:
    """Gauges, counters and gaps with a label that some of them explain, as Parquet files."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number, first in enumerate(range(0, n_rows, BATCH_ROWS)):
        rng = np.random.default_rng(number)
        size = min(BATCH_ROWS, n_rows - first)
        values = rng.standard_normal((size, N_FEATURES), dtype=np.float32)
        values[:, ::4] = np.floor(3 * np.abs(values[:, ::4]))
        push = values[:, :20].sum(axis=1) + 3 * rng.standard_normal(size)
        values[rng.random(values.shape, dtype=np.float32) < 0.05] = np.nan
        position = first + pl.int_range(size, eager=True)
        keys = pl.DataFrame({"position": position}).select(
            as_of=pl.lit(start) + pl.duration(hours=pl.col("position") // ENTITIES),
            entity_id=pl.format(
                "gpu-{}", (pl.col("position") % ENTITIES).cast(pl.String).str.zfill(6)
            ),
            label=pl.Series(push > 24).cast(pl.Int8),  # about 1 % of the rows
        )
        keys.hstack(pl.DataFrame(values, schema=list(NAMES))).write_parquet(
            folder / f"{number:04}.parquet"
        )


def ours(scan: pl.LazyFrame, spec: TrainSpec) -> lgb.Booster:
    """The product's training on the scan."""
    return train(scan, feature_names=NAMES, task=TASK, spec=spec).boosters[0]


def peer(scan: pl.LazyFrame, spec: TrainSpec) -> lgb.Booster:
    """LightGBM on one array, with the sample of negatives that ours takes."""
    keys = scan.select("label").collect()["label"].to_numpy()
    chance = np.random.default_rng(spec.seeds[0]).random(keys.size)
    is_used = (keys == 1) | (chance < spec.negative_share)
    values = feature_values(scan.select(NAMES).filter(pl.Series(is_used)).collect(), NAMES)
    label = keys[is_used].astype(np.float32)
    weight = np.where(label == 1, 1.0, 1.0 / spec.negative_share).astype(np.float32)
    bins = {name: value for name, value in BIN_PARAMETERS.items() if name != "force_col_wise"}
    parameters = booster_parameters(spec, names=NAMES, seed=spec.seeds[0])
    parameters |= {"force_col_wise": False, "force_row_wise": True}
    edges = None
    if label.size > EDGE_ROWS:  # the same rows for the edges of bins, or no tree would be the same
        edges = lgb.Dataset(values[edge_sample(label.size)], params=bins)
    data = lgb.Dataset(
        values, label, reference=edges, weight=weight, feature_name=list(NAMES), params=bins
    )
    return lgb.train(parameters, data.construct(), num_boost_round=spec.rounds)


WAYS: Final[dict[str, Callable[[pl.LazyFrame, TrainSpec], lgb.Booster]]] = {
    "ours": ours,
    "peer": peer,
}


def measured(way: str, folder: Path, share: float) -> dict[str, float | str]:
    """What one way takes, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.training", way, str(folder), str(share)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return dict(json.loads(told.stdout.splitlines()[-1]))


def run_way(way: str, folder: Path, share: float) -> str:
    """Trains once in this process; CPU seconds, peak memory and the trees' hash as JSON."""
    scan = pl.scan_parquet(folder / "*.parquet")
    # What the engine and LightGBM need at all is in memory before the rows are.
    WAYS[way](scan.head(5_000), replace(SPEC, rounds=1, min_incidents=0))
    before, began = _memory("VmRSS"), time.process_time()
    booster = WAYS[way](scan, replace(SPEC, negative_share=share))
    seconds = time.process_time() - began
    trees = booster.model_to_string().split("end of trees")[0]
    return json.dumps(
        {
            "cpu_s": seconds,
            "peak_mb": _memory("VmHWM") - before,
            "trees": sha256(trees.encode()).hexdigest(),
        }
    )


def _memory(field: str) -> float:
    """Resident memory of this process now (VmRSS) or at most so far (VmHWM), MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in status if line.startswith(field)).split()[1]) / 1024


def compared(folder: Path, n_rows: int, share: float) -> str:
    """One line: both ways on a share of the negatives.

    Raises:
        RuntimeError: The trees differ.
    """
    found = {way: measured(way, folder, share) for way in WAYS}
    if found["ours"]["trees"] != found["peer"]["trees"]:
        raise RuntimeError(f"negatives kept {share}: the trees are not those of LightGBM.")
    (mine, my_s), (theirs, their_s) = (
        (float(one["peak_mb"]), float(one["cpu_s"])) for one in found.values()
    )
    line = (
        f"{n_rows:,} rows x {N_FEATURES}, {share:.0%} of the negatives: {mine:,.0f} MB, peer "
        f"{theirs:,.0f} ({mine / theirs:.2f}); {my_s:.1f} s of CPU, peer {their_s:.1f} "
        f"({my_s / their_s:.2f}); the same trees"
    )
    if share < 1.0:
        return line
    bins, batch = (size * N_FEATURES / MB for size in (n_rows, 4 * BATCH_ROWS))
    ratio = (mine - batch) / bins
    verdict = "holds" if ratio <= MOST_MEMORY else "MISSED"
    return (
        f"{line}; bins {bins:,.0f} MB, a batch {batch:.0f}: {ratio:.2f} of the bins beside it (at "
        f"most {MOST_MEMORY}: {verdict})"
    )


def shared(folder: Path) -> str:
    """One line: several trainings on bins made once, against binning for each."""
    rows = pl.scan_parquet(folder / "*.parquet").head(SHARED_ROWS).collect()
    specs = [replace(SPEC, num_leaves=leaves) for leaves in range(3, 3 + TRIALS)]
    began = time.process_time()
    apart = [train(rows, feature_names=NAMES, task=TASK, spec=spec) for spec in specs]
    between = time.process_time()
    binned = bin_rows(rows, feature_names=NAMES, task=TASK, spec=SPEC)
    together = [train_binned(binned, task=TASK, spec=spec) for spec in specs]
    ended = time.process_time()
    for one, other in zip(apart, together, strict=True):
        if one.boosters[0].model_to_string() != other.boosters[0].model_to_string():
            raise RuntimeError("bins shared by trainings change a booster.")
    each, once = between - began, ended - between
    return (
        f"{TRIALS} settings on {rows.height:,} rows: {once:.1f} s of CPU with bins made once, "
        f"{each:.1f} with bins for each ({once / each:.2f}); the same boosters"
    )


def rows(n_rows: int = N_ROWS) -> list[str]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder, n_rows)
        return [*(compared(folder, n_rows, share) for share in (1.0, SHARE)), shared(folder)]


if __name__ == "__main__":
    if len(sys.argv) > 2:  # a way, a folder and a share
        print(run_way(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))
    else:
        print("\n".join(rows(*map(int, sys.argv[1:]))))
