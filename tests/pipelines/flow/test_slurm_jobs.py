"""Rules of jobs that end before their worker has connected; a real Slurm is in tests/real."""

from pathlib import Path

import pytest

pytest.importorskip("distributed")

from pipelines.flow.slurm_jobs import EarlyEnds


@pytest.fixture
def ends(tmp_path: Path) -> EarlyEnds:
    return EarlyEnds(tmp_path, most=2)


@pytest.mark.parametrize(
    ("state", "is_early"),
    [
        ("PENDING (Resources)", False),
        ("RUNNING (None)", False),
        ("COMPLETING (None)", False),
        ("REQUEUE_HOLD (launch failed requeued held)", False),
        ("FAILED (NonZeroExitCode)", True),
        ("CANCELLED (None)", True),
        ("PREEMPTED (None)", True),
    ],
)
def test_only_a_job_that_is_over_is_replaced(ends: EarlyEnds, state: str, is_early: bool) -> None:
    assert ends.is_early("7", {"7": state}) is is_early


def test_a_job_that_slurm_forgot_has_ended_and_one_it_never_told_of_may_wait(
    ends: EarlyEnds,
) -> None:
    assert not ends.is_early("7", {})  # of another cluster, which is not asked
    assert not ends.is_early("7", {"7": "PENDING (Priority)"})
    assert ends.is_early("7", {"8": "RUNNING (None)"})


def test_a_job_whose_worker_has_been_there_is_left_to_dask(ends: EarlyEnds) -> None:
    ends.connect("7")
    assert not ends.is_early("7", {"7": "CANCELLED (None)"})


def test_so_many_in_a_row_are_replaced_and_the_last_is_named(
    ends: EarlyEnds, tmp_path: Path
) -> None:
    (tmp_path / "forewarn-worker-9.err").write_text("no such module")
    (tmp_path / "forewarn-worker-9.out").touch()
    states = {"9": "FAILED (NonZeroExitCode)"}
    assert [ends.replace(job, states) for job in ("7", None, "9", "9")] == [
        True,
        True,
        False,
        False,
    ]
    said = f"job 9: FAILED (NonZeroExitCode); its output: {tmp_path}/forewarn-worker-9.err."
    assert ends.trouble.startswith("3 jobs of Slurm in a row")
    assert said in ends.trouble


def test_a_worker_that_connects_ends_the_row(ends: EarlyEnds) -> None:
    states = {"7": "FAILED (NonZeroExitCode)"}
    for job in ("4", "5", "6"):
        ends.connect(job)
        ends.connect("4")  # which was there before: nothing new
        assert [ends.replace("7", states) for _ in range(3)] == [True, True, False]
    ends.connect("8")
    assert ends.trouble == ""
