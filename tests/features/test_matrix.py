"""Rules of the feature matrix: nothing at or after as_of enters, and rows stand alone."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.catalogue import FaultCatalogue
from features.contracts import TableContract
from features.core_tables import CoreTables
from features.errors import DataError
from features.grid import watched_grid
from features.matrix import MatrixSpec, build_gpu_matrix, matrix_features
from features.registry import feature_names
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_TOPOLOGY,
)
from features.telemetry_spec import TelemetrySpec

T0 = datetime(2026, 1, 10, tzinfo=UTC)
GPUS = ("a", "b", "c", "d")
NODE = {"a": "n1", "b": "n1", "c": "n1", "d": "n2"}
ROW = {"pattern": "", "fault_type": "", "note": ""}
CATALOGUE = FaultCatalogue.from_rows(
    [
        {
            **ROW,
            "kind": "xid",
            "code": "79",
            "role": "primary",
            "fault_type": "off_bus",
            "group": "off_bus",
        },
        {**ROW, "kind": "xid", "code": "63", "role": "precursor", "group": "precursor"},
        {**ROW, "kind": "xid", "code": "13", "role": "noise", "group": "app"},
    ],
    version="t",
)
SPEC = MatrixSpec(catalogue=CATALOGUE)


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


def fill(contract: TableContract, rows: list[dict[str, Any]]) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **row} for row in rows], schema=contract.schema)


def sample(gpu: str, hours: float, value: float) -> dict[str, Any]:
    return {
        "gpu_uuid": gpu,
        "ts": at(hours),
        "node": NODE[gpu],
        "gpu_temp_c": 40 + value,
        "power_w": 100 + 3 * value,
        "gpu_util_pct": value,
        "ecc_sbe_volatile": int(value),
        "pcie_replay_count": int(2 * value),
        "row_remap_pending": int(value) % 2,
        "clock_event_reasons": 0x20 if value > 15 else 0,
    }


def event(gpu: str, hours: float, code: int) -> dict[str, Any]:
    return {
        "event_id": f"{gpu}{hours}{code}",
        "ts": at(hours),
        "node": NODE[gpu],
        "gpu_uuid": gpu,
        "kind": "xid",
        "code": code,
        "count": 1,
    }


def job(number: int, start: float, end: float | None, state: str = "FAILED") -> dict[str, Any]:
    return {
        "job_id": str(number),
        "attempt": 0,
        "nodes": ["n1"],
        "start": at(start),
        "end": None if end is None else at(end),
        "end_state": state,
    }


def incident(gpu: str, hours: float) -> dict[str, Any]:
    return {
        "incident_id": f"{gpu}{hours}",
        "entity_kind": "gpu",
        "entity_id": gpu,
        "node": NODE[gpu],
        "start": at(hours),
        "fault_type": "off_bus",
        "evidence": "-",
        "detected_by": "xid",
        "catalogue_version": "t",
    }


def random_tables(seed: int, first: float, last: float) -> CoreTables:
    """Everything that a site could record between two moments."""
    rng = np.random.default_rng(seed)

    def moments(n: int) -> list[float]:
        return [round(float(h), 2) for h in rng.uniform(first, last, n)]

    samples = [sample(g, h, float(rng.integers(0, 20))) for g in GPUS for h in moments(25)]
    return CoreTables(
        gpu_telemetry=fill(CORE_GPU_TELEMETRY, samples)
        .unique(["gpu_uuid", "ts"], maintain_order=True)
        .sort("gpu_uuid", "ts"),
        health_events=fill(
            CORE_HEALTH_EVENTS,
            [
                event(str(rng.choice(GPUS)), h, int(rng.choice([79, 63, 13, 999])))
                for h in moments(9)
            ],
        ).sort("ts"),
        jobs=fill(CORE_JOBS, [job(i, h, h + 1.5) for i, h in enumerate(moments(6))]),
        incidents=fill(CORE_INCIDENTS, [incident(str(rng.choice(GPUS)), h) for h in moments(5)]),
        inventory=fill(
            CORE_INVENTORY,
            [
                {"gpu_uuid": g, "node": NODE[g], "slot": "0", "valid_from": at(-900 - 10 * i)}
                for i, g in enumerate(GPUS)
            ],
        ),
        topology=fill(
            CORE_TOPOLOGY,
            [{"node": n, "level": "rack", "place": f"r{n}"} for n in ("n1", "n2")],
        ),
    )


def joined(past: CoreTables, future: CoreTables) -> CoreTables:
    """The past, with the future's rows after it."""
    names = ("gpu_telemetry", "health_events", "jobs", "incidents")
    return replace(
        past, **{name: pl.concat([getattr(past, name), getattr(future, name)]) for name in names}
    )


def matrix(tables: CoreTables, *hours: float) -> pl.DataFrame:
    grid = watched_grid(tables.inventory, [at(h) for h in hours])
    return build_gpu_matrix(tables, grid, spec=SPEC)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), other=st.integers(0, 10_000))
def test_nothing_at_or_after_as_of_enters_any_feature(seed: int, other: int) -> None:
    past = random_tables(seed, -30, -0.01)
    alone = matrix(past, 0)
    assert alone.equals(matrix(joined(past, random_tables(other, 0, 40)), 0))


def test_an_event_at_as_of_itself_stays_out_and_one_just_before_it_enters() -> None:
    past = random_tables(1, -30, -0.1)
    at_it = joined(past, CoreTables(health_events=fill(CORE_HEALTH_EVENTS, [event("a", 0, 79)])))
    before = joined(
        past, CoreTables(health_events=fill(CORE_HEALTH_EVENTS, [event("a", -1e-6, 79)]))
    )
    assert matrix(past, 0).equals(matrix(at_it, 0))
    assert not matrix(past, 0).equals(matrix(before, 0))


def test_ends_that_lie_ahead_change_nothing() -> None:
    past = random_tables(2, -30, -0.1)
    tables = replace(past, jobs=fill(CORE_JOBS, [job(1, -2, None), job(2, -9, -3)]))
    running = matrix(tables, 0)
    ends_later = replace(tables, jobs=fill(CORE_JOBS, [job(1, -2, 0, "COMPLETED"), job(2, -9, -3)]))
    assert running.equals(matrix(ends_later, 0))
    leaves = tables.inventory.with_columns(valid_to=pl.lit(at(3)))
    assert running.equals(matrix(replace(tables, inventory=leaves), 0))
    repaired = tables.incidents.with_columns(end=pl.lit(at(1)))
    assert running.equals(matrix(replace(tables, incidents=repaired), 0))


@pytest.mark.parametrize("hours", [0, 3])
def test_a_stay_or_place_that_begins_at_as_of_or_later_changes_nothing(hours: float) -> None:
    past = random_tables(8, -30, -0.1)
    stay = {"gpu_uuid": "new", "node": "n1", "slot": "0", "valid_from": at(hours)}
    place = {"node": "n1", "level": "rack", "place": "rn2", "valid_from": at(hours)}
    later = replace(
        past,
        inventory=pl.concat([past.inventory, fill(CORE_INVENTORY, [stay])]),
        topology=pl.concat([past.topology, fill(CORE_TOPOLOGY, [place])]),
    )
    grid = watched_grid(past.inventory, [at(0)])
    assert build_gpu_matrix(later, grid, spec=SPEC).equals(matrix(past, 0))


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_an_hour_alone_gives_the_rows_that_many_hours_give(seed: int) -> None:
    tables = random_tables(seed, -60, 6)
    hours = (-3, 0, 0.25, 2)  # one is off the others' grid
    together = matrix(tables, *hours)
    alone = pl.concat([matrix(tables, hour) for hour in hours])
    assert together.equals(alone)


def four_neighbours() -> CoreTables:
    """Four GPUs of one node with one sample each, at 40, 42, 50 and 60 degrees."""
    inventory = fill(
        CORE_INVENTORY,
        [{"gpu_uuid": g, "node": "n1", "slot": g, "valid_from": at(-99)} for g in GPUS],
    )
    temps = zip(GPUS, (40.0, 42.0, 50.0, 60.0), strict=True)
    samples = [sample(g, -0.5, 0) | {"gpu_temp_c": temp} for g, temp in temps]
    return CoreTables(inventory=inventory, gpu_telemetry=fill(CORE_GPU_TELEMETRY, samples))


@pytest.mark.parametrize("gpu", GPUS)
def test_a_gpu_alone_gives_the_row_that_all_gpus_give(gpu: str) -> None:
    tables = four_neighbours()
    grid = watched_grid(tables.inventory, [at(0)])
    alone = build_gpu_matrix(tables, grid.filter(pl.col("entity_id") == gpu), spec=SPEC)
    assert alone["gpu_temp_c_peer_z_1h"].null_count() == 0
    assert alone.equals(matrix(tables, 0).filter(pl.col("entity_id") == gpu))


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_telemetry_older_than_two_days_is_not_needed(seed: int) -> None:
    tables = random_tables(seed, -90, 0)
    recent = pl.col("ts") >= at(-48)
    assert matrix(tables, 0).equals(
        matrix(replace(tables, gpu_telemetry=tables.gpu_telemetry.filter(recent)), 0)
    )


def test_every_registered_feature_is_a_column_in_order() -> None:
    tables = random_tables(3, -30, 0)
    names = feature_names(matrix_features(SPEC, tables.topology))
    assert matrix(tables, 0).columns == ["entity_id", "as_of", "node", *names]
    assert all(
        feature.meaning and feature.inputs for feature in matrix_features(SPEC, tables.topology)
    )


def test_a_site_with_a_history_alone_has_history_features_alone() -> None:
    tables = random_tables(4, -30, 0)
    spec = MatrixSpec(parts=("history",))
    families = {feature.family for feature in matrix_features(spec, tables.topology)}
    assert families == {"history", "stay"}
    only = CoreTables(
        incidents=tables.incidents, inventory=tables.inventory, topology=tables.topology
    )
    grid = watched_grid(only.inventory, [at(0)])
    assert build_gpu_matrix(only, grid, spec=spec).height == len(GPUS)


def test_a_gpu_is_compared_with_the_others_of_its_node_and_not_with_itself() -> None:
    z = dict(matrix(four_neighbours(), 0).select("entity_id", "gpu_temp_c_peer_z_1h").rows())
    # The others of d: 40, 42, 50; median 42, median deviation 2.
    assert z["d"] == pytest.approx((60 - 42) / (1.4826 * 2))


def test_a_gpu_alone_is_compared_with_all_neighbours_also_those_of_unknown_start() -> None:
    tables = random_tables(7, -1, 0)
    unknown = tables.inventory.with_columns(valid_from=pl.lit(None, pl.Datetime("us", "UTC")))
    tables = replace(tables, inventory=unknown)
    grid = watched_grid(unknown, [at(0)], unknown_start="watched")
    together = build_gpu_matrix(tables, grid, spec=SPEC).filter(pl.col("entity_id") == "a")
    alone = build_gpu_matrix(tables, grid.filter(pl.col("entity_id") == "a"), spec=SPEC)
    assert alone.equals(together)
    assert alone["power_w_peer_z_1h"].null_count() == 0


RACKS = MatrixSpec(
    parts=("telemetry",),
    telemetry=TelemetrySpec(gauges=(), counters=(), peer_levels=("rack",)),
)
RACK_Z = "gpu_temp_c_rack_peer_z_1h"


def placed(node: str, rack: str, since: float, until: float | None = None) -> dict[str, Any]:
    left = None if until is None else at(until)
    return {"node": node, "level": "rack", "place": rack, "valid_from": at(since), "valid_to": left}


def one_gpu_per_node(places: list[dict[str, Any]]) -> CoreTables:
    """Four GPUs at 40, 42, 50 and 60 degrees in nodes a to d."""
    tables = four_neighbours()
    return replace(
        tables,
        inventory=tables.inventory.with_columns(node="gpu_uuid"),
        topology=fill(CORE_TOPOLOGY, places),
    )


@pytest.mark.parametrize(
    ("place_of_d", "score"),
    [
        ([placed("d", "r1", -99)], (60 - 42) / (1.4826 * 2)),  # among 40, 42 and 50
        ([placed("d", "r2", -99), placed("d", "r1", -1e-6)], (60 - 42) / (1.4826 * 2)),
        ([placed("d", "r1", -99), placed("d", "r2", -1e-6)], None),  # nobody else is in r2
        ([placed("d", "r1", -99), placed("d", "r2", 0)], (60 - 42) / (1.4826 * 2)),  # not yet
        ([placed("d", "r1", -99, -1)], None),  # has left, where to is not known
        ([placed("d", "r1", -99, 1)], (60 - 42) / (1.4826 * 2)),
        ([placed("d", "r1", 0)], None),
        ([], None),
    ],
)
def test_a_gpu_is_compared_with_those_of_the_rack_its_node_was_in_just_before(
    place_of_d: list[dict[str, Any]], score: float | None
) -> None:
    tables = one_gpu_per_node([*(placed(n, "r1", -99) for n in "abc"), *place_of_d])
    grid = watched_grid(tables.inventory, [at(0)]).filter(pl.col("entity_id") == "d")
    row = build_gpu_matrix(tables, grid, spec=RACKS).row(0, named=True)
    assert row[RACK_Z] == (None if score is None else pytest.approx(score))
    assert row["gpu_temp_c_peer_z_1h"] is None  # it has its node to itself


def moving_fleet(seed: int) -> CoreTables:
    """Nine GPUs that move between five nodes, which move between two racks and nowhere."""
    rng = np.random.default_rng(seed)
    gpus = [f"g{i}" for i in range(9)]
    stays, places = [], []
    for gpu in gpus:
        moved = float(rng.uniform(-6, 4))
        first, second = rng.choice(list("vwxyz"), 2)
        until = at(moved) if rng.random() < 0.4 else None  # or two stays at once
        stays.append({"gpu_uuid": gpu, "node": first, "valid_from": at(-99), "valid_to": until})
        stays.append({"gpu_uuid": gpu, "node": second, "valid_from": at(moved)})
    for node in "vwxyz":
        moved = float(rng.uniform(-6, 4))
        first, second = rng.choice(["r1", "r2"], 2)
        if rng.random() < 0.6:
            places.append(placed(node, first, -99, moved))
        if rng.random() < 0.6:
            places.append(placed(node, second, moved + float(rng.choice([0, 2]))))
    samples = [
        {"gpu_uuid": gpu, "ts": at(hour - 0.3), "node": "-", "gpu_temp_c": rng.normal(50, 5)}
        for gpu in gpus
        for hour in (-3, 0)
    ]
    return CoreTables(
        inventory=fill(CORE_INVENTORY, stays),
        topology=fill(CORE_TOPOLOGY, places),
        gpu_telemetry=fill(CORE_GPU_TELEMETRY, samples),
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.05, 0.3]))
def test_some_rows_are_those_of_the_whole_grid_where_gpus_and_nodes_move(
    seed: int, share: float
) -> None:
    tables = moving_fleet(seed)
    grid = watched_grid(tables.inventory, [at(-3), at(0)])
    chosen = pl.Series(np.random.default_rng(seed).random(grid.height) < share)
    whole = build_gpu_matrix(tables, grid, spec=RACKS)
    some = build_gpu_matrix(tables, grid.filter(chosen), spec=RACKS)
    assert some.equals(whole.filter(chosen))


@pytest.mark.parametrize("levels", [("rack", "rack"), ("node",)])
def test_a_level_is_compared_once(levels: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="peer_levels must be different levels"):
        TelemetrySpec(peer_levels=levels)


def test_unknown_is_null_and_never_zero() -> None:
    tables = replace(random_tables(5, -30, 0), gpu_telemetry=CORE_GPU_TELEMETRY.empty())
    row = matrix(tables, 0).row(0, named=True)
    assert row["gpu_temp_c_mean_1h"] is None
    assert row["ecc_sbe_volatile_increase_24h"] is None
    assert row["hours_since_sample"] is None
    assert row["sample_coverage_24h"] == 0.0


def test_a_grid_of_nodes_or_with_repeats_is_refused() -> None:
    tables = random_tables(6, -30, 0)
    nodes = watched_grid(tables.inventory, [at(0)], entity_kind="node")
    with pytest.raises(DataError, match="are not GPUs"):
        build_gpu_matrix(tables, nodes, spec=SPEC)
    grid = watched_grid(tables.inventory, [at(0)])
    with pytest.raises(DataError, match="repeat an entity and moment"):
        build_gpu_matrix(tables, pl.concat([grid, grid]), spec=SPEC)


def test_events_need_a_catalogue() -> None:
    with pytest.raises(DataError, match="needs a fault catalogue"):
        MatrixSpec()
