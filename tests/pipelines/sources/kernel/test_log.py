"""Whole kernel logs: one event per loss, wrapped lines, years, boots, nodes, counts, coverage."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from features.errors import SourceError
from features.raw_tables import RAW_KERNEL_LOG
from pipelines.sources.kernel.log import (
    LINE_LENGTH,
    parse_kernel_log,
    stream_kernel_log,
)
from pipelines.sources.kernel.log_bytes import BROKEN_OFF
from pipelines.sources.result import merge
from tests.pipelines.sources.reading import read_all

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
GPU = "00000000:b3:00.0"


def parse(*lines, **options):
    options = {"time_zone": "UTC", "ingested_at": NOW, "origin": "n1.log"} | options
    return parse_kernel_log("\n".join(lines) + "\n", **options)


def rows(result, *columns):
    return result.table("raw/kernel_log").select(columns).rows()


def counts(result):
    return result.reads.select("n_read", "n_parsed", "n_skipped", "n_quarantined").row(0)


def test_an_xid_becomes_a_row_that_holds_the_contract():
    line = "Dec 31 23:59:01 n1 kernel: NVRM: Xid (PCI:0008:06:00): 48, pid=5, name=a, DBE"
    result = parse(line)
    columns = ("node", "ts", "kind", "code", "pci_bus_id", "pid", "process", "line", "source")
    ts = datetime(2025, 12, 31, 23, 59, 1, tzinfo=UTC)
    assert rows(result, *columns) == [
        ("n1", ts, "xid", 48, "00000008:06:00.0", 5, "a", line, "kernel_log")
    ]
    assert RAW_KERNEL_LOG.enforce(result.table("raw/kernel_log")).rejects.is_empty()


def test_a_loss_over_several_lines_without_an_xid_is_one_event():
    result = parse(
        "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
    )
    assert rows(result, "kind", "code", "pci_bus_id") == [("off_bus", None, GPU)]
    assert "The NVIDIA GPU" in rows(result, "line")[0][0]
    assert counts(result) == (3, 3, 0, 0)


def test_lines_of_others_in_between_do_not_tear_a_loss_apart():
    result = parse(
        "[ 1843.3] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "[ 1843.3] usb 1-1: new device",
        "[ 1843.3] NVRM: fallen off the bus and is not responding to commands.",
    )
    assert rows(result, "kind", "pci_bus_id") == [("off_bus", GPU)]


def test_a_notice_that_is_never_completed_is_skipped():
    result = parse("NVRM: The NVIDIA GPU 0000:b3:00.0", *["usb"] * 9, "NVRM: (PCI ID: 10de:1)")
    assert rows(result, "kind") == []
    assert counts(result) == (11, 0, 11, 0)


def test_what_follows_xid_79_about_the_same_device_is_no_second_loss():
    at = "2026-01-01T00:00:0{} n1 kernel: "
    result = parse(
        at.format(1) + "NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.",
        at.format(1) + "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        at.format(2) + "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        at.format(2) + "NVRM: GPU 0000:b4:00.0: GPU has fallen off the bus.",
    )
    assert rows(result, "kind", "code", "pci_bus_id") == [
        ("xid", 79, GPU),
        ("off_bus", None, "00000000:b4:00.0"),
    ]
    assert counts(result) == (4, 2, 2, 0)


def test_devices_at_the_same_address_of_two_nodes_are_two_losses():
    line = "2026-01-01T00:00:01Z {} kernel: NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."
    assert rows(parse(line.format("n1"), line.format("n2")), "node") == [("n1",), ("n2",)]


def test_the_same_device_may_be_lost_again_later():
    line = "2026-01-01T00:0{}:00 n1 kernel: NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."
    assert len(rows(parse(line.format(1), line.format(2)), "kind")) == 2


def test_two_xids_in_one_second_are_both_kept():
    line = "Dec 31 23:59:01 n1 kernel: NVRM: Xid (PCI:0000:b3:00): {}, x"
    assert rows(parse(line.format(13), line.format(45), line.format(13)), "code") == [
        (13,),
        (45,),
        (13,),
    ]


def test_a_wrapped_xid_line_is_put_together():
    result = parse("[5.1] NVRM: Xid (PCI:0000:b3:", "00): 31, Ch 00000003", "usb 1-1: x")
    assert rows(result, "code", "pci_bus_id") == [(31, GPU)]
    assert counts(result) == (3, 2, 1, 0)


def test_a_line_that_says_xid_and_cannot_be_read_is_quarantined_and_the_next_is_not_eaten():
    torn = "[5.1] NVRM: Xid (PCI:0000:"
    result = parse(torn, "[5.2] NVRM: Xid (PCI:0000:b3:00): 31, Ch 00000003")
    assert rows(result, "code") == [(31,)]
    assert result.quarantine.select("rule", "count", "example").rows() == [
        ("says Xid, but has no readable code", 1, torn)
    ]


@pytest.mark.parametrize(
    ("until", "year"),
    [(None, 2025), (datetime(2024, 6, 1, tzinfo=UTC), 2023)],
)
def test_a_yearless_time_is_not_in_the_future_of_reading(until, year):
    line = "Dec 31 23:59:01 n1 kernel: NVRM: Xid (PCI:0000:b3:00): 31, x"
    assert rows(parse(line, read_until=until), "ts")[0][0].year == year


def test_seconds_since_boot_have_a_time_only_with_the_boot():
    line = "[60.0] NVRM: Xid (PCI:0000:b3:00): 31, x"
    boot = datetime(2025, 12, 31, tzinfo=UTC)
    assert rows(parse(line), "ts") == [(None,)]
    assert rows(parse(line, boot_time=boot), "ts") == [(datetime(2025, 12, 31, 0, 1, tzinfo=UTC),)]


def test_the_file_name_gives_the_node_where_lines_name_no_host(tmp_path):
    path = tmp_path / "gpu7__boot2.log"
    path.write_bytes(
        b"[60.0] NVRM: Xid (PCI:0000:b3:00): 31, \xff\n"
        b"Dec 31 23:59:01 n1 kernel: NVRM: Xid (PCI:0000:b3:00): 31, x\n"
    )
    result = read_all(stream_kernel_log, [path], time_zone="UTC", ingested_at=NOW)
    assert rows(result, "node") == [("gpu7",), ("n1",)]
    assert rows(result, "line")[0][0].endswith("\ufffd")


def test_lines_are_kept_up_to_a_length():
    result = parse("NVRM: Xid (PCI:0000:b3:00): 31, " + "x" * 100_000)
    assert len(rows(result, "line")[0][0]) == LINE_LENGTH


def test_an_unknown_zone_is_an_error():
    with pytest.raises(SourceError, match="time zone 'CEST-2' is not known"):
        parse("x", time_zone="CEST-2")


XID = "NVRM: Xid (PCI:0000:b3:00): {}, x"


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


def covered(result):
    columns = ("entity_kind", "entity_id", "start", "end")
    return result.table("raw/coverage").select(columns).rows()


def stream(path, **options):
    options = {"time_zone": "UTC", "ingested_at": NOW} | options
    return list(stream_kernel_log(path, **options))


# Case 1: a loss told in words alone.
@pytest.mark.parametrize("size", [1, 50, 1 << 17])
def test_a_loss_that_a_block_border_cuts_is_still_one_event(tmp_path, size):
    path = tmp_path / "n1.log"
    path.write_text(
        "usb\n" * 20
        + "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\r\n"
        + "               NVRM: (PCI ID: 10de:26b5) installed in this system has\r\n"
        + "               NVRM: fallen off the bus and is not responding to commands.\r\n"
        + "[ 1843.31] NVRM: GPU has fallen off the bus.\n" * 3
    )
    result = merge(stream(path, block_bytes=size, chunk_bytes=size))
    assert rows(result, "kind", "pci_bus_id") == [("off_bus", GPU)]
    assert counts(result) == (26, 3, 23, 0)


def test_a_loss_without_a_device_right_after_one_with_it_is_the_same():
    at = "2026-01-01T00:00:01Z n1 kernel: "
    result = parse(at + XID.format(79), at + "NVRM: GPU has fallen off the bus.")
    assert rows(result, "kind") == [("xid",)]


# Case 3: NVLink errors that the driver calls non-fatal, or that were injected.
@pytest.mark.parametrize(
    ("words", "severity"),
    [
        ("NETIR_LINK_EVT Nonfatal XC0 i1 Link -1 (0x1 0x2)", "nonfatal"),
        ("NETIR_LINK_EVT  Fatal   XC0 i0 Link 00 (0x1 0x2)", "fatal"),
        ("NETIR_LINK_EVT XC0 i0 Link 00", None),
    ],
)
def test_the_severity_is_what_the_line_calls_it(words, severity):
    line = f"NVRM: Xid (PCI:0000:b3:00): 149, pid=1, name=a, {words}"
    assert rows(parse(line), "severity") == [(severity,)]


# Case 4: spellings of one device.
def test_a_device_is_the_same_however_it_is_written():
    spellings = ("00000008:06:00.0", "PCI:0008:06:00", "0008:06:00", "PCI:00000008:06:00")
    result = parse(*(f"NVRM: Xid ({text}): 31, x" for text in spellings))
    assert set(rows(result, "pci_bus_id")) == {("00000008:06:00.0",)}


# Case 6: what the log does not speak of is visible.
def test_coverage_is_from_the_first_to_the_last_readable_time_of_any_line():
    result = parse(
        "no time here",
        "2026-01-01T00:00:00Z n1 kernel: usb",
        "2026-01-01T03:00:00Z n1 kernel: " + XID.format(31),
        "2026-01-01T09:00:00Z n1 kernel: usb",
        "no time here",
    )
    assert covered(result) == [("node", "n1", utc(2026, 1, 1), utc(2026, 1, 1, 9))]


def test_a_log_without_events_is_covered_all_the_same():
    result = parse("2026-01-01T00:00:00Z n1 kernel: usb")
    assert covered(result) == [("node", "n1", utc(2026, 1, 1), utc(2026, 1, 1))]


def test_a_log_that_names_no_node_covers_none():
    assert covered(parse("2026-01-01T00:00:00Z usb")) == []
    named = parse("2026-01-01T00:00:00Z usb", node="n9")
    assert [row[1] for row in covered(named)] == ["n9"]


def test_a_log_of_several_hosts_covers_the_site():
    result = parse(
        "2026-01-01T00:00:00Z n1 kernel: usb", "2026-01-01T01:00:00Z n2 kernel: usb down", site="s"
    )
    assert covered(result) == [("site", "s", utc(2026, 1, 1), utc(2026, 1, 1, 1))]


@pytest.mark.parametrize("size", [1, 64, 1 << 17])
def test_each_boot_of_a_log_has_its_own_coverage(tmp_path, size):
    path = tmp_path / "n1.log"
    usual = "".join(f"2026-01-01T0{hour}:00:00Z n1 kernel: usb\n" for hour in (1, 2))
    later = usual.replace("T0", "T1")
    boot = "2026-01-01T10:59:00Z n1 kernel: [0.0] Linux version 6.1\n"
    path.write_text(usual + boot + later)
    assert [row[2:] for row in covered(merge(stream(path, block_bytes=size)))] == [
        (utc(2026, 1, 1, 1), utc(2026, 1, 1, 2)),
        (utc(2026, 1, 1, 10, 59), utc(2026, 1, 1, 12)),
    ]


@pytest.mark.parametrize("mark", ["-- Reboot --", "-- Boot 0123456789abcdef --"])
def test_a_reboot_line_of_journalctl_ends_a_stretch(mark):
    result = parse("2026-01-01T01:00:00Z n1 kernel: a", mark, "2026-01-01T05:00:00Z n1 kernel: b")
    assert [row[2] for row in covered(result)] == [utc(2026, 1, 1, 1), utc(2026, 1, 1, 5)]


@pytest.mark.parametrize("size", [1, 300, 1 << 17])
def test_a_change_of_boot_id_ends_a_stretch(tmp_path, size):
    path = tmp_path / "n1.json"
    entries = [
        {
            "MESSAGE": "usb",
            "_HOSTNAME": "n1",
            "_BOOT_ID": ("a" if minute < 3 else "b") * 32,
            "__REALTIME_TIMESTAMP": str(1767225600_000000 + minute * 60_000_000),
        }
        for minute in range(6)
    ]
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    assert [row[2:] for row in covered(merge(stream(path, block_bytes=size)))] == [
        (utc(2026, 1, 1), utc(2026, 1, 1, 0, 2)),
        (utc(2026, 1, 1, 0, 3), utc(2026, 1, 1, 0, 5)),
    ]


def test_seconds_since_boot_of_an_earlier_boot_have_no_time():
    boot = utc(2025, 12, 31)
    result = parse(f"[900.0] {XID.format(31)}", "[0.0] Linux version 6.1",
                   f"[60.0] {XID.format(32)}", boot_time=boot, node="n1")  # fmt: skip
    assert rows(result, "ts") == [(None,), (utc(2025, 12, 31, 0, 1),)]
    assert covered(result) == [("node", "n1", boot, utc(2025, 12, 31, 0, 1))]


def test_seconds_since_boot_that_fall_are_another_boot():
    lines = (f"[900.0] {XID.format(31)}", f"[60.0] {XID.format(32)}")
    assert rows(parse(*lines, boot_time=utc(2025, 12, 31)), "ts")[0] == (None,)


def test_a_boot_time_that_wall_clocks_contradict_is_not_used():
    lines = (f"[60.0] {XID.format(31)}", f"2026-01-01T09:00:00Z n1 kernel: [70.0] {XID.format(32)}")
    wrong = parse(*lines, f"[80.0] {XID.format(33)}", boot_time=utc(2025, 12, 1))
    assert rows(wrong, "ts") == [(None,), (utc(2026, 1, 1, 9),), (None,)]
    right = parse(*lines, boot_time=utc(2026, 1, 1, 8, 58, 50))
    assert rows(right, "ts") == [(utc(2026, 1, 1, 8, 59, 50),), (utc(2026, 1, 1, 9),)]


def test_a_boot_time_that_puts_lines_into_the_future_gives_no_time():
    line = f"[864000.0] {XID.format(31)}"
    assert rows(parse(line, boot_time=utc(2025, 12, 31)), "ts") == [(None,)]


# Case 7: clocks.
@pytest.mark.parametrize("year", ["0001", "1970", "9999", "2027"])
def test_a_year_that_cannot_be_is_no_time(year):
    line = f"{year}-01-01T00:00:00Z n1 kernel: {XID.format(31)}"
    assert rows(parse(line), "ts") == [(None,)]


def test_a_clock_that_steps_back_splits_the_coverage_and_keeps_the_events():
    at = "2026-01-01T0{}:00:00Z n1 kernel: " + XID.format(31)
    result = parse(at.format(8), at.format(2), at.format(3))
    assert len(rows(result, "ts")) == 3
    assert [row[2].hour for row in covered(result)] == [8, 2]


# Case 8: formats.
def test_journal_messages_of_bytes_are_found(tmp_path):
    path = tmp_path / "n1.json"
    message = f"\x1b[1m{XID.format(48)}".encode()
    entry = {"MESSAGE": list(message), "__REALTIME_TIMESTAMP": "1767225600000000"}
    path.write_text("\n".join([json.dumps(entry, separators=(",", ":"))] * 2))
    assert rows(merge(stream(path)), "code", "pci_bus_id") == [(48, GPU)] * 2


def test_a_code_that_a_terminal_wrapped_is_put_together():
    result = parse("NVRM: Xid (PCI:0000:b3:00): 3", "1, Ch 00000003", "[5.0] usb")
    assert rows(result, "code") == [(31,)]
    assert counts(result) == (3, 2, 1, 0)


@pytest.mark.parametrize("after", ["[5.0] usb", "2026-01-01T00:00:00Z 1, x", "usb", ""])
def test_a_code_at_the_end_of_a_line_stands_where_nothing_goes_on(after):
    result = parse("NVRM: Xid (PCI:0000:b3:00): 79", after)
    assert rows(result, "code") == [(79,)]
    assert counts(result) == (2, 1, 1, 0)


def test_a_fabric_managers_error_is_an_event_of_the_switch():
    line = (
        "[Dec 27 2025 15:10:02] [ERROR] [tid 7] detected NVSwitch non-fatal error 12028 on fid 0 "
        "on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 61"
    )
    columns = ("ts", "kind", "code", "pci_bus_id", "pid", "process", "severity")
    assert rows(parse(line), *columns) == [
        (utc(2025, 12, 27, 15, 10, 2), "sxid", 12028, "00000000:86:00.0", None, None, "nonfatal")
    ]


def test_a_code_that_nobody_knows_is_kept():
    assert rows(parse(XID.format(99999)), "kind", "code") == [("xid", 99999)]


# Case 5 is of `features`: repeats are counted there. Here every one is kept.
def test_a_storm_is_kept_line_by_line(tmp_path):
    path = tmp_path / "n1.log"
    path.write_text("".join(f"[5.0] {XID.format(code % 29)}\n" for code in range(3000)))
    chunks = stream(path, chunk_bytes=10_000, block_bytes=1000)
    assert len(chunks) > 10
    assert merge(chunks).table("raw/kernel_log").height == 3000


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("gpu7.log", "gpu7"), ("gpu7.log.1.gz", "gpu7"), ("gpu7__boot2.log-20260101", "gpu7"),
        ("gpu7.example.org.log", "gpu7.example.org"), ("gpu7", "gpu7"), ("kern.log.2", None),
        ("messages-20260101", None), ("syslog", None), ("fabricmanager.log", None),
        ("node-12.log", "node-12"), ("node-12", "node-12"),
    ],
)  # fmt: skip
def test_the_node_is_in_the_name_past_what_rotation_added(tmp_path, name, node):
    path = tmp_path / name
    path.write_text(XID.format(31))
    assert rows(merge(stream(path)), "node") == [(node,)]


def test_a_packed_log_that_breaks_off_keeps_what_came_before(tmp_path):
    path = tmp_path / "n1.log.gz"
    path.write_bytes(gzip.compress(f"{XID.format(31)}\n".encode() * 3, mtime=0)[:-4])
    result = merge(stream(path))
    assert rows(result, "code") == [(31,)] * 3
    assert result.quarantine.select("rule", "count").rows() == [(BROKEN_OFF, 1)]
    assert counts(result) == (4, 3, 0, 1)


def test_results_do_not_depend_on_where_blocks_and_chunks_are_cut(tmp_path):
    path = tmp_path / "n1.log"
    path.write_bytes(
        b"\xef\xbb\xbf2026-01-01T00:00:00Z n1 kernel: a\n\x00\n\xff\xfe\n"
        b"[5.1] NVRM: Xid (PCI:0000:b3:\n00): 31, Ch 3\n"
        b"NVRM: Xid (PCI:0000:\nNVRM: The NVIDIA GPU 0000:b3:00.0\n\n"
        b"NVRM: fallen off the bus\n2026-01-01T02:00:00Z n1 kernel: [0.0] Linux version 6\n"
        b"2026-01-01T03:00:00Z n1 kernel: [1.0] EDAC MC0: 1 CE memory error\nNVRM: Xid ("
    )
    whole = merge(stream(path))
    assert counts(whole)[0] == 12
    for size in (1, 2, 3, 17, 100):
        cut = merge(stream(path, block_bytes=size, chunk_bytes=size))
        for key in ("raw/kernel_log", "raw/coverage"):
            assert cut.table(key).equals(whole.table(key))
        assert cut.quarantine.equals(whole.quarantine)
        assert cut.reads.equals(whole.reads)


def test_reading_is_the_merge_of_the_streams(tmp_path):
    path = Path(tmp_path / "n1.log")
    path.write_text(XID.format(31))
    read = read_all(stream_kernel_log, [path], time_zone="UTC", ingested_at=NOW)
    assert pl.concat(chunk.table("raw/kernel_log") for chunk in stream(path)).equals(
        read.table("raw/kernel_log")
    )


def test_xids_that_ran_together_in_one_line_are_all_events():
    xids = "NVRM: Xid (PCI:0000:b3:00): 31, pid=1, name=a, Ch 1[2.5] NVRM: Xid (PCI:0000:b4:00): 79"
    result = parse(f"Dec 31 23:59:01 n1 kernel: [2.5] {xids}, pid=2, name=b, GPU has fallen off")
    assert rows(result, "node", "code", "pci_bus_id", "pid") == [
        ("n1", 31, GPU, 1),
        ("n1", 79, "00000000:b4:00.0", 2),
    ]
    assert counts(result) == (1, 1, 0, 0)


def test_of_xids_that_ran_together_the_readable_are_events_and_the_line_is_refused():
    result = parse("[2.5] NVRM: Xid (PCI:0000:b3:00): 31, Ch 1 NVRM: Xid (PCI:0000:b4")
    assert rows(result, "code") == [(31,)]
    assert counts(result) == (1, 0, 0, 1)


def test_the_wrapped_end_of_a_loss_is_no_second_loss():
    result = parse(
        "Dec 31 23:59:01 n1 kernel: NVRM: Xid (PCI:0000:b3:00): 79, pid=1, name=a, GPU has",
        " fallen off the bus.",
    )
    assert rows(result, "kind", "code") == [("xid", 79)]
    assert counts(result) == (2, 1, 1, 0)


@pytest.mark.parametrize("n_bytes", [10, 5000, 70_000, 300_000])
def test_a_line_after_what_a_crash_left_is_found(n_bytes):
    line = "Dec 31 23:59:01 n1 kernel: NVRM: Xid (PCI:0000:b3:00): {}, pid=1, name=a, x"
    result = parse(line.format(31), "\0" * n_bytes + line.format(48))
    assert rows(result, "node", "code") == [("n1", 31), ("n1", 48)]


@pytest.mark.parametrize(("tag", "n_events"), [("kernel", 1), ("kubelet", 1), ("sudo", 0)])
def test_what_a_user_typed_is_no_event_of_a_journal_either(tag, n_events):
    message = "bob : COMMAND=/bin/grep NVRM: Xid (PCI:0000:b3:00): 48, pid=1, name=a, x"
    result = parse(json.dumps({"MESSAGE": message, "SYSLOG_IDENTIFIER": tag}))
    assert result.table("raw/kernel_log").height == n_events


def test_a_journal_message_of_bytes_is_found_however_its_json_is_spaced():
    message = list(b"NVRM: Xid (PCI:0000:b3:00): 48, pid=1, name=a, x")
    entry = {"MESSAGE": message, "_HOSTNAME": "n1", "__REALTIME_TIMESTAMP": "1767225600000000"}
    for separators in ((",", ":"), (", ", ": "), (", ", " : ")):
        assert rows(parse(json.dumps(entry, separators=separators)), "code") == [(48,)]
