"""Attempts of jobs: each once, whatever was read how often and in which order."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import polars as pl
import pytest

from features.core_build import build_jobs
from features.raw_tables import RAW_JOB_LOG

T0 = datetime(2026, 1, 10, tzinfo=UTC)


def at(minutes):
    return None if minutes is None else T0 + timedelta(minutes=minutes)


def record(job, state, *, submit=0, start=None, end=None, read=0, **more):
    return {
        **dict.fromkeys(RAW_JOB_LOG.schema.names()), "job_id": job, "state": state,
        "submit": at(submit), "start": at(start), "end": at(end), "ingested_at": at(read),
        "source": "sacct", **more,
    }  # fmt: skip


def build(*rows):
    built = build_jobs(pl.DataFrame(rows, schema=RAW_JOB_LOG.schema))
    assert built.n_read == built.frame.height + built.n_merged + built.n_skipped
    return built.frame


def told(frame):
    minutes = (pl.col("start", "end") - T0).dt.total_minutes()
    return frame.select("job_id", "attempt", "end_state", minutes).rows()


def test_a_job_that_ends_after_midnight_is_counted_once_over_two_dumps():
    steps = [record("7", "CANCELLED", end=62, step="0"), record("7", "COMPLETED", step="extern")]
    first = [record("7", "RUNNING", start=5, read=10)]
    second = [record("7", "CANCELLED", start=5, end=60, read=70), *steps]
    for order in (first + second, second + first, second + second + first):
        assert told(build(*order)) == [("7", 0, "CANCELLED", 5, 60)]


def test_dumps_that_only_have_the_end_join_those_that_have_the_start():
    bare = record("7", "CANCELLED", submit=None, end=60)
    whole = record("7", "CANCELLED", start=5, end=60)
    assert told(build(bare, whole, bare)) == [("7", 0, "CANCELLED", 5, 60)]
    assert told(build(bare, bare)) == [("7", 0, "CANCELLED", None, 60)]


def test_an_earlier_record_read_late_does_not_undo_the_end():
    rows = [record("7", "FAILED", start=5, end=60, read=1), record("7", "RUNNING", start=5, read=9)]
    assert told(build(*rows)) == [("7", 0, "FAILED", 5, 60)]


def test_requeued_attempts_under_one_id_are_told_apart():
    rows = [
        record("7", "NODE_FAIL", start=5, end=20),
        record("7", "PENDING", submit=20, read=21),
        record("7", "COMPLETED", submit=20, start=30, end=40, read=41),
    ]
    expected = [("7", 0, "NODE_FAIL", 5, 20), ("7", 1, "COMPLETED", 30, 40)]
    for order in permutations(rows):
        assert told(build(*order)) == expected
    assert told(build(*rows[:2])) == [("7", 0, "NODE_FAIL", 5, 20), ("7", 1, "PENDING", None, None)]


def test_an_attempt_that_was_followed_by_another_is_not_running():
    rows = [
        record("7", "RUNNING", start=5, read=10),
        record("7", "RUNNING", submit=20, start=30, read=31),
    ]
    assert told(build(*rows)) == [("7", 0, "REQUEUED", 5, 20), ("7", 1, "RUNNING", 30, None)]


def test_what_waits_stands_only_until_something_newer_is_known():
    waiting = record("7", "PENDING", read=1)
    running = record("7", "RUNNING", start=5, read=6)
    assert told(build(waiting, waiting)) == [("7", 0, "PENDING", None, None)]
    assert told(build(running, waiting)) == [("7", 0, "RUNNING", 5, None)]


def test_of_the_waiting_rest_of_an_array_the_latest_counts():
    rows = [
        record("9_[4-7%2]", "PENDING", read=1),
        record("9_4", "RUNNING", start=5, read=6),
        record("9_[5-7%2]", "PENDING", read=6),
    ]
    assert told(build(*rows)) == [
        ("9_4", 0, "RUNNING", 5, None),
        ("9_[5-7%2]", 0, "PENDING", None, None),
    ]


def test_a_job_cancelled_before_it_began_is_an_attempt():
    assert told(build(record("7", "PENDING"), record("7", "CANCELLED", end=9))) == [
        ("7", 0, "CANCELLED", None, 9)
    ]


def test_gaps_of_the_final_record_are_filled_from_earlier_ones():
    rows = [
        record("7", "RUNNING", start=5, read=6, n_gpus=8, nodes=["n1"], source="squeue"),
        record("7", "NODE_FAIL", start=5, end=9, read=10, user="ann", source="slurm_jobs"),
    ]
    frame = build(*rows)
    assert frame.select("end_state", "n_gpus", "nodes", "user").rows() == [
        ("NODE_FAIL", 8, ["n1"], "ann")
    ]


@pytest.mark.parametrize(
    ("parent", "step", "cause"),
    [
        ("COMPLETED", "CANCELLED", None),  # the job's own record counts
        ("COMPLETED", "OUT_OF_MEMORY", None),
        ("FAILED", "OUT_OF_MEMORY", "oom"),
        ("FAILED", "NODE_FAIL", "hardware"),
        ("FAILED", "FAILED", "unknown"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "oom"),
        ("NODE_FAIL", "OUT_OF_MEMORY", "hardware"),
        ("CANCELLED", "CANCELLED", None),
    ],
)
def test_a_step_is_asked_only_where_the_job_leaves_its_cause_open(parent, step, cause):
    rows = [
        record("7", parent, start=5, end=9),
        record("7", step, submit=None, start=6, end=8, step="0"),
        record("7", "COMPLETED", submit=None, start=5, end=9, step="extern"),
    ]
    assert build(*rows)["cause"].to_list() == [cause]


def test_a_step_explains_only_its_own_attempt():
    rows = [
        record("7", "FAILED", start=5, end=9),
        record("7", "FAILED", start=20, end=29),
        record("7", "OUT_OF_MEMORY", submit=None, start=21, end=28, step="0"),
    ]
    assert build(*rows)["cause"].to_list() == ["unknown", "oom"]
