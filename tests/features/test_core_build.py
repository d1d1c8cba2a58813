"""Rules of the core builders: no row is lost, and one thing is one row."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.contracts import TableContract
from features.core_build import (
    Built,
    build_core_telemetry,
    build_health_events,
    build_jobs,
    build_node_states,
)
from features.raw_tables import RAW_GPU_TELEMETRY, RAW_JOB_LOG, RAW_KERNEL_LOG, RAW_NODE_STATES
from features.scheduler_states import node_state
from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY
from features.telemetry_metrics import METRICS

T0 = datetime(2026, 1, 10, tzinfo=UTC)
PCI = "00000000:1b:00.0"


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def fill(contract: TableContract, *rows: dict[str, Any]) -> pl.DataFrame:
    names = contract.schema.names()
    common = {"source": "s", "ingested_at": at(999_999)} if "source" in names else {}
    full = [{**dict.fromkeys(names), **common, **row} for row in rows]
    return pl.DataFrame(full, schema=contract.schema)


def stay(gpu: str, start: float, end: float | None = None) -> dict[str, Any]:
    return {
        "gpu_uuid": gpu, "node": "n", "slot": "0", "pci_bus_id": PCI,
        "valid_from": at(start), "valid_to": None if end is None else at(end),
    }  # fmt: skip


def accounted(built: Built) -> bool:
    kept = built.frame.height + built.n_merged + built.n_skipped
    return built.n_read == kept + int(built.rejects["count"].sum())


def test_two_exporters_of_one_gpu_become_one_row() -> None:
    raw = fill(
        RAW_GPU_TELEMETRY,
        {"gpu_uuid": "g", "ts": at(0), "source": "b", "power_w": 300.0, "gpu_temp_c": 60.0},
        {"gpu_uuid": "g", "ts": at(0), "source": "a", "power_w": 310.0},
        {"gpu_uuid": "g", "ts": at(60), "source": "a", "power_w": 320.0},
    )
    built = build_core_telemetry(raw, fill(CORE_INVENTORY, stay("g", -9)))
    rows = built.frame.select("ts", "node", "power_w", "gpu_temp_c").rows()
    assert rows == [(at(0), "n", 310.0, 60.0), (at(60), "n", 320.0, None)]
    assert built.n_merged == 1
    assert accounted(built)


def test_a_sample_from_the_future_is_refused_and_counted() -> None:
    raw = fill(
        RAW_GPU_TELEMETRY,
        {"gpu_uuid": "g", "ts": at(100_000), "ingested_at": at(0), "power_w": 300.0},
    )
    built = build_core_telemetry(raw, CORE_INVENTORY.empty())
    assert built.frame.is_empty()
    assert built.rejects["count"].to_list() == [1]
    assert accounted(built)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("gh"), st.integers(0, 3), st.integers(-5, 900)), max_size=8)
)
def test_every_sample_is_a_row_a_part_of_one_or_a_reject(
    given_rows: list[tuple[str, int, int]],
) -> None:
    rows = [{"gpu_uuid": g, "ts": at(60 * t), "gpu_temp_c": float(x)} for g, t, x in given_rows]
    built = build_core_telemetry(fill(RAW_GPU_TELEMETRY, *rows), CORE_INVENTORY.empty())
    assert accounted(built)
    assert built.frame.select("gpu_uuid", "ts").is_unique().all()


def slow_core_telemetry(raw: pl.DataFrame, inventory: pl.DataFrame) -> pl.DataFrame:
    """The rows of core/gpu_telemetry one by one: the plain meaning of `build_core_telemetry`."""
    merged: dict[tuple[str, datetime], dict[str, Any]] = {}
    for row in sorted(raw.iter_rows(named=True), key=lambda row: str(row["source"])):
        if row["ts"] > row["ingested_at"] + timedelta(minutes=10):
            continue
        ts = row["ts"].replace(microsecond=row["ts"].microsecond // 1000 * 1000)
        known = merged.setdefault((row["gpu_uuid"], ts), {"node": row["node"]})
        known["node"] = known["node"] or row["node"]
        for metric in METRICS:
            value = row[metric.column]
            if value is None or math.isnan(value) or known.get(metric.column) is not None:
                continue
            if metric.kind == "gauge" and metric.resolution is not None:
                per_unit = round(1 / metric.resolution)
                value = float(np.float32(np.rint(value * per_unit) / per_unit))
            known[metric.column] = value
    for (gpu, ts), known in merged.items():
        stays = [
            one["node"]
            for one in inventory.sort("valid_from").iter_rows(named=True)
            if one["gpu_uuid"] == gpu
            and one["valid_from"] <= ts
            and (one["valid_to"] is None or ts < one["valid_to"])
        ]
        known["node"] = known["node"] or next(reversed(stays), None)
    rows = [{"gpu_uuid": gpu, "ts": ts} | known for (gpu, ts), known in merged.items()]
    names = CORE_GPU_TELEMETRY.schema.names()
    frame = pl.DataFrame(
        [dict.fromkeys(names) | row for row in rows], schema=CORE_GPU_TELEMETRY.schema
    )
    is_valid = pl.all_horizontal(
        pl.col(m.column).is_null()
        | (pl.col(m.column).is_between(m.minimum, m.maximum) & (pl.col(m.column) < math.inf))
        for m in METRICS
    )
    return frame.filter(is_valid).sort("gpu_uuid", "ts")


@st.composite
def raw_samples(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "gpu_uuid": draw(st.sampled_from("gh")),
        "ts": at(draw(st.sampled_from([0, 60])))
        + timedelta(microseconds=draw(st.sampled_from([0, 999, 1000]))),
        "source": draw(st.sampled_from(["b", "a"])),
        "node": draw(st.sampled_from([None, "m"])),
        "ingested_at": at(draw(st.sampled_from([-900, 999]))),
        "gpu_temp_c": draw(st.sampled_from([None, math.nan, 60.25, 60.04, 999.0, math.inf])),
        "tensor_active_ratio": draw(st.sampled_from([None, 0.12345, 1.0, 1.00004])),
        "pcie_tx_bytes_s": draw(st.sampled_from([None, 1.5])),
        "energy_j": draw(st.sampled_from([None, -1, 7])),
    }


@settings(max_examples=60)
@given(st.lists(raw_samples(), max_size=8))
def test_merging_column_by_column_gives_what_merging_row_by_row_does(
    rows: list[dict[str, Any]],
) -> None:
    raw = fill(RAW_GPU_TELEMETRY, *rows)
    inventory = fill(CORE_INVENTORY, stay("g", -9, 60), stay("g", 0) | {"node": "o"})
    built = build_core_telemetry(raw, inventory)
    assert built.frame.equals(slow_core_telemetry(raw, inventory))
    assert accounted(built)


def line(seconds: float, code: int = 79, **more: Any) -> dict[str, Any]:
    return {
        "node": "n", "ts": at(seconds), "kind": "xid", "code": code, "pci_bus_id": PCI,
        "line": f"Xid {code}", **more,
    }  # fmt: skip


def test_repeats_within_five_seconds_are_one_event_with_a_count() -> None:
    raw = fill(RAW_KERNEL_LOG, line(0), line(5), line(2), line(11), line(0, 45))
    built = build_health_events(raw, fill(CORE_INVENTORY, stay("g", -9)))
    rows = built.frame.sort("code", "ts").select("code", "ts", "count", "gpu_uuid").rows()
    assert rows == [(45, at(0), 1, "g"), (79, at(0), 3, "g"), (79, at(11), 1, "g")]
    assert accounted(built)


def test_an_event_belongs_to_the_gpu_that_was_in_the_slot_then() -> None:
    inventory = fill(CORE_INVENTORY, stay("old", -9, 100), stay("new", 100))
    raw = fill(RAW_KERNEL_LOG, line(90), line(100), line(200, pci_bus_id="00000000:2b:00.0"))
    events = build_health_events(raw, inventory).frame
    assert events["gpu_uuid"].to_list() == ["old", "new", None]


def test_lines_without_a_node_or_a_time_are_counted() -> None:
    raw = fill(RAW_KERNEL_LOG, line(0, node=None), line(0) | {"ts": None}, line(1))
    built = build_health_events(raw, CORE_INVENTORY.empty())
    assert built.frame.height == 1
    assert sorted(built.rejects["rule"]) == ["node is null", "ts is null"]
    assert accounted(built)


def test_later_lines_do_not_change_earlier_events() -> None:
    lines = [line(s) for s in (0, 3, 7, 30)]
    early = build_health_events(fill(RAW_KERNEL_LOG, *lines[:2]), CORE_INVENTORY.empty()).frame
    late = build_health_events(fill(RAW_KERNEL_LOG, *lines), CORE_INVENTORY.empty()).frame
    assert late["event_id"].to_list()[: early.height] == early["event_id"].to_list()


def record(job: str, state: str, start: float, **more: Any) -> dict[str, Any]:
    return {"job_id": job, "state": state, "start": at(start), "submit": at(0), **more}


def test_requeued_jobs_are_attempts_and_steps_are_skipped() -> None:
    raw = fill(
        RAW_JOB_LOG,
        record("7", "NODE_FAIL", 10, end=at(20)),
        record("7", "COMPLETED", 30, end=at(40)),
        record("7", "CANCELLED", 30, end=at(40), step="0"),
    )
    built = build_jobs(raw)
    rows = built.frame.select("attempt", "end_state", "cause").rows()
    assert rows == [(0, "NODE_FAIL", "hardware"), (1, "COMPLETED", None)]
    assert built.n_skipped == 1
    assert accounted(built)


def test_a_record_read_again_replaces_the_one_before() -> None:
    raw = fill(
        RAW_JOB_LOG,
        record("7", "RUNNING", 10, ingested_at=at(50)),
        record("7", "OUT_OF_MEMORY", 10, end=at(60), ingested_at=at(70)),
    )
    built = build_jobs(raw)
    assert built.frame.select("attempt", "end_state", "cause").rows() == [
        (0, "OUT_OF_MEMORY", "oom")
    ]
    assert accounted(built)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE", "up"),
        ("mixed-", "up"),
        ("ALLOCATED", "up"),
        ("MIXED+DRAIN", "drain"),
        ("drained", "drain"),
        ("drng@", "drain"),
        ("DOWN*+DRAIN", "down"),
        ("down", "down"),
        ("idle*", "unknown"),  # not responding
        ("FUTURE", "unknown"),
        ("no such state", "unknown"),
    ],
)
def test_scheduler_states_become_four(text: str, state: str) -> None:
    assert node_state(text) == state


def test_an_open_interval_ends_where_the_next_begins() -> None:
    raw = fill(
        RAW_NODE_STATES,
        {"node": "n", "state": "DOWN", "valid_from": at(0)},
        {"node": "n", "state": "IDLE", "valid_from": at(60)},
    )
    built = build_node_states(raw)
    assert built.frame.select("state", "valid_from", "valid_to").rows() == [
        ("down", at(0), at(60)),
        ("up", at(60), None),
    ]
    assert accounted(built)
