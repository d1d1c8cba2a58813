"""Rules of the model card."""

import json
from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest

from models.candidate.card import SYNTHETIC_LIMIT, build_card
from models.evaluation.row_metrics import Bootstrap, Evaluation, evaluate
from models.policies.thresholds import ThresholdChoice


@pytest.fixture(scope="module")
def evaluation(rows, model) -> Evaluation:
    scored = rows.with_columns(score=pl.Series(model.scores(rows)))
    return evaluate(scored, bootstrap=Bootstrap(resamples=20))


def test_a_card_is_plain_values_and_equal_for_equal_inputs(model, evaluation) -> None:
    cards = [
        build_card(
            model,
            evaluation=evaluation,
            baselines={"base rate": evaluation},
            thresholds={"gpu": ThresholdChoice(0.5, "by budget", 3)},
        )
        for _ in range(2)
    ]
    assert cards[0] == cards[1]
    json.dumps(cards[0], allow_nan=False)


def test_a_model_of_a_synthetic_fleet_says_so_first(model, evaluation) -> None:
    synthetic = build_card(model, evaluation=evaluation, baselines={})
    real = build_card(
        replace(model, task=replace(model.task, trained_on="real")),
        evaluation=evaluation,
        baselines={},
    )
    assert synthetic["limits"][0] == SYNTHETIC_LIMIT
    assert SYNTHETIC_LIMIT not in real["limits"]


def test_few_incidents_are_a_limit(model, evaluation) -> None:
    few = build_card(replace(model, n_incidents=40), evaluation=evaluation, baselines={})
    many = build_card(replace(model, n_incidents=400), evaluation=evaluation, baselines={})
    assert any("40 incidents" in limit for limit in few["limits"])
    assert not any("400 incidents" in limit for limit in many["limits"])


def test_what_the_caller_knows_is_a_limit_too(model, evaluation) -> None:
    card = build_card(model, evaluation=evaluation, baselines={}, limits=["No NVLink counters."])
    assert "No NVLink counters." in card["limits"]


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (0, "Judged on 0 incidents of the test: its numbers and intervals prove nothing."),
        (5, "Judged on 5 incidents of the test: its numbers and intervals prove nothing."),
        (6, "Judged on 6 incidents of the test; intervals are wide."),
    ],
)
def test_few_incidents_in_the_test_are_a_limit(model, evaluation, n, words) -> None:
    events = {"gpu": SimpleNamespace(n_incidents=n, to_dict=dict)}
    card = build_card(model, evaluation=evaluation, baselines={}, events=events)
    assert words in card["limits"]
