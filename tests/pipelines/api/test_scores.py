"""Rules of served scores: one tick at a time, bounded pages, null with a reason, tags by tick."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.flow.publish import LATEST, publish_scores
from tests.pipelines.api.api_world import HOUR, T0, ApiWorld, score_rows


@pytest.fixture
def world(tmp_path: Path) -> ApiWorld:
    made = ApiWorld(tmp_path)
    made.publish()
    return made


def test_nodes_come_by_falling_score_and_unknown_ones_last_with_a_reason(world: ApiWorld) -> None:
    found = world.client().get("/api/v1/scores").json()
    assert [row["entity_id"] for row in found["rows"]] == ["n1", "n2", "n4", "n3"]
    unknown = found["rows"][-1]
    assert (unknown["score"], unknown["status"], unknown["cause"]) == (None, "unknown", "stale")
    assert unknown["status_reason"] == "newest sample is 45 min old"
    assert found["rows"][0]["fault_probabilities"] == pytest.approx(
        {"hbm_uncorrectable": 0.6, "row_remap_failure": 0.4}
    )
    assert (found["as_of"], found["horizon_h"]) == ("2026-01-05T00:00:00Z", 24)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("rack=r1", ["n1", "n2"]),
        ("rack=r9", []),
        ("node=n2", ["n2"]),
        ("status=unknown", ["n3"]),
        ("min_score=0.2", ["n1", "n2", "n4"]),
        ("min_score=0", ["n1", "n2", "n4"]),
        ("fault_type=nvlink&rack=r1&limit=1", ["n1"]),
        ("kind=gpu&node=n1", ["n1-g0", "n1-g1"]),
        ("horizon_h=1&status=ok", ["n1", "n2", "n4"]),
    ],
)
def test_filters_narrow_the_ranking(world: ApiWorld, query: str, expected: list[str]) -> None:
    found = world.client().get(f"/api/v1/scores?{query}").json()
    assert [row["entity_id"] for row in found["rows"]] == expected


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("limit=0", 422, "greater than or equal to 1"),
        ("limit=1001", 422, "less than or equal to 1000"),
        ("nodes=n1", 422, "Extra inputs"),
        ("horizon_h=7", 404, "scored are: 1, 24"),
        ("fault_type=rust", 422, "expected one of hbm_uncorrectable"),
        ("after=x", 422, "should match pattern"),
        ("min_score=nan", 422, "finite"),
    ],
)
def test_a_query_that_means_nothing_is_refused_in_one_shape(
    world: ApiWorld, query: str, status: int, words: str
) -> None:
    answer = world.client().get(f"/api/v1/scores?{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert words in answer.json()["detail"]


def test_a_node_shows_its_gpus_and_why_its_rack_is_unknown(world: ApiWorld) -> None:
    client = world.client()
    found = client.get("/api/v1/nodes/n4").json()
    assert (found["rack"], found["why_no_rack"]) == (
        None,
        "the topology does not have this node",
    )
    assert [one["gpu_uuid"] for one in found["gpus"]] == ["n4-g0", "n4-g1"]
    gpu = client.get("/api/v1/gpus/n1-g1").json()
    assert (gpu["node"], gpu["rack"], len(gpu["scores"])) == ("n1", "r1", 2)
    assert client.get("/api/v1/nodes/n5").status_code == 404


def test_the_same_tick_is_not_sent_twice(world: ApiWorld) -> None:
    client = world.client()
    tag = client.get("/api/v1/nodes/n1").headers["etag"]
    again = client.get("/api/v1/nodes/n1", headers={"if-none-match": f'"x", {tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    world.publish(hour=1)
    world.seconds = 2
    assert client.get("/api/v1/nodes/n1", headers={"if-none-match": tag}).status_code == 200


def test_an_expired_tick_says_so_although_nothing_was_published(world: ApiWorld) -> None:
    client = world.client()
    before = client.get("/api/v1/nodes/n1")
    world.now += 3 * HOUR
    after = client.get("/api/v1/nodes/n1", headers={"if-none-match": before.headers["etag"]})
    assert (before.json()["is_expired"], after.json()["is_expired"]) == (False, True)


def test_a_large_answer_is_compressed_where_that_is_taken(world: ApiWorld) -> None:
    client = world.client()
    plain = client.get("/api/v1/scores?kind=gpu", headers={"accept-encoding": "identity"})
    packed = client.get("/api/v1/scores?kind=gpu", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert (packed.content, int(packed.headers["content-length"]) < len(plain.content)) == (
        plain.content,
        True,
    )


def test_a_broken_tick_leaves_the_old_one_and_is_reported(world: ApiWorld) -> None:
    client = world.client()
    assert client.get("/api/v1/nodes/n1").json()["as_of"] == "2026-01-05T00:00:00Z"
    world.nodes["n1"] = 0.1
    world.publish(hour=1)
    folder = world.settings.scores_dir
    files = sorted((folder / "gpu_scores").glob("*T01*.parquet"))
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:-1] + b"x")
    world.seconds = 2
    shown = client.get("/api/v1/nodes/n1").json()
    assert (shown["as_of"], shown["scores"][0]["score"]) == ("2026-01-05T00:00:00Z", 0.9)
    health = client.get("/api/v1/data-health")
    assert "cannot be read" in health.json()["problems"][0]
    assert str(folder) not in health.text
    files[0].write_bytes(whole)
    world.seconds = 20
    shown = client.get("/api/v1/nodes/n1").json()
    assert (shown["as_of"], shown["scores"][0]["score"]) == ("2026-01-05T01:00:00Z", 0.1)
    world.now += HOUR
    words = client.get("/api/v1/data-health").json()["problems"]
    assert words == ["only 75.0% of the GPUs have a score"]


def test_a_failure_nobody_foresaw_is_reported_beside_the_old_tick(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, _ = world.build()
    sources.fleet.current()
    world.publish(hour=1)

    def fail(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("pipelines.api.fleet_view.read_snapshot", fail)
    with pytest.raises(ZeroDivisionError):
        sources.fleet.refresh()
    assert "cannot be read" in sources.health.data_health(world.now)["problems"][0]


def test_a_broken_topology_costs_the_racks_only(world: ApiWorld) -> None:
    for path in (world.settings.store_root / "core" / "topology").rglob("*.parquet"):
        path.write_bytes(b"broken")
    node = world.client().get("/api/v1/nodes/n1").json()
    assert node["why_no_rack"] == "the topology cannot be read: core/topology"


def test_a_tick_without_nodes_is_an_answer(tmp_path: Path) -> None:
    world = ApiWorld(tmp_path)
    publish_scores(
        world.settings.scores_dir,
        gpu_scores=score_rows("gpu", T0, {"n1-g0": 0.5}, (24,)),
        node_scores=score_rows("node", T0, {}, (24,)),
        published_at=T0,
        ttl=HOUR,
    )
    client = world.client()
    answer = client.get("/api/v1/scores")
    assert (answer.status_code, "scored are: none" in answer.text) == (404, True)
    assert client.get("/api/v1/scores?kind=gpu").json()["n_total"] == 1
    assert client.get("/api/v1/nodes/n1").json()["n_gpus"] == 1


def test_the_folder_is_looked_at_once_a_second(world: ApiWorld) -> None:
    client = world.client()
    client.get("/api/v1/nodes/n1")
    world.publish(hour=1)
    world.seconds = 0.9
    assert client.get("/api/v1/nodes/n1").json()["as_of"] == "2026-01-05T00:00:00Z"
    world.seconds = 1.0
    assert client.get("/api/v1/nodes/n1").json()["as_of"] == "2026-01-05T01:00:00Z"


def test_without_scores_it_is_not_ready_and_says_so(tmp_path: Path) -> None:
    world = ApiWorld(tmp_path)
    client = world.client()
    assert client.get("/api/v1/health/live").status_code == 200
    assert client.get("/api/v1/health/ready").status_code == 503
    assert client.get("/api/v1/scores").json()["detail"] == "no scores are published yet"
    assert client.get("/api/v1/data-health").json()["scores"] is None
    world.publish()
    world.seconds = 2
    assert client.get("/api/v1/health/ready").status_code == 200
    (world.settings.scores_dir / LATEST).unlink()
    world.seconds = 4
    assert client.get("/api/v1/scores").status_code == 503


def test_a_cursor_of_another_tick_says_begin_again(world: ApiWorld) -> None:
    client = world.client()
    after = client.get("/api/v1/scores?limit=2").json()["after"]
    wrong = client.get(f"/api/v1/scores?limit=2&horizon_h=1&after={after}")
    assert (wrong.status_code, "cursor of the list node-24h" in wrong.text) == (400, True)
    world.nodes["n2"] = 0.95
    world.publish(hour=1)
    world.seconds = 2
    answer = client.get(f"/api/v1/scores?limit=2&after={after}")
    assert (answer.status_code, "begin again" in answer.json()["detail"]) == (410, True)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_pages_together_are_the_whole_list_without_duplicates(
    world: ApiWorld, data: st.DataObject
) -> None:
    score = st.none() | st.sampled_from([0.0, 0.1, 0.5, 1.0])
    names = data.draw(
        st.dictionaries(st.sampled_from([f"n{i}" for i in range(9)]), score, min_size=1)
    )
    limit = data.draw(st.integers(1, 5))
    path = data.draw(
        st.sampled_from(
            ["scores?kind=node", "scores?kind=gpu&rack=r1", "scores?status=ok", "nodes?"]
        )
    )
    world.nodes = names
    world.publish()
    world.seconds += 10
    client = world.client()
    whole = client.get(f"/api/v1/{path}&limit=1000").json()
    pages, after = [], ""
    while True:
        page = client.get(f"/api/v1/{path}&limit={limit}{after}").json()
        assert len(page["rows"]) <= limit
        pages += page["rows"]
        if page["after"] is None:
            break
        after = f"&after={page['after']}"
    assert pages == whole["rows"]
    assert len(pages) == whole["n_total"]


def test_data_health_names_silent_nodes_and_counts_causes(world: ApiWorld) -> None:
    found = world.client().get("/api/v1/data-health").json()
    scores = found["scores"]
    assert (scores["silent_nodes"], scores["unknown_gpus"]) == (["n3"], {"stale": 2})
    assert found["problems"] == ["only 75.0% of the GPUs have a score"]
    assert {(one["table"], one["covered_until"], one["why"]) for one in found["tables"]} == {
        ("core/gpu_telemetry", None, "nothing is stored"),
        ("core/health_events", None, "nothing is stored"),
    }
    world.now = world.now - timedelta(hours=1)
    words = world.client().get("/api/v1/data-health").json()["problems"]
    assert "the scores are of a moment to come: a clock is wrong" in words


def test_a_parameter_given_twice_is_refused_by_name(world: ApiWorld) -> None:
    answer = world.client().get("/api/v1/scores?rack=r1&rack=r2")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "query.rack: given 2 times; give it once"
