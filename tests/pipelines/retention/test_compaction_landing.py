"""Rules of the landing's compaction: the same rows before and after, also when it is killed."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.contracts import TableContract
from features.inventory import build_stays
from features.raw_tables import RAW_INVENTORY, RAW_JOB_LOG, RAW_KERNEL_LOG, RAW_NODE_STATES
from features.tables import CORE_INVENTORY, CORE_TOPOLOGY
from pipelines.landing.journal import Reading
from pipelines.landing.landed import LANDED_TABLES, Landing, reading_id
from pipelines.landing.rows import (
    ROW_AGE,
    bucket_end,
    bucket_of,
    still_open,
    without_repeated_sights,
)
from pipelines.retention import compaction_landing
from pipelines.retention.compaction_landing import Folded, LandingCompactor
from pipelines.sources.result import SourceResult
from pipelines.storage.store import Span

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LATE = T0 + 60 * DAY


def frame(contract: TableContract, *rows: dict[str, Any]) -> pl.DataFrame:
    empty = dict.fromkeys(contract.schema)
    return pl.DataFrame([empty | row for row in rows], schema=contract.schema)


def rows_at(hours: Sequence[int]) -> dict[str, pl.DataFrame]:
    """Rows of every kind of table, a set for each hour; two hours alike give equal topology."""
    said = {"source": "x", "ingested_at": T0}
    times = [T0 + hour * HOUR for hour in hours]
    return {
        "raw/kernel_log": frame(
            RAW_KERNEL_LOG, *({"ts": at, "kind": "xid", "line": "x"} | said for at in times)
        ),
        "raw/job_log": frame(
            RAW_JOB_LOG,
            *({"job_id": f"{at:%d%H}", "state": "FAILED", "end": at} | said for at in times),
        ),
        "raw/node_states": frame(
            RAW_NODE_STATES,
            *({"node": "n", "state": "up", "valid_from": at} | said for at in times),
        ),
        "raw/inventory": frame(
            RAW_INVENTORY, *({"ts": at, "gpu_uuid": "g", "node": "n"} | said for at in times)
        ),
        "core/topology": frame(CORE_TOPOLOGY, {"node": "n", "level": "rack", "place": "r"}),
    }


def land(
    landing: Landing, name: str, hours: Sequence[int], *, supersedes: Sequence[str] = ()
) -> str:
    window = Span(T0, T0 + 48 * HOUR)
    found = reading_id(how="", what=name)
    reading = Reading(
        found, input="in", source="x", origin=name, window=window, supersedes=tuple(supersedes)
    )
    with landing.writer() as writer:
        writer.add(reading, [SourceResult(rows_at(hours))], landed_at=T0)
    return found


def compact(root: Path, *, keeps_sights: bool = True) -> Folded:
    done = Folded()
    with Landing(root).writer():
        compactor = LandingCompactor(root, until=LATE, keeps_sights=keeps_sights, states_days=800)
        for table in ROW_AGE:
            for group in compactor.foldable(table):
                done += compactor.fold(table, group)
        compactor.remove_unneeded()
    return done


def seen(root: Path, *but: str) -> dict[str, pl.DataFrame]:
    landing = Landing(root)
    return {key: landing.read(table) for key, table in LANDED_TABLES.items() if key not in but}


def same(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> bool:
    return all(one[key].equals(other[key]) for key in one)


HOURS = st.lists(st.integers(0, 47), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(
    readings=st.lists(HOURS, min_size=2, max_size=5), again=HOURS, is_last_superseded=st.booleans()
)
def test_every_table_reads_as_before_whatever_landed_and_was_superseded(
    tmp_path_factory: pytest.TempPathFactory,
    readings: list[list[int]],
    again: list[int],
    is_last_superseded: bool,
) -> None:
    root = tmp_path_factory.mktemp("landing")
    landing = Landing(root)
    ids = [land(landing, f"r{number}", hours) for number, hours in enumerate(readings)]
    before = seen(root)
    compact(root)
    assert same(seen(root), before)
    land(landing, "again", again, supersedes=ids[-1:] if is_last_superseded else ())
    uncompacted = root.with_name(f"{root.name}-oracle")
    for number, hours in enumerate(readings):
        land(Landing(uncompacted), f"r{number}", hours)
    land(Landing(uncompacted), "again", again, supersedes=ids[-1:] if is_last_superseded else ())
    assert same(seen(root), seen(uncompacted))
    compact(root)
    assert same(seen(root), seen(uncompacted))
    shutil.rmtree(uncompacted)


def test_parts_of_a_day_become_one_and_a_second_run_finds_nothing(tmp_path: Path) -> None:
    for number in range(5):
        land(Landing(tmp_path), f"r{number}", [number])
    compactor = LandingCompactor(tmp_path, until=LATE, keeps_sights=True, states_days=800)
    assert len(compactor.parts("raw/kernel_log")) == 5
    compact(tmp_path)
    parts = compactor.parts("raw/kernel_log")
    assert [bucket_of(part.path) for part in parts] == ["2026-01-05"]
    files = {path.name for path in (tmp_path / "parts").glob("*/*/*")}
    assert compact(tmp_path) == Folded()
    assert {path.name for path in (tmp_path / "parts").glob("*/*/*")} == files


def test_young_parts_of_daily_tables_wait(tmp_path: Path) -> None:
    for number in range(3):
        land(Landing(tmp_path), f"r{number}", [number])
    compactor = LandingCompactor(tmp_path, until=T0 + DAY, keeps_sights=True, states_days=800)
    assert not compactor.foldable("raw/kernel_log")
    assert compactor.foldable("raw/job_log")


def test_large_parts_of_samples_are_left_and_what_servers_repeat_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        land(Landing(tmp_path), f"r{number}", [number])
    monkeypatch.setitem(compaction_landing._LARGE, "day", 1)  # type: ignore[attr-defined]
    compact(tmp_path)
    compactor = LandingCompactor(tmp_path, until=LATE, keeps_sights=True, states_days=800)
    counts = [len(compactor.parts(table)) for table in ("raw/kernel_log", "raw/inventory")]
    assert counts == [3, 1]


@pytest.mark.parametrize(
    ("step", "call"),
    [("write_table", 1), ("write_table", 4), ("open_journal", 5), ("open_journal", 12)],
)
def test_a_kill_at_any_step_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, call: int
) -> None:
    for number in range(3):
        land(Landing(tmp_path), f"r{number}", [number, 30])
    before, calls = seen(tmp_path), []
    real = getattr(compaction_landing, step)

    def killed(*args: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return real(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(compaction_landing, step, killed)
        with pytest.raises(KeyboardInterrupt):
            compact(tmp_path)
    assert same(seen(tmp_path), before)
    compact(tmp_path)
    assert same(seen(tmp_path), before)
    known = Landing(tmp_path).journal.part_paths()
    there = {str(p.relative_to(tmp_path / "parts")) for p in (tmp_path / "parts").glob("*/*/*")}
    assert there == known


def test_what_servers_repeat_is_kept_once_when_nothing_supersedes_it(tmp_path: Path) -> None:
    for number in range(4):
        land(Landing(tmp_path), f"r{number}", [3])
    before = seen(tmp_path)
    done = compact(tmp_path)
    assert done.rows_dropped > 0
    assert same(seen(tmp_path), before)


SIGHTS = st.lists(
    st.tuples(
        st.integers(0, 200),  # hours; far enough apart that nothing flickers
        st.sampled_from(["g1", "g2", "g3"]),
        st.sampled_from(["n1", "n2"]),
        st.sampled_from(["0", "1", None]),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda sight: (sight[0], sight[1]),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(old=SIGHTS, new=SIGHTS)
def test_stays_are_the_same_without_repeated_sights(
    old: list[tuple[Any, ...]], new: list[tuple[Any, ...]]
) -> None:
    def sights(drawn: list[tuple[Any, ...]], start: datetime) -> pl.DataFrame:
        return frame(
            RAW_INVENTORY,
            *(
                {"ts": start + 2 * hour * HOUR, "gpu_uuid": gpu, "node": node, "slot": slot}
                | {"source": "x", "ingested_at": T0}
                for hour, gpu, node, slot in drawn
            ),
        )

    before, after = sights(old, T0), sights(new, T0 + 30 * DAY)
    every = build_stays(pl.concat([before, after]), CORE_INVENTORY.empty())
    fewer = build_stays(pl.concat([without_repeated_sights(before), after]), CORE_INVENTORY.empty())
    assert fewer.frame.equals(every.frame)


def test_a_gpu_that_stays_is_seen_twice_a_month_and_no_more(tmp_path: Path) -> None:
    for number in range(20):
        land(Landing(tmp_path), f"r{number}", [number])
    compact(tmp_path, keeps_sights=False)
    assert [at.hour for at in Landing(tmp_path).read(RAW_INVENTORY)["ts"]] == [0, 19]


def test_a_state_without_an_end_is_kept_until_its_node_says_another() -> None:
    said = {"source": "x", "ingested_at": T0, "state": "down"}
    rows = frame(
        RAW_NODE_STATES,
        {"node": "n1", "valid_from": T0} | said,
        {"node": "n1", "valid_from": T0 + DAY} | said,
        {"node": "n2", "valid_from": T0} | said,
        {"node": "n1", "valid_from": T0 + 90 * DAY} | said,
    )
    kept = still_open(rows, before=T0 + 30 * DAY)
    assert kept.sort("node", "valid_from").select("node", "valid_from").rows() == [
        ("n1", T0 + DAY),
        ("n1", T0 + 90 * DAY),
        ("n2", T0),
    ]


@pytest.mark.parametrize(
    ("bucket", "end"),
    [
        ("2026-01-31", datetime(2026, 2, 1, tzinfo=UTC)),
        ("2026-12", datetime(2027, 1, 1, tzinfo=UTC)),
        ("9999-12", None),
        ("open", None),
        ("whole", None),
    ],
)
def test_a_bucket_ends_when_its_last_row_can_have_been_over(
    bucket: str, end: datetime | None
) -> None:
    assert bucket_end(bucket) == end
