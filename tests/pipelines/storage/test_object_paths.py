"""Rules of tables in a bucket: they are those of a folder, and a lost store is not an empty one."""

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import DataError
from features.monitoring_tables import QUARANTINE
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_TOPOLOGY,
    LABELS,
)
from pipelines.storage.kept_objects import KeptObjects
from pipelines.storage.object_paths import (
    ObjectPath,
    Place,
    at_once,
    files_between,
    remove_folders,
    version_word,
)
from pipelines.storage.object_store import ObjectStoreError
from pipelines.storage.store import Span, TableStore, scan_files
from pipelines.storage.telemetry import store as telemetry_store
from pipelines.storage.telemetry.store import TelemetryStore
from tests.pipelines.memory_bucket import MemoryBucket

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)

names = st.sampled_from(["a", "b.parquet", ".c", "2026-01-05", "2026-01-06.parquet", "d=1"])
folders = st.lists(st.sampled_from(["e", "d=2", ".f"]), max_size=2)
keys = st.lists(
    st.builds(lambda above, name: "/".join([*above, name]), folders, names),
    max_size=6,
    unique=True,
)


def both(some: list[str], folder: Path) -> tuple[Path, ObjectPath]:
    """The same files in a folder and in a bucket."""
    bucket = MemoryBucket(folder / "local")
    for key in some:
        (folder / "root" / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / "root" / key).write_bytes(key.encode())
        bucket.put(f"root/{key}", key.encode())
    (folder / "root").mkdir(exist_ok=True)
    bucket.put("rootless/x", b"of others")
    return folder / "root", bucket.path("root")


@given(
    keys,
    st.sampled_from(["*", "*.parquet", "[!.]*.parquet", "2026*", "*/*", "d=*/*.parquet", "e/*"]),
)
def test_a_pattern_finds_in_a_bucket_what_it_finds_in_a_folder(some, pattern) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = both(some, Path(folder))
        found = [str(path.relative_to(theirs)) for path in theirs.glob(pattern)]
        assert sorted(found) == sorted(str(path.relative_to(ours)) for path in ours.glob(pattern))


@settings(max_examples=40)
@given(keys, names, names)
def test_files_between_two_names_are_the_same_in_a_bucket(some, first, last) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for place in both(some, Path(folder)):
            found = files_between(place, ".parquet", first=first, last=last)
            expected = sorted(
                key for key in some if "/" not in key and key.endswith(".parquet")
                and first <= key <= last
            )  # fmt: skip
            assert [path.name for path in found] == expected
            assert [path.read_bytes() for path in found] == [key.encode() for key in expected]


@settings(max_examples=40)
@given(keys)
def test_removing_folders_leaves_the_files_beside_them(some) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for place in both(some, Path(folder)):
            remove_folders(place)
            left = sorted(path.name for path in place.glob("*"))
            assert left == sorted(key for key in some if "/" not in key)


def test_a_folder_that_cannot_be_listed_is_no_empty_one(tmp_path) -> None:
    (tmp_path / "table").write_bytes(b"no folder")
    with pytest.raises(NotADirectoryError):
        files_between(tmp_path / "table", ".parquet")
    assert files_between(tmp_path / "none", ".parquet") == []


def test_what_a_listing_showed_of_an_object_takes_no_request(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)
    bucket.put("t/x.parquet", b"12")
    (path,) = files_between(bucket.path("t"), ".parquet")
    before = bucket.n_requests
    assert path.stat().st_size == 2
    word = version_word(path)
    assert bucket.n_requests == before
    bucket.put("t/x.parquet", b"34")
    assert version_word(bucket.path("t/x.parquet")) != word


def test_a_small_object_is_fetched_again_when_it_has_changed_and_only_then(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)

    def read() -> bytes:
        (path,) = files_between(bucket.path("kept"), ".parquet")
        return path.read_bytes()

    bucket.put("kept/x.parquet", b"old")
    assert read() == b"old"
    before = bucket.n_requests
    assert read() == b"old"
    assert bucket.n_requests == before + 1  # the listing
    bucket.put("kept/x.parquet", b"new")
    assert read() == b"new"


def test_an_object_replaced_between_listing_and_reading_is_not_kept_as_the_old_one(
    tmp_path,
) -> None:
    bucket = MemoryBucket(tmp_path)
    bucket.put("between/x.parquet", b"first")
    (path,) = files_between(bucket.path("between"), ".parquet")
    bucket.put("between/x.parquet", b"second")
    assert path.read_bytes() == b"second"
    bucket.put("between/x.parquet", b"first")
    assert path.read_bytes() == b"first"


def test_kept_contents_hold_their_bound_and_give_up_the_oldest() -> None:
    kept = KeptObjects(most_bytes=5, largest=3)
    for name in "abc":
        kept.put(("s3://b", name, "t"), name.encode() * 2)
    assert [kept.get(("s3://b", name, "t")) for name in "abc"] == [None, b"bb", b"cc"]
    kept.put(("s3://b", "d", "t"), b"4444")
    kept.put(("s3://b", "b", "t"), b"b")
    kept.put(("s3://b", "e", "t"), b"ee")
    assert kept.get(("s3://b", "d", "t")) is None
    assert [kept.get(("s3://b", name, "t")) for name in "bce"] == [b"b", b"cc", b"ee"]


def test_a_store_that_is_lost_is_not_asked_for_all_the_rest(tmp_path) -> None:
    asked = []

    def ask(number: int) -> None:
        asked.append(number)
        if not number:
            raise ObjectStoreError("lost")
        time.sleep(0.01)

    with pytest.raises(ObjectStoreError):
        at_once(ask, range(1000), where=MemoryBucket(tmp_path).path("x"))
    assert len(asked) < 500


def samples(*rows: tuple[float, str, int]) -> pl.DataFrame:
    blank = dict.fromkeys(CORE_GPU_TELEMETRY.schema.names())
    values = [
        blank | {"gpu_uuid": gpu, "ts": T0 + hour * HOUR, "node": "n", "energy_j": energy}
        for hour, gpu, energy in rows
    ]
    return pl.DataFrame(values, schema=CORE_GPU_TELEMETRY.schema).sort("gpu_uuid", "ts")


writes = st.lists(
    st.tuples(
        st.integers(0, 30), st.sampled_from([1, 2, 24]), st.integers(0, 9), st.sampled_from("ab")
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=8)
@given(writes)
def test_telemetry_in_a_bucket_is_telemetry_in_a_folder(series) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry_store, "SHARD_SIZE", 1)
        places: tuple[Place, Place] = (Path(folder) / "t", MemoryBucket(Path(folder)).path("t"))
        stores = [TelemetryStore(place) for place in places]
        for first, n_hours, energy, gpu in series:
            start, end = T0 + first * HOUR, T0 + (first + n_hours) * HOUR
            rows = samples((first, gpu, energy), (first + n_hours - 0.5, "c", energy))
            for store in stores:
                store.write(rows, start=start, end=end, generation=energy)
        ours, theirs = (look(store) for store in stores)
        assert ours == theirs
        assert not [key for key in places[1].bucket.objects if ".unfinished" in key]


def look(store: TelemetryStore) -> tuple[Any, ...]:
    """All that a reader can see."""
    middle = T0 + 12 * HOUR
    return (
        store.read().to_dicts(),
        store.read(start=middle, end=middle + 6 * HOUR).to_dicts(),
        store.hours(),
        store.hours(start=middle, end=middle + HOUR),
        store.origins(start=middle),
        store.covered_until(),
        [path.name for path in store.files()],
        list(store.uuids()),
        [
            (piece.gpu.tolist(), piece.ts_ms.tolist(), piece.values["energy_j"].tolist())
            for shard in range(3)
            for piece in store.pieces(shard, start_ms=-(2**62), end_ms=2**62, columns=["energy_j"])
            if "energy_j" in piece.values
        ],
    )


def test_a_copy_put_beside_a_days_folder_is_not_read_and_a_day_there_is_not_is_named(
    tmp_path,
) -> None:
    store = TelemetryStore(tmp_path)
    store.write(samples((0.5, "a", 1)), start=T0, end=T0 + HOUR)
    (tmp_path / "date=2026-01-05.bak").mkdir()
    (tmp_path / "date=latest").mkdir()
    assert list(store.hours()) == [T0]
    (tmp_path / "date=2026-02-30").mkdir()
    with pytest.raises(DataError, match=f"{tmp_path}.*day is out of range.*date="):
        store.hours()


def test_hours_of_a_span_are_those_of_all_hours_that_touch_it(tmp_path) -> None:
    store = TelemetryStore(tmp_path)
    store.write(samples((0.5, "a", 1)), start=T0, end=T0 + 3 * HOUR)
    store.write(samples(), start=T0 + 30 * HOUR, end=T0 + 31 * HOUR)
    assert list(store.hours(start=T0 + 1.5 * HOUR, end=T0 + 2.5 * HOUR)) == [
        T0 + HOUR,
        T0 + 2 * HOUR,
    ]
    assert list(store.origins(start=T0 + 3 * HOUR)) == [T0 + 30 * HOUR]
    assert store.covered_until() == T0 + 31 * HOUR


def events(*hours: float) -> pl.DataFrame:
    blank = dict.fromkeys(CORE_HEALTH_EVENTS.schema.names())
    rows = [
        blank | {"event_id": f"e{hour}", "ts": T0 + hour * HOUR, "node": "n1", "kind": "xid",
                 "code": 79, "count": 1}
        for hour in hours
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=CORE_HEALTH_EVENTS.schema)


def test_tables_in_a_bucket_are_those_in_a_folder(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path / "local")
    stores = TableStore(tmp_path / "tables"), TableStore(bucket.path("tables"))
    seen = []
    for store in stores:
        span = Span(T0, T0 + 3 * HOUR)
        store.write(CORE_HEALTH_EVENTS, events(0.5, 2.5), span=span, generation=4)
        store.write(CORE_HEALTH_EVENTS, events(1.5), span=Span(T0 + HOUR, T0 + 2 * HOUR))
        store.write(LABELS, LABELS.empty(), span=Span(T0, T0 + 24 * HOUR))
        store.write(CORE_TOPOLOGY, CORE_TOPOLOGY.empty())
        late = Span(T0 + 1.5 * HOUR, T0 + 2 * HOUR)
        seen.append(
            (
                store.read(CORE_HEALTH_EVENTS).to_dicts(),
                store.read(CORE_HEALTH_EVENTS, span=late).to_dicts(),
                store.read(LABELS).height,
                store.generations(CORE_HEALTH_EVENTS),
                store.generations(CORE_TOPOLOGY),
                store.covered_until(CORE_HEALTH_EVENTS),
                store.covered_until(LABELS),
                [path.name for path in store.files(CORE_HEALTH_EVENTS, span=late)],
                scan_files(store.files(CORE_HEALTH_EVENTS)).collect().to_dicts(),
                store.gather_parts(QUARANTINE).height,
                store.has(CORE_TOPOLOGY),
                store.has(CORE_GPU_TELEMETRY),
            )
        )
    assert seen[0] == seen[1]


def test_generations_of_a_bucket_are_read_once_and_again_when_they_change(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path)
    store = TableStore(bucket.path("tables"))
    store.write(CORE_HEALTH_EVENTS, events(), span=Span(T0, T0 + 24 * HOUR), generation=1)
    assert set(store.generations(CORE_HEALTH_EVENTS).values()) == {1}
    before = bucket.n_requests
    again = TableStore(bucket.path("tables"))
    assert len(again.generations(CORE_HEALTH_EVENTS)) == 24
    assert bucket.n_requests == before + 1  # the listing
    store.write(CORE_HEALTH_EVENTS, events(), span=Span(T0, T0 + HOUR), generation=7)
    assert again.generations(CORE_HEALTH_EVENTS)[T0] == 7


LOOKS: list[Callable[[TableStore], object]] = [
    lambda store: store.read(CORE_HEALTH_EVENTS),
    lambda store: store.has(CORE_HEALTH_EVENTS),
    lambda store: store.covered_until(CORE_HEALTH_EVENTS),
    lambda store: store.generations(CORE_TOPOLOGY),
    lambda store: store.files(CORE_TOPOLOGY),
    lambda store: store.gather_parts(QUARANTINE),
    lambda store: store.read(CORE_GPU_TELEMETRY),
    lambda store: store.has(CORE_GPU_TELEMETRY),
    lambda store: store.covered_until(CORE_GPU_TELEMETRY),
    lambda store: store.telemetry.uuids(),
    lambda store: list(store.telemetry.pieces(0, start_ms=0, end_ms=2**62, columns=["energy_j"])),
]


@pytest.mark.parametrize("look_at", LOOKS)
def test_a_store_that_cannot_be_reached_is_never_taken_for_an_empty_one(tmp_path, look_at) -> None:
    bucket = MemoryBucket(tmp_path)
    store = TableStore(bucket.path("tables"))
    store.write(CORE_HEALTH_EVENTS, events(0.5), span=Span(T0, T0 + HOUR))
    store.write(CORE_GPU_TELEMETRY, samples((0.5, "a", 1)), span=Span(T0, T0 + HOUR))
    look_at(store)  # what it keeps in memory, it then has
    n_all = bucket.n_requests
    look_at(store)
    for n_answered in range(bucket.n_requests - n_all):
        bucket.n_requests, bucket.fails_after = 0, n_answered
        with pytest.raises(ObjectStoreError):
            look_at(store)
        bucket.fails_after = None


def test_an_empty_bucket_says_that_nothing_is_stored(tmp_path) -> None:
    store = TableStore(MemoryBucket(tmp_path).path("tables"))
    with pytest.raises(DataError, match=r"nothing is stored under s3://memory/tables"):
        store.read(CORE_HEALTH_EVENTS)
    assert store.generations(CORE_HEALTH_EVENTS) == {}


def test_a_store_lost_at_any_moment_of_a_write_leaves_each_hour_old_or_new(tmp_path) -> None:
    old, new = samples((0.5, "a", 1), (1.5, "b", 1)), samples((0.5, "a", 2), (1.5, "b", 2))
    span = {"start": T0, "end": T0 + 2 * HOUR}
    n_answered, seen = 0, set()
    while True:
        bucket = MemoryBucket(tmp_path)
        store = TelemetryStore(bucket.path("t"))
        store.write(old, **span)
        bucket.n_requests, bucket.fails_after = 0, n_answered
        try:
            store.write(new, **span)
            break
        except ObjectStoreError:
            bucket.fails_after = None
        values = store.read()["energy_j"].to_list()
        assert values in ([1, 1], [2, 2])
        seen.add(values[0])
        store.write(new, **span)
        assert store.read().equals(new)
        n_answered += 1
    assert seen == {1, 2}


def test_what_a_reader_has_opened_stays_readable_when_it_is_superseded(tmp_path) -> None:
    store = TelemetryStore(MemoryBucket(tmp_path).path("t"))
    span = {"start": T0, "end": T0 + HOUR}
    store.write(samples((0.5, "a", 1)), **span)
    pieces = store.pieces(0, start_ms=0, end_ms=2**62, columns=["energy_j"])
    store.write(samples((0.5, "a", 2)), **span)
    assert [piece.values["energy_j"].tolist() for piece in pieces] in ([[1]], [[2]])


def test_writers_of_a_bucket_lock_files_of_their_machine(tmp_path) -> None:
    bucket = MemoryBucket(tmp_path / "local")
    TelemetryStore(bucket.path("t")).write(samples((0.5, "a", 1)), start=T0, end=T0 + HOUR)
    assert [path.suffix for path in (tmp_path / "local" / "locks").iterdir()] == [".lock"]
    assert not any(".lock" in key for key in bucket.objects)
