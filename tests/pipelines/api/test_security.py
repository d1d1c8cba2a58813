"""Rules of access: who is refused, by what, and that nothing of the machine is told."""

import asyncio
import dataclasses
import hashlib
import json
import signal
import socket
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from features.errors import SettingsError
from pipelines.api.access import Caller, open_access
from pipelines.api.rate_limit import RateLimit
from pipelines.api.serve import run
from pipelines.serving.metrics_server import start_metrics
from remediation.inbox.files import read_inbox
from remediation.signed_requests import Present, RequestKey, decode, encode
from tests.pipelines.api.api_world import (
    KEY,
    OPERATOR,
    READ,
    ApiWorld,
    Client,
    bearer,
    with_tokens,
)

HOLD = {"what": "hold", "node": "n1", "confirm": "n1", "until": "2026-01-05T12:00:00Z"}
OUTSIDE = {"listen": "0.0.0.0:8080"}


@pytest.fixture
def guarded(tmp_path: Path) -> ApiWorld:
    """A site that others can reach, with tokens and an inbox."""
    made = ApiWorld(tmp_path, api=with_tokens(tmp_path / "secret", inbox=True) | OUTSIDE)
    made.publish()
    made.decide()
    return made


@pytest.fixture
def near(tmp_path: Path) -> ApiWorld:
    """A site on loopback without a token."""
    made = ApiWorld(tmp_path)
    made.publish()
    return made


EVERY_READ = [
    "scores", "nodes", "nodes/n1", "gpus/n1-g0", "nodes/n1/history", "gpus/n1-g0/history", "alerts",
    "alerts/open", "outcomes", "quality", "decisions", "ledger", "ledger/state", "models",
    "models/m/1", "data-health", "metrics", "openapi.json", "nothing-there",
]  # fmt: skip


@pytest.mark.parametrize("path", EVERY_READ)
def test_without_a_token_nothing_is_told(guarded: ApiWorld, path: str) -> None:
    answer = guarded.client().get(f"/api/v1/{path}")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (
        401,
        'Bearer realm="forewarn"',
    )
    assert "n1" not in answer.text


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer ", "Basic cnJycg==", f"bearer {READ}x", READ, "Bearer \xff"]
)
def test_a_wrong_token_is_refused(guarded: ApiWorld, header: str) -> None:
    answer = guarded.client().get(
        "/api/v1/scores", headers={"authorization": header.encode("latin-1")}
    )
    assert answer.status_code == 401


def test_a_token_opens_by_its_role(guarded: ApiWorld) -> None:
    client = guarded.client(peer="10.1.2.3")
    assert client.get("/api/v1/scores", headers=bearer(READ)).status_code == 200
    assert client.get("/api/v1/scores", headers=bearer(OPERATOR)).status_code == 200
    refused = client.post("/api/v1/requests", json=HOLD, headers=bearer(READ))
    assert (refused.status_code, "role operator" in refused.text) == (403, True)
    taken = client.post("/api/v1/requests", json=HOLD, headers=bearer(OPERATOR))
    assert (taken.status_code, taken.json()["actor"]) == (202, "ada")
    assert len(list((guarded.folder / "secret/inbox/new").iterdir())) == 1


def test_loopback_without_tokens_reads_and_never_asks(near: ApiWorld) -> None:
    client = near.client()
    assert client.get("/api/v1/scores").status_code == 200
    assert client.post("/api/v1/requests", json=HOLD).status_code == 403


def test_a_read_token_closes_loopback_too(tmp_path: Path) -> None:
    world = ApiWorld(tmp_path, api=with_tokens(tmp_path / "secret"))
    world.publish()
    assert world.client().get("/api/v1/scores").status_code == 401


@pytest.mark.parametrize(
    "name", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"]
)
def test_what_a_proxy_passes_on_is_not_loopback(near: ApiWorld, name: str) -> None:
    answer = near.client().get("/api/v1/scores", headers={name: "127.0.0.1"})
    assert (answer.status_code, "proxy" in answer.text) == (401, True)


def test_another_peer_is_not_loopback(near: ApiWorld) -> None:
    assert near.client(peer="10.0.0.9").get("/api/v1/scores").status_code == 401


@pytest.mark.parametrize("host", ["evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1:8080"])
def test_a_foreign_host_name_is_refused_on_loopback(near: ApiWorld, host: str) -> None:
    assert near.client(host=host).get("/api/v1/scores").status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "[::1]:8080"])
def test_names_of_loopback_itself_pass(near: ApiWorld, host: str) -> None:
    assert near.client(host=host).get("/api/v1/scores").status_code == 200


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "[::]:8080", "gpu-1:80"])
def test_others_are_not_listened_to_without_a_token(near: ApiWorld, listen: str) -> None:
    with pytest.raises(SettingsError, match="api.tokens is empty"):
        open_access(near.settings, listen=listen)


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1:", "127.0.0.1:99999", ":80", "a:٣"])
def test_an_address_that_is_none_is_refused(near: ApiWorld, listen: str) -> None:
    with pytest.raises(SettingsError, match="expected HOST:PORT"):
        open_access(near.settings, listen=listen)


def test_tokens_may_be_kept_as_hashes_and_never_show(tmp_path: Path) -> None:
    api = with_tokens(tmp_path)
    digest = hashlib.sha256(READ.encode()).hexdigest()
    (tmp_path / "grafana.token").write_text(f"sha256:{digest}\n")
    access = open_access(ApiWorld(tmp_path, api=api).settings)
    assert access.caller_of(READ) == Caller("grafana", "read")
    assert READ not in repr(access)
    assert digest not in repr(access)


@pytest.mark.parametrize(
    ("text", "words"), [("short", "32 or more"), ("", "is empty"), (OPERATOR, "the same token")]
)
def test_a_token_that_can_be_guessed_or_means_two_is_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    api = with_tokens(tmp_path)
    (tmp_path / "grafana.token").write_text(text)
    with pytest.raises(SettingsError, match=words) as refused:
        open_access(ApiWorld(tmp_path, api=api).settings)
    assert OPERATOR not in str(refused.value)


@pytest.mark.parametrize(
    "path",
    [
        "nodes/..%2f..%2f..%2fetc%2fpasswd",
        "nodes/%2e%2e/%2e%2e/etc/passwd",
        "gpus/..%5c..%5cetc",
        "models/..%2f..%2fmlflow.db/1",
        "nodes/n1%00",
        "nodes/%0d%0aSet-Cookie:%20a=b",
        "nodes/..%2f..%2fLATEST.json/history",
        "../../../../etc/passwd",
    ],
)
def test_a_path_leads_nowhere_else(near: ApiWorld, path: str) -> None:
    answer = near.client().get(f"/api/v1/{path}")
    assert answer.status_code in (404, 422) or answer.json()["rows"] == []
    assert "root:" not in answer.text
    assert str(near.folder) not in answer.text
    assert "set-cookie" not in answer.headers


HOSTILE = [
    "<script>alert(1)</script>",
    "n' OR 1=1 --",
    '"}],"x":["',
    "n%_",
    "\uff4e\uff11",
    "a" * 253,
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_node_name_stays_a_name(tmp_path: Path, name: str) -> None:
    world = ApiWorld(tmp_path, nodes={name: 0.5, "n1": 0.4})
    world.publish()
    client = world.client()
    listed = client.get("/api/v1/scores", headers={"accept-encoding": "identity"})
    assert [row["entity_id"] for row in listed.json()["rows"]] == [name, "n1"]
    assert listed.headers["content-type"] == "application/json"
    found = client.get("/api/v1/scores", params={"node": name}).json()["rows"]
    assert [row["entity_id"] for row in found] == [name]
    assert client.get("/api/v1/alerts", params={"node": name}).json()["rows"] == []


def test_a_hostile_job_name_stays_text_in_json(guarded: ApiWorld) -> None:
    answer = guarded.client().get("/api/v1/decisions", headers=bearer(READ))
    assert answer.json()["rows"][0]["jobs"] == ["<b>42</b>"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", ["scores", "nothing-there", "nodes/n9"])
def test_every_answer_carries_the_headers_and_no_cors(near: ApiWorld, path: str) -> None:
    headers = (
        near.client().get(f"/api/v1/{path}", headers={"origin": "https://evil.example"}).headers
    )
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert (headers["x-frame-options"], headers["referrer-policy"]) == ("DENY", "no-referrer")
    assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


def test_a_cookie_never_opens_the_api(guarded: ApiWorld) -> None:
    access = dataclasses.replace(
        open_access(guarded.settings), session=lambda _: Caller("ada", "operator")
    )
    client = Client(guarded.build(access=access)[1])
    assert client.post("/api/v1/requests", json=HOLD).status_code == 401
    assert client.get("/api/v1/scores").status_code == 401
    assert client.get("/page").status_code == 404


def test_a_browser_without_a_session_is_sent_to_log_in(guarded: ApiWorld) -> None:
    access = dataclasses.replace(
        open_access(guarded.settings), login_path="/login", open_paths=("/login", "/static/")
    )
    client = Client(guarded.build(access=access)[1])
    sent = client.get("/page")
    assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=%2Fpage")
    assert client.send("POST", "/page").status_code == 401
    assert client.get("/static/a.css").status_code == 404
    assert client.get("/staticx").status_code == 303


def test_too_many_requests_wait_and_others_do_not(tmp_path: Path) -> None:
    world = ApiWorld(tmp_path, api={"rate_per_s": 0.001, "burst": 2})
    world.publish()
    _, app = world.build()
    client = Client(app)
    codes = [client.get("/api/v1/scores").status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    assert int(client.get("/api/v1/scores").headers["retry-after"]) > 100
    assert Client(app, peer="127.0.0.2").get("/api/v1/scores").status_code == 200


def test_a_bucket_fills_again_and_the_oldest_caller_is_forgotten() -> None:
    limit = RateLimit(rate_per_s=2, burst=1, most=2)
    assert [limit.wait_s("a", now_s=now) for now in (0, 0, 0.25, 0.75)] == [0, 0.5, 0.25, 0]
    for name in ("b", "c"):
        assert limit.wait_s(name, now_s=0.75) == 0
    assert limit.wait_s("a", now_s=0.75) == 0


def test_a_request_that_is_too_large_is_refused(near: ApiWorld) -> None:
    client = near.client()
    assert client.post("/api/v1/requests", content=b"x" * 20_000).status_code == 413
    assert client.get(f"/api/v1/scores?after={'x' * 5000}").status_code == 413
    assert client.get(f"/api/v1/nodes/{'x' * 3000}").status_code == 413

    async def chunks():  # type: ignore[no-untyped-def]
        for _ in range(30):
            yield b"x" * 1000

    assert client.post("/api/v1/requests", content=chunks()).status_code in (400, 413)


def test_a_body_that_never_ends_is_given_up(
    near: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.api.gate.MOST_BODY_S", 0.01)

    async def slow():  # type: ignore[no-untyped-def]
        yield b"x"
        await asyncio.sleep(3600)

    assert near.client().post("/api/v1/requests", content=slow()).status_code == 400


def test_the_server_bounds_what_stands_before_a_body(
    near: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another parser, where it is installed, reads headers without an end.
    given: list[uvicorn.Config] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: given.append(self.config))
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    run(FastAPI(), open_access(near.settings, listen="127.0.0.1:0"), say=lambda: None)
    assert (given[0].http, given[0].proxy_headers, given[0].access_log) == ("h11", False, False)
    assert isinstance(given[0].h11_max_incomplete_event_size, int)


def test_ctrl_c_ends_the_server_as_it_should(
    near: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        self.handle_exit(signal.SIGINT, None)

    monkeypatch.setattr("uvicorn.Server._serve", stopped)
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    try:
        run(FastAPI(), open_access(near.settings, listen="127.0.0.1:0"), say=lambda: None)
    except KeyboardInterrupt:  # which would end all tests
        pytest.fail("it ends as a command that was broken off")


def test_an_address_that_is_taken_is_named_before_anything_is_said_to_run(
    near: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        access = open_access(near.settings, listen=listen)
        with pytest.raises(SettingsError, match=f"cannot listen on {listen}: address already in"):
            run(FastAPI(), access, say=lambda: told.append("running"))
        with pytest.raises(SettingsError, match=f"cannot listen on {listen}: address already in"):
            start_metrics(CollectorRegistry(), listen=listen)
    assert told == []


@pytest.mark.parametrize("name", ["authorization", "host", "content-length"])
def test_a_header_that_decides_is_there_once(guarded: ApiWorld, name: str) -> None:
    more = [
        ("authorization", f"Bearer {READ}"),
        ("host", "x"),
        ("content-length", "0"),
        (name, "x"),
    ]
    answer = guarded.client().get("/api/v1/scores", headers=more)
    assert (answer.status_code, "twice" in answer.text) == (400, True)


@pytest.mark.parametrize("at", ["2026-01-05T10:00:00", "2026-01-05", "1767600000", "x"])
def test_a_time_without_zone_is_refused_with_what_to_write(near: ApiWorld, at: str) -> None:
    answer = near.client().get("/api/v1/alerts", params={"since": at})
    assert (answer.status_code, "2026-01-05T10:00:00Z" in answer.json()["detail"]) == (422, True)


def test_an_unforeseen_failure_tells_nothing(
    near: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, app = near.build()

    def fail() -> None:
        raise RuntimeError(f"secret at {near.folder}")

    monkeypatch.setattr(sources.fleet, "current", fail)
    answer = Client(app).get("/api/v1/scores")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_hook_takes_what_was_signed_here_and_nothing_forged(guarded: ApiWorld) -> None:
    client = guarded.client()
    nonces = [
        client.post("/api/v1/requests", json=HOLD, headers=bearer(OPERATOR)).json()["nonce"]
        for _ in range(2)
    ]
    inbox = guarded.folder / "secret/inbox"
    forged = inbox / "new" / f"{nonces[1]}.json"
    said = decode(forged.read_bytes()).request
    forged.write_bytes(encode(said, RequestKey(b"f" * 64)))
    altered = json.loads((inbox / "new" / f"{nonces[0]}.json").read_bytes())
    (inbox / "new" / "altered.json").write_bytes(
        json.dumps(altered | {"node": "n2"}, sort_keys=True, separators=(",", ":")).encode()
    )
    with guarded.ledger() as ledger:
        present = Present(
            now=guarded.now, actors={"ada": ("*",)}, open_decision=lambda _: None,
            boots={"n1": "boot-n1", "n2": "boot-n2"}, escalations=frozenset(),
        )  # fmt: skip
        run = read_inbox(
            inbox, keys={"api": RequestKey(KEY.encode())}, present=present, ledger=ledger,
            actuator="slurm",
        )  # fmt: skip
    assert [one.nonce for one in run.accepted] == [nonces[0]]
    assert len([why for why in run.refused if "signature" in why]) == 2
