"""Rules of combining GPU scores into node scores."""

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.contracts import UTC_TIME
from features.errors import DataError
from features.tables import CORE_INCIDENTS
from models.node_scores import NodeCombination, host_probability
from models.specs import Task

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASK = Task(horizon_h=6, lead=timedelta(minutes=30), trained_on="synthetic")


def gpus(scores: list[float | None], node: str | None = "n1") -> pl.DataFrame:
    size = len(scores)
    return pl.DataFrame(
        {"node": [node] * size, "as_of": [NOON] * size, "score": scores},
        schema={"node": pl.String, "as_of": UTC_TIME, "score": pl.Float64},
    )


@given(st.lists(st.floats(1e-6, 0.99), min_size=1, max_size=8), st.floats(0.0, 0.5))
def test_a_node_fails_when_any_of_its_parts_does(scores, host) -> None:
    found = NodeCombination(host).combine(gpus(scores))["score"][0]
    assert found == pytest.approx(1 - (1 - host) * np.prod(1 - np.asarray(scores)), rel=1e-6)


def test_a_score_that_is_unknown_takes_no_part_and_is_counted() -> None:
    found = NodeCombination(0.0).combine(gpus([0.5, None, 0.5]))
    assert found["score"][0] == pytest.approx(0.75)
    assert found.select("n_gpus", "n_unknown").row(0) == (3, 1)


def test_a_node_of_unknown_scores_is_unknown_not_its_host_part() -> None:
    found = NodeCombination(0.3).combine(gpus([None, None]))
    assert found["score"].to_list() == [None]


def test_a_certain_gpu_gives_a_finite_calibrated_node() -> None:
    found = NodeCombination(0.0).combine(gpus([1.0, 0.1]))["score"][0]
    assert found == pytest.approx(1.0)


def test_gpus_in_no_node_belong_to_none() -> None:
    rows = pl.concat([gpus([0.5]), gpus([0.9], node=None)])
    assert NodeCombination(0.0).combine(rows)["node"].to_list() == ["n1"]


def test_moments_and_nodes_are_combined_apart() -> None:
    later = gpus([0.2]).with_columns(as_of=pl.lit(NOON + HOUR, dtype=UTC_TIME))
    found = NodeCombination(0.0).combine(pl.concat([gpus([0.9]), later, gpus([0.4], "n0")]))
    assert found["score"].to_list() == pytest.approx([0.4, 0.9, 0.2])


def test_calibration_is_on_node_labels_and_keeps_the_order() -> None:
    rng = np.random.default_rng(2)
    nodes = [f"n{i:03d}" for i in range(400)]
    score = rng.random(400) * 0.5
    rows = pl.concat([gpus([float(s)], n) for n, s in zip(nodes, score, strict=True)])
    label = (rng.random(400) < score / 5).astype(int)  # five times rarer than the product says
    labels = pl.DataFrame(
        {"entity_id": nodes, "as_of": [NOON] * 400, "label": label},
        schema={"entity_id": pl.String, "as_of": UTC_TIME, "label": pl.Int8},
    )
    fitted = NodeCombination(0.01).calibrated_on(rows, labels)
    found = fitted.combine(rows)["score"].to_numpy()
    assert found.mean() == pytest.approx(label.mean(), rel=0.1)
    assert (np.argsort(found) == np.argsort(score)).all()
    again = NodeCombination.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again.combine(rows).equals(fitted.combine(rows))
    censored = labels.with_columns(label=pl.lit(None, dtype=pl.Int8))
    with pytest.raises(DataError, match="got 0 and 0"):
        NodeCombination(0.01).calibrated_on(rows, censored)


def incident(kind: str, start: datetime) -> pl.DataFrame:
    values = dict.fromkeys(CORE_INCIDENTS.schema.names())
    values |= {
        "incident_id": kind,
        "entity_kind": kind,
        "entity_id": "n1" if kind == "node" else "gpu-1",
        "node": "n1",
        "start": start,
    }
    return pl.DataFrame([values], schema=CORE_INCIDENTS.schema)


@pytest.mark.parametrize(
    ("kind", "after", "count"),
    [
        ("node", timedelta(minutes=30), 1),  # exactly L ahead: seen
        ("node", timedelta(minutes=29), 0),
        ("node", timedelta(hours=6, minutes=30), 0),  # exactly L + H ahead: not seen
        ("gpu", timedelta(hours=1), 0),  # a GPU's incident is in the GPU scores already
    ],
)
def test_the_host_part_counts_incidents_of_nodes_within_the_horizon(kind, after, count) -> None:
    rows = pl.DataFrame(
        {"entity_id": ["n1", "n2", "n3"], "as_of": [NOON] * 3, "label": [0, 0, None]},
        schema={"entity_id": pl.String, "as_of": UTC_TIME, "label": pl.Int8},
    )
    found = host_probability(rows, incidents=incident(kind, NOON + after), task=TASK)
    assert found == pytest.approx((count + 1) / 4)


def test_node_rows_without_labels_are_refused() -> None:
    rows = pl.DataFrame(schema={"entity_id": pl.String, "as_of": UTC_TIME, "label": pl.Int8})
    with pytest.raises(DataError, match="no node row has a label"):
        host_probability(rows, incidents=CORE_INCIDENTS.empty(), task=TASK)
