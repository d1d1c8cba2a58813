"""Why a job failed: the most specific class that is no collateral, then the earliest."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.job_causes import job_cause_of, job_causes
from features.raw_tables import RAW_JOB_OUTPUT

NOW = datetime(2026, 1, 6, tzinfo=UTC)


def line(fault_class, *, job="8", priority=50, collateral=False, minute=None, position=0, node="n"):
    return {
        "job_id": job, "node": node, "rank": None, "fault_class": fault_class, "cause": "unknown",
        "ts": None if minute is None else NOW + timedelta(minutes=minute), "rule": fault_class,
        "priority": priority, "is_collateral": collateral, "position": position, "template": None,
        "count": 1, "line": "x", "source": "s", "ingested_at": NOW,
    }  # fmt: skip


@pytest.mark.parametrize(
    "rows",
    [
        [line("right", priority=80), line("wrong", priority=1, collateral=True)],
        [line("right", priority=10, minute=9), line("wrong", priority=20, minute=1)],
        [line("right", minute=1, position=9), line("wrong", minute=2)],
        [line("right", minute=1, position=9), line("wrong")],  # an unknown time is no early one
        [line("right", position=1), line("wrong", position=2)],
        [line("right", collateral=True, priority=1), line("wrong", collateral=True)],
    ],
)
def test_what_explains_a_job(rows):
    for order in (rows, rows[::-1]):
        assert job_cause_of(order) == ("right", "unknown")


def test_nothing_said_explains_nothing():
    assert job_cause_of([]) is None


ROWS = st.lists(
    st.builds(
        line,
        st.sampled_from("abc"),
        job=st.sampled_from(["1", "2", None]),
        priority=st.integers(1, 2),
        collateral=st.booleans(),
        minute=st.none() | st.integers(0, 2),
        position=st.integers(0, 2),
        node=st.none() | st.sampled_from("xy"),
    ),
    max_size=12,
)


@given(ROWS)
def test_all_jobs_at_once_are_explained_like_each_alone(rows):
    found = job_causes(pl.DataFrame(rows, schema=RAW_JOB_OUTPUT.schema))
    jobs = sorted({row["job_id"] for row in rows} - {None})
    assert found["job_id"].to_list() == jobs
    for job, fault_class, cause, _ in found.rows():
        assert job_cause_of(row for row in rows if row["job_id"] == job) == (fault_class, cause)
