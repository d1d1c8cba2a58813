"""Saved objects: `kubectl get -o json`, lists of mixed kinds, and anything else in a file."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SourceError
from pipelines.sources.kubernetes.json_files import (
    parse_kubernetes_json,
    stream_kubernetes_json,
)
from pipelines.sources.result import SourceResult
from tests.pipelines.sources.kubernetes.fixture import (
    NOW,
    Object,
    at,
    condition,
    container,
    ended,
    event,
    node,
    pod,
    utc,
)
from tests.pipelines.sources.kubernetes.test_objects import ANY_JSON
from tests.pipelines.sources.reading import read_all

TABLES = ("raw/node_states", "raw/job_log", "raw/kernel_log", "raw/inventory", "core/topology")


def listed(*found: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "items": found, "kind": "List"}, indent=4).encode()


def parse(data: bytes, **more: Any) -> SourceResult:
    return parse_kubernetes_json(data, origin="x.json", ingested_at=NOW, **more)


def account(result: SourceResult) -> tuple[int, int, int, int]:
    row = result.reads.row(0, named=True)
    return tuple(row[f"n_{what}"] for what in ("read", "parsed", "skipped", "quarantined"))  # type: ignore[return-value]


CLUSTER = (
    node(
        conditions=[condition("Ready", "True", lastHeartbeatTime=at("09:00:00"))],
        metadata={"labels": {"topology.kubernetes.io/zone": "a"}},
    ),
    pod("llm-1", owner=("PyTorchJob", "llm")),
    pod("llm-2", node="gpu002", owner=("PyTorchJob", "llm")),
    pod("alone", phase="Succeeded", containerStatuses=[container(ended(0, "02:00:00"))]),
    pod("web", gpus=None),
    event("Rebooted", "boot id: 1"),
    event("Starting"),
    {"kind": "Service", "metadata": {"name": "x"}},
    {"kind": "Pod", "metadata": {}},
    "not an object",
)


def test_a_list_of_mixed_kinds_is_read_and_every_object_counted():
    result = parse(listed(*CLUSTER))
    assert account(result) == (10, 5, 3, 2)
    jobs = result.table("raw/job_log")
    assert jobs.filter(pl.col("step").is_null()).select("job_id", "nodes", "n_gpus").rows() == [
        ("ml/pod/alone", ["gpu001"], 8),
        ("ml/pytorchjob/llm", ["gpu001", "gpu002"], 16),
    ]
    assert jobs.filter(pl.col("step").is_not_null())["step"].to_list() == ["llm-1", "llm-2"]
    assert result.table("raw/kernel_log")["kind"].to_list() == ["reboot"]
    assert result.table("core/topology").select("level", "place").rows() == [("zone", "a")]
    rules = set(result.quarantine["rule"])
    assert rules == {"not an API object", "metadata.name is missing"}


def test_the_latest_heartbeat_is_when_the_list_was_written():
    result = parse(listed(*CLUSTER))
    states = result.table("raw/node_states").select("state", "valid_from").rows()
    assert states == [("up", utc("00:00:00")), ("up", utc("09:00:00"))]
    (cover,) = result.table("raw/coverage").rows(named=True)
    assert (cover["entity_kind"], cover["start"], cover["end"]) == (
        "site",
        utc("09:00:00"),
        utc("09:00:00"),
    )


def test_a_heartbeat_of_a_clock_that_is_ahead_does_not_count():
    ahead = node(
        "gpu009", conditions=[condition("Ready", "True", lastHeartbeatTime=at("23:00:00"))]
    )
    result = parse(listed(CLUSTER[0], ahead))
    assert result.table("raw/coverage")["end"].to_list() == [utc("09:00:00")]


def test_a_time_in_the_files_name_is_when_it_was_written(tmp_path: Path):
    path = tmp_path / "cluster__2026-01-05T10-00-00Z.json"
    silent = node(conditions=[condition("Ready", "Unknown", "09:00:00")])
    path.write_bytes(listed(silent))
    result = read_all(stream_kubernetes_json, [path], ingested_at=NOW)
    states = result.table("raw/node_states").select("state", "valid_from").rows()
    assert states[1:] == [("down", utc("09:05:00")), ("down", utc("10:00:00"))]


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_where_chunks_are_cut_makes_no_difference(chunk: int):
    whole, cut = parse(listed(*CLUSTER)), parse(listed(*CLUSTER), chunk_objects=chunk)
    for key in TABLES:
        assert cut.table(key).equals(whole.table(key)), key
    assert cut.reads.equals(whole.reads)
    assert cut.quarantine.sort("rule").equals(whole.quarantine.sort("rule"))


def test_the_same_objects_one_per_line_as_an_array_or_from_a_watch_are_the_same():
    whole = parse(listed(*CLUSTER[:7]))
    lines = b"\n".join(json.dumps(found).encode() for found in CLUSTER[:7])
    array = json.dumps(CLUSTER[:7]).encode()
    watch = b"\n".join(
        json.dumps({"type": "ADDED", "object": found}).encode() for found in CLUSTER[:7]
    )
    for data in (lines, array, watch):
        other = parse(data)
        assert all(other.table(key).equals(whole.table(key)) for key in TABLES)
        assert other.reads.equals(whole.reads)


def test_typed_lists_name_the_kind_of_their_items():
    items = [{key: value for key, value in pod().items() if key != "kind"}]
    result = parse(json.dumps({"kind": "PodList", "items": items}).encode())
    assert result.table("raw/job_log")["job_id"].to_list() == ["ml/pod/train-0"]


def test_claims_are_known_before_the_pods_that_use_them():
    results = [{"driver": "gpu.nvidia.com", "pool": "a", "device": f"gpu-{n}"} for n in range(2)]
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml"},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    user = pod(gpus=None, spec={"resourceClaims": [{"name": "g", "resourceClaimName": "c"}]})
    assert parse(listed(user, claim)).table("raw/job_log")["n_gpus"].to_list() == [2]


def test_the_same_version_of_an_object_counts_once():
    same = pod(metadata={"resourceVersion": "7"})
    changed = pod(
        metadata={"resourceVersion": "8"},
        phase="Failed",
        containerStatuses=[container(ended(1, "02:00:00"))],
    )
    result = parse(listed(same, same, changed))
    assert account(result) == (3, 2, 1, 0)
    assert result.table("raw/job_log")["state"].to_list() == ["RUNNING", "FAILED"]


def test_a_node_made_anew_keeps_its_name_and_not_its_states():
    old = node(conditions=[condition("Ready", "Unknown", "02:00:00")])
    new = node(metadata={"uid": "other", "creationTimestamp": at("06:00:00")})
    states = parse(listed(old, new)).table("raw/node_states")
    up = states.filter(state="up")["valid_from"]
    assert up.min() == utc("06:00:00")


@pytest.mark.parametrize("data", [b"", b"  \n", b"error: You must be logged in\n", b"\x00\xff"])
def test_a_file_without_any_object_is_an_error(data: bytes):
    with pytest.raises(SourceError, match="no Kubernetes object"):
        parse(data)


@pytest.mark.parametrize("data", [listed(), b'{"kind":"NodeList","items":[]}', b"[]"])
def test_an_empty_list_is_a_list(data: bytes):
    result = parse(data)
    assert account(result) == (0, 0, 0, 0)
    assert all(result.table(key).is_empty() for key in TABLES)


def test_a_broken_object_costs_no_other():
    data = listed(pod("a"), pod("b"), pod("c"))
    broken = data.replace(b'"name": "b"', b'"name": b')
    result = parse(broken)
    assert account(result) == (3, 2, 0, 1)
    assert result.quarantine["rule"].to_list() == ["not JSON"]
    cut = parse(data[: data.index(b'"name": "c"')])
    assert account(cut) == (3, 2, 0, 1)


def test_a_refused_object_is_shown_without_its_content():
    secret = {"kind": "Pod", "metadata": {"namespace": "ml"}, "spec": {"env": "TOKEN=abc"}}
    (note,) = parse(listed(secret)).quarantine.rows(named=True)
    assert note["example"] == "kind Pod, namespace ml; fields: kind, metadata, spec"


def test_an_absent_file_is_an_error_that_names_it(tmp_path: Path):
    with pytest.raises(SourceError, match=r"gone\.json"):
        list(stream_kubernetes_json(tmp_path / "gone.json", ingested_at=NOW))


KINDS = ("Node", "Pod", "Event", "Job", "ResourceSlice", "ResourceClaim")
PATHS = (
    "metadata", "name", "labels", "annotations", "spec", "status", "conditions", "type", "Ready",
    "taints", "key", "containers", "resources", "limits", "nvidia.com/gpu", "phase", "Failed",
    "containerStatuses", "state", "terminated", "finishedAt", "involvedObject", "kind", "Node",
    "reason", "NodeReady", "driver", "gpu.nvidia.com", "devices", "attributes", "True",
    "2026-01-05T00:00:00Z", "items", "template", "managedFields", "ownerReferences",
)  # fmt: skip
LIKELY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(PATHS) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(PATHS), inner, max_size=5)
    ),
    max_leaves=25,
)


@given(st.lists(st.tuples(st.sampled_from(KINDS), LIKELY | ANY_JSON), max_size=5))
def test_any_objects_are_read_or_refused_and_none_is_lost(found: list[tuple[str, Any]]):
    objects = [{**body, "kind": kind} if isinstance(body, dict) else body for kind, body in found]
    result = parse(listed(*objects))
    read, parsed, skipped, refused = account(result)
    assert read == len(objects) == parsed + skipped + refused


@given(st.sampled_from(CLUSTER[:7]), st.data())
def test_any_field_may_be_of_any_type(found: Object, data: st.DataObject):
    changed: Any = json.loads(json.dumps(found))
    spot, steps = changed, data.draw(st.integers(1, 6))
    for step in range(steps):
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        key = data.draw(st.sampled_from(keys))
        inner = spot[key]
        if step == steps - 1 or not isinstance(inner, dict | list) or not inner:
            spot[key] = data.draw(LIKELY | ANY_JSON)
            break
        spot = inner
    read, parsed, skipped, refused = account(parse(listed(changed)))
    assert read == 1 == parsed + skipped + refused


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes):
    try:
        result = parse(data)
    except SourceError:
        return
    read, parsed, skipped, refused = account(result)
    assert read == parsed + skipped + refused
