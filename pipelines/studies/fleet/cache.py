"""Synthetic fleets as they are studied: each simulated once, its features kept where asked for.

What a fleet's stretches are is in `pipelines.studies.fleet.shards`; nothing is learned here.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import polars as pl

from features.labels import LabelSpec
from features.matrix import MatrixSpec, matrix_features
from features.registry import feature_names
from pipelines.sources.catalogue import load_catalogue
from pipelines.studies.fleet.shards import SHARD_NODES, FleetShard, Stretch, read_shard
from simulation.fleet.generate import GENERATOR_VERSION, Fleet, simulate_failures, simulate_fleet
from simulation.fleet.regime import Regime

_SHARD_SEEDS: Final = 1000
"""Seeds of a fleet's shards lie between its own and the next fleet's."""


@dataclass(frozen=True)
class Asked:
    """Which fleets are asked for, and what of them.

    Attributes:
        nodes: Nodes of each.
        days: Days of each.
        matrix: Features.
        labels: Lead and horizons.
        cache: Folder in which features and labels are kept for a later run; None: nowhere. They
            are found again by regime, seed, size, names of features and horizons: after a change
            of what a feature means the folder must go.
    """

    nodes: int
    days: int
    matrix: MatrixSpec
    labels: LabelSpec
    cache: Path | None = None


@dataclass(frozen=True)
class ToldShard:
    """Some nodes of a fleet.

    Attributes:
        name: Told before the names of nodes.
        truth: What really happened to them; without jobs.
        incidents: core/incidents.
        stretches: Features and labels; can be gone through once.
    """

    name: str
    truth: Fleet
    incidents: pl.DataFrame
    stretches: Iterator[Stretch]


def tell_fleet(asked: Asked, regime: Regime, *, seed: int) -> Iterator[ToldShard]:
    """The shards of a fleet, each simulated, and its raw files written, when it is its turn.

    Args:
        asked: What is wanted.
        regime: Parameters of the fleet.
        seed: Its seed.

    Yields:
        Shards; one must be done with before the next is asked for.
    """
    for number, first in enumerate(range(0, asked.nodes, SHARD_NODES)):
        # Nodes fail independently: a fleet of shards is a fleet, but for jobs across them.
        sized = regime.with_size(nodes=min(SHARD_NODES, asked.nodes - first), days=asked.days)
        own, name = seed * _SHARD_SEEDS + number, f"{seed}.{number}"
        if asked.cache is None:
            with _simulated(sized, seed=own, name=name) as (fleet, shard):
                stretches = shard.stretches(asked.matrix, labels=asked.labels)
                yield ToldShard(name, fleet, shard.incidents, stretches)
            continue
        folder = asked.cache / _fingerprint(asked, sized, seed=own)
        if not folder.exists():
            with _simulated(sized, seed=own, name=name) as (_, shard):
                _keep(shard, folder, asked)
        truth = simulate_failures(sized, seed=own)
        yield ToldShard(name, truth, pl.read_parquet(folder / "incidents.parquet"), _kept(folder))


@contextmanager
def _simulated(regime: Regime, *, seed: int, name: str) -> Iterator[tuple[Fleet, FleetShard]]:
    """A shard with its raw files, which are removed afterwards."""
    fleet = simulate_fleet(regime, seed=seed)
    folder = Path(tempfile.mkdtemp(prefix="forewarn-fleet-"))
    try:
        yield fleet, read_shard(fleet, folder, name=name, catalogue=load_catalogue())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fingerprint(asked: Asked, regime: Regime, *, seed: int) -> str:
    levels = pl.DataFrame(schema={"level": pl.String()})
    names = feature_names(matrix_features(asked.matrix, levels))
    told = (GENERATOR_VERSION, regime.model_dump_json(), seed, names, repr(asked.labels))
    return f"{regime.name}-{seed}-{sha256(repr(told).encode()).hexdigest()[:12]}"


def _keep(shard: FleetShard, folder: Path, asked: Asked) -> None:
    """Writes a shard; the folder is there only when it is whole, whoever else writes it too."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as partial:
        own = Path(partial) / folder.name
        own.mkdir()
        for number, one in enumerate(shard.stretches(asked.matrix, labels=asked.labels)):
            one.matrix.write_parquet(own / f"matrix-{number:04}.parquet", compression="lz4")
            one.labels.write_parquet(own / f"labels-{number:04}.parquet", compression="lz4")
        shard.incidents.write_parquet(own / "incidents.parquet")
        if not folder.exists():
            own.rename(folder)


def _kept(folder: Path) -> Iterator[Stretch]:
    for path in sorted(folder.glob("matrix-*.parquet")):
        labels = path.with_name(path.name.replace("matrix", "labels"))
        yield Stretch(pl.read_parquet(path), pl.read_parquet(labels))
