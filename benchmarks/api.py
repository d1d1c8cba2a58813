"""The API under load: 200 requests a second, 25,000 nodes and 200,000 GPUs, on loopback.

Requests arrive by the clock whether or not earlier ones were answered, and a request's time counts
from the moment at which it was due: a server that stalls is charged for all that wait. They are a
mix of nodes, GPUs, rankings, lists and repeated ones; half way another tick is published. The peer
is a bare FastAPI route that returns a constant, under the same load, so that the ratio says what
the work costs beside the framework. Server and load are processes of their own.

Run as `python -m benchmarks.api [--seconds 60] [--nodes 25000] [--rate 200]`.
"""

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import uvicorn
from fastapi import FastAPI

from features.tables import CORE_TOPOLOGY, GPU_SCORES, NODE_SCORES
from features.vocabulary import FAULT_TYPES
from pipelines.api.access import open_access
from pipelines.api.application import build_application
from pipelines.api.serve import run
from pipelines.api.sources import open_sources
from pipelines.flow.publish import LATEST, publish_scores
from pipelines.settings import Settings
from pipelines.storage.store import TableStore

N_NODES: Final = 25_000
GPUS_PER_NODE: Final = 8
NODES_PER_RACK: Final = 8
HORIZONS: Final = (24, 1, 168)
RATE: Final = 200
SECONDS: Final = 60
MS_AT_MOST: Final = 100
MOST_CONNECTIONS: Final = 400
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def settings_of(folder: Path) -> Settings:
    """An installation whose limits let one client ask as often as it likes."""
    return Settings.model_validate(
        {
            "site": "bench",
            "inputs": folder / "inputs.yaml",
            "data_root": folder,
            "start": datetime(2026, 1, 1, tzinfo=UTC),
            "horizons_h": HORIZONS,
            "api": {"rate_per_s": 100_000, "burst": 1_000_000},
        }
    )


def score_frame(kind: str, names: list[str], nodes: list[str], as_of: datetime) -> pl.DataFrame:
    """Scores as a tick has them: few high, some unknown, reasons for the highest."""
    rng = np.random.default_rng(as_of.hour + len(names))
    parts = []
    for horizon_h in HORIZONS:
        score = rng.beta(0.3, 30, size=len(names))
        is_known = rng.random(len(names)) > 0.02
        shares = np.full((len(names), len(FAULT_TYPES)), 1 / len(FAULT_TYPES), dtype=np.float32)
        parts.append(
            pl.DataFrame(
                {
                    "entity_kind": kind,
                    "entity_id": names,
                    "node": nodes,
                    "as_of": as_of,
                    "horizon_h": horizon_h,
                    "score": score,
                    "status": np.where(is_known, "ok", "unknown"),
                    "fault_type": rng.choice(FAULT_TYPES, size=len(names)),
                    "fault_probability": 0.3,
                    "fault_probabilities": pl.Series(shares).arr.to_list(),
                    "missing_share": 0.01,
                    "model_version": f"gpu-failure-{horizon_h}h/1",
                    "trained_on": "synthetic",
                }
            ).with_columns(
                score=pl.when(pl.Series(is_known)).then("score"),
                status_reason=pl.when(~pl.Series(is_known)).then(
                    pl.lit("newest sample is 45 min old")
                ),
                reasons=pl.when(pl.col("score") > 0.1)
                .then(pl.lit(["HBM temperature 12 C above its rack", "3 row remaps in a week"]))
                .otherwise(pl.lit([], dtype=pl.List(pl.String))),
            )
        )
    contract = GPU_SCORES if kind == "gpu" else NODE_SCORES
    return contract.conform(pl.concat(parts))


def make_site(folder: Path, n_nodes: int) -> list[Path]:
    """Two published ticks and the racks; gives the ticks' own files, oldest first."""
    nodes = [f"gpu-node-{number:05d}" for number in range(n_nodes)]
    gpu_nodes = [node for node in nodes for _ in range(GPUS_PER_NODE)]
    gpus = [f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(len(gpu_nodes))]
    places = pl.DataFrame(
        {
            "node": nodes,
            "level": "rack",
            "place": [f"rack-{number // NODES_PER_RACK:04d}" for number in range(n_nodes)],
            "valid_from": None,
            "valid_to": None,
        }
    ).cast(CORE_TOPOLOGY.schema)
    settings = settings_of(folder)
    TableStore(settings.store_root).write(CORE_TOPOLOGY, places)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for as_of in (now - timedelta(hours=1), now):
        publish_scores(
            settings.scores_dir,
            gpu_scores=score_frame("gpu", gpus, gpu_nodes, as_of),
            node_scores=score_frame("node", nodes, nodes, as_of),
            published_at=now,
            ttl=timedelta(hours=12),
        )
    return sorted((settings.scores_dir / "ticks").glob("*.json"))


def serve(folder: Path, port: int, *, which: str) -> None:
    """Ours, or a bare route; in the process of the server."""
    if which == "peer":
        app = FastAPI()

        @app.get("/{anything:path}")
        async def constant(anything: str) -> dict[str, str]:
            return {"asked": anything}

        uvicorn.run(app, port=port, log_level="warning", access_log=False, timeout_keep_alive=30)
        return
    settings = settings_of(folder)
    access = open_access(settings, listen=f"127.0.0.1:{port}")
    sources = open_sources(settings)
    sources.fleet.current()
    run(build_application(sources, access), access)


@dataclass
class Load:
    """Sends requests by the clock and keeps what came of each.

    Attributes:
        port: Of the server.
        ms: Milliseconds from due to answered.
        errors: What was no answer that was to be expected.
        idle: Connections that wait for work.
        tags: Last entity tag by path.
        n_bytes: Received.
    """

    port: int
    ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    n_bytes: int = 0
    n_unchanged: int = 0

    async def run(self, paths: list[str], rate: float) -> None:
        """All paths, each at its time."""
        gate = asyncio.Semaphore(MOST_CONNECTIONS)
        began = time.perf_counter()
        tasks = []
        for number, path in enumerate(paths):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self.one(path, due, gate)))
        await asyncio.gather(*tasks)

    async def one(self, path: str, due: float, gate: asyncio.Semaphore) -> None:
        """One request."""
        async with gate:
            try:
                status = await self.ask(path)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.errors.append(f"{path}: {error!r}")
                return
        self.ms.append((time.perf_counter() - due) * 1000)
        if status not in (200, 304):
            self.errors.append(f"{path}: {status}")

    async def ask(self, path: str) -> int:
        """Sends it over a connection that is kept."""
        if self.idle:
            reader, writer = self.idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        again, _, plain = path.rpartition("!")
        tag = f"if-none-match: {self.tags[plain]}\r\n" if again and plain in self.tags else ""
        head = f"GET {plain} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: gzip\r\n{tag}\r\n"
        writer.write(head.encode())
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        status, headers = (
            int(answer[0].split()[1]),
            dict(line.split(": ", 1) for line in answer[1:] if ": " in line),
        )
        length = int(headers.get("content-length", "0"))
        if length and status != 304:
            self.n_bytes += len(await reader.readexactly(length))
        self.n_unchanged += status == 304
        if "etag" in headers:
            self.tags[plain] = headers["etag"].replace('w/"', 'W/"')
        self.idle.append((reader, writer))
        return status


def mix(n_requests: int, n_nodes: int) -> list[str]:
    """What a site's dashboards and scripts ask for."""
    rng = random.Random(1)  # noqa: S311 - no secret
    found = []
    for _ in range(n_requests):
        node = rng.randrange(n_nodes)
        kind = rng.random()
        if kind < 0.4:
            found.append(f"/api/v1/nodes/gpu-node-{node:05d}")
        elif kind < 0.6:
            found.append(f"/api/v1/gpus/GPU-{node * GPUS_PER_NODE:08x}-0000-0000-0000-000000000000")
        elif kind < 0.7:
            found.append(f"/api/v1/scores?rack=rack-{node // NODES_PER_RACK:04d}")
        elif kind < 0.75:
            found.append(f"/api/v1/scores?kind=gpu&limit=50&min_score=0.0{rng.randrange(1, 9)}")
        elif kind < 0.8:
            found.append(f"/api/v1/nodes?rack=rack-{node // NODES_PER_RACK:04d}")
        else:
            found.append("!/api/v1/scores")  # a dashboard that asks again and again
    return found


def process_state(pid: int) -> tuple[float, float]:
    """CPU seconds and peak memory in MB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S, int(peak.split()[1]) / 1000


def under_load(
    which: str, folder: Path, ticks: list[Path], *, n_nodes: int, rate: int, seconds: int
) -> dict[str, Any]:
    """Starts a server, loads it from a process of its own, and stops it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    latest = folder / "scores" / LATEST
    latest.write_bytes(ticks[0].read_bytes())
    words = [sys.executable, "-m", "benchmarks.api"]
    server = subprocess.Popen(  # noqa: S603
        [*words, "serve", str(folder), str(port), which],
        # As docs/api.md has it: reading a tick must leave a core to requests.
        env={**os.environ, "POLARS_MAX_THREADS": "1"},
    )
    try:
        _wait_for(port)
        began, _ = process_state(server.pid)
        load = subprocess.Popen(  # noqa: S603
            [*words, "load", str(port), str(rate), str(seconds), str(n_nodes)],
            stdout=subprocess.PIPE,
        )
        time.sleep(seconds / 2)
        beside = latest.with_name("next.json")
        beside.write_bytes(ticks[1].read_bytes())
        beside.replace(latest)
        out, _ = load.communicate()
        ended, peak = process_state(server.pid)
        found: dict[str, Any] = json.loads(out)
        return found | {"cpu": ended - began, "mb": peak}
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError(f"no server at port {port}")


def load_once(port: int, *, rate: int, seconds: int, n_nodes: int) -> dict[str, Any]:
    """The load; in the process that makes it."""
    load = Load(port)
    asyncio.run(load.run(mix(rate, n_nodes), rate))  # connections, first imports
    load = Load(port, idle=[])
    began = time.perf_counter()
    asyncio.run(load.run(mix(rate * seconds, n_nodes), rate))
    taken = time.perf_counter() - began
    p50, p99 = np.percentile(load.ms, [50, 99])
    return {
        "p50": p50,
        "p99": p99,
        "max": max(load.ms),
        "rate": len(load.ms) / taken,
        "n": len(load.ms),
        "n_errors": len(load.errors),
        "error": load.errors[0] if load.errors else "",
        "mb_sent": load.n_bytes / 1e6,
        "n_unchanged": load.n_unchanged,
    }


def rows(n_nodes: int = N_NODES, *, rate: int = RATE, seconds: int = SECONDS) -> list[str]:
    """The lines of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ticks = make_site(folder, n_nodes)
        asked = {"n_nodes": n_nodes, "rate": rate, "seconds": seconds}
        peer = under_load("peer", folder, ticks, **asked)
        ours = under_load("ours", folder, ticks, **asked)
    made = [
        (
            f"{who}: {one['n']:,} requests at {one['rate']:.0f}/s, {one['n_errors']} errors "
            f"{one['error']}; p50 {one['p50']:.1f} ms, p99 {one['p99']:.1f} ms, longest "
            f"{one['max']:.0f} ms; {one['cpu'] / one['n'] * 1000:.2f} CPU ms a request, "
            f"{one['cpu'] / seconds:.2f} cores, {one['mb']:.0f} MB, {one['mb_sent']:.1f} MB sent"
        )
        for who, one in (("API", ours), ("bare FastAPI route", peer))
    ]
    head = f"{n_nodes:,} nodes, {n_nodes * GPUS_PER_NODE:,} GPUs, {len(HORIZONS)} horizons"
    ratios = (f"{name} {ours[name] / peer[name]:.2f}" for name in ("cpu", "p50", "p99"))
    return [
        f"{head}, a new tick half way; p99 at most {MS_AT_MOST} ms",
        *made,
        f"ratio to the bare route: {', '.join(ratios)}",
    ]


def main() -> None:
    """Prints the table, or is the server or the load."""
    words = sys.argv[1:]
    if words[:1] == ["serve"]:
        serve(Path(words[1]), int(words[2]), which=words[3])
    elif words[:1] == ["load"]:
        port, rate, seconds, n_nodes = map(int, words[1:])
        print(json.dumps(load_once(port, rate=rate, seconds=seconds, n_nodes=n_nodes)))
    else:
        given = {
            name: int(words[words.index(f"--{name}") + 1])
            for name in ("nodes", "rate", "seconds")
            if f"--{name}" in words
        }
        print("\n".join(rows(given.pop("nodes", N_NODES), **given)))


if __name__ == "__main__":
    main()
