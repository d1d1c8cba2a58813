"""What a site's files say about jobs and nodes, read back with the project's own readers."""

import csv
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from features.hostlist import expand_hostlist
from features.scheduler_states import node_state
from pipelines.sources.catalogue import load_catalogue
from pipelines.sources.result import SourceResult
from pipelines.sources.site.listing import load_inputs
from pipelines.sources.site.readers import read_inputs
from simulation.fleet.generate import Fleet, simulate_fleet
from simulation.fleet.incidents import Incident
from simulation.fleet.observe import observe_fleet
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt
from simulation.writers import site_tables
from simulation.writers.node_log import list_outages
from simulation.writers.repair_tickets import ticket_rows
from simulation.writers.sacct_text import FIELDS, hostlist, write_sacct
from simulation.writers.site_tables import write_site_tables

NOW = datetime(2027, 1, 1, tzinfo=UTC)
SITE = Path(site_tables.__file__).parent / "site"
N_BAD = 3


@pytest.fixture(scope="module")
def fleet(demo: Regime) -> Fleet:
    """Planned work of all kinds, instances, and failures that nobody notices in the first days."""
    document = demo.model_dump()
    document["hardware"]["mig"] = {"node_share": 0.2, "profile": "1g.10gb", "instances": 7}
    document["disturbances"] |= {
        "driver_day": 4.0, "reboots_per_node_year": 20, "holds_per_node_year": 30,
    }  # fmt: skip
    for fault in document["faults"]:
        if fault["fault_type"] == "other_gpu":
            fault["health_check"] = {"day": 7, "missed_before": 1.0}
    return simulate_fleet(Regime.model_validate(document), seed=12, nodes=20, days=15)


@pytest.fixture(scope="module")
def site(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a site, with those inputs that are about jobs and nodes."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(SITE, folder, dirs_exist_ok=True)
    write_site_tables(fleet, folder)
    write_sacct(fleet, folder / "sacct" / "jobs.txt", n_bad=N_BAD)
    document = yaml.safe_load((folder / "inputs.yaml").read_text(encoding="utf-8"))
    document["inputs"] = [
        spec
        for spec in document["inputs"]
        if spec["path"].endswith(".csv") or spec["kind"] in {"sacct", "slurm_text"}
        if spec["kind"] != "nvidia_smi_csv"
    ]
    (folder / "inputs.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def read(site: Path) -> SourceResult:
    return read_inputs(load_inputs(site / "inputs.yaml"), ingested_at=NOW)


def _seconds(fleet: Fleet, moment: datetime) -> float:
    return (moment - fleet.regime.start).total_seconds()


def _tickets(site: Path) -> list[dict[str, str]]:
    with (site / "repair_tickets.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_record_is_read_skipped_or_refused(read: SourceResult) -> None:
    counts = read.reads.select("n_read", "n_parsed", "n_skipped", "n_quarantined").sum().row(0)
    assert counts[0] == sum(counts[1:])
    by_file = dict(
        read.reads.select(pl.col("origin").str.extract(r"(\w+)\.\w+$"), "n_quarantined").rows()
    )
    assert by_file["inventory"] == 2
    assert by_file["topology"] == by_file["maintenance"] == by_file["node_events"] == 1
    assert by_file["jobs"] == N_BAD
    looks = read.reads.filter(pl.col("source") == "sinfo")
    assert looks.height == 15 * 3
    assert looks["n_quarantined"].sum() == 1


def test_inventory_topology_and_calendar_hold_what_the_fleet_has(
    fleet: Fleet, read: SourceResult
) -> None:
    stays = [s for t in fleet.nodes for s in t.stays if (s.from_s or 0) < fleet.end_s]
    assert read.table("core/inventory").height == len(stays)
    assert set(read.table("core/inventory")["gpu_uuid"]) == {s.gpu.gpu_uuid for s in stays}
    pools = read.table("core/topology").filter(pl.col("level") == "pool")
    of_mig = {t.node.name for t in fleet.nodes if t.node.is_mig}
    assert set(pools.filter(pl.col("place") == "mig")["node"]) == of_mig
    assert pools.height == len(fleet.nodes)
    planned = [work for truth in fleet.nodes for work in truth.planned]
    assert {work.what for work in planned} == {"driver", "reboot", "hold"}
    assert read.table("core/maintenance").height == len(planned)


def test_jobs_come_back_as_they_ran(fleet: Fleet, read: SourceResult) -> None:
    jobs = read.table("raw/job_log").filter(pl.col("step").is_null())
    assert jobs.height == len(fleet.attempts)

    def row(attempt: Attempt) -> tuple[object, ...]:
        names = sorted(fleet.nodes[node].node.name for node, _ in attempt.placement)
        times = (attempt.submit_s, attempt.start_s, attempt.end_s)
        gpus = attempt.job.n_gpus if names else None
        return (str(attempt.job.job_id), attempt.state, *times, names or None, gpus)

    since_start = (pl.col("submit", "start", "end") - fleet.regime.start).dt.total_seconds()
    columns = ["job_id", "state", "submit", "start", "end", "nodes", "n_gpus"]
    assert sorted(map(str, jobs.with_columns(since_start).select(columns).rows())) == sorted(
        str(row(attempt)) for attempt in fleet.attempts
    )
    assert {"RUNNING", "NODE_FAIL", "CANCELLED"} <= set(jobs["state"])


def test_accounting_names_the_profile_of_an_instance(site: Path) -> None:
    lines = (site / "sacct" / "jobs.txt").read_text(encoding="utf-8").splitlines()
    cells = [line.split("|") for line in lines[1:]]
    rows = [row for row in cells if len(row) == len(FIELDS)]
    of_mig = [row for row in rows if row[3] == "mig" and row[7] != "Unknown"]
    assert of_mig
    assert all(",gres/gpu:1g.10gb=1," in row[-1] for row in of_mig)
    assert all(row[-1].startswith("billing=1,cpu=1,") for row in of_mig)
    others = [row for row in rows if row[3] == "batch" and row[7] != "Unknown"]
    assert all(",gres/gpu=" in row[-1] for row in others)
    waiting = [row for row in rows if row[4] == "PENDING"]
    assert all(row[-2:] == ["None assigned", ""] for row in waiting)


def test_accounting_names_who_cancelled_a_job(fleet: Fleet, site: Path) -> None:
    cells = [line.split("|") for line in (site / "sacct" / "jobs.txt").read_text().splitlines()[1:]]
    rows = [row for row in cells if len(row) == len(FIELDS) and row[4].startswith("CANCELLED by")]
    planned = {
        fleet.moment(work.work_s).replace(tzinfo=None).isoformat()
        for truth in fleet.nodes
        for work in truth.planned
        if work.what != "hold"
    }
    by_root = [row for row in rows if row[4] == "CANCELLED by 0"]
    assert by_root
    assert {row[8] for row in by_root} <= planned
    own = [row for row in rows if row not in by_root]
    assert own
    assert all(row[4] == f"CANCELLED by {20_000 + int(row[2][1:])}" for row in own)


def test_a_health_check_speaks_as_root_and_names_no_xid_that_is_not_logged(fleet: Fleet) -> None:
    logged = [part.events.lines for part in observe_fleet(fleet)]
    checks = [outage for outage in list_outages(fleet) if outage.reason.startswith("NHC")]
    assert len(checks) > 10
    for outage in checks:
        assert outage.user == "root(0)"
        for code in re.findall(r"Xid (\d+)", outage.reason):
            assert any(
                line.code == int(code) and outage.from_s - 86400 < line.at_s < outage.to_s
                for line in logged[outage.node]
            )


def test_node_events_come_back_as_the_outages(fleet: Fleet, read: SourceResult) -> None:
    states = read.table("raw/node_states").filter(pl.col("source") == "history")
    outages = list_outages(fleet)
    assert states.height == len(outages)
    for outage in outages:
        assert 0 <= outage.from_s < min(outage.to_s, fleet.end_s)
    assert states["valid_to"].null_count() == sum(o.to_s >= fleet.end_s for o in outages)


def test_a_failure_that_nobody_noticed_leaves_nothing(fleet: Fleet) -> None:
    without = [
        replace(truth, incidents=tuple(i for i in truth.incidents if i.is_noticed))
        for truth in fleet.nodes
    ]
    known = replace(fleet, nodes=tuple(without))
    assert len(known.incidents) < len(fleet.incidents)
    assert list_outages(known) == list_outages(fleet)
    assert list(ticket_rows(known)) == list(ticket_rows(fleet))


@pytest.mark.parametrize("what", ["driver", "reboot", "hold"])
def test_planned_work_is_noted_with_a_reason_that_names_no_fault(fleet: Fleet, what: str) -> None:
    works = [(t, w) for t in fleet.nodes for w in t.planned if w.what == what]
    outages = list_outages(fleet)
    reasons = set()
    for truth, work in works:
        mine = [
            o
            for o in outages
            if o.node == truth.node.index and work.drain_s <= o.from_s < work.end_s
        ]
        assert [o.state for o in mine] == (["DRAIN"] if what == "hold" else ["DRAIN", "DOWN"])
        assert (mine[0].from_s, mine[-1].to_s) == (work.drain_s, work.end_s)
        assert {o.user for o in mine} == {"ops(1001)"}
        reasons |= {o.reason for o in mine}
    frame = pl.DataFrame({"reason": sorted(reasons)})
    roles = load_catalogue().classify_reasons(frame)["role"].to_list()
    assert roles == ([None] if what == "hold" else ["maintenance"]) * len(reasons)


def test_looks_at_the_nodes_agree_with_outages_and_jobs(fleet: Fleet, read: SourceResult) -> None:
    looks = read.table("raw/node_states").filter(
        pl.col("source") == "sinfo", pl.col("valid_from") == pl.col("valid_to")
    )
    assert looks.height == 15 * 3 * len(fleet.nodes)
    index = {truth.node.name: truth.node.index for truth in fleet.nodes}
    outages = list_outages(fleet)
    busy: dict[int, list[Attempt]] = {node: [] for node in index.values()}
    for attempt in fleet.attempts:
        for node, _ in attempt.placement:
            busy[node].append(attempt)
    for name, state, reason, moment in looks.select("node", "state", "reason", "valid_from").rows():
        node, at_s = index[name], _seconds(fleet, moment)
        out = [o for o in outages if o.node == node and o.from_s <= at_s < o.to_s]
        is_used = any(_runs(fleet, attempt, at_s) for attempt in busy[node])
        if out:
            assert reason == out[0].reason
            assert node_state(state) == node_state(out[0].state)
            assert (state == "draining") <= is_used
        else:
            assert (state in {"mixed", "allocated"}) == is_used
            assert reason is None


def _runs(fleet: Fleet, attempt: Attempt, at_s: float) -> bool:
    end_s = fleet.end_s if attempt.end_s is None else attempt.end_s
    return attempt.start_s is not None and attempt.start_s <= at_s < end_s


def _opened(fleet: Fleet, ticket: dict[str, str]) -> float:
    return _seconds(fleet, datetime.fromisoformat(ticket["opened"]).replace(tzinfo=UTC))


def _incident_of(fleet: Fleet, ticket: dict[str, str]) -> list[Incident]:
    """Noticed failures of a ticket's node that were detected before it was opened."""
    truth = next(truth for truth in fleet.nodes if truth.node.name == ticket["node"])
    noticed = [incident for incident in truth.incidents if incident.is_noticed]
    return [i for i in noticed if i.detected_s <= _opened(fleet, ticket)]


def test_a_ticket_is_opened_after_its_failure_was_noticed(fleet: Fleet, site: Path) -> None:
    tickets = _tickets(site)
    noticed = [incident for incident in fleet.incidents if incident.is_noticed]
    assert 0.7 * len(noticed) < len(tickets) <= len(noticed)
    assert [ticket["opened"] for ticket in tickets] == sorted(t["opened"] for t in tickets)
    per_node: dict[str, int] = {}
    for ticket in tickets:
        per_node[ticket["node"]] = per_node.get(ticket["node"], 0) + 1
        assert len(_incident_of(fleet, ticket)) >= per_node[ticket["node"]]
        assert not ticket["closed"] or ticket["closed"] >= ticket["opened"]


def test_a_ticket_tells_what_was_done_only_once_it_is_closed(fleet: Fleet, site: Path) -> None:
    done = {"reset", "reseat", "cable", "replace", "no fault found"}
    swaps = {
        (old.gpu.gpu_uuid, new.gpu.gpu_uuid)
        for truth in fleet.nodes
        for old in truth.stays
        for new in truth.stays
        if old.gpu.slot == new.gpu.slot and old.to_s is not None and old.to_s == new.from_s
    }
    tickets = _tickets(site)
    assert {ticket["action"] for ticket in tickets} == done | {""}
    for ticket in tickets:
        assert bool(ticket["closed"]) == bool(ticket["action"]) == bool(ticket["finding"])
        pair = (ticket["old_gpu"], ticket["new_gpu"])
        assert pair in swaps if ticket["action"] == "replace" else pair == ("", "")


def test_some_tickets_name_the_wrong_slot_or_only_complain(fleet: Fleet, site: Path) -> None:
    tickets = [ticket for ticket in _tickets(site) if ticket["slot"]]
    wrong = [
        ticket
        for ticket in tickets
        if int(ticket["slot"]) not in {i.slot for i in _incident_of(fleet, ticket)}
    ]
    assert 0 < len(wrong) < 0.2 * len(tickets)
    assert any("pls" in t["symptom"] or "user" in t["symptom"] for t in _tickets(site))


@given(st.sets(st.integers(0, 9999), min_size=1, max_size=9))
def test_a_short_list_of_nodes_means_the_nodes(numbers: set[int]) -> None:
    names = [f"gpu{number:04d}" for number in sorted(numbers)]
    assert expand_hostlist(hostlist(names)) == names
