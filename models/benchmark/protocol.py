"""What a benchmark asks: rows, label, origins, training, and whom the model is held against.

How it is run is in `models.benchmark.run`; how it is written down, in
`pipelines.studies.benchmark.settings`.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from features.history_outages import OutageRule
from features.matrix import MatrixSpec
from models.evaluation.row_metrics import Bootstrap
from models.specs import Task, TrainSpec


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """A baseline without training: a rule, or an order by a feature.

    Attributes:
        name: Its name in tables.
        features: Features it looks at; null counts as 0.
        above: A rule holds where any of them is above this; None: their sum ranks.
    """

    name: str
    features: tuple[str, ...]
    above: float | None = None


@dataclass(frozen=True, kw_only=True)
class Rival:
    """Another model on the same rows: what was there before, rebuilt.

    Attributes:
        name: Its name in tables.
        features: Regular expressions; a feature that one of them matches whole is used.
        train: Its training.
    """

    name: str
    features: tuple[str, ...]
    train: TrainSpec


@dataclass(frozen=True, kw_only=True)
class BenchmarkProtocol:
    """What is predicted, when models are trained and tested, and with what.

    Attributes:
        name: Name of the benchmark.
        entity_kind: Whether a row is a GPU (or another unit that fails) or a node.
        first_as_of: First snapshot of the fleet.
        every: Time between snapshots.
        data_end: End of the record: snapshots whose horizon passes it are not taken.
        lead: Minimum lead L.
        horizon_h: Horizon H, hours.
        origins: Times S: a model is trained on rows with `as_of + L + H <= S`.
        test: Rows with `S <= as_of < S + test` are scored.
        old_before: Entities first seen before this are the old batch; None: no such population.
        place_level: Level of the topology whose past rate is the baseline "place", if any.
        outages: Which times down are incidents, where node states are the record; rows are then
            those of nodes that are up.
        features: The feature matrix.
        train: Trainings whose raw scores are averaged; chosen on origins whose tests end before
            the first of `origins`.
        rankings: Baselines without training.
        rivals: Other models.
        bootstrap: How intervals are made.
    """

    name: str
    entity_kind: Literal["gpu", "node"] = "gpu"
    first_as_of: datetime
    every: timedelta
    data_end: datetime
    lead: timedelta
    horizon_h: int
    origins: tuple[datetime, ...]
    test: timedelta
    old_before: datetime | None = None
    place_level: str | None = None
    outages: OutageRule | None = None
    features: MatrixSpec
    train: tuple[TrainSpec, ...]
    rankings: tuple[Ranking, ...] = ()
    rivals: tuple[Rival, ...] = ()
    bootstrap: Bootstrap = field(default_factory=Bootstrap)

    @property
    def task(self) -> Task:
        """The task of the models."""
        return Task(
            horizon_h=self.horizon_h,
            lead=self.lead,
            trained_on="real",
            entity_kind=self.entity_kind,
        )
