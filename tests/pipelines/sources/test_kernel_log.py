"""Whole kernel logs: one event per loss, wrapped lines, years, nodes, counts."""

from datetime import UTC, datetime

import pytest

from features.errors import SourceError
from features.raw_tables import RAW_KERNEL_LOG
from pipelines.sources.kernel_log import LINE_LENGTH, parse_kernel_log, read_kernel_log

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
    result = read_kernel_log([path], time_zone="UTC", ingested_at=NOW)
    assert rows(result, "node") == [("gpu7",), ("n1",)]
    assert rows(result, "line")[0][0].endswith("\ufffd")


def test_lines_are_kept_up_to_a_length():
    result = parse("NVRM: Xid (PCI:0000:b3:00): 31, " + "x" * 100_000)
    assert len(rows(result, "line")[0][0]) == LINE_LENGTH


def test_an_unknown_zone_is_an_error():
    with pytest.raises(SourceError, match="time zone 'CEST-2' is not known"):
        parse("x", time_zone="CEST-2")
