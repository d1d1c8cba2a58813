"""Rules of repair features, against a plain loop."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.contracts import TableContract
from features.core_tables import CoreTables
from features.repair_features import RepairSpec, build_repairs
from features.tables import CORE_INCIDENTS, CORE_INVENTORY, CORE_MAINTENANCE, CORE_NODE_STATES

T0 = datetime(2026, 1, 10, tzinfo=UTC)
DAY = timedelta(days=1)
GRID = pl.DataFrame(
    {"entity_kind": "gpu", "entity_id": ["a"], "node": "n", "slot": "3", "as_of": T0},
    schema_overrides={"as_of": pl.Datetime("us", "UTC")},
)
days = st.sampled_from([-200.0, -180.0, -40.0, -30.0, -29.5, -2.0, -1.0, -1e-9, 0.0, 3.0])
spans = st.lists(st.tuples(days, st.none() | st.sampled_from([0.5, 1.0, 38.0, 200.0])), max_size=5)


def at(day: float) -> datetime:
    return T0 + day * DAY


def fill(contract: TableContract, rows: list[dict[str, Any]]) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **row} for row in rows], schema=contract.schema)


def built(**tables: pl.DataFrame) -> dict[str, Any]:
    return build_repairs(GRID, CoreTables(**tables), spec=RepairSpec()).row(0, named=True)


def intervals(given_spans: list[tuple[float, float | None]]) -> list[tuple[datetime, Any]]:
    return [(at(s), None if n is None else at(s) + n * DAY) for s, n in given_spans]


@settings(max_examples=60, deadline=None)
@given(spans)
def test_repairs_and_planned_work_are_those_of_a_plain_loop(
    given_spans: list[tuple[float, float | None]],
) -> None:
    found = intervals(given_spans)
    incidents = [{"entity_kind": "gpu", "entity_id": "a", "start": s, "end": e} for s, e in found]
    work = [{"node": "n", "kind": "maintenance", "start": s, "end": e} for s, e in found]
    work += [{"node": "n", "kind": "own_action", "start": s, "end": e} for s, e in found]
    got = built(incidents=fill(CORE_INCIDENTS, incidents), maintenance=fill(CORE_MAINTENANCE, work))
    ends = [e for _, e in found if e is not None and e < T0]
    for window in (30, 180):
        assert got[f"own_repair_count_{window}d"] == sum(e >= at(-window) for e in ends)
        begun = sum(at(-window) <= s < T0 for s, _ in found)
        assert got[f"node_work_count_{window}d"] == begun
    since = (T0 - max(ends)) / DAY if ends else None
    assert got["own_days_since_repair"] == pytest.approx(since, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(spans)
def test_time_down_is_the_overlap_with_the_window(
    given_spans: list[tuple[float, float | None]],
) -> None:
    found = intervals(given_spans)
    states = [{"node": "n", "state": "down", "valid_from": s, "valid_to": e} for s, e in found]
    got = built(node_states=fill(CORE_NODE_STATES, states))
    for window in (30, 180):
        overlaps = [min(e or T0, T0) - max(s, at(-window)) for s, e in found]
        expected = sum(max(span, timedelta(0)) / timedelta(hours=1) for span in overlaps)
        assert got[f"node_outage_hours_{window}d"] == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_an_outage_told_in_two_pieces_is_one() -> None:
    pieces = [(-5.0, -4.0, "down"), (-4.0, -3.0, "down"), (-3.0, -1.0, "drain"), (-0.5, None, "up")]
    states = [
        {"node": "n", "state": state, "valid_from": at(s), "valid_to": e and at(e)}
        for s, e, state in pieces
    ]
    got = built(node_states=fill(CORE_NODE_STATES, states))
    assert (got["node_outage_count_30d"], got["node_days_since_outage"]) == (1, 3)


def test_who_sits_in_the_node_counts_once_put_in_and_until_taken_out() -> None:
    stays = [("a", None, None), ("b", -9, None), ("c", -9, -1), ("d", -2, 4), ("e", 0, None)]
    rows = [
        {"gpu_uuid": g, "node": "n", "slot": g, "valid_to": None if e is None else at(e)}
        | {"valid_from": None if s is None else at(s)}
        for g, s, e in stays
    ]
    got = built(inventory=fill(CORE_INVENTORY, rows))
    assert (got["node_gpu_count"], got["node_days_since_new_gpu"]) == (3, 2)  # a, b and d
    assert got["slot_number"] == 3
