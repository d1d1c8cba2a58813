"""Rules of compaction: readers see the same rows, writers win, a kill loses nothing."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.tables import CORE_HEALTH_EVENTS
from pipelines.retention import compaction
from pipelines.retention.compaction import compact_days, disposable, plan_days, remove_files
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LATE = T0 + 30 * DAY


def events(hour: int, *, count: int) -> pl.DataFrame:
    row = {"event_id": f"e{hour}", "ts": T0 + hour * HOUR, "node": "n1", "kind": "xid"}
    empty = dict.fromkeys(CORE_HEALTH_EVENTS.schema)
    return pl.DataFrame([empty | row | {"count": count}], schema=CORE_HEALTH_EVENTS.schema)


def write(store: TableStore, hour: int, count: int, generation: int = 1) -> None:
    span = Span(T0 + hour * HOUR, T0 + (hour + 1) * HOUR)
    rows = events(hour, count=count) if count else CORE_HEALTH_EVENTS.empty()
    store.write(CORE_HEALTH_EVENTS, rows, span=span, generation=generation)


def compact(store: TableStore, until: datetime = LATE) -> int:
    plans = plan_days(store, CORE_HEALTH_EVENTS, since=T0 - DAY, until=until)
    return len(compact_days(store, CORE_HEALTH_EVENTS, plans))


def sweep(store: TableStore) -> None:
    folder = store.folder(CORE_HEALTH_EVENTS)
    assert isinstance(folder, Path)
    remove_files(folder, disposable(folder, grace_s=-1))


def seen(store: TableStore) -> dict[int, int]:
    rows = store.read(CORE_HEALTH_EVENTS)
    return {(ts - T0) // HOUR: count for ts, count in rows.select("ts", "count").iter_rows()}


def names(store: TableStore) -> list[str]:
    folder = store.folder(CORE_HEALTH_EVENTS)
    assert isinstance(folder, Path)
    return sorted(path.name for path in folder.glob("[!.]*.parquet"))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 47), st.integers(0, 9)),
        st.sampled_from([("compact",), ("sweep",)]),
    ),
    max_size=7,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_a_table_reads_as_if_it_were_never_compacted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple]
) -> None:
    store = TableStore(tmp_path_factory.mktemp("store"))
    oracle: dict[int, tuple[int, int]] = {}
    for number, (step, *given_values) in enumerate(steps, start=1):
        if step == "write":
            hour, count = given_values
            write(store, hour, count, generation=number)
            oracle[hour] = (count, number)
        else:
            compact(store) if step == "compact" else sweep(store)
        if oracle:
            assert seen(store) == {hour: count for hour, (count, _) in oracle.items() if count}
            generations = {T0 + hour * HOUR: number for hour, (_, number) in oracle.items()}
            assert store.generations(CORE_HEALTH_EVENTS) == generations
            last = T0 + (max(oracle) + 1) * HOUR
            assert store.covered_until(CORE_HEALTH_EVENTS) == last


def test_a_day_that_is_over_becomes_one_file_and_its_hours_go_after_a_grace(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    for hour in (0, 1, 23, 24):
        write(store, hour, hour + 1)
    assert compact(store, until=T0 + 2 * DAY + 6 * HOUR) == 1  # the second day may still change
    folder = tmp_path / CORE_HEALTH_EVENTS.asset_key
    assert not disposable(folder)
    sweep(store)
    assert names(store) == ["2026-01-05-800003.parquet", "2026-01-06T00.parquet"]
    assert seen(store) == {0: 1, 1: 2, 23: 24, 24: 25}
    assert compact(store, until=T0 + 2 * DAY + 6 * HOUR) == 0


def test_hours_that_were_never_built_stay_uncovered(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    write(store, 0, 1)
    write(store, 5, 1)
    compact(store)
    sweep(store)
    hours = [(at - T0) // HOUR for at in store.generations(CORE_HEALTH_EVENTS)]
    assert hours == [0, 5]
    assert not store.files(CORE_HEALTH_EVENTS, span=Span(T0 + HOUR, T0 + 5 * HOUR))


def test_a_writer_that_comes_between_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TableStore(tmp_path)
    write(store, 0, 1)
    write(store, 1, 1)
    merged = compaction._merged

    def slow(*args: object) -> object:
        content = merged(*args)  # type: ignore[arg-type]
        write(store, 1, 7)
        return content

    monkeypatch.setattr(compaction, "_merged", slow)
    assert compact(store) == 0
    assert seen(store) == {0: 1, 1: 7}


def test_a_kill_before_the_day_is_in_place_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TableStore(tmp_path)
    write(store, 0, 1)
    write(store, 1, 2)
    before = names(store)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", _killed)
        patch.setattr(Path, "replace", _killed)
        with pytest.raises(KeyboardInterrupt):
            compact(store)
    assert names(store) == before
    assert compact(store) == 1
    assert seen(store) == {0: 1, 1: 2}


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_reader_that_listed_hours_before_they_went_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TableStore(tmp_path)
    write(store, 0, 1)
    write(store, 1, 2)
    listed = list(store.files(CORE_HEALTH_EVENTS))
    compact(store)
    sweep(store)
    answers: Iterator[list[Path]] = iter([listed])  # type: ignore[arg-type]
    real = TableStore.files

    def files(self: TableStore, *args: object, **named: object) -> object:
        return next(answers, None) or real(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(TableStore, "files", files)
    assert seen(store) == {0: 1, 1: 2}


def test_an_old_day_keeps_one_hour_in_so_many_and_says_so_once(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    for hour in range(8):
        write(store, hour, hour + 1)

    def thin() -> int:
        plans = plan_days(
            store, CORE_HEALTH_EVENTS, since=T0, until=LATE, thin_before=T0 + DAY, every_h=6
        )
        return len(compact_days(store, CORE_HEALTH_EVENTS, plans))

    assert thin() == 1
    assert seen(store) == {0: 1, 6: 7}
    assert len(store.generations(CORE_HEALTH_EVENTS)) == 8  # covered, so nobody builds them again
    assert thin() == 0
