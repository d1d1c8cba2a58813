"""The HTTP client: retries within limits, waits as asked, keeps secrets, follows nobody away."""

import base64
import gzip
from datetime import UTC, datetime

import pytest
import requests

from features.errors import SettingsError, SourceError
from pipelines.sources.http.auth import Auth, safe_url
from pipelines.sources.http.client import Call, HttpClient
from pipelines.sources.http.errors import AnswerError, HttpError
from pipelines.sources.http.settings import HttpLimits, HttpSettings
from tests.pipelines.sources.prometheus.answers import Answer, Request, stand_in

SECRET = "s3cret-t0ken-value"  # noqa: S105 - made up
NOW = datetime(2026, 1, 5, tzinfo=UTC)


class Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def client(url: str, clock: Clock | None = None, *, auth: Auth | None = None, **limits):
    clock = clock or Clock()
    return HttpClient(
        HttpSettings(url, auth=auth, limits=HttpLimits(**limits)),
        sleep=clock.sleep,
        clock=lambda: clock.now,
        now=lambda: NOW,
        jitter=lambda: 0.0,
    )


def body(found):
    return found.fetch(Call("GET", "/x", what="a test"), lambda reply: reply.body())


def in_turn(*answers: Answer):
    waiting = list(answers)
    return lambda request: waiting.pop(0) if len(waiting) > 1 else waiting[0]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_refusal_is_tried_again_with_growing_waits(status):
    clock = Clock()
    with stand_in(in_turn(*[Answer(status)] * 3, Answer(200, b"ok"))) as server:
        assert body(client(server.url, clock)) == b"ok"
    assert clock.waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_final_refusal_is_one_error_at_once(status):
    with stand_in(in_turn(Answer(status, b"no such thing"))) as server:
        with pytest.raises(HttpError, match=f"HTTP {status} no such thing"):
            body(client(server.url))
        assert len(server.requests) == 1


def test_tries_end_and_the_error_says_how_many_and_what_to_do():
    with stand_in(in_turn(Answer(503, b"busy"))) as server:
        with pytest.raises(HttpError, match=r"a test failed: HTTP 503 busy \(3 tries\)\. Check"):
            body(client(server.url, attempts=3))
        assert len(server.requests) == 3


@pytest.mark.parametrize("asked", ["7", "Mon, 05 Jan 2026 00:00:07 GMT"])
def test_the_server_is_given_the_time_it_asks_for(asked):
    clock = Clock()
    busy = Answer(429, headers={"Retry-After": asked})
    with stand_in(in_turn(busy, Answer(200, b"ok"))) as server:
        assert body(client(server.url, clock)) == b"ok"
    assert sum(clock.waits) == 7


@pytest.mark.parametrize("asked", ["soon", "-1", "", "Mon, 99 Foo"])
def test_a_wait_that_cannot_be_read_is_passed_over(asked):
    clock = Clock()
    busy = Answer(503, headers={"Retry-After": asked})
    with stand_in(in_turn(busy, Answer(200, b"ok"))) as server:
        assert body(client(server.url, clock)) == b"ok"
    assert clock.waits == [0.5]


def test_a_wait_beyond_the_limit_is_an_error_that_names_it():
    busy = Answer(429, headers={"Retry-After": "3600"})
    with stand_in(in_turn(busy)) as server:
        with pytest.raises(HttpError, match="asks to wait 3600 s"):
            body(client(server.url))
        assert len(server.requests) == 1


def test_one_refusal_holds_back_the_requests_of_all_threads():
    clock = Clock()
    busy = Answer(429, headers={"Retry-After": "9"})
    with stand_in(in_turn(busy, Answer(200, b"ok"))) as server:
        shared = client(server.url, clock, attempts=1)
        with pytest.raises(HttpError):
            body(shared)
        held = client(server.url, clock, attempts=2)
        held._not_before = clock.now + 9
        assert body(held) == b"ok"
    assert clock.waits == [9]


def test_a_server_that_is_not_there_is_one_error_with_its_address():
    with stand_in(in_turn(Answer())) as server:
        pass
    with pytest.raises(HttpError, match=rf"{server.url}: a test failed.*\(2 tries\)"):
        body(client(server.url, attempts=2))


def test_an_answer_that_breaks_off_is_asked_for_again():
    cut = Answer(200, b"half", declared_length=100)
    with stand_in(in_turn(cut, Answer(200, b"whole"))) as server:
        assert body(client(server.url)) == b"whole"


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_answer_beyond_the_size_limit_is_refused_packed_or_not(is_packed):
    content = bytes(3_000_000)
    headers = {"Content-Encoding": "gzip"} if is_packed else {}
    answer = Answer(200, gzip.compress(content) if is_packed else content, headers)
    with (
        stand_in(in_turn(answer)) as server,
        pytest.raises(HttpError, match="longer than 2,000,000 bytes") as caught,
    ):
        body(client(server.url, max_bytes=2_000_000))
    assert caught.value.is_too_much


def test_an_answer_that_is_not_what_its_encoding_says_is_an_error():
    answer = Answer(200, b"plain text", {"Content-Encoding": "gzip"})
    with stand_in(in_turn(answer)) as server, pytest.raises(HttpError, match="broke off"):
        body(client(server.url, attempts=1))


def test_an_answer_that_comes_drop_by_drop_ends_at_the_limit():
    import socket
    import threading
    import time

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                for _ in range(100):
                    time.sleep(0.05)
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(HttpError, match="longer than the limit") as caught:
            body(client(url, attempts=1, total_s=0.3))
        assert time.monotonic() - began < 3
        assert caught.value.is_timeout
        thread.join()


def test_a_redirect_within_the_host_is_followed():
    def answer(request: Request) -> Answer:
        if request.path == "/x":
            return Answer(302, headers={"Location": "/moved"})
        return Answer(200, request.path.encode())

    with stand_in(answer) as server:
        assert body(client(server.url)) == b"/moved"


def test_a_redirect_to_another_host_is_refused_without_sending_anything_there(monkeypatch):
    monkeypatch.setenv("TOKEN", SECRET)
    away = Answer(307, headers={"Location": "http://user:pw@other.example/x?token=1"})
    with stand_in(in_turn(away)) as server:
        with pytest.raises(HttpError, match="http://other.example/x. It is not followed") as caught:
            body(client(server.url, auth=Auth("bearer", env="TOKEN")))
        assert len(server.requests) == 1
    assert "pw" not in str(caught.value)


def test_redirects_in_a_circle_end():
    with (
        stand_in(in_turn(Answer(302, headers={"Location": "/x"}))) as server,
        pytest.raises(HttpError, match="redirects"),
    ):
        body(client(server.url))


@pytest.mark.parametrize("place", ["env", "file"])
@pytest.mark.parametrize("kind", ["bearer", "basic"])
def test_the_secret_is_sent_but_never_shown(kind, place, monkeypatch, tmp_path):
    monkeypatch.setenv("TOKEN", SECRET)
    (tmp_path / "token").write_text(SECRET + "\n")
    where = {"env": "TOKEN"} if place == "env" else {"file": tmp_path / "token"}
    auth = Auth(kind, **where, user="me" if kind == "basic" else None)

    def echo(request: Request) -> Answer:
        return Answer(403, f"denied: {request.headers['Authorization']} {SECRET}".encode())

    with stand_in(echo) as server:
        with pytest.raises(HttpError, match="Check the auth setting") as caught:
            body(client(server.url, auth=auth))
        sent = server.requests[0].headers["Authorization"]
    packed = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert sent == (f"Bearer {SECRET}" if kind == "bearer" else f"Basic {packed}")
    assert SECRET not in str(caught.value) + repr(auth)
    assert packed not in str(caught.value)


def test_a_password_in_netrc_is_not_used(monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password pw\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with stand_in(in_turn(Answer(200, b"ok"))) as server:
        assert body(client(server.url)) == b"ok"
        assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize("text", ["two words", "line\nbreak", "ümlaut"])
def test_a_token_no_header_can_carry_is_refused_without_showing_it(text, monkeypatch):
    monkeypatch.setenv("TOKEN", text)
    with pytest.raises(SettingsError, match="environment variable TOKEN") as caught:
        Auth("bearer", env="TOKEN").header()
    assert text not in str(caught.value)


@pytest.mark.parametrize("where", [{"env": "NOT_SET_ANYWHERE"}, {"file": "absent"}])
def test_a_secret_that_is_not_there_is_named(where, tmp_path):
    from pathlib import Path

    if "file" in where:
        where = {"file": tmp_path / Path(where["file"])}
    with pytest.raises(SettingsError, match="NOT_SET_ANYWHERE|absent"):
        Auth("bearer", **where).header()


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "bearer"},
        {"kind": "bearer", "env": "A", "file": "b"},
        {"kind": "basic", "env": "A"},
        {"kind": "bearer", "env": "A", "user": "me"},
        {"kind": "basic", "env": "A", "user": "a:b"},
    ],
)
def test_a_reference_that_says_too_little_or_too_much_is_refused(fields):
    with pytest.raises(SettingsError, match="auth:"):
        Auth(**fields)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "prometheus:9090",
        "ftp://a",
        "http://",
        "http://me:pw@a:1",
        "http://a/?token=pw",
        "http://a:99999",
        "http://[::1",
    ],
)
def test_an_address_that_is_none_or_carries_a_secret_is_refused_without_showing_it(url):
    with pytest.raises(SettingsError) as caught:
        HttpClient(HttpSettings(url))
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@a:9/p?x=pw#f", "https://a:9/p"),
        ("me:pw@host", "host"),
        ("http://[::1", "(not an address)"),
    ],
)
def test_an_address_is_shown_without_secrets(url, shown):
    assert safe_url(url) == shown


def test_a_certificate_nobody_vouches_for_is_no_reason_to_try_again(monkeypatch):
    calls = []

    def refuse(*args, **kwargs):
        calls.append(kwargs["verify"])
        raise requests.exceptions.SSLError("self-signed certificate")

    found = client("https://127.0.0.1:1")
    monkeypatch.setattr(found._session, "request", refuse)
    with pytest.raises(HttpError, match="self-signed"):
        body(found)
    assert calls == [True]


def test_a_reader_decides_whether_damage_may_pass():
    answers = []

    def consume(reply):
        answers.append(reply.body())
        raise AnswerError("damaged", may_pass=len(answers) < 2)

    with (
        stand_in(in_turn(Answer(200, b"x"))) as server,
        pytest.raises(SourceError, match="damaged"),
    ):
        client(server.url).fetch(Call("GET", "/x"), consume)
    assert len(answers) == 2
