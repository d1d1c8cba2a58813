"""Node states from Ready, cordons, taints and the conditions of health agents."""

from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest

from features.core_build import build_node_states
from features.raw_tables import RAW_NODE_STATES
from features.scheduler_states import node_state
from pipelines.sources.kubernetes.nodes import (
    NodeReading,
    condition_events,
    node_state_rows,
    topology_rows,
)
from pipelines.sources.result import as_table
from tests.pipelines.sources.kubernetes.fixture import NOW, Object, at, condition, node, utc

SEEN = NodeReading(seen_at=NOW)
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def states(found: Object, reading: NodeReading = SEEN) -> list[tuple[str, datetime | None]]:
    return [(row["state"], row["valid_from"]) for row in node_state_rows(found, reading)]


@pytest.mark.parametrize(
    ("status", "since", "expected"),
    [
        ("True", "02:00:00", [("up", utc("02:00:00")), ("up", NOW)]),
        ("False", "02:00:00", [("down", utc("02:00:00")), ("down", NOW)]),
        ("Unknown", "11:58:00", [("unknown", utc("11:58:00")), ("unknown", NOW)]),
        (
            "Unknown",
            "11:00:00",
            [("unknown", utc("11:00:00")), ("down", utc("11:05:00")), ("down", NOW)],
        ),
    ],
)
def test_readiness_is_told_since_its_transition(status: str, since: str, expected: Any):
    found = node(conditions=[condition("Ready", status, since)])
    assert states(found) == expected


def test_silence_is_down_from_the_same_moment_whenever_it_is_looked_at():
    found = node(conditions=[condition("Ready", "Unknown", "11:00:00")])
    looks = [NodeReading(seen_at=NOW + timedelta(minutes=minutes)) for minutes in (0, 30)]
    first, second = (states(found, look)[:-1] for look in looks)
    assert first == second


@pytest.mark.parametrize("status", ["maybe", None, 1])
def test_a_readiness_of_no_known_word_is_unknown(status: Any):
    found = node(conditions=[{**condition("Ready", "True"), "status": status}])
    assert {state for state, _ in states(found)} == {"unknown"}


def test_a_node_without_conditions_is_unknown_since_it_was_made():
    assert states(node(conditions=[]))[0] == (
        "unknown",
        datetime.fromisoformat("2026-01-01T00:00Z"),
    )


def test_a_cordon_is_told_since_its_taint():
    found = node(unschedulable=True, taints=[{**CORDONED, "timeAdded": at("03:00:00")}])
    assert states(found) == [("up", utc("00:00:00")), ("drain", utc("03:00:00")), ("drain", NOW)]
    assert node_state_rows(found, SEEN)[-1]["reason"] == "cordoned"


def test_a_cordon_without_a_taint_is_told_by_who_wrote_it():
    entry = {
        "manager": "kubectl-cordon",
        "time": at("04:00:00"),
        "fieldsV1": {"f:spec": {"f:unschedulable": {}}},
    }
    notes = {"forewarn/reason": "score 0.9"}
    found = node(unschedulable=True, metadata={"managedFields": [entry], "annotations": notes})
    last = node_state_rows(found, SEEN)[1]
    assert (last["state"], last["valid_from"]) == ("drain", utc("04:00:00"))
    assert last["actor"] == "kubectl-cordon"
    assert last["reason"] == "cordoned by kubectl-cordon: score 0.9"


def test_a_cordon_without_any_time_is_known_only_from_the_reading_on():
    assert states(node(unschedulable=True)) == [("up", utc("00:00:00")), ("drain", NOW)]


def test_a_node_both_cordoned_and_not_ready_is_down():
    found = node(
        conditions=[condition("Ready", "False", "05:00:00", reason="KubeletNotReady")],
        unschedulable=True,
        taints=[{**CORDONED, "timeAdded": at("06:00:00")}],
    )
    rows = node_state_rows(found, SEEN)
    assert [row["state"] for row in rows] == ["down", "down", "down"]
    assert rows[-1]["reason"] == "NotReady: KubeletNotReady; cordoned"


@pytest.mark.parametrize(
    ("taint", "state"),
    [
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, "up"),
        ({"key": "dedicated", "value": "ml", "effect": "NoExecute"}, "up"),
        ({"key": "failure-domain", "value": "a", "effect": "NoSchedule"}, "up"),
        ({"key": "dedicated", "value": "team-drainage", "effect": "NoSchedule"}, "up"),
        ({"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}, "up"),
        ({"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}, "drain"),
        ({"key": "example.com/gpu-unhealthy", "effect": "NoSchedule"}, "drain"),
        ({"key": "state", "value": "maintenance", "effect": "NoExecute"}, "drain"),
        ({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}, "drain"),
        ({"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}, "down"),
        (
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"},
            "unknown",
        ),
        ({"key": None, "effect": "NoSchedule"}, "up"),
        ("not a taint", "up"),
    ],
)
def test_a_taint_drains_only_where_it_speaks_of_trouble_or_work(taint: Any, state: str):
    assert node_state_rows(node(taints=[taint]), SEEN)[-1]["state"] == state


@pytest.mark.parametrize(
    ("kind", "status", "is_trouble"),
    [
        ("GpuXidError", "True", True),
        ("GpuXidError", "False", False),
        ("GpuXidError", "Unknown", False),
        ("AcceleratedHardwareReady", "False", True),
        ("AcceleratedHardwareReady", "True", False),
        ("NetworkUnavailable", "True", False),
        ("DiskPressure", "True", True),
        ("StorageUnavailable", "True", True),
    ],
)
def test_agents_conditions_are_kept_as_reason(kind: str, status: str, is_trouble: bool):
    found = node(conditions=[condition("Ready", "True"), condition(kind, status, reason="Bad")])
    row = node_state_rows(found, SEEN)[-1]
    assert row["state"] == "up"
    assert row["reason"] == (f"{kind}: Bad" if is_trouble else None)


def test_trouble_older_than_readiness_does_not_say_that_the_node_served_then():
    found = node(
        conditions=[condition("GpuBad", "True", "01:00:00"), condition("Ready", "True", "03:00:00")]
    )
    rows = node_state_rows(found, SEEN)
    assert [(row["state"], row["valid_from"]) for row in rows] == [
        ("up", utc("03:00:00")),
        ("up", NOW),
    ]
    assert rows[0]["reason"] == "GpuBad: no reason given"


def test_the_agent_of_a_condition_is_the_actor():
    own = {"f:status": {"f:conditions": {'k:{"type":"XidErrors"}': {}}}}
    entry = {"manager": "node-problem-detector", "fieldsV1": own}
    found = node(
        conditions=[condition("Ready", "True"), condition("XidErrors", "True", message="Xid 79")],
        metadata={"managedFields": [entry]},
    )
    assert node_state_rows(found, SEEN)[-1]["actor"] == "node-problem-detector"


def test_an_xid_in_a_condition_is_a_health_event_once():
    found = node(
        conditions=[
            condition("Ready", "True"),
            condition(
                "SysLogsXIDError",
                "True",
                "06:00:00",
                message="ErrorCode:79 PCI:0000:3b:00 lost;ErrorCode:48 PCI:0000:5e:00 ecc",
            ),
        ]
    )
    rows = list(condition_events(found, SEEN))
    assert [(r["kind"], r["code"], r["pci_bus_id"], r["ts"]) for r in rows] == [
        ("xid", 79, "00000000:3b:00.0", utc("06:00:00")),
        ("xid", 48, "00000000:5e:00.0", utc("06:00:00")),
    ]
    assert list(condition_events(found, NodeReading(seen_at=NOW, since=utc("06:00:01")))) == []


def test_without_a_time_of_reading_the_last_heartbeat_counts():
    beat = condition("Ready", "True", lastHeartbeatTime=at("09:00:00"))
    assert states(node(conditions=[beat]), NodeReading())[-1] == ("up", utc("09:00:00"))


def test_a_node_made_anew_under_its_name_was_not_up_before_that():
    found = node(metadata={"creationTimestamp": at("07:00:00"), "uid": "another"})
    assert states(found) == [("up", utc("07:00:00")), ("up", NOW)]


def test_readings_one_after_the_other_end_a_cordon_that_was_lifted():
    cordoned = node(unschedulable=True, taints=[{**CORDONED, "timeAdded": at("03:00:00")}])
    looks = [(cordoned, utc("04:00:00")), (cordoned, utc("05:00:00")), (node(), utc("06:00:00"))]
    frames = [
        as_table(
            RAW_NODE_STATES,
            [
                {**row, "source": "kubernetes", "ingested_at": seen_at}
                for row in node_state_rows(found, NodeReading(seen_at=seen_at))
            ],
        )
        for found, seen_at in looks
    ]
    core = build_node_states(pl.concat(frames)).frame
    drained = core.filter(state="drain")
    assert (drained["valid_from"].min(), drained["valid_to"].max()) == (
        utc("03:00:00"),
        utc("06:00:00"),
    )
    assert core.filter(pl.col("valid_to").is_null())["state"].to_list() == ["up"]


def test_states_are_words_that_the_core_tables_know():
    for word in ("up", "drain", "down", "unknown"):
        assert node_state(word) == word


def test_places_are_read_from_labels_in_order_of_preference():
    labels = {
        "topology.kubernetes.io/zone": "a",
        "failure-domain.beta.kubernetes.io/zone": "old",
        "example.com/rack": "r1",
        "network.topology.nvidia.com/leaf": "",
    }
    reading = NodeReading(
        levels={"zone": ("topology.kubernetes.io/zone",), "rack": ("example.com/rack",)}
    )
    rows = list(topology_rows(node(metadata={"labels": labels}), reading))
    assert [(row["level"], row["place"]) for row in rows] == [("zone", "a"), ("rack", "r1")]
    usual = list(topology_rows(node(metadata={"labels": labels}), SEEN))
    assert [(row["level"], row["place"]) for row in usual] == [("zone", "a")]
