"""Time of real jobs: what is kept, lost and unknown, attempt by attempt."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from features.tables import CORE_JOBS
from models.recovery.ettr import cumulative_ettr
from models.recovery.job_time import TimeBasis, ettr_by_family, job_stretches, job_time

T = datetime(2026, 1, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BASIS = TimeBasis(as_of=T + 1000 * MINUTE, interval_s=3600, restart_s=300)


def job(start, end, state, *, attempt=0, job_id="j", cause=None, n_gpus=8, partition="p"):
    return {
        "job_id": job_id,
        "attempt": attempt,
        "partition": partition,
        "n_gpus": n_gpus,
        "start": None if start is None else T + start * MINUTE,
        "end": None if end is None else T + end * MINUTE,
        "end_state": state,
        "cause": cause,
    }


def frame(*rows):
    return pl.DataFrame(list(rows), schema=CORE_JOBS.schema)


def minutes(*rows, basis=BASIS):
    """kept, restart, rework, wait, unknown of each attempt."""
    names = ("kept_s", "restart_s", "rework_s", "wait_s", "unknown_s")
    time = job_time(frame(*rows), basis=basis)
    return [tuple(round(v / 60, 6) for v in row) for row in time.select(names).iter_rows()]


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        (job(0, 90, "COMPLETED"), (90, 0, 0, 0, 0)),
        (job(0, None, "RUNNING"), (1000, 0, 0, 0, 0)),
        (job(0, 90, "NODE_FAIL", cause="hardware"), (60, 0, 30, 0, 0)),
        (job(0, 90, "PREEMPTED"), (60, 0, 30, 0, 0)),
        (job(0, 90, "FAILED", cause="hang"), (60, 0, 30, 0, 0)),
        (job(0, 90, "FAILED", cause="user_code"), (0, 0, 0, 0, 90)),
        (job(0, 90, "TIMEOUT", cause="unknown"), (0, 0, 0, 0, 90)),
        (job(0, 90, "CANCELLED"), (0, 0, 0, 0, 90)),
        (job(0, 90, None), (0, 0, 0, 0, 90)),
        (job(0, 2000, "FAILED", cause="hardware"), (1000, 0, 0, 0, 0)),
    ],
)
def test_what_becomes_of_the_time_of_one_attempt(row, parts):
    assert minutes(row) == [parts]


def test_an_attempt_that_came_again_was_interrupted_whatever_its_state_says():
    first, second = job(0, 90, "FAILED", cause="user_code"), job(100, 170, "COMPLETED", attempt=1)
    assert minutes(first, second) == [(60, 0, 30, 10, 0), (65, 5, 0, 0, 0)]


def test_an_attempt_shorter_than_the_start_up_keeps_nothing():
    assert minutes(job(0, 60, "NODE_FAIL"), job(60, 62, "NODE_FAIL", attempt=1)) == [
        (60, 0, 0, 0, 0),
        (0, 2, 0, 0, 0),
    ]


def test_what_did_not_begin_before_as_of_is_not_looked_at():
    rows = [job(0, 90, "NODE_FAIL"), job(1000, 1100, "COMPLETED", attempt=1)]
    assert minutes(*rows) == [(60, 0, 30, 0, 0)]
    assert minutes(job(None, None, "PENDING")) == []


@given(
    ends=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 90)), min_size=1, max_size=5),
    last=st.sampled_from(["COMPLETED", "NODE_FAIL", "FAILED", "CANCELLED", None]),
)
def test_the_parts_add_up_to_the_running_time(ends, last):
    rows, at = [], 0
    for n, (run, wait) in enumerate(ends):
        state = last if n == len(ends) - 1 else "NODE_FAIL"
        rows.append(job(at, at + run, state, attempt=n))
        at += run + wait
    time = job_time(frame(*rows), basis=BASIS)
    parts = time.select("kept_s", "restart_s", "rework_s", "unknown_s")
    assert parts.sum_horizontal().to_list() == pytest.approx(time["running_s"].to_list())
    assert min(parts.min_horizontal()) >= 0


def test_ettr_is_weighted_with_gpus_and_bounded_by_what_is_unknown():
    time = job_time(
        frame(
            job(0, 90, "NODE_FAIL", job_id="a", n_gpus=1),
            job(0, 60, "COMPLETED", job_id="b", n_gpus=3),
            job(0, 30, "CANCELLED", job_id="c", n_gpus=2),
            job(0, 60, "COMPLETED", job_id="d", n_gpus=None),
        ),
        basis=BASIS,
    )
    [*families, whole] = ettr_by_family(time).rows(named=True)
    assert [(f["size"], f["ettr"]) for f in families] == [
        ("1", pytest.approx(2 / 3)), ("2-8", 1.0), ("(unknown)", None),
    ]  # fmt: skip
    assert whole["ettr"] == pytest.approx(4 / 4.5)
    assert (whole["ettr_low"], whole["ettr_high"]) == pytest.approx((4 / 5.5, 5 / 5.5))
    assert (whole["n_jobs"], whole["n_attempts"], whole["n_unweighted"]) == (4, 4, 1)


def test_families_are_partitions_and_size_classes():
    rows = [job(0, 60, "COMPLETED", job_id=str(n), n_gpus=n) for n in (1, 8, 9, 64, 1024, 1025)]
    rows.append(job(0, 60, "COMPLETED", job_id="x", partition=None))
    found = ettr_by_family(job_time(frame(*rows), basis=BASIS))
    assert found.select("partition", "size").rows() == [
        ("(unknown)", "2-8"), ("p", "1"), ("p", "2-8"), ("p", "9-64"), ("p", "257-1024"),
        ("p", ">1024"), ("all", "all"),
    ]  # fmt: skip


def test_of_no_jobs_nothing_is_known():
    assert ettr_by_family(job_time(frame(), basis=BASIS)).is_empty()


def test_the_stretches_of_a_job_give_its_ettr():
    rows = [job(0, 90, "NODE_FAIL"), job(100, 170, "COMPLETED", attempt=1)]
    time = job_time(frame(*rows), basis=BASIS)
    assert cumulative_ettr(job_stretches(time, "j")) == pytest.approx(125 / 170)
    unknown = job_time(frame(job(0, 90, "CANCELLED")), basis=BASIS)
    assert job_stretches(unknown, "j") is None
    with pytest.raises(DataError, match="no attempt of a job 'k'"):
        job_stretches(time, "k")
