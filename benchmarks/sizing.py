"""What a fleet of a size needs: disk, cores, memory, network, and what that costs.

Computed from measured figures, each with the page that it stands on; nothing is guessed but prices,
which are assumptions to be replaced. `docs/sizing.md` shows the tables, and a test holds them
against this module. Given the settings file of an installation, its bytes on disk are measured and
set beside the computed ones.

Run as `python -m benchmarks.sizing [forewarn.yaml]`.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipelines.sections.retention import RetentionSettings
from pipelines.settings import Settings, load_settings

FLEETS: Final = (8, 64, 512, 4_096, 16_384, 65_536, 200_000)
PER_NODE: Final = 8
HOURS: Final = 24
TRAINED_ROWS: Final = 10_000_000
"""Rows to train on at most: `training.negative_share` leaves out the rest of the negatives."""
DAY_S: Final = 86_400
GB: Final = 1e9


@dataclass(frozen=True)
class Measured:
    """Figures that were measured; times are CPU seconds of one thread.

    Attributes:
        core_row_bytes: A row of core/gpu_telemetry, days (benchmarks/features.md).
        landed_row_bytes: A sample of a GPU as received, logs included (docs/sizing.md).
        matrix_row_bytes: A row of 180 features, in a file of many rows (docs/sizing.md).
        matrix_file_bytes: What a file takes before its first row (docs/sizing.md).
        full_row_share: A row of `feature_set: full` against that (docs/settings.md).
        score_row_bytes: A GPU's score of one tick and horizon, with its node's (docs/scores.md).
        memory_bytes: Feature memory of a GPU on disk, standard (benchmarks/features.md).
        full_memory_bytes: The same, 320 features and quarters of an hour.
        wire_bytes: A GPU's day by remote read, 20 metrics a minute (benchmarks/ingest.md).
        ingest_value_s: A value of one metric, from remote read to landed tables, the same page.
        core_row_s: A row from raw to stored core table (docs/sizing.md).
        compacted_row_s: A row of a day that is compacted (decision 0009).
        tick_gpu_s: A GPU in a tick: features, three horizons' scores, files, database
            (benchmarks/serving.md).
        hook_node_s: A node in a round of the hook on a bad day (benchmarks/hook.md).
        scorer_base_gb: A scorer that has nothing to score (docs/sizing.md).
        scorer_gpu_bytes: Memory for each GPU scored (benchmarks/serving.md).
        pages_gpu_bytes: Memory of API or board for each GPU (docs/api.md).
        pages_base_gb: The same, with no GPU (docs/sizing.md).
        hook_base_gb: A hook with no node (docs/sizing.md).
        hook_node_bytes: Memory for each node, with 50,000 jobs (benchmarks/hook.md).
        dagster_gb: Dagster's daemon, code server and pages, at rest.
        training_row_bytes: Memory for each row trained on (benchmarks/learning_training.md).
        run_gb: A run that makes features of a shard after another (benchmarks/features.md).
        mlflow_gb: MLflow's server with one worker.
    """

    core_row_bytes: float = 4.05
    landed_row_bytes: float = 9.3
    matrix_row_bytes: float = 155
    matrix_file_bytes: float = 87_000
    full_row_share: float = 2.5
    score_row_bytes: float = 1.9e6 / 200_000
    memory_bytes: float = 49e9 / 200_000
    full_memory_bytes: float = 132e9 / 200_000
    wire_bytes: float = 48e6 / 1_000
    ingest_value_s: float = 10.9 / 28.8e6
    core_row_s: float = 1.44e-6
    compacted_row_s: float = 1.4e-6
    tick_gpu_s: float = (3.02 + 0.5 + 4.4) / 200_000
    hook_node_s: float = 1.90 / 25_000
    scorer_base_gb: float = 0.36
    scorer_gpu_bytes: float = (0.36e9 + 1.2e9) / 200_000
    pages_base_gb: float = 0.4
    pages_gpu_bytes: float = 1.2e9 / 200_000
    hook_base_gb: float = 0.38
    hook_node_bytes: float = 155e6 / 25_000
    dagster_gb: float = 0.7
    training_row_bytes: float = 323e6 / 1_441_792
    run_gb: float = 0.95
    mlflow_gb: float = 0.6


@dataclass(frozen=True)
class Prices:
    """Assumptions; put your own in their place.

    Attributes:
        core_month: A core of a server for a month, memory (4 GB) included.
        disk_gb_month: A gigabyte of replicated SSD for a month.
        gpu_hour: An hour of a GPU, to set the cost beside what it watches.
        person_hour: An hour of an operator.
        person_hours_month: Hours of a person a month that the platform asks for, whatever the size.
    """

    core_month: float = 25.0
    disk_gb_month: float = 0.10
    gpu_hour: float = 2.0
    person_hour: float = 80.0
    person_hours_month: float = 8.0


@dataclass(frozen=True)
class Fleet:
    """What is to be sized.

    Attributes:
        n_gpus: GPUs.
        sample_s: Seconds between two samples.
        horizons: Horizons scored.
        ticks_day: Ticks a day.
        is_full: Whether `feature_set: full` is used.
        retention: How long each kind of data is kept.
    """

    n_gpus: int
    sample_s: float = 60
    horizons: int = 2
    ticks_day: int = HOURS
    is_full: bool = False
    retention: RetentionSettings = field(default_factory=RetentionSettings)

    @property
    def rows_day(self) -> float:
        """Rows of telemetry a day."""
        return self.n_gpus * DAY_S / self.sample_s

    @property
    def n_nodes(self) -> int:
        """Nodes."""
        return -(-self.n_gpus // PER_NODE)


@dataclass(frozen=True)
class Needs:
    """What a fleet needs.

    Attributes:
        disk_day_gb: Gigabytes written to stay, a day.
        disk_gb: Gigabytes once all retention is full, by area.
        cpu_share: Share of one core that is busy all the time, by part.
        memory_gb: Gigabytes by part.
        network_mbit: Megabits a second from the monitoring server, on average.
    """

    disk_day_gb: float
    disk_gb: dict[str, float]
    cpu_share: dict[str, float]
    memory_gb: dict[str, float]
    network_mbit: float

    @property
    def cores(self) -> int:
        """Cores to give: one for what runs all the time, one for training, and twice the load."""
        return 2 + int(sum(self.cpu_share.values()) * 2)

    @property
    def memory_to_give_gb(self) -> int:
        """Gigabytes to give: the sum of all parts and half as much again, from 4 on."""
        return max(4, round(1.5 * sum(self.memory_gb.values())))

    @property
    def disk_to_give_gb(self) -> int:
        """Gigabytes to give: all areas and a third of room, from 10 on."""
        return max(10, round(1.33 * sum(self.disk_gb.values())))


def needs_of(fleet: Fleet, measured: Measured) -> Needs:
    """What a fleet needs.

    Args:
        fleet: The fleet.
        measured: Figures of the parts.
    """
    day = bytes_a_day(fleet, measured)
    memory = measured.full_memory_bytes if fleet.is_full else measured.memory_bytes
    keep = fleet.retention
    days = {
        "landing": keep.landing_days,
        "telemetry": keep.telemetry_days,
        "matrix": keep.matrix_days,
        "scores": keep.scores_days,
    }
    disk = {name: day[name] * days[name] / GB for name in day}
    disk["feature memory"] = fleet.n_gpus * memory / GB
    return Needs(
        disk_day_gb=sum(day.values()) / GB,
        disk_gb=disk,
        cpu_share=_cpu(fleet, measured),
        memory_gb=_memory(fleet, measured),
        network_mbit=fleet.n_gpus * measured.wire_bytes * 60 / fleet.sample_s * 8 / DAY_S / 1e6,
    )


def bytes_a_day(fleet: Fleet, measured: Measured) -> dict[str, float]:
    """Bytes that stay, by area.

    Args:
        fleet: The fleet.
        measured: Figures of the parts.
    """
    row = measured.matrix_row_bytes * (measured.full_row_share if fleet.is_full else 1)
    return {
        "landing": fleet.rows_day * measured.landed_row_bytes,
        "telemetry": fleet.rows_day * measured.core_row_bytes,
        "matrix": HOURS * (measured.matrix_file_bytes + fleet.n_gpus * row),
        "scores": fleet.ticks_day * fleet.horizons * fleet.n_gpus * measured.score_row_bytes,
    }


def _cpu(fleet: Fleet, measured: Measured) -> dict[str, float]:
    values = 20 * fleet.rows_day
    tables = fleet.rows_day * (measured.core_row_s + measured.compacted_row_s)
    tick = fleet.n_gpus * measured.tick_gpu_s * fleet.ticks_day
    rounds = DAY_S / 60 * fleet.n_nodes * measured.hook_node_s
    return {
        "ingest": values * measured.ingest_value_s / DAY_S,
        "core tables": tables / DAY_S,
        "features and scores": tick / DAY_S,
        "hook, a round a minute": rounds / DAY_S,
    }


def _memory(fleet: Fleet, measured: Measured) -> dict[str, float]:
    rows = fleet.retention.matrix_full_days * HOURS * fleet.n_gpus
    pages = measured.pages_base_gb + fleet.n_gpus * measured.pages_gpu_bytes / GB
    return {
        "scorer": measured.scorer_base_gb + fleet.n_gpus * measured.scorer_gpu_bytes / GB,
        "API": pages,
        "board": pages,
        "hook": measured.hook_base_gb + fleet.n_nodes * measured.hook_node_bytes / GB,
        "Dagster": measured.dagster_gb,
        "a run of Dagster": measured.run_gb,
        "training": min(TRAINED_ROWS, rows) * measured.training_row_bytes / GB,
        "MLflow": measured.mlflow_gb,
    }


def cost_a_gpu_year(fleet: Fleet, needs: Needs, prices: Prices) -> tuple[float, float]:
    """Cost of machines, and of people, for one GPU and year.

    Args:
        fleet: The fleet.
        needs: What it needs.
        prices: Assumptions.
    """
    cores = max(needs.cores, needs.memory_to_give_gb / 4)
    machines = 12 * (cores * prices.core_month + needs.disk_to_give_gb * prices.disk_gb_month)
    people = 12 * prices.person_hours_month * prices.person_hour
    return machines / fleet.n_gpus, people / fleet.n_gpus


def needs_table(measured: Measured, *, is_full: bool = False) -> list[str]:
    """The table of needs, as Markdown.

    Args:
        measured: Figures of the parts.
        is_full: Whether `feature_set: full` is used.
    """
    lines = [
        "| GPUs | written a day | disk to give | busy, of one core | cores | memory | network |",
        "|---|---|---|---|---|---|---|",
    ]
    for n_gpus in FLEETS:
        needs = needs_of(Fleet(n_gpus, is_full=is_full), measured)
        lines.append(
            f"| {n_gpus:,} | {_size(needs.disk_day_gb)} | {needs.disk_to_give_gb:,} GB "
            f"| {sum(needs.cpu_share.values()):.1%} | {needs.cores} "
            f"| {needs.memory_to_give_gb} GB | {_rate(needs.network_mbit)} |"
        )
    return lines


def cost_table(measured: Measured, prices: Prices) -> list[str]:
    """The table of costs, as Markdown.

    Args:
        measured: Figures of the parts.
        prices: Assumptions.
    """
    lines = [
        "| GPUs | machines, a GPU and year | with people | of what the GPU costs |",
        "|---|---|---|---|",
    ]
    for n_gpus in FLEETS:
        fleet = Fleet(n_gpus)
        machines, people = cost_a_gpu_year(fleet, needs_of(fleet, measured), prices)
        share = (machines + people) / (prices.gpu_hour * HOURS * 365)
        lines.append(
            f"| {n_gpus:,} | {machines:,.2f} $ | {machines + people:,.2f} $ | {share:.3%} |"
        )
    return lines


def area_table(measured: Measured, n_gpus: int = FLEETS[-1]) -> list[str]:
    """Where a fleet's disk goes, with both sets of features, as Markdown.

    Args:
        measured: Figures of the parts.
        n_gpus: Its size.
    """
    both = [needs_of(Fleet(n_gpus, is_full=full), measured).disk_gb for full in (False, True)]
    lines = ["| area | standard | full |", "|---|---|---|"]
    return lines + [
        f"| {name} | {both[0][name]:,.0f} GB | {both[1][name]:,.0f} GB |" for name in both[0]
    ]


def measure(settings: Settings) -> dict[str, int]:
    """Bytes of an installation, by area.

    Args:
        settings: The installation; its tables lie on this machine.
    """
    tables = settings.data_root / "tables"
    areas = {
        "landing": settings.landing_root,
        "telemetry": tables / "core" / "gpu_telemetry",
        "matrix": tables / "features" / "gpu_matrix",
        "scores": tables / "scores",
        "feature memory": settings.memory_dir,
    }
    return {
        name: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for name, folder in areas.items()
    }


def _rate(mbit: float) -> str:
    return "under 0.1 Mbit/s" if mbit < 0.1 else f"{mbit:.2g} Mbit/s"


def _size(gb: float) -> str:
    return f"{gb:,.1f} GB" if gb >= 1 else f"{1000 * gb:,.1f} MB"


def main(words: list[str]) -> None:
    """Prints the tables, and what an installation takes.

    Args:
        words: None, or the settings file of an installation.
    """
    measured = Measured()
    parts = [needs_table(measured), area_table(measured), cost_table(measured, Prices())]
    print("\n\n".join("\n".join(part) for part in parts))
    if words:
        for name, size in measure(load_settings(Path(words[0]))).items():
            print(f"{name:<16}{size / 1e6:12,.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
