"""Rules of the Parquet store and of publishing."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

from features.errors import DataError, StructureError
from features.monitoring_tables import QUARANTINE
from features.raw_tables import RAW_KERNEL_LOG
from features.tables import CORE_HEALTH_EVENTS, CORE_TOPOLOGY, GPU_SCORES, NODE_SCORES
from pipelines.flow.publish import publish_scores
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)


def events(*hours: float, count: int = 1) -> pl.DataFrame:
    rows = [
        {
            "event_id": f"e{hour}",
            "ts": T0 + hour * HOUR,
            "node": "n1",
            "gpu_uuid": None,
            "pci_bus_id": None,
            "kind": "xid",
            "code": 79,
            "count": count,
            "message": None,
        }
        for hour in hours
    ]
    return pl.DataFrame(rows, schema=CORE_HEALTH_EVENTS.schema)


def span(first: int, last: int) -> Span:
    return Span(T0 + first * HOUR, T0 + last * HOUR)


def test_what_is_written_is_read_back_sorted_by_key(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    written = store.write(CORE_HEALTH_EVENTS, events(2.5, 0.5), span=span(0, 3))
    assert (written.rows, written.rejected, written.files) == (2, 0, 3)
    assert store.read(CORE_HEALTH_EVENTS).equals(events(0.5, 2.5))


def test_a_span_reads_only_its_own_rows(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.write(CORE_HEALTH_EVENTS, events(0.5, 1.0, 2.5), span=span(0, 3))
    assert store.read(CORE_HEALTH_EVENTS, span=span(1, 2)).equals(events(1.0))


def test_writing_a_span_again_replaces_it_and_leaves_the_rest(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.write(CORE_HEALTH_EVENTS, events(0.5, 1.5), span=span(0, 2))
    store.write(CORE_HEALTH_EVENTS, events(), span=span(1, 2))
    assert store.read(CORE_HEALTH_EVENTS).equals(events(0.5))


def test_a_copy_that_somebody_put_beside_a_file_does_not_double_its_rows(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.write(CORE_HEALTH_EVENTS, events(0.5), span=span(0, 1))
    (file,) = store.files(CORE_HEALTH_EVENTS)
    assert isinstance(file, Path)
    for name in (f"{file.stem}.before.parquet", f"{file.stem[:10]} copy.parquet", "all.2.parquet"):
        (file.parent / name).write_bytes(file.read_bytes())
    assert store.files(CORE_HEALTH_EVENTS) == [file]
    assert store.read(CORE_HEALTH_EVENTS).equals(events(0.5))


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    a, b = TableStore(tmp_path / "a"), TableStore(tmp_path / "b")
    for store in (a, b):
        store.write(CORE_HEALTH_EVENTS, events(0.5, 1.5), span=span(0, 2))
    digests = [
        [sha256(f.read_bytes()).hexdigest() for f in s.files(CORE_HEALTH_EVENTS)] for s in (a, b)
    ]
    assert digests[0] == digests[1]


def test_rows_outside_the_span_refuse_the_whole_write(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    with pytest.raises(DataError, match="1 rows lie outside"):
        store.write(CORE_HEALTH_EVENTS, events(0.5, 5.0), span=span(0, 2))
    assert not store.has(CORE_HEALTH_EVENTS)


def test_a_partitioned_table_needs_whole_partitions(tmp_path: Path) -> None:
    half = Span(T0, T0 + HOUR / 2)
    with pytest.raises(DataError, match="whole hours"):
        TableStore(tmp_path).write(CORE_HEALTH_EVENTS, events(0.2), span=half)


def test_rejects_are_counted_with_rule_and_example(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    frame = pl.concat([events(0.1), events(0.2, count=0), events(0.1)])
    written = store.write(CORE_HEALTH_EVENTS, frame, span=span(0, 1))
    assert written.rows + written.rejected == frame.height
    rules = dict(store.gather_parts(QUARANTINE).select("rule", "count").iter_rows())
    assert rules == {"count < 1": 1, "duplicate key (event_id)": 1}


def test_a_row_without_a_time_is_rejected_and_not_lost(tmp_path: Path) -> None:
    row = {
        "node": "n1",
        "ts": None,
        "kind": "xid",
        "code": 79,
        "pci_bus_id": None,
        "pid": None,
        "process": None,
        "line": "x",
        "source": "kernel_log",
        "ingested_at": T0,
    }
    store = TableStore(tmp_path)
    frame = pl.DataFrame([row], schema=RAW_KERNEL_LOG.schema)
    assert store.write(RAW_KERNEL_LOG, frame, span=span(0, 1)).rejected == 1
    assert "ts is null" in store.gather_parts(QUARANTINE)["rule"][0]


def test_a_clean_rewrite_clears_the_rejects_of_its_span(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.write(CORE_HEALTH_EVENTS, events(0.2, count=0), span=span(0, 1))
    store.write(CORE_HEALTH_EVENTS, events(0.2), span=span(0, 1))
    assert store.gather_parts(QUARANTINE).is_empty()


def test_a_half_written_file_is_never_read(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.write(CORE_HEALTH_EVENTS, events(0.5), span=span(0, 1))
    folder = store.folder(CORE_HEALTH_EVENTS)
    (folder / ".unfinished-1-2026-01-05T00.parquet").write_bytes(b"PAR1 cut")
    (folder / "_temporary").mkdir()
    assert store.read(CORE_HEALTH_EVENTS).height == 1


def test_reading_what_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="core/topology: nothing is stored.*Materialise"):
        TableStore(tmp_path).read(CORE_TOPOLOGY)


def test_a_missing_column_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    with pytest.raises(StructureError, match="column 'place' .* is missing"):
        store.write(CORE_TOPOLOGY, CORE_TOPOLOGY.empty().drop("place"))
    assert not store.has(CORE_TOPOLOGY)


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [(T0, T0, "empty"), (T0.replace(tzinfo=None), T0.replace(tzinfo=None), "no time zone")],
)
def test_a_span_is_not_empty_and_has_a_zone(start: datetime, end: datetime, text: str) -> None:
    with pytest.raises(DataError, match=text):
        Span(start, end)


def test_a_row_stamped_with_its_end_belongs_to_the_hour_before(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    frame = pl.concat([scores("gpu", T0 + HOUR), scores("gpu", T0 + 2 * HOUR)])
    store.write(GPU_SCORES, frame, span=span(0, 2))
    assert store.read(GPU_SCORES, span=span(0, 1))["as_of"].to_list() == [T0 + HOUR]
    with pytest.raises(DataError, match="1 rows lie outside"):
        store.write(GPU_SCORES, scores("gpu", T0), span=span(0, 2))


def scores(kind: str, as_of: datetime, status: str = "ok") -> pl.DataFrame:
    contract = GPU_SCORES if kind == "gpu" else NODE_SCORES
    row = {
        "entity_kind": kind,
        "entity_id": f"{kind}-1",
        "node": "n1",
        "as_of": as_of,
        "horizon_h": 24,
        "score": 0.5 if status == "ok" else None,
        "status": status,
        "status_reason": None,
        "fault_type": None,
        "fault_probability": None,
        "reasons": [],
        "missing_share": 0.0,
        "model_version": "3",
        "trained_on": "synthetic",
    }
    return pl.DataFrame([row], schema=contract.schema)


def publish(folder: Path, as_of: datetime) -> dict[str, object]:
    path = publish_scores(
        folder,
        gpu_scores=scores("gpu", as_of, "unknown"),
        node_scores=scores("node", as_of),
        published_at=as_of + timedelta(minutes=2),
        ttl=timedelta(minutes=30),
    )
    return dict(json.loads(path.read_text()))


def test_latest_names_the_tick_with_its_hash_and_expiry(tmp_path: Path) -> None:
    latest = publish(tmp_path, T0)
    assert latest["expires_at"] == "2026-01-05T00:30:00+00:00"
    assert latest["coverage"] == 0.0
    files = latest["files"]
    assert isinstance(files, dict)
    entry = files["node_scores"]
    content = (tmp_path / entry["path"]).read_bytes()
    assert sha256(content).hexdigest() == entry["sha256"]


def test_a_new_tick_leaves_the_old_file_in_place(tmp_path: Path) -> None:
    publish(tmp_path, T0)
    publish(tmp_path, T0 + HOUR)
    assert len(list((tmp_path / "node_scores").glob("*.parquet"))) == 2


def test_a_tick_never_mixes_moments(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one as_of"):
        publish_scores(
            tmp_path,
            gpu_scores=scores("gpu", T0),
            node_scores=scores("node", T0 + HOUR),
            published_at=T0,
            ttl=HOUR,
        )
    assert not (tmp_path / "LATEST.json").exists()
