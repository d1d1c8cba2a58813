"""Rules of the system's own state, and of the audit trail."""

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.board.health import signals
from pipelines.board.hook_view import HookView
from pipelines.serving.score_database import Tick
from pipelines.serving.scorer_status import ScorerStatus
from remediation.inbox.requested import Requested
from remediation.ledger.entries import NewEntry
from tests.pipelines.board.board_world import BoardWorld

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def tick(*, age: timedelta = timedelta(minutes=5), coverage: float = 1.0) -> Tick:
    """A tick of some age, valid for two hours."""
    return Tick(
        as_of=NOW - age, published_at=NOW - age, expires_at=NOW - age + 2 * HOUR,
        coverage=coverage, model_versions={}, trained_on="real", digest="d",
    )  # fmt: skip


def scorer(**more: object) -> ScorerStatus:
    """A scorer that gave a sign a minute ago."""
    status = ScorerStatus(phase="idle", updated_at=(NOW - timedelta(minutes=1)).isoformat())
    for name, value in more.items():
        setattr(status, name, value)
    return status


GOOD_HOOK = HookView(actuator="slurm", wrote_at=NOW - timedelta(minutes=1))


@pytest.mark.parametrize(
    ("part", "given", "state", "words"),
    [
        (0, {}, "ok", "hold for another"),
        (0, {"tick": tick(age=3 * HOUR)}, "attention", "Expired"),
        (0, {"tick": tick(age=-HOUR)}, "attention", "a clock is wrong"),
        (0, {"tick": None}, "attention", "No scores are published"),
        (0, {"problem": "cannot be read"}, "attention", "cannot be read"),
        (1, {}, "ok", "Phase idle; last sign"),
        (1, {"scorer": scorer(why="waiting")}, "ok", "Phase idle: waiting; last sign"),
        (1, {"scorer": None}, "unknown", "No scorer runs"),
        (1, {"scorer": scorer(last_error="disk full")}, "attention", "disk full"),
        (1, {"scorer": scorer(problems={"webhook": "401"})}, "attention", "webhook: 401"),
        (1, {"scorer": scorer(updated_at="yesterday")}, "unknown", "says no time"),
        (1, {"scorer": scorer(updated_at="2026-01-05T11:59:00")}, "unknown", "without a zone"),
        (1, {"scorer": scorer(updated_at=(NOW + HOUR).isoformat())}, "attention", "clock is wrong"),
        (1, {"scorer": scorer(phase="stopped")}, "attention", "stopped"),
        (
            1,
            {"scorer": scorer(updated_at=(NOW - 2 * HOUR).isoformat())},
            "attention",
            "may have died",
        ),
        (2, {}, "ok", "100"),
        (2, {"n_silent": 3}, "attention", "3 nodes silent"),
        (2, {"tick": tick(coverage=0.5)}, "attention", "50"),
        (2, {"tick": tick(coverage=0.5), "min_coverage": 0.4}, "ok", "50"),
        (2, {"tick": tick(age=3 * HOUR)}, "unknown", "Nothing newer was scored"),
        (3, {"hook": replace(GOOD_HOOK, wrote_at=NOW + HOUR)}, "attention", "clock is wrong"),
        (3, {}, "ok", "last wrote"),
        (3, {"hook": HookView()}, "unknown", "written nothing"),
        (3, {"hook": HookView(problem="locked")}, "attention", "locked"),
        (
            3,
            {"hook": HookView(actuator="slurm", wrote_at=NOW - 5 * HOUR)},
            "unknown",
            "whether it runs is unknown",
        ),
        (
            3,
            {
                "hook": HookView(
                    actuator="slurm", wrote_at=NOW, requested=Requested(stopped_by="ada")
                )
            },
            "attention",
            "Automation is stopped: ada",
        ),
    ],
)
def test_each_part_says_how_it_is(
    part: int, given: dict[str, object], state: str, words: str
) -> None:
    usual: dict[str, object] = {
        "tick": tick(), "problem": "", "scorer": scorer(), "hook": GOOD_HOOK, "n_silent": 0,
        "min_coverage": 0.9,
    }  # fmt: skip
    found = signals(**(usual | given), now=NOW)[part]  # type: ignore[arg-type]
    assert found.state == state
    assert words in found.words


@pytest.fixture
def site(tmp_path: Path) -> BoardWorld:
    """A site whose ledger has 250 entries of two persons."""
    made = BoardWorld(tmp_path)
    with made.ledger() as ledger:
        ledger.append_all(
            [
                NewEntry(
                    key=f"k{i}", kind="checked", recorded_at=made.now, actuator="slurm",
                    actor="ada" if i % 50 == 0 else "forewarn", node=f"n{i % 3}",
                    body={"text": f"entry {i}"},
                )
                for i in range(250)
            ]
        )  # fmt: skip
    return made


def test_the_trail_is_paged_without_a_gap_and_filtered_by_person(site: BoardWorld) -> None:
    browser = site.browser()
    found: list[int] = []
    path = "/audit"
    for _ in range(3):
        page = browser.get(path).text
        seen = [int(one.partition("<")[0]) for one in page.split('data-label="No.">')[1:]]
        found += seen
        path = f"/audit?before={seen[-1]}"
    assert found == list(range(250, 0, -1))
    own = browser.get("/audit?actor=ada&node=n0").text
    assert own.count('data-label="No."') == 2
    assert "entry 0" in own


def test_an_altered_entry_is_found_by_the_chain(site: BoardWorld) -> None:
    assert "The chain holds." in site.browser().get("/audit?verify=1").text
    with sqlite3.connect(site.settings.ledger_path) as ledger:
        for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            ledger.execute(f"DROP TRIGGER {name}")
        ledger.execute("UPDATE entries SET actor = 'eve' WHERE seq = 100")
    page = site.browser().get("/audit?verify=1").text
    assert "Tampered with." in page
    assert "k99" in page
