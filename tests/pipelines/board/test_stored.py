"""Rules of what is read of one entity: all of it, none of another's, and only of the span."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from features.tables import CORE_GPU_TELEMETRY, CORE_JOBS, CORE_NODE_STATES
from pipelines.board.desk import STATES_KEPT_S, Desk, Kept
from pipelines.board.stored import states_now, telemetry_of, told_of_gpu, told_of_node
from pipelines.board.zone import UTC_ZONE
from pipelines.storage.in_time import InTime
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = Span(T0, T0 + 24 * HOUR)
COLUMNS = ("gpu_temp_c", "power_w", "ecc_dbe_volatile")


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    """A store with an hour of telemetry of three GPUs, one of which sends few metrics."""
    made = TableStore(tmp_path)
    rows = [
        dict.fromkeys(CORE_GPU_TELEMETRY.schema)
        | {
            "gpu_uuid": f"g{gpu}",
            "ts": T0 + timedelta(minutes=5 * i, seconds=gpu),
            "node": f"n{gpu}",
            "gpu_temp_c": 40.1 + gpu + i if i != 3 else None,
            "power_w": 300.5 if gpu else None,
            "ecc_dbe_volatile": i * gpu,
        }
        for gpu in range(3)
        for i in range(6)
    ]
    frame = pl.DataFrame(rows, schema=CORE_GPU_TELEMETRY.schema)
    made.write(CORE_GPU_TELEMETRY, frame, span=Span(T0, T0 + HOUR))
    return made


@pytest.mark.parametrize("gpu", ["g0", "g1", "g2"])
def test_telemetry_of_a_gpu_is_what_the_whole_table_has_of_it(store: TableStore, gpu: str) -> None:
    oracle = (
        store.read(CORE_GPU_TELEMETRY, span=DAY)
        .filter(pl.col("gpu_uuid") == gpu)
        .select("ts", *COLUMNS)
        .sort("ts")
    )
    found = telemetry_of(store, gpu, span=DAY, columns=COLUMNS)
    assert found["ts"].to_list() == oracle["ts"].to_list()
    for name in COLUMNS:
        values = found[name].to_list() if name in found.columns else [None] * found.height
        assert values == pytest.approx(oracle[name].to_list(), nan_ok=True, abs=1e-4)


def test_a_gpu_that_nobody_knows_has_no_telemetry(store: TableStore) -> None:
    assert telemetry_of(store, "g9", span=DAY, columns=COLUMNS).is_empty()


def test_an_empty_store_tells_nothing(tmp_path: Path) -> None:
    empty = TableStore(tmp_path)
    assert told_of_node(empty, "n1", span=DAY).jobs.is_empty()
    assert told_of_gpu(empty, "g1", node=None, span=DAY, columns=COLUMNS).telemetry.is_empty()
    assert states_now(empty, T0).is_empty()


@pytest.mark.parametrize(
    ("start", "end", "is_seen"),
    [
        (-2, -1, False),
        (-2, 0, False),
        (-2, 1, True),
        (-2, None, True),
        (3, 4, True),
        (23, 30, True),
        (24, 30, False),
    ],
)
def test_a_job_is_shown_where_it_overlaps_the_span(
    tmp_path: Path, start: int, end: int | None, is_seen: bool
) -> None:
    store = TableStore(tmp_path)
    job = dict.fromkeys(CORE_JOBS.schema) | {
        "job_id": "1",
        "attempt": 0,
        "nodes": ["n1", "n2"],
        "start": T0 + start * HOUR,
        "end": None if end is None else T0 + end * HOUR,
    }
    store.write(CORE_JOBS, pl.DataFrame([job], schema=CORE_JOBS.schema))
    assert told_of_node(store, "n1", span=DAY).jobs.height == int(is_seen)
    assert told_of_node(store, "n3", span=DAY).jobs.is_empty()


def test_the_present_state_is_the_last_one_that_began(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    states = [
        ("up", None, T0),
        ("down", T0, T0 + HOUR),
        ("drain", T0 + HOUR, None),
    ]
    frame = pl.DataFrame(
        [
            dict.fromkeys(CORE_NODE_STATES.schema)
            | {"node": "n1", "state": state, "valid_from": since, "valid_to": until}
            for state, since, until in states
        ],
        schema=CORE_NODE_STATES.schema,
    )
    store.write(CORE_NODE_STATES, frame)
    found = [states_now(store, T0 + step * HOUR)["state"].item() for step in (-1, 0, 1, 5)]
    assert found == ["up", "down", "drain", "drain"]


def test_states_that_cannot_be_read_are_unknown_since_the_first_try_and_known_again(
    tmp_path,
) -> None:
    clock = [0.0]
    settings = SimpleNamespace(store_root=tmp_path)
    sources: Any = SimpleNamespace(settings=settings, reads=InTime(tmp_path))
    parts: Any = {"access": None, "sessions": None, "asked": None}
    desk = Desk(sources=sources, kept=Kept(lambda: clock[0]), **parts)
    assert desk.states(T0).words(UTC_ZONE) == ""  # nothing was ever stored: that is no failure
    file = tmp_path / CORE_NODE_STATES.asset_key / f"{T0:%Y-%m-%dT%H}.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"damaged")
    for hours in (1, 2):
        clock[0] += STATES_KEPT_S
        found = desk.states(T0 + hours * HOUR)
        assert found.frame.is_empty()
        assert UTC_ZONE.text(T0 + HOUR) in found.words(UTC_ZONE)
    file.unlink()
    clock[0] += STATES_KEPT_S
    assert desk.states(T0 + 3 * HOUR).words(UTC_ZONE) == ""
