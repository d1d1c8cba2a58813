"""Why a job failed: the most specific class that is no collateral, then the earliest."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.job_causes import explain_jobs, job_cause_of, job_causes
from features.raw_tables import RAW_JOB_OUTPUT
from features.tables import CORE_JOBS

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


def attempts(*starts, cause="unknown", job="8"):
    """Attempts of one job that began at these minutes; None: one that waits."""
    rows = [
        {
            "job_id": job,
            "attempt": number,
            "start": None if minute is None else NOW + timedelta(minutes=minute),
            "cause": None if minute is None else cause,
        }
        for number, minute in enumerate(starts)
    ]
    return pl.DataFrame(
        [{name: row.get(name) for name in CORE_JOBS.schema.names()} for row in rows],
        schema=CORE_JOBS.schema,
    )


def said(cause, **more):
    count = more.pop("count", 1)
    return line(cause, **more) | {"cause": cause, "count": count}


def explained(jobs, *rows):
    output = pl.DataFrame(rows, schema=RAW_JOB_OUTPUT.schema)
    return explain_jobs(jobs, output)["cause"].to_list()


@pytest.mark.parametrize(
    ("starts", "rows", "causes"),
    [
        ((0,), [said("oom", minute=5)], ["oom"]),
        ((0,), [said("oom", minute=-5)], ["oom"]),  # the node's clock is behind
        ((0,), [said("oom")], ["oom"]),
        ((None,), [said("oom", minute=5)], [None]),  # the scheduler says it has not ended
        # each attempt is explained by what was written while it ran
        (
            (0, 60),
            [said("hardware", minute=5, priority=1), said("oom", minute=65)],
            ["hardware", "oom"],
        ),
        ((0, 60), [said("hardware", minute=5)], ["hardware", "unknown"]),
        ((0, 60), [said("hang", minute=5, count=2)], ["hang", "hang"]),
        # without times the end of the output is that of the last attempt that began
        ((0, 60), [said("oom")], ["unknown", "oom"]),
        ((0, None), [said("oom")], ["oom", None]),
    ],
)
def test_output_explains_the_attempt_that_wrote_it(starts, rows, causes):
    assert explained(attempts(*starts), *rows) == causes


def test_what_the_scheduler_knows_is_not_changed_by_output():
    assert explained(attempts(0, cause="hardware"), said("oom", minute=5)) == ["hardware"]
    assert explained(attempts(0), said("oom", minute=5, job="9")) == ["unknown"]


@given(st.lists(st.integers(60, 120), max_size=4), st.integers(0, 59))
def test_what_a_later_attempt_writes_changes_no_earlier_one(later, minute):
    rows = [said("hang", minute=minute)]
    before = explained(attempts(0, 60), *rows)[0]
    more = [said("hardware", minute=at, priority=1) for at in later]
    assert explained(attempts(0, 60), *rows, *more)[0] == before
