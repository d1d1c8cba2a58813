"""Dagster's cost: a month of 512 GPUs made in one run, and what a tick costs more by it.

The month is made by the job `hourly` over 720 partitions, from inputs to scores by prior. A tick is
an hour of 128 GPUs whose inputs have landed: as one run with its checks, against the same functions
without Dagster; and as `forewarn score` reports it, which is two events.

Run as `python -m benchmarks.orchestration`; needs some 2 GB of disk and ten minutes.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import dagster as dg
import yaml

from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY
from pipelines.definitions import build_definitions
from pipelines.defs.external import reporter
from pipelines.flow.champions import Champions
from pipelines.flow.core_telemetry import make_core_telemetry
from pipelines.flow.steps import registry_of
from pipelines.serving.scorer import TickReport, score_tick
from pipelines.settings import Settings, load_settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.store import Span, TableStore
from simulation.writers.raw import simulate_to

NODES: Final = 64
DAYS: Final = 30
TICKS: Final = 5
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_HOUR: Final = timedelta(hours=1)
_QUIET: Final = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def site(folder: Path, *, nodes: int, days: int) -> Path:
    """Writes a fleet and the settings of a site that reads it."""
    simulate_to(
        folder / "raw",
        truth_dir=folder / "truth",
        regime="demo",
        nodes=nodes,
        days=float(days),
        scrape_s=60,
    )
    settings = {
        "site": "bench",
        "inputs": "raw/inputs.yaml",
        "data_root": "data",
        "start": START.isoformat(),
        "end": (START + timedelta(days=days)).isoformat(),
        "horizons_h": [24],
        "trained_on": "synthetic",
        "switch_level": "leaf_switch",
        "node_states_hold_only_trouble": True,
    }
    path = folder / "forewarn.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def instance_of(folder: Path) -> dg.DagsterInstance:
    """An instance on SQLite, as a small site has it."""
    home = folder / "dagster"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    os.environ["DAGSTER_HOME"] = str(home)
    return dg.DagsterInstance.get()


def run_job(file: Path, instance: dg.DagsterInstance, job: str, **more: Any) -> None:
    """Runs a job in this process, to its end."""
    now = load_settings(file).end
    served = build_definitions(file, now=now).get_repository_def().get_job(job)
    result = served.execute_in_process(instance=instance, run_config=_QUIET, **more)
    if not result.success:
        raise SystemExit(f"{job} failed")


def hours(first: datetime, last: datetime) -> Mapping[str, str]:
    """Tags of a run over hours, both included."""
    return {
        "dagster/asset_partition_range_start": f"{first:%Y-%m-%d-%H:%M}",
        "dagster/asset_partition_range_end": f"{last:%Y-%m-%d-%H:%M}",
    }


def taken(run: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of a call."""
    began, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - began, time.process_time() - cpu


def month(folder: Path) -> dict[str, float]:
    """Seconds and memory of a month in one run."""
    file = site(folder, nodes=NODES, days=DAYS)
    with instance_of(folder) as instance:
        run_job(file, instance, "records")
        span = hours(START, START + timedelta(days=DAYS) - _HOUR)
        wall, cpu = taken(lambda: run_job(file, instance, "hourly", tags=span))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"wall": wall, "cpu": cpu, "gb": peak}


def ticks(folder: Path) -> dict[str, float]:
    """CPU seconds of a tick: as a run, without Dagster, and of its report."""
    file = site(folder, nodes=16, days=3)
    settings, first = load_settings(file), START + timedelta(days=2)
    with instance_of(folder) as instance:
        run_job(file, instance, "records")
        run_job(file, instance, "hourly", tags=hours(START, first - _HOUR))
        by_run, by_hand, told = [], [], []
        report = reporter(settings)
        for i in range(TICKS + 1):
            start = first + i * _HOUR
            key = f"{start:%Y-%m-%d-%H:%M}"
            run = taken(partial(run_job, file, instance, "hourly", partition_key=key))
            hand = taken(partial(by_functions, settings, start))
            made = TickReport(
                as_of=start + _HOUR,
                is_published=True,
                n_gpus=128,
                n_nodes=16,
                unknown={},
                model_versions={},
                seconds={},
            )
            word = taken(partial(report, made))
            if i:  # the first of each loads what later ones find
                by_run.append(run[1])
                by_hand.append(hand[1])
                told.append(word[1])
        samples = TableStore(settings.store_root).read(
            CORE_GPU_TELEMETRY, span=Span(start, made.as_of)
        )
    if samples.is_empty():
        raise SystemExit("the hours that were measured have no telemetry")
    return {
        "samples": samples.height,
        "run": statistics.median(by_run),
        "hand": statistics.median(by_hand),
        "report": statistics.median(told),
    }


def by_functions(settings: Settings, start: datetime) -> None:
    """An hour without Dagster: telemetry, features, scores."""
    span = Span(start, start + _HOUR)
    store = TableStore(settings.store_root)
    make_core_telemetry(settings, store.read(CORE_INVENTORY), span=span)
    score_tick(
        settings,
        as_of=span.end,
        now=lambda: span.end,
        catalogue=load_catalogue(settings.fault_catalogue),
        champions=Champions(registry_of(settings), settings),
        say=lambda _: None,
    )


def rows() -> list[str]:
    """The lines of the table."""
    found = {}
    for what in ("month", "ticks"):
        folder = tempfile.mkdtemp()
        try:
            done = subprocess.run(  # noqa: S603 - our own module
                [sys.executable, "-W", "ignore", "-m", "benchmarks.orchestration", what, folder],
                check=True,
                capture_output=True,
                text=True,
            )
        finally:
            shutil.rmtree(folder)
        found[what] = json.loads(done.stdout.splitlines()[-1])
    made, tick = found["month"], found["ticks"]
    size = f"{DAYS} days of {8 * NODES} GPUs in one run"
    spent = f"{made['cpu']:.0f} CPU s, {made['wall']:.0f} s (at most 600), {made['gb']:.1f} GB"
    as_run = f"{tick['samples']} samples, {tick['run']:.2f} CPU s as a run with its checks"
    plain = f"{tick['hand']:.2f} s without Dagster; its report alone {tick['report']:.2f} s"
    return [f"{size}: {spent}", f"an hour of 128 GPUs: {as_run}, {plain} (at most 2)"]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps({"month": month, "ticks": ticks}[sys.argv[1]](Path(sys.argv[2]))))
    else:
        print("\n".join(rows()))
