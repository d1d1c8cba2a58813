"""Rules of the search of training values."""

from dataclasses import replace
from datetime import timedelta

import optuna
import polars as pl
import pytest

from features.errors import DataError
from models.specs import TrainSpec
from models.training.boosters import TooFewIncidentsError, train
from models.training.tuning import SEARCHED, WITHIN, Search, Trial, Tuned, spec_values, tune
from tests.models.conftest import HOUR, N_TICKS, NAMES, START, TASK

START_SPEC = TrainSpec(rounds=5, min_data_in_leaf=20, min_incidents=5)
BEFORE = START + 110 * HOUR
SEARCH = Search(before=BEFORE, start=START_SPEC, trials=3, n_origins=2)


def search_in(rows: pl.DataFrame, search: Search = SEARCH) -> Tuned:
    return tune(rows, feature_names=NAMES, task=TASK, search=search)


@pytest.fixture(scope="module")
def tuned(rows: pl.DataFrame) -> Tuned:
    return search_in(rows)


def test_the_same_search_gives_the_same_trials(rows, tuned) -> None:
    again = search_in(rows.sample(fraction=1.0, shuffle=True, seed=2))
    assert again.table().equals(tuned.table())
    assert again.spec == tuned.spec


def test_rows_whose_outcome_lies_at_or_after_the_moment_change_nothing(rows, tuned) -> None:
    is_later = pl.col("as_of") + TASK.embargo > BEFORE
    poisoned = rows.with_columns(
        *(
            pl.when(is_later).then(1e6).otherwise(name).cast(pl.Float32).alias(name)
            for name in NAMES
        ),
        label=pl.when(is_later).then(1 - pl.col("label")).otherwise("label"),
        incident_id=pl.when(is_later).then(pl.lit("inc-1")).otherwise("incident_id"),
    )
    assert poisoned.filter(is_later).height > 1_000
    assert search_in(poisoned).table().equals(tuned.table())
    assert search_in(rows.filter(~is_later)).table().equals(tuned.table())


def test_a_later_moment_is_another_search(rows, tuned) -> None:
    later = search_in(rows, replace(SEARCH, before=START + N_TICKS * HOUR))
    assert not later.table().equals(tuned.table())


def test_inner_origins_lie_before_the_moment_and_do_not_overlap(tuned) -> None:
    first, second = tuned.origins
    assert START < first.train_until < first.test_until == second.train_until
    assert second.test_until <= BEFORE - TASK.embargo + timedelta(microseconds=1)


def test_the_chosen_spec_is_the_smallest_of_those_as_good_as_the_best(tuned) -> None:
    table = tuned.table().filter("is_complete")
    best = table["steady"].max()
    tied = table.filter(pl.col("steady") >= best - WITHIN * abs(best))
    chosen = table.filter("is_chosen").row(0, named=True)
    assert chosen["n_leaves"] == tied["n_leaves"].min()
    assert chosen["steady"] >= table["steady"][0] - WITHIN * abs(best)


def test_one_lucky_origin_does_not_win_over_several_good_ones() -> None:
    lucky, good = (
        Trial(spec=START_SPEC, average_precisions=found, is_complete=True)
        for found in ((0.06, 0.27), (0.09, 0.15))
    )
    assert lucky.mean > good.mean
    assert good.steady > lucky.steady


def test_a_trial_that_is_given_up_is_never_chosen(rows, monkeypatch) -> None:
    monkeypatch.setattr(optuna.Trial, "should_prune", lambda _: True)
    found = search_in(rows, replace(SEARCH, trials=3))
    assert [len(trial.average_precisions) for trial in found.trials] == [2, 1, 1]
    assert [trial.is_complete for trial in found.trials] == [True, False, False]
    assert found.spec == START_SPEC


def test_a_trial_is_scored_as_a_model_trained_on_the_rows_themselves(rows, tuned) -> None:
    from sklearn.metrics import average_precision_score

    origin, trial = tuned.origins[0], tuned.trials[1]
    known = rows.filter(pl.col("as_of") + TASK.embargo <= origin.train_until)
    test = rows.filter(
        pl.col("as_of") >= origin.train_until,
        pl.col("as_of") < origin.test_until,
    )
    shared = set(test["incident_id"].drop_nulls())
    known = known.filter(~pl.col("incident_id").is_in(shared).fill_null(value=False))
    model = train(known, feature_names=NAMES, task=TASK, spec=trial.spec)
    found = average_precision_score(test["label"], model.raw_scores(test))
    assert trial.average_precisions[0] == pytest.approx(found)


def test_what_is_not_searched_is_kept_from_the_start(rows) -> None:
    start = replace(START_SPEC, seeds=(3, 4), negative_share=0.5, monotone=((NAMES[2], 1),))
    found = search_in(rows, replace(SEARCH, start=start, trials=2))
    for trial in found.trials:
        assert replace(trial.spec, **spec_values(start)) == start
    assert set(spec_values(start)) == set(SEARCHED)


def test_one_trial_keeps_the_start(rows) -> None:
    assert search_in(rows, replace(SEARCH, trials=1)).spec == START_SPEC


def test_without_enough_incidents_before_any_origin_there_is_nothing_to_search_on(rows) -> None:
    cold = replace(SEARCH, start=replace(START_SPEC, min_incidents=1_000))
    with pytest.raises(TooFewIncidentsError, match="none of 2 inner origins has 1000 incidents"):
        search_in(rows, cold)


def test_a_record_that_begins_after_the_moment_is_a_cold_start(rows) -> None:
    with pytest.raises(TooFewIncidentsError, match="of 0 rows"):
        search_in(rows, replace(SEARCH, before=START))


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"n_origins": 0}])
def test_a_search_that_can_find_nothing_is_refused(wrong) -> None:
    with pytest.raises(DataError, match="at least 1"):
        replace(SEARCH, **wrong)
