"""Slurm outputs recorded by others: read by the reader of their kind, with what they say."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from features.core_build import build_jobs, build_node_states
from features.tables import TABLE_BY_KEY
from pipelines.sources.result import merge
from pipelines.sources.slurm.json_documents import parse_slurm_json
from pipelines.sources.slurm.nodes import parse_scontrol_nodes, parse_sinfo
from pipelines.sources.slurm.sacct import stream_sacct
from tests.pipelines.sources.reading import read_all

SAMPLES = Path(__file__).parents[4] / "../shared/data/samples/slurm"
NOW = datetime(2026, 5, 1, tzinfo=UTC)
ABOUT = {"origin": "f", "seen_at": NOW, "ingested_at": NOW}
STRUCTURED = ["NODELIST", "GRES", "GRES_USED", "CPUS", "CPUS_STATE", "STATE", "PARTITION"]

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not SAMPLES.is_dir(), reason="the real samples (../shared/data/samples) are not here"
    ),
]


def whole(result):
    assert result.quarantine.is_empty()
    for key, table in result.tables.items():
        assert TABLE_BY_KEY[key].conform(table).height == table.height
    return result


def data(name):
    return (SAMPLES / name).read_bytes()


def meanings(result):
    states = build_node_states(result.table("raw/node_states")).frame
    return dict(states.group_by("node", maintain_order=True).last().select("node", "state").rows())


def test_sinfo_of_a_large_cluster():
    result = whole(parse_sinfo(data("gcm__sample-sinfo-output.txt"), time_zone="UTC", **ABOUT))
    assert meanings(result) == {"node0201": "drain", "node1537": "up", "node4180": "up"}


def test_sinfo_without_a_header():
    result = parse_sinfo(
        data("gcm__sinfo-output-for-structured.txt"), time_zone="UTC", columns=STRUCTURED, **ABOUT
    )
    states = meanings(whole(result))
    assert (len(states), states["node2654"], states["node1074"]) == (10, "drain", "up")


def test_sinfo_as_a_table():
    states = meanings(
        whole(parse_sinfo(data("issue__arjuna_69_sinfo_states.txt"), time_zone="UTC", **ABOUT))
    )
    assert len(states) == 85
    assert (states["d032"], states["f005"], states["c003"], states["e001"]) == (
        "drain", "down", "drain", "up",
    )  # fmt: skip


def test_a_node_that_lost_its_gpu_is_drained_since_slurm_saw_it():
    result = parse_scontrol_nodes(
        data("issue__awsome_195_scontrol_show_node_drain_gpu.txt"), time_zone="UTC", **ABOUT
    )
    (row,) = build_node_states(whole(result).table("raw/node_states")).frame.to_dicts()
    assert (row["state"], row["actor"], row["valid_to"]) == ("drain", "slurm", None)
    assert row["valid_from"] == datetime(2024, 12, 19, 11, 3, 34, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "states"),
    [
        (
            "telegraf_slurmrestd__nodes.json",
            {"naboo145": "drain", "naboo146": "drain", "naboo147": "up"},
        ),
        ("soperator_slurmrestd__usual_node_rest.json", {"worker-1": "up"}),
    ],
)
def test_nodes_of_slurmrestd(name, states):
    assert meanings(whole(parse_slurm_json(data(name), **ABOUT))) == states


def test_a_job_of_slurmrestd():
    result = whole(parse_slurm_json(data("soperator_slurmrestd__2_node_job.json"), **ABOUT))
    (job,) = build_jobs(result.table("raw/job_log")).frame.to_dicts()
    assert (job["job_id"], job["end_state"], job["exit_code"]) == ("349", "COMPLETED", 0)
    assert job["nodes"] == ["worker-1", "worker-0"]


def test_a_step_that_ended_after_midnight_is_counted_once():
    path = SAMPLES / "gcm__sample-sacct-output-midnight-edge-case-small.txt"
    twice = read_all(stream_sacct, [path, path], time_zone="UTC", ingested_at=NOW)
    jobs = build_jobs(whole(twice).table("raw/job_log")).frame
    assert jobs.select("job_id", "attempt", "end_state").rows() == [
        (job, 0, "CANCELLED") for job in ("39125549", "39125551", "39125552")
    ]


@pytest.mark.parametrize("chunk_bytes", [500, 5_000, 50_000])
def test_pieces_of_a_recorded_file_are_the_whole(chunk_bytes):
    path = SAMPLES / "gcm__sample-sacct-output.txt"
    parts = stream_sacct(path, time_zone="UTC", ingested_at=NOW, chunk_bytes=chunk_bytes)
    read = read_all(stream_sacct, [path], time_zone="UTC", ingested_at=NOW).table("raw/job_log")
    assert merge(parts).table("raw/job_log").equals(read)
