"""Window statistics by looking at every sample with exact fractions: slow, and plainly right.

The engine is held against it; nothing here knows of buckets.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from features.engine.plan import MEMORY, N_KNOWN, RESETS, Derived, Wanted
from features.engine.samples import SHARD_SIZE, Piece
from features.packing import read_only
from features.telemetry_metrics import METRIC_BY_COLUMN

HOUR_MS = 3_600_000
NULL = -999


@dataclass(frozen=True)
class Sample:
    """One sample of a GPU: time and known values by column."""

    gpu: int
    ts_ms: int
    values: Mapping[str, int]


@dataclass
class Record:
    """A SampleSource over samples, cut into pieces where a test wants them cut."""

    samples: Sequence[Sample]
    n_gpus: int
    columns: tuple[str, ...]
    piece_rows: int = 10**9

    def uuids(self) -> Sequence[str]:
        return [f"GPU-{code}" for code in range(self.n_gpus)]

    def pieces(self, shard, *, start_ms, end_ms, columns, gpus=None) -> Iterator[Piece]:
        rows = [
            s
            for s in self.samples
            if s.gpu // SHARD_SIZE == shard
            and start_ms <= s.ts_ms < end_ms
            and (gpus is None or s.gpu in gpus)
        ]
        rows.sort(key=lambda s: (s.gpu, s.ts_ms))
        for at in range(0, len(rows), self.piece_rows):
            yield self._piece(rows[at : at + self.piece_rows], columns)

    def _piece(self, rows, columns) -> Piece:
        values, nulls = {}, {}
        for name in columns:
            if name not in self.columns:
                continue
            known = [row.values.get(name) for row in rows]
            if None in known:
                nulls[name] = NULL
            values[name] = np.array([NULL if v is None else v for v in known], np.int64)
        return Piece(
            gpu=read_only(np.array([row.gpu for row in rows], np.uint32)),
            ts_ms=read_only(np.array([row.ts_ms for row in rows], np.int64)),
            values=values,
            nulls=nulls,
        )


def expected(  # noqa: PLR0911 - one return per kind
    samples: Sequence[Sample],
    one: Wanted,
    *,
    gpu: int,
    as_of_ms: int,
    derived: Sequence[Derived] = (),
    counters: Sequence[str] = (),
) -> float:
    """The result of one GPU at one moment; NaN where it is unknown."""
    mine = sorted((s for s in samples if s.gpu == gpu), key=lambda s: s.ts_ms)
    length = int(one.window.total_seconds() * 1000)
    within = [s for s in mine if as_of_ms - length <= s.ts_ms < as_of_ms]
    if one.kind == "count":
        return len(within) * one.scale + one.offset
    if one.kind == "age":
        if not within:
            return math.nan
        return (as_of_ms - within[-1].ts_ms) / HOUR_MS * one.scale + one.offset
    if one.kind == "increase":
        steps = [
            step for ts, step, _ in increases(mine, one.column)
            if as_of_ms - length <= ts < as_of_ms
        ]  # fmt: skip
        return sum(steps) * one.scale + one.offset if steps else math.nan
    column = _column(mine, one.column, derived, counters)
    known = [(ts, v) for ts, v in column if as_of_ms - length <= ts < as_of_ms]
    earlier = [v for ts, v in column if as_of_ms - 2 * length <= ts < as_of_ms - length]
    scale = Fraction(one.scale) * Fraction(_resolution(one.column, derived))
    value = _statistic(one.statistic, known, earlier)
    if value is None:
        return math.nan
    if one.statistic == "std":
        return math.sqrt(value) * float(scale) + one.offset
    return float(value * scale) + one.offset


def increases(mine: Sequence[Sample], column: str) -> list[tuple[int, int, bool]]:
    """Time, increase and whether it fell, of each sample with a known increase."""
    found = []
    previous = None
    for sample in mine:
        value = sample.values.get(column)
        if value is None:
            continue
        if previous and sample.ts_ms - previous[0] <= MEMORY.total_seconds() * 1000:
            fell = value < previous[1]
            found.append((sample.ts_ms, value if fell else value - previous[1], fell))
        previous = (sample.ts_ms, value)
    return found


def _column(mine, name, derived, counters):
    if name == RESETS:
        fallen = {ts for c in counters for ts, _, fell in increases(mine, c) if fell}
        return [(s.ts_ms, int(s.ts_ms in fallen)) for s in mine]
    for one in derived:
        if one.name == name:
            known = [(s.ts_ms, s.values.get(one.metric)) for s in mine]
            return [(ts, int(v & one.bits != 0)) for ts, v in known if v is not None]
    known = [(s.ts_ms, s.values.get(name)) for s in mine]
    return [(ts, v) for ts, v in known if v is not None]


def _statistic(name, known, earlier):  # noqa: PLR0911 - one return per statistic
    values = [Fraction(v) for _, v in known]
    if not values:
        return None
    if name == "sum":
        return sum(values)
    if name in ("min", "max"):
        return {"min": min, "max": max}[name](values)
    if name == "last":
        return values[-1]
    if name == "delta":
        return values[-1] - earlier[-1] if earlier else None
    mean = sum(values) / len(values)
    if name == "mean":
        return mean
    if name == "std":
        if len(values) < 2:
            return None
        return sum((v - mean) ** 2 for v in values) / (len(values) - 1)
    hours = [Fraction(ts // 1000, 3600) for ts, _ in known]
    middle = sum(hours) / len(hours)
    spread = sum((t - middle) ** 2 for t in hours)
    if not spread:
        return None
    return sum((t - middle) * (v - mean) for t, v in zip(hours, values, strict=True)) / spread


def _resolution(column, derived):
    if column in (N_KNOWN, RESETS) or column in {one.name for one in derived}:
        return 1
    return METRIC_BY_COLUMN[column].resolution
