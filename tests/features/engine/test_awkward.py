"""Awkward telemetry on its whole way: raw rows to core, store, hourly ticks and training rows.

Each case is held against sums over the raw rows in plain Python (`slow_rows`).
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from features.core_build import build_core_telemetry
from features.core_tables import CoreTables
from features.engine.plan import N_KNOWN
from features.raw_tables import RAW_GPU_TELEMETRY
from features.tables import CORE_GPU_TELEMETRY, CORE_INVENTORY
from features.telemetry_features import _plan, telemetry_plan
from features.telemetry_metrics import METRICS
from features.telemetry_spec import TelemetrySpec
from pipelines.flow import steps as flow
from pipelines.flow.feature_memory import FeatureMemory
from pipelines.settings import Settings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.store import Span, TableStore
from tests.features.engine.oracle import Sample, expected

T0 = datetime(2026, 1, 5, 22, tzinfo=UTC)  # two hours before a day ends and is compacted
HOUR = timedelta(hours=1)
CATALOGUE = load_catalogue()
SPEC = TelemetrySpec()
PLAN = telemetry_plan(SPEC, bucket=HOUR)
WANTED = [plan.wanted for plan in _plan(SPEC)]
LANDED = (0, 2, 3, 26, 27)
"""Hours at which telemetry lands; a tick follows each landing."""
FLOORS = {"gpu_temp_c": 1.0, "memory_temp_c": 1.0, "power_w": 10.0, "sm_clock_mhz": 15.0}

Row = dict[str, Any]


def at(hours: float) -> datetime:
    return T0 + timedelta(microseconds=round(hours * 3_600_000_000))


def row(gpu: str, hours: float, **more: Any) -> Row:
    ts = at(hours)
    full = {**dict.fromkeys(RAW_GPU_TELEMETRY.schema.names()), "gpu_uuid": gpu, "ts": ts}
    return full | {"source": "a", "ingested_at": ts + HOUR} | more


def steady(gpu: str, hours: Iterable[float], **more: Any) -> Iterator[Row]:
    """Samples that move a little; counters that grow."""
    rng = np.random.default_rng(sum(map(ord, gpu)))
    for n, hour in enumerate(hours):
        values = {
            "gpu_temp_c": 50 + int(rng.integers(0, 200)) / 10,
            "power_w": 200.0 + int(rng.integers(0, 300)),
            "sm_clock_mhz": 1400.0 + int(rng.integers(0, 9)),
            "ecc_sbe_volatile": n // 3,
            "pcie_replay_count": 2 * n,
            "row_remap_pending": n % 2,
            "clock_event_reasons": int(rng.choice([0, 0x20, 0x80])),
        }
        yield row(gpu, hour, **values | more)


def every(minutes: float, first: float = 0, last: float = 27, *, off: float = 0.01) -> list[float]:
    return [float(h) + off for h in np.arange(first, last, minutes / 60)]


@dataclass(frozen=True)
class Case:
    rows: list[Row]
    stays: list[Row] = field(default_factory=list)
    moments: tuple[int, ...] = (3, 26, 27)


def gaps() -> Case:
    spread = [h for h in every(29) if not 3 <= h < 8 and not 20 < h < 26]
    return Case([*steady("g", spread), *steady("h", [0.5, 25.6])])


def two_exporters() -> Case:
    first = list(steady("g", every(30), memory_temp_c=61.04))
    second = [one | {"source": "b", "power_w": 9.0, "gpu_util_pct": 7.0} for one in first[::2]]
    return Case([*second, *first, *first[3:9]])


def out_of_order() -> Case:
    rows = [*steady("g", every(40)), *steady("h", every(50))]
    return Case([rows[int(i)] for i in np.random.default_rng(4).permutation(len(rows))])


def no_numbers() -> Case:
    rows = list(steady("g", every(15)))
    for one, value in zip(rows, [math.nan, math.inf, -math.inf, 1e30, -5000.0] * 30, strict=False):
        one["power_w" if one["ts"].minute < 30 else "gpu_temp_c"] = value
    return Case([*rows, *steady("h", every(30), power_w=math.nan)])


def counters_that_fall() -> Case:
    rows = list(steady("g", every(20)))
    for n, one in enumerate(rows):
        one["nvlink_crc_count"] = (2**32 - 50 + 7 * n) % 2**32  # of 32 bits, it wraps
        one["ecc_sbe_volatile"] = n % 10  # a driver that is loaded again and again
        one["power_violation_us"] = None if n % 4 else 1000 * n
    return Case([*rows, *steady("h", [0.9, 24.8, 24.95, 26.5])])  # a day and less apart, and more


def clocks_that_jump() -> Case:
    back = [*every(10, 0, 1), *every(10, 0.5, 3, off=0.07)]
    ahead = [row("h", h + 1, power_w=500.0, ingested_at=at(h + 0.05)) for h in every(10, 0, 27)]
    near = [row("h", h, power_w=100.0, ingested_at=at(h - 0.15)) for h in every(30, 0, 27)]
    late = steady("g", every(30, 24, 27))
    return Case([*steady("g", back), *late, *ahead, *near])


def off_the_grid() -> Case:
    ms = [h / 3_600_000 for h in (0, 0.4, 1, 999, 999.9, 3_599_999, 3_599_999.5, 3_600_000)]
    hours = [h + one for h in (1, 2, 25, 26) for one in ms[:-1]]
    return Case([*steady("g", hours), *steady("h", [1.5, 1.5 + 0.5 / 3600, 25.5])])


def a_gpu_that_moves() -> Case:
    rows = [*steady("g", every(30)), *steady("h", every(30)), *steady("i", every(30))]
    stays: list[Row] = [
        {"gpu_uuid": "g", "node": "n0", "valid_to": at(2.5)},
        {"gpu_uuid": "g", "node": "n1", "valid_from": at(2.5)},
        *({"gpu_uuid": gpu, "node": "n0"} for gpu in "hi"),
        *({"gpu_uuid": gpu, "node": "n1"} for gpu in "jk"),
    ]
    return Case([*rows, *steady("j", every(30)), *steady("k", every(60))], stays)


def a_node_that_vanishes_and_returns() -> Case:
    away = [*every(20, 0, 2.5), *every(20, 26, 27)]
    return Case([row for gpu in "ghi" for row in steady(gpu, away)])


def a_gpu_first_seen_in_the_newest_hour() -> Case:
    known = [one for n in range(63) for one in steady(f"g{n:02d}", [0.5, 2.5, 20.0])]
    new = [one for n in range(3) for one in steady(f"a{n}", [26.2, 26.7])]
    return Case([*known, *new, *steady("b", [2.5])])


def a_metric_that_appears_and_vanishes() -> Case:
    rows = [*steady("g", every(20)), *steady("h", every(20))]
    for one in rows:
        hour = (one["ts"] - T0) / HOUR
        one["memory_temp_c"] = 40.0 + hour if hour > 2.1 else None
        one["thermal_violation_us"] = int(1000 * hour) if 2 <= hour < 26 else None
        if 2 <= hour < 3 or hour > 26:
            one["power_w"] = one["ecc_sbe_volatile"] = one["clock_event_reasons"] = None
    return Case(rows)


def limits_of_the_contract() -> Case:
    gauges = {"gpu_temp_c": (-40.0, 150.0), "power_w": (0.0, 3000.0), "gpu_util_pct": (0.0, 100.0)}
    rows = list(steady("g", every(6)))
    for n, one in enumerate(rows):
        one |= {name: ends[n % 2] for name, ends in gauges.items()}
        one["pcie_replay_count"] = (0, 2**53)[n % 2]
        one["clock_event_reasons"] = 2**53
        one["fb_used_mib"] = 4_000_000.0
    return Case(rows)


def one_sample_an_hour() -> Case:
    return Case([*steady("g", every(60, off=0)), *steady("h", every(60, off=0.999))])


def one_sample_a_second() -> Case:
    return Case(list(steady("g", every(1 / 60, 25.9, 26.1, off=0))), moments=(26, 27))


def hours_without_a_row() -> Case:
    return Case([*steady("g", every(10, 0, 1)), *steady("g", every(10, 26, 27))])


CASES: list[Callable[[], Case]] = [
    gaps,
    two_exporters,
    out_of_order,
    no_numbers,
    counters_that_fall,
    clocks_that_jump,
    off_the_grid,
    a_gpu_that_moves,
    a_node_that_vanishes_and_returns,
    a_gpu_first_seen_in_the_newest_hour,
    a_metric_that_appears_and_vanishes,
    limits_of_the_contract,
    one_sample_an_hour,
    hours_without_a_row,
    one_sample_a_second,
]


def slow_core(rows: list[Row]) -> dict[tuple[str, int], Row]:
    """Core samples by (GPU, millisecond): values in steps of their resolution."""
    merged: dict[tuple[str, int], Row] = {}
    for one in sorted(rows, key=lambda one: one["source"]):
        if one["ts"] > one["ingested_at"] + timedelta(minutes=10):
            continue
        key = (
            one["gpu_uuid"],
            (one["ts"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1),
        )
        known = merged.setdefault(key, {})
        for metric in METRICS:
            value = one[metric.column]
            if value is not None and not math.isnan(value):
                known.setdefault(metric.column, value)
    return {key: steps(known) for key, known in merged.items() if is_valid(known)}


def is_valid(known: Row) -> bool:
    rounded = {m: known[m.column] for m in METRICS if m.column in known}
    return all(
        math.isfinite(v) and m.minimum <= round(v, 1) <= m.maximum for m, v in rounded.items()
    )


def steps(known: Row) -> Row:
    found = {
        m.column: int(np.rint(float(np.float32(known[m.column])) * round(1 / m.resolution)))
        if m.kind == "gauge"
        else known[m.column]
        for m in METRICS
        if m.column in known and m.resolution is not None
    }
    return found | {N_KNOWN: len(known)}


def slow_row(samples: list[Sample], as_of_ms: int) -> Row:
    """Every feature of a GPU but those that compare it."""
    return {
        one.name: expected(
            samples, one, gpu=0, as_of_ms=as_of_ms, derived=PLAN.derived, counters=PLAN.counters
        )
        for one in WANTED
    }


def slow_rows(case: Case, grid: list[tuple[str, str, datetime]]) -> list[Row]:
    core = slow_core(case.rows)
    found = []
    for gpu, _, as_of in grid:
        mine = [Sample(0, ts, core[g, ts]) for g, ts in sorted(core) if g == gpu]
        found.append(slow_row(mine, int(as_of.timestamp() * 1000)))
    for here, (gpu, node, as_of) in zip(found, grid, strict=True):
        near = [r for r, (g, n, t) in zip(found, grid, strict=True) if (n, t) == (node, as_of)
                and g != gpu]  # fmt: skip
        for gauge, floor in FLOORS.items():
            here[f"{gauge}_peer_z_1h"] = z(here, near, f"{gauge}_mean_1h", floor)
    return found


def z(here: Row, near: list[Row], name: str, floor: float) -> float:
    others = [np.float32(one[name]) for one in near if not math.isnan(one[name])]
    if len(others) < 2 or math.isnan(here[name]):
        return math.nan
    middle = statistics.median(map(float, others))
    spread = statistics.median(abs(float(one) - middle) for one in others) * 1.4826
    return (float(np.float32(here[name])) - middle) / max(spread, floor)


class Site:
    """An installation to which a case's telemetry comes hour by hour."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.settings = Settings.model_validate(
            {"site": "lab", "inputs": folder / "i.yaml", "data_root": folder / "d", "start": T0}
        )
        self.case = case
        gpus = sorted({one["gpu_uuid"] for one in case.rows})
        stays = case.stays or [{"gpu_uuid": gpu, "node": "n"} for gpu in gpus]
        names = dict.fromkeys(CORE_INVENTORY.schema.names())
        self.inventory = pl.DataFrame(
            [{**names, "slot": "0", **stay} for stay in stays], schema=CORE_INVENTORY.schema
        )
        raw = pl.DataFrame(case.rows, schema=RAW_GPU_TELEMETRY.schema)
        self.core = build_core_telemetry(raw, self.inventory).frame

    def land(self, first: int, last: int, *, generation: int = 1) -> None:
        span = Span(at(first), at(last))
        rows = self.core.filter(pl.col("ts") >= span.start, pl.col("ts") < span.end)
        store = TableStore(self.settings.store_root)
        store.write(CORE_GPU_TELEMETRY, rows, span=span, generation=generation)

    def matrix(self, first: int, last: int) -> pl.DataFrame:
        span = Span(at(first), at(last))
        tables = CoreTables(inventory=self.inventory)
        return flow.gpu_matrix_of(tables, self.settings, catalogue=CATALOGUE, span=span)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_ticks_training_rows_and_plain_sums_agree(make: Callable[[], Case], tmp_path: Path) -> None:
    case = make()
    site = Site(tmp_path, case)
    online = []
    for first, last in pairwise(LANDED):
        site.land(first, last)
        online.append(site.matrix(last - 1, last))
    assert max(FeatureMemory(site.settings.memory_dir).seen()) == at(LANDED[-1] - 1)
    later = site.matrix(0, LANDED[-1])
    for rows in online:
        assert rows.equals(later.filter(pl.col("as_of") == rows["as_of"][0]))
    moments = pl.Series([at(hour) for hour in case.moments], dtype=pl.Datetime("us", "UTC"))
    chosen = later.filter(pl.col("as_of").is_in(moments.implode()))
    grid = chosen.select("entity_id", "node", "as_of").rows()
    for found, right in zip(chosen.iter_rows(named=True), slow_rows(case, grid), strict=True):
        wrong = {
            name: (found[name], value)
            for name, value in right.items()
            if not close(found[name], value, loose="_peer_z_" in name)
        }
        assert not wrong, (found["entity_id"], found["as_of"])


def close(value: float | None, right: float, *, loose: bool) -> bool:
    if value is None or math.isnan(right):
        return value is None and math.isnan(right)
    return math.isclose(value, right, rel_tol=2e-6 if loose else 3e-7, abs_tol=1e-6)
