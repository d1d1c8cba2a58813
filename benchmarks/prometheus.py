"""Remote read of a real Prometheus against query_range JSON read by an ordinary client.

Both ask the same server for the same samples, each in a process of its own, in turn, a twentieth at
a time: 1,000 GPUs x 20 metrics x one day at 60 s. Ours is measured to flat samples, and all the way
to `raw/gpu_telemetry`; the ordinary client stops at one numpy array per series.
"""

import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import requests
from numpy.typing import NDArray

from pipelines.sources.http.settings import HttpSettings
from pipelines.sources.prometheus.chunks import LabelCache
from pipelines.sources.prometheus.client import PrometheusClient, PrometheusSettings
from pipelines.sources.prometheus.pull import pull_prometheus
from pipelines.sources.prometheus.readings import Window
from pipelines.sources.prometheus.series import Matcher, Reader
from tests.real.prometheus_server import PrometheusServer

N_GPUS = 1000
STEP_MS = 60_000
DAY_MS = 86_400_000
METRICS = tuple(
    f"DCGM_FI_DEV_{name}"
    for name in (
        "GPU_TEMP", "MEMORY_TEMP", "POWER_USAGE", "SM_CLOCK", "MEM_CLOCK", "GPU_UTIL",
        "MEM_COPY_UTIL", "FB_USED", "FB_FREE", "TOTAL_ENERGY_CONSUMPTION", "ECC_SBE_VOL_TOTAL",
        "ECC_DBE_VOL_TOTAL", "UNCORRECTABLE_REMAPPED_ROWS", "CORRECTABLE_REMAPPED_ROWS",
        "ROW_REMAP_FAILURE", "PCIE_REPLAY_COUNTER", "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "POWER_VIOLATION", "THERMAL_VIOLATION", "XID_ERRORS",
    )
)  # fmt: skip


def seed(server: PrometheusServer, *, n_gpus: int, start_ms: int) -> int:
    """Writes a day of GPUs: noisy gauges, growing counters, and metrics that hardly move.

    Hour by hour, as scrapes come in: written GPU by GPU all but the first would be out of order,
    which Prometheus stores and serves otherwise than what a live server holds.
    """
    rng = np.random.default_rng(7)
    moments = np.arange(start_ms, start_ms + DAY_MS, STEP_MS)
    series = []
    for gpu in range(n_gpus):
        # Each exporter is scraped at its own offset within the interval.
        ts = moments + int(rng.integers(0, STEP_MS))
        for place, name in enumerate(METRICS):
            series.append((_labels(gpu, name), ts, _values(rng, place, len(ts))))
    n, hour = 0, 3_600_000 // STEP_MS
    for begin in range(0, len(moments), hour):
        part = slice(begin, begin + hour)
        for first in range(0, len(series), 4000):
            batch = series[first : first + 4000]
            n += server.write([(labels, ts[part], values[part]) for labels, ts, values in batch])
    return n


def settle(server: PrometheusServer, *, longest_s: float = 240.0) -> None:
    """Waits until the server has made blocks of what it was given, as a live one has."""
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline:
        text = requests.get(f"{server.url}/metrics", timeout=60).text
        edges = dict(re.findall(r"^prometheus_tsdb_head_(min|max)_time (\S+)$", text, re.MULTILINE))
        if float(edges["max"]) - float(edges["min"]) < 3.2 * 3_600_000:
            return
        time.sleep(2)


def _labels(gpu: int, name: str) -> dict[str, str]:
    node, slot = divmod(gpu, 8)
    return {
        "__name__": name,
        "UUID": f"GPU-{gpu:08x}-5f3a-4c1e-9d2b-{gpu * 7919:012x}",
        "gpu": str(slot),
        "device": f"nvidia{slot}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": f"00000000:{slot + 16:02X}:00.0",
        "Hostname": f"node-{node:04}",
        "instance": f"node-{node:04}:9400",
        "job": "dcgm-exporter",
        "DCGM_FI_DRIVER_VERSION": "550.90.07",
    }


def _values(rng: np.random.Generator, place: int, n: int) -> NDArray[np.float64]:
    if place < 3:
        return np.round(60 + np.cumsum(rng.normal(0, 1, n)) % 20, 3 if place == 2 else 0)
    if place < 9:
        return rng.integers(0, 101, n).astype(float)
    if place in {9, 17, 18}:
        return np.cumsum(rng.integers(0, 40_000, n)).astype(float)
    return np.full(n, float(rng.integers(0, 2)))


def by_query_range(url: str, start_ms: int, part: int) -> int:
    """An ordinary client: a query for a metric, gzip, json, a numpy array per series."""
    params: dict[str, Any] = {
        "query": METRICS[part],
        "start": start_ms / 1000,
        "end": (start_ms + DAY_MS - STEP_MS) / 1000,
        "step": STEP_MS // 1000,
    }
    answer = requests.get(f"{url}/api/v1/query_range", params=params, timeout=600)
    answer.raise_for_status()
    n = 0
    for series in json.loads(answer.content)["data"]["result"]:
        pairs = np.array(series["values"], dtype=object)
        ts, values = pairs[:, 0].astype(float), pairs[:, 1].astype(float)
        n += min(len(ts), len(values))
    return n


def to_samples(url: str, start_ms: int, part: int) -> int:
    """Remote read of a metric to flat arrays of times and values."""
    client = PrometheusClient(PrometheusSettings(HttpSettings(url), protocol="remote_read"))
    reader, window = Reader(), Window(start_ms, start_ms + DAY_MS)
    name = Matcher("__name__", "=", METRICS[part])
    cache = LabelCache(reader.read)
    return client.read([name], window, read_labels=reader.read, cache=cache).n_samples


def to_frames(url: str, start_ms: int, part: int) -> int:
    """All metrics of a twentieth of the GPUs, the whole way to tables and the account."""
    start = datetime.fromtimestamp(start_ms / 1000, UTC)
    slots = [f"{digit:x}" for digit in range(16)]
    ends = [first + second for first in slots for second in slots][part :: len(METRICS)]
    matcher = f'UUID=~"GPU-.{{6}}({"|".join(ends)})-.*"'
    settings = PrometheusSettings(HttpSettings(url), matchers=(matcher,))
    results = pull_prometheus(
        PrometheusClient(settings), start, start + timedelta(days=1), ingested_at=datetime.now(UTC)
    )
    return sum(int(result.reads["n_parsed"].sum()) for result in results)


WAYS: dict[str, Callable[[str, int, int], int]] = {
    "query_range": by_query_range,
    "samples": to_samples,
    "frames": to_frames,
}


class Child:
    """One way in a process of its own, asked for one part after the other."""

    def __init__(self, way: str, url: str, start_ms: int) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "benchmarks.prometheus", way, url, str(start_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )

    def measure(self, part: int) -> dict[str, float]:
        """Samples, wall and CPU seconds of one part, and the peak memory so far."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the child has no pipes")
        process.stdin.write(f"{part}\n")
        process.stdin.flush()
        result: dict[str, float] = json.loads(process.stdout.readline())
        return result

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def _serve(way: str, url: str, start_ms: int) -> None:
    """The child: measures each part it is told on standard input."""
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        n = WAYS[way](url, start_ms, int(line))
        found = {
            "n": n,
            "wall": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        print(json.dumps(found), flush=True)


def rows(scale: float = 1.0) -> list[str]:
    """The lines of the table.

    Args:
        scale: Share of the 1,000 GPUs; the claim is about all of them.
    """
    if shutil.which("prometheus") is None:
        return ["remote read: skipped, the prometheus program (Debian package) is not installed"]
    n_gpus = max(int(N_GPUS * scale), 1)
    start_ms = int(time.time() * 1000) // 7_200_000 * 7_200_000 - DAY_MS - 7_200_000
    with tempfile.TemporaryDirectory() as folder, PrometheusServer(Path(folder)) as server:
        began = time.perf_counter()
        n = seed(server, n_gpus=n_gpus, start_ms=start_ms)
        settle(server)
        lines = [f"{n / 1e6:.1f} M samples of {n_gpus} GPUs, {time.perf_counter() - began:.0f} s"]
        children = {way: Child(way, server.url, start_ms) for way in WAYS}
        try:
            for child in children.values():
                child.measure(0)  # loads and compiles what is needed
            # In turn, part by part: what else the machine does meets all of them alike.
            taken = [
                {way: child.measure(part) for way, child in children.items()}
                for part in range(len(METRICS))
            ]
        finally:
            for child in children.values():
                child.close()
    total = {
        way: {key: sum(part[way][key] for part in taken) for key in ("n", "wall", "cpu")}
        for way in WAYS
    }
    peer = total["query_range"]
    for way, run in total.items():
        lines.append(
            f"{way:<12} {run['n'] / 1e6:6.1f} M samples, wall {run['wall']:7.2f} s "
            f"({peer['wall'] / run['wall']:5.1f}x), CPU {run['cpu']:7.2f} s "
            f"({peer['cpu'] / run['cpu']:5.1f}x), peak {taken[-1][way]['peak_mb']:5.0f} MB"
        )
    return lines


def main() -> None:
    """Prints the table, or measures one way in a child process."""
    if len(sys.argv) == 4:
        _serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
        return
    for line in rows(float(sys.argv[1]) if len(sys.argv) == 2 else 1.0):
        print(line, flush=True)


if __name__ == "__main__":
    main()
