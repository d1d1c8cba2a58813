"""Rules of stored telemetry: however it is cut, it reads back the same; no hour is seen half."""

import json
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.engine.plan import N_KNOWN
from features.engine.samples import Piece, SampleSource
from features.errors import DataError, StructureError
from features.packing import PACKED_NULL, FrameSamples
from features.tables import CORE_GPU_TELEMETRY
from pipelines.storage.store import Span, TableStore
from pipelines.storage.telemetry import parquet as telemetry_parquet
from pipelines.storage.telemetry import store as telemetry_store
from pipelines.storage.telemetry.layout import day_folder, read_manifest
from pipelines.storage.telemetry.store import TelemetryStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NAMES = CORE_GPU_TELEMETRY.schema.names()
COLUMNS = ("energy_j", "power_w", "gpu_temp_c", "row_remap_failure", N_KNOWN)
ALL_TIME = {"start_ms": -(2**62), "end_ms": 2**62}


@pytest.fixture(autouse=True)
def small_shards() -> Iterator[None]:
    """Two GPUs per shard and three rows per row group, so that few rows meet every border."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry_store, "SHARD_SIZE", 2)
        patch.setattr(telemetry_parquet, "ROW_GROUP", 3)
        yield


def sample(hours: float, gpu: str = "g", **metrics: Any) -> dict[str, Any]:
    return {**dict.fromkeys(NAMES), "gpu_uuid": gpu, "ts": T0 + hours * HOUR, "node": "n"} | metrics


def core(*rows: dict[str, Any]) -> pl.DataFrame:
    frame = pl.DataFrame(list(rows), schema=CORE_GPU_TELEMETRY.schema)
    return frame.sort("gpu_uuid", "ts")


def within(frame: pl.DataFrame, start: datetime, end: datetime) -> pl.DataFrame:
    return frame.filter(pl.col("ts") >= start, pl.col("ts") < end)


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    """Up to nine samples of five GPUs within two days."""
    key = st.tuples(
        st.sampled_from("abcde"), st.integers(0, 47), st.sampled_from([0, 1, 3_599_999])
    )
    rows = [
        sample(
            hour + ms / 3_600_000,
            gpu,
            energy_j=draw(st.none() | st.integers(0, 2**53)),
            power_w=draw(st.sampled_from([None, 0.0, 700.0, 700.1])),
            gpu_temp_c=draw(st.sampled_from([None, -40.0, 61.0])),
            row_remap_failure=draw(st.sampled_from([None, 0, 1])),
            pcie_tx_bytes_s=draw(st.sampled_from([None, 1e9])),
        )
        for gpu, hour, ms in draw(st.lists(key, max_size=9, unique=True))
    ]
    return core(*rows)


def samples_of(source: SampleSource, shards: Sequence[int], **span: int) -> list[tuple[Any, ...]]:
    """Every sample with what is known of it, in the order of its GPU's pieces."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    uuids = source.uuids()
    for shard in shards:
        for piece in source.pieces(shard, columns=COLUMNS, **(span or ALL_TIME)):
            check_piece(piece)
            for i, (gpu, ts_ms) in enumerate(zip(piece.gpu, piece.ts_ms, strict=True)):
                known = {
                    name: int(array[i])
                    for name, array in piece.values.items()
                    if int(array[i]) != piece.nulls.get(name)
                }
                found.setdefault(uuids[gpu], []).append((int(ts_ms), sorted(known.items())))
    assert all(rows == sorted(rows) for rows in found.values())
    return sorted((uuid, *row) for uuid, rows in found.items() for row in rows)


def check_piece(piece: Piece) -> None:
    keys = list(zip(piece.gpu.tolist(), piece.ts_ms.tolist(), strict=True))
    assert keys == sorted(keys)
    assert keys
    assert (piece.gpu.dtype, piece.ts_ms.dtype) == (np.uint32, np.int64)
    assert not any(array.flags.writeable for array in piece.values.values())
    assert all(null == PACKED_NULL[name] for name, null in piece.nulls.items())


@settings(max_examples=20)
@given(frames(), st.lists(st.integers(1, 47), max_size=3, unique=True), st.data())
def test_however_it_is_cut_it_reads_back_the_same(
    frame: pl.DataFrame, cuts: list[int], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        check_cuts(TelemetryStore(Path(name)), frame, cuts, data)


def check_cuts(
    store: TelemetryStore, frame: pl.DataFrame, cuts: list[int], data: st.DataObject
) -> None:
    bounds = [0, *sorted(cuts), 48]
    spans = list(pairwise(bounds))
    for first, last in data.draw(st.permutations(spans)):
        start, end = T0 + first * HOUR, T0 + last * HOUR
        store.write(within(frame, start, end), start=start, end=end)
    if data.draw(st.booleans()):
        store.compact(T0.date())
    assert store.read().equals(frame)
    assert set(store.hours()) == {T0 + i * HOUR for i in range(48)}
    first, last = sorted(data.draw(st.tuples(st.integers(0, 40), st.integers(41, 48))))
    start, end = T0 + first * HOUR, T0 + last * HOUR
    assert store.read(start=start, end=end).equals(within(frame, start, end))
    ms = {"start_ms": int(start.timestamp() * 1000), "end_ms": int(end.timestamp() * 1000)}
    for span in ({}, ms):
        assert samples_of(store, [0, 1, 2], **span) == samples_of(FrameSamples(frame), [0], **span)


def write(store: TelemetryStore, first: int, last: int, *rows: dict[str, Any], **more: int) -> int:
    return store.write(core(*rows), start=T0 + first * HOUR, end=T0 + last * HOUR, **more)


def test_an_hour_is_replaced_in_every_shard_also_where_it_gets_no_row(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 2, *(sample(i + 0.5, gpu) for gpu in "abc" for i in (0, 1)))
    assert len(store.files()) == 4
    write(store, 1, 2, sample(1.2, "a"))
    assert store.read().select("gpu_uuid", "ts").rows() == [
        ("a", T0 + 0.5 * HOUR),
        ("a", T0 + 1.2 * HOUR),
        ("b", T0 + 0.5 * HOUR),
        ("c", T0 + 0.5 * HOUR),
    ]
    assert sorted(tmp_path.glob("*/*/*.parquet")) == sorted(store.files())


def test_an_hour_without_rows_is_covered(tmp_path: Path) -> None:
    tables = TableStore(tmp_path)
    span = Span(T0, T0 + 2 * HOUR)
    tables.write(CORE_GPU_TELEMETRY, core(sample(0)), span=span, generation=7)
    assert tables.generations(CORE_GPU_TELEMETRY) == {T0: 7, T0 + HOUR: 7}
    assert tables.covered_until(CORE_GPU_TELEMETRY) == T0 + 2 * HOUR
    assert tables.has(CORE_GPU_TELEMETRY)
    assert tables.read(CORE_GPU_TELEMETRY, span=Span(T0 + HOUR, T0 + 2 * HOUR)).is_empty()
    with pytest.raises(DataError, match="nothing is stored between"):
        tables.read(CORE_GPU_TELEMETRY, span=Span(T0 + 2 * HOUR, T0 + 3 * HOUR))


def test_rows_that_break_the_contract_are_not_stored(tmp_path: Path) -> None:
    rows = core(sample(0.1), sample(0.2, power_w=-1.0))
    written = TableStore(tmp_path).write(CORE_GPU_TELEMETRY, rows, span=Span(T0, T0 + HOUR))
    assert (written.rows, written.rejected, written.files) == (1, 1, 1)


def test_a_day_that_becomes_whole_is_one_file_per_shard(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    rows = [sample(i, gpu) for gpu in "abc" for i in (3, 20)]
    write(store, 12, 24, *rows[1::2], generation=4)
    assert not store.compact(T0.date()) or store.files()
    write(store, 0, 12, *rows[0::2], generation=5)
    assert [path.name[:4] for path in store.files()] == ["day-", "day-"]
    assert store.read().equals(core(*rows))
    assert [store.hours()[T0 + i * HOUR] for i in (0, 11, 12, 23)] == [5, 5, 4, 4]


def test_a_late_hour_takes_its_place_in_a_day_that_was_compacted(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 24, *(sample(i) for i in range(5)), generation=1)
    write(store, 2, 3, sample(2.5), generation=2)
    times = [0, 1, 2.5, 3, 4]
    assert store.read()["ts"].to_list() == [T0 + i * HOUR for i in times]
    pieces = list(store.pieces(0, columns=(), **ALL_TIME))
    assert np.concatenate([p.ts_ms for p in pieces]).tolist() == [
        round((T0 + i * HOUR).timestamp() * 1000) for i in times
    ]
    assert store.compact(T0.date())
    assert len(store.files()) == 1
    assert store.read()["ts"].to_list() == [T0 + i * HOUR for i in times]
    assert (store.hours()[T0 + HOUR], store.hours()[T0 + 2 * HOUR]) == (1, 2)
    assert not store.compact(T0.date())


def test_a_compaction_leaves_no_file_where_every_row_was_superseded(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 24, *(sample(3, gpu) for gpu in "abc"))
    write(store, 3, 4, sample(3, "a"))
    assert store.compact(T0.date())
    assert [path.parent.name for path in store.files()] == ["shard=0000"]
    assert store.read().equals(core(sample(3, "a")))


def test_a_compaction_gives_way_to_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 2, sample(0.5), sample(1.5))
    commit = TelemetryStore._commit

    def late(self: TelemetryStore, *args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(TelemetryStore, "_commit", commit)
        write(store, 1, 2, sample(1.7))
        return commit(self, *args, **kwargs)

    monkeypatch.setattr(TelemetryStore, "_commit", late)
    assert not store.compact(T0.date())
    assert store.read()["ts"].to_list() == [T0 + 0.5 * HOUR, T0 + 1.7 * HOUR]
    assert sorted(tmp_path.rglob("*/*.parquet")) == sorted(store.files())


@pytest.mark.parametrize("step", ["replace", "write_manifest"])
def test_a_crash_before_the_manifest_is_in_place_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = TelemetryStore(tmp_path)
    rows = [sample(0.5, gpu, power_w=1.0) for gpu in "abc"]
    write(store, 0, 1, *rows, generation=1)
    with monkeypatch.context() as patch:
        if step == "replace":
            _fail_at_second_rename(patch)
        else:
            patch.setattr(telemetry_store, "write_manifest", _crash)
        with pytest.raises(KeyboardInterrupt):
            write(store, 0, 1, *(row | {"power_w": 2.0} for row in rows), generation=2)
    assert store.read().equals(core(*rows))
    assert store.hours() == {T0: 1}
    write(store, 1, 2)
    finished = [p for p in tmp_path.glob("*/*/*.parquet") if not p.name.startswith(".")]
    assert sorted(finished) == sorted(store.files())


def _crash(*_: Any) -> None:
    raise KeyboardInterrupt


def _fail_at_second_rename(patch: pytest.MonkeyPatch) -> None:
    replace, seen = Path.replace, []

    def failing(self: Path, target: Path) -> Path:
        seen.append(self)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return replace(self, target)

    patch.setattr(Path, "replace", failing)


def test_files_that_vanish_under_a_reader_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 1, sample(0.5))
    old = read_manifest(day_folder(tmp_path, T0.date()))
    write(store, 0, 1, sample(0.7))

    def times_of_pieces() -> list[datetime]:
        pieces = store.pieces(0, columns=(), **ALL_TIME)
        return [datetime.fromtimestamp(ms / 1000, UTC) for piece in pieces for ms in piece.ts_ms]

    def times_of_rows() -> list[datetime]:
        return store.read()["ts"].to_list()

    for read in (times_of_rows, times_of_pieces):
        answers = [old]
        with monkeypatch.context() as patch:
            patch.setattr(
                telemetry_store,
                "read_manifest",
                lambda day, answers=answers: answers.pop() if answers else read_manifest(day),
            )
            assert read() == [T0 + 0.7 * HOUR]


def test_a_piece_under_way_outlives_a_rewrite(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 2, *(sample(i / 4, power_w=float(i)) for i in range(8)))
    pieces = store.pieces(0, columns=["power_w"], **ALL_TIME)
    first = next(pieces)
    write(store, 0, 2, sample(0.5))
    rest = [value for piece in pieces for value in piece.values["power_w"].tolist()]
    assert first.values["power_w"].tolist() + rest == [10 * i for i in range(8)]


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(["flip", "cut", "empty", "other"]))
def test_a_damaged_file_is_one_error_that_names_it(at: int, damage: str) -> None:
    frame = core(*(sample(i / 9, power_w=i * 1.5, energy_j=i * 40_001) for i in range(8)))
    with tempfile.TemporaryDirectory() as name:
        store = TelemetryStore(Path(name))
        store.write(frame, start=T0, end=T0 + HOUR)
        (path,) = store.files()
        content = bytearray(path.read_bytes())
        at %= len(content)
        if damage == "flip":
            content[at] ^= 0x55
        elif damage == "other":
            content = bytearray((Path(name) / "gpus.parquet").read_bytes())
        path.write_bytes(content[: {"cut": at, "empty": 0}.get(damage, len(content))])
        for read in (
            lambda: store.read().equals(frame),
            lambda: samples_of(store, [0]) == samples_of(FrameSamples(frame), [0]),
        ):
            try:
                is_whole, message = read(), ""
            except DataError as error:
                is_whole, message = False, str(error)
            # Some bytes of a Parquet file mean nothing to a reader: who wrote it, say.
            assert str(path) in message or (damage == "flip" and is_whole)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 1, sample(0))
    (path,) = store.files()
    path.unlink()
    with pytest.raises(DataError, match=f"{path.name} is missing. Materialise 2026-01-05"):
        store.read()


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 1, sample(0))
    manifest = day_folder(tmp_path, T0.date()) / "manifest.json"
    manifest.write_text(json.dumps({"hours": {"00": 3}}))
    with pytest.raises(DataError, match="manifest.json cannot be read"):
        store.hours()


def test_codes_are_never_given_anew_while_rows_are_stored(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 1, sample(0))
    (tmp_path / "gpus.parquet").unlink()
    with pytest.raises(DataError, match="which GPU a code means"):
        write(store, 1, 2, sample(1, "new"))


def test_codes_stay_when_gpus_come_go_and_move(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    write(store, 0, 1, sample(0, "b", node="n1"), sample(0, "a", node="n2"))
    write(store, 1, 2, sample(1, "c", node="n0"), sample(1, "a", node="n0"))
    assert store.uuids() == ["b", "a", "c"]


def _write_hours(folder: Path, hours: list[int]) -> None:
    for hour in hours:
        rows = [sample(hour, f"g{hour}"), sample(hour, "shared")]
        write(TelemetryStore(folder), hour, hour + 1, *rows, generation=hour)


@pytest.mark.slow
def test_writers_in_several_processes_lose_no_hour_and_give_a_gpu_one_code(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    halves = [list(range(0, 24, 2)), list(range(1, 24, 2))]
    writers = [context.Process(target=_write_hours, args=(tmp_path, half)) for half in halves]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    store = TelemetryStore(tmp_path)
    assert store.hours() == {T0 + i * HOUR: i for i in range(24)}
    assert sorted(store.uuids()) == sorted([*(f"g{i}" for i in range(24)), "shared"])
    names = store.read().sort("ts", "gpu_uuid")["gpu_uuid"].to_list()
    assert names == [name for i in range(24) for name in (f"g{i}", "shared")]


def test_only_integers_can_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StructureError, match="no integers in node"):
        list(TelemetryStore(tmp_path).pieces(0, columns=["node"], **ALL_TIME))


def test_the_same_rows_give_the_same_files(tmp_path: Path) -> None:
    for name in "xy":
        write(TelemetryStore(tmp_path / name), 0, 1, *(sample(0.5, gpu) for gpu in "abc"))
    contents = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in TelemetryStore(
            tmp_path / name).files()}
        for name in "xy"
    ]  # fmt: skip
    assert contents[0] == contents[1]


def test_a_row_outside_the_hours_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 of 2 rows lie outside .* for example g at"):
        write(TelemetryStore(tmp_path), 0, 1, sample(0.5), sample(1.0))
    assert not TelemetryStore(tmp_path).hours()


def test_the_origin_of_an_hour_changes_with_its_rows_alone(tmp_path: Path) -> None:
    store = TelemetryStore(tmp_path)
    for hour in range(24):
        write(store, hour, hour + 1, sample(hour + 0.5), generation=1)
    before = store.origins()
    assert len(set(before.values())) == len(before) == 24
    write(store, 3, 4, sample(3.5), generation=2)
    assert store.origins() == before
    write(store, 3, 4, sample(3.5, power_w=1.0), generation=2)
    assert store.compact(T0.date())
    changed = [hour for hour, origin in store.origins().items() if origin != before[hour]]
    assert changed == [T0 + 3 * HOUR]


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, written = TelemetryStore(tmp_path), Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if "shard=0001" in str(path):
            raise OSError(28, "No space left on device", str(path))
        return written(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write(store, 0, 1, *(sample(0.5, gpu) for gpu in "abc"))
    assert not list(tmp_path.rglob("date=*/*/*.parquet"))
    assert store.read().is_empty()
