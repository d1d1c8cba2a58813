"""A tick of 200,000 GPUs: their memory moved on by a quarter of an hour, against LightGBM.

The tick takes in 15 samples of every GPU and gives 320 features of each; the peer is LightGBM's own
prediction of all forests of a tick (one per horizon, 300 trees of 31 leaves) on as many rows and
features, on one thread as ours. The memory is a ring of a week and some on disk. What a longer
record would have left for the ticks to read is filled first and dropped from the page cache, so
that it comes from disk; `--cached` leaves it there.

Run as `python -m benchmarks.tick`; needs some 4 GB of disk.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import lightgbm as lgb
import numpy as np

from benchmarks.features import BUCKET, peak_mb, plan_of_320
from features.engine.batch import shards_of
from features.engine.plan import EnginePlan
from features.engine.ring import fingerprint, layout_of, tick_shard
from features.engine.samples import SHARD_SIZE, Piece
from features.engine.slots import Layout
from pipelines.flow.feature_memory import FeatureMemory

N_GPUS: Final = 200_000
SAMPLES: Final = 15
HORIZONS: Final = 3
TICKS: Final = 5
_START: Final = 2_000_000  # a bucket since 1970


@dataclass(frozen=True)
class Fleet:
    """A SampleSource of many GPUs that all have the samples of a few.

    Attributes:
        values: Column to the samples of one shard in one bucket.
    """

    values: dict[str, np.ndarray[Any, Any]]

    def uuids(self) -> Sequence[str]:
        """Names by code; only their number matters."""
        return range(N_GPUS)  # type: ignore[return-value]

    def pieces(
        self,
        shard: int,
        *,
        start_ms: int,
        end_ms: int,  # noqa: ARG002 - a tick asks for one bucket
        columns: Sequence[str],
        gpus: range | None = None,  # noqa: ARG002 - and for whole shards
    ) -> Iterator[Piece]:
        """One piece per bucket, whatever is asked for."""
        n_gpus = min(SHARD_SIZE, N_GPUS - shard * SHARD_SIZE)
        codes = np.repeat(np.arange(n_gpus, dtype=np.uint32), SAMPLES) + np.uint32(
            shard * SHARD_SIZE
        )
        step = BUCKET.seconds * 1000 // SAMPLES
        ts_ms = np.tile(start_ms + step * np.arange(SAMPLES), n_gpus)
        for array in (codes, ts_ms):
            array.flags.writeable = False
        values = {name: self.values[name][: codes.size] for name in columns}
        yield Piece(gpu=codes, ts_ms=ts_ms, values=values, nulls={})


def fleet() -> Fleet:
    """Samples that move like a job's, and counters that mostly stand still."""
    rng = np.random.default_rng(1)
    plan = plan_of_320()
    size = SHARD_SIZE * SAMPLES
    values = {}
    for name in plan.columns:
        if name in plan.gauges:
            values[name] = rng.integers(300, 7000, size).astype(np.int16)
        else:
            values[name] = np.repeat(rng.integers(0, 9, SHARD_SIZE), SAMPLES)
        values[name].flags.writeable = False
    return Fleet(values)


def ticks(folder: Path, *, is_cached: bool = False) -> dict[str, float]:
    """Seconds of a tick, the median of some, and the peak memory of the process.

    Args:
        folder: Where the memory is made.
        is_cached: Whether older slots are in the page cache, as where memory is plenty.

    Returns:
        CPU seconds `cpu`, seconds on the clock `wall`, peak memory `mb`, disk touched `gb` and
        disk once every slot is filled `whole`.
    """
    plan, source, memory = plan_of_320(), fleet(), FeatureMemory(folder)
    shards = shards_of(N_GPUS)
    for shard, gpus in enumerate(shards):
        lanes = -(-len(gpus) // 64) * 64
        head = {"plan": fingerprint(plan), "lanes": lanes, "own": [-1] * len(plan.gauges)}
        _fill(memory, shard, plan, layout_of(plan, n_gpus=len(gpus)), is_cached=is_cached)
        memory.commit(shard, {**head, "since": 0, "until": _START, "top": _START, "turn": 0})
    taken, walls = [], []
    for moment in range(_START + 1, _START + 2 + TICKS):
        began, wall_began = time.process_time(), time.perf_counter()
        for gpus in shards:
            tick_shard(source, memory, plan, gpus=gpus, moment=moment)
        taken.append(time.process_time() - began)
        walls.append(time.perf_counter() - wall_began)
    files = [path.stat() for path in folder.rglob("*.bin")]
    touched = sum(file.st_blocks * 512 for file in files) / 1e9
    whole = sum(file.st_size for file in files) / 1e9
    # The first tick lays out the files and loads the compiled loops.
    return {
        "cpu": statistics.median(taken[1:]),
        "wall": statistics.median(walls[1:]),
        "mb": peak_mb(),
        "gb": touched,
        "whole": whole,
    }


def _fill(
    memory: FeatureMemory, shard: int, plan: EnginePlan, layout: Layout, *, is_cached: bool
) -> None:
    """Puts on disk what the ticks will read of buckets before the first of them."""
    totals = np.zeros((layout.shared_rows, layout.lanes), np.int64)
    extremes = np.zeros((2, layout.gauges, layout.lanes), np.int32)
    windows = plan.windows.tolist()
    with memory.opened(shard, layout.size) as file:
        for bucket in range(_START, _START + 1 + TICKS):
            for window in windows:
                file.write(layout.totals_at(bucket - window), totals)
            for ring, (shorter, longer) in enumerate(pairwise([1, *windows])):
                for shift in range(shorter, longer, shorter):
                    file.write(layout.extremes_at(ring, bucket - shift), extremes)
    if not is_cached:
        for path in memory.folder.glob(f"shard={shard:04d}/*"):
            with path.open("r+b") as written:
                os.fsync(written.fileno())
                os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def lightgbm_cpu(*, n_rows: int = 20_000) -> float:
    """CPU seconds of LightGBM for one forest and all GPUs, from a part of the rows."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n_rows, 320)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=n_rows) > 2).astype(float)
    parameters = {"objective": "binary", "num_leaves": 31, "verbose": -1, "num_threads": 2}
    booster = lgb.train(parameters, lgb.Dataset(x, y), num_boost_round=300)
    taken = []
    for _ in range(3):
        began = time.process_time()
        booster.predict(x, raw_score=True, num_threads=1)
        taken.append(time.process_time() - began)
    return statistics.median(taken) * N_GPUS / n_rows


def rows(*options: str) -> list[str]:
    """The lines of the table; `options` as on the command line."""
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", "benchmarks.tick", *options, name],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
        )
    ours = json.loads(done.stdout)
    peer = lightgbm_cpu()
    where = "cached" if options else "from disk"
    time_taken = (
        f"a tick of {N_GPUS:,} GPUs, 320 features, older slots {where}: {ours['cpu']:.2f} CPU s, "
        f"{ours['wall']:.1f} s on the clock; LightGBM {peer:.1f} s a forest, "
        f"{HORIZONS * peer:.1f} s for {HORIZONS}: {ours['cpu'] / HORIZONS / peer:.3f}x "
        f"(at most 0.10), {ours['cpu'] / peer:.3f}x of one alone"
    )
    memory = (
        f"peak memory {ours['mb']:.0f} MB (at most 8,000); {ours['gb']:.1f} GB of disk touched, of "
        f"{ours['whole']:.0f} GB when every slot is filled"
    )
    return [time_taken, memory]


if __name__ == "__main__":
    *chosen, last = sys.argv[1:] or [""]
    if last and last != "--cached":
        print(json.dumps(ticks(Path(last), is_cached="--cached" in chosen)))
    else:
        print("\n".join(rows(*sys.argv[1:])))
