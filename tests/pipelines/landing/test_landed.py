"""Rules of the landing: whole or not at all, once by content, the same however it was cut."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.errors import DataError, SourceError
from features.raw_tables import RAW_GPU_TELEMETRY, RAW_JOB_LOG, RAW_KERNEL_LOG
from pipelines.landing import landed as landing_module
from pipelines.landing.journal import Reading
from pipelines.landing.landed import Landing, LandingWriter, reading_id
from pipelines.landing.schema import LandingError
from pipelines.sources.result import ReadTally, SourceResult, as_table
from pipelines.storage.store import Span

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def log(*seconds: float, text: str = "x") -> SourceResult:
    """A kernel log with one line at each of some seconds."""
    tally = ReadTally(table="raw/kernel_log", source="kernel_log", origin="n1.log")
    tally.read(len(seconds))
    tally.parsed(len(seconds))
    rows = [
        {
            "node": "n1",
            "ts": T0 + second * SECOND,
            "kind": "xid",
            "code": 79,
            "line": f"{text} {second}",
            "source": "kernel_log",
            "ingested_at": T0 + 9 * HOUR,
        }
        for second in seconds
    ]
    return tally.result({"raw/kernel_log": as_table(RAW_KERNEL_LOG, rows)})


def samples(*seconds: float, temp: float = 40.0) -> SourceResult:
    rows = [
        {
            "gpu_uuid": "GPU-1",
            "ts": T0 + second * SECOND,
            "gpu_temp_c": temp,
            "source": "dcgm_text",
            "ingested_at": T0 + 9 * HOUR,
        }
        for second in seconds
    ]
    return SourceResult({"raw/gpu_telemetry": as_table(RAW_GPU_TELEMETRY, rows)})


def reading(name: str, **changes: object) -> Reading:
    given: dict[str, object] = {"input": "logs", "source": "kernel_log", "origin": name}
    return Reading(reading_id(how="", what=name), **(given | changes))  # type: ignore[arg-type]


def land(landing: Landing, *pieces: tuple[str, Sequence[SourceResult]], **changes: object) -> None:
    with landing.writer() as writer:
        for name, chunks in pieces:
            writer.add(reading(name, **changes), chunks, landed_at=T0)


def seconds_of(landing: Landing, span: Span | None = None) -> list[float]:
    times = landing.read(RAW_KERNEL_LOG, span=span)["ts"]
    return [(ts - T0).total_seconds() for ts in times]


def test_what_landed_is_read_back_with_its_account(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    land(landing, ("a", [log(1, 2), log(3)]), ("b", [log(7200)]))
    assert seconds_of(landing) == [1, 2, 3, 7200]
    assert seconds_of(landing, Span(T0, T0 + HOUR)) == [1, 2, 3]
    assert landing.journal.reads().row(0) == ("kernel_log", "a", 3, 3, 0, 0)
    assert landing.count(RAW_KERNEL_LOG, span=Span(T0, T0 + HOUR)) == 3


def test_an_empty_landing_reads_as_an_empty_table(tmp_path: Path) -> None:
    landing = Landing(tmp_path / "absent")
    assert landing.read(RAW_JOB_LOG).equals(RAW_JOB_LOG.empty())
    assert landing.journal.generation() == 0
    assert not (tmp_path / "absent").exists()


def test_lines_repeated_in_one_log_count_and_lines_of_overlapping_logs_do_not(
    tmp_path: Path,
) -> None:
    landing = Landing(tmp_path)
    land(landing, ("a", [log(1, 1, 2)]), ("b", [log(1, 2, 2, 3)]))
    assert seconds_of(landing) == [1, 1, 2, 2, 3]


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_overlapping_windows_in_any_order_give_the_same_table(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    lines = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=12).map(sorted))
    whole = Landing(tmp_path_factory.mktemp("whole"))
    land(whole, ("whole", [log(*lines)]), ("t", [samples(*lines)]))
    # Windows of time: each has every line between its edges, and together they cover all.
    edges = data.draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4))
    windows = [(min(edge), max(edge)) for edge in edges] + [(0, 9), (9, 20)]
    order = data.draw(st.permutations(windows))
    cut = Landing(tmp_path_factory.mktemp("cut"))
    for at, (first, last) in enumerate(order):
        inside = [line for line in lines if first <= line <= last]
        land(cut, (f"{at}", [log(*inside)]), (f"t{at}", [samples(*inside)]))
    for table in (RAW_KERNEL_LOG, RAW_GPU_TELEMETRY):
        assert cut.read(table).equals(whole.read(table))


def test_the_order_of_landing_changes_nothing_where_samples_contradict(tmp_path: Path) -> None:
    tables = []
    for order in ((40.0, 50.0), (50.0, 40.0)):
        landing = Landing(tmp_path / str(order[0]))
        for temp in order:
            land(landing, (f"{temp}", [samples(1, temp=temp)]))
        tables.append(landing.read(RAW_GPU_TELEMETRY))
    assert tables[0].equals(tables[1])


def test_a_file_that_grew_replaces_what_it_was_and_changes_only_the_new_hours(
    tmp_path: Path,
) -> None:
    landing = Landing(tmp_path)
    land(landing, ("short", [log(1, 3700)]))
    old = reading("short").reading_id
    before = landing.journal.changed_hours("raw/kernel_log")
    land(landing, ("long", [log(1, 3700, 3701)]), supersedes=(old,))
    assert seconds_of(landing) == [1, 3700, 3701]
    assert landing.journal.reads().height == 1
    after = landing.journal.changed_hours("raw/kernel_log")
    assert [hour for hour in after if after[hour] != before.get(hour)] == [T0 + HOUR]
    assert len(list((tmp_path / "parts").rglob("*.parquet"))) == 1


def test_a_superseded_reading_leaves_its_neighbours_in_the_same_part(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    land(landing, ("a", [log(1)]), ("b", [log(2)]))
    land(landing, ("a2", [log(5)]), supersedes=(reading("a").reading_id,))
    assert seconds_of(landing) == [2, 5]


def test_a_source_that_fails_midway_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing_module, "PART_ROWS", 2)

    def breaks() -> Iterator[SourceResult]:
        yield log(1, 2, 3)
        yield log(4, 5, 6)
        raise SourceError("the file ends in the middle")

    landing = Landing(tmp_path)
    with landing.writer() as writer:
        writer.add(reading("good"), [log(9)], landed_at=T0)
        with pytest.raises(SourceError):
            writer.add(reading("bad"), breaks(), landed_at=T0)
    assert seconds_of(landing) == [9]
    assert len(list((tmp_path / "parts").rglob("*.parquet"))) == 1


def test_a_long_reading_is_written_in_parts_and_seen_only_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing_module, "PART_ROWS", 2)
    landing, seen = Landing(tmp_path), []

    def chunks() -> Iterator[SourceResult]:
        for at in range(6):
            yield log(at)
            seen.append(landing.read(RAW_KERNEL_LOG).height)

    land(landing, ("long", chunks()))  # type: ignore[arg-type]
    assert seen == [0] * 6
    assert seconds_of(landing) == [0, 1, 2, 3, 4, 5]
    assert len(list((tmp_path / "parts").rglob("*.parquet"))) == 3


def test_two_writers_at_once_are_one_clear_error(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    with (
        landing.writer(),
        pytest.raises(DataError, match="another process is ingesting"),
        landing.writer(),
    ):
        pass


def test_rows_that_break_the_contract_are_quarantined_with_their_origin(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    land(landing, ("hot", [samples(1, temp=900.0), samples(2)]))
    assert landing.read(RAW_GPU_TELEMETRY).height == 1
    refused = landing.journal.refusals().row(0, named=True)
    assert (refused["table"], refused["origin"], refused["count"]) == (
        "raw/gpu_telemetry",
        "hot",
        1,
    )


class Crash(BaseException):
    """The power goes off."""


@pytest.mark.parametrize("at", range(14))
def test_a_crash_at_any_step_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Every write, sync, rename, statement and removal of a commit is one step."""
    landing = Landing(tmp_path)
    land(landing, ("old", [log(1, 2)]))
    monkeypatch.setattr(landing_module, "PART_ROWS", 2)
    steps = iter(range(1000))

    def step(function):  # type: ignore[no-untyped-def]
        def stepped(*args, **kwargs):  # type: ignore[no-untyped-def]
            if next(steps) == at:
                raise Crash
            return function(*args, **kwargs)

        return stepped

    with monkeypatch.context() as patch:
        patch.setattr(landing_module, "write_table", step(landing_module.write_table))
        patch.setattr(Path, "replace", step(Path.replace))
        patch.setattr(Path, "unlink", step(Path.unlink))
        journal = landing_module.LandingJournal
        patch.setattr(journal, "_enter", step(journal._enter))
        patch.setattr(journal, "commit", step(journal.commit))
        # A dead process commits nothing on its way out.
        commit = LandingWriter.commit
        patch.setattr(LandingWriter, "commit", lambda self: None)
        try:
            with landing.writer() as writer:
                chunks = [log(1, 2, 3), log(4), log(5)]
                new = reading("new", supersedes=(reading("old").reading_id,))
                writer.add(new, chunks, landed_at=T0)
                commit(writer)
        except Crash:
            pass
    assert seconds_of(landing) in ([1, 2], [1, 2, 3, 4, 5])
    is_new = len(seconds_of(landing)) == 5
    with landing.writer() as writer:
        if not is_new:
            new = reading("new", supersedes=(reading("old").reading_id,))
            writer.add(new, [log(1, 2, 3), log(4), log(5)], landed_at=T0)
    assert seconds_of(landing) == [1, 2, 3, 4, 5]
    on_disk = {str(p.relative_to(tmp_path / "parts")) for p in (tmp_path / "parts").rglob("*.*")}
    with landing.writer():
        pass
    assert on_disk >= landing.journal.part_paths()
    kept = {str(p.relative_to(tmp_path / "parts")) for p in (tmp_path / "parts").rglob("*.*")}
    assert kept == landing.journal.part_paths()


def test_rows_outside_the_record_are_found(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    land(landing, ("a", [log(-5, 1, 7200)]))
    before, after = landing.outside(RAW_KERNEL_LOG, Span(T0, T0 + HOUR))
    assert (before[0], after[0]) == (1, 1)
    assert str((T0 - 5 * SECOND).year) in before[1]
    assert landing.outside(RAW_KERNEL_LOG, Span(T0 - HOUR, T0 + 3 * HOUR)) == [(0, ""), (0, "")]


@pytest.mark.parametrize("how", ["read", "count", "outside"])
def test_who_listed_a_part_that_is_merged_meanwhile_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    landing = Landing(tmp_path)
    land(landing, ("a", [log(1, 2)]))
    listed = [[("raw/kernel_log/merged-meanwhile.parquet", ())]]
    real = landing.journal.parts
    monkeypatch.setattr(
        landing.journal, "parts", lambda *args: listed.pop() if listed else real(*args)
    )
    asked = {
        "read": lambda: landing.read(RAW_KERNEL_LOG).height,
        "count": lambda: landing.count(RAW_KERNEL_LOG),
        "outside": lambda: landing.outside(RAW_KERNEL_LOG, Span(T0 - HOUR, T0))[1][0],
    }
    assert asked[how]() == 2
    assert not listed


def test_a_journal_of_another_release_is_refused(tmp_path: Path) -> None:
    import sqlite3

    landing = Landing(tmp_path)
    land(landing, ("a", [log(1)]))
    sql = sqlite3.connect(tmp_path / "journal.sqlite")
    sql.execute("PRAGMA user_version = 99")
    sql.close()
    with pytest.raises(DataError, match="version 1, got 99"):
        landing.read(RAW_KERNEL_LOG)


def test_a_damaged_journal_is_one_clear_error(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    land(landing, ("a", [log(1)]))
    (tmp_path / "journal.sqlite").write_text("no journal " * 100)
    with pytest.raises(LandingError, match=r"journal\.sqlite is damaged"):
        landing.read(RAW_KERNEL_LOG)
    with pytest.raises(LandingError, match=r"journal\.sqlite is damaged"), landing.writer():
        pass


@pytest.mark.parametrize("harm", ["removed", "damaged"])
def test_a_part_that_was_lost_is_named_and_what_it_held_can_be_landed_again(
    tmp_path: Path, harm: str
) -> None:
    landing = Landing(tmp_path)
    land(landing, ("a", [log(1)]), ("b", [samples(1)]))
    part = next((tmp_path / "parts" / "raw" / "kernel_log").iterdir())
    part.write_bytes(b"no Parquet")
    if harm == "removed":
        part.unlink()
    with pytest.raises(LandingError, match="a part is lost or damaged"):
        landing.read(RAW_KERNEL_LOG)
    part.unlink(missing_ok=True)
    with landing.writer() as writer:
        assert not writer.has(reading("a").reading_id)
        assert writer.has(reading("b").reading_id)
    land(landing, ("a", [log(1)]))
    assert seconds_of(landing) == [1]


def test_a_reading_is_known_before_it_is_committed(tmp_path: Path) -> None:
    with Landing(tmp_path).writer() as writer:
        writer.add(reading("a"), [log(1)], landed_at=T0)
        assert writer.has(reading("a").reading_id)
        assert not writer.has(reading("b").reading_id)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(LandingError, match="cannot be read or written"),
        Landing(tmp_path / "file" / "landing").writer(),
    ):
        pass
