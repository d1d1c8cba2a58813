"""Single models against parallel and cascade ensembles and sliding training, on the same rows.

On simulated fleets whose signs drift, another fleet for each seed, and on the records of Titan and
Grid'5000, another seed of the models each time. Members that look back need torch and are left out
without it. Counts go to one Parquet file per seed; `benchmarks.ensemble_tables` makes tables.

Run as `python -m benchmarks.ensembles fleet DIR [SEED ...]` or as
`python -m benchmarks.ensembles {titan,grid5000} DIR DATA [SEED ...]`.
"""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from benchmarks.sampling import labelled_rows
from features.registry import feature_names
from models.benchmark.rows import benchmark_rows
from models.ensembles.cascade import CascadeSpec
from models.ensembles.members import BoostedSpec
from models.ensembles.networks import LogisticSpec, MlpSpec
from models.ensembles.parallel import Rule
from models.ensembles.sequence_networks import SequenceSpec
from models.ensembles.sliding import SlidingSpec
from models.ensembles.study import StudyPlan, run_study
from models.member_protocol import Member, MemberSpec
from models.specs import Task, TrainSpec
from pipelines.studies.benchmark.run import read_benchmark
from pipelines.studies.benchmark.settings import protocol_path
from simulation.fleet.generate import simulate_failures
from simulation.regimes.load import load_regime

SEEDS: Final = (1, 2, 3)
NODES: Final = 80
DAYS: Final = 180
FIRST_ORIGIN_DAY: Final = 90
ROLLOUT_DAY: Final = 130
"""From here on a new driver counts harmless errors four times as often and gauges read higher."""

MORE_HARMLESS: Final = 0.9  # a day, on top of 0.3
READS_HIGHER: Final = 1.0  # standard deviations
PAPER: Final = "parallel LightGBM, MLP, 1D-CNN"
OURS: Final = "parallel LightGBM, logistic, MLP"
MEAN: Final = "mean of LightGBM, logistic, MLP"


def fleet_rows(seed: int) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """A fleet through a hot summer and a driver rollout, every six hours.

    Args:
        seed: Of the fleet.

    Returns:
        Labelled rows and the names of their features.
    """
    regime = load_regime("hot-summer").with_size(nodes=NODES, days=DAYS)
    quiet = regime.disturbances.model_copy(update={"chatter_per_day": 0.0})
    regime = regime.model_copy(update={"disturbances": quiet, "hazard_multiplier": 9.0})
    rows, names = labelled_rows(simulate_failures(regime, seed=seed))
    # Ten gauges that say nothing are enough here.
    names = tuple(name for name in names if name not in {f"gauge_{i}" for i in range(10, 40)})
    rng = np.random.default_rng(seed)
    is_after = rows["as_of"] >= regime.start + timedelta(days=ROLLOUT_DAY)
    after = is_after.cast(pl.Float32)
    harmless = [
        (rows[name] + after * pl.Series(rng.poisson(MORE_HARMLESS, rows.height))).cast(pl.Float32)
        for name in names
        if name.startswith("sign_")
    ]
    higher = [rows[name] + after * READS_HIGHER for name in names if name.startswith("gauge_")]
    kept = ("entity_id", "as_of", "node", "label", "incident_id")
    return rows.with_columns(*harmless, *higher).select(*kept, *names), names


def fleet_plan(seed: int) -> StudyPlan:
    """Retrained every 30 days, tested once a day."""
    start = load_regime("hot-summer").start
    origins = [start + timedelta(days=day) for day in range(FIRST_ORIGIN_DAY, DAYS, 30)]
    return _plan(
        Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="synthetic"),
        origins=tuple(origins),
        test=timedelta(days=30),
        valid=timedelta(days=15),
        shares=(0.0025, 0.01),
        boosted=TrainSpec(seeds=(seed,), min_data_in_leaf=50),
        length=4,
        seed=seed,
        sliding=SlidingSpec(
            lengths=(timedelta(days=30),),
            n_origins=3,
            window=timedelta(days=10),
        ),
        tested_every=timedelta(days=1),
    )


@dataclass(frozen=True, kw_only=True)
class RealPlan:
    """When models are trained and tested on a real record; see `StudyPlan`."""

    origins: tuple[datetime, ...]
    test_d: int
    valid_d: int
    length: int
    recent_d: int
    window_d: int


REAL: Final = {
    # Origins of the protocol; rows are a month apart.
    "titan": RealPlan(
        origins=tuple(datetime(y, m, 1, tzinfo=UTC) for y in (2016, 2017) for m in (1, 7)),
        test_d=182,
        valid_d=91,
        length=4,
        recent_d=365,
        window_d=61,
    ),
    # The protocol's time of test; rows are a day apart.
    "grid5000": RealPlan(
        origins=tuple(datetime(2006, month, 1, tzinfo=UTC) for month in (1, 3, 5)),
        test_d=60,
        valid_d=30,
        length=7,
        recent_d=60,
        window_d=20,
    ),
}


def real_plan(name: str, seed: int, *, task: Task, boosted: TrainSpec) -> StudyPlan:
    """The plan of a real record.

    Args:
        name: titan or grid5000.
        seed: Seed of every model.
        task: What is predicted.
        boosted: How LightGBM is trained.
    """
    real = REAL[name]
    return _plan(
        task,
        origins=real.origins,
        test=timedelta(days=real.test_d),
        valid=timedelta(days=real.valid_d),
        shares=(0.0025, 0.01),
        # The protocol averages several seeds; here seeds are what is varied.
        boosted=replace(boosted, seeds=(seed,)),
        length=real.length,
        seed=seed,
        sliding=SlidingSpec(
            lengths=(timedelta(days=real.recent_d),),
            n_origins=3,
            window=timedelta(days=real.window_d),
        ),
        tested_every=None,
    )


@dataclass(frozen=True)
class OncePerStep:
    """A member that sees each failure as often as it is tested: no multiplied positives."""

    spec: MemberSpec
    every: timedelta

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"{self.spec.name}, positives once"

    def fit(self, rows: pl.DataFrame, *, feature_names: Sequence[str], task: Task) -> Member:
        """See `MemberSpec.fit`."""
        is_step = pl.col("as_of").dt.epoch("us") % int(self.every.total_seconds() * 1e6) == 0
        once = rows.with_columns(pl.when(is_step).then("label").alias("label"))
        return self.spec.fit(once, feature_names=feature_names, task=task)


def _plan(
    task: Task,
    *,
    origins: tuple[datetime, ...],
    test: timedelta,
    valid: timedelta,
    shares: tuple[float, ...],
    boosted: TrainSpec,
    length: int,
    seed: int,
    sliding: SlidingSpec,
    tested_every: timedelta | None,
) -> StudyPlan:
    members = _members(boosted, length=length, seed=seed)
    ours = ("LightGBM", "logistic", "MLP")
    parallels: dict[str, tuple[tuple[str, ...], Rule]] = {
        OURS: (ours, "worst"),
        MEAN: (ours, "mean"),
    }
    cascades = [CascadeSpec(first=members["logistic"], second=members["LightGBM"])]
    if "1D-CNN" in members:
        parallels[PAPER] = (("LightGBM", "MLP", "1D-CNN"), "worst")
        cascades.append(CascadeSpec(first=members["1D-CNN"], second=members["MLP"]))
    if tested_every is not None:
        for name in ("LightGBM", "MLP"):
            once = OncePerStep(members[name], tested_every)
            members[once.name] = once
    return StudyPlan(
        task=task,
        origins=origins,
        test=test,
        valid=valid,
        shares=shares,
        members=members,
        parallels=parallels,
        cascades={cascade.name: cascade for cascade in cascades},
        sliding=sliding,
        chooser="LightGBM",
        tested_every=tested_every,
    )


def _members(boosted: TrainSpec, *, length: int, seed: int) -> dict[str, MemberSpec]:
    specs: list[MemberSpec] = [
        BoostedSpec(spec=boosted),
        LogisticSpec(seed=seed),
        MlpSpec(seed=seed),
    ]
    if importlib.util.find_spec("torch") is not None:
        specs += [
            SequenceSpec(architecture="LSTM", length=length, seed=seed),
            SequenceSpec(architecture="1D-CNN", length=length, seed=seed),
        ]
    return {spec.name: spec for spec in specs}


def run(kind: str, folder: Path, *, seed: int, data: Path | None = None) -> Path:
    """Runs one seed and writes its counts.

    Args:
        kind: fleet, titan or grid5000.
        folder: Folder for the counts.
        seed: Seed.
        data: Folder of the real record.

    Returns:
        The file.
    """
    if data is None:
        rows, names = fleet_rows(seed)
        plan = fleet_plan(seed)
    else:
        tables, protocol = read_benchmark(protocol_path(kind), data_dir=data)
        rows, features = benchmark_rows(tables, protocol)
        names = feature_names(features)
        plan = real_plan(kind, seed, task=protocol.task, boosted=protocol.train[0])
    path = folder / f"{kind}-{seed}.parquet"
    run_study(rows, feature_names=names, plan=plan).write_parquet(path)
    return path


def main(arguments: Sequence[str]) -> None:
    """Runs what the module's first lines say."""
    kind, folder, *rest = arguments
    data = Path(rest.pop(0)) if kind in REAL else None
    for seed in map(int, rest or SEEDS):
        print(run(kind, Path(folder), seed=seed, data=data))


if __name__ == "__main__":
    main(sys.argv[1:])
