"""Scrapes of dcgm-exporter to wide telemetry rows."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.core_build import build_core_telemetry, build_health_events
from features.errors import SourceError
from features.raw_tables import RAW_GPU_TELEMETRY
from features.tables import CORE_INVENTORY, TABLE_BY_KEY
from pipelines.sources.result import merge
from pipelines.sources.telemetry.dcgm_names import AMBIGUOUS_NAMES
from pipelines.sources.telemetry.dcgm_text import parse_dcgm_text, stream_dcgm_text
from tests.pipelines.sources.reading import read_all

TS = datetime(2026, 1, 5, 0, 5, tzinfo=UTC)
NOW = datetime(2026, 1, 6, tzinfo=UTC)


def parse(text, **options):
    return parse_dcgm_text(text, origin="t.prom", ts=TS, ingested_at=NOW, **options)


def rows(result, *columns):
    return result.table("raw/gpu_telemetry").select(columns).rows()


def rules(result):
    return dict(result.quarantine.select("rule", "count").rows())


def test_metrics_of_a_gpu_become_one_row_that_holds_the_contract():
    result = parse(
        'DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-a",Hostname="n1"} 40\n'
        'DCGM_FI_DEV_POWER_USAGE{gpu="3",UUID="GPU-a",Hostname="n1"} 99.5\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="4",UUID="GPU-b",Hostname="n1"} 41\n'
    )
    columns = ("gpu_uuid", "ts", "node", "gpu_index", "gpu_temp_c", "power_w", "source")
    assert rows(result, *columns) == [
        ("GPU-a", TS, "n1", 3, 40.0, 99.5, "dcgm_text"),
        ("GPU-b", TS, "n1", 4, 41.0, None, "dcgm_text"),
    ]
    enforced = RAW_GPU_TELEMETRY.enforce(result.table("raw/gpu_telemetry"))
    assert (enforced.frame.height, enforced.rejects.height) == (2, 0)


@pytest.mark.parametrize(
    "line",
    [
        'dcgm_gpu_temp{gpu="0",uuid="GPU-a",hostname="n1"} 34',
        'DCGM_FI_DEV_GPU_TEMP{gpu="0", UUID="GPU-a",Hostname="n1",modelName="T4"} 34',
        'DCGM_FI_DEV_GPU_TEMP_CELSIUS{hostname="n1",UUID="GPU-a",gpu="0"} 3.4e1',
    ],
)
def test_label_and_name_variants_of_the_releases_give_the_same_row(line):
    assert rows(parse(line), "gpu_uuid", "node", "gpu_index", "gpu_temp_c") == [
        ("GPU-a", "n1", 0, 34.0)
    ]


def test_a_blank_is_null_and_the_gpu_still_has_its_row():
    text = (
        'DCGM_FI_DEV_MEMORY_TEMP{UUID="GPU-a"} 9223372036854775794\n'
        'DCGM_FI_DEV_SM_CLOCK{UUID="GPU-a"} 4294967295\n'
        'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-b"} 140737488355328.000000\n'
        'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-b"} NaN\n'
    )
    result = parse(text)
    assert rows(result, "gpu_uuid", "memory_temp_c", "sm_clock_mhz", "power_w", "gpu_temp_c") == [
        ("GPU-a", None, None, None, None),
        ("GPU-b", None, None, None, None),
    ]
    assert rules(result) == {}


def test_energy_is_stored_in_whole_joules():
    result = parse('DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="GPU-a"} 7.824941e+06')
    assert rows(result, "energy_j") == [(7825,)]


def test_a_unit_stated_by_the_help_text_is_believed():
    text = (
        "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in mW).\n"
        'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-a"} 350000\n'
        "# HELP DCGM_FI_DEV_POWER_VIOLATION Throttling duration (in ns).\n"
        'DCGM_FI_DEV_POWER_VIOLATION{UUID="GPU-a"} 5000\n'
        "# HELP DCGM_FI_PROF_PIPE_TENSOR_ACTIVE Ratio of cycles active (in %).\n"
        'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{UUID="GPU-a"} 0.5\n'
    )
    columns = ("power_w", "power_violation_us", "tensor_active_ratio")
    assert rows(parse(text), *columns) == [(350.0, 5, 0.5)]


def test_mig_instances_fold_into_their_gpu_and_are_never_summed():
    text = (
        'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-a",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1"} 90\n'
        'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-a",GPU_I_PROFILE="4g.40gb",GPU_I_ID="2"} 90\n'
        'DCGM_FI_DEV_FB_USED{UUID="GPU-a",GPU_I_ID="1"} 10\n'
        'DCGM_FI_DEV_FB_USED{UUID="GPU-a",GPU_I_ID="2"} 20\n'
        'DCGM_FI_DEV_FB_USED{UUID="GPU-b",GPU_I_ID=""} 30\n'
    )
    result = parse(text)
    assert rows(result, "gpu_uuid", "power_w", "fb_used_mib") == [
        ("GPU-a", 90.0, None),
        ("GPU-b", None, 30.0),
    ]
    assert result.reads.select("n_parsed", "n_skipped").rows() == [(3, 2)]


def test_pod_labels_that_come_and_go_make_no_new_gpu():
    text = (
        'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",pod="train-0",namespace="x"} 50\n'
        'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-a",pod="",namespace=""} 90\n'
    )
    assert rows(parse(text), "gpu_temp_c", "power_w") == [(50.0, 90.0)]


def test_the_last_xid_is_a_column_and_no_event():
    result = parse('DCGM_FI_DEV_XID_ERRORS{UUID="GPU-a",err_code="31",err_msg="MMU"} 31')
    assert rows(result, "last_xid") == [(31,)]
    assert set(result.tables) == {"raw/gpu_telemetry", "raw/inventory", "raw/coverage"}


def test_a_line_may_have_its_own_time():
    result = parse('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50 1767225600000')
    assert rows(result, "ts") == [(datetime(2026, 1, 1, tzinfo=UTC),)]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("DCGM_FI_DEV_GPU_TEMP 50", "no UUID label: the GPU is unknown"),
        ('DCGM_FI_DEV_GPU_TEMP{UUID=""} 50', "no UUID label: the GPU is unknown"),
        ('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 151', "gpu_temp_c > 150"),
        ('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{UUID="GPU-a"} -2', "ecc_dbe_volatile < 0"),
        (
            'DCGM_FI_DEV_GPU_TEMP{UUID="MIG-1b2c3d4e-0000-0000-0000-000000000001"} 50',
            "the UUID is of a MIG instance whose GPU is not told",
        ),
        (
            'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50 1767225600',
            "timestamp is before 2000: seconds where milliseconds are due?",
        ),
        ('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} +Inf', "gpu_temp_c is not finite"),
        ('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} hot', "value is not a number"),
        (
            'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 1 99999999999999999',
            "timestamp is beyond the years that exist",
        ),
        (
            'DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="GPU-a"} 1',
            f"DCGM_FI_DEV_GPU_UTIL_RATIO is {AMBIGUOUS_NAMES['dcgm_fi_dev_gpu_util_ratio']}",
        ),
    ],
)
def test_a_line_that_is_refused_says_why(line, rule):
    result = parse(line)
    assert rules(result) == {rule: 1}
    assert result.quarantine["example"].to_list() == [line]


def test_a_bad_reading_spoils_its_own_cell_only():
    text = 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 151\nDCGM_FI_DEV_POWER_USAGE{UUID="GPU-a"} 90\n'
    assert rows(parse(text), "gpu_temp_c", "power_w") == [(None, 90.0)]


def test_of_two_different_values_of_one_gpu_and_moment_the_first_is_kept():
    text = 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50\nDCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 51\n'
    result = parse(text)
    assert rows(result, "gpu_temp_c") == [(50.0,)]
    assert rules(result) == {
        "gpu_temp_c differs from an earlier line of the same GPU and moment": 1
    }


def test_unknown_metrics_are_skipped_with_a_count():
    result = parse('go_goroutines 5\n# a comment\n\nDCGM_FI_DEV_ENC_UTIL{UUID="GPU-a"} 0\n')
    assert result.reads.select("n_read", "n_skipped", "n_quarantined").rows() == [(4, 4, 0)]


def test_the_name_of_the_file_gives_time_and_node(tmp_path):
    path = tmp_path / "n7__2026-01-05T00-05-00Z.prom"
    path.write_text('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",Hostname="dcgm-exporter-6ldbb"} 50\n')
    by_label = read_all(stream_dcgm_text, [path], ingested_at=NOW)
    by_name = read_all(stream_dcgm_text, [path], ingested_at=NOW, node_from="file_name")
    assert rows(by_label, "ts", "node") == [(TS, "dcgm-exporter-6ldbb")]
    assert rows(by_name, "ts", "node") == [(TS, "n7")]
    path.write_text('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50\n')
    assert rows(read_all(stream_dcgm_text, [path], ingested_at=NOW), "node") == [("n7",)]


def test_a_file_that_tells_no_time_is_one_clear_error(tmp_path):
    path = tmp_path / "metrics.prom"
    path.write_text('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50\n')
    with pytest.raises(SourceError, match=r"metrics\.prom.*Rename the file so, or give .* ts"):
        read_all(stream_dcgm_text, [path], ingested_at=NOW)
    assert rows(read_all(stream_dcgm_text, [path], ingested_at=NOW, ts=TS), "ts", "node") == [
        (TS, None)
    ]


def test_a_word_in_place_of_a_number_is_null_for_a_known_field():
    text = 'DCGM_FI_DEV_MEMORY_TEMP{UUID="GPU-a"} N/A\nDCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50\n'
    result = parse(text)
    assert rows(result, "memory_temp_c", "gpu_temp_c") == [(None, 50.0)]
    assert rules(result) == {}


def test_a_field_that_was_zero_and_becomes_unknown_is_null_not_zero():
    before = parse('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{UUID="GPU-a"} 0')
    after = parse('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{UUID="GPU-a"} N/A')
    absent = parse('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 1')
    column = "ecc_dbe_volatile"
    assert [rows(r, column) for r in (before, after, absent)] == [[(0,)], [(None,)], [(None,)]]


def test_a_renamed_label_and_field_leave_the_gpu_the_same():
    old = parse('DCGM_FI_DEV_XID_ERRORS{UUID="GPU-a",Hostname="n1",gpu="0",pod_name="p"} 31')
    new = parse('DCGM_FI_DEV_XID_ERROR{uuid="GPU-a",hostname="n1",GPU="0",pod="q"} 31')
    columns = ("gpu_uuid", "node", "gpu_index", "last_xid")
    assert rows(old, *columns) == rows(new, *columns) == [("GPU-a", "n1", 0, 31)]


def test_uuids_are_one_identity_in_every_spelling():
    text = "".join(
        f'{name}{{UUID="{uuid}"}} 5\n'
        for name, uuid in (
            ("DCGM_FI_DEV_GPU_TEMP", "GPU-C0B5694B-2b5d-6b20-f903-558341437f6b"),
            ("DCGM_FI_DEV_POWER_USAGE", "c0b5694b-2b5d-6b20-f903-558341437f6b"),
            ("DCGM_FI_DEV_SM_CLOCK", "MIG-GPU-c0b5694b-2b5d-6b20-f903-558341437f6b/1/0"),
        )
    )
    assert rows(parse(text), "gpu_uuid", "gpu_temp_c", "power_w", "sm_clock_mhz") == [
        ("GPU-c0b5694b-2b5d-6b20-f903-558341437f6b", 5.0, 5.0, 5.0)
    ]


def test_a_node_by_relabelling_goes_before_the_exporters_own_hostname():
    line = 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",Hostname="dcgm-exporter-x",node="n1"} 5'
    assert rows(parse(line), "node") == [("n1",)]


def test_single_links_add_up_where_no_name_gives_the_total():
    stem = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_"
    text = (
        f'{stem}L0{{UUID="GPU-a"}} 3\n{stem}L17{{UUID="GPU-a"}} 4\n'
        f'{stem}L0{{UUID="GPU-b"}} 3\n{stem}TOTAL{{UUID="GPU-b"}} 9\n'
        f'{stem}L0{{UUID="GPU-c"}} 3\n{stem}L1{{UUID="GPU-c"}} 9223372036854775794\n'
        f'DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS{{UUID="GPU-d",nvlink="0"}} 1\n'
        f'DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS{{UUID="GPU-d",nvlink="1"}} 2\n'
    )
    result = parse(text)
    assert rows(result, "gpu_uuid", "nvlink_replay_count", "nvlink_rx_error_count") == [
        ("GPU-a", 7, None),
        ("GPU-b", 9, None),
        ("GPU-c", None, None),  # a link of unknown count makes the sum unknown
        ("GPU-d", None, 3),
    ]
    assert rules(result) == {}


def test_of_two_names_of_a_metric_the_first_in_the_table_counts():
    text = (
        'DCGM_FI_DEV_FB_USED_BYTES{UUID="GPU-a"} 10500000\nDCGM_FI_DEV_FB_USED{UUID="GPU-a"} 10\n'
    )
    assert rows(parse(text), "fb_used_mib") == [(10.0,)]
    assert rules(parse(text)) == {}


def test_a_changed_unit_is_seen_by_help_unit_or_range():
    stated = "# UNIT DCGM_FI_DEV_POWER_USAGE milliwatts\n"
    line = 'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-a"} 350000\n'
    assert rows(parse(stated + line), "power_w") == [(350.0,)]
    silent = parse(line)
    assert rows(silent, "power_w") == [(None,)]
    assert rules(silent) == {"power_w > 3000": 1}


def test_a_unit_holds_from_its_comment_on_and_on_its_own_page_only(tmp_path):
    help_line = "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in {}).\n"
    line = 'DCGM_FI_DEV_POWER_USAGE{{UUID="GPU-{}"}} {}\n'
    one = tmp_path / "a__2026-01-05T00-00-00Z.prom"
    two = tmp_path / "b__2026-01-05T00-00-00Z.prom"
    one.write_text(
        help_line.format("mW")
        + line.format("a", 5000)
        + help_line.format("W")
        + line.format("b", 5)
    )
    two.write_text(line.format("c", 5))
    assert rows(read_all(stream_dcgm_text, [one, two], ingested_at=NOW), "power_w") == [
        (5.0,),
        (5.0,),
        (5.0,),
    ]


def test_values_repeated_on_mig_instances_are_taken_once():
    text = (
        'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",GPU_I_ID="1",GPU_I_PROFILE="1g.5gb"} 50\n'
        'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a",GPU_I_ID="2",GPU_I_PROFILE="1g.5gb"} 51\n'
        'DCGM_FI_PROF_SM_ACTIVE{UUID="GPU-a",GPU_I_ID="1"} 0.5\n'
    )
    result = parse(text)
    assert rows(result, "gpu_uuid", "gpu_temp_c", "sm_active_ratio") == [("GPU-a", 50.0, None)]
    assert result.reads.select("n_parsed", "n_skipped", "n_quarantined").rows() == [(1, 2, 0)]


def test_an_exporter_without_series_is_covered_and_shows_no_gpu():
    text = (
        "# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).\n# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
    )
    for body in (text, ""):
        result = parse(body, node="n1")
        assert result.table("raw/gpu_telemetry").is_empty()
        assert result.table("raw/inventory").is_empty()
        coverage = result.table("raw/coverage")
        assert coverage.select("entity_kind", "entity_id", "start", "end", "origin").rows() == [
            ("node", "n1", TS, TS, "t.prom")
        ]


def test_a_page_that_is_no_exposition_covers_nothing():
    result = parse("<html>\n<body>gateway timeout</body>\n", node="n1")
    assert result.table("raw/coverage").is_empty()
    assert result.reads["n_quarantined"].to_list() == [2]


def test_a_shifted_index_and_a_new_uuid_under_one_node_are_both_in_the_inventory():
    labels = 'gpu="{}",UUID="GPU-{}",pci_bus_id="00000000:{}:00.0",Hostname="n1"'
    line = f"DCGM_FI_DEV_GPU_TEMP{{{{{labels}}}}} 5 {{}}"
    text = "\n".join(
        line.format(*row)
        for row in (
            (0, "a", "1B", 1767225600000),
            (1, "b", "43", 1767225600000),
            (0, "b", "43", 1767225660000),  # GPU-a is gone: GPU-b moves up
            (1, "c", "1B", 1767225720000),  # and a new one comes into its place
        )
    )
    seen = parse(text).table("raw/inventory")
    assert seen.select("gpu_uuid", "slot", "pci_bus_id", pl.col("ts").dt.minute()).rows() == [
        ("GPU-a", "0", "00000000:1b:00.0", 0),
        ("GPU-b", "1", "00000000:43:00.0", 0),
        ("GPU-b", "0", "00000000:43:00.0", 1),
        ("GPU-c", "1", "00000000:1b:00.0", 2),
    ]


def test_of_many_sights_the_first_and_the_last_are_kept():
    line = 'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-a",Hostname="n1"}} 5 {}\n'
    text = "".join(line.format(1767225600000 + k * 60000) for k in range(9))
    result = parse(text)
    assert result.table("raw/gpu_telemetry").height == 9
    assert result.table("raw/inventory")["ts"].dt.minute().to_list() == [0, 8]


LINES = st.lists(
    st.tuples(
        st.sampled_from(["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "go_info"]),
        st.sampled_from(['{UUID="GPU-a"}', '{UUID="GPU-b",Hostname="n2"}', "{}"]),
        st.sampled_from(["1", "2.5", "hot", "9223372036854775794"]),
    ).map(lambda x: f"{x[0]}{x[1]} {x[2]}"),
    max_size=6,
)


@settings(max_examples=15)
@given(pages=st.lists(LINES, min_size=1, max_size=4), chunk=st.integers(1, 8))
def test_where_chunks_are_cut_changes_nothing(tmp_path_factory, pages, chunk):
    folder = tmp_path_factory.mktemp("scrapes")
    paths = []
    for number, lines in enumerate(pages):
        paths.append(folder / f"n{number}__2026-01-05T00-0{number}-00Z.prom")
        paths[-1].write_text("\n".join(lines))
    whole = merge(stream_dcgm_text(paths, ingested_at=NOW))
    pieces = merge(stream_dcgm_text(paths, ingested_at=NOW, chunk_samples=chunk))
    single = merge(
        parse_dcgm_text(
            p.read_bytes(), origin=str(p), ts=datetime(2026, 1, 5, 0, k, tzinfo=UTC),
            ingested_at=NOW, node=f"n{k}",
        )
        for k, p in enumerate(paths)
    )  # fmt: skip
    for other in (pieces, single):
        assert other.reads.equals(whole.reads)
        assert other.quarantine.equals(whole.quarantine)
        for key in whole.tables:
            assert other.table(key).equals(whole.table(key)), key
            assert TABLE_BY_KEY[key].enforce(other.table(key)).rejects.is_empty()


def core(*results):
    raw = pl.concat([result.table("raw/gpu_telemetry") for result in results])
    return build_core_telemetry(raw, CORE_INVENTORY.empty())


def scrape(value, *, minute=0, name="DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"):
    ts = TS + timedelta(minutes=minute)
    text = f'{name}{{UUID="GPU-a",Hostname="n1"}} {value}'
    return parse_dcgm_text(text, origin=f"{minute}.prom", ts=ts, ingested_at=NOW)


def test_repeats_disorder_and_late_scrapes_give_each_moment_once_in_order():
    built = core(scrape(3, minute=10), scrape(1), scrape(3, minute=10), scrape(2, minute=-1440))
    assert built.frame.select("ts", "ecc_sbe_volatile").rows() == [
        (TS - timedelta(days=1), 2),
        (TS, 1),
        (TS + timedelta(minutes=10), 3),
    ]
    assert (built.n_merged, built.rejects.height) == (1, 0)


def test_two_exporters_of_one_gpu_fill_each_others_gaps():
    built = core(scrape(7), scrape(55, name="dcgm_gpu_temp"))
    assert built.frame.select("ecc_sbe_volatile", "gpu_temp_c").rows() == [(7, 55.0)]


def test_a_counter_that_falls_is_kept_as_it_is_and_a_negative_one_is_refused():
    built = core(scrape(9), scrape(2, minute=5))
    assert built.frame["ecc_sbe_volatile"].to_list() == [9, 2]
    assert rules(scrape(-5)) == {"ecc_sbe_volatile < 0": 1}


def test_a_clock_in_the_future_is_set_aside_with_its_rule():
    built = core(scrape(1, minute=3 * 1440))
    assert built.frame.is_empty()
    assert built.rejects["rule"].to_list() == ["ts is later than the time of reading"]


def test_a_sticking_xid_gives_no_health_event():
    result = parse('DCGM_FI_DEV_XID_ERRORS{UUID="GPU-a",Hostname="n1"} 79')
    events = build_health_events(result.table("raw/kernel_log"), CORE_INVENTORY.empty())
    assert events.frame.is_empty()


def test_counters_of_openmetrics_are_those_of_the_text_format():
    text = (
        "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
        "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Energy (in J).\n"
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total{UUID="GPU-a"} 5\n'
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_created{UUID="GPU-a"} 1767225600\n# EOF\n'
    )
    assert rows(parse(text), "gpu_uuid", "energy_j") == [("GPU-a", 5)]


def test_a_stated_unit_of_kilowatts_counts():
    text = (
        '# HELP DCGM_FI_DEV_POWER_USAGE Power (in kW).\nDCGM_FI_DEV_POWER_USAGE{UUID="GPU-a"} .5\n'
    )
    assert rows(parse(text), "power_w") == [(500.0,)]


@pytest.mark.parametrize("word", ["<nil>", "-", "Insufficient Permissions", "[Not Supported]"])
def test_words_for_no_value_are_null(word):
    result = parse(f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-a"}} {word}\n')
    assert rows(result, "gpu_uuid", "gpu_temp_c") == [("GPU-a", None)]
    assert rules(result) == {}


def test_a_row_takes_what_any_of_its_label_blocks_tell():
    text = (
        'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 40\n'
        'DCGM_FI_DEV_SM_CLOCK{UUID="GPU-a"} 1980\n'
        'DCGM_FI_DEV_POWER_USAGE{gpu="3",UUID="GPU-a",Hostname="n1"} 99.5\n'
    )
    assert rows(parse(text), "node", "gpu_index", "gpu_temp_c") == [("n1", 3, 40.0)]
