from datetime import timedelta

import polars as pl
import pytest

from features.errors import DataError
from features.tables import CORE_INVENTORY, CORE_JOBS, CORE_NODE_STATES, CORE_TOPOLOGY
from remediation.cluster.frames import FrameClusterReader
from remediation.cluster.state import ClusterState


def rows(contract, *values):
    blank = dict.fromkeys(contract.schema.names())
    return pl.DataFrame([blank | value for value in values], schema=contract.schema)


@pytest.fixture
def read(kit):
    def build(*, states=(), jobs=(), topology=(), inventory=(), **changes):
        return FrameClusterReader(
            as_of=kit.start,
            node_states=rows(CORE_NODE_STATES, *states),
            jobs=rows(CORE_JOBS, *jobs),
            topology=rows(CORE_TOPOLOGY, *topology),
            inventory=rows(CORE_INVENTORY, *inventory),
            **changes,
        ).read()

    return build


def test_states_are_half_open_and_nothing_at_or_after_as_of_counts(kit, read):
    hour = timedelta(hours=1)
    state = read(
        states=[
            {
                "node": "ended",
                "state": "down",
                "valid_from": kit.start - hour,
                "valid_to": kit.start,
            },
            {"node": "open", "state": "down", "valid_from": kit.start - hour},
            {"node": "begins", "state": "down", "valid_from": kit.start},
        ]
    )
    assert {node.name: node.state for node in state.nodes} == {"ended": "unknown", "open": "down"}


def test_where_intervals_overlap_the_one_that_forbids_more_counts(read):
    state = read(states=[{"node": "a", "state": s} for s in ("drain", "down", "up")])
    assert state.by_name["a"].state == "down"


def test_a_node_without_record_is_unknown_unless_the_source_records_trouble_only(kit, read):
    stays = [{"gpu_uuid": f"g{i}", "node": "a"} for i in range(4)]
    assert read(inventory=stays).by_name["a"].state == "unknown"
    up = read(inventory=stays, state_without_record="up").by_name["a"]
    assert (up.state, up.n_gpus) == ("up", 4)


def test_places_and_running_jobs_are_read(kit, read):
    hour = timedelta(hours=1)
    job = {"attempt": 0, "nodes": ["a", "b"], "n_gpus": 16}
    state = read(
        topology=[
            {"node": "a", "level": level, "place": f"{level}-1"}
            for level in ("rack", "switch", "pool")
        ],
        jobs=[
            job | {"job_id": "runs", "start": kit.start - hour},
            job | {"job_id": "ended", "start": kit.start - hour, "end": kit.start},
            job | {"job_id": "begins", "start": kit.start},
            job | {"job_id": "nowhere", "start": kit.start - hour, "nodes": []},
        ],
    )
    node = state.by_name["a"]
    assert (node.rack, node.switch, node.partitions) == ("rack-1", "switch-1", ("pool-1",))
    assert [one.job_id for one in state.jobs_on("a")] == ["runs"]


def test_two_nodes_of_one_name_are_refused(kit):
    with pytest.raises(DataError, match="2 nodes have 1 names"):
        ClusterState(as_of=kit.start, nodes=(kit.node("a"), kit.node("a")))
