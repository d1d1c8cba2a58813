"""Rolling-origin benchmark of the failure score on a real history: origins, populations, baselines.

It works on core tables with the product's own labels, features and trainer; where the tables come
from, and how results are shown, is in `pipelines.benchmark`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

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
from models.benchmark_result import MODEL, BenchmarkResult, BenchmarkRow, Population, WindowResult
from models.evaluation import Bootstrap, Estimate, RowMetrics, compare, row_metrics, top_unit
from models.ranking_metrics import auc
from models.specs import Task, TrainSpec
from models.splits import TimeSplit, split_by_time, without_shared_entities
from models.training import TooFewIncidentsError, train, training_rows

LEAVERS_TRAINED: Final = "model, also in training"
_INSTANT: Final = timedelta(microseconds=1)
_WITH_BASELINES: Final = frozenset({"all", "old batch", "old, no earlier incident"})
_NO_SKILL: Final = frozenset({"always", "never", "oracle"})
_FOLDS: Final = 2


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
        train: Training; chosen on origins whose tests end before the first of `origins`.
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


def benchmark_rows(
    tables: CoreTables, protocol: BenchmarkProtocol
) -> tuple[pl.DataFrame, tuple[Feature, ...]]:
    """The labelled feature matrix of all snapshots.

    Args:
        tables: Core tables of the site.
        protocol: Snapshots, label and features.

    Returns:
        The matrix with `label`, `fault_type`, `incident_id`, `censored_by`, and, for
        populations and baselines only, `first_seen`, `n_incidents` (of the whole record) and
        `place`; and the features.
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
    gpu = pl.col("gpu_uuid").alias("entity_id")
    first_seen = tables.inventory.group_by(gpu).agg(first_seen=pl.col("valid_from").min())
    incidents = tables.incidents.group_by("entity_id").agg(n_incidents=pl.len())
    for known in (first_seen, incidents):
        rows = rows.join(known, on="entity_id", how="left", maintain_order="left")
    level = protocol.place_level
    rows = with_places(rows, tables.topology, levels=(level,), at="as_of")
    rows = rows.rename({place_column(level): "place"})
    return rows, matrix_features(protocol.features, tables.topology)


def shuffled_labels(rows: pl.DataFrame, *, seed: int) -> pl.DataFrame:
    """The rows with labels dealt anew among those of the same moment.

    What a model learns from them is chance, and it must not rank the others: within a moment an
    AUC off 0.5 means that the set-up itself leaks. Over several moments it may be off by 0.02, for
    each moment keeps its share of positives and a model can tell moments apart.

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
    baselines, unavailable = _baselines(split.train, split.test, features)
    scored = split.test.with_columns(
        pl.Series(_score_of(MODEL), model.raw_scores(split.test)),
        *(values.alias(_score_of(scorer)) for scorer, values in baselines.items()),
    )
    units = _top_units(scored)
    judged: list[BenchmarkRow] = []
    for population, part in _populations(scored, units=units, protocol=protocol):
        judged.append(BenchmarkRow(population, MODEL, _judge(part, MODEL, protocol)))
        if population in _WITH_BASELINES:
            judged += _judged_baselines(population, part, list(baselines), protocol)
    judged += _judged_unseen(split, names, protocol)
    judged += _judged_leavers(split, scored, names, protocol)
    return WindowResult(
        origin,
        model.n_rows,
        model.n_positive,
        units,
        tuple(judged),
        unavailable,
        _fault_type_auc(split.train, split.test, names, protocol),
    )


def _baselines(
    train_rows: pl.DataFrame, test: pl.DataFrame, features: tuple[Feature, ...]
) -> tuple[dict[str, pl.Series], tuple[str, ...]]:
    """Scores of what needs no model: age, place, and the baselines of every evaluation."""
    known = train_rows.filter(pl.col("label").is_not_null())
    rate = known.group_by("place").agg(pl.col("label").mean().alias("rate"))
    place = test.select("place").join(rate, on="place", how="left", maintain_order="left")["rate"]
    found = {"age": test["age_days"].fill_null(0.0), "place": place.fill_null(0.0)}
    unavailable = []
    for baseline in all_baselines(train_rows, test, features=features):
        if baseline.scores is None:
            unavailable.append(f"{baseline.name}: {baseline.note}")
        elif baseline.name not in _NO_SKILL:
            found[baseline.name] = baseline.scores
    return found, tuple(unavailable)


def _top_units(test: pl.DataFrame) -> tuple[str, ...]:
    """The entities whose absence must not change the result."""
    busiest = test.filter(pl.col("n_incidents") == pl.col("n_incidents").max())["entity_id"].min()
    units = (top_unit(test), busiest)
    return tuple(sorted({str(unit) for unit in units if unit is not None}))


def _populations(
    scored: pl.DataFrame, *, units: tuple[str, ...], protocol: BenchmarkProtocol
) -> Iterator[tuple[Population, pl.DataFrame]]:
    """The rows of each population that the model itself is judged on."""
    is_old = pl.col("first_seen") < protocol.old_before
    yield "all", scored
    yield "old batch", scored.filter(is_old)
    yield "old, no earlier incident", scored.filter(is_old, pl.col("own_incident_count") == 0)
    yield "without the top units", scored.filter(~pl.col("entity_id").is_in(units))


def _judged_baselines(
    population: Population, part: pl.DataFrame, names: list[str], protocol: BenchmarkProtocol
) -> list[BenchmarkRow]:
    """Each baseline on a population, with what the model gains on it."""
    once = Bootstrap(resamples=0)
    judged = []
    for name in names:
        gain = None
        if population == "all":
            gain = compare(
                part,
                score=_score_of(MODEL),
                other=_score_of(name),
                statistic=auc,
                bootstrap=protocol.bootstrap,
            )
        metrics = row_metrics(part, score=_score_of(name), kind="rank", bootstrap=once)
        judged.append(BenchmarkRow(population, name, metrics, gain))
    return judged


def _judged_unseen(
    split: TimeSplit, names: tuple[str, ...], protocol: BenchmarkProtocol
) -> list[BenchmarkRow]:
    """Test rows scored by models that saw no row of the same entity.

    Nothing where half of the entities had too few incidents to learn from.
    """
    parts = []
    for fold in range(_FOLDS):
        apart = without_shared_entities(split, n_folds=_FOLDS, test_fold=fold)
        try:
            model = train(apart.train, feature_names=names, task=protocol.task, spec=protocol.train)
        except TooFewIncidentsError:
            return []
        score = pl.Series(_score_of(MODEL), model.raw_scores(apart.test))
        parts.append(apart.test.with_columns(score))
    return [BenchmarkRow("unseen entities", MODEL, _judge(pl.concat(parts), MODEL, protocol))]


def _judged_leavers(
    split: TimeSplit, scored: pl.DataFrame, names: tuple[str, ...], protocol: BenchmarkProtocol
) -> list[BenchmarkRow]:
    """The reading in which an entity that left unharmed did not fail: in test, and in both.

    The product's label is null there, for nobody saw how it would have gone on; other work on
    the same record counts these rows as negatives.
    """
    has_left = pl.col("censored_by") == "not_watched"
    label = pl.when(has_left).then(pl.lit(0, pl.Int8)).otherwise("label").alias("label")
    model = train(
        split.train.with_columns(label),
        feature_names=names,
        task=protocol.task,
        spec=protocol.train,
    )
    both = scored.with_columns(
        label, pl.Series(_score_of(LEAVERS_TRAINED), model.raw_scores(scored))
    )
    return [
        BenchmarkRow("leavers count as negatives", scorer, _judge(both, scorer, protocol))
        for scorer in (MODEL, LEAVERS_TRAINED)
    ]


def _judge(part: pl.DataFrame, scorer: str, protocol: BenchmarkProtocol) -> RowMetrics:
    return row_metrics(part, score=_score_of(scorer), kind="rank", bootstrap=protocol.bootstrap)


def _score_of(scorer: str) -> str:
    return f"score of {scorer}"


def _fault_type_auc(
    train_rows: pl.DataFrame,
    test: pl.DataFrame,
    names: tuple[str, ...],
    protocol: BenchmarkProtocol,
) -> Estimate:
    """Can the two most frequent fault types be told apart before the onset?

    Not defined where only one is known, or too few of one to learn from.
    """
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
    try:
        model = train(typed, feature_names=names, task=protocol.task, spec=spec)
    except TooFewIncidentsError:
        return Estimate(None, None, None)
    scored = rest.with_columns(pl.Series("score", model.raw_scores(rest)))
    return row_metrics(scored, kind="rank", bootstrap=protocol.bootstrap).auc
