"""Rules of the history features: a slow oracle agrees, and nothing at or after as_of enters."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.contracts import TableContract
from features.errors import DataError
from features.grid import GRID_SCHEMA
from features.history_features import HistorySpec, build_history, history_features, history_levels
from features.registry import feature_names
from features.tables import CORE_INCIDENTS, CORE_INVENTORY, CORE_TOPOLOGY

T0 = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
GPUS = ("a", "b", "c")
NODES = ("n1", "n2", "n3")
CAGE = {"n1": "0", "n2": "0", "n3": "2"}
BATCH = {"a": "x", "b": "x", "c": None}
SPEC = HistorySpec(windows=(7 * DAY, 30 * DAY), ordinal_levels=("cage",))


def at(days: float) -> datetime:
    return T0 + timedelta(days=days)


def fill(contract: TableContract, rows: list[dict[str, Any]]) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **row} for row in rows], schema=contract.schema)


def stay(gpu: str, node: str, start: float | None, end: float | None) -> dict[str, Any]:
    return {
        "gpu_uuid": gpu,
        "node": node,
        "slot": "0",
        "batch": BATCH[gpu],
        "valid_from": None if start is None else at(start),
        "valid_to": None if end is None else at(end),
    }


def incident(gpu: str, node: str | None, start: float) -> dict[str, Any]:
    return {
        "incident_id": f"{gpu}{node}{start}",
        "entity_kind": "gpu",
        "entity_id": gpu,
        "node": node,
        "start": at(start),
        "fault_type": "off_bus",
    }


def grid(*rows: tuple[str, str, float]) -> pl.DataFrame:
    return pl.DataFrame(
        [("gpu", gpu, node, "0", at(days)) for gpu, node, days in rows],
        schema=GRID_SCHEMA,
        orient="row",
    )


TOPOLOGY = fill(
    CORE_TOPOLOGY, [{"node": n, "level": "cage", "place": place} for n, place in CAGE.items()]
)


def build(
    rows: pl.DataFrame,
    *,
    stays: list[dict[str, Any]],
    incidents: list[dict[str, Any]],
    spec: HistorySpec = SPEC,
    topology: pl.DataFrame = TOPOLOGY,
) -> pl.DataFrame:
    return build_history(
        rows,
        incidents=fill(CORE_INCIDENTS, incidents),
        inventory=fill(CORE_INVENTORY, stays),
        topology=topology,
        spec=spec,
    )


STAYS = st.lists(
    st.tuples(
        st.sampled_from(GPUS), st.sampled_from(NODES), st.integers(0, 60), st.integers(1, 40)
    ),
    max_size=6,
    unique_by=lambda stay: (stay[0], stay[2]),
)
INCIDENTS = st.lists(
    st.tuples(st.sampled_from(GPUS), st.sampled_from(NODES), st.integers(0, 80)),
    max_size=8,
    unique_by=lambda one: (one[0], one[2]),
)
ROWS = st.lists(
    st.tuples(st.sampled_from(GPUS), st.sampled_from(NODES), st.integers(10, 70)),
    min_size=1,
    max_size=6,
    unique_by=lambda row: (row[0], row[2]),
)


def slow_row(
    row: tuple[str, str, int],
    stays: list[tuple[str, str, int, int]],
    incidents: list[tuple[str, str, int]],
) -> dict[str, float | None]:
    """One row's features by loops over all there is, in days."""
    gpu, node, now = row
    begun = sorted((s for s in stays if s[2] < now), key=lambda s: (s[0], s[2]))
    own = [s for s in begun if s[0] == gpu]
    batch = BATCH[own[-1][0]] if own else None

    def batch_of(one: tuple[str, str, int]) -> str | None:
        has_stay = any(s[0] == one[0] and s[2] < one[2] for s in stays)
        return BATCH[one[0]] if has_stay else None

    past = [one for one in incidents if one[2] < now]
    groups: dict[str, tuple[bool, list[int], list[tuple[str, str, int, int]]]] = {
        "own": (True, [o[2] for o in past if o[0] == gpu], own),
        "node": (True, [o[2] for o in past if o[1] == node], [s for s in begun if s[1] == node]),
        "batch": (
            batch is not None,
            [o[2] for o in past if batch_of(o) == batch],
            [s for s in begun if BATCH[s[0]] == batch],
        ),
        "fleet": (True, [o[2] for o in past], begun),
        "cage": (
            True,
            [o[2] for o in past if CAGE[o[1]] == CAGE[node]],
            [s for s in begun if CAGE[s[1]] == CAGE[node]],
        ),
    }
    found: dict[str, float | None] = {}
    for name, (is_known, times, watched) in groups.items():
        for window in (7, 30):
            count = sum(now - window <= t for t in times)
            found[f"{name}_incident_count_{window}d"] = count if is_known else None
        found[f"{name}_days_since_incident"] = now - max(times) if is_known and times else None
        if name != "own":
            days = sum(
                max(0, min(now, s[2] + s[3] if s[2] + s[3] < now else now) - max(now - 30, s[2]))
                for s in watched
            )
            rate = count / (days / 365.25) if days >= 1 else None
            found[f"{name}_incident_rate_30d"] = rate if is_known else None
    return found | slow_stays(row, stays=begun, own=own, past=past)


def slow_stays(
    row: tuple[str, str, int],
    *,
    stays: list[tuple[str, str, int, int]],
    own: list[tuple[str, str, int, int]],
    past: list[tuple[str, str, int]],
) -> dict[str, float | None]:
    gpu, node, now = row
    times = [one[2] for one in past if one[0] == gpu]
    found: dict[str, float | None] = {
        "own_incident_count": len(times),
        "node_stay_count": sum(s[1] == node for s in stays),
        "cage_number": float(CAGE[node]),
    }
    if own:
        since = own[-1][2]
        found |= {
            "own_incident_count_in_stay": sum(t >= since for t in times),
            "age_days": now - own[0][2],
            "stay_age_days": now - since,
            "earlier_stay_count": len(own) - 1,
            "watched_days": sum(min(now, s[2] + s[3]) - s[2] for s in own),
        }
        if len(own) > 1 and own[-2][2] + own[-2][3] < now:
            found["previous_stay_days"] = own[-2][3]
            found["idle_before_stay_days"] = since - own[-2][2] - own[-2][3]
    return found


@given(stays=STAYS, incidents=INCIDENTS, rows=ROWS)
@settings(max_examples=40, deadline=None)
def test_fast_features_equal_those_of_the_slow_oracle(stays, incidents, rows):
    spec = HistorySpec(
        windows=SPEC.windows,
        scopes=("own", "node", "batch", "fleet"),
        ordinal_levels=SPEC.ordinal_levels,
    )
    built = build(
        grid(*rows),
        stays=[stay(gpu, node, start, start + length) for gpu, node, start, length in stays],
        incidents=[incident(*one) for one in incidents],
        spec=spec,
    )
    for row, fast in zip(rows, built.iter_rows(named=True), strict=True):
        slow = slow_row(row, stays, incidents)
        for name in built.columns[2:]:
            if name == "cohort_days":  # from the first stay of the record: its own test below
                continue
            wanted = slow.get(name)
            assert fast[name] == (None if wanted is None else pytest.approx(wanted, rel=1e-5)), name


@given(stays=STAYS, incidents=INCIDENTS, rows=ROWS, later=INCIDENTS, moves=STAYS)
@settings(max_examples=25, deadline=None)
def test_whatever_changes_at_or_after_as_of_changes_no_feature(
    stays, incidents, rows, later, moves
):
    now = max(day for *_, day in rows)
    asked = grid(*((gpu, node, now) for gpu, node in {(gpu, node) for gpu, node, _ in rows}))
    asked = asked.unique("entity_id", keep="first", maintain_order=True)
    known = [s for s in stays if s[2] < now]
    before = build(
        asked,
        stays=[stay(g, n, start, min(start + length, now)) for g, n, start, length in known],
        incidents=[incident(*one) for one in incidents if one[2] < now],
    )
    # Stays still running at as_of get another end or none; others and incidents are added.
    ends = [start + length if start + length < now else None for _, _, start, length in known]
    after = build(
        asked,
        stays=[stay(g, n, s, e) for (g, n, s, _), e in zip(known, ends, strict=True)]
        + [stay(g, n, now + s, now + s + length) for g, n, s, length in moves],
        incidents=[incident(*one) for one in incidents if one[2] < now]
        + [incident(g, n, now + t) for g, n, t in later],
    )
    assert after.equals(before, null_equal=True)


def test_the_incident_at_the_very_as_of_and_the_stay_of_that_moment_do_not_count():
    built = build(
        grid(("a", "n1", 10)),
        stays=[stay("a", "n1", 0, 10), stay("a", "n1", 10, None)],
        incidents=[incident("a", "n1", 10)],
    )
    row = built.row(0, named=True)
    assert (row["own_incident_count"], row["node_stay_count"], row["stay_age_days"]) == (0, 1, 10)


def test_a_new_place_of_a_node_is_not_known_before_it_holds():
    moved = fill(
        CORE_TOPOLOGY,
        [
            {"node": "n1", "level": "cage", "place": "0", "valid_to": at(10)},
            {"node": "n1", "level": "cage", "place": "2", "valid_from": at(10)},
        ],
    )
    built = build(
        grid(("a", "n1", 10), ("a", "n1", 11)),
        stays=[stay("a", "n1", 0, None)],
        incidents=[],
        topology=moved,
    )
    assert built["cage_number"].to_list() == [0, 2]


def test_a_stay_of_unknown_beginning_gives_no_age_but_incidents_still_count():
    built = build(
        grid(("a", "n1", 10)),
        stays=[stay("a", "n1", None, None)],
        incidents=[incident("a", "n1", 5)],
    )
    row = built.row(0, named=True)
    assert row["age_days"] is None
    assert row["batch_incident_count_7d"] is None
    assert (row["own_incident_count"], row["node_incident_count_7d"]) == (1, 1)


def test_a_repeat_within_the_gap_does_not_count():
    incidents = [incident("a", "n1", day) for day in (5, 5.5, 6.5)]  # the last at the very gap
    counts = [
        build(
            grid(("a", "n1", 10)),
            stays=[stay("a", "n1", 0, None)],
            incidents=incidents,
            spec=HistorySpec(windows=(7 * DAY,), repeat_gap=gap),
        )["cage_incident_count_7d"][0]
        for gap in (0 * DAY, DAY)
    ]
    assert counts == [3, 2]


def test_a_place_that_a_node_has_left_is_unknown():
    left = TOPOLOGY.with_columns(pl.lit(at(5)).alias("valid_to"))
    built = build(grid(("a", "n1", 10)), stays=[], incidents=[], topology=left)
    assert built["cage_number"].to_list() == [None]
    assert built["cage_incident_count_7d"].to_list() == [None]


def test_the_slot_of_a_stay_says_nothing_of_an_incident_in_another_node():
    built = build(
        grid(("b", "n2", 10)),
        stays=[stay("a", "n1", 0, None), stay("b", "n2", 0, None)],
        incidents=[incident("a", "n2", 5)],
    )
    assert built["node_incident_count_7d"].to_list() == [1]
    assert built["slot_incident_count_7d"].to_list() == [0]


def test_an_incident_that_names_no_node_counts_where_its_gpu_was():
    built = build(
        grid(("b", "n1", 10)),
        stays=[stay("a", "n1", 0, None), stay("b", "n1", 0, None)],
        incidents=[incident("a", None, 5)],
    )
    assert built["node_incident_count_7d"].to_list() == [1]


def test_cohort_counts_from_the_first_stay_of_the_fleet():
    built = build(
        grid(("b", "n1", 30)),
        stays=[stay("a", "n1", 0, 5), stay("b", "n1", 20, None)],
        incidents=[],
    )
    assert built["cohort_days"].to_list() == [20]


def test_columns_are_those_registered_in_order():
    built = build(grid(("a", "n1", 10)), stays=[stay("a", "n1", 0, None)], incidents=[])
    levels = history_levels(TOPOLOGY, SPEC)
    assert built.columns == ["entity_id", "as_of", *feature_names(history_features(SPEC, levels))]


def test_the_order_of_the_grid_is_kept():
    asked = [("b", "n2", 20), ("a", "n1", 10), ("c", "n3", 15)]
    built = build(grid(*asked), stays=[], incidents=[incident("a", "n1", 5)])
    assert built["entity_id"].to_list() == ["b", "a", "c"]
    assert built["fleet_days_since_incident"].to_list() == [15, 5, 10]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"windows": ()}, "windows"),
        ({"windows": (timedelta(0),)}, "windows"),
        ({"scopes": ("own", "rack")}, "unknown scope rack"),
    ],
)
def test_a_spec_that_asks_for_nothing_sensible_is_refused(wrong, said):
    with pytest.raises(DataError, match=said):
        HistorySpec(**wrong)
