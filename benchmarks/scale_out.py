"""A day of features of four shards: in one process, and by one and two workers of a Dask cluster.

The store has three days of 4,096 GPUs at one sample a minute, the synthetic fleet's day told four
times under other names. All three write the same 24 hours of features/gpu_matrix, and are held
against each other bit by bit. Each runs once to warm up and is timed on the next run; the start of
a cluster is timed by itself. CPU seconds are those of all processes; with fewer idle cores than
processes, they say more than the wall clock.

Run as `python -m benchmarks.scale_out`.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import dask
import polars as pl
from distributed import Client, LocalCluster

from benchmarks.storage import raw_day
from features.core_build import build_core_telemetry
from features.core_tables import CoreTables
from features.engine.samples import SHARD_SIZE
from features.grid import as_of_times, watched_grid
from features.matrix import MatrixSpec, build_gpu_matrix
from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY, GPU_MATRIX
from pipelines.flow.scale_out import LOCAL_DASK, write_matrix
from pipelines.sections.scale_out import ScaleOutSettings
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.store import Span, TableStore

SHARDS: Final = 4
DAYS: Final = 3
"""The day of which features are computed, and the two before it, which they reach back to."""
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True)
class Site:
    """A filled store."""

    settings: Settings
    tables: CoreTables
    span: Span
    spec: MatrixSpec

    @property
    def store(self) -> TableStore:
        """Its store."""
        return TableStore(self.settings.store_root)


@dataclass(frozen=True)
class Taken:
    """What a run took, seconds."""

    wall: float
    cpu: float


def filled(folder: Path) -> Site:
    """The store of four shards and three days."""
    one_day = build_core_telemetry(raw_day(folder / "raw"), CORE_INVENTORY.empty()).frame
    start = one_day["ts"].dt.truncate("1d")[0]
    settings = Settings(site="bench", inputs=folder, data_root=folder / "data", start=start)
    site = Site(
        settings,
        CoreTables(inventory=_inventory(one_day)),
        Span(start + (DAYS - 1) * _DAY, start + DAYS * _DAY),
        MatrixSpec(catalogue=load_catalogue()),
    )
    for day in range(DAYS):
        told = one_day.with_columns(pl.col("ts") + day * _DAY)
        fleet = pl.concat([_renamed(told, number) for number in range(SHARDS)])
        span = Span(start + day * _DAY, start + (day + 1) * _DAY)
        site.store.write(CORE_GPU_TELEMETRY, fleet, span=span)
    return site


def _renamed(frame: pl.DataFrame, number: int) -> pl.DataFrame:
    """The same rows of other GPUs on other nodes."""
    return frame.with_columns(
        pl.format("{}-{}", pl.lit(number), name).alias(name) for name in _NAMES
    )


_NAMES: Final = ("node", "gpu_uuid")


def _inventory(one_day: pl.DataFrame) -> pl.DataFrame:
    gpus = one_day.select(_NAMES).unique("gpu_uuid")
    rows = pl.concat([_renamed(gpus, number) for number in range(SHARDS)])
    others = {k: pl.lit(None, v) for k, v in CORE_INVENTORY.schema.items() if k not in _NAMES}
    return CORE_INVENTORY.conform(rows.with_columns(**others))


def in_one_process(site: Site) -> None:
    """The same without any cluster, on one thread of the engine."""
    as_ofs = as_of_times(site.span.start + _HOUR, site.span.end + _HOUR, every=_HOUR)
    grid = watched_grid(site.tables.inventory, as_ofs, unknown_start="watched")
    matrix = build_gpu_matrix(site.tables, grid, spec=site.spec, samples=site.store.telemetry)
    site.store.write(GPU_MATRIX, matrix, span=site.span)


def by_workers(site: Site, workers: int) -> tuple[float, Taken, float]:
    """Seconds until a cluster is there, what its second run took, and a worker's peak in MB."""
    began = time.perf_counter()
    with (
        dask.config.set(LOCAL_DASK),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        started = time.perf_counter() - began
        pids = list(client.run(os.getpid).values())
        scale_out = ScaleOutSettings(scheduler=cluster.scheduler_address, workers=workers)
        where = site.settings.model_copy(update={"scale_out": scale_out})

        def run() -> None:
            write_matrix(site.tables, where, span=site.span, spec=site.spec)

        run()
        before = sum(map(_cpu_of, pids))
        taken = timed(run)
        total = Taken(taken.wall, taken.cpu + sum(map(_cpu_of, pids)) - before)
        return started, total, max(map(_peak_mb, pids))


def _cpu_of(pid: int) -> float:
    """CPU seconds of a process of this machine so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    """Most memory that a process of this machine has had."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 1024


def timed(run: Callable[[], object]) -> Taken:
    """What a run takes in this process."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return Taken(time.perf_counter() - wall, time.process_time() - cpu)


def stored(site: Site) -> list[pl.DataFrame]:
    """The stored hours; the files are removed."""
    frames = []
    for path in site.store.files(GPU_MATRIX):
        frames.append(pl.read_parquet(path))
        path.unlink()
    return frames


def rows() -> list[str]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as name:
        site = filled(Path(name))
        in_one_process(site)
        alone = timed(lambda: in_one_process(site))
        expected = stored(site)
        work = f"{SHARDS * SHARD_SIZE:,} GPUs x 24 hours x {expected[0].width - 3} features"
        lines = [
            f"{work}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            f"one process: {alone.wall:.1f} s wall, {alone.cpu:.1f} s CPU",
        ]
        walls = []
        for workers in (1, 2):
            started, taken, peak_mb = by_workers(site, workers)
            found = stored(site)
            same = all(a.equals(b) for a, b in zip(found, expected, strict=True))
            walls.append(taken.wall)
            lines.append(
                f"{workers} worker{'s'[: workers - 1]}: {taken.wall:.1f} s wall, {taken.cpu:.1f} s "
                f"CPU, {taken.cpu / alone.cpu:.2f} of one process; at most {peak_mb:.0f} MB in a "
                f"worker; cluster up in {started:.1f} s; {'the same' if same else 'OTHER'} bits"
            )
        lines.append(f"speed-up from 1 to 2 workers: {walls[0] / walls[1]:.2f} by the wall clock")
        return lines


if __name__ == "__main__":
    print("\n".join(rows()))
