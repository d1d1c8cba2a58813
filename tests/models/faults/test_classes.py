"""Rules of judging each fault type by itself."""

import json
from dataclasses import replace

import polars as pl
import pytest

from models.evaluation.row_metrics import Bootstrap
from models.faults.classes import FaultClass, judge_fault_classes


@pytest.fixture(scope="module")
def judged(rows, model, bundle) -> dict[str, FaultClass]:
    is_even = pl.col("node").str.slice(5).cast(pl.Int64) % 2 == 0
    found = judge_fault_classes(
        rows.filter(is_even),
        rows.filter(~is_even),
        model=model,
        kinds=bundle.fault_types,
        bootstrap=Bootstrap(resamples=40),
        own_model_incidents=10,
    )
    return {one.fault_type: one for one in found}


def test_each_fault_type_of_training_or_test_is_judged(judged, rows) -> None:
    known = rows.filter(pl.col("label") == 1)["fault_type"].drop_nulls()
    assert set(judged) == set(known)
    assert sum(one.n_train + one.n_test for one in judged.values()) == len(
        set(rows.filter(pl.col("label") == 1)["incident_id"])
    )


def test_a_type_whose_signs_are_seen_is_foreseen_and_beats_history(judged) -> None:
    for one in judged.values():
        assert one.auc.low > 0.7
        assert one.is_foreseen
        assert one.beats_history
        assert one.prevalence < one.average_precision.value


def test_a_model_of_its_own_is_held_against_the_score_and_the_forecast(judged) -> None:
    for one in judged.values():
        gain = one.own_gain
        assert gain.low <= gain.value <= gain.high
        assert one.needs_own_model == (gain.low > 0)
        # Heat tells failures, power the type: the score alone cannot tell the types apart.
        assert one.own_gain_on_score.value > 0


def test_few_incidents_give_no_model_of_its_own(rows, model, bundle) -> None:
    (first, *_) = judge_fault_classes(
        rows, rows, model=model, kinds=bundle.fault_types, bootstrap=Bootstrap(resamples=5),
        own_model_incidents=10_000,
    )  # fmt: skip
    assert first.own_gain.value is None
    assert "no model of its own" in first.in_words()


def test_a_type_the_test_never_saw_is_said_to_be_unknown(rows, model, bundle) -> None:
    test = rows.filter((pl.col("fault_type") != "thermal").fill_null(value=True))
    found = judge_fault_classes(
        rows, test, model=model, kinds=bundle.fault_types, bootstrap=Bootstrap(resamples=5),
        own_model_incidents=None,
    )  # fmt: skip
    (thermal,) = [one for one in found if one.fault_type == "thermal"]
    assert thermal.in_words() == "thermal: no failure of it in the test, nothing can be said."


def test_of_few_test_incidents_nothing_is_claimed(judged) -> None:
    few = replace(next(iter(judged.values())), n_test=9)
    assert (few.is_foreseen, few.beats_history, few.needs_own_model) == (False, False, False)
    assert few.in_words().endswith("9 incidents in the test, too few to say.")


def test_the_result_is_plain_values_with_a_verdict_in_words(judged) -> None:
    said = json.loads(json.dumps([one.to_dict() for one in judged.values()]))
    assert all("foreseen" in one["words"] for one in said)
