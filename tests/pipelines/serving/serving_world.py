"""A small site that is scored: eight GPUs in four nodes, a model that knows heat, a fixed clock."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from features.errors import DataError
from features.matrix import MatrixSpec, matrix_features
from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY, CORE_TOPOLOGY
from features.telemetry_spec import TelemetrySpec
from models.bundle import ModelBundle
from models.faults.types import FaultTypeModel
from models.node_scores import NodeCombination
from models.policies.warnings import WarningPolicy
from models.reasons import usual_values
from models.registry.registered import RegisteredVersion
from models.specs import Task, TrainSpec
from models.training.boosters import train
from pipelines.flow.champions import Champions
from pipelines.serving.delivery import delivery_of
from pipelines.serving.score_loop import Scorer
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
GPUS = tuple(f"GPU-{i}" for i in range(8))
NODE_OF = {gpu: f"n{i // 2}" for i, gpu in enumerate(GPUS)}
CATALOGUE = load_catalogue(None)
NAMES = ("gpu_temp_c_mean_1h", "gpu_temp_c_max_24h", "power_w_mean_1h")
POLICY = WarningPolicy(threshold=0.15, n=1, k=1, tick=HOUR, cooldown=2 * HOUR)


@cache
def bundle(version: int = 1) -> ModelBundle:
    """A model to which heat is a sign."""
    rng = np.random.default_rng(version)
    hot = rng.random(4000) < 0.05
    temperature = rng.normal(50, 1.7, 4000) + 40 * hot
    rows = pl.DataFrame(
        {
            "entity_id": [f"g{i}" for i in range(4000)],
            "as_of": [T0] * 4000,
            "node": ["n"] * 4000,
            NAMES[0]: temperature.astype(np.float32),
            NAMES[1]: (temperature + 2).astype(np.float32),
            NAMES[2]: rng.normal(400, 20, 4000).astype(np.float32),
            "label": (hot & (rng.random(4000) < 0.9)).astype(np.int8),
            "incident_id": [f"i{i}" for i in range(4000)],
        }
    )
    task = Task(horizon_h=24, lead=30 * MINUTE, trained_on="synthetic")
    spec = TrainSpec(rounds=20, num_leaves=4, min_data_in_leaf=20, min_incidents=10)
    spec_of = MatrixSpec(catalogue=CATALOGUE, telemetry=TelemetrySpec())
    every = {one.name: one for one in matrix_features(spec_of, CORE_TOPOLOGY.empty())}
    kinds = ("nvlink", "thermal")
    return ModelBundle(
        model=train(rows, feature_names=NAMES, task=task, spec=spec),
        features=tuple(every[name] for name in NAMES),
        usual=usual_values(rows, NAMES),
        fault_types=FaultTypeModel(
            classes=kinds, prior=(0.6, 0.4), learned=(), feature_names=NAMES, booster=None,
            n_incidents=9,
        ),
        nodes=NodeCombination(host_probability=0.001),
        policies={"node": POLICY},
    )  # fmt: skip


@dataclass
class FakeRegistry:
    """Has one champion, until it is told otherwise."""

    version: int | None = 1
    models: Mapping[int, ModelBundle] = field(default_factory=lambda: {1: bundle(1), 2: bundle(2)})
    is_down: bool = False
    n_loaded: int = 0

    def version_of(self, name: str, alias: str) -> RegisteredVersion | None:
        if self.is_down:
            raise DataError("the registry is down")
        return None if self.version is None else RegisteredVersion(name, self.version)

    def load(self, version: RegisteredVersion) -> ModelBundle:
        self.n_loaded += 1
        return self.models[version.version]


def settings_of(folder: Path, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "site": "lab",
        "inputs": folder / "inputs.yaml",
        "data_root": folder / "data",
        "start": T0 - 24 * HOUR,
        "horizons_h": (24,),
        "trained_on": "synthetic",
    }
    return Settings.model_validate(values | changes)


@dataclass
class World:
    """The site, its clock and its scorer."""

    folder: Path
    changes: dict[str, Any] = field(default_factory=dict)
    registry: FakeRegistry = field(default_factory=FakeRegistry)
    now: datetime = T0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = settings_of(self.folder, **self.changes)
        self.store = TableStore(self.settings.store_root)
        rows = [{"gpu_uuid": gpu, "node": NODE_OF[gpu], "slot": gpu[-1]} for gpu in GPUS]
        self.store.write(CORE_INVENTORY, pl.DataFrame(rows, schema=CORE_INVENTORY.schema))
        self.scorer = self.new_scorer()

    def new_scorer(self) -> Scorer:
        """A scorer as a new process would have it."""
        champions = Champions(self.registry, self.settings)  # type: ignore[arg-type]
        return Scorer(
            settings=self.settings,
            champions=champions,
            catalogue=CATALOGUE,
            delivery=delivery_of(self.settings),
            say=self.said.append,
            now=lambda: self.now,
        )

    def land(
        self,
        hour: int,
        *,
        silent: Collection[str] = (),
        hot: Collection[str] = (),
        until_minute: int = 60,
        temperature: float = 50.0,
        shift: timedelta = timedelta(0),
        generation: int = 1,
    ) -> None:
        """The samples of the hour that begins so many hours after T0."""
        start = T0 + hour * HOUR
        times = [start + minute * MINUTE + shift for minute in range(0, until_minute, 5)]
        rows = [
            {
                "gpu_uuid": gpu,
                "node": NODE_OF[gpu],
                "ts": ts,
                "gpu_temp_c": 90.0 if gpu in hot else temperature,
                "power_w": 400.0,
            }
            for gpu in GPUS
            if gpu not in silent
            for ts in times
            if start <= ts < start + HOUR
        ]
        frame = pl.DataFrame(rows, schema=CORE_GPU_TELEMETRY.schema)
        span = Span(start, start + HOUR)
        self.store.write(CORE_GPU_TELEMETRY, frame, span=span, generation=generation)

    def tick(self, hour: int, **landed: Any) -> Any:
        """Lands an hour and scores it, two minutes after its end."""
        self.land(hour, **landed)
        self.now = T0 + (hour + 1) * HOUR + 2 * MINUTE
        return self.scorer.once()
