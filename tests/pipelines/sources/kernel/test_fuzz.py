"""Lines that are almost right: nothing crashes, nothing is lost, blocks make no difference."""

import contextlib
import json
import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.tables import TABLE_BY_KEY
from pipelines.sources.kernel.events import MARKERS, UnreadableXidError, read_event
from pipelines.sources.kernel.journald import read_entry
from pipelines.sources.kernel.line import TEXT_LENGTH, Clock, split_line
from pipelines.sources.kernel.log import parse_kernel_log, stream_kernel_log
from pipelines.sources.result import merge

NOW = datetime(2026, 1, 6, tzinfo=UTC)
BOOT = datetime(2026, 1, 5, tzinfo=UTC)
CLOCK = Clock(ZoneInfo("Europe/Berlin"), NOW, BOOT)
SETTINGS = {"time_zone": "Europe/Berlin", "ingested_at": NOW, "boot_time": BOOT}

MESSAGES = (
    "NVRM: Xid (PCI:0000:8a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0008:01:00): 145, pid=7, name=a b, RLW_REMAP Nonfatal XC1 i0 Link 03 (0x4)",
    "NVRM: Xid (0000:8a:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain)",
    "NVRM: Xid (PCI:0000:8a:00): 3",
    "1, Ch 00000003",
    "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout",
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
    "pcieport 0000:80:01.0: AER: Uncorrected (Non-Fatal) error received: 0000:8a:00.0",
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0",
    "mce: [Hardware Error]: Machine check events logged",
    "Out of memory: Killed process 42 (python3) total-vm:1kB",
    "INFO: task kworker/u8:1:77 blocked for more than 120 seconds.",
    "mlx5_core 0000:0c:00.0 ib0: Link down",
    "amdgpu 0000:8a:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block",
    "[ERROR] [tid 7] detected NVSwitch fatal error 20034 on pci bus id 0000:86:00",
    "Linux version 6.1.0 (gcc)",
    "usb 1-1: new device",
)
PREFIXES = (
    "", "[ 60.500000] ", "[Mon Jan  5 12:07:39 2026] ",
    "2026-01-05T04:41:44,284345+01:00 n1 kernel: ",
    "kern  :warn  : 2026-01-05T04:41:44+00:00 ", "Jan  5 04:41:44 n1 kernel: [60.5] ",
    "<4>1 2026-01-05T04:41:44Z n1 kernel - - - ", "Mon 2026-01-05 04:41:44 CET n1 kernel: ",
    "6,3964,60500000,-;", "I0105 10:11:12.123456    1234 reader.go:12] ", "[Jan 05 2026 13:59:45] ",
    "2026-01-05T04:41:44.1Z stdout F n1 kernel: ", "1767600000.250000 n1 kernel: ",
    "Oct 26 02:30:00 n1 kernel: ", "Dec 31 23:59:60 n1 kernel: ",
)  # fmt: skip


def journal(message):
    whole = {"__REALTIME_TIMESTAMP": "1767600000000000", "_HOSTNAME": "n1", "_BOOT_ID": "a" * 32}
    return json.dumps(whole | {"MESSAGE": message}, separators=(",", ":"))


LINES = tuple(
    line.encode()
    for message in MESSAGES
    for line in (
        *(prefix + message for prefix in PREFIXES),
        journal(message),
        journal(list(message.encode())),
    )
)


def spoilt(rng):
    """A few lines, some of them cut, doubled, mixed or with bytes changed."""
    lines = [bytearray(rng.choice(LINES)) for _ in range(rng.randrange(1, 6))]
    for line in lines:
        for _ in range(rng.randrange(4)):
            at, to = sorted(rng.randrange(len(line) + 1) for _ in range(2))
            kind = rng.randrange(6)
            if kind == 0:
                del line[at:to]
            elif kind == 1:
                line[at:at] = line[at:to]
            elif kind == 2:
                line[at:at] = rng.choice(LINES)[: rng.randrange(80)]
            elif kind == 3 and at < len(line):
                line[at] = rng.randrange(256)
            elif kind == 4:
                line[at:at] = rng.choice([b"\x00", b"\n", b"\r", b"\x1b[31m", b"\xff", b"9" * 30])
            else:
                line[at:to] = bytes(reversed(line[at:to]))
    return rng.choice([b"\n", b"\n", b"\r\n"]).join(lines) + rng.choice([b"", b"\n"])


def check(data, tmp_path, *, block_bytes):
    result = parse_kernel_log(data, origin="x.log", node="x", **SETTINGS)
    n_lines = len(data.split(b"\n")) - data.endswith(b"\n") - (not data)
    n_read, n_parsed, n_skipped, n_quarantined = result.reads.drop("source", "origin").row(0)
    assert n_read == n_lines == n_parsed + n_skipped + n_quarantined
    assert result.quarantine["count"].sum() == n_quarantined
    for key, frame in result.tables.items():
        assert TABLE_BY_KEY[key].enforce(frame).rejects.is_empty()
    events = result.table("raw/kernel_log")
    for name in (*events["node"].drop_nulls(), *events["process"].drop_nulls()):
        assert name.isprintable()
    path = tmp_path / "x.log"
    path.write_bytes(data)
    cut = merge(stream_kernel_log(path, block_bytes=block_bytes, chunk_bytes=40, **SETTINGS))
    for key, frame in result.tables.items():
        assert (
            cut.table(key).drop("origin", strict=False).equals(frame.drop("origin", strict=False))
        )
    assert cut.reads.drop("origin").equals(result.reads.drop("origin"))


@pytest.mark.parametrize("seed", range(10))
def test_spoilt_lines_are_read_skipped_or_refused(seed, tmp_path):
    rng = random.Random(seed)  # noqa: S311
    for _ in range(25):
        check(spoilt(rng), tmp_path, block_bytes=rng.randrange(1, 90))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_spoilt_lines_are_read_skipped_or_refused(seed, tmp_path):
    rng = random.Random(seed)  # noqa: S311
    for _ in range(500):
        check(spoilt(rng), tmp_path, block_bytes=rng.randrange(1, 90))


def readers(text):
    """Every reader of one line."""
    line = split_line(text, clock=CLOCK)
    with contextlib.suppress(UnreadableXidError):
        read_event(line.message)
    read_entry(text)
    return line


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda b: b.decode("utf-8", "replace")))
def test_any_text_is_a_line(text):
    readers(text)


@pytest.mark.parametrize("seed", range(4))
def test_spoilt_lines_one_by_one(seed):
    rng = random.Random(seed)  # noqa: S311
    for _ in range(500):
        line = readers(spoilt(rng).decode("utf-8", "replace"))
        assert line.ts is None or line.ts <= datetime(2026, 1, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "word", [*MARKERS, "NVRM: Xid (PCI:0000:", "AER: from ", "mlx5 ", "[1.0] "]
)
def test_no_more_of_an_endless_line_is_looked_at_than_of_a_long_one(word):
    endless = word * (1_000_000 // len(word))
    line = split_line(endless, clock=CLOCK)
    assert len(line.message) <= TEXT_LENGTH
    result = parse_kernel_log(endless, origin="x", **SETTINGS)
    assert result.reads["n_read"].to_list() == [1]


def test_every_message_of_the_corpus_that_reports_something_holds_a_marker():
    for message in MESSAGES:
        if read_event(message) is not None:
            assert any(marker in message for marker in MARKERS)
