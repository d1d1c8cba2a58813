"""Exposition text against prometheus_client: CPU per sample, pairs in turn, medians of five runs.

The pages are those of 1,000 nodes with 8 GPUs and 20 metrics; between scrapes the values differ.
prometheus_client reads a twentieth of them: it is steady, and slow.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from pipelines.sources.telemetry.dcgm_text import DIALECT
from pipelines.sources.telemetry.exposition_compiled import compiled_scan
from pipelines.sources.telemetry.exposition_page import Scan
from pipelines.sources.telemetry.exposition_scan import Scanner, samples_of, scan_python
from pipelines.sources.telemetry.pages import PageBatch

RUNS: Final = 5
N_NODES: Final = 1000
N_GPUS: Final = 8
PEER_SHARE: Final = 20
NOW: Final = datetime(2026, 2, 1, tzinfo=UTC)

_METRICS: Final = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "SM clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEM_CLOCK": ("gauge", "Memory clock frequency (in MHz)."),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "Memory temperature (in C)."),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "GPU temperature (in C)."),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "Power draw (in W)."),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("counter", "Energy since boot (in mJ)."),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", "Total number of PCIe retries."),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "GPU utilization (in %)."),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gauge", "Memory utilization (in %)."),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", "Value of the last XID error encountered."),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "Frame buffer memory free (in MiB)."),
    "DCGM_FI_DEV_FB_USED": ("gauge", "Frame buffer memory used (in MiB)."),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("counter", "Single-bit volatile ECC errors."),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", "Double-bit volatile ECC errors."),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter", "Rows remapped, uncorrectable."),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", "Rows remapped, correctable."),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", "Whether remapping of rows has failed."),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": ("counter", "NVLink bandwidth of all lanes."),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gauge", "Share of cycles the tensor pipe is active."),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gauge", "Share of cycles the memory is active."),
}
_RANGES: Final = {"TEMP": 90, "CLOCK": 2000, "FB": 80_000, "ENERGY": 10**12, "BANDWIDTH": 10**6}


def exporter_page(node: int, rng: random.Random) -> str:
    """A page as dcgm-exporter serves it.

    Args:
        node: Number of the node; its labels follow from it.
        rng: Source of the values.

    Returns:
        The text.
    """
    lines = []
    for name, (kind, text) in _METRICS.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for gpu in range(N_GPUS):
            labels = (
                f'gpu="{gpu}",UUID="GPU-{node:08x}-1a2b-4c3d-8e9f-{gpu:012x}",'
                f'pci_bus_id="00000000:{16 * gpu + 7:02X}:00.0",device="nvidia{gpu}",'
                f'modelName="NVIDIA H100 80GB HBM3",Hostname="node{node:05d}",'
                f'DCGM_FI_DRIVER_VERSION="550.90.07"'
            )
            lines.append(f"{name}{{{labels}}} {_value(name, rng)}")
    return "\n".join(lines) + "\n"


def _value(name: str, rng: random.Random) -> str:
    if "_PROF_" in name or "POWER" in name:
        return f"{rng.random() * (1 if '_PROF_' in name else 700):.6f}"
    top = next((top for word, top in _RANGES.items() if word in name), None)
    return str(rng.randrange(top) if top else rng.randrange(2))


def cpu_seconds(run: Callable[[], object]) -> float:
    """CPU time of one call, all threads."""
    began = time.process_time()
    run()
    return time.process_time() - began


def rows() -> list[str]:
    """Measures, and words the table.

    Returns:
        One line per way of reading, after a heading: our CPU per sample and how many times
        prometheus_client's bare parse that is.
    """
    rng = random.Random(7)  # noqa: S311 - reproducible pages
    first, second = ([exporter_page(n, rng) for n in range(N_NODES)] for _ in range(2))
    first_bytes, second_bytes = ([page.encode() for page in pages] for pages in (first, second))
    n_samples = N_NODES * N_GPUS * len(_METRICS)
    ways = {"compiled": compiled_scan(), "python": scan_python}
    lines = [
        f"{N_NODES} pages, {n_samples} samples, {sum(map(len, first)) / 1e6:.0f} MB",
        f"{'what':<46}{'ours us':>9}{'peer us':>9}{'faster':>9}",
    ]
    for label, scan in ways.items():
        if scan is None:
            lines.append(f"{label}: numba has nowhere to keep what it compiles")
            continue
        for what, run in _runs(scan, first_bytes, second_bytes).items():
            lines.append(_measured(f"{label}, {what}", run, first, n_samples=n_samples))
    lines.append(f"us: CPU per sample; median of {RUNS} runs, each beside prometheus_client's")
    return lines


def _runs(
    scan: Scan, first: Sequence[bytes], second: Sequence[bytes]
) -> dict[str, Callable[[], float]]:
    """What is measured, each a function that gives CPU seconds."""

    def first_ever() -> float:
        scanner = Scanner(scan)
        return cpu_seconds(lambda: [scanner.read(page) for page in first])

    def steady() -> float:
        scanner = Scanner(scan)
        for page in first:
            scanner.read(page)
        return cpu_seconds(lambda: [scanner.read(page) for page in second])

    def objects() -> float:
        scanner = Scanner(scan)
        return cpu_seconds(
            lambda: [list(samples_of(scanner.read(page), scanner.symbols)) for page in first]
        )

    def frames(*known: Sequence[bytes]) -> float:
        batch = PageBatch(DIALECT, ingested_at=NOW, scanner=Scanner(scan))

        def run(pages: Sequence[bytes]) -> None:
            for number, page in enumerate(pages):
                batch.add(page, origin=f"{number}.prom", ts=NOW)
            batch.result()

        for pages in known:
            run(pages)
        return cpu_seconds(lambda: run(first))

    return {
        "first scrape ever, to columns": first_ever,
        "a further scrape, to columns": steady,
        "first scrape ever, to Python tuples": objects,
        "first scrape ever, to frames": frames,
        "a further scrape, to frames": lambda: frames(second),
    }


def _measured(what: str, run: Callable[[], float], pages: Sequence[str], *, n_samples: int) -> str:
    some = pages[::PEER_SHARE]
    n_peer = n_samples * len(some) // len(pages)
    run()  # warm-up
    taken = []
    for _ in range(RUNS):
        ours = run() / n_samples
        peer = cpu_seconds(lambda: [list(text_string_to_metric_families(p)) for p in some]) / n_peer
        taken.append((ours, peer, peer / ours))
    ours, peer, ratio = (statistics.median(column) for column in zip(*taken, strict=True))
    return f"{what:<46}{ours * 1e6:>9.2f}{peer * 1e6:>9.2f}{ratio:>8.0f}x"


def main() -> None:
    """Prints the table."""
    print("\n".join(rows()))


if __name__ == "__main__":
    main()
