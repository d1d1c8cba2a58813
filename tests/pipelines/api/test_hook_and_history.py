"""Rules of what the hook did and is asked, of histories, and of a database that is gone."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY
from pipelines.api.history_routes import whole_ticks
from pipelines.api.ledger_reader import LedgerReader
from pipelines.api.site_health import SiteHealth
from pipelines.serving.published import latest_published
from pipelines.serving.score_database import write_alerts, write_outcomes, write_tick
from pipelines.serving.score_schema import ALERTS
from remediation.ledger.entries import NewEntry
from remediation.signed_requests import decode
from tests.pipelines.api.api_world import (
    HOUR,
    OPERATOR,
    T0,
    ApiWorld,
    Client,
    bearer,
    with_tokens,
)

DECISION = "0123456789abcdef"
ASK = bearer(OPERATOR)


@pytest.fixture
def world(tmp_path: Path) -> ApiWorld:
    tokens = with_tokens(tmp_path / "secret", inbox=True)
    del tokens["tokens"]["grafana"]
    made = ApiWorld(tmp_path, api=tokens)
    made.publish()
    return made


def wish(**changes: Any) -> dict[str, Any]:
    base = {"what": "approve", "node": "n1", "confirm": "n1", "decision_id": DECISION}
    return {name: value for name, value in (base | changes).items() if value is not None}


def test_decisions_come_newest_first_with_what_guards_said(world: ApiWorld) -> None:
    for number, node in enumerate(("n1", "n2", "n1")):
        world.decide(node, f"{number:016x}")
    client = world.client()
    first = client.get("/api/v1/decisions?limit=2").json()
    assert [row["node"] for row in first["rows"]] == ["n1", "n2"]
    assert first["rows"][0]["verdicts"] == [
        {"guard": "rate", "is_allowed": False, "reason": "too many"}
    ]
    rest = client.get(f"/api/v1/decisions?limit=2&before={first['before']}").json()
    assert ([row["node"] for row in rest["rows"]], rest["before"]) == (["n1"], None)
    of_one = client.get("/api/v1/ledger?node=n2&kind=result").json()["rows"]
    assert [(row["kind"], row["body"]["status"]) for row in of_one] == [("result", "done")]


def test_the_state_says_what_is_held_and_what_waits(world: ApiWorld) -> None:
    _, app = world.build()
    client = Client(app)
    assert client.get("/api/v1/ledger/state").json()["why_none"].startswith("there is no ledger")
    world.decide()
    assert [one["node"] for one in client.get("/api/v1/ledger/state").json()["held"]] == ["n1"]
    with world.ledger() as ledger:
        ledger.append(NewEntry(
            key="released:1", kind="released", recorded_at=world.now, actuator="slurm", node="n1",
            refers_to=f"intent:{DECISION}", body={"why": "undrained"},
        ))  # fmt: skip
        ledger.append(NewEntry(
            key="escalation:x", kind="escalation", recorded_at=world.now, actuator="slurm",
            body={"why": "gone", "text": "look"},
        ))  # fmt: skip
    found = client.get("/api/v1/ledger/state").json()
    assert (found["held"], [one["text"] for one in found["waiting"]]) == ([], ["look"])


def test_reading_never_makes_a_ledger_a_database_or_a_registry(world: ApiWorld) -> None:
    client = world.client()
    before = sorted(path.name for path in world.settings.data_root.iterdir())
    for path in ("decisions", "ledger", "ledger/state", "models", "alerts", "quality", "metrics"):
        assert client.get(f"/api/v1/{path}").status_code == 200
    assert sorted(path.name for path in world.settings.data_root.iterdir()) == before


def test_a_ledger_that_cannot_be_read_is_503_and_scores_go_on(world: ApiWorld) -> None:
    world.settings.ledger_path.write_bytes(b"no ledger at all, but a file of some length" * 50)
    client = world.client()
    answer = client.get("/api/v1/decisions")
    assert (answer.status_code, str(world.folder) in answer.text) == (503, False)
    assert client.get("/api/v1/scores").status_code == 200


def test_the_ledger_is_opened_to_be_read_only(world: ApiWorld) -> None:
    world.decide()
    engine = LedgerReader(world.settings)._engine
    with (
        engine.connect() as connection,
        pytest.raises(sa.exc.OperationalError, match="readonly"),
    ):
        connection.execute(sa.text("CREATE TABLE x (y)"))


def test_an_approval_is_of_the_boot_that_was_decided_on(world: ApiWorld) -> None:
    world.decide()
    answer = world.client().post("/api/v1/requests", json=wish(), headers=ASK)
    said = answer.json()
    assert (answer.status_code, said["boot_id"], said["boot_from"]) == (202, "boot-n1", "decision")
    (path,) = (world.folder / "secret/inbox/new").iterdir()
    request = decode(path.read_bytes()).request
    assert (request.actor, request.node, request.decision_id) == ("ada", "n1", DECISION)
    assert said["ledger_key"] == request.ledger_key


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"confirm": "n2"}, 422, "typed again"),
        ({"confirm": None}, 422, "confirm"),
        ({"decision_id": "f" * 16}, 409, "no such decision"),
        ({"decision_id": None}, 409, "no such decision"),
        ({"node": "n2", "confirm": "n2"}, 409, "no such decision"),
        ({"what": "kill"}, 422, "what"),
        ({"what": "undrain", "node": "n2", "confirm": "n2"}, 409, "that we hold"),
        ({"what": "undrain"}, 422, "decision_id"),
        ({"what": "hold", "decision_id": None}, 422, "until"),
        ({"what": "hold", "decision_id": None, "until": "2026-01-05T12:00:00"}, 422, "no zone"),
        ({"what": "hold", "decision_id": None, "until": "2026-01-04T12:00:00Z"}, 422, "to come"),
        ({"node": "n[1-9]", "confirm": "n[1-9]"}, 409, "no such decision"),
        ({"nonce": "1"}, 422, "Extra inputs"),
    ],
)
def test_a_wish_that_means_nothing_leaves_the_inbox_empty(
    world: ApiWorld, changes: dict[str, Any], status: int, words: str
) -> None:
    world.decide()
    answer = world.client().post("/api/v1/requests", json=wish(**changes), headers=ASK)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert list((world.folder / "secret/inbox/new").iterdir()) == []


def test_only_the_newest_decision_may_be_approved_and_only_in_time(world: ApiWorld) -> None:
    world.decide()
    world.decide(decision_id="f" * 16)
    client = world.client()
    older = client.post("/api/v1/requests", json=wish(), headers=ASK)
    assert (older.status_code, "a newer decision" in older.text) == (409, True)
    world.now = T0 + 2 * HOUR
    late = client.post("/api/v1/requests", json=wish(decision_id="f" * 16), headers=ASK)
    assert (late.status_code, "have expired" in late.text) == (409, True)
    assert list((world.folder / "secret/inbox/new").iterdir()) == []


def test_another_ledger_in_its_place_is_read_anew(world: ApiWorld) -> None:
    world.decide("n1", "1" * 16)
    client = world.client()
    path = world.settings.ledger_path
    assert [one["node"] for one in client.get("/api/v1/ledger/state").json()["held"]] == ["n1"]
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    world.decide("n2", "2" * 16)
    world.decide("n3", "3" * 16)
    held = client.get("/api/v1/ledger/state").json()["held"]
    assert [one["node"] for one in held] == ["n2", "n3"]


def test_a_hold_needs_a_boot_that_someone_saw(world: ApiWorld) -> None:
    hold = wish(what="hold", decision_id=None, until="2026-01-05T12:00:00+01:00")
    client = world.client()
    refused = client.post("/api/v1/requests", json=hold, headers=ASK)
    assert (refused.status_code, "give boot_id" in refused.text) == (409, True)
    seen = client.post("/api/v1/requests", json=hold | {"boot_id": "b7"}, headers=ASK)
    assert (seen.json()["boot_id"], seen.json()["boot_from"]) == ("b7", "request")


def test_without_an_inbox_nothing_can_be_asked_for(tmp_path: Path) -> None:
    world = ApiWorld(tmp_path, api=with_tokens(tmp_path / "secret"))
    answer = world.client().post("/api/v1/requests", json=wish(), headers=ASK)
    assert (answer.status_code, "api.inbox" in answer.text) == (409, True)


def _stored(world: ApiWorld, hours: int) -> None:
    sources, _ = world.build()
    for hour in range(hours):
        world.nodes["n1"] = 0.1 if hour % 2 else 0.9
        world.publish(hour=hour)
        tick = latest_published(world.settings.scores_dir)
        assert tick is not None
        write_tick(
            sources.engine, tick.tick, node_scores=tick.node_scores(), gpu_scores=tick.gpu_scores()
        )
    sources.engine.dispose()


def test_a_history_pages_back_in_time(world: ApiWorld) -> None:
    _stored(world, 4)
    client = world.client()
    first = client.get("/api/v1/nodes/n1/history?limit=3").json()
    assert [row["score"] for row in first["rows"]] == [0.1, 0.9, 0.1]
    rest = client.get(f"/api/v1/nodes/n1/history?limit=3&before={first['before']}").json()
    assert ([row["as_of"] for row in rest["rows"]], rest["before"]) == (
        ["2026-01-05T00:00:00Z"],
        None,
    )


def test_while_the_database_is_gone_only_histories_are(world: ApiWorld) -> None:
    (world.settings.data_root / "scores.db").write_bytes(b"not a database" * 100)
    client = world.client()
    for path in ("nodes/n1/history", "gpus/n1-g0/history", "alerts", "outcomes", "quality"):
        answer = client.get(f"/api/v1/{path}")
        assert (answer.status_code, "database" in answer.json()["detail"]) == (503, True)
        assert str(world.folder) not in answer.text
    for path in ("scores", "nodes/n1", "gpus/n1-g0", "alerts/open", "data-health", "metrics"):
        assert client.get(f"/api/v1/{path}").status_code == 200


def test_alerts_of_one_moment_stay_on_one_page(world: ApiWorld) -> None:
    _stored(world, 1)
    sources, app = world.build()
    rows = [
        {
            "node": f"n{number}", "horizon_h": 24, "as_of": T0 + number // 3 * HOUR,
            "ends_at": T0 + 30 * HOUR, "score": 0.9, "threshold": 0.5, "fault_type": None,
            "model_version": "m",
        }
        for number in range(6)
    ]  # fmt: skip
    write_alerts(sources.engine, pl.DataFrame(rows))
    with sources.engine.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(ALERTS)).scalar() == 6
    client = Client(app)
    first = client.get("/api/v1/alerts?limit=1").json()
    assert [row["node"] for row in first["rows"]] == ["n3", "n4", "n5"]
    rest = client.get(f"/api/v1/alerts?limit=4&before={first['before']}").json()
    assert ([row["node"] for row in rest["rows"]], rest["before"]) == (["n0", "n1", "n2"], None)
    assert client.get("/api/v1/alerts?node=n4").json()["rows"][0]["node"] == "n4"


def test_what_became_of_alerts_is_told_newest_first_and_by_node(world: ApiWorld) -> None:
    sources, app = world.build()
    rows = [
        dict.fromkeys(LIVE_OUTCOMES.schema)
        | {
            "node": node, "as_of": T0 + hour * HOUR, "horizon_h": 24, "model_version": "m",
            "outcome": outcome,
        }
        for node, hour, outcome in (("n1", 0, "hit"), ("n2", 1, "miss"), ("n1", 2, "censored"))
    ]  # fmt: skip
    outcomes = pl.DataFrame(rows, schema=LIVE_OUTCOMES.schema)
    write_outcomes(sources.engine, outcomes, LIVE_QUALITY.empty())
    client = Client(app)
    first = client.get("/api/v1/outcomes?limit=2").json()
    assert [row["outcome"] for row in first["rows"]] == ["censored", "miss"]
    rest = client.get(f"/api/v1/outcomes?limit=2&before={first['before']}").json()
    assert ([row["outcome"] for row in rest["rows"]], rest["before"]) == (["hit"], None)
    of_one = client.get("/api/v1/outcomes?node=n1&since=2026-01-05T01:00:00Z").json()
    assert [row["outcome"] for row in of_one["rows"]] == ["censored"]


@given(hours=st.lists(st.integers(0, 5), max_size=20), limit=st.integers(1, 8))
def test_pages_of_whole_ticks_are_the_whole_record(hours: list[int], limit: int) -> None:
    frame = pl.DataFrame(
        {
            "as_of": [T0 + hour * HOUR for hour in sorted(hours, reverse=True)],
            "row": range(len(hours)),
        },
        schema={"as_of": pl.Datetime("us", "UTC"), "row": pl.Int64},
    )

    def read(*, before: Any, limit: int) -> pl.DataFrame:
        return (frame if before is None else frame.filter(pl.col("as_of") < before)).head(limit)

    found, before = [], None
    while True:
        page = whole_ticks(read, before=before, limit=limit)
        found += page["rows"]
        before = page["before"]
        if before is None:
            break
    assert found == frame.to_dicts()


def test_health_is_looked_for_once_a_minute(world: ApiWorld) -> None:
    sources, _ = world.build()
    seconds = [0.0]
    health = SiteHealth(world.settings, sources.fleet, clock=lambda: seconds[0])
    assert health.data_health(world.now)["sources"] == []
    folder = world.settings.store_root / "core/coverage"
    folder.mkdir(parents=True)
    rows = [
        {"source": "dcgm", "entity_kind": "gpu", "entity_id": f"g{n}", "hour": T0,
         "n_received": n, "n_expected": None, "watermark": T0 + HOUR}
        for n in (0, 7)
    ]  # fmt: skip
    pl.DataFrame(rows, schema_overrides={"n_expected": pl.Int64}).write_parquet(
        folder / "2026-01-05.parquet"
    )
    assert health.data_health(world.now)["sources"] == []
    seconds[0] = 61
    (found,) = health.data_health(world.now)["sources"]
    assert (found["n_entities"], found["n_silent"], found["n_expected"]) == (2, 1, None)
