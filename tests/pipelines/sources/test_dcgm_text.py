"""Scrapes of dcgm-exporter to wide telemetry rows."""

from datetime import UTC, datetime

import pytest

from features.errors import SourceError
from features.raw_tables import RAW_GPU_TELEMETRY
from pipelines.sources.dcgm_fields import AMBIGUOUS_NAMES
from pipelines.sources.dcgm_text import parse_dcgm_text, read_dcgm_text

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
    assert set(result.tables) == {"raw/gpu_telemetry"}


def test_a_line_may_have_its_own_time():
    result = parse('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50 1767225600000')
    assert rows(result, "ts") == [(datetime(2026, 1, 1, tzinfo=UTC),)]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("DCGM_FI_DEV_GPU_TEMP 50", "no UUID label: the GPU is unknown"),
        ('DCGM_FI_DEV_GPU_TEMP{UUID=""} 50', "no UUID label: the GPU is unknown"),
        ('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 151', "gpu_temp_c > 150"),
        ('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{UUID="GPU-a"} -1', "ecc_dbe_volatile < 0"),
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
    by_label = read_dcgm_text([path], ingested_at=NOW)
    by_name = read_dcgm_text([path], ingested_at=NOW, node_from="file_name")
    assert rows(by_label, "ts", "node") == [(TS, "dcgm-exporter-6ldbb")]
    assert rows(by_name, "ts", "node") == [(TS, "n7")]
    path.write_text('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50\n')
    assert rows(read_dcgm_text([path], ingested_at=NOW), "node") == [("n7",)]


def test_a_file_that_tells_no_time_is_one_clear_error(tmp_path):
    path = tmp_path / "metrics.prom"
    path.write_text('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 50\n')
    with pytest.raises(SourceError, match=r"metrics\.prom.*Rename the file so, or give .* ts"):
        read_dcgm_text([path], ingested_at=NOW)
    assert rows(read_dcgm_text([path], ingested_at=NOW, ts=TS), "ts", "node") == [(TS, None)]
