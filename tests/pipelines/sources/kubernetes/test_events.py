"""Events: which are facts of a node's health, and when."""

from datetime import timedelta
from typing import Any

import pytest

from pipelines.sources.kubernetes.events import NodeTurn, event_facts, turn_rows
from pipelines.sources.kubernetes.objects import RefusedError
from tests.pipelines.sources.kubernetes.fixture import NOW, at, event, utc


@pytest.mark.parametrize(
    ("reason", "message", "kind", "code"),
    [
        ("Rebooted", "Node gpu001 has been rebooted, boot id: 1-2", "reboot", None),
        ("SystemOOM", "System OOM encountered, victim process: python, pid: 77", "oom", None),
        ("OOMKilling", "Killed process 77 (python) total-vm:1kB", "oom", None),
        ("TaskHung", "task python:12 blocked for more than 300 seconds.", "hung_task", None),
        ("KernelOops", "BUG: unable to handle kernel NULL pointer", "oops", None),
        ("NodeHasDiskPressure", "Node gpu001 status is now: NodeHasDiskPressure", "pressure", None),
        ("FilesystemIsReadOnly", "Remounting filesystem read-only", "filesystem", None),
        (
            "XidCriticalError",
            "XidCriticalError: Xid=79 on Device=GPU-1, it is unhealthy",
            "xid",
            79,
        ),
        ("NvidiaXid", "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE", "xid", 48),
        ("GpuLost", "GPU 3 is lost", "off_bus", None),
        ("GpuThermalWatchIsNotHealthy", "GPU 3 too warm", "unknown", None),
    ],
)
def test_facts_of_a_nodes_health_are_kept(reason: str, message: str, kind: str, code: int | None):
    (row,) = event_facts(event(reason, message)).health
    assert (row["node"], row["ts"], row["kind"], row.get("code")) == (
        "gpu001",
        utc("06:00:00"),
        kind,
        code,
    )
    assert message[:20] in row["line"]


@pytest.mark.parametrize(
    "reason",
    [
        "Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "ImageGCFailed",
        "NoKernelDeadlock", "FilesystemIsNotReadOnly", "GpuHealthy", "RegisteredNode", "", "日本",
    ],
)  # fmt: skip
def test_events_about_anything_else_are_passed_over(reason: str):
    facts = event_facts(event(reason, "all is well"))
    assert (facts.turns, facts.health) == ((), ())


def test_events_of_pods_count_only_where_they_name_gpu_trouble_of_their_node():
    about = {"kind": "Pod", "name": "train-0", "namespace": "ml"}
    for reason in ("FailedMount", "BackOff", "FailedCreatePodSandBox", "OOMKilling"):
        assert event_facts(event(reason, "Killed process 1 (x)", involvedObject=about)).health == ()
    (row,) = event_facts(
        event("Failed", "Xid 79: GPU has fallen off the bus", involvedObject=about)
    ).health
    assert (row["node"], row["kind"], row["code"]) == ("gpu001", "xid", 79)


@pytest.mark.parametrize(
    ("times", "moments"),
    [
        (
            {"firstTimestamp": at("05:00:00"), "lastTimestamp": at("06:00:00"), "count": 9},
            ["05", "06"],
        ),
        ({"firstTimestamp": at("05:00:00"), "lastTimestamp": None}, ["05"]),
        ({"firstTimestamp": None, "lastTimestamp": at("06:00:00")}, ["06"]),
        (
            {
                "firstTimestamp": None,
                "lastTimestamp": None,
                "eventTime": "2026-01-05T04:00:00.000000Z",
            },
            ["04"],
        ),
        (
            {
                "firstTimestamp": None,
                "lastTimestamp": None,
                "eventTime": at("04:00:00"),
                "series": {"count": 3, "lastObservedTime": at("05:00:00")},
            },
            ["04", "05"],
        ),
        (
            {
                "firstTimestamp": None,
                "lastTimestamp": None,
                "deprecatedFirstTimestamp": at("02:00:00"),
                "deprecatedLastTimestamp": at("03:00:00"),
            },
            ["02", "03"],
        ),
        (
            {
                "firstTimestamp": None,
                "lastTimestamp": None,
                "metadata": {"creationTimestamp": at("01:00:00")},
            },
            ["01"],
        ),
        ({"firstTimestamp": None, "lastTimestamp": None}, [None]),
        ({"firstTimestamp": "soon", "lastTimestamp": 5}, [None]),
    ],
)
def test_first_and_last_moment_are_told_whichever_fields_have_them(times: Any, moments: Any):
    rows = event_facts(event("Rebooted", "x", **times)).health
    expected = [None if hour is None else utc(f"{hour}:00:00") for hour in moments]
    assert [row["ts"] for row in rows] == expected


def test_the_newer_event_api_says_the_same_in_other_fields():
    newer = {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Node", "name": "gpu001"},
        "reason": "NodeNotReady",
        "note": "Node gpu001 status is now: NodeNotReady",
        "eventTime": at("06:00:00"),
        "reportingController": "node-controller",
    }
    (turn,) = event_facts(newer).turns
    assert (turn.node, turn.is_ready, turn.actor) == ("gpu001", False, "node-controller")


def test_what_was_told_before_is_passed_over():
    repeated = event("Rebooted", "x", firstTimestamp=at("05:00:00"), lastTimestamp=at("07:00:00"))
    assert [r["ts"] for r in event_facts(repeated, since=utc("06:00:00")).health] == [
        utc("07:00:00")
    ]
    assert event_facts(repeated, since=utc("08:00:00")).health == ()


@pytest.mark.parametrize(
    "broken",
    [
        event("NodeReady", firstTimestamp=None, lastTimestamp=None),
        event("NodeReady", involvedObject={"kind": "Node"}),
        event("NodeReady", involvedObject=None),
    ],
)
def test_a_turn_without_node_or_time_is_refused(broken: Any):
    with pytest.raises(RefusedError):
        event_facts(broken)


def turn(clock: str, *, ready: bool | None = None, cordoned: bool | None = None) -> NodeTurn:
    return NodeTurn("gpu001", utc(clock), ready, cordoned, "r", "kubelet")


@pytest.mark.parametrize(
    ("turns", "cordoned", "expected"),
    [
        (
            [turn("06:00:00", ready=False), turn("06:02:00", ready=True)],
            None,
            [("unknown", "06:00:00"), ("up", "06:02:00")],
        ),
        (
            [turn("06:00:00", ready=False), turn("06:20:00", ready=True)],
            None,
            [("unknown", "06:00:00"), ("down", "06:05:00"), ("up", "06:20:00")],
        ),
        (
            [turn("06:00:00", ready=False), turn("06:00:01", ready=False)],
            None,
            [("unknown", "06:00:00"), ("down", "06:05:00")],
        ),
        ([turn("11:58:00", ready=False)], None, [("unknown", "11:58:00")]),
        ([turn("06:00:00", ready=True)], "05:00:00", [("drain", "06:00:00")]),
        (
            [turn("06:00:00", cordoned=True), turn("07:00:00", cordoned=False)],
            None,
            [("drain", "06:00:00"), ("up", "07:00:00")],
        ),
    ],
)
def test_turns_fill_in_the_states_between_readings(turns: Any, cordoned: Any, expected: Any):
    rows = turn_rows(
        list(reversed(turns)),
        cordoned_since={} if cordoned is None else {"gpu001": utc(cordoned)},
        seen_at=NOW,
        down_after=timedelta(minutes=5),
    )
    assert [(row["state"], row["valid_from"]) for row in rows] == [
        (state, utc(clock)) for state, clock in expected
    ]
