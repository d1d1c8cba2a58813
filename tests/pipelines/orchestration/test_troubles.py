"""Rules of alerts about our own work: told once, told again until taken, and told when over."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from pipelines.orchestration.troubles import SEEN, Trouble, book_from_text, book_to_text, tell_all
from pipelines.settings import Settings

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CHECK = Trouble(kind="check", name="core/jobs keys", words="2 rows repeat", severity="critical")
JOB = Trouble(kind="job", name="daily", words="the last run failed", severity="warning")


class Receiver:
    """Notes what it is sent; refuses while `status` says so."""

    def __init__(self) -> None:
        self.status, self.got = 200, list[tuple[str, Any, str | None]]()

    def names(self) -> list[str]:
        return [body["id"] for path, body, _ in self.got if path == "/hook"]


@contextmanager
def receiver() -> Iterator[tuple[Receiver, int]]:
    noted = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            noted.got.append((self.path, body, self.headers.get("Idempotency-Key")))
            self.send_response(noted.status)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield noted, server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def site(port: int, **serving: Any) -> Settings:
    values = {"site": "lab", "inputs": "i", "data_root": "d", "start": NOW, "serving": serving}
    return Settings.model_validate(values)


def with_alertmanager(port: int) -> Settings:
    url = f"http://127.0.0.1:{port}"
    return site(port, alertmanager={"url": url, "resend_minutes": 5})


def test_alertmanager_is_told_again_before_an_alert_ends_and_once_it_is_over() -> None:
    with receiver() as (noted, port):
        settings, book = with_alertmanager(port), {}
        for minute in range(8):
            now = NOW + timedelta(minutes=minute)
            book, problems = tell_all(settings, book, [CHECK], now=now)
            book = book_from_text(book_to_text(book))
            assert not problems
        assert len(noted.got) == 2
        ((told, *rest),) = (body for _, body, _ in noted.got[:1])
        assert not rest
        assert told["labels"] == {
            "alertname": "ForewarnCheckFailed",
            "site": "lab",
            "check": "core/jobs keys",
            "severity": "critical",
        }
        assert datetime.fromisoformat(told["endsAt"]) - NOW >= timedelta(minutes=10)
        over = NOW + timedelta(minutes=9)
        book, _ = tell_all(settings, book, [JOB], now=over)
        ends = {b["labels"]["alertname"]: b["endsAt"] for b in noted.got[-1][1]}
        assert ends["ForewarnCheckFailed"] == over.isoformat()
        assert ends["ForewarnJobFailed"] > over.isoformat()
        book, _ = tell_all(settings, book, [], now=over)
        assert tell_all(settings, book, [], now=over + timedelta(days=1))[0][SEEN].open == {}
        assert len(noted.got) == 4


def test_the_webhook_is_told_each_change_once_and_under_one_key_until_it_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOOK_KEY", "k" * 40)
    with receiver() as (noted, port):
        url = f"http://127.0.0.1:{port}/hook"
        settings = site(port, webhook={"url": url, "key": {"variable": "HOOK_KEY"}})
        noted.status = 503
        book, problems = tell_all(settings, {}, [CHECK], now=NOW)
        assert problems == ["webhook: HTTP 503"]
        noted.status = 200
        for minute in (1, 2):
            now = NOW + timedelta(minutes=minute)
            book, problems = tell_all(settings, book, [CHECK], now=now)
            assert not problems
        book, _ = tell_all(settings, book, [], now=NOW + timedelta(minutes=3))
        fired = f"trouble_fired:check:core/jobs keys:{NOW.isoformat()}"
        resolved = f"trouble_resolved:check:core/jobs keys:{NOW.isoformat()}"
        assert noted.names() == [fired, fired, resolved]
        assert [key for *_, key in noted.got] == noted.names()


def test_where_nobody_is_to_be_told_it_is_only_remembered() -> None:
    book, problems = tell_all(site(1), {}, [CHECK], now=NOW)
    assert not problems
    assert list(book) == [SEEN]


@pytest.mark.parametrize("text", [None, "", "nonsense", "[]", '{"seen": {}}', '{"seen": 3}'])
def test_a_book_that_is_none_begins_anew(text: str | None) -> None:
    assert book_from_text(text) == {}
