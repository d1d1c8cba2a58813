"""Leak drills: each leak is planted, run through the product's own path, and caught or harmless."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from features.registry import Feature
from features.tables import LABELS
from models.bundle import ModelBundle
from models.candidate.build import Candidate, CandidatePlan, build_candidate, gate_against
from models.evaluation.row_metrics import Bootstrap
from models.specs import TrainSpec
from models.training.splits import Origin

HOUR = timedelta(hours=1)
LEAK = Feature("leak", "history", "1", None, "Knows the future", (), "")


@pytest.fixture(scope="module")
def plan(rows: pl.DataFrame, bundle: ModelBundle) -> CandidatePlan:
    start = rows["as_of"].min()
    return CandidatePlan(
        task=bundle.model.task,
        spec=TrainSpec(rounds=20, min_data_in_leaf=20, min_incidents=10),
        origin=Origin(start + 72 * HOUR, start + 110 * HOUR, start + 150 * HOUR),
        tick=HOUR,
        alerts_per_1000_nodes_per_day=1000,
        bootstrap=Bootstrap(resamples=40),
    )


def given(rows: pl.DataFrame, incidents: pl.DataFrame, bundle: ModelBundle) -> dict[str, Any]:
    """Arguments of `build_candidate` but the plan, from rows with features and labels."""
    gpu = rows.with_columns(entity_kind=pl.lit("gpu"), horizon_h=pl.lit(6, dtype=pl.Int32))
    node = (
        gpu.sort("label", "entity_id", descending=[True, False])
        .unique(["node", "as_of"], keep="first", maintain_order=True)
        .with_columns(entity_kind=pl.lit("node"), entity_id=pl.col("node"))
    )
    wanted = [name for name in LABELS.schema.names() if name in gpu.columns]
    features = (*bundle.features, *((LEAK,) if "leak" in rows.columns else ()))
    return {
        "matrix": rows.select("entity_id", "as_of", "node", *(f.name for f in features)),
        "labels": pl.concat([gpu.select(wanted), node.select(wanted)]),
        "incidents": incidents,
        "features": features,
    }


@pytest.fixture(scope="module")
def make(rows, incidents, bundle, plan):
    """Makes a candidate from rows, with the plan or a changed one."""

    def made(changed: pl.DataFrame, **changes: object) -> Candidate:
        inputs = given(changed, incidents, bundle)
        return build_candidate(**inputs, plan=replace(plan, **changes))

    return made


@pytest.fixture(scope="module")
def honest(make, rows) -> Candidate:
    return make(rows)


def learned(candidate: Candidate) -> Mapping[str, str]:
    documents = candidate.bundle.to_documents()
    return {name: text for name, text in documents.items() if name.startswith("booster")}


def test_an_honest_strong_model_is_not_held_back(honest) -> None:
    assert honest.gpu_evaluation.all_rows.auc.value > 0.85
    assert honest.leaks.suspicions == ()
    assert honest.gate.is_accepted


def test_shuffled_labels_teach_nothing_and_no_such_candidate_is_let_in(make, rows) -> None:
    dealt = ["label", "fault_type", "incident_id", "censored_by"]
    order = pl.int_range(pl.len()).shuffle(seed=3)
    made = make(rows.with_columns(pl.col(dealt).gather(order).over("as_of")))
    assert made.gpu_evaluation.all_rows.auc.value == pytest.approx(0.5, abs=0.06)
    assert not made.gate.is_accepted


def poisoned(rows: pl.DataFrame, *, noise: float) -> pl.DataFrame:
    """Rows with a column that tells the outcome, more or less clearly."""
    blur = np.random.default_rng(1).normal(0.0, noise, rows.height)
    return rows.with_columns(leak=(pl.col("label") + pl.Series(blur)).cast(pl.Float32))


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_column_that_holds_the_label_is_named_and_its_candidate_held_back(
    make, rows, noise
) -> None:
    made = make(poisoned(rows, noise=noise))
    assert any("leak (" in said for said in made.leaks.suspicions)
    assert not made.gate.is_accepted
    assert made.gate.reason.startswith("Looks like a leak: ")
    assert any(said.startswith("Looks like a leak") for said in made.bundle.card["limits"])


def test_a_column_that_half_tells_the_label_is_brought_to_notice(make, rows) -> None:
    made = make(poisoned(rows, noise=0.45))
    assert any("leak (" in said for said in made.leaks.notices)
    assert any(said.startswith("Look into this") for said in made.bundle.card["limits"])


def test_time_to_the_next_incident_is_named_by_where_it_is_unknown(make, rows, incidents) -> None:
    coming = rows.join(
        incidents.select("entity_id", "start"), on="entity_id", how="left", maintain_order="left"
    ).with_columns(hours=(pl.col("start") - pl.col("as_of")).dt.total_minutes() / 60)
    soon = coming.filter(pl.col("hours").is_between(0.5, 6.5, closed="left"))
    next_in = soon.group_by("entity_id", "as_of").agg(pl.col("hours").min().alias("leak"))
    told = rows.join(next_in, on=["entity_id", "as_of"], how="left", maintain_order="left")
    made = make(told.with_columns(pl.col("leak").cast(pl.Float32)))
    assert made.leaks.alone[0] == ("leak", pytest.approx(1.0))
    assert any("not plausible" in said for said in made.leaks.suspicions)
    assert not made.gate.is_accepted


def test_a_person_may_accept_what_looks_like_a_leak(make, rows) -> None:
    made = make(poisoned(rows, noise=0.3), accept_leak_suspects=True)
    assert made.gate.is_accepted
    assert "Accepted although" in made.gate.reason
    assert made.bundle.card["leaks"]["is_accepted"] is True


def test_a_suspect_does_not_pass_by_beating_the_champion_either(make, rows, honest) -> None:
    decision = gate_against(make(poisoned(rows, noise=0.3)), honest.bundle)
    assert not decision.is_accepted
    assert decision.reason.startswith("Looks like a leak")


def test_an_incident_on_both_sides_of_a_cut_stays_in_the_later_part(make, rows, plan) -> None:
    cut = plan.origin.valid_until
    sides = [pl.col("as_of") < cut - 8 * HOUR, pl.col("as_of") >= cut]
    ids = [rows.filter(side, pl.col("label") == 1)["incident_id"].sort()[0] for side in sides]
    same = pl.col("incident_id").replace(ids[0], ids[1])
    made = make(rows.with_columns(same))
    assert made.dropped["incident_in_later_part"] > 0
    assert ids[1] in set(made.gpu_test["incident_id"])


def test_one_failure_recorded_twice_teaches_nothing_more(make, rows, honest) -> None:
    # Two records of one failure: half of its rows name the one, half the other.
    is_odd = pl.col("as_of").dt.hour() % 2 == 1
    twice = pl.when(is_odd).then(pl.col("incident_id") + "-again").otherwise("incident_id")
    made = make(rows.with_columns(twice.alias("incident_id")))
    assert learned(made) == learned(honest)
    # The embargo, not the id, keeps the parts apart: what is seen before a cut began before it.
    assert made.gpu_evaluation.all_rows.auc.value == honest.gpu_evaluation.all_rows.auc.value


def test_who_an_entity_is_shows_as_memory_on_entities_never_seen(make, rows) -> None:
    place = pl.col("entity_id").str.slice(4).cast(pl.Int64)
    lemons = (place % 2 == 0) & (place < 20)  # these fail twice, the others never
    is_kept = pl.when(lemons)
    noise = pl.Series(np.random.default_rng(2).normal(0, 1, rows.height), dtype=pl.Float32)
    changed = rows.with_columns(
        pl.col("power_w_mean_24h") * 0 + noise,
        pl.col("gpu_temp_c_max_24h") * 0 + noise.reverse(),
        label=is_kept.then("label").otherwise(0).cast(pl.Int8),
        incident_id=is_kept.then("incident_id"),
        fault_type=is_kept.then("fault_type"),
        leak=((place * 104729) % 997).cast(pl.Float32),
    )
    spec = TrainSpec(
        rounds=60, num_leaves=31, min_data_in_leaf=20, min_incidents=4, feature_fraction=1.0
    )
    made = make(changed, spec=spec)
    assert made.leaks.unseen_auc.value < 0.6 < made.gpu_evaluation.all_rows.auc.value
    assert any("memory of who failed before" in said for said in made.leaks.notices)
