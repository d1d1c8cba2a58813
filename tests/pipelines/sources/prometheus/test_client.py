"""Which protocol a server serves, and what its refusals mean."""

from datetime import timedelta

import pytest

from features.errors import SettingsError, SourceError
from pipelines.sources.http.client import HttpClient
from pipelines.sources.http.errors import HttpError
from pipelines.sources.http.settings import HttpLimits, HttpSettings
from pipelines.sources.prometheus.chunks import LabelCache
from pipelines.sources.prometheus.client import PrometheusClient, PrometheusSettings, is_too_much
from pipelines.sources.prometheus.readings import Window
from pipelines.sources.prometheus.series import Matcher, Reader
from tests.pipelines.sources.prometheus.answers import (
    Answer,
    chunk,
    chunked,
    frame,
    matrix,
    sampled,
    stand_in,
)

START = 1_767_600_000_000
WINDOW = Window(START, START + 600_000)
NAME = Matcher("__name__", "=", "DCGM_FI_DEV_GPU_TEMP")
LABELS = {"__name__": NAME.value, "UUID": "GPU-a", "gpu": "0", "Hostname": "n1"}
SAMPLES = [(START, 40.0), (START + 60_000, 41.5)]
STREAM = {"Content-Type": "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"}
PLAIN = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
JSON = {"Content-Type": "application/json"}

streamed = Answer(200, chunked(LABELS, chunk(SAMPLES)), STREAM)
plain = Answer(200, sampled([(LABELS, SAMPLES)]), PLAIN)


def client(url, *, attempts=2, **settings):
    http = HttpSettings(url, limits=HttpLimits(attempts=attempts))
    found = PrometheusSettings(http, **settings)
    return PrometheusClient(found, http=HttpClient(http, sleep=lambda seconds: None))


def read(found, window=WINDOW, matchers=(NAME,)):
    reader = Reader()
    return found.read(matchers, window, read_labels=reader.read, cache=LabelCache(reader.read))


def samples(readings):
    return list(zip(readings.ts.tolist(), readings.values.tolist(), strict=True))


def by_path(**answers):
    """Answers by the end of the path; what is not named is not found."""
    return lambda request: answers.get(request.path.rsplit("/", 1)[-1], Answer(404, b"not found"))


@pytest.mark.parametrize("answer", [streamed, plain], ids=["streamed", "plain"])
def test_remote_read_takes_whichever_answer_the_server_gives(answer):
    with stand_in(by_path(read=answer)) as server:
        found = client(server.url)
        assert samples(read(found)) == SAMPLES
        assert [request.path for request in server.requests] == ["/api/v1/read"]


@pytest.mark.parametrize("status", [400, 404, 405, 415, 501])
def test_a_server_without_remote_read_is_asked_for_raw_samples(status):
    refuse = Answer(status, b"unsupported path requested: /api/v1/read")
    raw = Answer(200, matrix([(LABELS, SAMPLES)]), JSON)
    with stand_in(by_path(read=refuse, query=raw)) as server:
        found = client(server.url)
        assert samples(read(found)) == SAMPLES
        assert samples(read(found)) == SAMPLES
        # What the server serves is found out once.
        assert [request.path[8:] for request in server.requests] == ["read", "query", "query"]
        params = server.requests[1].params
        assert params["query"] == ['{__name__="DCGM_FI_DEV_GPU_TEMP"}[600000ms]']
        assert params["time"] == [f"{(START + 599_999) / 1000:.3f}"]
        assert params["partial_response"] == ["false"]


def test_a_server_without_raw_queries_is_asked_on_a_grid_that_keeps_nobody_alive():
    ranged = Answer(200, matrix([(LABELS, SAMPLES)]), JSON)
    with stand_in(by_path(query_range=ranged)) as server:
        found = client(server.url)
        assert samples(read(found, Window(START - 1, START + 120_001))) == SAMPLES
        params = server.requests[-1].params
    assert params["query"] == ['last_over_time({__name__="DCGM_FI_DEV_GPU_TEMP"}[59999ms])']
    assert (params["start"], params["step"]) == ([f"{START / 1000:.3f}"], ["60.000"])


def test_a_page_that_answers_everything_with_html_is_an_error_that_says_so():
    page = Answer(200, b"<html>please log in</html>", {"Content-Type": "text/html"})
    with (
        stand_in(lambda request: page) as server,
        pytest.raises(HttpError, match="please log in"),
    ):
        read(client(server.url))


def test_a_protocol_that_was_asked_for_is_not_exchanged_for_another():
    with (
        stand_in(by_path(query=Answer(200, matrix([])))) as server,
        pytest.raises(HttpError, match="remote read of 2026-01-05T08:00:00Z to .*404"),
    ):
        read(client(server.url, protocol="remote_read"))


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_secret_is_no_sign_of_another_protocol(status):
    with stand_in(lambda request: Answer(status)) as server:
        with pytest.raises(HttpError, match="Check the auth setting"):
            read(client(server.url))
        assert len(server.requests) == 1


def test_a_query_range_is_cut_below_the_servers_limit_of_points():
    with stand_in(by_path(query_range=Answer(200, matrix([])))) as server:
        found = client(server.url, protocol="query_range", step=timedelta(seconds=1))
        read(found, Window(START, START + 25_000_000))
        spans = [
            [round(float(request.params[key][0]) * 1000) - START for key in ("start", "end")]
            for request in server.requests
        ]
    assert spans == [[0, 9_999_999], [10_000_000, 19_999_999], [20_000_000, 24_999_999]]


def test_a_window_without_a_grid_moment_asks_nothing():
    with stand_in(by_path()) as server:
        readings = read(client(server.url, protocol="query_range"), Window(START + 1, START + 2))
        assert (readings.n_samples, server.requests) == (0, [])


@pytest.mark.parametrize(
    "body",
    [
        streamed.body[:-1],
        streamed.body[:40],
        streamed.body[:-1] + b"\x00",
        frame(b"\xff\xff\xff"),
        b"<html>",
    ],
)
def test_a_damaged_stream_is_asked_for_again_and_then_an_error(body):
    with stand_in(by_path(read=Answer(200, body, STREAM))) as server:
        with pytest.raises(SourceError, match=r"remote read of .*\(2 tries\)"):
            read(client(server.url, protocol="remote_read"))
        assert len(server.requests) == 2


def test_a_stream_that_was_damaged_once_is_read_whole_and_once():
    waiting = [Answer(200, streamed.body[:50], STREAM), streamed]
    with stand_in(lambda request: waiting.pop(0)) as server:
        assert samples(read(client(server.url))) == SAMPLES


def test_samples_beyond_the_window_are_left_out_of_both_answers():
    for answer in (streamed, plain):
        with stand_in(by_path(read=answer)) as server:
            part = Window(START + 1, START + 60_001)
            assert samples(read(client(server.url), part)) == SAMPLES[1:]


def test_chunks_of_other_encodings_are_refused_and_leave_the_rest():
    body = chunked(
        LABELS,
        chunk(SAMPLES[:1]),
        chunk([], encoding=2, data=b"\x00\x07rest"),
        chunk([], encoding=9, data=b""),
        chunk([], data=b"\x00\x02\x01"),
        chunk(SAMPLES[1:]),
    )
    with stand_in(by_path(read=Answer(200, body, STREAM))) as server:
        readings = read(client(server.url))
    assert samples(readings) == SAMPLES
    assert [(one.rule.split(":")[0], one.n) for one in readings.refused] == [
        ("native histogram chunk", 7),
        ("chunk of an unknown encoding", 1),
        ("XOR chunk is malformed", 1),
    ]


def test_a_series_spread_over_frames_is_whole():
    body = chunked(LABELS, chunk(SAMPLES[:1])) + chunked(LABELS, chunk(SAMPLES[1:]))
    with stand_in(by_path(read=Answer(200, body, STREAM))) as server:
        assert samples(read(client(server.url))) == SAMPLES


def test_more_samples_than_the_limit_are_too_much():
    for answer in (streamed, plain):
        with stand_in(by_path(read=answer)) as server:
            with pytest.raises(HttpError) as caught:
                read(client(server.url, max_samples=1))
            assert is_too_much(caught.value)
            assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (413, "", True),
        (422, "query processing would load too many samples into memory", True),
        (400, "exceeded sample limit (50000000)", True),
        (400, "exceeded maximum resolution of 11,000 points per timeseries", True),
        (503, "query timed out in query execution", True),
        (503, "no healthy upstream", False),
        (503, "too many concurrent queries, limit 20", False),
        (400, "parse error", False),
        (429, "too many requests", False),
    ],
)
def test_what_is_too_much_is_told_from_what_is_wrong(status, words, expected):
    error = HttpError("x", status=status, may_pass=False, words=words)
    assert is_too_much(error) == expected


def test_catalogues_are_asked_with_the_matchers_of_the_settings():
    listing = Answer(200, b'{"status": "success", "data": ["a"]}')
    with stand_in(by_path(values=listing)) as server:
        found = client(server.url + "/prefix/", matchers=('job="dcgm"',))
        assert found.label_values("__name__", WINDOW, name_pattern="dcgm.+") == ["a"]
        assert found.label_names(WINDOW, name_pattern="dcgm.+") is None
        assert found.helps() == {}
        assert server.requests[0].path == "/prefix/api/v1/label/__name__/values"
        assert server.requests[0].params["match[]"] == ['{__name__=~"dcgm.+",job="dcgm"}']


@pytest.mark.parametrize(
    "settings",
    [
        {"replica_label": "replica"},
        {"window": timedelta(0)},
        {"step": timedelta(-1)},
        {"gpus_per_request": 0},
        {"max_samples": 0},
    ],
)
def test_settings_that_cannot_be_carried_out_are_refused(settings):
    with pytest.raises(SettingsError):
        PrometheusSettings(HttpSettings("http://a"), **settings)
