"""The fast reading of sacct output agrees with the careful one, wherever the text is cut."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from features.errors import SourceError
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources.local_time import to_utc
from pipelines.sources.result import ReadTally, SourceResult, as_table, merge
from pipelines.sources.slurm import sacct_frames
from pipelines.sources.slurm.fields import RefusedError
from pipelines.sources.slurm.sacct import parse_sacct, stream_sacct
from pipelines.sources.slurm.sacct_form import Clock
from pipelines.sources.slurm.sacct_records import cut_records, header_layout
from pipelines.sources.slurm.sacct_rows import careful_row, is_valid

NOW = datetime(2026, 1, 6, tzinfo=UTC)
ZONE = "Europe/Berlin"
HEADER = "JobID|JobName|User|State|ExitCode|Submit|Start|End|NodeList|AllocTRES"


def test_a_name_that_stands_last_keeps_its_line_breaks():
    text = "JobID|State|JobName\n1|FAILED|two\nlines | more\n\n2|FAILED|x\n3|torn\n4|FAILED|y\nz"
    for chunk_bytes in (1, 7, 20, 1000):
        result = fast(text.encode(), chunk_bytes=chunk_bytes)
        names = result.table("raw/job_log").select("job_id", "job_name").rows()
        assert names == [("1", "two\nlines | more"), ("2", "x"), ("4", "y\nz")]
        assert result.quarantine["count"].to_list() == [1]
    assert_same(fast(text.encode()), careful(text.encode()))


def careful(data: bytes, *, zone: str = ZONE) -> SourceResult:
    """Every line read by the careful reader alone, all at once."""
    lines = [x.removesuffix("\r") for x in data.decode("utf-8", errors="replace").split("\n")]
    if not lines[-1]:
        lines.pop()
    header, layout = lines[0], header_layout(lines[0], origin="f", delimiter=None)
    body = [line for line in lines[1:] if line.strip() and line != header]
    tally = ReadTally(table=RAW_JOB_LOG.asset_key, source="sacct", origin="f")
    tally.read(len(lines))
    tally.skipped(len(lines) - len(body))
    rows = []
    for record in cut_records(body, layout, is_valid=is_valid):
        try:
            row = careful_row(record, ZoneInfo(zone))
            rows.append(row | {"source": "sacct", "ingested_at": NOW})
            tally.parsed(record.n_lines)
        except RefusedError as refused:
            tally.quarantined(str(refused), record.text, count=record.n_lines)
    return tally.result({RAW_JOB_LOG.asset_key: as_table(RAW_JOB_LOG, rows)})


def fast(data: bytes, *, zone: str | None = ZONE, chunk_bytes: int = 1 << 20) -> SourceResult:
    return parse_sacct(data, origin="f", time_zone=zone, ingested_at=NOW, chunk_bytes=chunk_bytes)


def assert_same(one: SourceResult, other: SourceResult) -> None:
    assert_frame_equal(one.table("raw/job_log"), other.table("raw/job_log"))
    assert_frame_equal(one.reads, other.reads)
    assert_frame_equal(one.quarantine, other.quarantine)


FIELDS = (
    st.sampled_from(
        ["7", "7.batch", "123_4.extern", "12+1.0", "9_[1-3%2]", "seven", "", "1" * 19, "7.a.b"]
    ),
    st.sampled_from(["train", "a | b", "a\nb", "ü", "", "x" * 13, "x" * 12, "\t", "\r"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=16),
    st.sampled_from(["ann", "", "u" * 20]),
    st.sampled_from(["COMPLETED", "CANCELLED by 12", "FAILED", "", "SLEEPY", " FAILED"]),
    st.sampled_from(["0:0", "1:9", "", "1", "x", "0:0 "]),
    *[
        st.sampled_from(
            ["2026-01-05T00:00:00", "2025-10-26T02:30:00", "2025-03-30T02:30:00", "Unknown", "None",
             "", "2026-02-30T00:00:00", "1767225600", "0", "1970-01-01T01:00:00", "N/A", "later",
             "2024-02-29T23:59:59", "9999-12-31T23:59:59", "2026-01-05T00:00", "1767225600x"]
        )
    ] * 3,
    st.sampled_from(["n[1-3]", "n1", "None assigned", "", "n[", "a[1-2]b[3,5],c", "n[0-99999999]"]),
    st.sampled_from(
        ["cpu=1,gres/gpu=8", "", "cpu=1", "gres/gpu=x", "gres/gpu=8,gres/gpu:a100=8", "gpu:4090:2"]
    ),
)  # fmt: skip
RECORDS = st.tuples(*FIELDS).map("|".join)
TEXTS = (
    st.lists(RECORDS | st.sampled_from(["", "  ", HEADER, "7|torn", "|" * 9, "|" * 30]), max_size=9)
    .map(lambda lines: "\n".join([HEADER, *lines]).encode())
)  # fmt: skip


@settings(max_examples=100)
@given(TEXTS, st.sampled_from([b"", b"\n", b"\xff", b"\xff\n", b"\r\n"]))
def test_fast_and_careful_reading_agree(text, end):
    assert_same(fast(text + end), careful(text + end))


@settings(max_examples=60)
@given(TEXTS, st.integers(1, 200), st.sampled_from([b"\n", b"|", b"\r"]))
def test_rows_do_not_depend_on_where_the_text_is_cut(text, chunk_bytes, end):
    assert_same(fast(text + end, chunk_bytes=chunk_bytes), fast(text + end))


@settings(max_examples=60)
@given(st.integers(0, 14), st.integers(0, 255), TEXTS)
def test_agreement_survives_changed_bytes(at, byte, text):
    changed = bytearray(text + b"\n7|a|b|FAILED|0:0||||n1|cpu=1\n")
    place = len(HEADER) + 1 + at * 7 % max(1, len(changed) - len(HEADER) - 1)
    changed[min(place, len(changed) - 1)] = byte
    assert_same(fast(bytes(changed)), careful(bytes(changed)))


def test_a_record_broken_over_lines_is_mended_across_pieces():
    text = "\n".join([HEADER, "7|a\nb|u|FAILED|0:0||||n1|cpu=1", "8|c|u|FAILED|0:0||||n1|cpu=1"])
    for chunk_bytes in range(1, 90, 7):
        jobs = fast(text.encode(), chunk_bytes=chunk_bytes).table("raw/job_log")
        assert jobs["job_name"].to_list() == ["a\nb", "c"]


def test_a_frame_holds_a_bounded_number_of_node_names(monkeypatch):
    monkeypatch.setattr(sacct_frames, "MOST_NODES", 10)
    lines = [f"{job}|a|u|FAILED|0:0||||n[1-{job}]|cpu=1" for job in range(1, 9)]
    text = "\n".join([HEADER, lines[0], "torn", *lines[1:], "torn"]).encode()
    assert_same(fast(text), careful(text))


def test_parts_of_a_file_add_up(tmp_path):
    path = tmp_path / "sacct.txt"
    lines = [f"{job}|a|u|FAILED|0:0||||n[1-3]|cpu=1" for job in range(50)]
    path.write_text("\n".join([HEADER, *lines]))
    parts = list(stream_sacct(path, time_zone=None, ingested_at=NOW, chunk_bytes=100))
    whole = merge(parts)
    assert len(parts) > 10
    assert whole.table("raw/job_log").height == 50
    assert whole.reads.select("n_read", "n_parsed", "n_skipped").rows() == [(51, 50, 1)]


def test_the_zone_is_mandatory_as_soon_as_a_time_is_ambiguous():
    known = b"JobID|State|Start\n1|FAILED|1767225600\n2|PENDING|Unknown\n"
    jobs = fast(known, zone=None).table("raw/job_log")
    assert jobs["start"].to_list() == [datetime(2026, 1, 1, tzinfo=UTC), None]
    for time in ("2026-01-01T00:00:00", "2026-01-01T00:00"):  # the fast and the careful reader
        with pytest.raises(SourceError, match=r"has no offset, and no time zone is set.*time_zone"):
            fast(known + f"3|FAILED|{time}\n".encode(), zone=None)


@given(
    st.integers(0, 8_000_000_000),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata",
                     "America/St_Johns", "Africa/Casablanca", "Pacific/Apia"]),
)  # fmt: skip
def test_a_clock_shifts_as_single_times_are_read(second, name):
    zone = ZoneInfo(name)
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock
    local = epoch + timedelta(days=367, seconds=second)
    expected = to_utc(local, zone)
    wall = round((local - epoch).total_seconds())
    shift = Clock().shift(wall // 900, zone)
    assert wall + shift == round(expected.timestamp())


def test_only_lines_with_bad_bytes_are_mended_where_a_text_is_not_utf8():
    lines = [b"1|\xc3\xbc|u", b"2|\xff\xff|u", b"3|x\xc3|u", b"4|" + b"y" * 20 + b"\xe2\x82|u"]
    rest = b"|FAILED|0:0||||n1|"
    data = b"\n".join([HEADER.encode(), *(line + rest for line in lines)])
    names = fast(data).table("raw/job_log")["job_name"].to_list()
    assert names == ["\u00fc", "\ufffd\ufffd", "x\ufffd", "y" * 20 + "\ufffd"]


def test_text_longer_than_a_view_holds_comes_back():
    names = [("x" * n) or None for n in range(40)]
    lines = [f"{at}|{name or ''}|u|FAILED|0:0||||n1|" for at, name in enumerate(names)]
    jobs = fast("\n".join([HEADER, *lines]).encode()).table("raw/job_log")
    assert jobs["job_name"].to_list() == names
    assert pl.concat([jobs, jobs])["job_name"].to_list() == names * 2
