"""The quick reading of an Xid line is the careful one, or none."""

from datetime import UTC, datetime
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sources.kernel.events import UnreadableXidError, read_event
from pipelines.sources.kernel.line import Clock, split_line
from pipelines.sources.kernel.quick import quick_line, quick_xid

CLOCK = Clock(ZoneInfo("Europe/Berlin"), datetime(2026, 3, 1, tzinfo=UTC))
USUAL = (
    "Nov  1 00:10:25 gpu01 kernel: [  625.002500] NVRM: Xid (PCI:0000:af:00): 79, pid=12, "
    "name=python3, GPU has fallen off the bus."
)

TIMES = (
    "Nov  1 00:10:25", "Feb 29 23:59:60", "Feb 30 01:02:03", "Mar 30 02:30:00", "Jul 14 25:00:00",
    "Nov   1 00:10:25", "Nov 12 2025 00:10:25", "2025-11-01T00:10:25Z", "Nov  1 00:10:25.5", "",
)  # fmt: skip
HOSTS = ("gpu01", "Nov", "Mon", "stdout", "n-1.x_y", "10.0.0.7", "I0105", "kern", "")
TAGS = ("kernel:", "kernel[7]:", "kubelet[7]:", "kernel: kernel:")
BOOTS = ("[  625.002500]", "[0.0]", "[99999999999999.5]", "[...]", "[ 5.1, T9]", "")
LINE_ENDS = ("NVRM: Xid (x", "NVRM: Xid (x \t", "NVRM: Xid (x\x1f", " NVRM: Xid (x", "Xid (x")
DEVICES = ("PCI:0000:af:00", "PCI:0008:AF:00", "0000:af:00.3", "af:00", "0:af:00 GPU-1", "", "GPU")
CODES = ("79", "031", "1234567890", "", "x", "7 9", "79,", "\u0667")
PIDS = (
    "pid=12", "pid='<unknown>'", "pid=<unknown>", "pid=", "pid=1x", "pid=" + "9" * 19, "",
)  # fmt: skip
NAMES = (
    "name=python3", "name=<unknown>", "name='a'", "name=ray::W", "name=a b", "name=\x1b[1m",
    "name=" + "n" * 201, "name=\u00e9", "name=", "name='<unknown>'", "",
)  # fmt: skip
ENDS = (
    ", Ch 00000003", "", ",", ", pid=5", ", name=b", ", Fatal Error", ", nonfatal", ", Severity 1",
    ", \u017feverity 0", "  ", ", \x1f", ", Xid (PCI:0000:01:00): 13", ", \u00a0",
)  # fmt: skip


def carefully(message):
    try:
        return read_event(message)
    except UnreadableXidError:
        return None


def test_a_line_read_quickly_is_the_line_read_carefully():
    for parts in product(TIMES, HOSTS, TAGS, BOOTS, LINE_ENDS):
        line = " ".join(parts)
        assert quick_line(line, clock=CLOCK) in (None, split_line(line, clock=CLOCK)), line


@pytest.mark.parametrize("device", DEVICES)
def test_an_xid_read_quickly_is_the_xid_read_carefully(device):
    for code, pid, name, end in product(CODES, PIDS, NAMES, ENDS):
        message = f"NVRM: Xid ({device}): {code}, {pid}, {name}{end}"
        quick = quick_xid(message)
        assert quick is None or quick == carefully(message), message


@settings(max_examples=500, deadline=None)
@given(at=st.integers(0, len(USUAL)), drop=st.integers(0, 3), put=st.text(max_size=2))
def test_a_slip_in_a_usual_line_makes_no_difference(at, drop, put):
    line = USUAL[:at] + put + USUAL[at + drop :]
    quick = quick_line(line, clock=CLOCK)
    whole = split_line(line, clock=CLOCK)
    assert quick in (None, whole)
    assert quick_xid(whole.message) in (None, carefully(whole.message))


@pytest.mark.parametrize(
    "end", ["pid=12, name=python3, x", "pid='<unknown>', name=<unknown>, GPU has fallen off"]
)
def test_the_usual_lines_are_read_quickly(end):
    line = quick_line(USUAL.partition("pid=")[0] + end, clock=CLOCK)
    assert line is not None
    assert quick_xid(line.message) is not None


def test_a_line_longer_than_is_looked_at_is_left_to_careful_reading():
    assert quick_line(USUAL + "x" * 5000, clock=CLOCK) is None
