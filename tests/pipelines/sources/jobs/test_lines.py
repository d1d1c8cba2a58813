"""Lines of job output: where they end, who wrote them, when, and what is a traceback."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.jobs import lines as job_lines
from pipelines.sources.jobs.lines import (
    LONGEST_LINE,
    LineCutter,
    RawLine,
    Tracebacks,
    clean,
    readable,
    split_writer,
    time_of,
)

READ = datetime(2026, 1, 5, tzinfo=UTC)


def cut(*chunks):
    cutter = LineCutter()
    return [line for chunk in chunks for line in cutter.feed(chunk)] + list(cutter.finish())


def test_a_progress_bar_is_a_line_per_redraw():
    assert [line.data for line in cut(b" 10%|#\r 20%|##\rKeyError: 1\r\nx")] == [
        b" 10%|#", b" 20%|##", b"KeyError: 1", b"x",
    ]  # fmt: skip


def test_a_line_knows_where_it_begins():
    assert cut(b"ab\r\ncd\n\nef") == [
        RawLine(0, b"ab"), RawLine(4, b"cd"), RawLine(7, b""), RawLine(8, b"ef"),
    ]  # fmt: skip


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xff"]) | st.binary()))
def test_lines_do_not_depend_on_where_chunks_are_cut(pieces):
    whole = b"".join(pieces)
    assert cut(*pieces) == cut(whole) == cut(*(bytes([byte]) for byte in whole))
    for line in cut(whole):
        assert whole[line.position : line.position + len(line.data)] == line.data


@pytest.mark.parametrize("size", [1, 5, 6, 7, 11, 12, 13, 30])
def test_a_line_without_end_is_cut_at_the_same_places(monkeypatch, size):
    monkeypatch.setattr(job_lines, "LONGEST_LINE", 6)
    for data in (b"x" * size, b"x" * size + b"\n", b"x" * size + b"\ry"):
        lines = cut(data)
        assert lines == cut(*(bytes([byte]) for byte in data))
        assert max(len(line.data) for line in lines) <= 6
        assert sum(len(line.data) for line in lines) == len(data.translate(None, b"\n\r"))


def test_colour_codes_and_nuls_are_taken_off():
    assert clean(b"\x1b[1;31mCUDA\x1b[0m er\x00ror\x1b]0;title\x07!") == b"CUDA error!"


@pytest.mark.parametrize(
    ("line", "node", "rank", "text"),
    [
        ("[rank3]: KeyError: 1", None, 3, "KeyError: 1"),
        ("[rank3]:[E1016 03:31:38.9 x] y", None, 3, "[E1016 03:31:38.9 x] y"),
        ("[default11]:oops", None, 11, "oops"),
        ("  3: oops", None, 3, "oops"),
        ("12: [rank3]: oops", None, 3, "oops"),
        ("[1,5]<stderr>:oops", None, 5, "oops"),
        ("node17: oops", "node17", None, "oops"),
        ("gpu-a-17.dc1: 3: oops", "gpu-a-17.dc1", 3, "oops"),
        ("(RayWorkerWrapper pid=4009) [rank1]:[E x] y", None, 1, "[E x] y"),
        ("(train_fn pid=9, ip=10.0.0.7) oops", "10.0.0.7", None, "oops"),
        ("gpu46:78367:78492 [0] x.cc:244 NCCL WARN y", "gpu46", None, None),
        ("[2025-04-06 22:31:56] n1:3:4 [0] x.cc:2 NCCL WARN y", "n1", None, None),
        ("[PG ID 1 PG GUID 1(default_pg) Rank 2] failed", None, 2, None),
        ("[ERROR] 2024-07-03-19:45:13 (PID:62743, Device:11, RankID:43) x", None, 43, None),
        ("epoch12: loss 3", None, None, None),
        ("gpu0: 80 C", None, None, None),
        ("RuntimeError: CUDA error", None, None, None),
        ("100%|##| 3/3", None, None, None),
    ],
)
def test_prefixes_tell_node_and_rank(line, node, rank, text):
    writer = split_writer(line)
    assert (writer.node, writer.rank) == (node, rank)
    assert writer.text == (line if text is None else text)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[E1016 03:31:38.919469923 x.cpp:607] y", (2025, 10, 16, 3, 31, 38, 919469)),
        ("[rank2]:[E723 01:58:45.5 x.cpp:670] y", (2025, 7, 23, 1, 58, 45, 500000)),
        ("I0105 00:00:00 x.cpp:1] y", (2026, 1, 5)),
        ("[2024-07-03 19:15:16,379] [INFO] y", (2024, 7, 3, 19, 15, 16, 379000)),
        ("[ERROR] 2024-07-03-19:45:13 (PID:1) y", (2024, 7, 3, 19, 45, 13)),
        ("2024-07-03T19:45:13.5+02:00 y", (2024, 7, 3, 17, 45, 13, 500000)),
        ("2024-07-03T19:45:13Z y", (2024, 7, 3, 19, 45, 13)),
        ("2024-13-03 19:45:13 y", None),
        ("0001-01-01T00:00:00+14:00 y", None),
        ("[E1399 03:31:38.9 x.cpp:1] y", None),
        ("loss 3", None),
    ],
)
def test_a_line_tells_its_time(line, expected):
    moment = None if expected is None else datetime(*expected, tzinfo=UTC)
    assert time_of(line, zone=ZoneInfo("UTC"), read_until=READ) == moment


def test_a_time_without_offset_is_of_the_given_zone():
    zone = ZoneInfo("Europe/Berlin")
    moment = time_of("2024-07-03 19:45:13 y", zone=zone, read_until=READ)
    assert moment == datetime(2024, 7, 3, 17, 45, 13, tzinfo=UTC)


def kinds(*lines):
    state = Tracebacks()
    return "".join(state.kind(split_writer(line))[0] for line in lines)


def test_code_in_a_traceback_is_no_evidence():
    assert kinds(
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        '    raise RuntimeError("CUDA out of memory")',
        "    ^^^^^^^^^^^",
        "  [Previous line repeated 1 more time]",
        "mylib.Oops: bad",
        "mylib.Oops: bad",
    ) == "fffffeo"  # fmt: skip


def test_a_traceback_whose_beginning_is_cut_off_is_one():
    assert kinds('  File "a.py", line 3, in f', "    loss()", "Oops: bad") == "ffe"


def test_tracebacks_of_ranks_do_not_mix():
    assert kinds(
        "[rank0]: Traceback (most recent call last):",
        "[rank1]: Traceback (most recent call last):",
        '[rank0]:   File "a.py", line 3, in f',
        "[rank1]: KeyError: 1",
        "[rank0]:     code()",
        "[rank0]: ValueError: 2",
    ) == "fffefe"  # fmt: skip


def test_a_log_line_between_frames_ends_no_traceback():
    assert kinds(
        "Traceback (most recent call last):",
        "INFO: saving",
        "step 3 done",
        '  File "a.py", line 3, in f',
        "KeyError: 1",
        "During handling of the above exception, another exception occurred:",
    ) == "foofef"  # fmt: skip


def test_rich_tracebacks_are_frames():
    assert kinds(
        "Traceback (most recent call last):",
        "│ ❱ 753 │   elastic_launch(CUDA error)  │",
        "╰────╯",
        "ValueError: 2",
    ) == "fffe"  # fmt: skip


def test_a_very_long_line_is_shown_around_its_markers():
    data = b"a" * 20_000 + b" CUDA error: x " + b"b" * 20_000
    text = readable(data, ["cuda error"])
    assert "CUDA error: x" in text
    assert len(text) < 4200
    assert len(readable(b"z" * LONGEST_LINE, [])) < 4200
