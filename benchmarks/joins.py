"""Last event before each question, as features ask it, against Polars `join_asof`.

Both answer the same 2,000,000 questions (20,000 GPUs at 100 hours) from 1,000,000 events: when was
the GPU's last event strictly before the hour, at most 30 days back? Both start from the same
sorted frames with UUIDs as text and take turns; a process of its own gives each one thread. The
peer of the comparison with neighbours is the self-join it replaced.

Run as `python -m benchmarks.joins`.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from features.contracts import UTC_TIME
from features.event_index import EventIndex, group_codes
from features.peer_features import peer_floor, with_peer_scores

RUNS: Final = 7
GPUS: Final = 20_000
HOURS: Final = 100
EVENTS: Final = 1_000_000
PEER_GPUS: Final = 200_000
LIMIT: Final = 1.1
_LOOKBACK: Final = timedelta(days=30)
_LOOKBACK_US: Final = _LOOKBACK // timedelta(microseconds=1)
_HOUR_US: Final = 3_600_000_000
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_GAUGE: Final = "gpu_temp_c"


def questions_and_events() -> tuple[pl.DataFrame, pl.DataFrame]:
    """A grid in order of (as_of, GPU), and events in order of time."""
    rng = np.random.default_rng(1)
    start = int(_START.timestamp() * 1e6)
    uuids = pl.Series([f"GPU-{i:08x}-5d2b-4c6e-9a41-0f1e2d3c4b5a" for i in range(GPUS)])
    hours = start + (30 * 24 + np.arange(HOURS)) * _HOUR_US
    questions = pl.DataFrame(
        {
            "gpu_uuid": uuids.gather(np.tile(np.arange(GPUS), HOURS)),
            "as_of": pl.Series(np.repeat(hours, GPUS)).cast(UTC_TIME),
        }
    )
    times = np.sort(rng.integers(start, start + 35 * 24 * _HOUR_US, EVENTS))
    events = pl.DataFrame(
        {
            "gpu_uuid": uuids.gather(rng.integers(0, GPUS, EVENTS)),
            "ts": pl.Series(times).cast(UTC_TIME),
        }
    )
    return questions, events


def last_by_index(questions: pl.DataFrame, events: pl.DataFrame) -> pl.Series:
    """Ours, from codes on."""
    codes, event_codes = group_codes(questions, events, key=("gpu_uuid",))
    as_of = questions["as_of"].dt.epoch("us").to_numpy()
    last = EventIndex(event_codes, events["ts"].dt.epoch("us").to_numpy()).last_time(codes, as_of)
    last[as_of - last > _LOOKBACK_US] = np.nan
    return pl.Series("ts", last, nan_to_null=True)


def last_by_join(questions: pl.DataFrame, events: pl.DataFrame) -> pl.Series:
    """The peer."""
    joined = questions.join_asof(
        events,
        left_on="as_of",
        right_on="ts",
        by="gpu_uuid",
        tolerance=_LOOKBACK,
        allow_exact_matches=False,
        check_sortedness=False,
        coalesce=False,
    )
    return joined["ts"]


def neighbours() -> pl.DataFrame:
    """One moment of 200,000 GPUs, eight to a node."""
    rng = np.random.default_rng(1)
    number = np.arange(PEER_GPUS)
    return pl.DataFrame(
        {
            "entity_id": pl.Series(number).cast(pl.String),
            "node": "node-" + pl.Series(number // 8).cast(pl.String),
            "as_of": pl.Series(np.zeros(PEER_GPUS, dtype=np.int64)).cast(UTC_TIME),
            f"{_GAUGE}:peer": rng.normal(55, 4, PEER_GPUS),
        }
    )


def scores_by_join(table: pl.DataFrame) -> pl.DataFrame:
    """Each GPU beside every other one of its node, in Polars."""
    other = pl.col(f"{_GAUGE}:peer:other")
    spread = (other - other.median()).abs().median() * 1.4826
    score = (pl.col(f"{_GAUGE}:peer").first() - other.median()) / spread.clip(peer_floor(_GAUGE))
    return (
        table.join(table, on=["node", "as_of"], suffix=":other")
        .filter(pl.col("entity_id") != pl.col("entity_id:other"))
        .group_by("entity_id", "as_of")
        .agg(score.alias("z"))
    )


def compare(ours: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float, float]:
    """Median CPU seconds of ours and of the peer, and the median of the ratios pair by pair."""
    ours(), peer()  # compiled functions, fresh memory
    taken = [(_cpu_seconds(ours), _cpu_seconds(peer)) for _ in range(RUNS)]
    return (
        *(statistics.median(column) for column in zip(*taken, strict=True)),
        statistics.median(a / b for a, b in taken),
    )


def _cpu_seconds(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def measure() -> list[str]:
    """The lines, measured in this process.

    Raises:
        ArithmeticError: The two answers differ.
    """
    questions, events = questions_and_events()
    mine, theirs = last_by_index(questions, events), last_by_join(questions, events)
    if not mine.equals(theirs.dt.epoch("us").cast(pl.Float64)):
        raise ArithmeticError("the index and join_asof do not agree")
    ours, peer, ratio = compare(
        lambda: last_by_index(questions, events), lambda: last_by_join(questions, events)
    )
    verdict = "holds" if ratio <= LIMIT else "MISSED"
    table = neighbours()
    hour = timedelta(hours=1)
    ours_z, peer_z, ratio_z = compare(
        lambda: with_peer_scores(table, [_GAUGE], window=hour), lambda: scores_by_join(table)
    )
    return [
        (
            f"last event before each of {questions.height:,} questions, {EVENTS:,} events: "
            f"{ours:.3f} CPU s, join_asof {peer:.3f}: {ratio:.2f}x (at most {LIMIT:g}: {verdict})"
        ),
        (
            f"one gauge of {PEER_GPUS:,} GPUs against their nodes' others: {ours_z:.3f} CPU s, "
            f"self-join in Polars {peer_z:.3f}: {1 / ratio_z:.0f} times as fast"
        ),
    ]


def rows() -> list[str]:
    """The lines of the table, from a process in which Polars has one thread."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.joins"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "POLARS_MAX_THREADS": "1"},
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    print("\n".join(measure() if os.environ.get("POLARS_MAX_THREADS") == "1" else rows()))
