"""Rules of learning from synthetic fleets that fail often."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from models.training.uncertain import WEIGHT
from pipelines.studies.fleet.learning import TRACE, busy_times, thinned, weighed
from pipelines.studies.fleet.plan import StudyPlan
from simulation.fleet.generate import simulate_failures
from simulation.regimes.load import load_regime

T0 = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
BUSY = pl.DataFrame(
    {"node": ["n", "n"], "start": [T0, T0 + DAY], "end": [T0 + 2 * DAY, T0 + 3 * DAY]},
    schema_overrides=dict.fromkeys(("start", "end"), pl.Datetime("us", "UTC")),
)


def rows(*told: tuple[str, float, int | None]) -> pl.DataFrame:
    return pl.DataFrame(
        [(node, T0 + days * DAY, label) for node, days, label in told],
        schema={"node": pl.String, "as_of": pl.Datetime("us", "UTC"), "label": pl.Int8},
        orient="row",
    )


def test_only_quiet_rows_without_a_failure_weigh_as_much_as_the_density() -> None:
    given = rows(("n", 1.5, 0), ("n", 3.5, 0), ("m", 1.5, 0), ("m", 1.5, 1), ("m", 2.0, None))
    told = weighed(given, BUSY, density=12.0)
    assert told.drop(WEIGHT, "is_quiet").equals(given)
    assert told[WEIGHT].to_list() == [1.0, 12.0, 12.0, 1.0, 1.0]


def test_thinned_rows_keep_their_total_weight() -> None:
    plan = StudyPlan(quiet_share=0.1, busy_share=0.5)
    many = rows(*[(node, 1.0, label) for node in "nm" for label in (0, 1, None)] * 2000)
    told = weighed(many, BUSY, density=12.0)
    kept = thinned(told, plan=plan, rng=np.random.default_rng(1))
    assert kept.filter(pl.col("label") == 1).height == 4000
    assert kept["label"].null_count() == 0
    for node, share in (("n", 0.5), ("m", 0.1)):
        part, whole = (
            of.filter(pl.col("node") == node, pl.col("label") == 0) for of in (kept, told)
        )
        assert part.height == pytest.approx(share * whole.height, rel=0.2)
        assert part[WEIGHT].sum() == pytest.approx(whole[WEIGHT].sum(), rel=0.2)


def test_a_node_is_busy_from_its_signs_on_until_no_feature_shows_them() -> None:
    fleet = simulate_failures(load_regime("demo").with_size(nodes=4, days=20), seed=1)
    told = busy_times(fleet, name="s")
    signs = [
        sign
        for one in fleet.nodes
        for sign in (*(i.precursor for i in one.incidents if i.precursor), *one.decoys)
    ]
    assert told.height == len(signs) > 0
    assert told["start"].min() == fleet.moment(min(sign.start_s for sign in signs))
    assert told["end"].max() == fleet.moment(max(sign.end_s for sign in signs)) + TRACE
    assert told["node"].str.starts_with("s/").all()
