"""The feature engine: 320 features of telemetry, against reading it and against Polars.

The record is a week of 1,024 GPUs at a sample a minute, written by the synthetic fleet and stored
as any site's; four copies under other names make it five shards. The features are eight gauges by
five windows by seven statistics and eight counters by five windows, every 15 minutes. Everything
runs on one thread; ratios are of CPU seconds taken in turn.

Run as `POLARS_MAX_THREADS=1 python -m benchmarks.features`; takes about ten minutes.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from benchmarks.fleet import one_shard
from features.core_build import build_core_telemetry
from features.engine.batch import Moments, shards_of, window_blocks
from features.engine.plan import EnginePlan, Wanted, plan_engine
from features.engine.samples import SHARD_SIZE
from features.packing import GPU, TS_MS
from features.tables import CORE_INVENTORY
from features.telemetry_spec import FULL_TELEMETRY
from pipelines.sources.history.files import read_history
from pipelines.storage.telemetry.store import TelemetryStore
from simulation.writers.shards import tell_shard, write_telemetry

RUNS: Final = 7
DAYS: Final = 7
MAPPING: Final = Path(__file__).parents[1] / "data_samples" / "demo" / "mappings" / "telemetry.yaml"
BUCKET: Final = timedelta(minutes=15)
START: Final = datetime(2026, 3, 1, tzinfo=UTC)
_DAY: Final = timedelta(days=1)


def plan_of_320() -> EnginePlan:
    """Eight gauges by five windows by seven statistics, eight counters by five windows."""
    spec = FULL_TELEMETRY
    gauges = [
        Wanted(name=f"{g}_{s}_{w}", column=g, statistic=s, window=w)
        for g in spec.gauges
        for w, statistics_ in spec.gauge_statistics
        for s in statistics_
    ]
    counters = [
        Wanted(name=f"{c}_{w}", kind="increase", column=c, window=w)
        for c in spec.counters
        for w in spec.counter_windows
    ]
    return plan_engine([*gauges, *counters], bucket=BUCKET)


def write_record(folder: Path, *, days: int = DAYS, copies: int = 1) -> TelemetryStore:
    """The record as it is stored; each copy is a shard of its own."""
    shard = one_shard(days=days)
    write_telemetry(shard, tell_shard(shard), folder / "raw", counts=Counter())
    store = TelemetryStore(folder / "store")
    now = datetime(2027, 1, 1, tzinfo=UTC)
    for day in sorted((folder / "raw" / "telemetry").iterdir()):
        start = datetime.fromisoformat(day.name).replace(tzinfo=UTC)
        tables = [read_history(path, MAPPING, ingested_at=now).tables for path in day.iterdir()]
        raw = pl.concat(table["raw/gpu_telemetry"] for table in tables)
        core = build_core_telemetry(raw, CORE_INVENTORY.empty()).frame.filter(
            pl.col("ts").is_between(start, start + _DAY, closed="left")
        )
        # Only the GPUs that were there first: those that replaced them would fill the shard anew.
        first = core["gpu_uuid"].unique().sort().head(SHARD_SIZE)
        kept = core.filter(pl.col("gpu_uuid").is_in(first.implode()))
        renamed = [
            kept.with_columns(pl.format(f"{copy}-{{}}", "gpu_uuid").alias("gpu_uuid"))
            for copy in range(copies)
        ]
        store.write(pl.concat(renamed), start=start, end=start + _DAY)
    return store


def moments_of(days: int) -> Moments:
    """Every quarter of an hour of the record."""
    first = int(START.timestamp()) // 900
    return Moments(first + 1, 1, days * 96)


def compute(store: TelemetryStore, plan: EnginePlan, *, days: int = DAYS, shards: int = 1) -> None:
    """All features of some shards, block by block."""
    for gpus in shards_of(len(store.uuids()))[:shards]:
        for _ in window_blocks(store, plan, moments_of(days), gpus=gpus):
            pass


def scan(paths: list[Path], plan: EnginePlan) -> int:
    """Reads the same columns; the rows there are."""
    return sum(pl.read_parquet(path, columns=[GPU, TS_MS, *plan.columns]).height for path in paths)


def cpu(run: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    began = time.process_time()
    run()
    return time.process_time() - began


def by_group_by_dynamic(frame: pl.DataFrame) -> None:
    """The same features as a Polars user would write them first."""
    spec = FULL_TELEMETRY
    hours = (pl.col("ts") - pl.col("ts").first()).dt.total_seconds() / 3600.0
    for window, _ in spec.gauge_statistics:
        gauges = [
            expr
            for g in spec.gauges
            for expr in (
                pl.col(g).mean().alias(f"{g}_mean"),
                pl.col(g).std().alias(f"{g}_std"),
                pl.col(g).min().alias(f"{g}_min"),
                pl.col(g).max().alias(f"{g}_max"),
                pl.col(g).last().alias(f"{g}_last"),
                (pl.cov(hours, pl.col(g)) / hours.var()).alias(f"{g}_slope"),
                (pl.col(g).last() - pl.col(g).first()).alias(f"{g}_delta"),
            )
        ]
        counters = [_increase(c).sum().alias(f"{c}_increase") for c in spec.counters]
        frame.group_by_dynamic(
            "ts", every=BUCKET, period=window, group_by=GPU, start_by="window"
        ).agg(*gauges, *counters)


def by_two_levels(frame: pl.DataFrame) -> None:
    """The same features from buckets in tuned Polars: one grouping, then rolling sums."""
    spec = FULL_TELEMETRY
    buckets = _buckets(frame)
    n, at = pl.col("n").cast(pl.Float64), pl.col("at")
    t_now = pl.col("t") + at * n
    tt_now = pl.col("tt") + 2 * at * pl.col("t") + at * at * n
    for window, _ in spec.gauge_statistics:
        size = window // BUCKET
        sums = {"N": _rolling(n, size), "T": _rolling(t_now, size), "TT": _rolling(tt_now, size)}
        results = [_rolling(pl.col(f"{c}:i"), size).alias(c) for c in spec.counters]
        for g in spec.gauges:
            results += _of_window(g, size)
        buckets.with_columns(**sums).select(results)


def _buckets(frame: pl.DataFrame) -> pl.DataFrame:
    """Per GPU and quarter of an hour: counts, sums, extremes, and when it began in seconds."""
    spec, ts = FULL_TELEMETRY, pl.col("ts")
    x = (ts - ts.dt.truncate("15m")).dt.total_seconds()
    moments = [pl.len().alias("n"), x.sum().alias("t"), (x * x).sum().alias("tt")]
    for g in spec.gauges:
        value = pl.col(g)
        moments += [
            value.sum().alias(f"{g}:s"),
            (value * value).sum().alias(f"{g}:ss"),
            (value * x).sum().alias(f"{g}:tv"),
            value.min().alias(f"{g}:low"),
            value.max().alias(f"{g}:high"),
            value.last().alias(f"{g}:last"),
        ]
    increased = frame.with_columns(_increase(c).over(GPU).alias(f"{c}:i") for c in spec.counters)
    moments += [pl.col(f"{c}:i").sum() for c in spec.counters]
    buckets = increased.group_by(GPU, ts.dt.truncate("15m").alias("bucket")).agg(moments)
    return buckets.sort(GPU, "bucket").with_columns(
        (pl.col("bucket").dt.epoch("s") - int(START.timestamp())).cast(pl.Float64).alias("at")
    )


def _of_window(gauge: str, size: int) -> list[pl.Expr]:
    """The seven statistics of a gauge over so many buckets, beside the window's N, T and TT."""
    sums, at = pl.col(f"{gauge}:s"), pl.col("at")
    s, ss = _rolling(sums, size), _rolling(pl.col(f"{gauge}:ss"), size)
    tv = _rolling(pl.col(f"{gauge}:tv") + at * sums, size)
    n, t, tt = pl.col("N"), pl.col("T"), pl.col("TT")
    low, high, last = (pl.col(f"{gauge}:{name}") for name in ("low", "high", "last"))
    return [
        (s / n).alias(f"{gauge}_mean"),
        ((ss - s * s / n) / (n - 1)).sqrt().alias(f"{gauge}_std"),
        low.rolling_min(size, min_samples=1).over(GPU).alias(f"{gauge}_min"),
        high.rolling_max(size, min_samples=1).over(GPU).alias(f"{gauge}_max"),
        last.alias(f"{gauge}_last"),
        ((n * tv - t * s) / (n * tt - t * t) * 3600.0).alias(f"{gauge}_slope"),
        (last - last.shift(size).over(GPU)).alias(f"{gauge}_delta"),
    ]


def _rolling(column: pl.Expr, size: int) -> pl.Expr:
    return column.cast(pl.Float64).rolling_sum(size, min_samples=1).over(GPU)


def _increase(counter: str) -> pl.Expr:
    step = pl.col(counter).diff()
    return pl.when(step < 0).then(pl.col(counter)).otherwise(step)


def few_gpus(store: TelemetryStore, plan: EnginePlan, *, n_gpus: int) -> pl.DataFrame:
    """The record of some GPUs as a frame of floats, as a Polars user has it in memory."""
    frame = pl.concat(
        pl.read_parquet(path, columns=[GPU, TS_MS, *plan.columns]).filter(pl.col(GPU) < n_gpus)
        for path in store.files()
        if "shard=0000" in str(path)
    )
    gauges = [pl.col(name).cast(pl.Float64) for name in FULL_TELEMETRY.gauges]
    ts = pl.from_epoch(TS_MS, time_unit="ms").alias("ts")
    return frame.with_columns(ts, *gauges).sort(GPU, "ts")


def against_scan(store: TelemetryStore, plan: EnginePlan) -> str:
    """All features against reading the columns."""
    paths = [path for path in store.files() if "shard=0000" in str(path)]
    n_rows = scan(paths, plan)
    compute(store, plan)
    taken = [
        (cpu(lambda: compute(store, plan)), cpu(lambda: scan(paths, plan))) for _ in range(RUNS)
    ]
    ours, peer = (statistics.median(column) for column in zip(*taken, strict=True))
    ratio = statistics.median(a / b for a, b in taken)
    return (
        f"320 features of {n_rows:,} rows every 15 min: {ours / n_rows * 1e9:.0f} ns a row, "
        f"reading them with Polars {peer / n_rows * 1e9:.0f} ns: {ratio:.2f}x (at most 3.0)"
    )


def against_polars(store: TelemetryStore, plan: EnginePlan) -> list[str]:
    """All features of a few GPUs against Polars, which has them in memory already."""
    n_all = store_rows(store)
    per_row = cpu(lambda: compute(store, plan)) / n_all
    lines = []
    # A week's window looks at each sample 672 times: a few GPUs are enough for a minute.
    for run, goal, n_gpus in ((by_group_by_dynamic, 25, 2), (by_two_levels, 10, 64)):
        frame = few_gpus(store, plan, n_gpus=n_gpus)
        taken = (
            statistics.median(cpu(lambda run=run, frame=frame: run(frame)) for _ in range(3))
            / frame.height
        )
        again = cpu(lambda: compute(store, plan)) / n_all
        ratio = taken / statistics.mean([per_row, again])
        lines.append(
            f"Polars {run.__name__[3:]}, {frame.height:,} rows: {taken * 1e9:.0f} ns a row; ours "
            f"is {ratio:.0f}x faster (at least {goal}), reading included"
        )
    return lines


def store_rows(store: TelemetryStore) -> int:
    """Rows of the first shard."""
    files = [path for path in store.files() if "shard=0000" in str(path)]
    return sum(pl.scan_parquet(path).select(pl.len()).collect().item() for path in files)


def in_a_process(folder: Path, *, days: int, shards: int) -> dict[str, float]:
    """CPU seconds and peak memory in megabytes of the computation alone."""
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "benchmarks.features", str(folder), str(days), str(shards)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "POLARS_MAX_THREADS": "1"},
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def memory(folder: Path, *, copies: int) -> str:
    """Peak memory over all shards against one."""
    one, many = (in_a_process(folder, days=DAYS, shards=n)["mb"] for n in (1, copies))
    return (
        f"peak memory over {copies} shards x {DAYS} days {many:.0f} MB (at most 1,000), over one "
        f"shard {one:.0f} MB: {many / one - 1:+.1%} (at most 5 %)"
    )


def growth(folder: Path, *, shards: int, days: int, what: str) -> str:
    """Time and memory of one shard and a week against twice the shards, or the days."""
    base = _best(folder, days=DAYS, shards=1)
    twice = _best(folder, days=days, shards=shards)
    return (
        f"twice the {what}: {twice['cpu'] / base['cpu']:.2f}x the time (2 within 10 %), "
        f"{twice['mb'] - base['mb']:+.0f} MB on {base['mb']:.0f}"
    )


def _best(folder: Path, *, days: int, shards: int) -> dict[str, float]:
    taken = [in_a_process(folder, days=days, shards=shards) for _ in range(3)]
    return {"cpu": min(one["cpu"] for one in taken), "mb": max(one["mb"] for one in taken)}


def peak_mb() -> float:
    """Peak memory of this process in megabytes; `ru_maxrss` would be that of its parent too."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def rows(*, copies: int = 5) -> list[str]:
    """The lines of the table."""
    plan = plan_of_320()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = write_record(folder / "wide", copies=copies)
        lines = [against_scan(store, plan), *against_polars(store, plan)]
        wide = folder / "wide" / "store"
        lines.append(memory(wide, copies=copies))
        lines.append(growth(wide, shards=2, days=DAYS, what="GPUs"))
        write_record(folder / "long", days=2 * DAYS)
        long = folder / "long" / "store"
        lines.append(growth(long, shards=1, days=2 * DAYS, what="days"))
    return lines


def measure_alone(folder: Path, *, days: int, shards: int) -> None:
    """Prints CPU seconds, after a first call that loads the compiled loops, and peak memory."""
    store, plan = TelemetryStore(folder), plan_of_320()
    compute(store, plan, days=1)
    taken = cpu(lambda: compute(store, plan, days=days, shards=shards))
    print(json.dumps({"cpu": taken, "mb": peak_mb()}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure_alone(Path(sys.argv[1]), days=int(sys.argv[2]), shards=int(sys.argv[3]))
    else:
        print("\n".join(rows()))
