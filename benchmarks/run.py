"""Speed as ratios against named peers, each pair in turn in one process, medians of five runs.

Absolute seconds depend on the machine; the ratios are what is held to.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import exposition, fleet, hook, kernel_scan, prometheus, sacct
from features.core_tables import CoreTables
from features.grid import as_of_times, watched_grid
from features.matrix import MatrixSpec, build_gpu_matrix
from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY
from pipelines.sources.history.files import read_history
from pipelines.sources.telemetry.dcgm_text import parse_dcgm_text

SAMPLES = Path(__file__).parents[1] / "data_samples" / "demo"
RUNS = 5
NOW = datetime(2026, 2, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Pair:
    """Ours and a peer on the same input."""

    name: str
    peer: str
    ours_run: Callable[[], object]
    peer_run: Callable[[], object]


def cpu_seconds(run: Callable[[], object]) -> float:
    """CPU time of one call, all threads."""
    began = time.process_time()
    run()
    return time.process_time() - began


def measure(pair: Pair) -> str:
    """One row of the table: median CPU seconds of each, and the median ratio pair by pair."""
    pair.ours_run(), pair.peer_run()  # warm-up
    taken = [(cpu_seconds(pair.ours_run), cpu_seconds(pair.peer_run)) for _ in range(RUNS)]
    ours, peer = (statistics.median(column) for column in zip(*taken, strict=True))
    ratio = statistics.median(a / b for a, b in taken)
    return f"{pair.name:<44}{ours:>9.3f}{peer:>9.3f}{ratio:>9.2f}  {pair.peer}"


def dcgm_text() -> Pair:
    """The exporter's text, against the official parser."""
    data = next(iter(sorted((SAMPLES / "dcgm").glob("*.prom")))).read_bytes() * 20
    # The official parser stops at a line that is not of the format; ours refuses the line alone.
    lines = [
        x
        for x in data.decode().splitlines()
        if x.startswith("#") or x.count("{") == x.count("}") == 1
    ]
    clean = "\n".join(lines) + "\n"
    raw = clean.encode()
    return Pair(
        "DCGM exporter text to rows",
        "prometheus_client, to samples",
        lambda: parse_dcgm_text(raw, origin="bench", ts=NOW, ingested_at=NOW),
        lambda: [s for f in text_string_to_metric_families(clean) for s in f.samples],
    )


def telemetry_table() -> Pair:
    """A day of telemetry through a mapping, against reading the same Parquet file."""
    path = SAMPLES / "telemetry" / "2026-01-10" / "0000-00.parquet"
    mapping = SAMPLES / "mappings" / "telemetry.yaml"
    return Pair(
        "telemetry Parquet by mapping, one day",
        "polars.read_parquet of the same file",
        lambda: read_history(path, mapping, ingested_at=NOW),
        lambda: pl.read_parquet(path),
    )


def matrix(folder: Path) -> Pair:
    """Telemetry features of a day at hourly moments, against scanning the same columns."""
    mapping = SAMPLES / "mappings" / "telemetry.yaml"
    paths = [SAMPLES / "telemetry" / f"2026-01-{day:02}" / "0000-00.parquet" for day in (8, 9, 10)]
    raw = pl.concat(
        read_history(path, mapping, ingested_at=NOW).tables["raw/gpu_telemetry"] for path in paths
    )
    core = CORE_GPU_TELEMETRY.conform(raw.select(CORE_GPU_TELEMETRY.schema.names()))
    core = core.unique(["gpu_uuid", "ts"]).sort("gpu_uuid", "ts")
    stored = folder / "core.parquet"
    core.write_parquet(stored)
    inventory = core.select("gpu_uuid", "node").unique("gpu_uuid").with_columns(
        valid_from=pl.lit(NOW - timedelta(days=90)).cast(pl.Datetime("us", "UTC")),
        **{
            name: pl.lit(None, dtype)
            for name, dtype in CORE_INVENTORY.schema.items()
            if name not in {"gpu_uuid", "node", "valid_from"}
        },
    )  # fmt: skip
    start = datetime(2026, 1, 10, 1, tzinfo=UTC)
    hours = as_of_times(start, start + timedelta(days=1), every=timedelta(hours=1))
    grid = watched_grid(CORE_INVENTORY.conform(inventory), hours)
    spec = MatrixSpec(parts=("telemetry",))
    tables = CoreTables(gpu_telemetry=core, inventory=inventory)
    return Pair(
        "telemetry features, one day, hourly grid",
        "polars scan of the same three days",
        lambda: build_gpu_matrix(tables, grid, spec=spec),
        lambda: pl.scan_parquet(stored).select(pl.all().max()).collect(),
    )


def main() -> None:
    """Prints the table."""
    print(f"{'what':<44}{'ours s':>9}{'peer s':>9}{'ratio':>9}  peer")
    with tempfile.TemporaryDirectory() as folder:
        for pair in (dcgm_text(), telemetry_table(), matrix(Path(folder))):
            print(measure(pair), flush=True)
    print(f"CPU seconds of all threads, median of {RUNS} runs after a warm-up")
    for part in (hook, fleet, sacct, exposition, kernel_scan, prometheus):
        print(f"\n{(part.__doc__ or '').splitlines()[0]}", flush=True)
        for line in part.rows():
            print(line, flush=True)


if __name__ == "__main__":
    main()
