"""Rules of the pages: they render whatever the site has, and nothing from outside is markup."""

import re
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY
from features.tables import (
    CORE_COVERAGE,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
    GPU_SCORES,
    NODE_SCORES,
)
from pipelines.serving.scorer_status import ScorerStatus
from tests.pipelines.api.api_world import HOUR, T0, score_rows
from tests.pipelines.board.board_world import BoardWorld, Browser

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
PAGES = ["/", "/quality", "/data", "/models", "/audit", "/audit?verify=1", "/login"]
ENTITIES = ["/node?name=n1", "/gpu?id=n1-g0", "/node?name=n1&span=24h", "/node?name=n1&span=30d"]


@pytest.fixture
def site(tmp_path: Path) -> BoardWorld:
    """A site with scores."""
    made = BoardWorld(tmp_path)
    made.publish()
    return made


def told(text: str) -> str:
    """A page's text: no tags, one space."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text)).replace("\xa0", " ")


def fill(site: BoardWorld, text: str) -> None:
    """Every table with a text that comes from outside, at node n1."""
    stay = {"gpu_uuid": "n1-g0", "node": "n1", "slot": text, "model": text}
    site.store(CORE_INVENTORY, [stay])
    job = {"job_id": text, "attempt": 0, "user": text, "nodes": ["n1"], "start": T0 - HOUR}
    site.store(CORE_JOBS, [job | {"end_state": text}])
    state = {"node": "n1", "state": "down", "reason": text, "actor": text, "valid_from": T0 - HOUR}
    site.store(CORE_NODE_STATES, [state])
    incident: dict[str, Any] = {
        "incident_id": "i", "entity_kind": "gpu", "entity_id": "n1-g0", "node": "n1",
        "start": T0 - HOUR, "fault_type": "nvlink", "evidence": text, "detected_by": text,
        "catalogue_version": text,
    }  # fmt: skip
    site.store(CORE_INCIDENTS, [incident])
    event = {"event_id": "e", "ts": T0 - HOUR, "node": "n1", "kind": text, "count": 1}
    site.store(CORE_HEALTH_EVENTS, [event | {"message": text, "gpu_uuid": "n1-g0"}])
    silent = {"source": text, "entity_kind": "node", "entity_id": text, "hour": T0 - HOUR}
    numbers = {"n_received": 0, "covered_s": 0.0, "longest_gap_s": 3600.0}
    site.store(CORE_COVERAGE, [silent | numbers])
    judged = {"node": text, "as_of": T0 - HOUR, "horizon_h": 24, "model_version": text}
    site.store(LIVE_OUTCOMES, [judged | {"outcome": "hit", "score": 0.9, "lead_h": 3.0}])
    counts = dict.fromkeys(
        ["n_alerts", "n_hits", "n_false_alarms", "n_censored", "n_misses", "n_rows"], 1
    )
    week = {"week": T0 - 168 * HOUR, "horizon_h": 24, "model_version": text, "precision": 1.0}
    site.store(LIVE_QUALITY, [week | counts])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A browser at a site in which every text that comes from outside is an attack."""
    site = BoardWorld(tmp_path_factory.mktemp("hostile"), reasons=[EVIL])
    site.nodes = {"n1": 0.9, EVIL: 0.8, f"{EVIL}2": None}
    site.place({"n1": EVIL, EVIL: EVIL})
    fill(site, EVIL)
    site.publish()
    site.decide_on("n1", stops=[("cap_rack", EVIL)])
    return site.browser()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """A browser at a site that has something in every table; for tests that only look."""
    site = BoardWorld(tmp_path_factory.mktemp("calm"))
    site.publish()
    fill(site, "x")
    return site.browser()


@pytest.mark.parametrize("path", [*PAGES, *ENTITIES])
def test_texts_from_outside_are_never_markup(hostile: Browser, path: str) -> None:
    page = hostile.get(path).text
    assert "<script>alert" not in page
    assert "<img" not in page
    # The only script is the board's own file: nothing inline could run by the policy anyway.
    assert page.count("<script") == 1


def test_a_hostile_node_has_a_page_of_its_own(tmp_path: Path) -> None:
    name = "../..//a b?&#%<x>"
    site = BoardWorld(tmp_path)
    site.nodes = {name: 0.9}
    site.publish()
    answer = site.browser().get(f"/node?name={quote(name, safe='')}")
    assert answer.status_code == 200
    assert "../..//a b?&amp;#%&lt;x&gt;" in answer.text


@pytest.mark.parametrize("path", PAGES)
def test_an_empty_installation_has_every_page(tmp_path: Path, path: str) -> None:
    answer = BoardWorld(tmp_path).browser().get(path)
    assert answer.status_code == 200
    if path == "/":
        assert "nothing is known of any node: that is not the same as healthy" in answer.text


def test_all_unknown_is_hatched_and_said(site: BoardWorld) -> None:
    site.nodes = dict.fromkeys(("n1", "n2"))
    site.publish(hour=1)
    site.now += HOUR
    page = site.browser().get("/").text
    assert "2 nodes unknown" in page
    assert '<path class="u" fill="url(#hatch)"' in page
    assert '<path class="q"' not in page.partition('class="racks')[2]


def test_a_store_that_cannot_be_read_does_not_make_nodes_look_up(site: BoardWorld) -> None:
    state = {"node": "n1", "state": "down", "valid_from": T0 - HOUR}
    site.store(CORE_NODE_STATES, [state])
    assert "drained or down is unknown" not in site.browser().get("/").text
    folder = site.settings.data_root / "tables" / CORE_NODE_STATES.asset_key
    for file in folder.iterdir():
        file.write_bytes(b"damaged")
    page = told(site.browser().get("/").text)
    assert f"drained or down is unknown: the tables could not be read at {T0:%Y-%m-%d}" in page


def test_expired_scores_are_said_first_and_nothing_is_intended(site: BoardWorld) -> None:
    site.decide_on("n1", stops=[("cap_rack", "full")])
    site.now = T0 + timedelta(hours=2, minutes=5)
    page = told(site.browser().get("/").text)
    assert "Last known: 1 node above the alert threshold" in page
    assert "have expired: the hook acts on none of them" in page
    assert "Nothing: these scores have expired" in page
    assert "Wanted:" not in page


def test_scores_of_the_future_are_no_fresh_scores(site: BoardWorld) -> None:
    site.now = T0 - timedelta(hours=1)
    assert "a clock is wrong" in site.browser().get("/").text


def test_what_a_guard_stopped_is_said_with_its_reason(site: BoardWorld) -> None:
    site.decide_on("n1", stops=[("cap_rack", "2 of 2 are held")])
    page = told(site.browser().get("/").text)
    assert "the hook acts on 0; guards stop it on 1" in page
    assert "cap rack: 2 of 2 are held" in page


def test_a_held_node_says_so_and_may_be_undrained(site: BoardWorld) -> None:
    site.decide_on("n1")
    page = site.browser().get("/").text
    assert "Held for less than a minute (drain after jobs)" in told(page)


def test_an_unreadable_ledger_is_not_a_hook_that_wants_nothing(site: BoardWorld) -> None:
    site.nodes = {"n1": 0.1}
    site.publish()
    site.settings.ledger_path.write_text("x" * 4096)
    page = told(site.browser().get("/").text)
    assert "what the hook wants is unknown" in page
    assert "Unknown: the hook&#39;s ledger cannot be read" in page
    assert "wants to act on none" not in page
    assert "ledger cannot be read" in site.browser().get("/node?name=n1").text


@pytest.mark.parametrize(
    ("hours", "title"), [(0, "1 at risk, 1 unknown"), (3, "Expired (1 at risk, 1 unknown)")]
)
def test_the_tab_says_what_is_unknown_and_what_is_old(
    site: BoardWorld, hours: int, title: str
) -> None:
    site.now += hours * HOUR
    assert f"<title>{title}, fleet" in site.browser().get("/").text


def test_the_tab_of_a_site_without_scores_says_so(tmp_path: Path) -> None:
    assert "<title>No scores, fleet" in BoardWorld(tmp_path).browser().get("/").text


def test_a_score_of_the_future_is_said_on_its_node_too(site: BoardWorld) -> None:
    site.now = T0 - HOUR
    assert "a clock is wrong. Do not trust them" in site.browser().get("/node?name=n1").text


def test_a_node_has_its_rack_its_threshold_and_all_that_was_stored_of_it(site: BoardWorld) -> None:
    site.place({"n1": "rack-7"})
    fill(site, "x")
    for kind, table, name in (("node", NODE_SCORES, "n1"), ("gpu", GPU_SCORES, "n1-g0")):
        ticks = [score_rows(kind, T0 - n * HOUR, {name: 0.9}, (24,)).to_dicts() for n in (3, 2, 1)]
        site.store(table, [row for rows in ticks for row in rows])
    page = told(site.browser().get("/node?name=n1").text)
    for words in ("rack rack-7", "alert from 50 %", "1 incident", "1 health event", "1 job"):
        assert words in page, words
    gpu = told(site.browser().get("/gpu?id=n1-g0").text)
    assert "In node n1 , rack rack-7" in gpu
    assert "alert from" not in gpu, "thresholds are of nodes"


@pytest.mark.parametrize("path", ["/?page=x", "/?horizon=", "/nothing", "/node"])
def test_a_wrong_address_is_answered_by_a_page(calm: Browser, path: str) -> None:
    answer = calm.get(path)
    assert answer.status_code in (404, 422)
    assert "<h1>Not found</h1>" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_the_api_beside_the_board_still_answers_programs(calm: Browser) -> None:
    assert calm.get("/api/v1/scores?limit=x").headers["content-type"] == "application/problem+json"


def test_a_word_that_no_hook_of_today_uses_does_not_hide_the_rest(site: BoardWorld) -> None:
    site.decide_on("n1", wanted="explode", stops=[("cap_rack", "full")])
    assert "Wanted: explode. Stopped" in told(site.browser().get("/").text)


@pytest.mark.parametrize("path", [*PAGES[:-1], *ENTITIES])
def test_a_broken_database_and_ledger_are_said_and_scores_go_on(
    site: BoardWorld, path: str
) -> None:
    fill(site, "x")
    (site.settings.data_root / "scores.db").write_bytes(b"no database at all" * 100)
    site.settings.ledger_path.write_bytes(b"no ledger at all" * 100)
    answer = site.browser().get(path)
    assert answer.status_code in (200, 503)
    if path == "/":
        assert answer.status_code == 200
        assert "ledger cannot be read" in answer.text
        assert "90" in answer.text
    if answer.status_code == 503:
        assert "cannot be read at present" in answer.text


def test_a_ledger_of_another_kind_is_said(site: BoardWorld) -> None:
    with sqlite3.connect(site.settings.ledger_path) as other:
        other.execute("CREATE TABLE something (x)")
    assert "ledger cannot be read" in site.browser().get("/").text


@pytest.mark.parametrize(
    ("path", "there", "not_there"),
    [
        ("/?only=unknown", "n3", "n2"),
        ("/?only=alert", "n1", "n2"),
        ("/?q=N2", "n2", "n4"),
        ("/?rack=r1", "n2", "n4"),
        ("/?type=nvlink", "n1", "n3"),
        ("/?q=%27%3Bdrop", "No node fits", "name=n2"),
    ],
)
def test_the_list_is_filtered(calm: Browser, path: str, there: str, not_there: str) -> None:
    ranked = calm.get(path).text.partition('id="list"')[2]
    assert there in ranked
    assert not_there not in ranked


def test_pages_of_the_list_hold_each_node_once(tmp_path: Path) -> None:
    site = BoardWorld(tmp_path)
    site.nodes = {f"n{i:03d}": i / 1000 for i in range(120)}
    site.publish()
    browser = site.browser()
    found: list[str] = []
    for page in (1, 2, 3):
        ranked = browser.get(f"/?page={page}").text.partition('id="list"')[2]
        found += re.findall(r'<th scope="row"><a href="/node\?name=(n\d+)"', ranked)
    assert found == sorted(site.nodes, reverse=True)


@pytest.mark.parametrize("path", ["/node?name=nobody", "/gpu?id=nobody"])
def test_who_is_not_known_is_not_found(calm: Browser, path: str) -> None:
    answer = calm.get(path)
    assert (answer.status_code, "Not found" in answer.text) == (404, True)


def test_the_zone_is_printed_with_every_time(tmp_path: Path) -> None:
    site = BoardWorld(tmp_path)
    site.settings = site.settings.model_copy(
        update={"board": site.settings.board.model_copy(update={"time_zone": "Asia/Kolkata"})}
    )
    site.publish()
    browser = site.browser()
    assert "2026-01-05 05:30 IST" in told(browser.get("/").text)
    scorer = ScorerStatus(updated_at=T0.isoformat(), started_at="yesterday", n_ticks=1)
    scorer.write(site.settings.scores_dir)
    page = told(browser.get("/data").text)
    assert "Last sign 2026-01-05 05:30 IST ; newest tick it scored none" in page
    assert "1 tick and 0 failures since unknown" in page
    answer = browser.post("/zone", {"zone": "America/New_York", "back": "/data"})
    assert answer.headers["location"] == "/data"
    assert "2026-01-04 19:00 EST" in told(browser.get("/").text)


@pytest.mark.parametrize("zone", ["../../etc/passwd", "/etc/localtime", "Mars/Base", "a" * 99])
def test_a_zone_that_is_none_is_utc(calm: Browser, zone: str) -> None:
    calm.post("/zone", {"zone": zone, "back": "/"})
    assert "2026-01-05 00:00 UTC" in told(calm.get("/").text)


@pytest.mark.parametrize("path", [*PAGES, "/static/board.css", "/static/board.js"])
def test_every_answer_forbids_all_but_the_boards_own(calm: Browser, path: str) -> None:
    headers = calm.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("path", [*PAGES, *ENTITIES])
def test_no_page_needs_an_inline_style_or_script_or_another_site(calm: Browser, path: str) -> None:
    page = calm.get(path).text
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page)
    assert not re.search(r'(src|href|action)="(https?:)?//', page)


def test_an_unchanged_page_is_not_sent_again(site: BoardWorld) -> None:
    browser = site.browser()
    tag = browser.get("/").headers["etag"]
    same = browser.get("/", headers={"if-none-match": tag})
    assert (same.status_code, same.content) == (304, b"")
    site.now += timedelta(hours=3)
    assert browser.get("/", headers={"if-none-match": tag}).status_code == 200


def test_pages_have_landmarks_headings_and_named_columns(calm: Browser) -> None:
    for path in ("/", "/node?name=n1", "/quality", "/data"):
        page = calm.get(path).text
        assert (page.count("<h1"), page.count("<main")) == (1, 1)
        assert '<html lang="en">' in page
        assert 'href="#main"' in page
        assert re.findall(r"<th(?![^>]*scope=)[ >]", page) == []
        ids = re.findall(r'\sid="([^"]+)"', page)
        assert len(ids) == len(set(ids))


def test_silent_exporters_are_named_with_their_last_sign(site: BoardWorld) -> None:
    row = {"source": "dcgm", "entity_kind": "node", "hour": T0 - HOUR, "longest_gap_s": 0.0}
    quiet = row | {"entity_id": "n3", "n_received": 0, "covered_s": 0.0}
    heard = row | {"entity_id": "n1", "n_received": 60, "covered_s": 3600.0}
    site.store(CORE_COVERAGE, [quiet | {"watermark": T0 - 5 * HOUR}, heard])
    page = told(site.browser().get("/data").text)
    assert "dcgm node n3 2026-01-04 19:00 UTC" in page
    assert "node n1" not in page
