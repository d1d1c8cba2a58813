"""Rules of the model card in words, and of a version's page."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from models.candidate.card import CardCompany, build_card, seen_until
from models.candidate.card_sections import Table
from models.candidate.card_words import card_html, card_markdown, card_text, text_table
from models.drift.inputs import fit_reference
from models.evaluation.row_metrics import Bootstrap, evaluate
from models.registry.version_page import Standing, page_metrics, page_params

AT = datetime(2026, 2, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def card(rows, model, bundle) -> dict:
    scored = rows.with_columns(score=pl.Series(model.scores(rows)))
    found = evaluate(scored, bootstrap=Bootstrap(resamples=20))
    company = CardCompany(
        features=bundle.features,
        reference=fit_reference(rows, model.feature_names),
        seen_until=AT,
        ceilings={"thermal": 0.6},
        tuning={"sampler": "TPE", "n_trials": 40, "seeds": [1, 2]},
    )
    return build_card(
        model, evaluation=found, baselines={"base rate": found}, company=company, limits=["<b>&_x_"]
    )


def test_each_form_says_what_the_others_say(card) -> None:
    page = card_html(card, title="t", figures=[("<svg/>", "a plot")])
    for words in (
        "Trained on synthetic data",
        "earlier incidents",
        "num_leaves 31".replace("_", "{}"),
        "n trials 40",
        "before 2026-02-01 00:00 UTC",
    ):
        assert words.format("_") in card_text(card)
        assert words.format("\\_") in card_markdown(card)
        assert words.format("_") in page
    assert "<figure><svg/><figcaption>a plot" in page


def test_text_from_outside_is_shown_and_never_read_as_markup(card) -> None:
    assert "&lt;b&gt;&amp;_x_" in card_html(card, title="t")
    assert r"\<b\>&\_x\_" in card_markdown(card)


def test_who_accepted_it_and_the_gates_word_are_on_the_card(card) -> None:
    standing = Standing(
        label="m/3",
        registered_at=AT,
        aliases=("champion",),
        gate="Average precision is better.",
        is_gate_passed=True,
        promoted_by="ann",
        promoted_at=AT.isoformat(),
        promoted_reason="shadowed for a week",
    )
    said = card_text(card, standing)
    assert "Gate: passed. Average precision is better." in said
    assert "Made champion by ann, 2026-02-01 00:00 UTC: shadowed for a week" in said
    assert "The gate was never asked" in card_text(card, replace(standing, gate=None))


def test_a_card_of_an_older_release_is_shown_as_far_as_it_goes(card) -> None:
    newer = ("features", "spec", "tuning", "ceilings", "fault_classes")
    older = {key: value for key, value in card.items() if key not in newer}
    older["calibration"] = {k: v for k, v in card["calibration"].items() if k != "check"}
    assert "AGAINST BASELINES" in card_text(older)
    assert "no model card" in card_text({"purpose": "test"})


@pytest.mark.parametrize(("n_test", "verdict"), [(9, "too few to tell"), (10, "yes")])
def test_a_verdict_on_few_incidents_is_no_verdict(card, n_test, verdict) -> None:
    sure = {"value": 0.9, "low": 0.8, "high": 1.0}
    one = {"fault_type": "thermal", "n_test": n_test, "auc": sure, "is_foreseen": True}
    one |= {"gain_on_history": sure, "beats_history": True}
    [line] = [
        line for line in card_text(card | {"fault_classes": [one]}).split("\n") if "thermal" in line
    ]
    assert line.count(verdict) == 2
    assert line.endswith("60 %")


def test_what_a_model_has_seen_ends_with_its_tuning_where_that_is_known(card) -> None:
    trained = AT - timedelta(days=9)
    assert seen_until(card, trained_until=trained) == AT
    assert seen_until({}, trained_until=trained) == trained


def test_metrics_have_their_intervals_and_parameters_are_text(card, bundle) -> None:
    metrics = page_metrics(card)
    assert metrics["gpu.auc_low"] <= metrics["gpu.auc"] <= metrics["gpu.auc_high"]
    assert page_params(bundle)["train.rounds"] == "30"
    assert all(isinstance(value, str) for value in page_params(bundle).values())


def test_columns_of_a_table_line_up() -> None:
    lines = text_table(Table(("a", "b"), (("long name", "1"), ("x", "22"))))
    assert len({len(line) for line in lines}) == 1
