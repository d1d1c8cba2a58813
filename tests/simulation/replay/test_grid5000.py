"""Two traces made one record: where jobs go, what a failure does to them, scores of the past."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from simulation.replay.grid5000 import Downs, downs_of, place_jobs, record_of, rolling_scores
from simulation.replay.history import HOUR, micros
from simulation.replay.tables import history_of

T = datetime(2006, 5, 1, tzinfo=UTC)
H = timedelta(hours=1)
ZERO = micros(T)


def downs(*nodes: list[tuple[float, float]]) -> Downs:
    def column(place: int, own: list[tuple[float, float]]) -> Any:
        return np.array([ZERO + round(one[place] * HOUR) for one in own], dtype=np.int64)

    names = tuple("abcdef"[: len(nodes)])
    return Downs(
        names, tuple(column(0, own) for own in nodes), tuple(column(1, own) for own in nodes)
    )


def jobs(*rows: tuple[float, float, int]) -> pl.DataFrame:
    """Submitted at, hours, GPUs."""
    return pl.DataFrame(
        [
            ((T + at * H).replace(tzinfo=None), 3600.0 * length, gpus)
            for at, length, gpus in rows
        ],
        schema=["timestamp", "duration", "num_gpus"],
        orient="row",
    )  # fmt: skip


def placed(given: Downs, *rows: tuple[float, float, int], lost: float = 1) -> list[Any]:
    found = place_jobs(
        given, jobs(*rows), start=ZERO, end=ZERO + 100 * HOUR, lost=round(lost * HOUR)
    )
    return sorted(
        (one["job_id"], one["attempt"], "".join(one["nodes"]), (one["start"] - T) / H,
         None if one["end"] is None else (one["end"] - T) / H, one["cause"])
        for one in found
    )  # fmt: skip


def test_a_job_goes_where_the_fewest_free_gpus_suffice() -> None:
    assert placed(downs([], []), (0, 5, 6), (0, 5, 4), (0, 5, 2)) == [
        ("j0", 0, "a", 0, 5, None),
        ("j1", 0, "b", 0, 5, None),
        ("j2", 0, "a", 0, 5, None),
    ]


def test_a_large_job_takes_empty_nodes_and_holds_up_those_behind_it() -> None:
    assert placed(downs([], []), (0, 2, 1), (0.5, 3, 16), (1, 1, 1)) == [
        ("j0", 0, "a", 0, 2, None),
        ("j1", 0, "ab", 2, 5, None),
        ("j2", 0, "a", 5, 6, None),
    ]


def test_a_job_larger_than_all_nodes_is_refused_for_it_would_hold_up_the_queue_for_ever() -> None:
    with pytest.raises(DataError, match="1 jobs are larger than the 2 nodes .* with 17 GPUs"):
        placed(downs([], []), (0, 1, 17), (1, 1, 1))


def test_a_failure_ends_the_job_and_what_is_left_of_it_runs_elsewhere() -> None:
    # 5 of 9 hours are done, the last of them is lost.
    assert placed(downs([(5, 20)], []), (0, 9, 8)) == [
        ("j0", 0, "a", 0, 5, "hardware"),
        ("j0", 1, "b", 5, 10, None),
    ]


def test_a_node_that_is_down_takes_no_job_and_one_that_runs_on_has_no_end() -> None:
    assert placed(downs([(0, 3)]), (0, 2, 1)) == [("j0", 0, "a", 3, 5, None)]
    assert placed(downs([], []), (0, 500, 16)) == [("j0", 0, "ab", 0, None, None)]


def states(*rows: tuple[str, bool, float, float]) -> pl.DataFrame:
    return pl.DataFrame(
        [(node, is_up, T + low * H, T + high * H) for node, is_up, low, high in rows],
        schema=["node", "is_up", "start", "stop"],
        orient="row",
    ).cast({"start": pl.Datetime("us", "UTC"), "stop": pl.Datetime("us", "UTC")})


def test_short_times_down_and_other_clusters_are_left_out() -> None:
    found = downs_of(
        states(
            ("G1/s1/c1/node10", False, 0, 1),
            ("G1/s1/c1/node2", False, 0, 0.2),
            ("G1/s1/c1/node2", True, 1, 2),
            ("G1/s2/c1/node2", False, 0, 9),
        ),
        cluster="s1/c1",
    )
    assert found.names == ("s1-c1-node2", "s1-c1-node10")
    assert [one.size for one in found.starts] == [0, 1]
    with pytest.raises(DataError, match="clusters are s1/c1"):
        downs_of(states(("G1/s1/c1/n", False, 0, 1)), cluster="s9/c9")


def weekly(until: float) -> list[tuple[float, float]]:
    """A node that fails every other day."""
    return [(at, at + 2) for at in np.arange(-2000.0, until, 48)]


def score_table(given: Downs) -> dict[tuple[str, float], float | None]:
    found = rolling_scores(given, start=T, end=T + 14 * 24 * H, horizon_h=24)
    return {
        (node, (at - T) / H): score
        for node, at, score in found.select("node", "as_of", "score").iter_rows()
    }


def test_scores_rank_those_that_fail_often_and_know_none_that_is_down() -> None:
    found = score_table(downs(weekly(400), [(-1500, -1499)]))
    assert (found["a", 11.0] or 0) > 0.2 > (found["b", 11.0] or 1)
    assert found["a", -2000 % 48 + 1.0] is None
    assert len(found) == 2 * 14 * 24


@pytest.mark.parametrize("hour", [30, 200])
def test_scores_up_to_a_moment_do_not_change_with_what_comes_at_or_after_it(hour: int) -> None:
    before = score_table(downs(weekly(400), [(-1500, -1499)]))
    wild = [(hour + 0.5, hour + 1), (hour + 2, hour + 300)]
    after = score_table(downs([*weekly(hour), *wild], [(-1500, -1499), *wild]))
    same = {key for key in before if key[1] <= hour}
    assert {key: before[key] for key in same} == {key: after[key] for key in same}
    assert before != after


def test_the_record_is_of_one_piece() -> None:
    record = record_of(
        downs([(5, 20)], []), jobs((0, 9, 8)), start=T, end=T + 48 * H, horizon_h=24, checkpoint_h=1
    )
    found = history_of(record, start=T, end=T + 48 * H, horizon_h=24, repair_hours=8)
    (outage,) = found.outages
    assert [hit.attempt.key for hit in outage.hits] == [("j0", 0)]
    assert (outage.end - outage.start) / HOUR == 15
    assert found.run_gpu_hours == 8 * 10
    assert not found.is_synthetic
