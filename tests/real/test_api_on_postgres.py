"""The API reads the hook's ledger on a real PostgreSQL, and goes on when the server is gone."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remediation.ledger.postgres import PostgresLedger
from tests.pipelines.api.api_world import ApiWorld, Client

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import ABSENT, PROGRAMS, PostgresServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAMS is None, reason=ABSENT),
]
pytest.importorskip("psycopg", reason="forewarn[postgres] is not installed")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as started:
        yield started


def test_decisions_come_from_the_server_and_its_loss_is_503(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conninfo = server.database("api")
    monkeypatch.setenv("FOREWARN_API_LEDGER", conninfo)
    world = ApiWorld(tmp_path, api={"ledger": {"postgres_variable": "FOREWARN_API_LEDGER"}})
    world.publish()
    world.open_ledger = lambda _: PostgresLedger(conninfo)
    world.decide()
    _, app = world.build()
    client = Client(app)
    assert [row["node"] for row in client.get("/api/v1/decisions").json()["rows"]] == ["n1"]
    assert [one["node"] for one in client.get("/api/v1/ledger/state").json()["held"]] == ["n1"]
    server.kill()
    gone = client.get("/api/v1/decisions")
    assert (gone.status_code, conninfo in gone.text) == (503, False)
    assert client.get("/api/v1/scores").status_code == 200
