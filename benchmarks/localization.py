"""Localising a hang of 1,024 ranks: time beside reading the files, and how often it is right.

Ours reads, parses, normalises, groups and judges; the peers only read the same files, and read and
parse them (orjson for JSON, lines for text). All run in one process on one thread and take turns.
The rate is in ranks per CPU second. Then 300 generated hangs are judged against their truth.

Run as `python -m benchmarks.localization`.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import orjson

from models.localization.layout import Layout
from models.localization.verdict import judge_hang
from pipelines.sources.stacks.folder import parse_dumps
from pipelines.studies.localize import Asked, evidence_of, localize
from simulation.recovery.stack_dumps import hang_dumps

RUNS: Final = 7
LAYOUT: Final = Layout(tp=8, pp=8, dp=16)
SEEDS: Final = range(100)
CUT: Final = 0.01
"""Share of files that are cut off."""


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _read(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.iterdir()]


def _parse(folder: Path) -> int:
    parsed = [
        orjson.loads(data) if data[:1] == b"[" else data.decode().splitlines()
        for data in _read(folder)
    ]
    return len(parsed)


def rate(folder: Path) -> str:
    """Ranks per CPU second of ours and of the peers."""
    asked = Asked(tp=LAYOUT.tp, pp=LAYOUT.pp, dp=LAYOUT.dp)
    for name, data in hang_dumps(LAYOUT, n_faults=2, seed=1).files.items():
        (folder / name).write_bytes(data)
    size_mb = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    taken = [
        (
            _cpu(lambda: localize(folder, asked)),
            _cpu(lambda: _read(folder)),
            _cpu(lambda: _parse(folder)),
        )
        for _ in range(RUNS)
    ]
    ours, read, parse = (statistics.median(column) for column in zip(*taken, strict=True))
    return (
        f"localize {LAYOUT.n_ranks:,} ranks, {size_mb:.1f} MB of JSON and text: {ours:.2f} CPU s = "
        f"{LAYOUT.n_ranks / ours:,.0f} ranks/s; reading the files alone {read:.3f} s "
        f"({ours / read:.1f}x), reading and parsing them {parse:.3f} s ({ours / parse:.1f}x)"
    )


def accuracy() -> str:
    """Share of hangs whose faulty machines are all evicted, and how many machines that takes."""
    caught, groups, machines = [], [], []
    for seed in SEEDS:
        for n_faults in (1, 2, 3):
            hang = hang_dumps(LAYOUT, n_faults=n_faults, seed=seed, cut=CUT)
            dumps = parse_dumps((name, partial(bytes, data)) for name, data in hang.files.items())
            found = judge_hang(evidence_of(dumps), LAYOUT).eviction
            evicted = found.machines if found else ()
            caught.append(set(hang.faulty) <= set(evicted))
            groups.append(len(found.blamed if found else ()) <= n_faults)
            machines.append(len(evicted) / n_faults)
    return (
        f"{len(caught)} generated hangs of {LAYOUT.n_ranks:,} ranks, 1 to 3 faulty machines, "
        f"{CUT:.0%} of the files cut off: all evicted in {sum(caught) / len(caught):.1%} (at least "
        f"99 %), no more than one parallel group a fault in {sum(groups) / len(groups):.1%}, "
        f"{statistics.mean(machines):.1f} machines evicted a fault"
    )


def rows() -> list[str]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as name:
        return [rate(Path(name)), accuracy()]


if __name__ == "__main__":
    print("\n".join(rows()))
