"""Rolling-origin benchmark of the failure score on a real history: origins, populations, baselines.

It works on core tables with the product's own labels, features and trainer; where the tables come
from, and how results are shown, is in `pipelines.benchmark`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import polars as pl

from features.core_tables import CoreTables
from features.errors import DataError
from features.grid import as_of_times, watched_grid
from features.history_features import HistorySpec
from features.history_rows import place_column, with_places
from features.labels import LabelSpec, build_labels
from features.matrix import MatrixSpec, build_gpu_matrix, matrix_features
from features.registry import Feature, feature_names
from models.baselines import all_baselines
from models.evaluation import Bootstrap, Estimate, RowMetrics, row_metrics, top_unit
from models.specs import Task, TrainSpec
from models.splits import split_by_time
from models.training import train, training_rows

MODEL: Final = "model"
_INSTANT: Final = timedelta(microseconds=1)

Population = Literal[
    "all",
    "leavers count as negatives",
    "without the top unit",
    "old batch",
    "old, no earlier incident",
]
_NOT_SCORERS: Final = frozenset({"always", "never", "oracle"})


@dataclass(frozen=True, kw_only=True)
class BenchmarkProtocol:
    """What is predicted, when models are trained and tested, and with what.

    Attributes:
        name: Name of the benchmark.
        first_as_of: First snapshot of the fleet.
        every: Time between snapshots.
        data_end: End of the record: snapshots whose horizon passes it are not taken.
        lead: Minimum lead L.
        horizon_h: Horizon H, hours.
        origins: Times S: a model is trained on rows with `as_of + L + H <= S`.
        test: Rows with `S <= as_of < S + test` are scored.
        old_before: GPUs first seen before this are the old batch.
        place_level: Level of the topology whose past rate is the baseline "place".
        history: History features.
        train: Training.
        bootstrap: How the model's intervals are made.
    """

    name: str
    first_as_of: datetime
    every: timedelta
    data_end: datetime
    lead: timedelta
    horizon_h: int
    origins: tuple[datetime, ...]
    test: timedelta
    old_before: datetime
    place_level: str
    history: HistorySpec
    train: TrainSpec
    bootstrap: Bootstrap = field(default_factory=Bootstrap)

    @property
    def task(self) -> Task:
        """The task of the models."""
        return Task(horizon_h=self.horizon_h, lead=self.lead, trained_on="real")

    @property
    def features(self) -> MatrixSpec:
        """The product's feature matrix, of a site that has a history alone."""
        return MatrixSpec(parts=("history",), history=self.history)


@dataclass(frozen=True)
class BenchmarkRow:
    """One scorer on one population of one window.

    Attributes:
        population: Rows that are judged.
        scorer: The model or a baseline.
        metrics: How it ranks them.
    """

    population: Population
    scorer: str
    metrics: RowMetrics


@dataclass(frozen=True)
class WindowResult:
    """One origin.

    Attributes:
        origin: S.
        n_train: Labelled training rows.
        n_train_positive: Positive ones.
        top_unit: The entity with the most positive test rows.
        rows: Results, the model first in each population.
        fault_types: AUC of telling the two most frequent fault types apart, on positive rows;
            not defined where a window has one only.
    """

    origin: datetime
    n_train: int
    n_train_positive: int
    top_unit: str | None
    rows: tuple[BenchmarkRow, ...]
    fault_types: Estimate

    def metrics(self, population: Population = "all", scorer: str = MODEL) -> RowMetrics:
        """The metrics of one scorer on one population.

        Raises:
            DataError: There are none.
        """
        for row in self.rows:
            if (row.population, row.scorer) == (population, scorer):
                return row.metrics
        raise DataError(f"benchmark at {self.origin:%Y-%m-%d}: no {scorer!r} on {population!r}.")


@dataclass(frozen=True)
class BenchmarkResult:
    """A benchmark's outcome.

    Attributes:
        name: Its name.
        n_features: Features of the model.
        n_incidents: Incidents in the record.
        windows: One per origin.
        seconds: Run time.
    """

    name: str
    n_features: int
    n_incidents: int
    windows: tuple[WindowResult, ...]
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


def benchmark_rows(
    tables: CoreTables, protocol: BenchmarkProtocol
) -> tuple[pl.DataFrame, tuple[Feature, ...]]:
    """The labelled feature matrix of all snapshots.

    Args:
        tables: Core tables of the site.
        protocol: Snapshots, label and features.

    Returns:
        The matrix with `label`, `fault_type`, `incident_id`, `censored_by`, and `first_seen` and
        `place` for populations and baselines; and the features.
    """
    # A snapshot whose horizon passes the end would keep its failures and lose the rest.
    last = protocol.data_end - protocol.task.embargo
    as_ofs = as_of_times(protocol.first_as_of, last + _INSTANT, every=protocol.every)
    grid = watched_grid(tables.inventory, as_ofs)
    labels = build_labels(
        grid,
        incidents=tables.incidents,
        inventory=tables.inventory,
        maintenance=tables.maintenance,
        data_end=protocol.data_end,
        spec=LabelSpec(protocol.lead, (protocol.horizon_h,)),
    )
    matrix = build_gpu_matrix(tables, grid, spec=protocol.features)
    rows = training_rows(matrix, labels, horizon_h=protocol.horizon_h)
    first_seen = tables.inventory.group_by(pl.col("gpu_uuid").alias("entity_id")).agg(
        pl.col("valid_from").min().alias("first_seen")
    )
    rows = rows.join(first_seen, on="entity_id", how="left", maintain_order="left")
    level = protocol.place_level
    rows = with_places(rows, tables.topology, levels=(level,), at="as_of")
    rows = rows.rename({place_column(level): "place"})
    return rows, matrix_features(protocol.features, tables.topology)


def shuffled_labels(rows: pl.DataFrame, *, seed: int) -> pl.DataFrame:
    """The rows with labels dealt anew among those of the same moment.

    What a model learns from them is chance, and it must not rank the others: an AUC off 0.5 on
    such rows means that the set-up itself leaks.

    Args:
        rows: See `benchmark_rows`.
        seed: Seed.
    """
    dealt = ["label", "fault_type", "incident_id", "censored_by"]
    order = pl.int_range(pl.len()).shuffle(seed=seed)
    return rows.with_columns(pl.col(dealt).gather(order).over("as_of"))


def run_protocol(
    rows: pl.DataFrame, features: tuple[Feature, ...], *, protocol: BenchmarkProtocol
) -> BenchmarkResult:
    """Trains and tests at every origin.

    Args:
        rows: See `benchmark_rows`.
        features: Features of the rows.
        protocol: Origins, training and populations.

    Returns:
        The outcome.

    Raises:
        DataError: A window has no test row with a label.
        TooFewIncidentsError: An origin has too few incidents before it.
    """
    n_incidents = rows["incident_id"].drop_nulls().n_unique()
    windows = tuple(
        _window(rows, features, origin=origin, protocol=protocol) for origin in protocol.origins
    )
    return BenchmarkResult(protocol.name, len(features), n_incidents, windows)


def _window(
    rows: pl.DataFrame,
    features: tuple[Feature, ...],
    *,
    origin: datetime,
    protocol: BenchmarkProtocol,
) -> WindowResult:
    split = split_by_time(
        rows,
        train_until=origin,
        valid_until=origin,
        test_until=origin + protocol.test,
        embargo=protocol.task.embargo,
    )
    if split.test["label"].drop_nulls().is_empty():
        raise DataError(
            f"benchmark {protocol.name}: no labelled row in the {protocol.test.days} d after "
            f"{origin:%Y-%m-%d}. The record ends {protocol.data_end:%Y-%m-%d}: give an earlier "
            f"origin."
        )
    names = feature_names(features)
    model = train(split.train, feature_names=names, task=protocol.task, spec=protocol.train)
    scores = {MODEL: pl.Series(model.raw_scores(split.test))}
    scores |= _baseline_scores(split.train, split.test, features)
    scored = split.test.drop(names).with_columns(
        values.alias(_score_column(scorer)) for scorer, values in scores.items()
    )
    scored = scored.with_columns(split.test["own_incident_count"])
    judged = tuple(
        BenchmarkRow(population, scorer, _judge(part, scorer, protocol))
        for population, part in _populations(scored, protocol)
        for scorer in scores
    )
    return WindowResult(
        origin,
        model.n_rows,
        model.n_positive,
        top_unit(scored),
        judged,
        _fault_type_auc(split.train, split.test, names, protocol),
    )


def _baseline_scores(
    train_rows: pl.DataFrame, test: pl.DataFrame, features: tuple[Feature, ...]
) -> dict[str, pl.Series]:
    """Scores of what needs no model: age, place, and the baselines of every evaluation."""
    known = train_rows.filter(pl.col("label").is_not_null())
    rate = known.group_by("place").agg(pl.col("label").mean().alias("rate"))
    place = test.select("place").join(rate, on="place", how="left", maintain_order="left")["rate"]
    found = {"age": test["age_days"].fill_null(0.0), "place": place.fill_null(0.0)}
    for baseline in all_baselines(train_rows, test, features=features):
        if baseline.scores is not None and baseline.name not in _NOT_SCORERS:
            found[baseline.name] = baseline.scores
    return found


def _populations(
    scored: pl.DataFrame, protocol: BenchmarkProtocol
) -> Iterator[tuple[Population, pl.DataFrame]]:
    """The rows of each population, in the order of the report."""
    is_old = pl.col("first_seen") < protocol.old_before
    has_left = pl.col("censored_by") == "not_watched"
    yield "all", scored
    yield (
        "leavers count as negatives",
        scored.with_columns(
            pl.when(has_left).then(pl.lit(0, pl.Int8)).otherwise("label").alias("label")
        ),
    )
    yield "without the top unit", scored.filter(pl.col("entity_id") != (top_unit(scored) or ""))
    yield "old batch", scored.filter(is_old)
    yield "old, no earlier incident", scored.filter(is_old, pl.col("own_incident_count") == 0)


def _judge(part: pl.DataFrame, scorer: str, protocol: BenchmarkProtocol) -> RowMetrics:
    bootstrap = protocol.bootstrap if scorer == MODEL else Bootstrap(resamples=0)
    return row_metrics(part, score=_score_column(scorer), kind="rank", bootstrap=bootstrap)


def _score_column(scorer: str) -> str:
    return f"score of {scorer}"


def _fault_type_auc(
    train_rows: pl.DataFrame,
    test: pl.DataFrame,
    names: tuple[str, ...],
    protocol: BenchmarkProtocol,
) -> Estimate:
    """Can the two most frequent fault types be told apart before the onset?"""
    failing = train_rows.filter(pl.col("label") == 1)
    counts = failing["fault_type"].value_counts(sort=True)
    if counts.height < 2:
        return Estimate(None, None, None)
    one, other = counts["fault_type"].head(2)
    is_one = pl.when(pl.col("fault_type").is_in([one, other])).then(
        (pl.col("fault_type") == one).cast(pl.Int8)
    )
    typed = failing.with_columns(is_one.alias("label"))
    rest = test.filter(pl.col("label") == 1).with_columns(is_one.alias("label"))
    # Both types are as rare: thinning one of them out would only lose rows.
    spec = replace(protocol.train, negative_share=1.0)
    model = train(typed, feature_names=names, task=protocol.task, spec=spec)
    scored = rest.with_columns(pl.Series("score", model.raw_scores(rest)))
    return row_metrics(scored, kind="rank", bootstrap=protocol.bootstrap).auc
