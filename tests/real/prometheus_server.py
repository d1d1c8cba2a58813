"""A real Prometheus on a free loopback port, and remote write to fill it.

What is written and expected is each test's own.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import requests
from numpy.typing import NDArray

PROGRAM = shutil.which("prometheus")
ABSENT = "the prometheus program (Debian package prometheus) is not installed"

_CONFIG = """\
global: {scrape_interval: 60s}
storage: {tsdb: {out_of_order_time_window: 31d}}
scrape_configs: []
"""
_WRITE_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}

Numbers = Sequence[int] | Sequence[float] | NDArray[Any]
Series = tuple[Mapping[str, str], Numbers, Numbers]
"""Labels, times in milliseconds, values."""


class PrometheusServer:
    """One server with its data under a folder of its own."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prometheus.yml").write_text(_CONFIG)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "PrometheusServer":
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    PROGRAM,
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    "--storage.tsdb.retention.time=60d",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--web.enable-remote-write-receiver",
                    *self.flags,
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if requests.get(f"{self.url}/-/ready", timeout=2).ok:
                    return self
            except requests.RequestException:
                pass
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"prometheus did not start: {(self.folder / 'log.txt').read_text()}")

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(20)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def write(self, series: Sequence[Series]) -> int:
        """Writes samples; returns how many."""
        body = b"".join(_field(1, write_series(*one)) for one in series)
        packed = pa.compress(body, codec="snappy", asbytes=True)
        answer = requests.post(
            f"{self.url}/api/v1/write", data=packed, headers=_WRITE_HEADERS, timeout=60
        )
        if not answer.ok:
            raise RuntimeError(f"remote write refused: {answer.status_code} {answer.text[:300]}")
        return sum(len(ts) for _, ts, _ in series)


def write_series(labels: Mapping[str, str], ts: Numbers, values: Numbers) -> bytes:
    """A TimeSeries message."""
    head = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, labels[name].encode()))
        for name in sorted(labels)
    )
    moments = np.asarray(ts, np.int64)
    out = np.empty((len(moments), 18), np.uint8)  # Sample: double, then a varint of six bytes
    out[:, 0], out[:, 1], out[:, 2] = 2 << 3 | 2, 16, 1 << 3 | 1
    out[:, 3:11] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
    out[:, 11] = 2 << 3
    for at in range(6):
        more = 0x80 if at < 5 else 0
        out[:, 12 + at] = (moments >> (7 * at)) & 0x7F | more
    return head + out.tobytes()


def _field(number: int, content: bytes) -> bytes:
    size, length = bytearray(), len(content)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes([number << 3 | 2]) + bytes(size) + content
