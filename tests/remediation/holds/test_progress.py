"""How far a hold has come; drained is when the jobs have ended, nothing less."""

from datetime import UTC, datetime, timedelta

import pytest

from remediation.cluster.state import JobView, NodeView
from remediation.holds.progress import progress_of

SINCE = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
JOB = JobView(job_id="7", nodes=("a",))


def progress(state="drain", *, reason="forewarn:v1 x", jobs=(), hours=0.5):
    node = NodeView(name="a", state=state, reason=reason, actor="eve")
    return progress_of(node, jobs, since=SINCE, longest=HOUR, now=SINCE + hours * HOUR)


def test_g14_a_node_is_drained_when_no_job_is_left_and_not_before():
    assert progress(jobs=[JOB]).stage == "draining"
    assert progress(jobs=[]).stage == "drained"
    assert progress(jobs=[], hours=99).stage == "drained"


def test_g15_a_drain_that_takes_longer_than_its_bound_is_stuck():
    assert progress(jobs=[JOB], hours=1).stage == "draining"
    found = progress(jobs=[JOB], hours=1.1)
    assert (found.stage, found.jobs) == ("stuck", ("7",))
    assert found.text == "stuck: 1 job is left on it, 1.1 h after it was taken"


def test_g16_what_is_stuck_is_first_offered_back():
    assert progress(jobs=[JOB], hours=2).way_on == "undrain"
    assert progress(jobs=[JOB]).way_on == "wait"
    assert progress().way_on == "check"


@pytest.mark.parametrize(
    ("state", "reason", "stage"),
    [
        ("drain", "disk", "not_held"),
        ("up", None, "not_held"),
        ("down", "forewarn:v1 x", "down"),
        ("unknown", "forewarn:v1 x", "unknown"),
    ],
)
def test_g14_g16_a_node_that_is_not_held_by_us_or_not_known_is_never_drained_nor_offered(
    state, reason, stage
):
    for jobs in ([], [JOB]):
        found = progress(state, reason=reason, jobs=jobs, hours=2)
        assert found.stage == stage
        assert found.way_on not in ("check", "undrain")


def test_a_node_that_is_gone_is_unknown():
    found = progress_of(None, [], since=SINCE, longest=HOUR, now=SINCE)
    assert (found.stage, found.way_on) == ("unknown", "wait")
