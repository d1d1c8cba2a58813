"""Samples to rows: the compiled pivot against a plain one over dictionaries."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.telemetry_metrics import METRICS
from pipelines.sources.prometheus.pivot import pivot
from pipelines.sources.prometheus.readings import Readings, Refused, Window, within
from pipelines.sources.prometheus.rows import BLANK, _put, is_blank_value
from pipelines.sources.prometheus.series import Reader
from pipelines.sources.prometheus.tables import coverage_table, inventory_table, telemetry_table
from pipelines.sources.result import ReadTally
from pipelines.sources.telemetry.dcgm_fields import blank_of, is_blank, is_value
from pipelines.sources.telemetry.rows import range_rule

NOW = datetime(2026, 1, 6, tzinfo=UTC)
START = 1_767_600_000_000
WINDOW = Window(START, START + 600_000)
GPU = "GPU-{:08d}-0000-0000-0000-000000000000"
NAMES = (
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_XID_ERRORS",
)


def labels(name=NAMES[0], gpu=0, **more):
    return {"__name__": name, "UUID": GPU.format(gpu), "gpu": "0", "Hostname": "n1", **more}


def readings(*series, reader=None, **more):
    """Readings of (labels, [(ms after START, value)])."""
    reader = reader or Reader()
    lengths = np.cumsum([0, *(len(samples) for _, samples in series)])
    flat = [one for _, samples in series for one in samples]
    return Readings(
        tuple(reader.read(one) for one, _ in series),
        np.arange(len(series)),
        np.stack([lengths[:-1], lengths[1:]], axis=1),
        np.array([START + ts for ts, _ in flat], np.int64),
        np.array([value for _, value in flat], np.float64),
        **more,
    )


def frame_of(found, *, window=WINDOW, reach_ms=0):
    tally = ReadTally(table="raw/gpu_telemetry", source="prometheus", origin="o")
    rows = pivot(found, window, reach_ms=reach_ms, tally=tally)
    result = tally.result({})
    return telemetry_table(rows, ingested_at=NOW), result, rows


def table(*series, **more):
    return frame_of(readings(*series), **more)


def rules(result):
    return dict(result.quarantine.select("rule", "count").iter_rows())


def after(frame):
    return [int(ts.timestamp() * 1000) - START for ts in frame["ts"]]


values = st.one_of(
    st.floats(-10, 1e6),
    st.sampled_from([math.nan, math.inf, -1.0, 2.0**31 - 16, 2.0**63, 140737488355328.0, 1e19]),
)
parts = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(-2, 12), values), max_size=8),
    ),
    max_size=8,
)


@settings(max_examples=200)
@given(parts)
def test_rows_and_account_are_those_of_a_plain_pivot(parts):
    series = [
        (labels(name, gpu, job=str(i)), [(60_000 * ts, value) for ts, value in samples])
        for i, (name, gpu, samples) in enumerate(parts)
    ]
    frame, result, _ = table(*series)
    rows, fates = slow_pivot(series)
    columns = ["gpu_temp_c", "power_w", "energy_j", "last_xid"]
    got = {
        (row["gpu_uuid"], int(row["ts"].timestamp() * 1000)): [row[c] for c in columns]
        for row in frame.iter_rows(named=True)
    }
    expected = {
        key: [None if (v := row.get(c)) is None else as_stored(v, c) for c in columns]
        for key, row in rows.items()
    }
    assert got == expected
    reads = result.reads.row(0, named=True)
    assert (reads["n_parsed"], reads["n_skipped"], rules(result)) == fates


def as_stored(value, column):
    return float(np.float32(value)) if column in {"gpu_temp_c", "power_w"} else value


def slow_pivot(series):
    reader, rows, n_parsed, n_skipped, refused = Reader(), {}, 0, 0, {}
    for one, samples in sorted(series, key=lambda pair: reader.read(pair[0]).key):
        meaning = reader.read(one).meaning
        for ts, value in sorted(samples, key=lambda sample: sample[0]):
            if not 0 <= ts < 600_000:
                continue
            row = rows.setdefault((meaning.line.gpu_uuid, START + ts), {})
            column, metric = meaning.metric.column, meaning.metric
            if not is_value(metric, value):
                n_parsed += 1
                continue
            scaled = value if meaning.scale == 1 else value * meaning.scale
            rule = range_rule(metric, scaled)
            if rule is None:
                stored = scaled if metric.dtype.is_float() else round(scaled)
                if column not in row:
                    row[column] = stored
                    n_parsed += 1
                    continue
                if row[column] == stored:
                    n_skipped += 1
                    continue
                rule = f"{column} differs from an earlier line of the same GPU and moment"
            refused[rule] = refused.get(rule, 0) + 1
    return rows, (n_parsed, n_skipped, refused)


@given(st.one_of(st.floats(), st.integers(-2, 2**65).map(float)))
def test_the_compiled_rule_for_blanks_is_that_of_the_fields(value):
    assert is_blank_value(value) == is_blank(value)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.column)
def test_every_blank_of_every_metric_leaves_the_cell_unknown(metric):
    from pipelines.sources.prometheus.pivot import _limits

    limits, blanks = (
        np.array(_limits(metric)),
        [math.nan, -1.0, blank_of(metric), 32.0, 2.0**31 - 1],
    )
    for value in blanks:
        fate = _put(value, 1.0, 0, limits, np.array([math.nan]), np.zeros(1, np.int8))
        assert (fate == BLANK) == (not is_value(metric, value)), value


def test_a_blank_makes_a_row_whose_cell_is_unknown():
    frame, result, _ = table((labels(), [(0, math.nan), (1000, 40.0)]))
    assert frame["gpu_temp_c"].to_list() == [None, 40.0]
    assert result.reads["n_parsed"].to_list() == [2]


def test_stale_markers_and_refused_chunks_are_counted_and_make_no_row():
    found = readings((labels(), [(0, 40.0)]), n_stale=3, refused=(Refused("histogram", 5, "x"),))
    frame, result, _ = frame_of(found)
    assert frame.height == 1
    assert result.reads.row(0)[2:] == (9, 1, 3, 5)


def test_series_without_a_gpu_are_quarantined_and_others_skipped_sample_by_sample():
    nobody = {"__name__": NAMES[0], "gpu": "0"}
    other = labels("node_load1")
    frame, result, _ = table((nobody, [(0, 1.0), (1, 2.0), (-1, 0.0)]), (other, [(0, 1.0)]))
    assert frame.height == 0
    assert rules(result) == {"no UUID label: the GPU is unknown": 2}
    assert result.reads["n_skipped"].to_list() == [1]


def test_mig_rows_repeat_whole_gpu_values_and_make_no_second_gpu():
    frame, result, _ = table(
        (labels(GPU_I_ID="1"), [(0, 40.0)]),
        (labels(GPU_I_ID="2"), [(0, 40.0)]),
        (labels("DCGM_FI_DEV_FB_USED", GPU_I_ID="1"), [(0, 5.0)]),
    )
    assert frame.select("gpu_temp_c", "fb_used_mib").rows() == [(40.0, None)]
    assert result.reads.row(0)[2:] == (3, 1, 2, 0)


def test_of_two_names_for_one_field_the_better_counts_and_the_other_fills_its_gaps():
    frame, result, _ = table(
        (labels("dcgm_gpu_temp"), [(0, 41.0), (1000, 42.0)]),
        (labels("DCGM_FI_DEV_GPU_TEMP"), [(0, 40.0), (1000, math.nan)]),
    )
    assert frame["gpu_temp_c"].to_list() == [40.0, 42.0]
    assert result.quarantine.is_empty()


def test_single_links_add_up_where_no_name_gives_the_whole():
    lanes = [
        (labels(f"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L{i}"), [(0, 1.0 + i), (1000, math.nan)])
        for i in range(3)
    ]
    whole = labels("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")
    assert table(*lanes)[0]["nvlink_crc_count"].to_list() == [6, None]
    frame, _, _ = table(*lanes, (whole, [(0, 9.0)]))
    assert frame["nvlink_crc_count"].to_list() == [9, None]


def test_a_blank_link_makes_the_sum_unknown_and_an_absent_one_does_not():
    lanes = [labels(f"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L{i}") for i in range(2)]
    blank = (lanes[1], [(0, 2.0), (1000, 9223372036854775794.0)])
    frame, _, _ = table((lanes[0], [(0, 1.0), (1000, 1.0), (2000, 1.0)]), blank)
    assert frame["nvlink_crc_count"].to_list() == [3, None, 1]


def test_counters_of_links_that_a_label_tells_apart_add_up():
    name = "DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS"
    links = [(labels(name, nvlink=str(i)), [(0, 1.0 + i)]) for i in range(3)]
    frame, result, _ = table(*links)
    assert frame["nvlink_rx_error_count"].to_list() == [6]
    assert result.quarantine.is_empty()


def test_samples_out_of_order_within_a_series_are_sorted():
    late = (labels(), [(3000, 3.0), (1000, 1.0), (2000, 2.0)])
    early = (labels(NAMES[1]), [(1000, 100.0), (3000, 300.0)])
    frame, _, _ = table(late, early)
    assert after(frame) == [1000, 2000, 3000]
    assert frame["gpu_temp_c"].to_list() == [1.0, 2.0, 3.0]
    assert frame["power_w"].to_list() == [100.0, None, 300.0]


@given(st.lists(st.integers(0, 599), unique=True, max_size=30), st.integers(1, 599))
def test_rows_do_not_depend_on_where_the_window_is_cut(seconds, cut):
    series = [
        (labels(name), [(s * 1000, float(s % 90)) for s in sorted(seconds)]) for name in NAMES
    ]
    whole, _, _ = table(*series)
    middle = START + cut * 1000
    halves = [
        table(*series, window=Window(*span))[0]
        for span in ((WINDOW.start, middle), (middle, WINDOW.end))
    ]
    assert halves[0].vstack(halves[1]).equals(whole)


def replicas(a, b, *, name=NAMES[0]):
    reader = Reader(replica_label="replica")
    return readings(
        (labels(name, replica="b"), [(ts, float(ts % 97)) for ts in b]),
        (labels(name, replica="a"), [(ts, float(ts % 89)) for ts in a]),
        reader=reader,
    )


def test_of_jittered_replicas_one_counts_and_the_other_fills_its_gaps():
    a = [0, 60_000, 300_000]
    b = [25_000, 85_000, 145_000, 205_000, 265_000, 325_000]
    frame, result, _ = frame_of(replicas(a, b), reach_ms=45_000)
    assert after(frame) == [0, 60_000, 145_000, 205_000, 300_000]
    assert result.reads.row(0)[2:] == (9, 5, 4, 0)


def test_what_replicas_give_does_not_depend_on_where_the_window_is_cut():
    a, b = range(0, 600_000, 60_000), range(29_000, 600_000, 60_000)
    found = replicas([ts for ts in a if ts != 300_000], b)
    whole, _, _ = frame_of(found, reach_ms=45_000)
    parts = []
    for start in range(0, 600_000, 50_000):
        window = Window(START + start, START + start + 50_000)
        around = within(found, Window(window.start - 45_000, window.end + 45_000))
        parts.append(frame_of(around, window=window, reach_ms=45_000)[0])
    assert after(whole) == [ts for part in parts for ts in after(part)]


def test_a_gap_is_a_hole_in_coverage_and_jitter_is_none():
    beats = [0, 10_000, 21_000, 30_000, 80_000, 90_000]
    _, _, rows = table((labels(), [(ts, 40.0) for ts in beats]), (labels(gpu=1), [(5, 1.0)]))
    cover = coverage_table(rows, origin="o", ingested_at=NOW)
    spans = [
        (row["entity_id"], *((row[k].timestamp() * 1000 - START) for k in ("start", "end")))
        for row in cover.iter_rows(named=True)
    ]
    assert spans == [(GPU.format(0), 0, 30_000), (GPU.format(0), 80_000, 90_000),
                     (GPU.format(1), 5, 5)]  # fmt: skip
    assert cover["expected_every_s"].to_list() == [10.0, 10.0, None]


def test_devices_are_reported_first_last_and_on_both_sides_of_a_move():
    _, _, rows = table(
        (labels(pci_bus_id="0:4e:00.0", modelName="H100"), [(t, 1.0) for t in (0, 1, 2)]),
        (labels(NAMES[1], Hostname="n2"), [(t, 1.0) for t in (3, 4, 5)]),
        (labels(NAMES[2], gpu=1, Hostname=""), [(0, 1.0)]),
    )
    seen = inventory_table(rows, ingested_at=NOW)
    assert [(after(seen)[i], node) for i, node in enumerate(seen["node"])] == [
        (0, "n1"), (2, "n1"), (3, "n2"), (5, "n2"),
    ]  # fmt: skip
    assert seen["model"].to_list() == ["H100", "H100", None, None]


def test_no_samples_give_empty_tables_of_the_right_form():
    frame, result, rows = table()
    assert (frame.height, result.reads["n_read"].to_list()) == (0, [0])
    assert coverage_table(rows, origin="o", ingested_at=NOW).is_empty()
    assert inventory_table(rows, ingested_at=NOW).is_empty()
