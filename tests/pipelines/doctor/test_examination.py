"""Probes of `forewarn doctor`: what each finds, and that one that hangs holds nothing up."""

import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from dagster import DagsterInstance
from dagster._daemon.types import DaemonHeartbeat
from typer.testing import CliRunner

from features.errors import ForewarnError, SourceError
from pipelines.cli import app
from pipelines.doctor import servers as doctor_servers
from pipelines.doctor import storage as doctor_storage
from pipelines.doctor.examination import Examination
from pipelines.doctor.http_look import HttpLook
from pipelines.doctor.probe import FakeProbe, Finding, beside, beside_header, joined, look_at_all
from pipelines.doctor.sources import probe_files, probe_scrape, source_probes
from pipelines.settings import Settings, settings_from
from pipelines.sources.site.listing import load_inputs
from pipelines.sources.site.server_inputs import ScrapeInput

NOW = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
WELL = Finding("ok", "well")


def settings_of(folder: Path, **more: Any) -> Settings:
    content = {
        "site": "lab",
        "inputs": "inputs.yaml",
        "data_root": "data",
        "start": "2026-01-01T00:00:00Z",
        **more,
    }
    return settings_from(content, origin=folder / "forewarn.yaml")


class Pages(BaseHTTPRequestHandler):
    """Gives the page of its path: its status, then its body."""

    def do_GET(self) -> None:
        status, body = self.path.lstrip("/").split("/", 1)
        self.send_response(int(status) if status.isdigit() else 404)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as http:
        Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}"
        http.shutdown()


def test_findings_keep_the_order_of_the_probes_and_faults_are_findings() -> None:
    probes = [
        FakeProbe("slow", WELL, seconds=0.1),
        FakeProbe("quick", Finding("warn", "so so", "do this")),
        FakeProbe("told", SourceError("it is gone")),
        FakeProbe("fault", ZeroDivisionError("oh")),
    ]
    found = look_at_all(probes, timeout_s=20)
    assert [(one.name, one.finding.state) for one in found] == [
        ("slow", "ok"),
        ("quick", "warn"),
        ("told", "FAIL"),
        ("fault", "FAIL"),
    ]
    assert found[0].took_ms >= 100
    assert "ZeroDivisionError" in found[3].finding.what


def test_a_probe_that_hangs_is_given_up_and_the_others_are_told() -> None:
    probes = [FakeProbe(f"hangs {i}", WELL, seconds=60) for i in range(3)] + [FakeProbe("w", WELL)]
    began = time.monotonic()
    found = look_at_all(probes, timeout_s=0.3)
    assert time.monotonic() - began < 30
    assert [one.finding.state for one in found] == ["FAIL"] * 3 + ["ok"]
    assert "no answer within 0.3 s" in found[0].finding.what


def test_the_words_say_what_to_do_and_the_code_whether_something_fails() -> None:
    looked = look_at_all([FakeProbe("a", Finding("warn", "w\x1b", "do it"))], timeout_s=9)
    found = Examination(looked)
    assert found.exit_code == 0
    assert "-> do it" in found.words()
    assert "\x1b" not in found.words()
    assert json.loads(found.json())[0]["do"] == "do it"
    failed = Examination(look_at_all([FakeProbe("a", Finding("FAIL", "f"))], timeout_s=9))
    assert (failed.exit_code, failed.words().endswith("0 ok, 0 warn, 1 FAIL")) == (1, True)


@pytest.mark.parametrize(
    ("seconds", "state"), [(0, None), (4, None), (-6, "warn"), (30, "warn"), (-120, "FAIL")]
)
def test_clocks_apart_are_told(seconds: int, state: str | None) -> None:
    found = beside(NOW + timedelta(seconds=seconds), NOW)
    assert (found.state if found else None) == state


def test_a_date_header_is_cut_to_the_second_and_may_be_absent() -> None:
    assert beside_header("Sun, 01 Mar 2026 12:04:55 GMT", NOW) is None
    behind = beside_header("Sun, 01 Mar 2026 12:04:30 GMT", NOW)
    assert behind is not None
    assert "behind this one" in behind.what
    assert beside_header("", NOW) is None
    assert beside_header("yesterday", NOW) is None


def test_several_findings_are_as_bad_as_the_worst() -> None:
    found = joined("up", None, Finding("FAIL", "b", "y."), Finding("warn", "a", "x."))
    assert found == Finding("FAIL", "up; b; a", "y. x.")
    assert joined("up", None) == Finding("ok", "up")


def test_a_folder_that_works_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    assert doctor_storage.probe_folder(tmp_path).state in ("ok", "warn")
    assert [one.name for one in tmp_path.iterdir()] == ["kept"]
    absent = doctor_storage.probe_folder(tmp_path / "none")
    assert (absent.state, "not there yet" in absent.what) == ("warn", True)


def test_a_folder_that_refuses_a_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "fsync", refuse)
    found = doctor_storage.probe_folder(tmp_path)
    assert (found.state, "Operation not supported" in found.what) == ("FAIL", True)


def test_little_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1_000_000_000, "total": 10_000_000_000})
    monkeypatch.setattr(doctor_storage.shutil, "disk_usage", lambda _: usage)
    assert doctor_storage.probe_folder(tmp_path).state == "FAIL"
    usage.free = 9_000_000_000
    assert doctor_storage.probe_folder(tmp_path).state == "warn"


def test_a_site_without_anything_yet_fails_nowhere_and_nothing_is_made(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    probes = [
        one for one in doctor_storage.storage_probes(settings, now=NOW) if one.name != "data_root"
    ]
    found = {one.name: one.look() for one in probes}
    assert {one.state for one in found.values()} <= {"ok", "warn"}, found
    assert doctor_servers.probe_score_database(settings).state == "warn"
    assert list(tmp_path.iterdir()) == []


def test_files_are_counted_and_those_that_cannot_be_read_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inputs.yaml").write_text(
        "site: s\ninputs: [{kind: kernel_log, path: '*.log', time_zone: UTC}]"
    )
    (tmp_path / "a.log").write_text("x")
    inputs = load_inputs(tmp_path / "inputs.yaml")
    spec: Any = inputs.spec.inputs[0]
    assert probe_files(inputs, spec, NOW).what.startswith("1 files")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert probe_files(inputs, spec, NOW).state == "FAIL"
    (tmp_path / "a.log").unlink()
    (probe,) = source_probes(tmp_path / "inputs.yaml", now=NOW)
    with pytest.raises(SourceError, match="no file matches"):
        probe.look()


def test_a_list_that_cannot_be_read_is_one_finding(tmp_path: Path) -> None:
    (probe,) = source_probes(tmp_path / "none.yaml", now=NOW)
    assert probe.look().state == "FAIL"


def test_exporters_are_counted_and_pages_of_others_told(server: str) -> None:
    gpu, other = f"{server}/200/DCGM_FI_DEV_GPU_TEMP{{}} 4", f"{server}/200/node_cpu 1"

    def look(*urls: str) -> Finding:
        return probe_scrape(None, ScrapeInput(kind="scrape", urls=urls), NOW)  # type: ignore[arg-type]

    assert look(gpu) == Finding("ok", "1 of 1 exporters answer")
    assert look(gpu, other).state == "warn"
    assert look(other).state == "FAIL"
    assert "no metric of a GPU" in look(other).what
    assert "Start it" in look("http://127.0.0.1:9/metrics").what


@pytest.mark.parametrize(
    ("status", "do"), [(200, None), (401, "secret"), (404, "address"), (500, "log")]
)
def test_a_refusal_says_what_to_correct(server: str, status: int, do: str | None) -> None:
    found = HttpLook(f"{server}/{status}/page").ask().refusal()
    assert (found is None) is (do is None)
    assert found is None or do in found.do  # type: ignore[operator]


def test_a_webhook_is_connected_to_and_told_nothing(tmp_path: Path) -> None:
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        port = listening.getsockname()[1]
        assert doctor_servers.probe_connection(f"http://127.0.0.1:{port}/x").state == "ok"
        taken, _ = listening.accept()
        with taken:
            assert taken.recv(10) == b""
    gone = doctor_servers.probe_connection(f"tcp://127.0.0.1:{port}")
    assert (gone.state, "let this machine through" in gone.do) == ("FAIL", True)


def test_a_stranger_on_our_port_is_told(tmp_path: Path, server: str) -> None:
    settings = settings_of(tmp_path)
    host = server.removeprefix("http://")
    found = doctor_servers.probe_own(settings, host)
    assert (found.state, "something else listens" in found.what) == ("FAIL", True)
    assert doctor_servers.probe_own(settings, "127.0.0.1:9").state == "ok"


def test_the_command_ends_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "forewarn.yaml").write_text(
        "site: lab\ninputs: inputs.yaml\ndata_root: data\nstart: 2026-01-01T00:00:00Z\n"
    )
    made = CliRunner().invoke(
        app, ["doctor", "--settings", str(tmp_path / "forewarn.yaml"), "--json"]
    )
    states = {one["check"]: one["state"] for one in json.loads(made.output)}
    assert (made.exit_code, states["inputs"], states["score database"]) == (1, "FAIL", "warn")


def test_a_certificate_that_nobody_trusts_fails_and_one_that_is_trusted_says_how_long(
    tmp_path: Path,
) -> None:
    cert = self_signed(tmp_path, days=3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert)
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as http:
        http.socket = context.wrap_socket(http.socket, server_side=True)
        http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a refused handshake
        Thread(target=http.serve_forever, args=(0.05,), daemon=True).start()
        url = f"https://localhost:{http.server_address[1]}/x"
        refused = doctor_servers.probe_connection(url)
        trusted = doctor_servers.probe_connection(url, ca_file=cert)
        http.shutdown()
    assert (refused.state, "ca_file" in refused.do) == ("FAIL", True)
    assert (trusted.state, trusted.do) == ("warn", "Renew the certificate.")
    assert "holds for 2 days" in trusted.what


def self_signed(folder: Path, *, days: int) -> Path:
    """Key and certificate of localhost in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_daemons_of_dagster_are_known_by_their_last_sign_of_life(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    assert (
        "no daemon ever ran" in doctor_servers.probe_dagster(settings_of(tmp_path), tmp_path).what
    )
    now = datetime.now(UTC).timestamp()

    def beat(kind: str, at: float) -> Finding:
        with DagsterInstance.from_config(str(tmp_path)) as instance:
            instance.add_daemon_heartbeat(DaemonHeartbeat(at, kind, "id"))
        return doctor_servers.probe_dagster(settings_of(tmp_path), tmp_path)

    assert beat("SCHEDULER", now).state == "ok"
    assert beat("SENSOR", now - 3600).state == "warn"
    assert beat("SCHEDULER", now - 3600).state == "FAIL"


def test_a_home_that_dagster_never_used_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    assert (
        "no daemon ever ran" in doctor_servers.probe_dagster(settings_of(tmp_path), tmp_path).what
    )
    assert doctor_servers.probe_dagster(settings_of(tmp_path), tmp_path / "none").state == "warn"
    assert [one.name for one in tmp_path.iterdir()] == ["dagster.yaml"]


def test_our_own_server_may_listen_on_ipv6(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_INET6)) as other:
        try:
            other.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = other.getsockname()[1]
        found = doctor_servers.probe_own(settings_of(tmp_path), f"[::1]:{port}")
    assert (found.state, "is free" in found.what) == ("ok", True)


def test_a_probe_that_hangs_does_not_keep_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forewarn.yaml").write_text(
        "site: lab\ninputs: inputs.yaml\ndata_root: data\nstart: 2026-01-01T00:00:00Z\n"
    )
    hangs = look_at_all([FakeProbe("hangs", WELL, seconds=60)], timeout_s=0.05)
    monkeypatch.setattr("pipelines.doctor.examination.examine", lambda *_, **__: Examination(hangs))
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    CliRunner().invoke(app, ["doctor", "--settings", str(tmp_path / "forewarn.yaml")])
    assert ended == [1]


def test_a_score_database_that_is_down_is_no_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "hunter2")
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"postgresql+psycopg://me@127.0.0.1:{closed.getsockname()[1]}/x"
        database = {"url": url, "password": {"variable": "PW"}}
        with pytest.raises(ForewarnError) as error:
            doctor_servers.probe_score_database(settings_of(tmp_path, score_database=database))
    assert "hunter2" not in str(error.value)


def test_a_database_of_dagster_that_is_down_is_no_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    utils = pytest.importorskip("dagster_postgres.utils")

    def fails(_home: str) -> None:
        raise utils.DagsterPostgresException("too many retries for DB connection")

    monkeypatch.setattr(DagsterInstance, "from_config", fails)
    (tmp_path / "dagster.yaml").write_text("storage: {postgres: {}}\n")
    with pytest.raises(SourceError, match="cannot be opened: too many retries"):
        doctor_servers.probe_dagster(settings_of(tmp_path), tmp_path)
