"""Stored telemetry of the synthetic fleet: its bytes, and reading it beside the plain readers.

The table is a day of 1,024 GPUs at one sample a minute. Bytes are held against the same table as
float64 columns in the order of time, written by pyarrow with zstd and otherwise its defaults.
Reading is held against pyarrow and Polars reading the same columns of the same files whole, all on
one thread (set POLARS_MAX_THREADS=1) and in turn. Times are CPU seconds of this process.

Run as `python -m benchmarks.storage`.
"""

import io
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
import pyarrow.parquet as pq

from benchmarks.fleet import one_shard
from features.core_build import build_core_telemetry
from features.engine.plan import N_KNOWN
from features.packing import GPU, TS_MS
from features.tables import CORE_INVENTORY
from features.telemetry_metrics import METRICS
from pipelines.sources.history.files import read_history
from pipelines.storage.telemetry.store import TelemetryStore
from simulation.writers.shards import tell_shard, write_telemetry

RUNS: Final = 11
MAPPING: Final = Path(__file__).parents[1] / "data_samples" / "demo" / "mappings" / "telemetry.yaml"
FEW: Final = ("gpu_temp_c", "power_w", "gpu_util_pct", "energy_j", "ecc_sbe_volatile")
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)


def raw_day(folder: Path) -> pl.DataFrame:
    """raw/gpu_telemetry of the day."""
    shard = one_shard()
    write_telemetry(shard, tell_shard(shard), folder, counts=Counter())
    now = datetime(2027, 1, 1, tzinfo=UTC)
    files = sorted((folder / "telemetry").rglob("*.parquet"))
    tables = [read_history(path, MAPPING, ingested_at=now).tables for path in files]
    return pl.concat([table["raw/gpu_telemetry"] for table in tables])


def naive_bytes(core: pl.DataFrame) -> int:
    """Size of the table as float64 columns, time-ordered, zstd."""
    metrics = [pl.col(m.column).cast(pl.Float64) for m in METRICS]
    table = core.select("ts", "gpu_uuid", "node", *metrics).sort("ts", "gpu_uuid").to_arrow()
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getbuffer().nbytes


def writing(core: pl.DataFrame, store: TelemetryStore, *, step: timedelta) -> float:
    """CPU seconds of writing the table in steps, without the compaction of the day."""
    start = core["ts"].dt.truncate("1d")[0]
    # The last hour is left out of the hourly store: with it the day would be made one file.
    end = start + (_DAY if step == _DAY else 23 * _HOUR)
    taken, at = 0.0, start
    while at < end:
        rows = core.filter(pl.col("ts").is_between(at, at + step, closed="left"))
        began = time.process_time()
        store.write(rows, start=at, end=at + step)
        taken += time.process_time() - began
        at += step
    return taken


def stored(core: pl.DataFrame, store: TelemetryStore, naive: int, *, step: timedelta) -> str:
    """Bytes per row and the share of the plain table's."""
    taken = writing(core, store, step=step)
    n_rows = store.read().height
    size = sum(path.stat().st_size for path in store.files()) / n_rows
    name, goal = ("days", " (at most 0.45)") if step == _DAY else ("hours", "")
    return (
        f"{name:<6}{size:.2f} B a row, {size * core.height / naive:.3f} of float64{goal}; "
        f"written in {1e6 * taken / n_rows:.2f} us a row"
    )


def reading(store: TelemetryStore, columns: Sequence[str], *, what: str) -> str:
    """CPU of all pieces against the plain readers, pair by pair."""
    paths, names = store.files(), [GPU, TS_MS, *columns]

    def ours() -> None:
        for _ in store.pieces(0, start_ms=-(2**62), end_ms=2**62, columns=columns):
            pass

    def arrow() -> None:
        for path in paths:
            pq.read_table(path, columns=names, use_threads=False)

    def frame() -> None:
        for path in paths:
            pl.read_parquet(path, columns=names)

    taken = [[_cpu(run) for run in (ours, arrow, frame)] for _ in range(RUNS)][1:]
    arrow_ratio, frame_ratio = (statistics.median(t[0] / t[peer] for t in taken) for peer in (1, 2))
    ms = 1000 * statistics.median(t[0] for t in taken)
    return (
        f"pieces of {what}, {len(names)} columns: {ms:.0f} ms, {arrow_ratio:.2f} of pyarrow's "
        f"read_table, {frame_ratio:.2f} of polars.read_parquet (at most 1.1)"
    )


def _cpu(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def rows() -> list[str]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = raw_day(folder)
        began = time.process_time()
        core = build_core_telemetry(raw, CORE_INVENTORY.empty()).frame
        built = time.process_time() - began
        naive = naive_bytes(core)
        known = [m.column for m in METRICS if core[m.column].null_count() < core.height]
        days, hours = TelemetryStore(folder / "days"), TelemetryStore(folder / "hours")
        summary = (
            f"{core.height:,} rows of {len(known)} metrics; as float64, time-ordered, zstd: "
            f"{naive / core.height:.2f} B a row; built from raw in "
            f"{1e6 * built / core.height:.2f} us a row"
        )
        return [
            summary,
            stored(core, days, naive, step=_DAY),
            stored(core, hours, naive, step=_HOUR),
            reading(days, [*known, N_KNOWN], what="a day"),
            reading(days, FEW, what="a day"),
            reading(hours, FEW, what="23 hours"),
        ]


if __name__ == "__main__":
    print("\n".join(rows()))
