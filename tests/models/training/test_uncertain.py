"""Rules of rows whose outcome our own action hid."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from features.tables import CORE_MAINTENANCE
from models.specs import TrainSpec
from models.training.boosters import train
from models.training.uncertain import WEIGHT, with_uncertain
from tests.models.conftest import NAMES, TASK

T0 = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hidden(*hours: float, why: str = "own_action") -> pl.DataFrame:
    rows = [("g", "n", T0 + hour * HOUR, None, why) for hour in hours]
    schema = {
        "entity_id": pl.String,
        "node": pl.String,
        "as_of": pl.Datetime("us", "UTC"),
        "label": pl.Int8,
        "censored_by": pl.String,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def own(start: float, end: float | None, kind: str = "own_action") -> pl.DataFrame:
    row = {"node": "n", "start": T0 + start * HOUR, "kind": kind, "reason": None}
    row["end"] = None if end is None else T0 + end * HOUR
    return pl.DataFrame([row], schema=CORE_MAINTENANCE.schema)


def added(rows: pl.DataFrame, maintenance: pl.DataFrame, weight: float = 0.7) -> list[tuple]:
    found = with_uncertain(rows, maintenance, horizon=6 * HOUR, uncertain_weight=weight)
    assert found.head(rows.height).drop(WEIGHT).equals(rows)
    assert (found[WEIGHT].head(rows.height) == 1.0).all()
    hours = ((pl.col("as_of") - T0) / HOUR).alias("hour")
    return found.tail(-rows.height).select(hours, "label", WEIGHT).rows()


def test_a_row_before_our_drain_is_a_positive_in_part_and_a_negative_in_part() -> None:
    assert added(hidden(5), own(9, 12)) == [(5, 1, 0.7), (5, 0, pytest.approx(0.3))]


@pytest.mark.parametrize("hour", [3.0, 9.0, 11.0, 12.0])
def test_rows_too_early_or_during_the_drain_stay_unknown(hour: float) -> None:
    assert added(hidden(hour), own(9, 12)) == []


def test_a_drain_that_goes_on_hides_all_that_follows() -> None:
    again = pl.concat([own(1, None), own(9, 12)])
    assert added(hidden(5), again) == []


def test_a_short_drain_within_a_long_one_does_not_end_it() -> None:
    both = pl.concat([own(1, 20), own(3, 4), own(9, 12)])
    assert added(hidden(5), both) == []


def test_what_others_did_is_no_uncertain_positive() -> None:
    assert added(hidden(5), own(9, 12, "maintenance")) == []
    assert added(hidden(5, why="maintenance"), own(9, 12)) == []


@pytest.mark.parametrize(("weight", "labels"), [(1.0, [1]), (0.0, [0])])
def test_a_certain_outcome_is_one_row(weight: float, labels: list[int]) -> None:
    assert [label for _, label, _ in added(hidden(5), own(9, 12), weight)] == labels


def test_a_weight_out_of_range_is_refused() -> None:
    with pytest.raises(DataError, match="must lie in 0 to 1"):
        with_uncertain(hidden(5), own(9, 12), horizon=HOUR, uncertain_weight=1.1)


def test_a_weight_counts_in_training_like_so_many_rows(rows) -> None:
    spec = TrainSpec(
        rounds=10, min_data_in_leaf=1, min_incidents=1, bagging_fraction=1.0, feature_fraction=1.0
    )
    hot = rows.filter(pl.col("label") == 1).head(40)
    twice = train(pl.concat([rows, hot]), feature_names=NAMES, task=TASK, spec=spec)
    key = ["entity_id", "as_of"]
    doubled = rows.join(
        hot.select(*key, two=pl.lit(2.0)), on=key, how="left", maintain_order="left"
    )
    weighed = doubled.with_columns(pl.col("two").fill_null(1.0).alias(WEIGHT))
    once = train(weighed, feature_names=NAMES, task=TASK, spec=spec)
    plain = train(rows, feature_names=NAMES, task=TASK, spec=spec)
    # Bins are cut by rows, not by weights: nearly the same, not to the bit.
    assert np.corrcoef(once.raw_scores(rows), twice.raw_scores(rows))[0, 1] > 0.98
    assert once.raw_scores(hot).mean() > plain.raw_scores(hot).mean()
    assert once.data_hash != plain.data_hash
