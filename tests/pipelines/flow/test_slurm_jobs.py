"""Rules of jobs that end before their worker has connected; a real Slurm is in tests/real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pipelines.flow.slurm_jobs", exc_type=ImportError)  # it keeps Ctrl-C as it is

from features.errors import SettingsError
from pipelines.flow import scale_out, scale_slurm
from pipelines.flow.slurm_jobs import EarlyEnds
from tests.pipelines.flow.test_scale_out import installation


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


def test_jobs_that_slurm_refuses_are_one_error_and_not_another_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses = "case $* in *test-only*) exit 0;; esac; echo too many jobs >&2; exit 1"
    for name, words in {"sbatch": refuses, "squeue": "exit 0", "scancel": "exit 0"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{words}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(scale_slurm, "_LOOK_EVERY", "200ms")
    jobs = {"memory_gb": 1, "host": "127.0.0.1"}
    where = installation(tmp_path, workers=2, slurm=jobs, wait_minutes=2)
    with (
        pytest.raises(SettingsError, match="4 jobs of Slurm in a row .* sbatch refused it"),
        scale_out.connected(where),
    ):
        pass


def test_ctrl_c_stays_what_it_is() -> None:
    # A program that began in the background of a shell ignores it, and goes on doing so.
    told = """import signal
import sys
before = getattr(signal, sys.argv[1])
signal.signal(signal.SIGINT, before)
import pipelines.flow.slurm_jobs
assert signal.getsignal(signal.SIGINT) == before
"""
    for handler in ("default_int_handler", "SIG_IGN"):
        subprocess.run([sys.executable, "-c", told, handler], check=True)
