"""Rules of judging alerts against incidents, against nested loops."""

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.contracts import UTC_TIME
from features.errors import DataError
from features.tables import CORE_INCIDENTS
from models.evaluation.event_metrics import evaluate_events, incidents_by_entity, judge_alerts
from models.evaluation.row_metrics import Bootstrap
from models.specs import Task

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASK = Task(horizon_h=6, lead=2 * HOUR, trained_on="synthetic")
NODE_TASK = Task(horizon_h=6, lead=2 * HOUR, trained_on="synthetic", entity_kind="node")
FAST = Bootstrap(resamples=20)


def incident_frame(starts: list[tuple[str, float]], kind: str = "gpu") -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "incident_id": f"inc-{i}",
                "entity_kind": kind,
                "entity_id": entity,
                "node": "n1",
                "start": START + hour * HOUR,
                "end": None,
                "fault_type": "gsp",
                "evidence": "made up",
                "detected_by": "test",
                "catalogue_version": "1",
            }
            for i, (entity, hour) in enumerate(starts)
        ],
        schema=CORE_INCIDENTS.schema,
    )


def row_frame(rows: list[tuple[str, int, int | None]]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "entity_id": [entity for entity, _, _ in rows],
            "node": ["n1" if entity == "a" else "n2" for entity, _, _ in rows],
            "as_of": [START + hour * HOUR for _, hour, _ in rows],
            "label": [label for _, _, label in rows],
        },
        schema={"entity_id": pl.String, "node": pl.String, "as_of": UTC_TIME, "label": pl.Int8},
    )


def events(alerts, rows, incidents, task=TASK):
    return evaluate_events(alerts, rows, incidents=incidents, task=task, tick=HOUR, bootstrap=FAST)


@pytest.mark.parametrize(
    ("start", "is_caught"), [(1.99, False), (2, True), (7.99, True), (8, False)]
)
def test_an_alert_catches_an_incident_from_lead_to_lead_plus_horizon(start, is_caught) -> None:
    rows = row_frame([("a", 0, 1)])
    found = events(rows, rows, incident_frame([("a", start)]))
    assert (found.n_caught, found.n_true) == (is_caught, is_caught)
    assert found.lead_h == ((pytest.approx(start),) if is_caught else ())


@given(
    starts=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 40)), max_size=6),
    alerted=st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 30))),
    watched=st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 30))),
)
def test_events_are_those_of_nested_loops(starts, alerted, watched) -> None:
    def caught_by(entity: str, hour: int) -> list[int]:
        return [i for i, (e, s) in enumerate(starts) if e == entity and 2 <= s - hour < 8]

    watched = watched | alerted
    rows = row_frame([(e, h, int(bool(caught_by(e, h)))) for e, h in sorted(watched)])
    alerts = rows.filter(
        pl.struct("entity_id", "as_of").is_in(
            [{"entity_id": e, "as_of": START + h * HOUR} for e, h in alerted]
        )
    )
    found = events(alerts, rows, incident_frame(starts))
    true = [alert for alert in alerted if caught_by(*alert)]
    in_scope = {i for row in watched for i in caught_by(*row)}
    caught = {i for row in alerted for i in caught_by(*row)}
    leads = sorted(
        max(starts[i][1] - h for e, h in alerted if i in caught_by(e, h)) for i in caught
    )
    assert (found.n_alerts, found.n_true) == (len(alerted), len(true))
    assert found.n_false == len(alerted) - len(true)
    assert (found.n_incidents, found.n_caught) == (len(in_scope), len(caught))
    assert list(found.lead_h) == leads
    assert found.recall.value == (len(caught) / len(in_scope) if in_scope else None)
    assert found.precision.value == (len(true) / len(alerted) if alerted else None)


def test_an_alert_on_a_censored_row_is_neither_true_nor_false() -> None:
    rows = row_frame([("a", 0, None), ("b", 0, 0)])
    found = events(rows, rows, incident_frame([]))
    assert (found.n_true, found.n_false, found.n_unjudged) == (0, 1, 1)
    assert found.precision.value == 0.0


def test_an_incident_no_row_could_have_caught_is_not_missed() -> None:
    rows = row_frame([("a", 0, 0)])
    found = events(rows.head(0), rows, incident_frame([("a", 30), ("a", 1)]))
    assert found.n_incidents == 0
    assert found.recall.value is None


def test_the_first_alert_gives_the_lead() -> None:
    rows = row_frame([("a", 0, 1), ("a", 3, 1)])
    found = events(rows, rows, incident_frame([("a", 6)]))
    assert found.lead_h == (6.0,)
    assert found.n_true == 2


def test_alerts_are_counted_against_nodes_watched_not_gpus() -> None:
    rows = row_frame([("a", h, 0) for h in range(24)])
    same_node = rows.with_columns(entity_id=pl.lit("a2"))
    found = events(rows.head(1), pl.concat([rows, same_node]), incident_frame([]))
    assert found.node_days == pytest.approx(1.0)
    assert found.alerts_per_1000_nodes_per_day == pytest.approx(1000.0)


def test_a_node_answers_for_its_gpus_and_for_itself() -> None:
    of_gpu, of_node = incident_frame([("a", 3)]), incident_frame([("n7", 4)], kind="node")
    both = pl.concat([of_gpu, of_node.with_columns(incident_id=pl.lit("inc-n"))])
    assert incidents_by_entity(both, entity_kind="node")["entity_id"].to_list() == ["n1", "n7"]
    assert incidents_by_entity(both, entity_kind="gpu")["entity_id"].to_list() == ["a"]
    rows = row_frame([("n1", 0, 1)])
    assert events(rows, rows, both, task=NODE_TASK).n_caught == 1


def test_a_result_is_told_without_the_unit_that_has_most_of_it() -> None:
    rows = row_frame([("a", 0, 1), ("a", 1, 1), ("b", 0, 0), ("c", 0, 1), ("d", 9, 0)])
    incidents = pl.concat(
        [
            incident_frame([("a", 5)]),
            incident_frame([("c", 5)]).with_columns(incident_id=pl.lit("inc-c")),
        ]
    )
    alerts = rows.filter(pl.col("entity_id").is_in(["a", "b"]))
    found = events(alerts, rows, incidents)
    assert (found.precision.value, found.recall.value) == (pytest.approx(2 / 3), 0.5)
    assert found.top_unit == "a"
    assert found.precision_without_top_unit.value == 0.0
    assert found.recall_without_top_unit.value == 0.0


def test_an_alert_whose_outcome_is_censored_is_neither_true_nor_false() -> None:
    rows = row_frame([("a", 0, None)])
    incidents = incident_frame([("a", 3)])
    judged = judge_alerts(rows, rows, incidents=incidents, task=TASK)
    assert judged["outcome"].to_list() == ["unjudged"]
    found = events(rows, rows, incidents)
    assert (found.n_true, found.n_false, found.n_unjudged) == (0, 0, 1)
    assert (found.n_incidents, found.n_caught) == (0, 0)


def test_a_missing_column_is_named() -> None:
    rows = row_frame([("a", 0, 1)])
    with pytest.raises(DataError, match="rows lack label"):
        judge_alerts(rows, rows.drop("label"), incidents=incident_frame([]), task=TASK)


def test_event_metrics_are_plain_values() -> None:
    rows = row_frame([("a", 0, 1)])
    json.dumps(events(rows, rows, incident_frame([("a", 5)])).to_dict(), allow_nan=False)
