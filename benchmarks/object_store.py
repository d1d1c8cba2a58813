"""Tables in an object store beside tables in a folder: an hour's tick, and a matrix of 30 days.

The store is SeaweedFS on loopback and on our own cores: it answers in milliseconds, and its work is
part of the wall time. Requests are counted, as a store further away takes 10 to 50 ms for each.
Folder and bucket take turns; medians of wall and CPU seconds of this process.

Run as `python -m benchmarks.object_store DEMO`, with the folder of a `forewarn demo`.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import yaml

from features.tables import GPU_MATRIX
from pipelines.end_to_end.demo import END
from pipelines.serving.score_loop import scorer_of
from pipelines.serving.scorer import score_tick
from pipelines.settings import Settings, load_settings
from pipelines.storage.object_paths import ObjectPath
from pipelines.storage.store import Span, TableStore

TICKS: Final = 8
RUNS: Final = 5
_GPUS: Final = 256
_HOURS: Final = 720
_HOUR: Final = timedelta(hours=1)


@dataclass
class Cost:
    """What one piece of work took.

    Attributes:
        wall: Seconds.
        cpu: Seconds of this process.
        requests: Sent to the store.
    """

    wall: float
    cpu: float
    requests: int


class Meter:
    """Measures work on an installation, and counts the requests of its bucket."""

    def __init__(self, settings: Settings) -> None:
        self.n_requests = 0
        if isinstance(settings.store_root, ObjectPath):
            bucket: Any = settings.store_root.bucket
            bucket._client.meta.events.register("before-send.s3", self._count)  # noqa: SLF001

    def _count(self, **_: object) -> None:
        self.n_requests += 1

    def cost(self, work: Callable[[], object]) -> Cost:
        """What the work takes."""
        before, wall, cpu = self.n_requests, time.perf_counter(), time.process_time()
        work()
        return Cost(time.perf_counter() - wall, time.process_time() - cpu, self.n_requests - before)


def ticks(settings: Settings) -> Callable[[], Cost]:
    """Makes the tick after the one before; the first, which builds the memory, is made here."""
    scorer, meter, made = scorer_of(settings, say=lambda _: None), Meter(settings), [TICKS + 1]

    def tick() -> None:
        made[0] -= 1
        at = END - made[0] * _HOUR
        score_tick(
            settings,
            as_of=at,
            now=lambda: at,
            catalogue=scorer.catalogue,
            champions=scorer.champions,
            say=lambda _: None,
        )

    tick()
    return lambda: meter.cost(tick)


def write_matrix(settings: Settings) -> None:
    """30 days of a matrix of 180 features, by hours."""
    store, ids = TableStore(settings.store_root), [f"GPU-{gpu:08x}" for gpu in range(_GPUS)]
    for hour in range(_HOURS):
        rng, at = np.random.default_rng(hour), END - hour * _HOUR
        keys = pl.DataFrame({"entity_id": ids, "node": ids}).with_columns(
            as_of=pl.lit(at).cast(pl.Datetime("us", "UTC"))
        )
        values = {f"f{n}": rng.normal(50, 9, _GPUS).round() for n in range(180)}
        frame = keys.with_columns(pl.Series(n, v, pl.Float32) for n, v in values.items())
        store.write(GPU_MATRIX, GPU_MATRIX.conform(frame), span=Span(at - _HOUR, at))


def in_turn(folder: Callable[[], Cost], bucket: Callable[[], Cost], *, runs: int) -> str:
    """Both, `runs` times; a line of medians and their ratio."""
    costs = [(folder(), bucket()) for _ in range(runs)]
    ours, theirs = (
        Cost(*(statistics.median(getattr(c[i], n) for c in costs) for n in vars(costs[0][i])))
        for i in range(2)
    )
    return (
        f"folder {ours.wall:.2f} s ({ours.cpu:.2f} CPU), bucket {theirs.wall:.2f} s "
        f"({theirs.cpu:.2f} CPU), {theirs.wall / ours.wall:.2f}x wall, "
        f"{theirs.cpu / ours.cpu:.2f}x CPU, {theirs.requests:.0f} requests"
    )


def installations(demo: Path, folder: Path, endpoint: str) -> tuple[Settings, Settings]:
    """Two copies of the demo, one with its tables in a bucket."""
    found = []
    for name in ("folder", "bucket"):
        shutil.copytree(demo, folder / name)
        file = folder / name / "forewarn.yaml"
        content = yaml.safe_load(file.read_text())
        if name == "bucket":
            keys = {"access_key": {"variable": "KEY"}, "secret_key": {"variable": "SECRET"}}
            store = {"endpoint": endpoint, **keys}
            content["storage"] = {"tables": "s3://fleet/tables", "object_store": store}
            file.write_text(yaml.safe_dump(content))
        found.append(load_settings(file))
    ours, theirs = found
    assert isinstance(ours.store_root, Path)  # noqa: S101 - a benchmark
    for path in ours.store_root.rglob("*.*"):
        if path.is_file():
            (theirs.store_root / str(path.relative_to(ours.store_root))).write_bytes(
                path.read_bytes()
            )
    return ours, theirs


def main(demo: Path) -> None:
    """Prints the table."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "real"))
    from seaweed_server import ACCESS_KEY, SECRET_KEY, SeaweedServer

    os.environ |= {"KEY": ACCESS_KEY, "SECRET": SECRET_KEY}
    with SeaweedServer() as server, tempfile.TemporaryDirectory() as name:
        server.make_bucket("fleet")
        both = installations(demo, Path(name), server.url)
        for settings in both:
            (settings.scores_dir / "LATEST.json").unlink(missing_ok=True)
        print("an hour's tick:", in_turn(*(ticks(one) for one in both), runs=TICKS))
        for settings in both:
            write_matrix(settings)
        span = Span(END - _HOURS * _HOUR, END)

        def reading(settings: Settings) -> Callable[[], Cost]:
            meter, store = Meter(settings), TableStore(settings.store_root)
            return lambda: meter.cost(lambda: store.read(GPU_MATRIX, span=span))

        print(f"{_HOURS} hours of {_GPUS} GPUs:", in_turn(*map(reading, both), runs=RUNS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
