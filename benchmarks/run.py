"""Speed as ratios against named peers, each pair in turn in one process, medians of five runs.

Absolute seconds depend on the machine; the ratios are what is held to.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
from prometheus_client.parser import text_string_to_metric_families

from benchmarks import (
    api,
    exposition,
    features,
    fleet,
    forest,
    hook,
    joins,
    kernel_scan,
    localization,
    orchestration,
    prometheus,
    replay,
    sacct,
    sampling,
    scale_out,
    scheduling,
    serving,
    storage,
    tick,
    training,
)
from pipelines.sources.history.files import read_history
from pipelines.sources.telemetry.dcgm_text import parse_dcgm_text

SAMPLES = Path(__file__).parents[1] / "data_samples" / "demo"
RUNS = 5
PARTS = (
    features,
    tick,
    serving,
    api,
    storage,
    forest,
    joins,
    sampling,
    training,
    scale_out,
    hook,
    fleet,
    sacct,
    exposition,
    kernel_scan,
    prometheus,
    localization,
    scheduling,
    replay,
    orchestration,
)
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


def main() -> None:
    """Prints the table."""
    print(f"{'what':<44}{'ours s':>9}{'peer s':>9}{'ratio':>9}  peer")
    for pair in (dcgm_text(), telemetry_table()):
        print(measure(pair), flush=True)
    print(f"CPU seconds of all threads, median of {RUNS} runs after a warm-up")
    for part in PARTS:
        print(f"\n{(part.__doc__ or '').splitlines()[0]}", flush=True)
        for line in part.rows():
            print(line, flush=True)


if __name__ == "__main__":
    main()
