"""Scraping exporters on loopback: good pages, and everything that goes wrong."""

import gzip
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from features.errors import SettingsError
from pipelines.sources.result import merge
from pipelines.sources.telemetry.scrape import ScrapeSettings, pull_scrape

NOW = datetime(2026, 1, 6, tzinfo=UTC)
TS = datetime(2026, 1, 5, 23, 59, tzinfo=UTC)
PATIENT = ScrapeSettings(timeout_s=30, deadline_s=60, max_bytes=100_000, pause_s=0.25)
QUICK = replace(PATIENT, timeout_s=1.5, deadline_s=2.5)
"""For targets that are waited for in vain; beside them others answer, on a busy machine too."""
PAGE = b'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",Hostname="n1"} 50\n'
SMI = b'nvidia_smi_temperature_gpu{uuid="c0b5694b-2b5d-6b20-f903-558341437f6b"} 51\n'


class Exporter(BaseHTTPRequestHandler):
    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):  # noqa: C901, PLR0912 - one answer per path
        self.server.asked.append(self.path)
        number = self.server.asked.count(self.path)
        match self.path:
            case "/metrics":
                self.answer(PAGE)
            case "/smi":
                self.answer(SMI)
            case "/packed":
                self.answer(gzip.compress(PAGE), Content_Encoding="gzip")
            case "/openmetrics":
                self.answer(
                    PAGE.strip() + b" 1767571200.5\n",
                    Content_Type="application/openmetrics-text; version=1.0.0",
                )
            case "/recovers":
                self.answer(PAGE, 503 if number == 1 else 200)
            case "/broken":
                self.answer(b"internal error", 500)
            case "/gone":
                self.answer(b"", 404)
            case "/elsewhere":
                self.answer(b"", 302, Location="/metrics")
            case "/garbage":
                self.answer(bytes(range(256)))
            case "/badly-packed":
                self.answer(b"not gzip at all", Content_Encoding="gzip")
            case "/bomb":
                self.answer(gzip.compress(b"\n" * 2_000_000), Content_Encoding="gzip")
            case "/empty":
                self.answer(b"")
            case "/hangs":
                self.server.release.wait(60)
            case "/drips":
                self.send_response(200)
                self.end_headers()
                while not self.server.release.wait(0.1):
                    try:
                        self.wfile.write(b"#")
                    except OSError:
                        return
            case "/breaks-off":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(PAGE)

    def log_message(self, *_):
        pass


@pytest.fixture
def exporter():
    with running() as server:
        yield server


@contextmanager
def running():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    server.daemon_threads = True
    server.asked, server.release = [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.release.set()
        server.shutdown()
        server.server_close()
        thread.join()


def pull(server, *paths, settings=PATIENT, **options):
    urls = [f"http://127.0.0.1:{server.server_port}{path}" for path in paths]
    pauses = []
    result = merge(
        pull_scrape(
            urls, ingested_at=NOW, now=lambda: TS, settings=settings, pause=pauses.append, **options
        )
    )
    return result, urls, pauses


def rules(result):
    return result.quarantine["rule"].to_list()


def test_both_exporters_are_understood_and_time_is_that_of_the_answer(exporter):
    result, urls, _ = pull(exporter, "/metrics", "/smi")
    frame = result.table("raw/gpu_telemetry")
    assert frame.select("gpu_uuid", "ts", "node", "gpu_temp_c", "source").rows() == [
        ("GPU-a", TS, "n1", 50.0, "scrape"),
        ("GPU-c0b5694b-2b5d-6b20-f903-558341437f6b", TS, "127.0.0.1", 51.0, "scrape"),
    ]
    assert result.reads.select("origin", "n_read", "n_parsed").rows() == [
        (urls[0], 1, 1),
        (urls[1], 1, 1),
    ]


def test_a_node_may_be_told_by_address(exporter):
    url = f"http://127.0.0.1:{exporter.server_port}/smi"
    result, _, _ = pull(exporter, "/smi", nodes={url: "n9"})
    assert result.table("raw/gpu_telemetry")["node"].to_list() == ["n9"]
    assert result.table("raw/coverage").select("entity_id", "origin").rows() == [("n9", url)]


def test_a_page_may_be_packed_and_may_bring_its_own_times(exporter):
    result, _, _ = pull(exporter, "/packed", "/openmetrics")
    assert result.table("raw/gpu_telemetry")["ts"].to_list() == [
        TS,
        datetime(2026, 1, 5, 0, 0, 0, 500_000, tzinfo=UTC),
    ]


@pytest.mark.parametrize(
    ("path", "rule", "tries"),
    [
        ("/broken", "target answered with status 500", 2),
        ("/gone", "target answered with status 404", 1),
        ("/elsewhere", "target sends elsewhere (status 302), which is not followed", 1),
        ("/hangs", "target did not answer in time", 2),
        ("/drips", "page took longer than 2.5 s", 1),
        ("/bomb", "page is longer than 100000 bytes", 1),
        ("/badly-packed", "target's answer is not valid: DecodeError", 1),
        ("/breaks-off", "target cannot be reached, or broke off", 2),
    ],
)
def test_a_target_that_fails_says_why_and_spoils_no_other(exporter, path, rule, tries):
    began = time.monotonic()
    settings = QUICK if path in ("/hangs", "/drips") else PATIENT
    result, urls, pauses = pull(exporter, "/metrics", path, "/smi", settings=settings)
    assert time.monotonic() - began < 30
    assert rules(result) == [rule]
    assert result.quarantine["origin"].to_list() == [urls[1]]
    assert result.table("raw/gpu_telemetry").height == 2
    assert exporter.asked.count(path) == tries
    assert pauses == [0.25] * (tries - 1)
    covered = result.table("raw/coverage")["origin"].to_list()
    assert covered == [urls[0], urls[2]]
    assert result.reads.select("n_read", "n_quarantined").rows() == [(1, 0), (1, 1), (1, 0)]


def test_an_unreachable_target_fails_alone(exporter):
    with running() as other:
        port = other.server_port
    urls = [f"http://127.0.0.1:{p}/metrics" for p in (port, exporter.server_port)]
    result = merge(
        pull_scrape(urls, ingested_at=NOW, now=lambda: TS, settings=PATIENT, pause=lambda _: None)
    )
    assert rules(result) == ["target cannot be reached, or broke off"]
    assert result.table("raw/gpu_telemetry").height == 1


def test_a_second_try_may_help(exporter):
    result, _, pauses = pull(exporter, "/recovers")
    assert result.table("raw/gpu_telemetry").height == 1
    assert pauses == [0.25]


def test_an_answer_without_gpus_is_covered_and_garbage_is_not(exporter):
    result, urls, _ = pull(exporter, "/empty", "/garbage")
    assert result.table("raw/gpu_telemetry").is_empty()
    assert result.table("raw/coverage").select("entity_id", "start", "origin").rows() == [
        ("127.0.0.1", TS, urls[0])
    ]


def test_where_chunks_of_targets_are_cut_changes_nothing(exporter):
    paths = ("/metrics", "/smi", "/gone", "/empty")
    whole, _, _ = pull(exporter, *paths)
    cut, _, _ = pull(exporter, *paths, settings=ScrapeSettings(chunk_targets=1, concurrency=2))
    for key in whole.tables:
        assert cut.table(key).equals(whole.table(key))
    assert cut.reads.equals(whole.reads)


@pytest.mark.parametrize("url", ["ftp://n1/metrics", "n1:9400/metrics", "file:///etc/passwd"])
def test_an_address_that_is_not_http_is_one_clear_error(url):
    with pytest.raises(SettingsError, match="Correct it in the list of targets"):
        list(pull_scrape([url], ingested_at=NOW, now=lambda: TS))
