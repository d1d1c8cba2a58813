"""Rules of the study of synthetic fleets."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.errors import DataError
from models.evaluation.row_metrics import Bootstrap
from models.specs import TrainSpec
from pipelines.studies.fleet import study
from pipelines.studies.fleet.cache import ToldShard
from pipelines.studies.fleet.plan import StudyPlan
from pipelines.studies.fleet.shards import TICK, Stretch
from pipelines.studies.fleet.words import study_in_words


@pytest.mark.parametrize(
    "seeds",
    [
        {"train_seeds": (1,), "valid_seeds": (1,)},
        {"train_seeds": (21,)},
        {"valid_seeds": (22,)},
        {"valid_seeds": ()},
    ],
)
def test_no_fleet_serves_two_purposes(seeds: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="differ"):
        StudyPlan(**seeds)


def test_the_ceiling_has_the_budget_of_a_node_on_every_unit() -> None:
    assert StudyPlan(budget=10.0).reader_budget * 1000 * 24 == pytest.approx(10.0)


DENSE = 12.0
"""Times the failures of the regime: a small fleet for a short time then has enough of them."""


def test_quiet_hours_weigh_more_the_rarer_failures_are_where_it_is_judged() -> None:
    assert StudyPlan(density=12.0, hazards=4.0).dilution == 3.0


@pytest.mark.slow
def test_stretches_are_one_record_and_the_same_when_they_are_kept(tmp_path: Path) -> None:
    plan = StudyPlan(nodes=4, days=20, density=DENSE, horizons_h=(24,))
    spec = study.study_matrix("standard")

    def told(cache: Path | None) -> tuple[ToldShard, list[Stretch]]:
        (shard,) = (
            (shard, list(shard.stretches))
            for shard in study.shards_of(plan, spec, regime="h100", seeds=(1,), cache=cache)
        )
        return shard

    shard, parts = told(None)
    moments = pl.concat(part.matrix for part in parts)["as_of"].unique().sort()
    assert len(parts) == 3
    assert moments.len() == 19 * 24
    assert (moments.diff().drop_nulls() == TICK).all()
    # Windows reach over the edge of a stretch: its first rows know the days before it.
    first = parts[1].matrix.filter(pl.col("as_of") == pl.col("as_of").min())
    assert first["sample_coverage_24h"].max() == pytest.approx(1.0, abs=0.05)
    assert first["node"].str.starts_with("1.0/").all()
    assert told(tmp_path)[1][0].matrix.equals(parts[0].matrix)
    kept, again = told(tmp_path)
    assert kept.incidents.equals(shard.incidents)
    assert kept.truth.incidents == shard.truth.incidents
    for one, other in zip(again, parts, strict=True):
        assert one.matrix.equals(other.matrix)
        assert one.labels.equals(other.labels)


@pytest.mark.slow
def test_a_small_study_learns_tunes_and_judges() -> None:
    plan = StudyPlan(
        train_seeds=(1,),
        valid_seeds=(2,),
        test=(("h100", (3,)),),
        nodes=32,
        days=30,
        density=DENSE,
        hazards=DENSE,
        horizons_h=(24,),
        budget=100.0,
        spec=TrainSpec(min_incidents=1),
        bootstrap=Bootstrap(resamples=20),
    )
    judged = study.run_study(plan, say=lambda _: None)
    assert [(one.regime, one.policy) for one in judged] == [("h100", "budget"), ("h100", "strict")]
    events, everything = judged[0].events, judged[0].classes[0]
    assert events is not None
    assert everything.fault_type == "all"
    assert everything.n_incidents == events.n_incidents > 20
    assert everything.n_caught == events.n_caught
    assert 1.0 < judged[0].clustering < events.n_alerts  # a node alarms more than once
    assert everything.ceiling is not None
    assert 0.1 < everything.ceiling < 1.0
    assert everything.by_signs is not None
    assert everything.by_record is not None
    assert everything.by_signs < everything.by_record
    assert "| all |" in study_in_words(plan, judged)
    json.dumps([one.to_dict() for one in judged] + [plan.to_dict()])
