"""Running Slurm's commands: what is tried again, what is told, and what is asked."""

import sys
from datetime import UTC, datetime, timedelta

import pytest

from features.errors import SettingsError, SourceError
from pipelines.sources.result import merge
from pipelines.sources.slurm.commands import (
    CommandError,
    LocalCommands,
    PatientRunner,
    RecordedCommands,
)
from pipelines.sources.slurm.pull import SACCT_COLUMNS, SlurmAsk, pull_slurm

NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)
BUSY = CommandError("slurmdbd is busy", may_pass=True)
GONE = CommandError("no such option", may_pass=False)
SACCT = ("\x1f".join(SACCT_COLUMNS) + "\n").encode()
JOB = "\x1f".join(
    ["7", "a|b", "ann", "gpu", "FAILED", "1:0", *["1767600000"] * 3, "n1", "gres/gpu=8"]
).encode()
EVENTS = b"Cluster|NodeName|TimeStart|TimeEnd|Reason|State|User\n"


def patient(answers, **more):
    pauses = []
    runner = RecordedCommands({"sacct": answers})
    return PatientRunner(runner=runner, sleep=pauses.append, seed=1, **more), runner, pauses


def test_what_fails_in_passing_is_tried_again_after_growing_pauses():
    runner, recorded, pauses = patient([BUSY, BUSY, b"x"])
    assert runner.run(["sacct"], timeout=1) == b"x"
    assert len(recorded.asked) == 3
    assert 2 <= pauses[0] <= 4 <= pauses[1] <= 8


@pytest.mark.parametrize(("failure", "n_asked"), [(BUSY, 3), (GONE, 1)])
def test_tries_are_limited(failure, n_asked):
    runner, recorded, _ = patient([failure])
    with pytest.raises(CommandError):
        runner.run(["sacct"], timeout=1)
    assert len(recorded.asked) == n_asked


def test_a_pause_is_never_longer_than_the_longest():
    runner, _, pauses = patient([BUSY], attempts=9, longest_pause_s=10)
    with pytest.raises(CommandError):
        runner.run(["sacct"], timeout=1)
    assert max(pauses) == 10


@pytest.mark.parametrize(
    ("script", "timeout", "message", "may_pass"),
    [
        ("import sys; sys.exit('Unable to contact slurm')", 60, "Unable to contact", True),
        ("import sys; sys.exit('Invalid time specification')", 60, "Invalid time", False),
        ("import time; time.sleep(60)", 0.5, "no answer within", True),
    ],
)
def test_a_command_that_fails_says_what_it_said(script, timeout, message, may_pass):
    with pytest.raises(CommandError, match=message) as caught:
        LocalCommands().run([sys.executable, "-c", script], timeout=timeout)
    assert caught.value.may_pass is may_pass


@pytest.mark.parametrize("prefix", [(), ("env", "TZ=UTC")])
def test_an_absent_command_is_one_clear_error(prefix):
    with pytest.raises(CommandError, match="no-such-sacct is not on this machine.*slurm-client"):
        LocalCommands().run([*prefix, "no-such-sacct"], timeout=60)


def test_accounting_is_asked_for_in_windows_and_in_utc():
    runner = RecordedCommands({"sacct": [SACCT + JOB + b"\n", SACCT]})
    ask = SlurmAsk(questions=("accounting",), window=timedelta(hours=2), site="s")
    result = merge(pull_slurm(runner, NOW - timedelta(hours=3), NOW, ingested_at=NOW, ask=ask))
    assert [
        row[:3] for row in result.table("raw/job_log").select("job_id", "job_name", "n_gpus").rows()
    ] == [("7", "a|b", 8)]
    words = [word for asked in runner.asked for word in asked]
    assert words.count("TZ=UTC") == words.count("SLURM_TIME_FORMAT=%s") == 2
    assert [word for word in words if word.startswith("--starttime")] == [
        "--starttime=2026-01-06T09:00:00", "--starttime=2026-01-06T11:00:00",
    ]  # fmt: skip
    # What was asked is known as covered, whether or not it gave rows.
    assert result.table("raw/coverage").select("entity_id", "start", "end").rows() == [
        ("s", NOW - timedelta(hours=3), NOW - timedelta(hours=1)),
        ("s", NOW - timedelta(hours=1), NOW),
    ]


def test_everything_is_asked_for_unless_told_otherwise():
    runner = RecordedCommands(
        {
            "sacct": [SACCT], "sacctmgr": [EVENTS], "squeue": [b""],
            "scontrol": [b"NodeName=n1 State=IDLE\n", b"No reservations in the system\n", b""],
        }
    )  # fmt: skip
    result = merge(pull_slurm(runner, NOW - timedelta(hours=1), NOW, ingested_at=NOW))
    assert result.table("raw/node_states").select("node", "valid_from").rows() == [("n1", NOW)]
    assert result.quarantine.is_empty()


@pytest.mark.parametrize(
    "wrong", [{"questions": ("weather",)}, {"window": timedelta(0)}, {"timeout_s": 0}]
)
def test_questions_that_cannot_be_asked_are_refused(wrong):
    with pytest.raises(SettingsError):
        SlurmAsk(**wrong)


def test_an_empty_span_is_refused():
    with pytest.raises(SourceError, match="which is empty"):
        list(pull_slurm(RecordedCommands({}), NOW, NOW, ingested_at=NOW))
