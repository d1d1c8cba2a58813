"""Rules of making a candidate, from matrix and labels to a judged bundle."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from features.tables import LABELS
from models.bundle import ModelBundle, bundle_from_documents
from models.candidate.build import (
    NEVER_ALERT,
    Candidate,
    CandidatePlan,
    build_candidate,
    gate_against,
)
from models.candidate.card_words import card_text
from models.evaluation.row_metrics import Bootstrap
from models.policies.warnings import raise_alerts
from models.specs import SiteChoice, TrainSpec
from models.training.boosters import TooFewIncidentsError
from models.training.splits import Origin

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def plan(rows: pl.DataFrame, bundle: ModelBundle) -> CandidatePlan:
    start = rows["as_of"].min()
    return CandidatePlan(
        task=bundle.model.task,
        spec=TrainSpec(rounds=30, min_data_in_leaf=20, min_incidents=10),
        origin=Origin(start + 72 * HOUR, start + 110 * HOUR, start + 150 * HOUR),
        tick=HOUR,
        alerts_per_1000_nodes_per_day=1000,
        bootstrap=Bootstrap(resamples=40),
    )


@pytest.fixture(scope="module")
def inputs(rows: pl.DataFrame, incidents: pl.DataFrame, bundle: ModelBundle) -> dict[str, Any]:
    """Arguments of `build_candidate` but the plan."""
    gpu = rows.with_columns(entity_kind=pl.lit("gpu"), horizon_h=pl.lit(6, dtype=pl.Int32))
    node = (
        gpu.sort("label", "entity_id", descending=[True, False])
        .unique(["node", "as_of"], keep="first", maintain_order=True)
        .with_columns(entity_kind=pl.lit("node"), entity_id=pl.col("node"))
    )
    wanted = [name for name in LABELS.schema.names() if name in gpu.columns]
    return {
        "matrix": rows.select("entity_id", "as_of", "node", *bundle.model.feature_names),
        "labels": pl.concat([gpu.select(wanted), node.select(wanted)]),
        "incidents": incidents,
        "features": bundle.features,
    }


@pytest.fixture(scope="module")
def made(inputs: dict[str, Any], plan: CandidatePlan) -> Candidate:
    return build_candidate(**inputs, plan=plan)


def learned(candidate: Candidate) -> Mapping[str, str]:
    """All that may be learned: every document but the card, which holds the test's results."""
    documents = candidate.bundle.to_documents()
    return {name: text for name, text in documents.items() if name != "card.json"}


def test_a_signal_is_found_and_beats_the_baselines(made) -> None:
    assert made.gpu_evaluation.all_rows.auc.value > 0.85
    assert made.node_evaluation.all_rows.auc.value > 0.75
    assert made.events["gpu"].n_caught > 0
    assert made.gate.is_accepted
    assert made.gains["history count"].low > 0


def test_the_parts_follow_each_other_an_embargo_apart_and_no_row_is_lost(
    made, plan, inputs
) -> None:
    model = made.bundle.model
    for part in (made.gpu_test, made.node_test):
        assert part["as_of"].min() == plan.origin.valid_until
        assert part["as_of"].max() < plan.origin.test_until
    assert model.data_span[1] + plan.task.embargo <= plan.origin.train_until
    used = model.n_rows + model.calibration.n_rows + made.gpu_test.height
    assert used + sum(made.dropped.values()) == inputs["matrix"].height


def test_two_runs_are_identical(made, inputs, plan) -> None:
    again = build_candidate(**inputs, plan=plan)
    assert again.bundle.fingerprint == made.bundle.fingerprint
    assert again.gpu_test.equals(made.gpu_test)
    assert again.events == made.events


def test_the_order_of_rows_changes_nothing(made, inputs, plan) -> None:
    turned = {
        name: inputs[name].sample(fraction=1.0, shuffle=True, seed=1)
        for name in ("matrix", "labels")
    }
    again = build_candidate(**(inputs | turned), plan=plan)
    assert again.bundle.fingerprint == made.bundle.fingerprint


def test_nothing_learned_or_chosen_depends_on_the_time_of_the_test(made, inputs, plan) -> None:
    is_test = pl.col("as_of") >= plan.origin.valid_until
    flipped = inputs["labels"].with_columns(
        label=pl.when(is_test).then(1 - pl.col("label")).otherwise("label").cast(pl.Int8),
        fault_type=pl.when(is_test).then(pl.lit("pcie")).otherwise("fault_type"),
    )
    heat = pl.col("gpu_temp_c_max_24h")
    noise = inputs["matrix"].with_columns(
        pl.when(is_test).then(0.0).otherwise(heat).cast(pl.Float32).alias("gpu_temp_c_max_24h")
    )
    before = inputs["incidents"].filter(pl.col("start") < plan.origin.valid_until)
    other = inputs | {"labels": flipped, "matrix": noise, "incidents": before}
    again = build_candidate(**other, plan=plan)
    assert learned(again) == learned(made)
    assert again.thresholds == made.thresholds
    assert again.gpu_evaluation.all_rows.auc.value < 0.6  # what was changed is judged


def test_validation_labels_calibrate_and_leave_the_boosters_alone(made, inputs, plan) -> None:
    origin, as_of = plan.origin, pl.col("as_of")
    is_valid = as_of.is_between(origin.train_until, origin.valid_until, closed="left")
    is_even = as_of.dt.hour() % 2 == 0
    rarer = inputs["labels"].with_columns(
        label=pl.when(is_valid & is_even).then(0).otherwise("label").cast(pl.Int8)
    )
    again = build_candidate(**(inputs | {"labels": rarer}), plan=plan)
    assert learned(again)["booster_0.txt"] == learned(made)["booster_0.txt"]
    assert learned(again)["calibration.json"] != learned(made)["calibration.json"]
    assert again.gpu_test["score"].mean() < 0.8 * made.gpu_test["score"].mean()


def test_scores_are_calibrated_probabilities(made, rows, plan) -> None:
    valid = rows.filter(
        pl.col("as_of") >= plan.origin.train_until,
        pl.col("as_of") + plan.task.embargo <= plan.origin.valid_until,
    )
    said = made.bundle.model.scores(valid)
    assert said.mean() == pytest.approx(valid["label"].mean(), rel=0.05)
    assert made.gpu_test["score"].is_between(0.0, 1.0, closed="none").all()


def test_node_scores_combine_the_scores_of_their_gpus(made) -> None:
    combined = made.bundle.nodes.combine(made.gpu_test).select("node", "as_of", "score")
    both = made.node_test.join(combined, on=["node", "as_of"])
    assert both.height == made.node_test.height == 10 * 40
    assert both["score"].to_list() == both["score_right"].to_list()


def test_a_node_that_could_not_be_scored_is_counted_not_lost(inputs, plan, made) -> None:
    is_gone = (pl.col("node") == "node-3") & (pl.col("as_of") >= plan.origin.valid_until)
    again = build_candidate(**(inputs | {"matrix": inputs["matrix"].filter(~is_gone)}), plan=plan)
    assert again.node_test.height == made.node_test.height
    assert again.node_evaluation.all_rows.n_unscored == 40


def test_the_threshold_is_the_policys_and_its_alerts_are_those_judged(made, plan) -> None:
    for kind in ("gpu", "node"):
        choice, policy = made.thresholds[kind], made.bundle.policies[kind]
        assert policy.threshold == choice.threshold
        assert (policy.n, policy.k) in plan.persistence
        assert policy.cooldown in plan.cooldowns
    alerts = raise_alerts(made.gpu_test, made.bundle.policies["gpu"])
    assert made.events["gpu"].n_alerts == alerts.height > 0


def test_where_no_threshold_keeps_the_budget_none_alerts(inputs, plan) -> None:
    # One tick above is an alert, and a thousandth of an alert is allowed.
    strict = replace(plan, alerts_per_1000_nodes_per_day=0.001, persistence=((1, 1),))
    found = build_candidate(**inputs, plan=strict)
    assert found.thresholds["gpu"].threshold is None
    assert found.bundle.policies["gpu"].threshold == NEVER_ALERT > 1.0
    assert found.events["gpu"].n_alerts == 0


def test_each_baseline_is_judged_and_the_gain_is_the_models_over_it(made) -> None:
    ours = made.gpu_evaluation.all_rows.average_precision.value
    available = {name for name, one in made.baselines.items() if one is not None}
    assert made.baselines["last Xid"] is None  # no such column here
    assert set(made.gains) == available >= {"base rate", "logistic regression", "oracle"}
    for name in available:
        theirs = made.baselines[name].all_rows.average_precision.value
        assert made.gains[name].value == pytest.approx(ours - theirs)
        assert made.gains[name].low <= made.gains[name].value <= made.gains[name].high
    assert made.gains["oracle"].high < 0


def test_the_card_tells_what_the_candidate_tells(made) -> None:
    card = json.loads(made.bundle.to_documents()["card.json"])
    assert card["gains"]["never"]["value"] == made.gains["never"].value
    assert card["test"]["all_rows"]["auc"]["value"] == made.gpu_evaluation.all_rows.auc.value
    assert card["test_nodes"]["all_rows"]["n_rows"] == made.node_evaluation.all_rows.n_rows
    names = {"gpu", "node", "node_high_precision"}
    assert set(card["events"]) == set(card["thresholds"]) == names
    assert card["events"]["node"]["top_unit"] == made.events["node"].top_unit
    assert card["calibration"]["check"]["slope"]["value"] == made.calibration["gpu"].slope.value
    assert card["calibration_nodes"]["log_loss"] == made.calibration["node"].log_loss
    assert set(card["baselines"]) == set(card["gains"])


@pytest.mark.parametrize(
    ("ensemble", "said"), [("parallel", "Parallel ensemble"), ("cascade", "Cascade")]
)
def test_an_ensemble_scores_as_stored_and_leaves_the_boosters_to_the_reasons(
    inputs, plan, made, ensemble, said
) -> None:
    asked = replace(plan, choice=SiteChoice(ensemble=ensemble))
    other = build_candidate(**inputs, plan=asked)
    again = bundle_from_documents(other.bundle.to_documents())
    scores = other.gpu_test["score"]
    assert (again.model.scores(other.gpu_test) == scores.to_numpy()).all()
    assert again.fingerprint == other.bundle.fingerprint != made.bundle.fingerprint
    assert (scores != made.gpu_test["score"]).mean() > 0.5
    assert learned(other)["booster_0.txt"] == learned(made)["booster_0.txt"]
    assert other.gpu_evaluation.all_rows.auc.value > 0.85
    assert said in card_text(other.bundle.card)


def test_a_span_of_days_is_all_that_is_learned_from(inputs, plan, made) -> None:
    short = build_candidate(**inputs, plan=replace(plan, choice=SiteChoice(span=2)))
    first = plan.origin.train_until - 48 * HOUR
    assert short.bundle.model.data_span == (first, made.bundle.model.data_span[1])
    assert short.gpu_test.drop("score").equals(made.gpu_test.drop("score"))
    assert "Learned from the last 2 d before the cut." in card_text(short.bundle.card)


def test_the_card_says_why_auto_kept_everything(inputs, plan) -> None:
    asked = replace(plan, choice=SiteChoice(span="auto"))
    card = bundle_from_documents(build_candidate(**inputs, plan=asked).bundle.to_documents()).card
    assert "earlier origins had too few incidents to judge a shorter stretch" in card_text(card)
    judged = [{"days": 2.0, "by_origin": [0.1, 0.2]}, {"days": None, "by_origin": [0.2, 0.1]}]
    other = {**card, "training": {**card["training"], "average_precision": judged}}
    assert "no shorter stretch was better beyond chance" in card_text(other)


def test_the_card_tells_the_recall_ceiling_where_it_is_known(inputs, plan, made) -> None:
    known = build_candidate(**inputs, plan=replace(plan, ceilings={"all": 0.54, "thermal": 0.6}))
    assert "54 % of the failures of GPUs announce themselves in time" in card_text(
        known.bundle.card
    )
    assert "announce" not in card_text(made.bundle.card)
    assert learned(known) == learned(made)


def test_a_candidate_equal_to_the_champion_does_not_replace_it(made) -> None:
    found = gate_against(made, made.bundle)
    assert (found.is_accepted, found.difference.value) == (False, 0.0)


def test_a_champion_whose_features_are_built_no_more_is_nothing_to_beat(made) -> None:
    columns = replace(made, gpu_test=made.gpu_test.drop("power_w_mean_24h"))
    found = gate_against(columns, made.bundle)
    assert found.is_accepted == made.gate.is_accepted
    assert "features are not built (power_w_mean_24h)" in found.reason


def test_a_site_with_few_incidents_is_told_so(inputs, plan) -> None:
    few = replace(plan, spec=replace(plan.spec, min_incidents=500))
    with pytest.raises(TooFewIncidentsError, match="needed 500"):
        build_candidate(**inputs, plan=few)
