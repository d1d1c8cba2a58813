"""Rules of ingest: new content once, failures apart, late data marked, nothing half written."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.contracts import TableContract
from features.core_build import build_health_events
from features.errors import DataError, SettingsError, SourceError
from features.monitoring_tables import QUARANTINE
from features.raw_tables import RAW_GPU_TELEMETRY, RAW_JOB_LOG, RAW_KERNEL_LOG
from features.tables import CORE_HEALTH_EVENTS, CORE_INVENTORY
from pipelines.landing import ingest_run
from pipelines.landing.ingest import coverage_of, ingest, keep_outside, landing_of, raise_for_dead
from pipelines.landing.ingest_report import render_outcomes
from pipelines.landing.journal import Reading
from pipelines.landing.landed import Landing
from pipelines.landing.quarantine import render_quarantine
from pipelines.landing.staleness import find_stale
from pipelines.settings import Settings
from pipelines.sources.result import SourceResult, as_table
from pipelines.storage.store import Span, TableStore

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOW = T0 + 9 * HOUR
LINE = "{} {} kernel: NVRM: Xid (PCI:0000:1b:00): {}, pid=1, name=a, text\n"


def line(minute: float, code: int = 79, node: str = "n1") -> str:
    return LINE.format((T0 + timedelta(minutes=minute)).isoformat(), node, code)


@pytest.fixture
def site(tmp_path: Path) -> Settings:
    (tmp_path / "logs").mkdir()
    (tmp_path / "inputs.yaml").write_text(
        "site: lab\ntime_zone: UTC\ninputs:\n"
        "  - {kind: kernel_log, path: 'logs/*.log', name: kernel, may_be_absent: true}\n"
        "  - {kind: sacct, path: 'jobs/*.txt', may_be_absent: true}\n"
    )
    return settings_of(tmp_path)


def settings_of(folder: Path, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "site": "lab",
        "inputs": folder / "inputs.yaml",
        "data_root": folder / "data",
        "start": T0,
        "end": T0 + 24 * HOUR,
        "horizons_h": (24,),
    }
    return Settings.model_validate(values | changes)


def log_file(site: Settings, name: str = "n1.log") -> Path:
    return site.inputs.parent / "logs" / name


def codes(site: Settings) -> list[int]:
    return landing_of(site).read(RAW_KERNEL_LOG)["code"].to_list()


def test_the_same_file_twice_and_a_copy_of_it_change_nothing(site: Settings) -> None:
    log_file(site).write_text(line(1) + line(2))
    first = ingest(site, now=NOW)[0]
    before = landing_of(site).read(RAW_KERNEL_LOG)
    log_file(site, "n1__copy.log").write_bytes(log_file(site).read_bytes())
    os.utime(log_file(site), ns=(1, 1))  # touched, not changed
    again = ingest(site, now=NOW + HOUR)[0]
    assert (first.n_landed, again.n_landed, again.n_known) == (1, 0, 2)
    assert landing_of(site).read(RAW_KERNEL_LOG).equals(before)


def test_a_log_that_grows_is_read_on_and_one_that_was_rotated_is_kept(site: Settings) -> None:
    log_file(site).write_text(line(1, 31) + line(2, 43)[:40])  # cut within a line
    ingest(site, now=NOW)
    log_file(site).write_text(line(1, 31) + line(2, 43) + line(3, 45))
    ingest(site, now=NOW)
    assert codes(site) == [31, 43, 45]
    log_file(site).write_text(line(4, 48))
    ingest(site, now=NOW)
    assert codes(site) == [31, 43, 45, 48]


def test_a_file_of_another_kind_holds_up_no_other_and_is_tried_again(site: Settings) -> None:
    jobs = site.inputs.parent / "jobs"
    jobs.mkdir()
    (jobs / "a.txt").write_text("no header at all\n")
    (jobs / "b.txt").write_text("JobID|State|Submit\n1|FAILED|2026-01-05T00:05:00\n")
    log_file(site).write_text(line(1))
    outcomes = ingest(site, now=NOW)
    assert [len(outcome.failures) for outcome in outcomes] == [0, 1]
    assert [outcome.n_landed for outcome in outcomes] == [1, 1]
    raise_for_dead(outcomes)  # one file of the input is fine
    assert "a.txt" in outcomes[1].failures[0]
    rules = landing_of(site).journal.refusals().filter(pl.col("origin").str.contains("a.txt"))
    assert rules["rule"].to_list() == ["input could not be read"]
    (jobs / "a.txt").write_text("JobID|State|Submit\n2|FAILED|2026-01-05T00:05:00\n")
    assert not ingest(site, now=NOW)[1].failures
    assert landing_of(site).journal.refusals().is_empty()


def test_an_input_that_gives_nothing_but_failures_stops_the_run(site: Settings) -> None:
    (site.inputs.parent / "jobs").mkdir()
    (site.inputs.parent / "jobs" / "a.txt").write_text("no header at all\n")
    with pytest.raises(SourceError, match=r"a\.txt"):
        raise_for_dead(ingest(site, now=NOW))


def test_only_the_named_input_is_read_and_an_unknown_name_is_one_clear_error(
    site: Settings,
) -> None:
    log_file(site).write_text(line(1))
    assert [outcome.name for outcome in ingest(site, now=NOW, only=["sacct"])] == [
        "sacct jobs/*.txt"
    ]
    assert codes(site) == []
    assert ingest(site, now=NOW, only=["kernel"])[0].n_landed == 1
    with pytest.raises(SettingsError, match="no input is called 'kernal'. Its inputs are: kernel"):
        ingest(site, now=NOW, only=["kernal"])


def test_coverage_of_many_days_holds_no_more_than_a_day_of_telemetry(
    site: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"ts": T0 + n * HOUR, "gpu_uuid": "g", "source": "dcgm", "ingested_at": NOW}
        for n in (0, 1, 2, 30, 31, 71)
    ]
    frame = as_table(RAW_GPU_TELEMETRY, rows)
    with landing_of(site).writer() as writer:
        reading = Reading("r", "telemetry", "dcgm", "t.parquet")
        writer.add(reading, [SourceResult({"raw/gpu_telemetry": frame})], landed_at=NOW)
    days, read = Span(T0, T0 + 72 * HOUR), Landing.read
    asked: list[Span] = []

    def noted(landing: Landing, table: TableContract, *, span: Span | None = None) -> pl.DataFrame:
        asked.extend([span] if span and table is RAW_GPU_TELEMETRY else [])
        return read(landing, table, span=span)

    monkeypatch.setattr(Landing, "read", noted)
    inventory = CORE_INVENTORY.empty()
    found = coverage_of(site.model_copy(update={"end": None}), inventory, days)
    assert {span.end - span.start for span in asked} == {24 * HOUR}
    assert found.group_by(pl.col("hour").dt.date()).len().height == 3  # of each day
    assert found["n_received"].sum() == 6


def build(site: Settings, first: int, last: int) -> None:
    """Builds the health events of some hours, as the asset does."""
    span = Span(T0 + first * HOUR, T0 + last * HOUR)
    generation = landing_of(site).journal.generation()
    raw = landing_of(site).read(RAW_KERNEL_LOG, span=span)
    events = build_health_events(raw, CORE_INVENTORY.empty()).frame
    store = TableStore(site.store_root)
    store.write(CORE_HEALTH_EVENTS, events, span=span, generation=generation)


def stale(site: Settings) -> list[tuple[int, int]]:
    found = find_stale(landing_of(site), TableStore(site.store_root))
    spans = [item.span for item in found if item.table == "core/health_events" and item.span]
    return [((span.start - T0) // HOUR, (span.end - T0) // HOUR) for span in spans]


def test_late_data_lands_in_its_hour_and_marks_what_must_be_built_anew(site: Settings) -> None:
    log_file(site).write_text(line(10))
    ingest(site, now=NOW)
    build(site, 0, 8)
    assert stale(site) == []
    log_file(site, "late.log").write_text(line(70))
    ingest(site, now=NOW)
    assert stale(site) == [(1, 2)]
    build(site, 1, 2)
    assert stale(site) == []
    log_file(site).write_text(line(10) + line(500))  # grows: nothing old has changed
    ingest(site, now=NOW)
    assert stale(site) == []  # hour 8 was never built


def test_lines_outside_the_record_are_counted(site: Settings) -> None:
    log_file(site).write_text(line(-30) + line(30) + line(24 * 60))
    ingest(site, now=NOW)
    store = TableStore(site.store_root)
    keep_outside(site, store)
    outside = store.gather_parts(QUARANTINE).select(pl.col("rule").str.slice(0, 10), "count").rows()
    assert sorted(outside) == [("at or afte", 1), ("before the", 1)]


def test_the_outcome_names_failures_refusals_and_what_to_build(site: Settings) -> None:
    log_file(site).write_text(line(10) + "NVRM: Xid (PCI:0000:1b:00): seventy\n")
    outcomes = ingest(site, now=NOW)
    build(site, 0, 8)
    log_file(site, "late.log").write_text(line(70))
    outcomes[1].failures.append("jobs.txt: gone\x1b[2J")
    ingest(site, now=NOW)
    text = render_outcomes(outcomes, find_stale(landing_of(site), TableStore(site.store_root)))
    assert text.splitlines()[1].split() == ["kernel", "1", "0", "0", "2", "1", "0", "1"]
    assert "will be tried again: jobs.txt: gone\\x1b[2J" in text
    assert "core/health_events: 2026-01-05 01:00 to 2026-01-05 02:00" in text


def test_the_quarantine_is_filtered_worded_and_safe_to_print(site: Settings) -> None:
    assert render_quarantine(site) == "Nothing is in quarantine."
    bad = "NVRM: Xid (PCI:0000:1b:00): \x1b[2J\n"
    log_file(site).write_text(bad * 3 + line(1))
    ingest(site, now=NOW)
    text = render_quarantine(site)
    assert "3  kernel_log to raw/kernel_log: says Xid, but has no readable code" in text
    assert "\x1b" not in text
    assert "n1.log" in text
    assert render_quarantine(site, rule="SAYS XID") == text
    assert render_quarantine(site, source="sacct") == "Nothing is in quarantine that fits."
    assert '"count": 3' in render_quarantine(site, as_json=True)


def test_inputs_wait_while_another_process_ingests(site: Settings) -> None:
    with landing_of(site).writer(), pytest.raises(DataError, match="another process is ingesting"):
        ingest(site, now=NOW)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A list with a server, and what it was asked; `fails` holds starts it does not answer."""
    (tmp_path / "inputs.yaml").write_text(
        "site: lab\ninputs:\n  - {kind: prometheus, url: 'http://127.0.0.1:9', name: metrics}\n"
    )
    state: dict[str, Any] = {"asked": [], "fails": set(), "late": 0.0}

    def answer(_: Any, __: Any, window: Span, *, ingested_at: datetime) -> Iterator[SourceResult]:
        start = (window.start - T0) / HOUR
        state["asked"].append((start, (window.end - T0) / HOUR))
        rows = [
            {"gpu_uuid": "GPU-1", "ts": hour.start, "gpu_temp_c": 40.0 + state["late"]}
            | {"source": "prometheus", "ingested_at": ingested_at}
            for hour in window.steps(HOUR)
        ]
        yield SourceResult({"raw/gpu_telemetry": as_table(RAW_GPU_TELEMETRY, rows)})
        if start in state["fails"]:
            raise SourceError("the server hung up")

    monkeypatch.setattr(ingest_run, "pull_window", answer)
    return state


def hours_of(site: Settings) -> list[float]:
    return [(ts - T0) / HOUR for ts in landing_of(site).read(RAW_GPU_TELEMETRY)["ts"]]


def test_a_server_is_asked_for_what_is_missing_the_newest_first(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    site = settings_of(tmp_path, start=T0 + 3 * HOUR)
    ingest(site, now=NOW)
    # Two minutes settle; what is old is asked for at once.
    assert server["asked"] == [(8.0, 9 - 2 / 60), (7.0, 8.0), (3.0, 7.0)]
    assert hours_of(site) == [3, 4, 5, 6, 7, 8]
    server["asked"].clear()
    ingest(site, now=NOW + timedelta(minutes=30))
    assert server["asked"] == [(9.0, 9.5 - 2 / 60), (8.0, 9.0), (7.0, 8.0)]  # young ones again
    assert hours_of(site) == [3, 4, 5, 6, 7, 8, 9]


def test_a_window_that_breaks_off_leaves_nothing_and_is_asked_again(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    site = settings_of(tmp_path, start=T0 + 3 * HOUR)
    server["fails"] = {3.0}
    outcome = ingest(site, now=NOW)[0]
    assert outcome.failures == ["the server hung up"]
    assert hours_of(site) == [7, 8]  # the rest waits: the server is in trouble
    server["fails"] = set()
    assert not ingest(site, now=NOW)[0].failures
    assert hours_of(site) == [3, 4, 5, 6, 7, 8]


def test_an_answer_that_says_the_same_again_marks_nothing_and_a_changed_one_its_hour(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    site = settings_of(tmp_path, start=T0 + 3 * HOUR)
    ingest(site, now=NOW)
    before = landing_of(site).journal.changed_hours("raw/gpu_telemetry")
    ingest(site, now=NOW + timedelta(minutes=1))
    assert landing_of(site).journal.changed_hours("raw/gpu_telemetry") == before
    server["late"] = 1.0
    ingest(site, now=NOW + timedelta(minutes=2))
    after = landing_of(site).journal.changed_hours("raw/gpu_telemetry")
    assert [(h - T0) / HOUR for h in after if after[h] != before[h]] == [7.0, 8.0]
    temps = landing_of(site).read(RAW_GPU_TELEMETRY)["gpu_temp_c"].to_list()
    assert temps == [40, 40, 40, 40, 41, 41]


def test_a_server_that_was_down_for_days_is_caught_up_with(
    tmp_path: Path, server: dict[str, Any]
) -> None:
    site = settings_of(tmp_path, end=None)
    ingest(site, now=T0 + 2 * HOUR)
    server["asked"].clear()
    ingest(site, now=T0 + 50 * HOUR)
    assert len(server["asked"]) == 6  # two days by half days, and two young windows
    assert hours_of(site) == list(range(50))


def test_names_are_hidden_before_anything_is_stored(site: Settings) -> None:
    folder = site.inputs.parent
    (folder / "jobs").mkdir()
    header = "JobID|JobName|User|State|Submit\n"
    (folder / "jobs" / "a.txt").write_text(header + "1|secret|ann|FAILED|2026-01-05T00:05:00\n|x\n")
    (folder / "names.key").write_text("0123456789abcdef0123456789abcdef\n")
    text = site.inputs.read_text() + "hide_names: {key_file: names.key}\n"
    site.inputs.write_text(text)
    ingest(site, now=NOW)
    job = landing_of(site).read(RAW_JOB_LOG).row(0, named=True)
    assert job["job_id"] == "1"
    assert len(job["user"]) == len(job["job_name"]) == 16
    stored = b"".join(path.read_bytes() for path in (folder / "data").rglob("*") if path.is_file())
    assert b"secret" not in stored
    (folder / "names.key").unlink()
    with pytest.raises(SettingsError, match=r"names\.key"):
        ingest(site, now=NOW)


KILLED = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from pipelines.landing import landed as landing
from pipelines.landing import ingest_run
from pipelines.landing.ingest import ingest
from pipelines.settings import load_settings
landing.PART_ROWS = 40
print("ready", flush=True)
ingest(load_settings(Path(sys.argv[1])), now=datetime(2026, 1, 5, 9, tzinfo=UTC))
print("done", flush=True)
"""


@pytest.mark.slow
def test_a_process_killed_at_any_moment_leaves_whole_files_and_is_taken_up(tmp_path: Path) -> None:
    """The process is killed at random moments, again and again, until it gets through."""
    (tmp_path / "logs").mkdir()
    want = []
    for node in range(30):
        lines = [line(minute, 13 + minute % 40, f"n{node}") for minute in range(60)]
        (tmp_path / "logs" / f"n{node}.log").write_text("".join(lines))
        want += [(f"n{node}", 60)]
    (tmp_path / "inputs.yaml").write_text(
        "site: lab\ntime_zone: UTC\ninputs:\n  - {kind: kernel_log, path: 'logs/*.log'}\n"
    )
    (tmp_path / "forewarn.yaml").write_text(
        "site: lab\ninputs: inputs.yaml\ndata_root: data\nstart: 2026-01-05T00:00:00Z\n"
        "horizons_h: [24]\n"
    )
    site, kills = settings_of(tmp_path, end=None), 0
    rng = random.Random(7)  # noqa: S311 - when to kill is no secret
    for attempt in range(60):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / "forewarn.yaml")],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        if attempt < 12:
            time.sleep(rng.uniform(0, 0.25))
            process.send_signal(signal.SIGKILL)
        rest = process.communicate()[0]
        kills += process.returncode == -signal.SIGKILL
        counts = landing_of(site).read(RAW_KERNEL_LOG).group_by("node").len().rows()
        assert {count for _, count in counts} <= {60}
        if rest == "done\n":
            break
    assert kills >= 5
    landed = landing_of(site).read(RAW_KERNEL_LOG).group_by("node").len()
    assert sorted(landed.rows()) == sorted(want)
    folder = tmp_path / "data/landing/parts"
    parts = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
    assert parts == landing_of(site).journal.part_paths()
