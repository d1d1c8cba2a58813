"""Slurm's JSON over its versions: the same facts, however they are written."""

from datetime import UTC, datetime

import orjson
import pytest

from features.errors import SourceError
from features.raw_tables import RAW_JOB_LOG
from pipelines.sources.slurm.json_documents import parse_slurm_json, stream_slurm_json

NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)
T = 1_767_600_000  # 2026-01-05T08:00:00Z
NEVER = {"set": False, "infinite": False, "number": 0}


def at(seconds):
    return datetime.fromtimestamp(T + seconds, UTC)


def number(value):
    return {"set": True, "infinite": False, "number": value}


def parse(document, seen_at=NOW):
    return parse_slurm_json(orjson.dumps(document), origin="f", seen_at=seen_at, ingested_at=NOW)


def jobs(document):
    result = parse(document)
    assert result.quarantine.is_empty()
    assert RAW_JOB_LOG.enforce(result.table("raw/job_log")).rejects.is_empty()
    return result.table("raw/job_log").drop("source", "ingested_at").to_dicts()


def tres(count, name="gpu"):
    return {"allocated": [
        {"type": "cpu", "name": None, "id": 1, "count": 8},
        {"type": "gres", "name": name, "id": 1001, "count": count},
    ]}  # fmt: skip


OLD = {  # 22.05
    "job_id": 7, "array": {"job_id": 0, "task_id": None}, "het": {"job_id": 0, "job_offset": None},
    "name": "a | b\nc", "user": "ann", "partition": "gpu",
    "state": {"current": "OUT_OF_MEMORY", "reason": "None"},
    "exit_code": {"status": "SIGNALED", "return_code": None,
                  "signal": {"signal_id": 9, "name": "Killed"}},
    "time": {"submission": T, "start": T + 60, "end": T + 120, "limit": 60},
    "nodes": "n[1-2]", "tres": tres(16),
    "steps": [{
        "step": {"job_id": 7, "id": "batch", "name": "batch"}, "state": "OUT_OF_MEMORY",
        "exit_code": {"status": "PENDING", "return_code": None}, "tres": tres(8),
        "time": {"start": T + 60, "end": T + 119},
        "nodes": {"list": ["n1"], "count": 1, "range": "n1"},
    }],
}  # fmt: skip
NEW = {  # since 23.11
    **OLD,
    "array": {"job_id": 0, "task_id": NEVER, "task": ""},
    "het": {"job_id": 0, "job_offset": NEVER},
    "state": {"current": ["OUT_OF_MEMORY"], "reason": "None"},
    "exit_code": {"status": ["SIGNALED"], "return_code": NEVER,
                  "signal": {"id": number(9), "name": "KILL"}},
    "tres": {"allocated": [*tres(16)["allocated"], *tres(16, "gpu:h100")["allocated"][1:]]},
    "steps": [{
        **OLD["steps"][0], "step": {"id": "7.batch", "name": "batch"}, "state": ["OUT_OF_MEMORY"],
        "exit_code": {"status": ["PENDING"], "return_code": NEVER, "signal": {"id": NEVER}},
        "time": {"start": number(T + 60), "end": number(T + 119)},
    }],
}  # fmt: skip


def test_a_job_of_the_accounting_reads_the_same_in_old_and_new_releases():
    old, new = jobs({"jobs": [OLD]}), jobs({"jobs": [NEW]})
    assert old == new
    job, step = old
    assert (job["job_id"], job["step"], job["state"]) == ("7", None, "OUT_OF_MEMORY")
    assert (job["exit_code"], job["exit_signal"], job["n_gpus"]) == (0, 9, 16)
    assert (job["submit"], job["start"], job["end"]) == (at(0), at(60), at(120))
    assert (job["job_name"], job["nodes"], job["user"]) == ("a | b\nc", ["n1", "n2"], "ann")
    assert (step["job_id"], step["step"], step["nodes"]) == ("7", "batch", ["n1"])
    assert (step["exit_code"], step["n_gpus"], step["end"]) == (None, 8, at(119))


@pytest.mark.parametrize(
    ("change", "job_id"),
    [
        ({"array": {"job_id": 5, "task_id": 3}}, "5_3"),
        ({"array": {"job_id": 5, "task_id": number(0)}}, "5_0"),
        ({"array": {"job_id": 5, "task_id": NEVER, "task": "4-7%2"}}, "5_[4-7%2]"),
        ({"het": {"job_id": 6, "job_offset": number(1)}}, "6+1"),
        ({"array": {"job_id": number(0)}, "het": {"job_id": number(0)}}, "7"),
    ],
)
def test_ids_are_those_that_sacct_prints(change, job_id):
    assert jobs({"jobs": [{**NEW, **change, "steps": []}]})[0]["job_id"] == job_id


def test_an_exit_code_that_contradicts_the_state_is_unknown():
    success = {"status": "SUCCESS", "return_code": 0}
    job = {**OLD, "state": {"current": "FAILED"}, "exit_code": success, "steps": []}
    assert jobs({"jobs": [job]})[0]["exit_code"] is None
    assert jobs({"jobs": [{**job, "state": {"current": "COMPLETED"}}]})[0]["exit_code"] == 0


def test_an_exit_code_that_is_unset_is_unknown():
    unset = {"status": ["ERROR"], "return_code": NEVER, "signal": {"id": NEVER, "name": ""}}
    job = {**NEW, "state": {"current": ["CANCELLED"]}, "exit_code": unset, "steps": []}
    assert jobs({"jobs": [job]})[0]["exit_code"] is None


QUEUED_OLD = {
    "job_id": 7, "job_state": "RUNNING", "name": "x", "user_name": "ann", "partition": "gpu",
    "submit_time": T, "start_time": T + 60, "end_time": T + 999_999, "nodes": "n[1-2]",
    "exit_code": 0, "array_job_id": 0, "array_task_id": None, "array_task_string": "",
    "het_job_id": 0, "het_job_offset": 0, "tres_alloc_str": "cpu=8,node=2,gres/gpu=16",
    "gres_detail": ["gpu:h100:8(IDX:0-7)", "gpu:h100:8(IDX:0-7)"], "tres_per_node": "gres:gpu:8",
}  # fmt: skip
QUEUED_NEW = {
    **QUEUED_OLD, "job_state": ["RUNNING", "COMPLETING"], "submit_time": number(T),
    "start_time": number(T + 60), "end_time": number(T + 999_999),
    "exit_code": {"status": ["SUCCESS"], "return_code": number(0), "signal": {"id": NEVER}},
    "array_job_id": number(0), "array_task_id": NEVER, "het_job_id": number(0),
    "het_job_offset": number(0),
}  # fmt: skip


def test_a_job_of_the_queue_reads_the_same_and_plans_are_not_facts():
    old, new = jobs({"jobs": [QUEUED_OLD]}), jobs({"jobs": [QUEUED_NEW]})
    assert old == new
    assert (old[0]["start"], old[0]["end"], old[0]["exit_code"]) == (at(60), None, None)
    assert old[0]["n_gpus"] == 16
    waiting = jobs({"jobs": [{**QUEUED_NEW, "job_state": ["PENDING"], "nodes": ""}]})
    assert (waiting[0]["start"], waiting[0]["end"], waiting[0]["submit"]) == (None, None, at(0))


@pytest.mark.parametrize(
    ("change", "n_gpus"),
    [
        ({"tres_alloc_str": "cpu=8,node=2"}, 16),  # GPUs are not accounted for
        ({"tres_alloc_str": "cpu=8", "gres_detail": []}, 16),  # 8 per node on 2 nodes
        ({"tres_alloc_str": "cpu=8", "gres_detail": [], "tres_per_node": ""}, 0),
        ({"tres_alloc_str": "", "gres_detail": [], "tres_per_node": ""}, None),
        ({"tres_alloc_str": "", "gres_detail": [], "tres_per_job": "gres:gpu:4"}, 4),
    ],
)  # fmt: skip
def test_gpus_of_the_queue_come_from_where_they_are_told(change, n_gpus):
    assert jobs({"jobs": [{**QUEUED_OLD, **change}]})[0]["n_gpus"] == n_gpus


def test_a_wait_status_is_cut_into_code_and_signal():
    rows = [{**QUEUED_OLD, "job_state": "FAILED", "exit_code": code} for code in (768, 9)]
    assert [(r["exit_code"], r["exit_signal"]) for r in jobs({"jobs": rows})] == [(3, 0), (0, 9)]


NODE_OLD = {
    "name": "n1", "state": "idle", "state_flags": ["DRAIN"], "reason": "bad nic",
    "reason_changed_at": T, "reason_set_by_user": "root",
}  # fmt: skip
NODE_NEW = {**NODE_OLD, "state": ["IDLE", "DRAIN"], "reason_changed_at": number(T)}
NODE_SINFO = {
    "nodes": {"nodes": ["n1"]}, "node": {"state": ["IDLE", "DRAIN"]},
    "reason": {"description": "bad nic", "time": number(T), "user": "root"},
}  # fmt: skip


def test_a_node_reads_the_same_in_all_releases():
    documents = ({"nodes": [NODE_OLD]}, {"nodes": [NODE_NEW]}, {"sinfo": [NODE_SINFO]}, NODE_NEW)
    tables = [parse(document).table("raw/node_states") for document in documents]
    assert all(table.equals(tables[0]) for table in tables)
    assert tables[0].select("state", "reason", "actor", "valid_from", "valid_to").rows() == [
        ("IDLE+DRAIN", "bad nic", "root", at(0), NOW), ("IDLE+DRAIN", "bad nic", "root", NOW, NOW),
    ]  # fmt: skip


@pytest.mark.parametrize("since", [0, NEVER, number(0), None, 4_294_967_294])
def test_a_node_in_service_was_never_given_a_reason(since):
    node = {"name": "n1", "state": ["MIXED"], "reason": "", "reason_changed_at": since}
    table = parse({"nodes": [node]}).table("raw/node_states")
    assert table.select("state", "reason", "valid_from").rows() == [("MIXED", None, NOW)]


def test_states_of_nodes_need_the_moment_they_were_seen(tmp_path):
    with pytest.raises(SourceError, match="2026-01-05T00-05-00Z"):
        parse({"nodes": [NODE_OLD]}, seen_at=None)
    path = tmp_path / "nodes__2026-01-06T12-00-00Z.json"
    path.write_bytes(orjson.dumps({"nodes": [NODE_OLD]}))
    (result,) = stream_slurm_json(path, ingested_at=NOW)
    assert result.table("raw/coverage")["start"].to_list() == [NOW]


def test_reservations_for_maintenance_are_planned_work():
    reservation = {
        "name": "fw", "flags": ["MAINT"], "node_list": "n[1-2]", "start_time": T,
        "end_time": number(T + 60),
    }  # fmt: skip
    work = parse({"reservations": [reservation, {**reservation, "flags": []}]})
    assert work.table("core/maintenance").select("node", "start", "end").rows() == [
        ("n1", at(0), at(60)), ("n2", at(0), at(60)),
    ]  # fmt: skip
    assert work.reads["n_skipped"].to_list() == [1]


def test_records_that_are_refused_are_counted_and_the_rest_is_kept():
    bad_step = {**OLD["steps"][0], "state": "SLEEPY"}
    bad = [
        7,
        {},
        {**OLD, "state": "SLEEPY"},
        {**OLD, "nodes": "n[1-"},
        {**OLD, "steps": [bad_step]},
    ]
    result = parse({"jobs": [*bad, OLD]})
    assert result.table("raw/job_log").height == 3
    assert result.reads.select("n_read", "n_parsed", "n_quarantined").rows() == [(8, 3, 5)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "this is no JSON"),
        (b"slurm_load_jobs error: Unable to contact slurm controller", "this is no JSON"),
        (b"[1]", "expected a JSON object"),
        (b'{"partitions": []}', "neither jobs, nodes, sinfo nor reservations"),
        (b'{"jobs": [], "errors": [{"error": "Protocol authentication error"}]}', "authentication"),
    ],
)
def test_what_holds_no_records_is_one_clear_error(data, message):
    with pytest.raises(SourceError, match=message):
        parse_slurm_json(data, origin="f", seen_at=NOW, ingested_at=NOW)


def test_bad_bytes_in_names_are_replaced():
    data = orjson.dumps({"jobs": [{**OLD, "name": "@@"}]}).replace(b"@@", b"\xff\xfe")
    result = parse_slurm_json(data, origin="f", seen_at=None, ingested_at=NOW)
    assert result.table("raw/job_log")["job_name"][0] == "\ufffd\ufffd"


def test_an_empty_queue_is_no_error():
    assert parse({"jobs": [], "errors": []}).reads["n_read"].to_list() == [0]
