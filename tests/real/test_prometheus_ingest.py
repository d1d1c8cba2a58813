"""The source against a real Prometheus, filled by remote write."""

import math
import struct
import time
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.sources.http.errors import HttpError
from pipelines.sources.http.settings import HttpLimits, HttpSettings
from pipelines.sources.prometheus import wire as prometheus_wire
from pipelines.sources.prometheus.chunks import LabelCache
from pipelines.sources.prometheus.client import PrometheusClient, PrometheusSettings
from pipelines.sources.prometheus.pull import pull_prometheus
from pipelines.sources.prometheus.readings import Window
from pipelines.sources.prometheus.series import Matcher, Reader
from pipelines.sources.result import merge
from tests.real.prometheus_server import ABSENT, PROGRAM, PrometheusServer

pytestmark = [pytest.mark.real, pytest.mark.skipif(PROGRAM is None, reason=ABSENT)]

HOURS = 5
STEP = 60_000
DAY_MS = 86_400_000
# From two o'clock on: a midnight inside would cut coverage in two, and everything has happened.
START_MS = (int(time.time() * 1000) - 8 * 3_600_000) // DAY_MS * DAY_MS + 7_200_000
START = datetime.fromtimestamp(START_MS / 1000, UTC)
END = START + timedelta(hours=HOURS)
NOW = END + timedelta(days=1)
STALE = struct.unpack(">d", bytes.fromhex("7ff0000000000002"))[0]
GPU = "GPU-{:08d}-0000-0000-0000-000000000000"
N_GPUS = 4

TEMP, POWER = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"
ENERGY, XID = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_XID_ERRORS"


def labels(name, gpu, **more):
    return {
        "__name__": name,
        "UUID": GPU.format(gpu),
        "gpu": str(gpu % 4),
        "Hostname": f"n{gpu // 4}",
        "pci_bus_id": f"00000000:{16 + gpu % 4:02X}:00.0",
        "modelName": "NVIDIA H100 80GB HBM3",
        **more,
    }


def moments(start=0, end=HOURS * 60):
    """Minutes of the record, in milliseconds; on the grid, so that query_range sees them."""
    return [START_MS + i * STEP for i in range(start, end)]


def record():
    """Four GPUs: a counter reset, blanks, a gap after a stale marker, a replaced GPU."""
    series = []
    for gpu in range(3):
        ts = moments()
        series += [
            (labels(TEMP, gpu), ts, [40 + (i * 7 + gpu) % 30 for i in range(len(ts))]),
            (labels(POWER, gpu), ts, [250.0 + math.sin(i + gpu) * 100 for i in range(len(ts))]),
            (labels(XID, gpu), ts, [79.0 if i > 200 else 0.0 for i in range(len(ts))]),
        ]
    ts = moments()
    # Energy in mJ: grows, and starts anew with the driver.
    energy = [1e9 + i * 300_123 if i < 150 else (i - 150) * 250_777 for i in range(len(ts))]
    series.append((labels(ENERGY, 0), ts, energy))
    blanks = [
        math.nan if i % 5 == 0 else float(2**63) if i % 7 == 0 else i * 10.0 for i in range(len(ts))
    ]
    series.append((labels(ENERGY, 1), ts, blanks))
    # GPU 3 goes stale after 40 minutes, is silent for an hour and comes back.
    ts, values = moments(0, 41) + moments(100, 160), [50.0] * 40 + [STALE] + [55.0] * 60
    series.append((labels(TEMP, 3), ts, values))
    # It is replaced: another identity in the same slot.
    replaced = labels(TEMP, 3) | {"UUID": GPU.format(9)}
    series.append((replaced, moments(170), [33.0] * (HOURS * 60 - 170)))
    return series


N_STALE = 1
N_SAMPLES = sum(len(ts) for _, ts, _ in record()) - N_STALE


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with PrometheusServer(tmp_path_factory.mktemp("prometheus")) as found:
        found.write(record())
        yield found


def client(server, *, attempts=3, **more):
    http = HttpSettings(server.url, limits=HttpLimits(attempts=attempts, first_wait_s=0.05))
    return PrometheusClient(PrometheusSettings(http, **more))


def pull(server, start=START, end=END, **more):
    return merge(pull_prometheus(client(server, **more), start, end, ingested_at=NOW))


def table(result):
    return result.table("raw/gpu_telemetry").sort("gpu_uuid", "ts")


@pytest.fixture(scope="module")
def whole(server):
    return pull(server)


@pytest.fixture
def plain_only(monkeypatch):
    """Makes requests that accept plain samples only, as an old client does."""
    encode = prometheus_wire.encode_read_request
    monkeypatch.setattr(
        "pipelines.sources.prometheus.client.encode_read_request",
        lambda matchers, window: encode(matchers, window, types=(0,)),
    )


def test_every_sample_that_was_written_is_accounted_for(whole):
    reads = whole.reads.row(0, named=True)
    assert reads["n_read"] == N_SAMPLES + N_STALE
    assert (reads["n_parsed"], reads["n_skipped"], reads["n_quarantined"]) == (N_SAMPLES, 1, 0)


def test_the_rows_are_what_was_written(whole):
    wide = {}
    for one, ts, values in record():
        for moment, value in zip(ts, values, strict=True):
            if struct.pack("d", value) != struct.pack("d", STALE):
                wide.setdefault((one["UUID"], moment), {})[one["__name__"]] = value
    rows = table(whole)
    got = {
        (row["gpu_uuid"], int(row["ts"].timestamp() * 1000)): row
        for row in rows.iter_rows(named=True)
    }
    assert got.keys() == wide.keys()
    for key, cells in wide.items():
        row = got[key]
        assert row["gpu_temp_c"] == cells.get(TEMP)
        assert row["last_xid"] == cells.get(XID)
        energy = cells.get(ENERGY)
        is_known = energy is not None and not math.isnan(energy) and energy != 2.0**63
        assert row["energy_j"] == (round(energy * 1e-3) if is_known else None)


def test_streamed_plain_and_raw_json_reads_agree_to_the_bit(server, whole, plain_only):
    assert table(pull(server, protocol="remote_read")).equals(table(whole))
    assert table(pull(server, protocol="raw_query")).equals(table(whole))


def test_query_range_agrees_where_samples_lie_on_its_grid(server, whole):
    ranged = table(pull(server, protocol="query_range"))
    assert ranged.equals(table(whole))


def test_query_range_shows_a_dead_exporter_no_longer_than_it_lived(server):
    gap = (START + timedelta(minutes=40), START + timedelta(minutes=50))
    rows = table(pull(server, *gap, protocol="query_range"))
    assert GPU.format(3) not in rows["gpu_uuid"].to_list()
    # At 160 minutes the exporter dies without a stale marker.
    dead = (START + timedelta(minutes=160), START + timedelta(minutes=165))
    rows = table(pull(server, *dead, protocol="query_range"))
    assert GPU.format(3) not in rows["gpu_uuid"].to_list()


def test_raw_samples_agree_with_the_servers_own_json_to_the_bit(server):
    found, reader = client(server), Reader()
    window = Window(START_MS, START_MS + HOURS * 3_600_000)
    for name in (POWER, ENERGY):
        parts = []
        for protocol in ("remote_read", "raw_query"):
            found._protocols, found._is_settled = (protocol,), True
            readings = found.read(
                [Matcher("__name__", "=", name)],
                window,
                read_labels=reader.read,
                cache=LabelCache(reader.read),
            )
            samples = {}
            for owner, (start, end) in zip(readings.owners, readings.segments, strict=True):
                text = readings.series[owner].text
                for ts, value in zip(
                    readings.ts[start:end], readings.values[start:end], strict=True
                ):
                    bits = "nan" if math.isnan(value) else struct.pack(">d", value)
                    samples[text, int(ts)] = bits
            parts.append(samples)
        assert parts[0] == parts[1]
        assert len(parts[0]) > HOURS * 60


@pytest.mark.parametrize("protocol", ["remote_read", "raw_query", "query_range"])
def test_no_sample_is_lost_or_doubled_at_an_edge(server, whole, protocol):
    expected = table(whole)
    for cut_ms in (0, 1, STEP - 1):
        cut = START + timedelta(minutes=100) + timedelta(milliseconds=cut_ms)
        first = table(pull(server, START, cut, protocol=protocol))
        second = table(pull(server, cut, END, protocol=protocol))
        assert first.vstack(second).sort("gpu_uuid", "ts").equals(expected)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 200), st.integers(1, 99), st.integers(1, 180), st.integers(1, 5))
def test_overlapping_windows_give_the_same_rows(server, whole, first, length, window, gpus):
    start = START + timedelta(minutes=first)
    end = start + timedelta(minutes=length)
    part = table(pull(server, start, end, window=timedelta(minutes=window), gpus_per_request=gpus))
    inside = table(whole).filter((pl.col("ts") >= start) & (pl.col("ts") < end))
    assert part.equals(inside)


def test_a_gap_is_a_hole_in_coverage_and_a_replaced_gpu_is_seen_in_the_same_slot(whole):
    cover = whole.table("raw/coverage").filter(pl.col("entity_id") == GPU.format(3)).sort("start")
    minutes = [
        (row["start"] - START, row["end"] - START, row["expected_every_s"])
        for row in cover.iter_rows(named=True)
    ]
    at = timedelta(minutes=1)
    assert minutes == [(0 * at, 39 * at, 60.0), (100 * at, 159 * at, 60.0)]
    seen = whole.table("raw/inventory").filter(pl.col("slot") == "3", pl.col("node") == "n0")
    assert set(seen["gpu_uuid"]) == {GPU.format(3), GPU.format(9)}
    assert seen["pci_bus_id"].unique().to_list() == ["00000000:13:00.0"]


def test_a_stretch_before_the_record_is_empty_and_known_to_have_been_asked(server):
    result = pull(server, START - timedelta(days=3), START)
    assert table(result).is_empty()
    assert result.table("raw/coverage")["entity_kind"].to_list() == ["site"]


def test_a_sample_limit_of_the_server_halves_the_window(tmp_path):
    with PrometheusServer(tmp_path / "p", "--storage.remote.read-sample-limit=400") as small:
        small.write(record()[:3])
        # Streamed answers have no such limit: only plain ones are refused.
        full = table(pull(small))
        http = HttpSettings(small.url, limits=HttpLimits(attempts=2))
        found = PrometheusClient(PrometheusSettings(http, protocol="remote_read"))
        with pytest.MonkeyPatch.context() as patch:
            encode = prometheus_wire.encode_read_request
            patch.setattr(
                "pipelines.sources.prometheus.client.encode_read_request",
                lambda matchers, window: encode(matchers, window, types=(0,)),
            )
            halved = table(merge(pull_prometheus(found, START, END, ingested_at=NOW)))
    assert halved.equals(full)
    assert full.height == HOURS * 60


def test_a_server_killed_between_windows_is_one_clear_error_and_works_after_a_restart(tmp_path):
    with PrometheusServer(tmp_path / "p") as mortal:
        mortal.write(record())
        expected = table(pull(mortal))
        found = client(mortal, attempts=2, window=timedelta(minutes=30), gpus_per_request=1)
        pulled = pull_prometheus(found, START, END, ingested_at=NOW)
        results = [next(pulled)]
        mortal.kill()
        with pytest.raises(
            HttpError, match=rf"{mortal.url}: remote read of .* \(2 tries\)\. Check"
        ):
            results.extend(pulled)
        kinds = merge(results).table("raw/coverage")["entity_kind"]
        assert "site" not in kinds.to_list()
        # What came before the end is whole: the same rows as without it.
        rows = table(merge(results))
        assert rows.join(expected, on=["gpu_uuid", "ts"], how="semi").equals(rows)
        mortal.start()
        assert table(pull(mortal)).equals(expected)
