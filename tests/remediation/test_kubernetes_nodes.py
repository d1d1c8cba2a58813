import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from remediation.actuators.kubernetes_nodes import (
    NodeReading,
    hold_of,
    hold_patch,
    node_view,
    release_patch,
)
from tests.real.kubernetes_store import merged
from tests.remediation.kubernetes_fake import reason

READING = NodeReading()
OURS = {"key": "forewarn/cordon", "value": "a" * 16, "effect": "NoSchedule"}
MARKS = {"forewarn/reason": str(reason())}


def node(ready="True", *, spec=None, manager=None, **metadata):
    fields = [{"manager": manager, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    return {
        "metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}
        | ({"managedFields": fields} if manager else {})
        | metadata,
        "spec": spec or {},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "reason": "Why"}] if ready else [],
            "nodeInfo": {"bootID": "b1"},
            "allocatable": {"nvidia.com/gpu": "8", "cpu": "96"},
        },
    }


def taint(key, effect="NoSchedule", value=""):
    return {"taints": [{"key": key, "effect": effect, "value": value}]}


@pytest.mark.parametrize(
    ("found", "state", "why"),
    [
        (node(), "up", None),
        (node("False"), "down", "NotReady: Why"),
        (node("Unknown"), "unknown", "Ready is unknown: Why"),
        (node(None), "unknown", "no Ready condition"),
        (node(spec={"unschedulable": True}), "drain", "cordoned by someone"),
        (node(spec={"unschedulable": True}, manager="kubectl"), "drain", "cordoned by kubectl"),
        (node("Unknown", spec={"unschedulable": True}), "drain", "cordoned by someone"),
        (node("False", spec={"unschedulable": True}), "down", "NotReady: Why"),
        (node(deletionTimestamp="2026-01-05T10:00:00Z"), "drain", "the node is being deleted"),
        (node(spec=taint("nvidia.com/gpu")), "up", None),
        (node(spec=taint("team", value="default")), "up", None),
        (node(spec=taint("acme.com/default")), "up", None),
        (node(spec=taint("acme.com/quarantine")), "drain", "taint acme.com/quarantine"),
        (node(spec=taint("acme.com/state", value="Unhealthy")), "drain", "taint acme.com/state"),
        (node(spec=taint("acme.com/quarantine", "PreferNoSchedule")), "up", None),
        (node(spec=taint("node.kubernetes.io/unschedulable")), "up", None),
        (node(spec=taint("node.kubernetes.io/disk-pressure")), "up", None),
        (
            node(spec=taint("node.kubernetes.io/out-of-service", "NoExecute")),
            "down",
            "taint node.kubernetes.io/out-of-service",
        ),
        (
            node(spec=taint("node.cloudprovider.kubernetes.io/uninitialized")),
            "unknown",
            "taint node.cloudprovider.kubernetes.io/uninitialized",
        ),
    ],
)
def test_the_worst_of_what_holds_is_the_state(found, state, why):
    view = node_view(found, READING)
    assert (view.state, view.reason) == (state, why)
    assert view.owner == ("other" if state == "drain" else "none")


def test_a_site_says_which_taints_mean_a_drain():
    site = NodeReading(drain_taints=("acme.com/*",), usual_taints=("team.com/repair-crew",))
    assert node_view(node(spec=taint("acme.com/x")), site).state == "drain"
    assert node_view(node(spec=taint("team.com/repair-crew")), site).state == "up"


@pytest.mark.parametrize(
    ("found", "hold", "state", "owner"),
    [
        (node(), "none", "up", "none"),
        (node(spec={"unschedulable": True}), "other", "drain", "other"),
        (
            node(spec={"unschedulable": True, "taints": [OURS]}, annotations=MARKS),
            "ours",
            "drain",
            "forewarn",
        ),
        (
            node(
                spec={"unschedulable": True, "taints": [OURS]},
                annotations=MARKS,
                manager="forewarn",
            ),
            "ours",
            "drain",
            "forewarn",
        ),
        # lifted by a person, and set anew by a person: not ours any more
        (node(spec={"taints": [OURS]}, annotations=MARKS), "residue", "up", "none"),
        (
            node(
                spec={"unschedulable": True, "taints": [OURS]},
                annotations=MARKS,
                manager="kubectl-cordon",
            ),
            "residue",
            "drain",
            "other",
        ),
        (node(spec={"unschedulable": True}, annotations=MARKS), "partial", "drain", "other"),
        (node(spec={"unschedulable": True, "taints": [OURS]}), "partial", "drain", "other"),
        (
            node(
                spec={"unschedulable": True}, annotations={"forewarn/reason": "mine, not forewarn"}
            ),
            "other",
            "drain",
            "other",
        ),
    ],
)
def test_g09_g10_whose_a_cordon_is(found, hold, state, owner):
    view = node_view(found, READING)
    assert (hold_of(found), view.state, view.owner) == (hold, state, owner)


def test_g12_the_boot_id_is_of_the_object_and_of_the_kernel():
    assert node_view(node(), READING).boot_id == "u1/b1"
    assert node_view(node(uid="u2"), READING).boot_id == "u2/b1"
    silent = node()
    silent["status"]["nodeInfo"] = {}
    assert node_view(silent, READING).boot_id is None


@pytest.mark.parametrize(
    ("allocatable", "n_gpus"),
    [({"nvidia.com/gpu": "8"}, 8), ({"nvidia.com/gpu": "0"}, 0), ({"cpu": "4"}, None), ({}, None)],
)
def test_g06_gpus_that_the_kubelet_does_not_offer_are_unknown(allocatable, n_gpus):
    found = node()
    found["status"]["allocatable"] = allocatable
    assert node_view(found, READING).n_gpus == n_gpus


def test_places_come_from_the_first_label_that_is_present():
    labels = {"a/rack": "r7", "b/rack": "r8", "leaf": "s1", "pool": "h100"}
    site = NodeReading(racks=("x", "a/rack", "b/rack"), switches=("leaf",), pools=("pool",))
    view = node_view(node(labels=labels), site)
    assert (view.rack, view.switch, view.partitions) == ("r7", "s1", ("h100",))
    assert node_view(node(), site).rack is None


def test_a_node_without_a_name_is_no_answer_of_the_api():
    with pytest.raises(SourceError, match="no name"):
        node_view({"metadata": {}}, READING)


@given(
    keys=st.lists(st.sampled_from(["nvidia.com/gpu", "a", "b/c", "team"]), unique=True),
    notes=st.dictionaries(st.sampled_from(["x", "forewarn-not/ours", "y/z"]), st.text(max_size=5)),
)
def test_g23_holding_and_releasing_touches_only_our_own_keys(keys, notes):
    before = node(
        spec={"taints": [{"key": key, "effect": "NoSchedule"} for key in keys], "podCIDR": "10/8"},
        annotations=notes,
    )
    held = merged(
        copy.deepcopy(before), hold_patch(before, reason=reason(), deadline=None), by_key=False
    )
    assert hold_of(held) == "ours"
    assert [one["key"] for one in held["spec"]["taints"]] == [*keys, "forewarn/cordon"]
    after = merged(held, release_patch(held, uncordons=True), by_key=False)
    after["spec"].setdefault("taints", [])
    assert after == before
