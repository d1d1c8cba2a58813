"""The synthetic fleet's telemetry, made and written, against pyarrow writing the same tables.

Both run in one process on one thread and take turns. Ours draws every sample, builds the tables
and writes them; the peer has the finished tables in memory and only writes them, with the same
options. The rate is in samples per CPU second, one sample being all fields of one GPU. Then a
fleet of 200,000 GPUs is written for an hour by two processes, which says what that takes.

Run as `python -m benchmarks.fleet`.
"""

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from simulation.fleet.events import NodeEvents
from simulation.fleet.generate import simulate_fleet
from simulation.fleet.schedule import attempts_by_node
from simulation.regimes.load import load_regime
from simulation.writers.shards import Shard, tell_shard, write_telemetry
from simulation.writers.telemetry_parquet import WRITE_OPTIONS

RUNS: Final = 7
NODES: Final = 128
BIG_NODES: Final = 25_000
_LIMIT_GB: Final = 8


def one_shard(*, days: int = 1) -> Shard:
    """A group of nodes at one sample a minute."""
    regime = load_regime("h100").model_copy(update={"scrape_s": 60})
    fleet = simulate_fleet(regime, seed=1, nodes=NODES, days=days)
    return Shard(
        number=0,
        regime=fleet.regime,
        seed=fleet.seed,
        truths=fleet.nodes,
        attempts=attempts_by_node(fleet.attempts, NODES),
        form="parquet",
        csv_node=-1,
        scrape_node=-1,
    )


def _write_ours(shard: Shard, events: Sequence[NodeEvents], folder: Path) -> float:
    began = time.process_time()
    write_telemetry(shard, events, folder, counts=Counter())
    return time.process_time() - began


def _write_peer(tables: list[Any], folder: Path) -> float:
    began = time.process_time()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", **WRITE_OPTIONS)
    return time.process_time() - began


def rate(folder: Path) -> str:
    """Samples per CPU second of ours and of the peer, and their ratio pair by pair."""
    shard = one_shard()
    events = tell_shard(shard)
    write_telemetry(shard, events, folder, counts=Counter())
    paths = sorted((folder / "telemetry").rglob("*.parquet"))
    # As ours has them: labels by code, each stretch in one piece.
    tables = [
        pq.read_table(path, read_dictionary=["UUID", "Hostname"]).combine_chunks() for path in paths
    ]
    samples = sum(table.num_rows for table in tables)
    taken = [(_write_ours(shard, events, folder), _write_peer(tables, folder)) for _ in range(RUNS)]
    ours, peer = (samples / statistics.median(column) / 1e6 for column in zip(*taken, strict=True))
    ratio = statistics.median(peer_s / ours_s for ours_s, peer_s in taken)
    return (
        f"fleet telemetry, {samples:,} samples of 26 fields: {ours:.2f} M samples a CPU second, "
        f"pyarrow writing the finished tables {peer:.2f} M: {ratio:.2f}x its rate (at least 0.5)"
    )


def big_fleet(folder: Path) -> str:
    """Wall time and peak memory of 200,000 GPUs for an hour by two processes."""
    forewarn = str(Path(sys.executable).with_name("forewarn"))
    command = [forewarn, "simulate", "fleet", "--regime", "h100"]
    command += ["--nodes", str(BIG_NODES), "--days", str(1 / 24), "--scrape-s", "60"]
    command += ["--workers", "2", "--out", str(folder / "raw"), "--truth", str(folder / "truth")]
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
    taken = time.perf_counter() - began
    # The greatest of all processes; there are three at most.
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    size_mb = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
    return (
        f"200,000 GPUs x 1 hour, 60 samples each, two workers: {taken:.0f} s wall, {size_mb:.0f} "
        f"MB written, at most {peak_mb:.0f} MB in any of three processes (limit {_LIMIT_GB} GB)"
    )


def rows() -> list[str]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [rate(folder)]
        shutil.rmtree(folder / "telemetry")
        lines.append(big_fleet(folder))
    return lines


if __name__ == "__main__":
    print("\n".join(rows()))
