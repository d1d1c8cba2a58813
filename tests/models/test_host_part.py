"""Rules of the host part: a node's own incidents by its own counts."""

import math
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from features.tables import CORE_INCIDENTS
from models.host_part import HostPart, fit_host
from models.node_scores import NodeCombination
from models.specs import Task

T0 = datetime(2026, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASK = Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="synthetic", entity_kind="node")
LINKS = "node_link_event_count_24h"


def record(n: int, *, kind: str = "node") -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Of 4 n nodes n have links that change; half of those, and few others, then fail."""
    names = [f"n{i}" for i in range(4 * n)]
    failing = [name for i, name in enumerate(names) if (i < n and i % 2 == 0) or i % (2 * n) == n]
    gpus = pl.DataFrame({"node": names, "as_of": [T0] * 4 * n, LINKS: [3.0] * n + [0.0] * 3 * n})
    nodes = pl.DataFrame({"entity_id": names, "as_of": [T0] * 4 * n, "label": [0] * 4 * n})
    incidents = pl.DataFrame(
        {
            "incident_id": failing,
            "entity_kind": [kind] * len(failing),
            "entity_id": failing,
            "node": failing,
            "start": [T0 + HOUR] * len(failing),
        }
    )
    missing = {c: None for c in CORE_INCIDENTS.schema.names() if c not in incidents.columns}
    return gpus, nodes, incidents.with_columns(**{k: pl.lit(v) for k, v in missing.items()})


def test_nodes_whose_links_change_fail_more() -> None:
    gpus, nodes, incidents = record(40)
    host = fit_host(gpus, nodes, incidents=incidents, task=TASK)
    assert host is not None
    flapping, calm = host.probability(gpus[[0, -1]])
    assert flapping == pytest.approx(0.5, abs=0.1)
    assert calm < 0.1
    assert HostPart.from_dict(host.to_dict()) == host


def test_link_changes_are_heard_however_rare_they_are() -> None:
    gpus, nodes, incidents = record(20)
    calm = [f"m{i}" for i in range(100_000)]
    gpus = pl.concat([gpus, pl.DataFrame({"node": calm, "as_of": T0, LINKS: 0.0}, gpus.schema)])
    nodes = pl.concat(
        [nodes, pl.DataFrame({"entity_id": calm, "as_of": T0, "label": 0}, nodes.schema)]
    )
    host = fit_host(gpus, nodes, incidents=incidents, task=TASK)
    assert host is not None
    assert host.probability(gpus[[0]])[0] > 0.1


def test_a_link_that_changed_once_is_as_bad_a_sign_as_one_that_changed_often() -> None:
    gpus, nodes, incidents = record(40)
    host = fit_host(gpus, nodes, incidents=incidents, task=TASK)
    assert host is not None
    once, often = host.probability(pl.DataFrame({LINKS: [1.0, 9.0]}))
    assert once == often


def test_a_host_part_of_an_earlier_release_scores_as_it_did() -> None:
    told = {"features": [LINKS], "weights": [2.0], "intercept": -4.0}
    host = HostPart.from_dict(told)
    assert host.probability(pl.DataFrame({LINKS: [3.0]}))[0] == pytest.approx(
        1 / (1 + math.exp(4.0 - 2.0 * math.log(4.0)))
    )


def test_incidents_of_gpus_few_incidents_and_no_counts_give_no_host_part() -> None:
    gpus, nodes, incidents = record(40, kind="gpu")
    assert fit_host(gpus, nodes, incidents=incidents, task=TASK) is None
    gpus, nodes, incidents = record(40)
    assert fit_host(gpus, nodes, incidents=incidents.head(4), task=TASK) is None
    assert fit_host(gpus.drop(LINKS), nodes, incidents=incidents, task=TASK) is None


def test_nodes_that_weigh_more_count_for_more() -> None:
    gpus, nodes, incidents = record(40)
    heavy = nodes.with_columns(
        weight=pl.when(pl.col("entity_id").is_in(incidents["node"])).then(1.0).otherwise(10.0)
    )
    plain, weighed = (
        fit_host(gpus, told, incidents=incidents, task=TASK) for told in (nodes, heavy)
    )
    assert plain is not None
    assert weighed is not None
    assert weighed.probability(gpus[[0]])[0] < 0.5 * plain.probability(gpus[[0]])[0]


def test_a_count_never_speaks_for_a_node() -> None:
    gpus, nodes, incidents = record(40)
    turned = gpus.with_columns((3.0 - pl.col(LINKS)).alias(LINKS))
    assert fit_host(turned, nodes, incidents=incidents, task=TASK) is None


def test_a_node_score_has_the_host_part_where_its_counts_are_known() -> None:
    nodes = NodeCombination(0.01, host=HostPart((LINKS,), (2.0,), -4.0))
    gpus = pl.DataFrame(
        {"node": ["n", "n"], "as_of": [T0, T0], "score": [0.1, None], LINKS: [3.0, 3.0]}
    )
    own = nodes.host.probability(gpus)[0] if nodes.host else 0.0
    assert nodes.combine(gpus)["score"][0] == pytest.approx(1 - 0.9 * (1 - own))
    assert nodes.combine(gpus.drop(LINKS))["score"][0] == pytest.approx(1 - 0.9 * 0.99)
    assert NodeCombination.from_dict(nodes.to_dict()) == nodes
