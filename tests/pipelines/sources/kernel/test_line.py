"""Log prefixes of all tools: time, host, message."""

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from pipelines.sources.kernel.line import Clock, split_line

UNTIL = datetime(2026, 1, 1, 12, tzinfo=UTC)
BOOT = datetime(2025, 12, 31, tzinfo=UTC)
CLOCK = Clock(ZoneInfo("Europe/Berlin"), UNTIL)
BOOTED = Clock(ZoneInfo("Europe/Berlin"), UNTIL, BOOT)
MESSAGE = "NVRM: Xid (PCI:0000:8a:00): 79, GPU has fallen off the bus."


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


@pytest.mark.parametrize(
    ("prefix", "ts", "host"),
    [
        ("", None, None),
        ("kernel: ", None, None),
        ("kernel: [16450076.435595] ", None, None),
        ("[...] ", None, None),
        ("[24128.834365] ", None, None),
        ("[Mon Oct 29 12:07:39 2018] ", utc(2018, 10, 29, 11, 7, 39), None),
        ("[Fri Apr  5 21:29:39 2024] ", utc(2024, 4, 5, 19, 29, 39), None),
        (
            "kern  :warn  : 2025-01-21T04:41:44,284345+00:00 ",
            utc(2025, 1, 21, 4, 41, 44, 284_345),
            None,
        ),
        ("kern  :warn  : [    5.1] ", None, None),
        ("2025-01-21T04:41:44.5+01:00 n1 kernel: [5.1] ", utc(2025, 1, 21, 3, 41, 44, 5 * 10**5),
         "n1"),
        ("2025-01-21T04:41:44+0530 n1 kernel: ", utc(2025, 1, 20, 23, 11, 44), "n1"),
        ("2025-01-21T04:41:44Z n1 kernel: ", utc(2025, 1, 21, 4, 41, 44), "n1"),
        ("2025-01-21T04:41:44-05:00 n1 kernel: ", utc(2025, 1, 21, 9, 41, 44), "n1"),
        ("2025-01-21 04:41:44 n1 kernel: ", utc(2025, 1, 21, 3, 41, 44), "n1"),
        ("Tue 2025-01-21 04:41:44 UTC n1 kernel: ", utc(2025, 1, 21, 4, 41, 44), "n1"),
        ("Dec 31 23:59:01 n1.example.org kernel: ", utc(2025, 12, 31, 22, 59, 1), "n1.example.org"),
        ("<4>Jan  1 00:00:05 n1 kernel: [8.0] ", utc(2025, 12, 31, 23, 0, 5), "n1"),
        ("Dec 31 23:59:60 n1 kernel: ", utc(2025, 12, 31, 23, 0), "n1"),
        ("Dec 31 23:59:01 n1 kubelet[123]: ", utc(2025, 12, 31, 22, 59, 1), "n1"),
        ("I1231 23:59:01.5    1234 watcher.go:12] ", utc(2025, 12, 31, 22, 59, 1, 500_000), None),
        ("2025-01-21T04:41:44.123456789Z stdout F ", utc(2025, 1, 21, 4, 41, 44, 123_456), None),
        (
            "2025-01-21T05:00:00Z stderr F Dec 31 23:59:01 n1 kernel: ",
            utc(2025, 12, 31, 22, 59, 1),
            "n1",
        ),
        ("Feb 30 00:00:00 n1 kernel: ", None, "n1"),
        ("Dec 31 2024 23:59:01 n1 kernel: ", utc(2024, 12, 31, 22, 59, 1), "n1"),
        ("<4>1 2025-01-21T04:41:44.5Z n1 kernel - - - ", utc(2025, 1, 21, 4, 41, 44, 500_000),
         "n1"),
        ('<4>1 2025-01-21T04:41:44+01:00 n1 kernel 7 ID [a@1 b="c\\]"] \ufeff',
         utc(2025, 1, 21, 3, 41, 44), "n1"),
        ("<4>1 - - kernel - - - ", None, None),
        ("Sun 2025-10-26 02:30:00 CEST n1 kernel: ", utc(2025, 10, 26, 0, 30), "n1"),
        ("Sun 2025-10-26 02:30:00 CET n1 kernel: ", utc(2025, 10, 26, 1, 30), "n1"),
        ("Sun 2025-10-26 02:30:00 PST n1 kernel: ", None, "n1"),
        ("2025-01-21 04:41:44 +0100 n1 kernel: ", utc(2025, 1, 21, 3, 41, 44), "n1"),
        ("1737434504.250000 n1 kernel: ", utc(2025, 1, 21, 4, 41, 44, 250_000), "n1"),
        ("[Feb 25 2025 13:59:45] ", utc(2025, 2, 25, 12, 59, 45), None),
        ("[2025-02-25 13:59:45] ", utc(2025, 2, 25, 12, 59, 45), None),
        ("<4>[    5.100000] ", None, None),
        ("[    5.100000,T123] ", None, None),
        ("n1 kernel: [    5.100000] ", None, "n1"),
        ("kern  :err   : [Mon Oct 29 12:07:39 2018] ", utc(2018, 10, 29, 11, 7, 39), None),
        ("0001-01-01T00:00:00Z n1 kernel: ", None, "n1"),
        ("1970-01-01T00:00:05Z n1 kernel: ", None, "n1"),
        ("9999-12-31T23:59:59Z n1 kernel: ", None, "n1"),
        ("2026-01-03T00:00:00Z n1 kernel: ", None, "n1"),
        ("2026-01-02T00:00:00Z n1 kernel: ", utc(2026, 1, 2), "n1"),
    ],
)  # fmt: skip
def test_the_prefix_goes_and_its_time_and_host_stay(prefix, ts, host):
    line = split_line(prefix + MESSAGE, clock=CLOCK)
    assert (line.ts, line.host, line.message) == (ts, host, MESSAGE)
    assert line.text == prefix + MESSAGE


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("[  60.5] NVRM: x", utc(2025, 12, 31, 0, 1, 0, 500_000)),
        ("6,3964,60500000,-;NVRM: x", utc(2025, 12, 31, 0, 1, 0, 500_000)),
        ("Dec 31 23:59:01 n1 kernel: [60.5] NVRM: x", utc(2025, 12, 31, 22, 59, 1)),
        ("[99999999999999999.0] NVRM: x", None),
    ],
)
def test_seconds_since_boot_tell_the_time_only_where_the_boot_is_known(text, ts):
    line = split_line(text, clock=BOOTED)
    assert (line.ts, line.message) == (ts, "NVRM: x")


@pytest.mark.parametrize(
    ("prefix", "ts", "host"),
    [
        ("n7: [Mon Oct 29 12:07:39 2018] ", utc(2018, 10, 29, 11, 7, 39), "n7"),  # pdsh, clush
        ("n7: Dec 31 23:59:01 n7 kernel: ", utc(2025, 12, 31, 22, 59, 1), "n7"),
        ("n7: 2025-01-21T04:41:44Z ", utc(2025, 1, 21, 4, 41, 44), "n7"),
        ("n7: [    5.100000] ", None, "n7"),
        ("/var/log/kern.log:Dec 31 23:59:01 n1 kernel: ", utc(2025, 12, 31, 22, 59, 1), "n1"),
        ("n7: ", None, "n7"),
        ("./kern.log:123:Dec 31 23:59:01 n1 kernel: ", utc(2025, 12, 31, 22, 59, 1), "n1"),
        ("kern.log.1:[Mon Oct 29 12:07:39 2018] ", utc(2018, 10, 29, 11, 7, 39), None),
    ],
)
def test_what_gathers_lines_of_nodes_or_files_writes_their_names_before_them(prefix, ts, host):
    line = split_line(prefix + MESSAGE, clock=CLOCK)
    assert (line.ts, line.host, line.message) == (ts, host, MESSAGE)


@pytest.mark.parametrize("text", ["amdgpu: [1.5] x", "5: 7", "a:b", "n7: Dec x"])
def test_a_name_before_what_is_no_time_is_part_of_the_message(text):
    line = split_line(f"kernel: {text}", clock=CLOCK)
    assert (line.host, line.message) == (None, text)


@pytest.mark.parametrize(
    ("text", "ts"),
    [
        ("2025-10-26 02:30:00 CEST n1 kernel: NVRM: x", utc(2025, 10, 26, 0, 30)),
        ("2025-10-26 02:30:00 CET n1 kernel: NVRM: x", utc(2025, 10, 26, 1, 30)),
        ("2025-10-26 02:30:00 PST n1 kernel: NVRM: x", None),
        ("[2025-10-26 02:30:00 CEST] NVRM: x", utc(2025, 10, 26, 0, 30)),
    ],
)
def test_an_abbreviated_zone_is_that_of_the_time_before_it(text, ts):
    line = split_line(text, clock=CLOCK)
    assert (line.ts, line.message) == (ts, "NVRM: x")


def test_blanks_of_any_kind_part_time_host_and_tag():
    for text in ("Dec 31 23:59:01  n1  kernel:  NVRM: x", "Dec 31 23:59:01\tn1\tkernel:\tNVRM: x"):
        line = split_line(text, clock=CLOCK)
        assert (line.ts, line.host, line.message) == (utc(2025, 12, 31, 22, 59, 1), "n1", "NVRM: x")


def test_a_program_that_looks_like_a_facility_is_none():
    assert split_line("sudo: bob : x", clock=CLOCK).message == "sudo: bob : x"


def test_a_level_after_a_time_is_no_zone():
    line = split_line("2025-01-21 04:41:44 ERROR NVRM: x", clock=CLOCK)
    assert line.ts == utc(2025, 1, 21, 3, 41, 44)


def test_a_year_after_the_time_is_the_years_of_that_time():
    line = split_line("Jan 21 04:41:44 2019 n1 kernel: NVRM: x", clock=CLOCK)
    assert (line.ts, line.host) == (utc(2019, 1, 21, 3, 41, 44), "n1")


def test_times_since_the_line_before_are_passed_over():
    line = split_line("[   60.500000 <    0.000001>] NVRM: x", clock=BOOTED)
    assert (line.ts, line.message) == (utc(2025, 12, 31, 0, 1, 0, 500_000), "NVRM: x")


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[32mDec 31 23:59:01 n1 kernel: \x1b[0m\x1b[1;31mNVRM: x\x1b[0m",
        "\0\0\0\0Dec 31 23:59:01 n1 kernel: NVRM: x",
        "\0" * 5000 + "Dec 31 23:59:01 n1 kernel: NVRM: x",
    ],
)
def test_colours_and_what_a_crash_fills_a_file_with_say_nothing(text):
    line = split_line(text, clock=CLOCK)
    assert (line.ts, line.host) == (utc(2025, 12, 31, 22, 59, 1), "n1")
    assert (line.message, line.text) == ("NVRM: x", "Dec 31 23:59:01 n1 kernel: NVRM: x")


def test_a_tag_with_a_process_is_no_host():
    line = split_line("2025-01-21T04:41:44Z pt_main[2536443]: segfault at 7f", clock=CLOCK)
    assert line.host is None


def test_journal_entries_are_read_as_json():
    entry = {
        "__REALTIME_TIMESTAMP": "1767225600000001",
        "_HOSTNAME": "n1",
        "MESSAGE": MESSAGE,
    }
    line = split_line(json.dumps(entry), clock=CLOCK)
    assert (line.ts, line.host, line.message) == (utc(2026, 1, 1, 0, 0, 0, 1), "n1", MESSAGE)


def test_a_journal_message_of_bytes_is_its_text():
    entry = {"__REALTIME_TIMESTAMP": "1767225600000000", "MESSAGE": [*MESSAGE.encode(), 255]}
    line = split_line(json.dumps(entry), clock=CLOCK)
    assert (line.message, line.text) == (MESSAGE + "\ufffd",) * 2


@pytest.mark.parametrize("host", ["n1\x1b[31m", "n\n1", "", "a b", "n\u0131"])
def test_a_host_that_a_terminal_would_obey_is_no_host(host):
    entry = {"__REALTIME_TIMESTAMP": "1767225600000000", "_HOSTNAME": host, "MESSAGE": MESSAGE}
    assert split_line(json.dumps(entry), clock=CLOCK).host is None


def test_a_container_runtimes_entry_holds_a_line_with_its_own_prefix():
    entry = {"log": f"n1 kernel: {MESSAGE}\n", "stream": "stdout", "time": "2025-01-21T04:41:44.5Z"}
    line = split_line(json.dumps(entry), clock=CLOCK)
    assert (line.ts, line.host) == (utc(2025, 1, 21, 4, 41, 44, 500_000), "n1")
    assert line.message == MESSAGE


@pytest.mark.parametrize(
    "text",
    [
        '{"MESSAGE"',
        '{"MESSAGE": "x"}',
        '{"MESSAGE": [78], "__REALTIME_TIMESTAMP": "1"}',
        '{"MESSAGE": "x", "__REALTIME_TIMESTAMP": "1e999"}',
        '{"MESSAGE": "x", "__REALTIME_TIMESTAMP": ' + "9" * 30 + "}",
        "[" * 100_000 + '"MESSAGE"',
        '{"MESSAGE":' + "[" * 100_000,
    ],
)
def test_text_that_only_looks_like_a_journal_entry_is_a_plain_line(text):
    assert split_line(text, clock=CLOCK).ts is None


def test_half_a_character_in_a_journal_entry_is_replaced():
    text = '{"MESSAGE": "NVRM \\ud800", "__REALTIME_TIMESTAMP": "1"}'
    assert split_line(text, clock=CLOCK).message == "NVRM ?"
