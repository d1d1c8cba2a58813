"""Text about queued and ended jobs: squeue, scontrol show job, jobcomp."""

from datetime import UTC, datetime

import pytest

from features.errors import SourceError
from pipelines.sources.result import merge
from pipelines.sources.slurm import queue as slurm_queue
from pipelines.sources.slurm.queue import (
    QUEUE_COLUMNS,
    parse_show_jobs,
    parse_squeue,
    stream_jobcomp,
)

NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)
ABOUT = {"origin": "f", "ingested_at": NOW, "time_zone": "UTC"}
COLUMNS = ("job_id", "job_name", "user", "state", "nodes", "n_gpus")


def rows(result, *columns):
    return result.table("raw/job_log").select(columns or COLUMNS).rows()


HEADER = "JOBID|STATE|NAME|USER|SUBMIT_TIME|START_TIME|END_TIME|NODELIST|TRES_PER_NODE"
WHEN = "2026-01-06T08:00:00|2026-01-06T09:00:00|2026-01-07T09:00:00"


def test_squeue_with_bars():
    waiting = f"5_[4-7%2]|PENDING|a|ann|{WHEN}||gres:gpu:4"
    text = f"{HEADER}\n{waiting}\n6|R|b | c\nd|bob|{WHEN}|n[1-2]|gpu:8\n"
    result = parse_squeue(text.encode(), **ABOUT)
    assert rows(result) == [
        ("5_[4-7%2]", "a", "ann", "PENDING", None, None),
        ("6", "b | c\nd", "bob", "RUNNING", ["n1", "n2"], 16),
    ]
    times = [(None, None), (datetime(2026, 1, 6, 9, tzinfo=UTC), None)]
    assert rows(result, "start", "end") == times  # plans of the scheduler are no facts
    assert result.reads.select("n_read", "n_parsed", "n_skipped").rows() == [(4, 3, 1)]


def test_squeue_as_the_usual_table():
    text = (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "            12+1     batch  my job     root  R       0:05      2 n[1-2]\n"
        "         13_[1-9]    batch     wrap     root PD       0:00      1 (Resources, other)\n"
    )
    assert rows(parse_squeue(text.encode(), **ABOUT)) == [
        ("12+1", "my job", "root", "RUNNING", ["n1", "n2"], None),
        ("13_[1-9]", "wrap", "root", "PENDING", None, None),
    ]


def test_what_is_no_squeue_is_one_clear_error():
    with pytest.raises(SourceError, match="this is no output of squeue"):
        parse_squeue(b"NODELIST|STATE\n", **ABOUT)


def test_every_column_that_is_asked_for_is_read():
    line = "\x1f".join(["7", "RUNNING", "x", "u", "p", "0", "1767600000", "n1", "gpu:8", "1"])
    result = parse_squeue(
        line.encode(), origin="f", ingested_at=NOW, time_zone=None,
        columns=tuple(QUEUE_COLUMNS), delimiter="\x1f",
    )  # fmt: skip
    assert rows(result, "partition", "n_gpus", "submit") == [("p", 8, None)]


SHOWN = """JobId=8 {ids}JobName={name}
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState={state} Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=3:0
   SubmitTime=2026-01-06T08:00:00 EligibleTime=2026-01-06T08:00:00
   StartTime=2026-01-06T09:00:00 EndTime=2026-01-06T10:00:00 Deadline=N/A
   Partition=batch AllocNode:Sid=localhost:1
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1-2]
   TRES=cpu=1,node=1,billing=1,gres/gpu=2
   Command=run.sh JobState=RUNNING

"""


@pytest.mark.parametrize(
    ("ids", "job_id"),
    [
        ("", "8"),
        ("ArrayJobId=4 ArrayTaskId=1 ", "4_1"),
        ("ArrayJobId=4 ArrayTaskId=4-7%2 ", "4_[4-7%2]"),
        ("HetJobId=8 HetJobOffset=1 ", "8+1"),
    ],
)
def test_a_shown_job_reads_the_same_on_one_line(ids, job_id):
    text = SHOWN.format(ids=ids, name="a | grep b", state="FAILED")
    whole = parse_show_jobs(text.encode(), **ABOUT)
    assert rows(whole) == [(job_id, "a | grep b", "root", "FAILED", ["n1", "n2"], 2)]
    assert rows(whole, "exit_code", "exit_signal") == [(3, 0)]
    one = parse_show_jobs(" ".join(text.split()).encode(), **ABOUT)
    assert rows(one) == rows(whole)


ENDED = (
    "JobId=7 UserId=ann(1000) GroupId=ann(1000) Name={name} JobState=NODE_FAIL Partition=gpu "
    "TimeLimit=UNLIMITED StartTime=2026-01-06T09:00:00 EndTime=2026-01-06T10:00:00 NodeList=n1 "
    "NodeCnt=1 ProcCnt=1 WorkDir=/w ReservationName= Tres=cpu=1,node=1{gpus} Account=a "
    "SubmitTime=2026-01-06T08:00:00 DerivedExitCode=0:0 ExitCode=0:0 \n"
)


@pytest.mark.parametrize("name", ["x", "two\nlines", "a | b", "JobState=FAILED", "", "x JobId=9 y"])
def test_the_log_of_ended_jobs(tmp_path, name):
    path = tmp_path / "jobcomp.txt"
    path.write_text(ENDED.format(name=name, gpus="") + ENDED.format(name=name, gpus=",gres/gpu=8"))
    result = merge(stream_jobcomp(path, time_zone="UTC", ingested_at=NOW))
    # A log without GPUs does not say that there were none.
    assert rows(result) == [
        ("7", name or None, "ann", "NODE_FAIL", ["n1"], None),
        ("7", name or None, "ann", "NODE_FAIL", ["n1"], 8),
    ]


def test_a_long_log_comes_in_parts_that_add_up(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_queue, "JOBS_AT_ONCE", 2)
    path = tmp_path / "jobcomp.txt"
    path.write_text(ENDED.format(name="x", gpus="") * 5 + "JobId=torn\n" + "JobId=1 UserId=\n")
    parts = list(stream_jobcomp(path, time_zone="UTC", ingested_at=NOW))
    assert [part.table("raw/job_log").height for part in parts] == [2, 2, 1]
    assert merge(parts).reads.select("n_read", "n_parsed", "n_quarantined").rows() == [(6, 5, 1)]


def test_what_is_no_job_is_one_clear_error():
    with pytest.raises(SourceError, match="no line begins with JobId="):
        parse_show_jobs(b"NodeName=n1\n", **ABOUT)
    assert parse_show_jobs(b"No jobs in the system\n", **ABOUT).reads["n_read"].to_list() == [0]
