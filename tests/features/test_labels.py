"""Rules of labels and of the grid, against a plain-Python oracle."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError
from features.grid import as_of_times, watched_grid
from features.labels import LabelSpec, build_labels
from features.tables import CORE_INCIDENTS, CORE_INVENTORY, CORE_MAINTENANCE, LABELS

T0 = datetime(2026, 1, 5, tzinfo=UTC)
LEAD, HORIZON = 1, 4  # hours


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


def fill(contract: Any, *rows: dict[str, Any]) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **row} for row in rows], schema=contract.schema)


def stay(start: float | None, end: float | None, gpu: str = "g", node: str = "n") -> dict[str, Any]:
    return {
        "gpu_uuid": gpu,
        "node": node,
        "slot": "0",
        "valid_from": None if start is None else at(start),
        "valid_to": None if end is None else at(end),
    }


def incident(
    start: float, end: float | None, entity: str = "g", kind: str = "gpu", node: str = "n"
) -> dict[str, Any]:
    return {
        "incident_id": f"{entity}-{start}",
        "entity_kind": kind,
        "entity_id": entity,
        "node": node,
        "start": at(start),
        "end": None if end is None else at(end),
        "fault_type": "off_bus",
        "evidence": "-",
        "detected_by": "xid",
        "catalogue_version": "t",
    }


def work(start: float, end: float | None, kind: str = "maintenance") -> dict[str, Any]:
    return {
        "node": "n",
        "start": at(start),
        "end": None if end is None else at(end),
        "kind": kind,
    }


def label_of(
    as_of: float,
    *,
    incidents: list[dict[str, Any]] = [],  # noqa: B006 - never changed
    stays: list[dict[str, Any]] | None = None,
    works: list[dict[str, Any]] = [],  # noqa: B006 - never changed
    end: float = 100,
    kind: str = "gpu",
) -> tuple[int | None, str | None]:
    inventory = fill(CORE_INVENTORY, *(stays or [stay(-100, None)]))
    grid = watched_grid(inventory, [at(as_of)], entity_kind=kind)  # type: ignore[arg-type]
    labels = build_labels(
        grid,
        incidents=fill(CORE_INCIDENTS, *incidents),
        inventory=inventory,
        maintenance=fill(CORE_MAINTENANCE, *works),
        data_end=at(end),
        spec=LabelSpec(lead=timedelta(hours=LEAD), horizons_h=(HORIZON,)),
    )
    LABELS.conform(labels)
    row = labels.row(0, named=True)
    return row["label"], row["censored_by"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0.0, (None, "in_incident")),  # open at as_of
        (0.5, (None, "in_lead")),
        (1.0, (1, None)),  # the first moment that counts
        (4.99, (1, None)),
        (5.0, (0, None)),  # as_of + L + H is outside
    ],
)
def test_an_incident_counts_from_lead_to_the_end_of_the_horizon(
    start: float, expected: tuple[int | None, str | None]
) -> None:
    assert label_of(0, incidents=[incident(start, start + 1)]) == expected


def test_every_label_carries_the_version_of_its_catalogue() -> None:
    inventory = fill(CORE_INVENTORY, stay(-100, None))
    labels = build_labels(
        watched_grid(inventory, [at(0)], entity_kind="gpu"),
        incidents=fill(CORE_INCIDENTS),
        inventory=inventory,
        maintenance=fill(CORE_MAINTENANCE),
        data_end=at(100),
        spec=LabelSpec(lead=timedelta(hours=LEAD), horizons_h=(HORIZON, 200)),
        catalogue_version="faults@1",
    )
    assert labels["label"].to_list() == [0, None]
    assert labels["catalogue_version"].to_list() == ["faults@1", "faults@1"]


def test_an_incident_that_has_ended_is_over_at_its_end() -> None:
    assert label_of(0, incidents=[incident(-2, 0)]) == (0, None)


def test_an_open_incident_hides_everything_after_it() -> None:
    assert label_of(0, incidents=[incident(-2, None)]) == (None, "in_incident")


def test_an_incident_whose_end_nobody_recorded_hides_a_week_and_no_more() -> None:
    week = 7 * 24
    assert label_of(week - 0.5, incidents=[incident(0, None)], end=999) == (None, "in_incident")
    assert label_of(week, incidents=[incident(0, None)], end=999) == (0, None)
    again = [incident(0, None), incident(week + 2, None)]
    assert label_of(week, incidents=again, end=999) == (1, None)


def test_the_record_must_go_on_through_the_horizon() -> None:
    assert label_of(0, end=5) == (0, None)
    assert label_of(0, end=4.99) == (None, "data_end")


def test_a_positive_stays_positive_when_the_record_ends_after_it() -> None:
    assert label_of(0, end=3, incidents=[incident(2, None)]) == (1, None)


def test_a_gpu_taken_out_early_is_not_a_negative() -> None:
    assert label_of(0, stays=[stay(-9, 3)]) == (None, "not_watched")


def test_a_stay_that_ends_with_its_incident_is_a_positive() -> None:
    assert label_of(0, stays=[stay(-9, 3)], incidents=[incident(3, None)]) == (1, None)


@pytest.mark.parametrize("kind", ["maintenance", "own_action"])
def test_work_on_the_node_hides_what_follows_it(kind: str) -> None:
    assert label_of(0, works=[work(2, 3, kind)]) == (None, kind)
    assert label_of(0, works=[work(2, 3, kind)], incidents=[incident(4, 5)]) == (None, kind)
    assert label_of(0, works=[work(2, 3, kind)], incidents=[incident(1.5, 5)]) == (1, None)
    assert label_of(0, works=[work(-2, -1, kind)]) == (0, None)


def test_a_node_answers_for_its_gpus() -> None:
    assert label_of(0, kind="node", incidents=[incident(2, 3)]) == (1, None)
    elsewhere = [incident(2, 3, entity="other", node="m")]
    assert label_of(0, kind="node", incidents=elsewhere) == (0, None)


def test_a_gpu_cannot_be_watched_while_its_node_is_dead() -> None:
    dead = [incident(-1, 1, entity="n", kind="node")]
    assert label_of(0, incidents=dead) == (None, "in_incident")
    assert label_of(2, incidents=dead) == (0, None)


def test_an_open_incident_ends_when_the_gpu_is_put_in_anew() -> None:
    stays = [stay(-50, -9), stay(-5, None)]
    assert label_of(0, stays=stays, incidents=[incident(-9, None)]) == (0, None)


def test_a_swap_of_gpus_does_not_end_the_watch_of_a_node() -> None:
    stays = [stay(-9, 2, gpu="g"), stay(2, None, gpu="h")]
    assert label_of(0, kind="node", stays=stays) == (0, None)


def test_an_incident_that_names_no_node_counts_for_the_node_of_its_stay() -> None:
    nameless = incident(2, 3) | {"node": None}
    assert label_of(0, kind="node", incidents=[nameless], stays=[stay(-9, 2)]) == (1, None)


def test_a_gpu_does_not_answer_for_its_node() -> None:
    assert label_of(0, incidents=[incident(2, 3, entity="n", kind="node")]) == (0, None)


def test_lead_and_horizons_must_make_sense() -> None:
    with pytest.raises(DataError, match="lead must be zero or more"):
        LabelSpec(lead=timedelta(hours=-1))
    with pytest.raises(DataError, match="horizons_h"):
        LabelSpec(horizons_h=())


def oracle(
    incidents: list[tuple[int, int]], works: list[tuple[int, int]], stay_end: int, end: int
) -> tuple[int | None, str | None]:
    """Walks hour by hour from as_of = 0; the first thing that happens decides."""
    opened = [i for i in incidents if i[0] <= 0 < i[0] + i[1]]
    if opened:
        return None, "in_incident"
    for hour in range(LEAD + HORIZON):
        if any(start == hour for start, _ in incidents):
            return (None, "in_lead") if hour < LEAD else (1, None)
        if any(start <= hour < start + length for start, length in works):
            return None, "maintenance"
        if hour >= stay_end:
            return None, "not_watched"
        if hour >= end:
            return None, "data_end"
    return 0, None


whole = st.lists(
    st.tuples(st.integers(-6, 8), st.integers(1, 4)), max_size=2, unique_by=lambda x: x[0]
)


@settings(max_examples=100, deadline=None)
@given(
    incidents=whole,
    works=whole,
    stay_end=st.integers(1, 9),
    end=st.integers(1, 9),
    kind=st.sampled_from(["gpu", "node"]),
)
def test_labels_agree_with_an_hourly_walk(
    incidents: list[tuple[int, int]],
    works: list[tuple[int, int]],
    stay_end: int,
    end: int,
    kind: str,
) -> None:
    got = label_of(
        0,
        incidents=[incident(s, s + n) for s, n in incidents],
        works=[work(s, s + n) for s, n in works],
        stays=[stay(-50, stay_end)],
        end=end,
        kind=kind,
    )
    assert got == oracle(incidents, works, stay_end, end)


def test_the_grid_holds_who_is_in_place() -> None:
    inventory = fill(
        CORE_INVENTORY,
        stay(0, 2, gpu="a"),
        stay(2, None, gpu="a", node="m"),
        stay(None, 3, gpu="b"),
    )
    grid = watched_grid(inventory, [at(1), at(2)])
    assert grid.select("entity_id", "node", "as_of").rows() == [
        ("a", "n", at(1)),
        ("a", "m", at(2)),
    ]
    watched = watched_grid(inventory, [at(1)], unknown_start="watched")
    assert watched["entity_id"].to_list() == ["a", "b"]


def test_a_stay_is_over_at_its_end() -> None:
    inventory = fill(CORE_INVENTORY, stay(0, 2))
    assert watched_grid(inventory, [at(0), at(2)])["as_of"].to_list() == [at(0)]


def test_as_of_times_end_before_the_end() -> None:
    times = as_of_times(at(0), at(3), every=timedelta(hours=1))
    assert times == (at(0), at(1), at(2))
    with pytest.raises(DataError, match="every must be positive"):
        as_of_times(at(0), at(3), every=timedelta(0))
