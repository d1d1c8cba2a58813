"""Searches how boosters are trained, by rolling origins that end before a given moment.

Rows whose outcome lies at or after that moment are cut off before anything else is done; which
moment it is, and where the result is kept, is decided elsewhere.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from statistics import mean, stdev
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import optuna
import polars as pl
from sklearn.metrics import average_precision_score

from features.errors import DataError
from models.failure_model import Values, feature_values
from models.specs import Task, TrainSpec
from models.training.boosters import BinnedRows, TooFewIncidentsError, bin_rows, train_binned
from models.training.splits import Origin, split_by_time

WITHIN: Final = 0.01
"""Specs whose steady average precision is within this share of the best one's are a tie."""

_INSTANT: Final = timedelta(microseconds=1)
_WHOLE: Final = {"num_leaves": (3, 31), "rounds": (50, 600), "min_data_in_leaf": (5, 500)}
_REAL: Final = {
    "learning_rate": (0.01, 0.1),
    "lambda_l2": (0.1, 50.0),
    "feature_fraction": (0.1, 0.6),
}
_CHOICES: Final[dict[str, list[float | bool]]] = {
    "bagging_fraction": [0.5, 0.8, 1.0],
    "extra_trees": [False, True],
    "path_smooth": [0.0, 10.0, 50.0],
}
SEARCHED: Final = (*_WHOLE, *_REAL, *_CHOICES)
"""The values of a spec that are searched, by name."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched, and how long.

    Attributes:
        before: No row whose outcome lies at or after this moment is looked at.
        start: Tried first, and left only for a better one; its seeds, share of negatives,
            monotone directions, threads and least incidents are kept.
        trials: Specs tried, the start among them.
        n_origins: Inner origins; their tests share the later half of the rows' time.
        seed: Seed of the search.
    """

    before: datetime
    start: TrainSpec
    trials: int = 40
    n_origins: int = 4
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuses a search that can find nothing.

        Raises:
            DataError: No trial or no origin.
        """
        if self.trials < 1 or self.n_origins < 1:
            raise DataError(
                f"search: trials and n_origins must be at least 1, got {self.trials} and "
                f"{self.n_origins}."
            )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A spec with its average precision on the inner origins.

    Attributes:
        spec: The spec.
        average_precisions: By origin, in order of time; fewer than there are origins where the
            trial was given up as worse than most.
        is_complete: Whether all origins were tried.
    """

    spec: TrainSpec
    average_precisions: tuple[float, ...]
    is_complete: bool

    @property
    def mean(self) -> float:
        """Mean average precision over the origins tried."""
        return mean(self.average_precisions)

    @property
    def sd(self) -> float | None:
        """Standard deviation over the origins tried; None with one."""
        return stdev(self.average_precisions) if len(self.average_precisions) > 1 else None

    @property
    def steady(self) -> float:
        """Mean less its standard error, which is maximised: one lucky origin wins nothing."""
        return _steady(self.average_precisions)

    @property
    def n_leaves(self) -> int:
        """Leaves of the model: its size."""
        return self.spec.num_leaves * self.spec.rounds * len(self.spec.seeds)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a search found.

    Attributes:
        best: The trial chosen.
        trials: All trials; the first is the start.
        origins: The inner origins.
        before: See `Search`.
        seed: See `Search`.
    """

    best: Trial
    trials: tuple[Trial, ...]
    origins: tuple[Origin, ...]
    before: datetime
    seed: int

    @property
    def spec(self) -> TrainSpec:
        """The spec chosen."""
        return self.best.spec

    def table(self) -> pl.DataFrame:
        """One row per trial: average precision, steady, mean and by origin, then the spec."""
        return pl.DataFrame(
            [
                {
                    "trial": number,
                    "is_complete": trial.is_complete,
                    "is_chosen": trial is self.best,
                    "steady": trial.steady,
                    "average_precision": trial.mean,
                    "sd": trial.sd,
                    "by_origin": list(trial.average_precisions),
                    "n_leaves": trial.n_leaves,
                    **{name: getattr(trial.spec, name) for name in SEARCHED},
                }
                for number, trial in enumerate(self.trials)
            ],
            infer_schema_length=None,
        )

    def to_dict(self) -> dict[str, Any]:
        """What a model card keeps: plain values."""
        return {
            "before": self.before.isoformat(),
            "seed": self.seed,
            "trials": len(self.trials),
            "origins": [origin.train_until.isoformat() for origin in self.origins],
            "steady": self.best.steady,
            "average_precision": self.best.mean,
            "sd": self.best.sd,
            "by_origin": list(self.best.average_precisions),
            "start_steady": self.trials[0].steady,
            "start_average_precision": self.trials[0].mean,
        }


@dataclass(frozen=True)
class _Fold:
    """One inner origin, binned once for all trials."""

    origin: Origin
    binned: BinnedRows
    test: pl.DataFrame
    values: Values
    label: npt.NDArray[np.int8]


def tune(rows: pl.DataFrame, *, feature_names: Sequence[str], task: Task, search: Search) -> Tuned:
    """Finds the spec with the best average precision over inner origins: mean less standard error.

    Of specs within 1 % of the best the one with the fewest leaves is chosen.

    Args:
        rows: Rows with features, label and incident, as for `train`; their order does not matter.
        feature_names: Features to learn from.
        task: What is predicted.
        search: What is searched; equal searches on equal rows give equal results.

    Returns:
        The spec, and all trials.

    Raises:
        TooFewIncidentsError: No inner origin has enough incidents before it and one after it.
        DataError: A feature is missing or not numeric.
    """
    # First of all: nothing below can see a row whose outcome was not known at that moment.
    rows = rows.filter(pl.col("as_of") + task.embargo <= search.before)
    folds = _folds(rows, tuple(feature_names), task=task, search=search)
    trials = [_tried(search.start, folds, task=task, guide=None)]
    study = _study(search.seed)
    while len(trials) < search.trials:
        asked = study.ask()
        trial = _tried(_suggested(search.start, asked), folds, task=task, guide=asked)
        state = optuna.trial.TrialState
        if trial.is_complete:
            study.tell(asked, trial.steady)
        else:
            study.tell(asked, state=state.PRUNED)
        trials.append(trial)
    return Tuned(
        best=_chosen(trials),
        trials=tuple(trials),
        origins=tuple(fold.origin for fold in folds),
        before=search.before,
        seed=search.seed,
    )


def _folds(
    rows: pl.DataFrame, names: tuple[str, ...], *, task: Task, search: Search
) -> list[_Fold]:
    folds = []
    for origin in _inner_origins(rows, search.n_origins):
        split = split_by_time(
            rows,
            train_until=origin.train_until,
            valid_until=origin.valid_until,
            test_until=origin.test_until,
            embargo=task.embargo,
        )
        test = split.test.filter(pl.col("label").is_not_null())
        if set(test["label"]) != {0, 1}:
            continue
        try:
            binned = bin_rows(split.train, feature_names=names, task=task, spec=search.start)
        except TooFewIncidentsError:
            continue
        label = test["label"].to_numpy().astype(np.int8)
        folds.append(_Fold(origin, binned, test, feature_values(test, names), label))
    if not folds:
        raise TooFewIncidentsError(
            f"tuning {task.entity_kind} {task.horizon_h} h: none of {search.n_origins} inner "
            f"origins has {search.start.min_incidents} incidents before it and one after it, of "
            f"{rows.height} rows known before {search.before}. Keep the default training values."
        )
    return folds


def _inner_origins(rows: pl.DataFrame, n_origins: int) -> tuple[Origin, ...]:
    """Tests that follow each other up to the last row, over the later half of the rows' time."""
    if rows.is_empty():
        return ()
    as_of = pl.col("as_of")
    first, last = rows.select(first=as_of.min(), last=as_of.max()).row(0)
    end = last + _INSTANT
    test = (end - first) / (2 * n_origins)
    cuts = [end - left * test for left in range(n_origins, 0, -1)]
    ends = [*cuts[1:], end]
    return tuple(Origin(cut, cut, until) for cut, until in zip(cuts, ends, strict=True))


def _study(seed: int) -> optuna.Study:
    """A study in memory; it says nothing, as a search has its own report."""
    loudness = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=8, n_warmup_steps=1),
        )
    finally:
        optuna.logging.set_verbosity(loudness)


def _suggested(start: TrainSpec, asked: optuna.Trial) -> TrainSpec:
    values: dict[str, Any] = {
        name: asked.suggest_int(name, low, high, log=True) for name, (low, high) in _WHOLE.items()
    }
    for name, (low, high) in _REAL.items():
        values[name] = asked.suggest_float(name, low, high, log=True)
    for name, choices in _CHOICES.items():
        values[name] = asked.suggest_categorical(name, choices)
    return replace(start, **values)


def _tried(
    spec: TrainSpec, folds: Sequence[_Fold], *, task: Task, guide: optuna.Trial | None
) -> Trial:
    """Trains on each origin in turn, until the guide sees no point in going on."""
    found: list[float] = []
    for number, fold in enumerate(folds):
        model = train_binned(fold.binned, task=task, spec=spec)
        scores = model.raw_scores(fold.test, values=fold.values)
        found.append(float(average_precision_score(fold.label, scores)))
        if guide is not None:
            guide.report(_steady(found), number)
            if number + 1 < len(folds) and guide.should_prune():
                break
    return Trial(spec=spec, average_precisions=tuple(found), is_complete=len(found) == len(folds))


def _chosen(trials: Sequence[Trial]) -> Trial:
    complete = [trial for trial in trials if trial.is_complete]
    best = max(trial.steady for trial in complete)
    # A steady value may be negative, where two origins differ by more than their mean.
    tied = (trial for trial in complete if trial.steady >= best - WITHIN * abs(best))
    return min(tied, key=lambda trial: trial.n_leaves)


def _steady(found: Sequence[float]) -> float:
    return mean(found) - (stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0)


def spec_values(spec: TrainSpec) -> dict[str, Any]:
    """The searched values of a spec as plain values, for a settings file."""
    return {name: value for name, value in asdict(spec).items() if name in SEARCHED}
