"""Rolling-origin benchmark of the failure score on a real history: trained, tested, held against.

What is asked is in `models.benchmark.protocol`, the rows are made in `models.benchmark.rows`; where
tables come from, and how results are shown, is in `pipelines`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

import polars as pl

from features.errors import DataError
from features.registry import Feature, feature_names
from models.benchmark.protocol import BenchmarkProtocol
from models.benchmark.result import (
    MODEL,
    BenchmarkResult,
    BenchmarkRow,
    Gain,
    Population,
    WindowResult,
)
from models.benchmark.rows import ranks_within_moments, shuffled_labels
from models.benchmark.scorers import (
    LEFT,
    baseline_scores,
    fit,
    rival_scores,
    varying,
    with_leavers,
)
from models.evaluation.ranking_metrics import (
    FloatArray,
    RankedRows,
    auc,
    average_precision,
    precision_at_top,
)
from models.evaluation.row_metrics import (
    NOT_DEFINED,
    TOP_SHARE,
    Bootstrap,
    Estimate,
    RowMetrics,
    compare,
    row_metrics,
    top_unit,
)
from models.failure_model import FailureModel
from models.training.boosters import TooFewIncidentsError
from models.training.splits import TimeSplit, split_by_time, without_shared_entities

_FOLDS: Final = 2
_DEALT_SEED: Final = 1
_LEAVERS: Final[dict[Population, Population]] = {
    "all": "leavers count as negatives",
    "old batch": "leavers negative, old batch",
    "old, no earlier incident": "leavers negative, old, no earlier incident",
}
"""Populations that rivals and baselines are judged on too, and what each is called in the reading
in which who left unharmed did not fail."""


def run_protocol(
    rows: pl.DataFrame, features: tuple[Feature, ...], *, protocol: BenchmarkProtocol
) -> BenchmarkResult:
    """Trains and tests at every origin.

    Args:
        rows: See `models.benchmark.rows.benchmark_rows`.
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
    split = _split(rows, origin=origin, protocol=protocol)
    used = varying(split.train, features)
    names = feature_names(used)
    model = _fit(split.train, names, protocol)
    others, unavailable = baseline_scores(split.train, split.test, used, protocol)
    rivals = _rivals(split, used, protocol)
    scored = split.test.with_columns(
        pl.Series(_score_of(MODEL), model.raw_scores(split.test)),
        *(scores.alias(_score_of(name)) for name, scores in {**rivals, **others}.items()),
    )
    units = _top_units(scored)
    judged: list[BenchmarkRow] = []
    for population, part in _populations(scored, units=units, protocol=protocol):
        against = [*rivals, *others] if population in _LEAVERS else []
        # Paired resamples cost more than training: where they say little they are left out.
        paired = [*rivals, *(others if population == "all" else ())]
        judged += _judged(population, part, against, paired=paired, protocol=protocol)
    judged += _judged_unseen(split, names, protocol)
    judged += _judged_leavers(split, used, protocol)
    judged += _judged_dealt(split, names, protocol)
    return WindowResult(
        origin,
        len(names),
        model.n_rows,
        model.n_positive,
        units,
        tuple(judged),
        unavailable,
        _fault_type_auc(split, names, protocol),
    )


def _split(rows: pl.DataFrame, *, origin: datetime, protocol: BenchmarkProtocol) -> TimeSplit:
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
    return split


def _rivals(
    split: TimeSplit, used: tuple[Feature, ...], protocol: BenchmarkProtocol
) -> dict[str, pl.Series]:
    """Scores of the test rows by the rivals that have enough to learn from."""
    found = {
        rival.name: rival_scores(rival, split.train, split.test, used, protocol)
        for rival in protocol.rivals
    }
    return {name: scores for name, scores in found.items() if scores is not None}


def _top_units(test: pl.DataFrame) -> tuple[str, ...]:
    """The entities whose absence must not change the result."""
    busiest = test.filter(pl.col("n_incidents") == pl.col("n_incidents").max())["entity_id"].min()
    units = (top_unit(test), busiest)
    return tuple(sorted({str(unit) for unit in units if unit is not None}))


def _populations(
    scored: pl.DataFrame, *, units: tuple[str, ...], protocol: BenchmarkProtocol
) -> Iterator[tuple[Population, pl.DataFrame]]:
    """The rows of each population that the model itself is judged on."""
    yield "all", scored
    if protocol.old_before is not None:
        old = scored.filter(pl.col("first_seen") < protocol.old_before)
        yield "old batch", old
        yield "old, no earlier incident", old.filter(pl.col("own_incident_count") == 0)
    yield "without the top units", scored.filter(~pl.col("entity_id").is_in(units))


def _judged(
    population: Population,
    part: pl.DataFrame,
    others: Sequence[str],
    *,
    paired: Sequence[str],
    protocol: BenchmarkProtocol,
) -> list[BenchmarkRow]:
    """The model on a population, and the others; of the paired, what the model has more."""
    judged = [BenchmarkRow(population, MODEL, _judge(part, MODEL, protocol))]
    once = Bootstrap(resamples=0)
    for name in others:
        metrics = row_metrics(part, score=_score_of(name), kind="rank", bootstrap=once)
        gain = _gain(part, name, protocol) if name in paired else None
        judged.append(BenchmarkRow(population, name, metrics, gain))
    return judged


def _gain(part: pl.DataFrame, other: str, protocol: BenchmarkProtocol) -> Gain:
    """What the model has more than another scorer, with paired intervals."""
    differences = (
        compare(
            part,
            score=_score_of(MODEL),
            other=_score_of(other),
            statistic=statistic,
            bootstrap=protocol.bootstrap,
        )
        for statistic in (auc, average_precision, _precision_at_top)
    )
    return Gain(*differences)


def _precision_at_top(ranked: RankedRows, weights: FloatArray) -> FloatArray:
    return precision_at_top(ranked, weights, share=TOP_SHARE)


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
            model = _fit(apart.train, names, protocol)
        except TooFewIncidentsError:
            return []
        score = pl.Series(_score_of(MODEL), model.raw_scores(apart.test))
        parts.append(apart.test.with_columns(score))
    return [BenchmarkRow("unseen entities", MODEL, _judge(pl.concat(parts), MODEL, protocol))]


def _judged_leavers(
    split: TimeSplit, used: tuple[Feature, ...], protocol: BenchmarkProtocol
) -> list[BenchmarkRow]:
    """Model and rivals in the reading in which who left unharmed did not fail.

    They are trained anew on it, and tested on it. Nothing where nobody left.
    """
    if not any((part["censored_by"] == LEFT).any() for part in (split.train, split.test)):
        return []
    split = replace(split, train=with_leavers(split.train), test=with_leavers(split.test))
    names = feature_names(used)
    model = _fit(split.train, names, protocol)
    rivals = _rivals(split, used, protocol)
    scored = split.test.with_columns(
        pl.Series(_score_of(MODEL), model.raw_scores(split.test)),
        *(scores.alias(_score_of(name)) for name, scores in rivals.items()),
    )
    judged: list[BenchmarkRow] = []
    for population, part in _populations(scored, units=(), protocol=protocol):
        if population in _LEAVERS:
            named = _LEAVERS[population]
            judged += _judged(named, part, [*rivals], paired=[*rivals], protocol=protocol)
    return judged


def _judged_dealt(
    split: TimeSplit, names: tuple[str, ...], protocol: BenchmarkProtocol
) -> list[BenchmarkRow]:
    """The control: with labels dealt anew, in training and in test, nothing can be ranked.

    Each moment keeps its share of positives, and a model can tell moments apart: so ranks within
    the moment are judged, and an AUC off 0.5 means that the set-up itself leaks.
    """
    learned, test = (shuffled_labels(p, seed=_DEALT_SEED) for p in (split.train, split.test))
    model = _fit(learned, names, protocol)
    test = test.filter(pl.col("label").is_not_null())
    ranks = ranks_within_moments(test, pl.Series(model.raw_scores(test)))
    scored = test.with_columns(ranks.alias(_score_of(MODEL)))
    return [BenchmarkRow("labels dealt anew", MODEL, _judge(scored, MODEL, protocol))]


def _fit(rows: pl.DataFrame, names: tuple[str, ...], protocol: BenchmarkProtocol) -> FailureModel:
    return fit(rows, names, task=protocol.task, specs=protocol.train)


def _judge(part: pl.DataFrame, scorer: str, protocol: BenchmarkProtocol) -> RowMetrics:
    return row_metrics(part, score=_score_of(scorer), kind="rank", bootstrap=protocol.bootstrap)


def _score_of(scorer: str) -> str:
    return f"score of {scorer}"


def _fault_type_auc(
    split: TimeSplit, names: tuple[str, ...], protocol: BenchmarkProtocol
) -> Estimate:
    """Can the two most frequent fault types be told apart before the onset?

    Not defined where only one is known, or too few of one to learn from.
    """
    failing = split.train.filter(pl.col("label") == 1)
    counts = failing["fault_type"].value_counts(sort=True)
    if counts.height < 2:
        return NOT_DEFINED
    one, other = counts["fault_type"].head(2)
    is_one = pl.when(pl.col("fault_type").is_in([one, other])).then(
        (pl.col("fault_type") == one).cast(pl.Int8)
    )
    typed = failing.with_columns(is_one.alias("label"))
    rest = split.test.filter(pl.col("label") == 1).with_columns(is_one.alias("label"))
    # Both types are as rare: thinning one of them out would only lose rows.
    specs = tuple(replace(spec, negative_share=1.0) for spec in protocol.train)
    try:
        model = _fit(typed, names, replace(protocol, train=specs))
    except TooFewIncidentsError:
        return NOT_DEFINED
    scored = rest.with_columns(pl.Series("score", model.raw_scores(rest)))
    return row_metrics(scored, kind="rank", bootstrap=protocol.bootstrap).auc
