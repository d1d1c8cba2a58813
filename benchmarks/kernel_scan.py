"""Events out of a kernel log of ten million lines, against grep looking for one word in it.

Counted: CPU (user and system) of a whole fresh process, from start to exit, as the kernel counts
it for a child; ours includes Python's start, its imports, the time, node, device, code, process
and severity of every event, and the count of all lines. Frames are not part of it, nor their
imports: the scan is what has to be cheap, and the process that makes frames has Polars loaded.

Ours and grep take turns, as the machine may be busy, and so does ours with nothing to read: what
its start and imports cost is the same for a log of any size. A row of found lines only leaves out
what it costs to read them into events.

Run as `python -m benchmarks.kernel_scan`; `N_LINES` may be given as the only argument.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RUNS: Final = 7
N_LINES: Final = 10_000_000
SHARES: Final = (0.0001, 0.001)
"""Share of Xid lines: a fleet with some trouble, and one in bad trouble."""

_PART: Final = 250_000  # lines made at once
_ROOT: Final = Path(__file__).parents[1]
_XID: Final = "NVRM: Xid ("
_PEER: Final = ("grep", "-F", "-c", _XID)

_NOISE: Final = (
    "IPv6: ADDRCONF(NETDEV_CHANGE): cali{h:08x}: link becomes ready",
    'audit: type=1400 audit({t:.3f}:{n}): apparmor="ALLOWED" operation="open" pid={n}',
    "perf: interrupt took too long ({n} > {m}), lowering kernel.perf_event_max_sample_rate",
    "docker0: port {m}(veth{h:07x}) entered forwarding state",
    "eth0: renamed from veth{h:07x}",
    "nfs: server 10.1.{m}.{m} not responding, still trying",
    "LustreError: {n}:0:(client.c:{n}:ptlrpc_expire_one_request()) @@@ timed out: [sent {n}]",
    "TCP: request_sock_TCP: Possible SYN flooding on port {n}. Sending cookies.",
    "usb 1-{m}: new high-speed USB device number {m} using xhci_hcd",
    "EXT4-fs (nvme0n1p{m}): mounted filesystem with ordered data mode. Opts: (null)",
    "IN=eth0 OUT= MAC=00:16:3e:{m:02x} SRC=10.0.0.{m} LEN=60 TTL=64 ID={n} DF PROTO=TCP SPT={n}",
)
_XIDS: Final = (
    "NVRM: Xid (PCI:0000:{m:02x}:00): 13, pid={n}, name=python3, Graphics Exception: ESR 0x{h:x}",
    "NVRM: Xid (PCI:0000:{m:02x}:00): 31, pid={n}, name=python3, Ch 00000003, intr 10000000",
    "NVRM: Xid (PCI:0000:{m:02x}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
)
_OTHERS: Final = (
    "pcieport 0000:{m:02x}:01.0: AER: Corrected error received: 0000:{m:02x}:00.0",
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0",
    "mlx5_core 0000:{m:02x}:00.0 ibp12s0: Link down",
    "Out of memory: Killed process {n} (python3) total-vm:{n}kB, anon-rss:{n}kB",
)

_SCAN: Final = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo
from pipelines.sources.kernel.events import MARKERS
from pipelines.sources.kernel.line import Clock
from pipelines.sources.kernel.reader import KernelReader
from pipelines.sources.kernel.scan import LineScan
from pipelines.sources.kernel.log_bytes import read_blocks

clock = Clock(ZoneInfo("UTC"), datetime(2026, 1, 1, tzinfo=UTC))
what, path, *markers = sys.argv[1:]
reader = KernelReader(clock=clock, node=None, markers=markers or MARKERS)
n_xids = n_others = 0

def count(found):
    global n_xids
    n_xids += found.is_marked
    return False

scan = LineScan(markers, take=count) if what == "lines" else reader.scan
for block in read_blocks(Path(path)):
    scan.feed(block)
    for row in reader.rows():
        n_xids += row["kind"] == "xid"
        n_others += row["kind"] != "xid"
scan.finish() if what == "lines" else reader.finish()
for row in reader.rows():
    n_xids += row["kind"] == "xid"
    n_others += row["kind"] != "xid"
heavy = [name for name in ("polars", "pyarrow", "pandas") if name in sys.modules]
# The largest memory of this program; that of resource.getrusage starts with its parent's.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) // 1024
print(n_xids, n_others, scan.n_lines, peak, *heavy)
"""


@dataclass(frozen=True)
class Measured:
    """One turn.

    Attributes:
        ours_s: CPU seconds of the scan.
        start_s: Those of them that it takes with nothing to read.
        peer_s: CPU seconds of grep.
        peak_mb: Largest resident memory of the scan.
        n_xids: Xid events the scan found; grep found as many lines.
        n_others: Events of other kinds, which grep was not asked for.
    """

    ours_s: float
    start_s: float
    peer_s: float
    peak_mb: int
    n_xids: int
    n_others: int


def rows(n_lines: int = N_LINES) -> list[str]:
    """Rows of the benchmark table: Xids alone, and events of all kinds, against grep's one word."""
    return list(_rows(n_lines))


def _rows(n_lines: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        for share in SHARES:
            path = Path(folder) / "kern.log"
            write_log(path, n_lines=n_lines, share=share)
            size = f"{n_lines / 1e6:g} M lines, {share:.2%} Xid"
            yield _row(path, f"Xid lines found, {size}", ("lines", _XID))
            yield _row(path, f"Xid events, {size}", ("events", _XID))
            yield _row(path, f"events of all kinds, {size}", ("events",))


def write_log(path: Path, *, n_lines: int, share: float) -> None:
    """Writes a syslog of kernel messages, some of them Xids and a third as many other events."""
    with path.open("w", encoding="ascii") as file:
        at = random.Random(5)  # noqa: S311 - a log needs no secrets
        part = "".join(_lines(at, min(_PART, n_lines), share))
        for _ in range(n_lines // _PART or 1):
            file.write(part)


def _lines(at: random.Random, n_lines: int, share: float) -> Iterator[str]:
    for number in range(n_lines):
        drawn = at.random()
        kinds = _XIDS if drawn < share else _OTHERS if drawn < share * 4 / 3 else _NOISE
        second = number // 4
        text = at.choice(kinds).format(
            t=second, h=at.getrandbits(32), n=at.randrange(1000, 99999), m=at.randrange(1, 255)
        )
        time = f"{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"
        yield (
            f"Nov {1 + second // 86400 % 28:2} {time} gpu{number % 7:04} "
            f"kernel: [{second}.{number % 10**6:06}] {text}\n"
        )


def _row(path: Path, name: str, what: tuple[str, ...]) -> str:
    _measure(path, what)  # warms the page cache and the compiled modules
    turns = [_measure(path, what) for _ in range(RUNS)]
    ours = statistics.median(turn.ours_s for turn in turns)
    peer = statistics.median(turn.peer_s for turn in turns)
    ratio = statistics.median(turn.ours_s / turn.peer_s for turn in turns)
    read = statistics.median((turn.ours_s - turn.start_s) / turn.peer_s for turn in turns)
    start = statistics.median(turn.start_s for turn in turns)
    peak = max(turn.peak_mb for turn in turns)
    return (
        f"{name:<44}{ours:>9.3f}{peer:>9.3f}{ratio:>9.2f}  grep -F '{_XID}'; {read:.2f} without "
        f"the {start:.3f} s of start and imports; {peak} MB, {turns[0].n_xids} Xids, "
        f"{turns[0].n_others} others, {path.stat().st_size / 1e6:.0f} MB of log; load "
        f"{os.getloadavg()[0]:.1f}"
    )


def _measure(path: Path, what: tuple[str, ...]) -> Measured:
    kind, *markers = what
    ours_s, told = _cpu([sys.executable, "-c", _SCAN, kind, str(path), *markers])
    peer_s, peer_told = _cpu([*_PEER, str(path)])
    start_s, _ = _cpu([sys.executable, "-c", _SCAN, kind, os.devnull, *markers])
    n_xids, n_others, _, peak, *heavy = told.split()
    if heavy or n_xids != peer_told.strip():
        raise RuntimeError(
            f"the scan found {n_xids} Xid events, grep {peer_told.strip()} lines, of the same "
            f"log; modules loaded that must not be: {heavy}. Look at kernel_scan.py."
        )
    return Measured(ours_s, start_s, peer_s, int(peak), int(n_xids), int(n_others))


def _cpu(command: list[str]) -> tuple[float, str]:
    """CPU seconds of a child, and what it printed."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONPATH": str(_ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each run would compile its modules again
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)  # noqa: S603
    with child:
        told = child.stdout.read() if child.stdout else b""
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{command[0]} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, told.decode()


def main() -> None:
    """Prints the table."""
    print(f"{'what':<44}{'ours s':>9}{'peer s':>9}{'ratio':>9}  peer")
    for row in _rows(int(sys.argv[1]) if len(sys.argv) > 1 else N_LINES):
        print(row, flush=True)


if __name__ == "__main__":
    main()
