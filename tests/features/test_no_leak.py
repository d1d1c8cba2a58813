"""Nothing at or after as_of enters a feature: every registered feature, every table.

Each example builds a small random world, asks for the features at one moment, and then changes,
adds or removes records at or after it, in every table at once. A record's own time is its first:
what is known later of it (an end, an end state, a repair) counts as later.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import history_features
from features.catalogue import FaultCatalogue
from features.contracts import Column, TableContract
from features.core_tables import CoreTables
from features.event_features import EventSpec
from features.history_counters import CounterSpec
from features.history_features import HistorySpec
from features.history_outages import OutageRule
from features.history_states import StateSpec
from features.matrix import PARTS, MatrixSpec, build_gpu_matrix, matrix_features
from features.tables import (
    CORE_COUNTERS,
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
)
from features.telemetry_metrics import METRICS
from features.telemetry_spec import TelemetrySpec

T0 = datetime(2026, 1, 10, tzinfo=UTC)
GPUS = ("a", "b", "c", "d")
NODES = {"a": "n1", "b": "n1", "c": "n1", "d": "n2"}
_BLANK = {"pattern": "", "fault_type": "", "note": ""}
CATALOGUE = FaultCatalogue.from_rows(
    [
        {**_BLANK, "kind": "xid", "code": code, "role": role, "group": group} | more
        for code, role, group, more in (
            ("79", "primary", "off_bus", {"fault_type": "off_bus"}),
            ("48", "primary", "hbm", {"fault_type": "hbm_uncorrectable"}),
            ("74", "primary", "nvlink", {"fault_type": "nvlink"}),
            ("45", "secondary", "other", {}),
            ("63", "precursor", "precursor", {}),
            ("13", "noise", "app", {}),
        )
    ],
    version="t",
)
FULL = MatrixSpec(
    parts=PARTS,
    catalogue=CATALOGUE,
    events=EventSpec(echo_within=timedelta(seconds=5)),
    telemetry=TelemetrySpec(peer_levels=("cage",)),
    history=HistorySpec(
        ordinal_levels=("cage",),
        repeat_gap=timedelta(hours=1),
        weeks=2,
    ),
    counters=CounterSpec(names=("hours", "remaps"), clocks=("hours",)),
    states=StateSpec(
        rule=OutageRule(level="cage", most_together=1),
        levels=("cage",),
        has_weekday=True,
    ),
)
COUNTERS = replace(
    CORE_COUNTERS,
    columns=(
        *CORE_COUNTERS.columns,
        *(Column(name, pl.Float64(), "", nullable=True) for name in ("hours", "remaps")),
    ),
)
CONTRACTS = {
    "counters": COUNTERS,
    "gpu_telemetry": CORE_GPU_TELEMETRY,
    "health_events": CORE_HEALTH_EVENTS,
    "jobs": CORE_JOBS,
    "incidents": CORE_INCIDENTS,
    "inventory": CORE_INVENTORY,
    "topology": CORE_TOPOLOGY,
    "maintenance": CORE_MAINTENANCE,
    "node_states": CORE_NODE_STATES,
}
TIMES = {
    "counters": ("valid_from", "valid_to"),
    "gpu_telemetry": ("ts", None),
    "health_events": ("ts", None),
    "jobs": ("start", "end"),
    "incidents": ("start", "end"),
    "inventory": ("valid_from", "valid_to"),
    "topology": ("valid_from", "valid_to"),
    "maintenance": ("start", "end"),
    "node_states": ("valid_from", "valid_to"),
}
"""When a record of each table begins, and when what is known of it later is known."""

Record = dict[str, Any]
World = dict[str, list[Record]]


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


past = st.sampled_from([-5000.0, -700.0, -100.0, -47.0, -20.0, -5.0, -0.7, -0.2, -0.001, -1e-9])
future = st.sampled_from([0.0, 1e-9, 0.001, 0.3, 4.0, 30.0, 400.0])
gpu = st.sampled_from(GPUS)
node = st.sampled_from(("n1", "n2"))


def on_its_node(row: Record) -> Record:
    return {**row, "node": NODES[row.get("gpu_uuid") or row["entity_id"]]}


def sampled(level: int) -> Record:
    """A value of every metric."""
    return {metric.column: int(min(metric.maximum, level)) for metric in METRICS}


DETAILS: dict[str, st.SearchStrategy[Record]] = {
    "counters": st.fixed_dictionaries(
        {"gpu_uuid": gpu, "hours": st.just(5.0), "remaps": st.none() | st.just(1.0) | st.just(2.0)}
    ),
    "gpu_telemetry": st.builds(
        lambda uuid, level: on_its_node({"gpu_uuid": uuid, **sampled(level)}),
        gpu,
        st.integers(1, 40),
    ),
    "health_events": st.fixed_dictionaries(
        {
            "gpu_uuid": st.none() | gpu,
            "node": node,
            "kind": st.just("xid"),
            "code": st.sampled_from([79, 45, 63, 13, 999]),
        }
    ),
    "jobs": st.fixed_dictionaries(
        {
            "nodes": st.sampled_from([["n1"], ["n1", "n2"]]),
            "end_state": st.sampled_from(["FAILED", "COMPLETED"]),
        }
    ),
    "incidents": st.fixed_dictionaries({"entity_kind": st.just("gpu"), "entity_id": gpu}).map(
        on_its_node
    ),
    "inventory": st.fixed_dictionaries(
        {
            "gpu_uuid": st.sampled_from((*GPUS, "new")),
            "node": node,
            "slot": st.sampled_from("0123"),
            "batch": st.sampled_from("xy"),
        }
    ),
    "topology": st.fixed_dictionaries(
        {"node": node, "level": st.just("cage"), "place": st.sampled_from("12")}
    ),
    "maintenance": st.fixed_dictionaries(
        {"node": node, "kind": st.sampled_from(["maintenance", "own_action"])}
    ),
    "node_states": st.fixed_dictionaries(
        {"node": node, "state": st.sampled_from(["down", "drain"])}
    ),
}


@st.composite
def records(draw: st.DrawFn, table: str) -> list[Record]:
    """Records of a table before and after as_of."""
    begin, later = TIMES[table]
    rows = []
    for hours in draw(st.lists(past, max_size=4)) + draw(st.lists(future, max_size=3)):
        row = {**draw(DETAILS[table]), begin: at(hours)}
        if later is not None:
            until = draw(st.none() | past | future)
            row[later] = None if until is None or until < hours else at(until)
        rows.append(row)
    return rows


def tables_of(world: World) -> CoreTables:
    """The core tables of a world, sorted as they are stored: telemetry by whole milliseconds."""
    frames = {}
    for name, contract in CONTRACTS.items():
        frame = _frame(contract, world[name])
        if name == "gpu_telemetry":
            frame = frame.with_columns(pl.col("ts").dt.truncate("1ms"))
            frame = frame.unique(["gpu_uuid", "ts"], keep="first", maintain_order=True)
            frame = frame.sort("gpu_uuid", "ts")
        frames[name] = frame
    return CoreTables(**frames)


def _frame(contract: TableContract, rows: list[Record]) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **row} for row in rows], schema=contract.schema)


GRID = pl.DataFrame(
    {
        "entity_kind": "gpu",
        "entity_id": GPUS,
        "node": [NODES[g] for g in GPUS],
        "slot": ["0", "1", "2", None],
        "as_of": T0,
    },
    schema_overrides={"as_of": pl.Datetime("us", "UTC")},
)


def matrix(world: World) -> pl.DataFrame:
    return build_gpu_matrix(tables_of(world), GRID, spec=FULL)


def seen_before(world: World) -> World:
    """What was known just before as_of: later records are gone, and so are later ends."""
    known: World = {}
    for table, rows in world.items():
        begin, later = TIMES[table]
        kept = [row for row in rows if row[begin] is None or row[begin] < T0]
        if later is not None:
            kept = [
                {**row, later: row[later] if row.get(later) and row[later] < T0 else None}
                for row in kept
            ]
        known[table] = kept
    return known


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Records of every table, beside a GPU that has always been in its node and place."""
    world = {table: draw(records(table)) for table in CONTRACTS}
    return both(world, quiet_world())


@settings(max_examples=25, deadline=None)
@given(worlds())
def test_records_at_or_after_as_of_change_no_registered_feature(world: World) -> None:
    with_future, without = matrix(world), matrix(seen_before(world))
    names = [f.name for f in matrix_features(FULL, tables_of(world).topology)]
    assert with_future.columns == ["entity_id", "as_of", "node", *names]
    changed = [name for name in names if not with_future[name].equals(without[name])]
    assert changed == []


def quiet_world() -> World:
    """GPUs with two samples a day ago, and nothing else; since when one is there is not known."""
    stays = [
        {"gpu_uuid": g, "node": NODES[g], "slot": "1", "batch": "x"}
        | {"valid_from": None if g == "a" else at(-6000)}
        for g in GPUS
    ]
    places = [
        {"node": node, "level": "cage", "place": "1", "valid_from": at(-6000)}
        for node in ("n1", "n2")
    ]
    samples = [sample_at(g, hours, 1) for g in GPUS for hours in (-30, -29)]
    told = {"inventory": stays, "gpu_telemetry": samples, "topology": places}
    return {name: [] for name in CONTRACTS} | told


def sample_at(uuid: str, hours: float, level: int) -> Record:
    hotter = 10 * (uuid == "a")
    row = {"gpu_uuid": uuid, "ts": at(hours), **sampled(level), "gpu_temp_c": 40 + level + hotter}
    return on_its_node(row)


def eventful(hours: float) -> World:
    """Records of every kind from a moment on, each a minute after the one before."""
    node, minute = {"node": "n1"}, 1 / 60
    levels = {"a": (30, 90, 20), "b": (31, 60, 80), "c": (33, 70, 40)}
    codes = {79: "a", 48: "a", 63: "a", 74: "a", 13: "a", 999: "a"}
    moved = {"gpu_uuid": "a", "node": "n1", "slot": "0", "batch": "x"}
    return {
        "gpu_telemetry": [
            sample_at(g, hours + i * minute, 0xE8 + level)
            for g, given in levels.items()
            for i, level in enumerate(given)
        ],
        "health_events": [
            {"ts": at(hours + i * minute), "node": "n1", "gpu_uuid": g, "kind": "xid", "code": code}
            for i, (code, g) in enumerate(codes.items())
        ]
        + [{**node, "ts": at(hours), "kind": "link"}],
        "jobs": [
            {"nodes": ["n1"], "start": at(hours), "end": None},
            {"nodes": ["n1"], "start": at(hours), "end": at(hours + minute), "end_state": "FAILED"},
        ],
        "incidents": [
            {**node, "entity_kind": "gpu", "entity_id": "a"}
            | {"start": at(hours + 3 * minute), "end": at(hours + 4 * minute)}
        ],
        "inventory": [
            {**moved, "valid_from": at(hours), "valid_to": at(hours + minute)},
            {**moved, "valid_from": at(hours + 2 * minute)},
        ],
        "topology": [
            {"node": name, "level": "cage", "place": "2", "valid_from": at(hours)}
            for name in ("n1", "n2")
        ],
        "maintenance": [{**node, "kind": "maintenance", "start": at(hours)}],
        # Down for a minute, and then both nodes for six.
        "node_states": [
            {"node": name, "state": state}
            | {"valid_from": at(hours + begin * minute), "valid_to": at(hours + end * minute)}
            for name in ("n1", "n2")
            for state, begin, end in (("up", 0, 1), ("down", 1, 2), ("up", 2, 3), ("down", 3, 9))
        ],
        "counters": [
            {"gpu_uuid": "a", "hours": 5.0, "remaps": float(i)}
            | {"valid_from": at(hours + i * minute), "valid_to": at(hours + (i + 1) * minute)}
            for i in range(3)
        ]
        + [{"gpu_uuid": "a", "hours": 5.0, "remaps": 3.0, "valid_from": at(hours + 3 * minute)}],
    }


def both(first: World, second: World) -> World:
    return {table: first[table] + second[table] for table in first}


def changed_by(hours: float) -> set[str]:
    """Features of any GPU that records from a moment on change."""
    before, after = matrix(quiet_world()), matrix(both(quiet_world(), eventful(hours)))
    return {name for name in before.columns if not before[name].equals(after[name])}


def registered() -> set[str]:
    levels = tables_of(eventful(0)).topology
    return {feature.name for feature in matrix_features(FULL, levels)}


def test_the_same_records_before_as_of_change_every_registered_feature() -> None:
    # Rates need a day of exposure in the new place: the records of 40 h ago change them.
    # The day of the week is that of a week ago; counters of 30 and 90 days ago are of then.
    moments = (-0.3, -40.0, -160.0, -24.0 * 31, -24.0 * 91)
    unchanged = registered() - set().union(*(changed_by(hours) for hours in moments))
    assert unchanged == {"slot_number", "weekday"}  # the grid says the slot and the moment


def test_the_same_records_from_as_of_on_change_none() -> None:
    assert changed_by(0.0) == set()


def test_a_feature_that_looks_an_hour_ahead_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    # The drill: history that counts incidents as if it were two hours later.
    told = history_features.past_incidents

    def early(incidents: pl.DataFrame, stays: pl.DataFrame, **how: Any) -> pl.DataFrame:
        return told(incidents, stays, **how).with_columns(pl.col("start") - timedelta(hours=2))

    monkeypatch.setattr(history_features, "past_incidents", early)
    assert "own_incident_count" in changed_by(0.0)
