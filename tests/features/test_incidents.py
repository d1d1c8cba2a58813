"""Rules of the catalogue and of incidents: one per entity and repair, typed by its evidence."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.catalogue import CATALOGUE_COLUMNS, FaultCatalogue
from features.contracts import TableContract
from features.errors import SettingsError
from features.incidents import COALESCE_WITHIN, build_incidents
from features.labels import LONGEST_OPEN
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
)
from pipelines.sources.catalogue import load_catalogue

T0 = datetime(2026, 1, 10, tzinfo=UTC)
CATALOGUE = load_catalogue(None)
Row = dict[str, Any]


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def fill(contract: TableContract, *rows: Row) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **row} for row in rows], schema=contract.schema)


def event(minutes: float, code: int | None, kind: str = "xid", **more: Any) -> Row:
    return {
        "event_id": f"{kind}{code}{minutes}", "ts": at(minutes), "node": "n", "gpu_uuid": "g",
        "kind": kind, "code": code, "count": 1, "message": f"Xid {code}", **more,
    }  # fmt: skip


def down(start: float, end: float | None, reason: str, state: str = "down") -> Row:
    return {
        "node": "n", "state": state, "reason": reason, "valid_from": at(start),
        "valid_to": None if end is None else at(end),
    }  # fmt: skip


def found(*events: Row, states: tuple[Row, ...] = (), jobs: tuple[Row, ...] = ()) -> pl.DataFrame:
    stays = [
        {"gpu_uuid": g, "node": "n", "slot": s, "valid_from": at(-9999)}
        for g, s in (("g", "0"), ("h", "1"))
    ]
    incidents = build_incidents(
        fill(CORE_HEALTH_EVENTS, *events),
        fill(CORE_NODE_STATES, *states),
        fill(CORE_JOBS, *jobs),
        fill(CORE_INVENTORY, *stays),
        catalogue=CATALOGUE,
    )
    assert CORE_INCIDENTS.enforce(incidents).rejects.is_empty()
    return incidents.sort("start")


def brief(incidents: pl.DataFrame) -> list[tuple[str, str, datetime, datetime | None, str]]:
    return incidents.select("entity_kind", "entity_id", "start", "end", "fault_type").rows()


@pytest.mark.parametrize(
    ("code", "fault_type"),
    [
        (48, "hbm_uncorrectable"),
        (64, "row_remap_failure"),
        (79, "off_bus"),
        (74, "nvlink"),
        (119, "gsp"),
        (120, "gsp"),
        (95, "hbm_uncorrectable"),
    ],
)
def test_a_hard_xid_is_an_incident_of_its_gpu(code: int, fault_type: str) -> None:
    assert brief(found(event(0, code))) == [("gpu", "g", at(0), None, fault_type)]


@pytest.mark.parametrize("code", [13, 31, 43, 63, 92, 45, 94, 999])
def test_noise_precursors_and_unknown_codes_are_never_incidents(code: int) -> None:
    assert found(event(0, code)).is_empty()


def test_a_secondary_xid_is_added_to_its_primary() -> None:
    incidents = found(event(0, 79), event(0.05, 45), event(0.05, 154))
    assert brief(incidents) == [("gpu", "g", at(0), None, "off_bus")]
    assert "45" in incidents["evidence"][0]


def test_of_several_faults_the_most_specific_gives_the_type() -> None:
    assert found(event(0, 48), event(0.02, 64))["fault_type"].to_list() == ["row_remap_failure"]


def test_evidence_close_together_is_one_incident_and_far_apart_two() -> None:
    assert found(event(0, 48), event(90, 48)).height == 1
    assert found(event(0, 48), event(300, 48)).height == 2


def test_coming_back_into_service_ends_an_incident() -> None:
    states = (down(1, 20, "Xid 48"),)
    incidents = found(event(0, 48), event(60, 48), states=states)
    assert brief(incidents) == [
        ("gpu", "g", at(0), at(20), "hbm_uncorrectable"),
        ("gpu", "g", at(60), None, "hbm_uncorrectable"),
    ]


@pytest.mark.parametrize(
    ("reason", "fault_type"),
    [
        ("IB port down", "nic_fabric"),
        ("Not responding", "host"),
        ("something never seen before", "host"),
    ],
)
def test_a_node_that_goes_down_is_an_incident_of_the_node(reason: str, fault_type: str) -> None:
    incidents = found(states=(down(0, 30, reason),))
    assert brief(incidents) == [("node", "n", at(0), at(30), fault_type)]


def test_a_reason_that_names_a_gpu_makes_an_incident_of_the_gpu_alone() -> None:
    incidents = found(states=(down(0, 30, "NHC: check_gpu: GPU 1 Xid 48"),))
    assert brief(incidents) == [("gpu", "h", at(0), at(30), "hbm_uncorrectable")]


def test_a_node_that_goes_down_by_its_gpu_is_not_counted_twice() -> None:
    incidents = found(event(0, 79), states=(down(2, 40, "Not responding"),))
    assert brief(incidents) == [("gpu", "g", at(0), at(40), "off_bus")]


@pytest.mark.parametrize("reason", ["scheduled maintenance", "forewarn:v1 score=0.8"])
def test_planned_work_and_our_own_drains_are_no_incidents(reason: str) -> None:
    assert found(states=(down(0, 30, reason, state="drain"),)).is_empty()


def test_a_reboot_in_planned_work_is_no_incident_but_a_broken_gpu_is() -> None:
    work = down(0, 30, "scheduled maintenance", state="drain")
    assert found(states=(work, down(30, 40, "Not responding"))).is_empty()
    broken = found(states=(work, down(30, 40, "gpu fallen off the bus")))
    assert brief(broken) == [("node", "n", at(30), at(40), "off_bus")]


def test_a_node_taken_out_late_for_the_fault_of_its_gpu_is_the_gpus_incident() -> None:
    incidents = found(event(0, 48), states=(down(60, 90, "Xid 48", state="drain"),))
    assert brief(incidents) == [("gpu", "g", at(0), at(90), "hbm_uncorrectable")]


def test_a_later_reason_of_the_same_outage_is_not_counted_twice() -> None:
    states = (down(2, 40, "Not responding"), down(40, 80, "waiting for a part"))
    incidents = found(event(0, 79), states=states)
    assert brief(incidents) == [("gpu", "g", at(0), at(80), "off_bus")]


def test_a_job_that_ended_with_its_only_node_is_evidence_where_no_state_tells() -> None:
    job = {"job_id": "1", "attempt": 0, "nodes": ["n"], "end": at(5), "end_state": "NODE_FAIL"}
    assert brief(found(jobs=(job,))) == [("node", "n", at(5), None, "host")]
    told = found(jobs=(job,), states=(down(6, 30, "IB port down"),))
    assert brief(told) == [("node", "n", at(6), at(30), "nic_fabric")]
    assert found(jobs=(job | {"nodes": ["n", "m"]},)).is_empty()


def test_incident_ids_are_stable_and_carry_the_catalogue_version() -> None:
    first, second = found(event(0, 48)), found(event(0, 48), event(600, 74))
    assert first["incident_id"][0] == second["incident_id"][0]
    assert set(second["catalogue_version"]) == {CATALOGUE.version}


GOOD = dict.fromkeys(CATALOGUE_COLUMNS, "") | {"kind": "xid", "code": "1", "role": "noise"}
GOOD["group"] = "app"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"role": "bad"}, "role must be"),
        ({"code": "x"}, "code"),
        ({"pattern": "("}, "no regular expression"),
        ({"role": "primary", "fault_type": "gremlin"}, "fault_type must be"),
        ({"group": "none"}, "group must be"),
        ({"kind": ""}, "kind is empty"),
    ],
)
def test_a_bad_catalogue_row_is_named(change: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        FaultCatalogue.from_rows([GOOD, GOOD | {"code": "2"} | change], version="v")
    assert "row 2" in str(caught.value)


@pytest.mark.parametrize(
    ("codes", "needs"),
    [
        ([(0, 48)], "reset"),
        ([(0, 48), (0.05, 63)], "drain_reset"),
        ([(0, 63), (0.05, 48)], "drain_reset"),
        ([(0, 48), (1, 63)], "reset"),  # a minute apart: another matter
        ([(0, 48), (0.05, 64)], "replace"),
        ([(0, 64)], "replace"),
        ([(0, 79)], "reboot"),
    ],
)
def test_an_incident_says_what_its_fault_needs(codes: list[tuple[float, int]], needs: str) -> None:
    assert found(*(event(at, code) for at, code in codes))["needs"].to_list() == [needs]


def test_an_outage_nobody_explains_says_nothing_of_what_it_needs() -> None:
    assert found(states=(down(0, 9, "something new"),))["needs"].to_list() == [None]


def test_a_job_on_several_nodes_is_no_evidence_but_its_node_with_a_fault_is() -> None:
    job = {"job_id": "1", "attempt": 0, "nodes": ["n", "m"], "end": at(5)}
    job |= {"end_state": "NODE_FAIL"}
    assert found(event(0, 79), jobs=(job,)).height == 1


@pytest.mark.parametrize(
    ("minutes", "kind"), [(-10, "gpu"), (-11, "node"), (5, "gpu"), (6, "node")]
)
def test_a_job_that_ended_with_its_node_belongs_to_a_fault_from_10_min_before_to_5_min_after(
    minutes: float, kind: str
) -> None:
    job = {"job_id": "1", "attempt": 0, "nodes": ["n"], "end": at(100), "end_state": "NODE_FAIL"}
    incidents = found(event(100 + minutes, 79), jobs=(job,))
    of_job = incidents.filter(pl.col("evidence").str.contains("job 1"))
    assert of_job["entity_kind"].to_list() == [kind]
    assert incidents.height == (1 if kind == "gpu" else 2)


def own(**row: str) -> dict[str, str]:
    return dict.fromkeys(CATALOGUE_COLUMNS, "") | row


def test_a_sites_row_takes_the_place_of_the_shipped_one() -> None:
    softer = CATALOGUE.with_overrides(
        [own(kind="xid", code="109", role="noise", group="app", note="here: always the job")],
        version="site@1",
    )
    incidents = build_incidents(
        fill(CORE_HEALTH_EVENTS, event(0, 109), event(300, 79)),
        fill(CORE_NODE_STATES),
        fill(CORE_JOBS),
        fill(CORE_INVENTORY),
        catalogue=softer,
    )
    assert incidents["fault_type"].to_list() == ["off_bus"]
    assert set(incidents["catalogue_version"]) == {f"{CATALOGUE.version}+site@1"}
    assert len(softer.rules) == len(CATALOGUE.rules)


def test_a_sites_new_row_comes_before_all_others() -> None:
    row = own(kind="xid", code="999", role="primary", fault_type="pcie", group="other")
    added = CATALOGUE.with_overrides([row | {"needs": "inspect"}], version="s")
    assert added.rules[0].code == 999
    assert added.rules[1:] == CATALOGUE.rules


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"role": "bad"}, "role must be"),
        ({"needs": "prayer"}, "needs must be empty or one of"),
        ({"code": "48.0"}, "code must be a whole number"),
        ({"code": "99999999999"}, "code must be a whole number to 2147483647"),
        ({"kind": "XID"}, "kind 'XID' fits no event"),
    ],
)
def test_a_bad_row_of_a_site_is_named(change: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        CATALOGUE.with_overrides([GOOD, GOOD | {"code": "2"} | change], version="v")
    assert "fault overrides, row 2" in str(caught.value)


def test_a_misspelt_kind_of_a_site_is_not_passed_over_in_silence() -> None:
    with pytest.raises(SettingsError, match=r"kind 'xdi' is not in the catalogue.*xid"):
        CATALOGUE.with_overrides([GOOD | {"kind": "xdi"}], version="v")


def test_overrides_are_read_from_a_file_and_change_the_version(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text("kind,code,pattern,role,fault_type,group,note\nxid,109,,noise,,app,ours\n")
    found = load_catalogue(None, overrides=path)
    assert found.version.startswith(f"{CATALOGUE.version}+site@")
    path.write_text("kind,code\nxid,109\n")
    with pytest.raises(SettingsError, match="site.csv: fault overrides, row 1: column 'pattern'"):
        load_catalogue(None, overrides=path)


def test_the_same_row_twice_is_an_error() -> None:
    with pytest.raises(SettingsError, match="the same kind, code and pattern as row 1"):
        FaultCatalogue.from_rows([GOOD, GOOD], version="v")


def test_evidence_that_goes_on_for_weeks_is_an_incident_each_time_labels_take_it_for_over() -> None:
    hours = range(0, 24 * 10, 2)  # of ten days, two hours apart, and the node never left service
    incidents = build_incidents(
        fill(CORE_HEALTH_EVENTS, *(event(60 * hour, 79) for hour in hours)),
        fill(CORE_NODE_STATES),
        fill(CORE_JOBS),
        fill(CORE_INVENTORY),
        catalogue=CATALOGUE,
    )
    first, second = incidents["start"]
    assert LONGEST_OPEN < second - first <= LONGEST_OPEN + COALESCE_WITHIN
