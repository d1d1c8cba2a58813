"""Rules of cutting rows by time and entity."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.contracts import UTC_TIME
from features.errors import DataError
from models.training.splits import (
    entity_fold,
    rolling_origins,
    split_by_time,
    without_shared_entities,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def frame(hours: list[int], incidents: list[str | None] | None = None) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "entity_id": [f"gpu-{i % 5}" for i in range(len(hours))],
            "as_of": [START + h * HOUR for h in hours],
            "incident_id": incidents or [None] * len(hours),
        },
        schema_overrides={"as_of": UTC_TIME, "incident_id": pl.String},
    )


def cut(rows: pl.DataFrame, *, train: int, valid: int, test: int, embargo: int = 3):
    return split_by_time(
        rows,
        train_until=START + train * HOUR,
        valid_until=START + valid * HOUR,
        test_until=START + test * HOUR,
        embargo=embargo * HOUR,
    )


def test_a_part_ends_an_embargo_before_the_next() -> None:
    split = cut(frame(list(range(30))), train=10, valid=20, test=28)
    hours = [part["as_of"].dt.hour().to_list() for part in (split.train, split.valid)]
    assert hours == [list(range(8)), list(range(10, 18))]
    assert split.test["as_of"].to_list() == [START + h * HOUR for h in range(20, 28)]
    assert split.dropped == {"embargo": 4, "after_test": 2, "incident_in_later_part": 0}


@given(
    hours=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    incidents=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=40, max_size=40),
    cuts=st.lists(st.integers(0, 60), min_size=3, max_size=3).map(sorted),
    embargo=st.integers(0, 12),
)
def test_parts_are_an_embargo_apart_and_share_no_incident(hours, incidents, cuts, embargo) -> None:
    rows = frame(hours, incidents[: len(hours)])
    split = cut(rows, train=cuts[0], valid=cuts[1], test=cuts[2], embargo=embargo)
    parts = [split.train, split.valid, split.test]
    for i, earlier in enumerate(parts):
        for later in parts[i + 1 :]:
            if earlier.height and later.height:
                assert earlier["as_of"].max() + embargo * HOUR <= later["as_of"].min()
            shared = set(earlier["incident_id"].drop_nulls()) & set(later["incident_id"])
            assert not shared
    assert sum(p.height for p in parts) + sum(split.dropped.values()) == rows.height


def test_cuts_out_of_order_are_refused() -> None:
    with pytest.raises(DataError, match="in order"):
        cut(frame([0]), train=10, valid=5, test=20)


def test_a_negative_embargo_is_refused() -> None:
    with pytest.raises(DataError, match="embargo"):
        cut(frame([0]), train=1, valid=2, test=3, embargo=-1)


def test_rolling_origins_end_at_the_last() -> None:
    origins = rolling_origins(
        first=START, last=START + 5 * HOUR, step=2 * HOUR, valid=HOUR, test=3 * HOUR
    )
    assert [o.train_until for o in origins] == [START, START + 2 * HOUR, START + 4 * HOUR]
    assert all(o.test_until - o.valid_until == 3 * HOUR for o in origins)


def test_an_origin_step_of_zero_is_refused() -> None:
    with pytest.raises(DataError, match="step"):
        rolling_origins(first=START, last=START, step=0 * HOUR, valid=HOUR, test=HOUR)


def test_an_entity_disjoint_split_tests_only_entities_it_never_trained_on() -> None:
    rows = pl.concat(
        [frame(list(range(30))).with_columns(entity_id=pl.lit(f"gpu-{i}")) for i in range(12)]
    )
    split = cut(rows, train=10, valid=20, test=30)
    disjoint = without_shared_entities(split, n_folds=3, test_fold=1)
    seen = set(disjoint.train["entity_id"]) | set(disjoint.valid["entity_id"])
    tested = set(disjoint.test["entity_id"])
    assert tested
    assert seen
    assert not seen & tested
    kept = disjoint.train.height + disjoint.valid.height + disjoint.test.height
    assert kept + sum(disjoint.dropped.values()) == rows.height


@given(ids=st.lists(st.text(min_size=1), min_size=1), n_folds=st.integers(1, 9))
def test_an_entity_always_has_the_same_fold(ids, n_folds) -> None:
    folds = entity_fold([*ids, *ids], n_folds=n_folds)
    assert folds[: len(ids)] == folds[len(ids) :]
    assert all(0 <= fold < n_folds for fold in folds)
