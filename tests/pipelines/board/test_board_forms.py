"""Rules of logins and forms: who may ask, that a form is the board's own, and what is asked."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.api.access import Caller
from pipelines.board.session import MOST_OF_ONE, Sessions
from remediation.ledger.entries import NewEntry
from remediation.signed_requests import decode
from tests.pipelines.api.api_world import OPERATOR, READ, T0
from tests.pipelines.board.board_world import BoardWorld, Browser, site_with_inbox


def recommending(folder: Path) -> BoardWorld:
    """A site whose hook recommends a drain of n1 and holds n2."""
    made = site_with_inbox(folder)
    made.publish()
    made.decide_on("n1", stops=[("policy_level", "level recommend")], decision_id="a" * 16)
    made.decide_on("n2", decision_id="b" * 16)
    return made


@pytest.fixture
def site(tmp_path: Path) -> BoardWorld:
    """A site of one test's own."""
    return recommending(tmp_path)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> tuple[BoardWorld, Browser]:
    """A site whose inbox stays empty, with an operator logged in."""
    made = recommending(tmp_path_factory.mktemp("untouched"))
    browser = made.browser()
    browser.log_in()
    return made, browser


def inbox(site: BoardWorld) -> list[Path]:
    """Requests that wait for the hook."""
    return sorted((site.folder / "secret" / "inbox" / "new").glob("*.json"))


def form_of(browser: Browser, what: str = "hold", node: str = "n1") -> dict[str, str]:
    """What the confirmation page would send."""
    form = {"csrf": browser.csrf(), "what": what, "node": node, "hours": "4", "confirm": node}
    return form | {"decision": "a" * 16}


def test_without_a_login_a_browser_is_sent_to_it(site: BoardWorld) -> None:
    browser = site.browser()
    answer = browser.get("/node?name=n1&span=24h")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fnode%3Fname%3Dn1%26span%3D24h"
    asked = browser.get(answer.headers["location"]).text
    assert 'name="next" value="/node?name=n1&amp;span=24h"' in asked


def test_a_form_without_a_login_is_refused_in_words(site: BoardWorld) -> None:
    answer = site.browser().post("/act", {"what": "hold", "node": "n1", "hours": "4"})
    assert answer.status_code == 403
    assert "Nothing was done" in answer.text
    assert inbox(site) == []


def test_a_login_is_a_cookie_that_scripts_and_other_sites_cannot_use(site: BoardWorld) -> None:
    browser = site.browser()
    answer = browser.log_in(back="/data")
    cookie = answer.headers["set-cookie"]
    assert (answer.status_code, answer.headers["location"]) == (303, "/data")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    page = browser.get("/")
    assert page.status_code == 200
    for what, node in (("approve", "n1"), ("hold", "n1"), ("undrain", "n2")):
        assert f"/act?what={what}&amp;node={node}" in page.text


def test_a_login_behind_tls_never_goes_over_plain_http(site: BoardWorld) -> None:
    origin = {"origin": "https://127.0.0.1:8080"}
    answer = site.browser().post("/login", {"token": OPERATOR}, headers=origin)
    assert "Secure" in answer.headers["set-cookie"]


def test_a_refused_login_is_noted_without_its_token(
    site: BoardWorld, caplog: pytest.LogCaptureFixture
) -> None:
    site.browser().log_in("secret" * 8)
    assert "a login from 127.0.0.1 was refused" in caplog.text
    assert "secret" not in caplog.text


def test_a_neighbours_broken_cookie_does_not_end_a_login(site: BoardWorld) -> None:
    browser = site.browser()
    browser.log_in()
    (cookie,) = browser.cookies.values()
    broken = {"cookie": f'other={{"a": [1, "b"]}}; forewarn_session={cookie}'}
    assert browser.client.get("/", headers=broken).status_code == 200


def test_a_login_that_is_never_sent_whole_is_given_up(
    site: BoardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.api.gate.MOST_BODY_S", 0.01)

    async def slow():  # type: ignore[no-untyped-def]
        yield b"token="
        await asyncio.sleep(3600)

    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = site.browser().client.post("/login", content=slow(), headers=form)
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


def test_many_logins_of_one_token_end_only_their_own() -> None:
    sessions = Sessions(seconds=10, clock=lambda: 0.0)
    ada = sessions.begin(Caller("ada", "operator"))
    values = [sessions.begin(Caller("grafana", "read")) for _ in range(MOST_OF_ONE + 1)]
    assert sessions.find(ada) is not None
    assert [sessions.find(one) is None for one in values] == [True] + [False] * MOST_OF_ONE


def test_a_wrong_token_begins_nothing(site: BoardWorld) -> None:
    browser = site.browser()
    assert browser.log_in("x" * 40).status_code == 401
    assert browser.cookies == {}


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/\\evil", "x\r\ny"])
def test_a_login_never_leads_to_another_site(
    untouched: tuple[BoardWorld, Browser], back: str
) -> None:
    assert untouched[0].browser().log_in(back=back).headers["location"] == "/"


def test_a_logout_ends_the_session_itself(site: BoardWorld) -> None:
    browser = site.browser()
    browser.log_in()
    kept = dict(browser.cookies)
    browser.post("/logout", {"csrf": browser.csrf()})
    browser.cookies = kept
    assert browser.get("/").status_code == 303


def test_a_session_ends_with_its_time() -> None:
    now = [0.0]
    sessions = Sessions(seconds=10, clock=lambda: now[0])
    value = sessions.begin(Caller("ada", "operator"))
    assert sessions.find(value) is not None
    now[0] = 10.0
    assert sessions.find(value) is None


def test_a_cookie_does_not_open_the_api(site: BoardWorld) -> None:
    browser = site.browser()
    browser.log_in()
    assert browser.get("/api/v1/scores").status_code == 401


@pytest.mark.parametrize("what", ["hold", "approve", "undrain"])
def test_a_confirmed_form_is_one_signed_request(site: BoardWorld, what: str) -> None:
    node = "n2" if what == "undrain" else "n1"
    browser = site.browser()
    browser.log_in()
    shown = browser.get(f"/act?what={what}&node={node}")
    assert "What will happen" in shown.text
    assert "still appl" in shown.text
    assert inbox(site) == []
    answer = browser.post("/act", form_of(browser, what, node))
    assert answer.status_code == 202
    (path,) = inbox(site)
    made = decode(path.read_bytes()).request
    assert (made.what, made.actor, made.node, made.boot_id) == (what, "ada", node, f"boot-{node}")
    assert made.decision_id == ("a" * 16 if what == "approve" else None)
    assert made.until == (site.now + timedelta(hours=4) if what == "hold" else None)


@pytest.mark.parametrize(
    "spoil",
    [
        {"csrf": ""},
        {"csrf": "x" * 43},
        {"confirm": "n2", "what": "approve"},
        {"confirm": "", "what": "approve"},
        {"decision": "c" * 16, "what": "approve"},
        {"what": "kill"},
        {"what": "approve", "node": "n2"},
        {"what": "undrain", "node": "n1"},
        {"node": "../../etc"},
        {"node": "n[1-9]"},
        {"hours": "99999"},
        {"hours": ""},
    ],
)
def test_a_form_that_says_something_else_asks_for_nothing(
    untouched: tuple[BoardWorld, Browser], spoil: dict[str, str]
) -> None:
    site, browser = untouched
    answer = browser.post("/act", form_of(browser) | spoil)
    assert 400 <= answer.status_code < 500
    assert inbox(site) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
def test_a_form_from_another_site_asks_for_nothing(
    untouched: tuple[BoardWorld, Browser], headers: dict[str, str]
) -> None:
    site, browser = untouched
    assert browser.post("/act", form_of(browser), headers=headers).status_code == 403
    assert inbox(site) == []


def test_the_token_of_another_login_does_not_fit(site: BoardWorld) -> None:
    first, second = site.browser(), site.browser()
    second.client = first.client
    first.log_in()
    second.log_in()
    form = form_of(first)
    assert second.post("/act", form).status_code == 403


def test_a_reader_may_look_and_not_ask(site: BoardWorld) -> None:
    browser = site.browser()
    browser.log_in(READ)
    for path in ("/", "/node?name=n1"):
        page = browser.get(path)
        assert (page.status_code, "/act?" in page.text) == (200, False)
    assert browser.get("/act?what=hold&node=n1").status_code == 403
    assert browser.post("/act", form_of(browser)).status_code == 403
    assert inbox(site) == []


def test_nobody_without_a_login_asks_even_on_loopback(tmp_path: Path) -> None:
    near = BoardWorld(tmp_path)
    near.publish()
    browser = near.browser()
    assert browser.get("/").status_code == 200
    assert browser.get("/act?what=hold&node=n1").headers["location"].startswith("/login?next=")
    form = {"what": "hold", "node": "n1", "hours": "4", "csrf": ""}
    assert browser.post("/act", form).status_code == 403


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "waiting for the hook"),
        ("accepted", "taken by the hook"),
        ("refused", "refused by the hook"),
    ],
)
def test_a_request_is_pending_until_the_ledger_tells(
    site: BoardWorld, status: str | None, words: str
) -> None:
    browser = site.browser()
    browser.log_in()
    browser.post("/act", form_of(browser))
    made = decode(inbox(site)[0].read_bytes()).request
    if status is not None:
        reason = "another boot" if status == "refused" else None
        body = {"what": "hold", "status": status, "reason": reason, "rule": "boot"}
        body |= {"created": T0.isoformat(), "until": (T0 + timedelta(days=1)).isoformat()}
        with site.ledger() as ledger:
            ledger.append(
                NewEntry(
                    key=made.ledger_key, kind="request", recorded_at=site.now, actuator="slurm",
                    actor="ada", node="n1", body=body | {"boot_id": "boot-n1"},
                )
            )  # fmt: skip
    site.seconds += 10
    page = browser.get("/node?name=n1").text
    assert words in page
    assert ("another boot" in page) == (status == "refused")


def test_a_request_that_nobody_took_says_so(site: BoardWorld) -> None:
    browser = site.browser()
    browser.log_in()
    browser.post("/act", form_of(browser))
    site.now += timedelta(minutes=61)
    assert "Is the hook running?" in browser.get("/node?name=n1").text
