"""Rules of what is known ten minutes into an incident."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from features.core_tables import CoreTables
from features.diagnosis import build_diagnosis, diagnosis_features, with_telemetry
from features.incidents import build_incidents
from features.tables import CORE_HEALTH_EVENTS, CORE_INVENTORY, CORE_JOBS, CORE_NODE_STATES
from pipelines.sources.catalogue import load_catalogue

T0 = datetime(2026, 1, 10, tzinfo=UTC)
CATALOGUE = load_catalogue(None)
Row = dict[str, Any]


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def fill(contract: Any, *rows: Row) -> pl.DataFrame:
    names = contract.schema.names()
    return pl.DataFrame([{**dict.fromkeys(names), **row} for row in rows], schema=contract.schema)


def event(minutes: float, code: int | None, gpu: str | None = "g", kind: str = "xid") -> Row:
    return {
        "event_id": f"{kind}{code}{minutes}", "ts": at(minutes), "node": "n", "gpu_uuid": gpu,
        "kind": kind, "code": code, "count": 1, "message": "",
    }  # fmt: skip


def down(start: float, reason: str | None, state: str = "down") -> Row:
    times = {"valid_from": at(start), "valid_to": at(start + 60)}
    return {"node": "n", "state": state, "reason": reason, **times}


def cases(
    *events: Row, states: tuple[Row, ...] = (), jobs: tuple[Row, ...] = ()
) -> list[dict[str, Any]]:
    tables = CoreTables(
        health_events=fill(CORE_HEALTH_EVENTS, *events),
        node_states=fill(CORE_NODE_STATES, *states),
        jobs=fill(CORE_JOBS, *jobs),
    )
    incidents = build_incidents(
        tables.health_events,
        tables.node_states,
        tables.jobs,
        fill(CORE_INVENTORY),
        catalogue=CATALOGUE,
    )
    return build_diagnosis(incidents, tables, catalogue=CATALOGUE).to_dicts()


def test_the_rule_is_the_most_specific_evidence_of_the_first_ten_minutes() -> None:
    (case,) = cases(event(0, 79), event(5, 48), event(10, 64))
    assert (case["rule_type"], case["second_rule_type"]) == ("hbm_uncorrectable", "off_bus")
    assert case["as_of"] == at(10)


def test_a_node_down_without_a_known_reason_is_the_hosts_by_the_rule() -> None:
    (case,) = cases(event(-30, None, None, "link"), states=(down(0, "Not responding"),))
    assert (case["rule_type"], case["second_rule_type"]) == ("host", None)
    assert (case["is_gpu"], case["is_rule_host"], case["is_down"]) == (0, 1, 1)
    assert case["node_link_events_24h"] == 1


def test_signs_count_the_gpus_own_events_and_those_of_others_apart() -> None:
    own, other = [c for c in cases(event(0, 79), event(1, 74, "h")) if c["is_gpu"]]
    assert (own["own_off_bus_events"], own["others_nvlink_events"]) == (1, 1)
    assert (other["own_nvlink_events"], other["others_off_bus_events"]) == (1, 1)


def test_a_job_lost_with_the_node_is_counted() -> None:
    job = {"job_id": "1", "attempt": 0, "nodes": ["n", "m"], "end": at(2), "end_state": "NODE_FAIL"}
    assert cases(event(0, 79), jobs=(job,))[0]["jobs_lost"] == 1


@pytest.mark.parametrize("minutes", [10, 11, 600])
def test_nothing_from_ten_minutes_on_changes_a_sign(minutes: float) -> None:
    later = {
        "events": (event(minutes, 64), event(minutes, 74, "h")),
        "states": (down(minutes, "x"),),
    }
    job = {"job_id": "1", "attempt": 0, "nodes": ["n"], "end": at(minutes), "end_state": "FAILED"}
    before = cases(event(0, 79))[0]
    after = cases(event(0, 79), *later["events"], states=later["states"], jobs=(job,))[0]
    assert {name: after[name] for name in before} == before | {"incident_id": after["incident_id"]}


def test_telemetry_is_the_gpus_own_or_the_median_of_its_node() -> None:
    found = pl.DataFrame(
        cases(event(0, 79), states=(down(-200, "IB port down"),)), infer_schema_length=None
    )
    rows = [
        (gpu, "n", moment, value)
        for moment in found["telemetry_as_of"]
        for gpu, value in (("g", 7.0), ("h", 2.0), ("i", 1.0))
    ]
    matrix = pl.DataFrame(
        rows, schema=["entity_id", "node", "as_of", "power_w"], orient="row"
    ).with_columns(pl.col("as_of").cast(found.schema["telemetry_as_of"]))
    told = with_telemetry(found, matrix, names=["power_w"])
    assert dict(told.select("entity_kind", "power_w").iter_rows()) == {"gpu": 7.0, "node": 2.0}
    assert set(diagnosis_features()) <= set(told.columns)
