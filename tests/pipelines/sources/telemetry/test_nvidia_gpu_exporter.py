"""Scrapes of nvidia_gpu_exporter."""

from datetime import UTC, datetime

import pytest

from pipelines.sources.telemetry.dcgm_text import parse_dcgm_text
from pipelines.sources.telemetry.nvidia_gpu_exporter import (
    gpu_exporter_name,
    parse_nvidia_gpu_exporter,
    stream_nvidia_gpu_exporter,
)
from tests.pipelines.sources.reading import read_all

TS = datetime(2026, 1, 5, 0, 5, tzinfo=UTC)
NOW = datetime(2026, 1, 6, tzinfo=UTC)
UUID = "c0b5694b-2b5d-6b20-f903-558341437f6b"
PAGE = f"""# HELP nvidia_smi_temperature_gpu temperature.gpu
nvidia_smi_temperature_gpu{{uuid="{UUID}"}} 53
nvidia_smi_memory_used_bytes{{uuid="{UUID}"}} 1.048576e+06
nvidia_smi_utilization_gpu_ratio{{uuid="{UUID}"}} 0.5
nvidia_smi_clocks_current_sm_clock_hz{{uuid="{UUID}"}} 1.98e+09
nvidia_smi_power_draw_watts{{uuid="{UUID}"}} 433.5
nvidia_smi_power_draw_instant_watts{{uuid="{UUID}"}} 447
nvidia_smi_clocks_event_reasons_counters_sw_power_cap_seconds{{uuid="{UUID}"}} 2.5
nvidia_smi_gpu_info{{index="3",name="NVIDIA H100",pci_bus_id="00000000:00:09.0",uuid="{UUID}"}} 1
nvidia_smi_failed_scrapes_total 0
"""


def parse(text, **options):
    return parse_nvidia_gpu_exporter(text.encode(), origin="x", ts=TS, ingested_at=NOW, **options)


def test_base_units_become_ours_and_the_gpu_is_the_one_dcgm_names():
    frame = parse(PAGE, node="n1").table("raw/gpu_telemetry")
    columns = ("gpu_uuid", "node", "gpu_index", "gpu_temp_c", "fb_used_mib", "gpu_util_pct",
               "sm_clock_mhz", "power_w", "sw_power_cap_us")  # fmt: skip
    assert frame.select(columns).rows() == [
        (f"GPU-{UUID}", "n1", 3, 53.0, 1.0, 50.0, 1980.0, 433.5, 2_500_000)
    ]
    line = f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-{UUID}"}} 53'
    dcgm = parse_dcgm_text(line, origin="y", ts=TS, ingested_at=NOW)
    assert dcgm.table("raw/gpu_telemetry")["gpu_uuid"].to_list() == frame["gpu_uuid"].to_list()


def test_the_info_metric_places_the_gpu():
    seen = parse(PAGE, node="n1").table("raw/inventory")
    assert seen.select("node", "slot", "pci_bus_id", "model").rows() == [
        ("n1", "3", "00000000:00:09.0", "NVIDIA H100")
    ]


@pytest.mark.parametrize(
    ("name", "column", "scale"),
    [
        ("nvidia_smi_pstate", "performance_state", 1),
        ("nvidia_smi_fan_speed_ratio", "fan_speed_pct", 100),
        ("nvidia_smi_enforced_power_limit_watts", "power_limit_w", 1),
        ("nvidia_smi_clocks_throttle_reasons_active", "clock_event_reasons", 1),
        ("nvidia_smi_remapped_rows_histogram_none", "remap_banks_none", 1),
        ("nvidia_smi_retired_pages_dbe", "retired_pages_dbe", 1),
        ("nvidia_smi_ecc_errors_uncorrected_volatile_total", "ecc_dbe_volatile", 1),
    ],
)
def test_metrics_are_named_after_query_fields(name, column, scale):
    found = gpu_exporter_name(name)
    assert found is not None
    assert (found.metric.column, found.scale) == (column, scale)


def test_files_are_named_after_node_and_time(tmp_path):
    path = tmp_path / "n7__2026-01-05T00-05-00Z.prom"
    path.write_text(PAGE)
    result = read_all(stream_nvidia_gpu_exporter, [path], ingested_at=NOW)
    frame = result.table("raw/gpu_telemetry")
    assert frame.select("node", "ts", "source").rows() == [("n7", TS, "nvidia_gpu_exporter")]
    assert result.reads.select("n_read", "n_parsed", "n_skipped").rows() == [(10, 8, 2)]
