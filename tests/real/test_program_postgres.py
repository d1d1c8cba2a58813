"""Two hooks on one PostgreSQL: one ledger, one lease, no node taken twice."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remediation.program.parts import open_leadership
from remediation.program.round import REFUSED, opened, run_round
from tests.remediation.program_world import make_world

sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import ABSENT, PROGRAMS, PostgresServer

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAMS is None, reason=ABSENT),
]
pytest.importorskip("psycopg", reason="forewarn[postgres] is not installed")


@pytest.fixture(scope="module")
def conninfo() -> Iterator[str]:
    with PostgresServer() as server:
        yield server.database("hooks")


def test_hooks_on_one_postgres_take_turns_and_know_each_others_holds(
    conninfo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREWARN_LEDGER", conninfo)
    world = make_world(tmp_path, monkeypatch)
    world.publish({"n1": 0.9})
    one = world.write(ledger={"postgres_variable": "FOREWARN_LEDGER"}, state="one")
    other = world.write(ledger={"postgres_variable": "FOREWARN_LEDGER"}, state="other")
    for settings in (one, other):
        settings.state.mkdir()
    with opened(one) as hook, opened(other) as second:
        lease = open_leadership(other)
        assert lease.take()
        assert run_round(hook).exit_code == REFUSED
        lease.release()
        run_round(hook)
        made = run_round(second)
    assert world.drained == ["n1"]
    assert made.run is not None
    assert [one.decision.node for one in made.run.judged if one.is_settled] == ["n1"]
