"""The source as a whole, against a stand-in that holds samples in memory."""

import json
import math
import re
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.contracts import TableContract
from features.errors import DataError, SourceError
from features.tables import TABLE_BY_KEY
from pipelines.sources.http.client import HttpClient
from pipelines.sources.http.errors import HttpError
from pipelines.sources.http.settings import HttpLimits, HttpSettings
from pipelines.sources.prometheus.client import PrometheusClient, PrometheusSettings
from pipelines.sources.prometheus.pull import pull_prometheus
from pipelines.sources.result import merge
from tests.pipelines.sources.prometheus.answers import (
    Answer,
    chunk,
    chunked,
    matrix,
    sampled,
    stand_in,
)

START = datetime(2026, 1, 5, tzinfo=UTC)
END = START + timedelta(hours=4)
NOW = datetime(2026, 1, 6, tzinfo=UTC)
MS = 1_767_571_200_000
STREAM = {"Content-Type": "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"}
PLAIN = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}


def labels(name="DCGM_FI_DEV_GPU_TEMP", gpu=0, **more):
    return {
        "__name__": name,
        "UUID": f"GPU-{gpu:08d}-0000-0000-0000-000000000000",
        "gpu": str(gpu),
        "Hostname": "n1",
        **more,
    }


class Memory:
    """A server with a few series, that understands just what the source asks."""

    def __init__(self, *series, kind="stream", most_ms=math.inf, lists=True, helps=None):
        self.series, self.kind, self.most_ms, self.lists = series, kind, most_ms, lists
        self.helps = helps or {}
        self.windows = []

    def __call__(self, request) -> Answer:
        path = request.path.removeprefix("/api/v1/")
        if path == "metadata":
            return self._json(self.helps)
        if path == "labels" and self.lists:
            return self._json(sorted({name for one, _ in self.series for name in one}))
        if path.startswith("label/") and self.lists:
            label = path.split("/")[1]
            return self._json(sorted({one[label] for one, _ in self.series if label in one}))
        if path == "read" and self.kind in {"stream", "plain"}:
            return self._read(request.body)
        if path == "query" and self.kind == "raw":
            end = round(float(request.params["time"][0]) * 1000) + 1
            start = end - int(re.search(r"\[(\d+)ms\]", request.params["query"][0])[1])
            refused = self._too_much(start, end)
            return refused or Answer(
                200, matrix(self._chosen(request.params["query"][0], start, end))
            )
        return Answer(404, b"not found")

    def _read(self, body: bytes) -> Answer:
        import pyarrow as pa

        text = pa.decompress(body, _size(body), codec="snappy", asbytes=True)
        start, end, conditions = _request(text)
        refused = self._too_much(start, end)
        if refused:
            return refused
        series = self._matching(conditions)
        if self.kind == "plain":
            return Answer(200, sampled([(one, _within(s, start, end)) for one, s in series]), PLAIN)
        # Whole chunks, as the real server sends them.
        hits = [(one, s) for one, s in series if _within(s, start, end)]
        return Answer(200, b"".join(chunked(one, chunk(s)) for one, s in hits), STREAM)

    def _too_much(self, start, end):
        self.windows.append((start - MS, end - MS))
        if end - start > self.most_ms:
            return Answer(422, b'{"status":"error","error":"too many samples"}')
        return None

    def _chosen(self, query, start, end):
        found = re.findall(r'(\w+)(=~|=)"((?:[^"\\]|\\.)*)"', query)
        conditions = [(n, {"=": 0, "=~": 2}[op], v.replace("\\\\", "\\")) for n, op, v in found]
        return [(one, _within(s, start, end)) for one, s in self._matching(conditions)]

    def _matching(self, conditions):
        def holds(one):
            return all(
                re.fullmatch(value, one.get(name, "")) if kind == 2 else one.get(name, "") == value
                for name, kind, value in conditions
            )

        return [(one, samples) for one, samples in self.series if holds(one)]

    def _json(self, data) -> Answer:
        return Answer(200, json.dumps({"status": "success", "data": data}).encode())


def _within(samples, start, end):
    return [(ts, value) for ts, value in samples if start <= ts < end]


def _size(packed: bytes) -> int:
    size = shift = 0
    for byte in packed:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return size


def _request(text: bytes):
    from pipelines.sources.prometheus.wire import _fields, _varint

    query = dict(_fields(text))[1]
    _, at = _varint(query, 0)
    start, at = _varint(query, at)
    _, at = _varint(query, at)
    end, _ = _varint(query, at)
    conditions = []
    for number, content in _fields(query):
        if number == 3:
            kind = content[1]
            parts = dict(_fields(content))
            conditions.append((parts[2].decode(), kind, parts.get(3, b"").decode()))
    return start, end + 1, conditions


def client(url, *, attempts=2, **more):
    http = HttpSettings(url, limits=HttpLimits(attempts=attempts))
    return PrometheusClient(
        PrometheusSettings(http, **more), http=HttpClient(http, sleep=lambda seconds: None)
    )


def pull(memory, start=START, end=END, **more):
    with stand_in(memory) as server:
        return list(pull_prometheus(client(server.url, **more), start, end, ingested_at=NOW))


def minutes(*values, every=60_000, start=MS):
    return [(start + i * every, value) for i, value in enumerate(values)]


def day(gpu=0, n=240, names=("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE")):
    return [(labels(name, gpu), minutes(*range(20, 20 + n))) for name in names]


def holds_contracts(result):
    for key, frame in result.tables.items():
        contract: TableContract = TABLE_BY_KEY[key]
        enforced = contract.enforce(frame)
        assert enforced.rejects.is_empty(), enforced.rejects
    return result


def telemetry(results):
    return merge(results).table("raw/gpu_telemetry").sort("gpu_uuid", "ts")


@pytest.mark.parametrize("kind", ["stream", "plain", "raw"])
def test_every_protocol_gives_the_same_tables_and_account(kind):
    series = [(labels(gpu=gpu), minutes(40.0, math.nan, 42.0 + gpu)) for gpu in range(3)] + [
        ({"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "9"}, minutes(1.0))
    ]
    result = holds_contracts(merge(pull(Memory(*series, kind=kind))))
    frame = result.table("raw/gpu_telemetry")
    assert frame["gpu_temp_c"].to_list() == [40, None, 42, 40, None, 43, 40, None, 44]
    assert frame["gpu_index"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert result.reads.row(0)[2:] == (10, 9, 0, 1)
    assert result.quarantine["rule"].to_list() == ["no UUID label: the GPU is unknown"]


def test_a_server_that_is_ready_but_has_no_series_is_known_to_have_been_asked():
    (result,) = pull(Memory())
    cover = result.table("raw/coverage")
    assert cover.select("entity_kind", "entity_id").rows() == [("site", "site")]
    assert cover["start"].to_list() == [START]
    assert cover["end"].to_list() == [END - timedelta(milliseconds=1)]
    assert result.table("raw/gpu_telemetry").is_empty()


def test_the_row_of_the_whole_stretch_comes_last():
    results = pull(Memory(*day()), window=timedelta(hours=1))
    kinds = [result.table("raw/coverage")["entity_kind"].to_list() for result in results]
    assert [("site" in kind) for kind in kinds] == [False] * (len(kinds) - 1) + [True]


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(1, 5 * 3600), st.integers(1, 4), st.integers(0, 3600), st.integers(1, 3 * 3600))
def test_rows_do_not_depend_on_windows_and_groups(window_s, gpus, start_s, length_s):
    memory = Memory(*(one for gpu in range(3) for one in day(gpu)))
    start = START + timedelta(seconds=start_s)
    end = start + timedelta(seconds=length_s)
    whole = telemetry(pull(memory, start, end))
    parts = telemetry(
        pull(
            memory, start, end, window=timedelta(seconds=max(window_s, 600)), gpus_per_request=gpus
        )
    )
    assert parts.equals(whole)
    first, last = -(-start_s // 60), -(-(start_s + length_s) // 60)
    assert whole.height == 3 * (min(last, 240) - first)


def test_groups_of_gpus_share_the_series_out_without_rest_or_repeat():
    series = [one for gpu in range(5) for one in day(gpu, n=2)]
    old = {k: v for k, v in labels(gpu=7).items() if k != "UUID"} | {"uuid": labels(gpu=7)["UUID"]}
    both = labels(gpu=8) | {"uuid": labels(gpu=8)["UUID"]}
    series += [(old, minutes(1.0)), (both, minutes(2.0)),
               ({"__name__": "DCGM_FI_DEV_GPU_TEMP"}, minutes(3.0))]  # fmt: skip
    result = merge(pull(Memory(*series), gpus_per_request=2))
    assert result.reads.row(0)[2:] == (5 * 4 + 3, 5 * 4 + 2, 0, 1)


def test_a_window_that_is_too_much_is_halved_until_it_is_not():
    memory = Memory(*day(), most_ms=3_600_000)
    with stand_in(memory) as server:
        found = list(pull_prometheus(client(server.url), START, END, ingested_at=NOW))
    assert telemetry(found).height == 240
    reference = telemetry(pull(Memory(*day())))
    assert telemetry(found).equals(reference)
    # Groups after the first start with windows that were answered.
    refused = [end - start for start, end in memory.windows if end - start > 3_600_000]
    assert len(refused) <= 4


def test_a_window_that_is_too_much_at_any_length_is_one_error_with_advice():
    with pytest.raises(HttpError, match=r"remote read of 2026-01-05T00:.*422.*Narrow the matchers"):
        pull(Memory(*day(), most_ms=1))


def test_a_window_that_fails_gives_no_rows_and_the_stretch_is_not_said_to_be_read():
    class Broken(Memory):
        def _read(self, body):
            answer = super()._read(body)
            return Answer(500, b"disk") if self.windows[-1][0] >= 7_200_000 else answer

    got = []
    with stand_in(Broken(*day())) as server:
        found = client(server.url, window=timedelta(hours=2))
        results = pull_prometheus(found, START, END, ingested_at=NOW)
        with pytest.raises(HttpError, match="remote read of 2026-01-05T02:00:00Z to .*500 disk"):
            got.extend(results)
    rows = telemetry(got)
    assert rows["ts"].max() < START + timedelta(hours=2)
    assert "site" not in merge(got).table("raw/coverage")["entity_kind"].to_list()


def test_a_server_that_lists_nothing_is_still_read():
    assert telemetry(pull(Memory(*day(), lists=False))).height == 240


def test_units_that_the_help_texts_state_are_followed():
    power = (labels("DCGM_FI_DEV_POWER_USAGE"), minutes(250_000.0))
    helps = {"DCGM_FI_DEV_POWER_USAGE": [{"type": "gauge", "help": "Power draw (in mW)."}]}
    assert telemetry(pull(Memory(power, helps=helps)))["power_w"].to_list() == [250.0]


def test_a_field_that_becomes_blank_and_labels_that_are_renamed_are_the_same_gpu():
    uuid = labels()["UUID"]
    after = {"__name__": "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "uuid": uuid, "gpu": "0", "hostname": "n1"}
    series = [
        (labels(), minutes(40.0, 41.0)),
        (labels("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"), minutes(0.0, 2.0**63)),
        (after, minutes(42.0, start=MS + 120_000)),
    ]
    frame = telemetry(pull(Memory(*series)))
    assert frame["gpu_uuid"].unique().to_list() == [uuid]
    assert frame["gpu_temp_c"].to_list() == [40.0, 41.0, 42.0]
    assert frame["ecc_dbe_volatile"].to_list() == [0, None, None]
    assert frame["node"].to_list() == ["n1"] * 3


def test_the_last_xid_sticks_as_a_column_and_makes_no_events():
    series = (labels("DCGM_FI_DEV_XID_ERRORS", err_code="79"), minutes(79.0, 79.0, 79.0))
    result = merge(pull(Memory(series)))
    assert result.table("raw/gpu_telemetry")["last_xid"].to_list() == [79] * 3
    assert set(result.tables) == {"raw/gpu_telemetry", "raw/inventory", "raw/coverage"}


def test_a_uuid_that_changes_under_one_node_is_another_gpu_in_the_same_slot():
    series = [
        (labels(gpu=1, Hostname="n1") | {"gpu": "0"}, minutes(40.0, 41.0)),
        (labels(gpu=2, Hostname="n1") | {"gpu": "0"}, minutes(50.0, start=MS + 600_000)),
    ]
    seen = merge(pull(Memory(*series))).table("raw/inventory").sort("ts")
    assert seen["slot"].to_list() == ["0", "0", "0"]
    assert seen["gpu_uuid"].n_unique() == 2


@pytest.mark.parametrize(("offset_ms", "height"), [(29_000, 239), (50_000, 241)])
def test_replicas_are_read_beyond_the_window_so_that_its_edges_do_not_matter(offset_ms, height):
    a = [(MS + i * 60_000, 40.0) for i in range(240) if i != 60]
    b = [(MS + i * 60_000 + offset_ms, 50.0) for i in range(240)]
    series = [(labels(r="b"), b), (labels(r="a"), a)]
    asked = {"replica_label": "r", "interval": timedelta(seconds=60)}
    whole = telemetry(pull(Memory(*series), **asked))
    cut = telemetry(pull(Memory(*series), **asked, window=timedelta(minutes=15)))
    assert cut.equals(whole)
    assert whole.height == height


def test_a_stretch_that_ends_before_it_begins_is_an_error():
    with pytest.raises(DataError, match="must end after it begins"):
        pull(Memory(), END, START)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.binary(max_size=300), st.sampled_from([STREAM, PLAIN, {"Content-Type": "text/html"}, {}]))
def test_any_bytes_as_an_answer_are_rows_or_a_source_error(body, headers):
    def answer(request):
        is_read = request.path.endswith("/read")
        return Answer(200, body, headers) if is_read else Memory(*day(n=1), kind="none")(request)

    with stand_in(answer) as server:
        found = client(server.url, attempts=1)
        try:
            for result in pull_prometheus(found, START, END, ingested_at=NOW):
                holds_contracts(result)
        except SourceError:
            pass


def test_results_are_cut_to_chunks_of_rows_with_one_account(monkeypatch):
    monkeypatch.setattr("pipelines.sources.prometheus.pull.CHUNK_ROWS", 100)
    results = pull(Memory(*day()))
    heights = [result.table("raw/gpu_telemetry").height for result in results]
    assert heights == [100, 100, 40, 0, 0]
    assert merge(results).reads["n_read"].to_list() == [480]
    assert pl.concat([r.table("raw/gpu_telemetry") for r in results]).height == 240
