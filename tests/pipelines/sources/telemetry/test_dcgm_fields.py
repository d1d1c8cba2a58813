"""DCGM names over the releases, units and blanks."""

import math

import pytest

from features.telemetry_metrics import METRIC_BY_COLUMN, METRICS
from pipelines.sources.telemetry.dcgm_fields import (
    exporter_name,
    is_blank,
    is_blank_text,
    is_value,
    stated_scale,
)
from pipelines.sources.telemetry.dcgm_names import AMBIGUOUS_NAMES, LANE_STEMS, NAMES


def test_every_metric_has_a_name_and_no_name_stands_for_two():
    names = [name.lower() for rows in NAMES.values() for name, _ in rows]
    assert {metric.dcgm_id for metric in METRICS} == set(NAMES)
    assert len(names) == len(set(names))
    assert not set(names) & set(AMBIGUOUS_NAMES)
    assert set(LANE_STEMS) <= set(NAMES)


@pytest.mark.parametrize(
    ("name", "column", "scale"),
    [
        ("DCGM_FI_DEV_GPU_TEMP", "gpu_temp_c", 1),
        ("dcgm_gpu_temp", "gpu_temp_c", 1),
        ("dcgm_fi_dev_gpu_temp", "gpu_temp_c", 1),  # lower-cased on the way
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "clock_event_reasons", 1),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "clock_event_reasons", 1),
        ("dcgm_total_energy_consumption", "energy_j", 1e-3),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "energy_j", 1),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", "sm_clock_mhz", 1e-6),
        ("dcgm_retired_pages_dbe", "retired_pages_dbe", 1),
        ("DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL", "retired_pages_dbe", 1),
        ("DCGM_FI_DEV_FB_USED_BYTES", "fb_used_mib", 2**-20),
        ("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "thermal_violation_us", 1e6),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", "hw_thermal_slowdown_us", 1e-3),
        ("DCGM_FI_DEV_FAN_SPEED_RATIO", "fan_speed_pct", 100),
    ],
)
def test_one_field_has_many_names(name, column, scale):
    found = exporter_name(name)
    assert found is not None
    assert (found.metric.column, found.scale) == (column, scale)


def test_a_field_the_project_does_not_use_has_no_name():
    assert exporter_name("DCGM_FI_DEV_ENC_UTIL") is None


@pytest.mark.parametrize(
    "value",
    [
        4294967295,
        *range(2**31 - 16, 2**31),
        *range(2**63 - 16, 2**63),
        9.223372036854776e18,
        2**64 - 1,
        140737488355328.0,
        140737488355343.0,
        math.nan,
    ],
)
def test_stand_ins_for_no_value_are_blank(value):
    assert is_blank(value)


@pytest.mark.parametrize("value", [0, -1, 1e-9, 2**31 - 17, 2**31, 2**32, 2**47 - 1, 2**47 + 16])
def test_real_numbers_are_not_blank(value):
    assert not is_blank(value)


@pytest.mark.parametrize(
    ("column", "unit", "scale"),
    [
        ("power_w", "mW", 1e-3),
        ("power_w", "W", 1),
        ("energy_j", "J", 1),
        ("power_violation_us", "ns", 1e-3),
        ("tensor_active_ratio", "percent", None),  # help texts are wrong about ratios
        ("gpu_temp_c", "C", None),
    ],
)
def test_a_stated_unit_counts_where_units_are_known_to_vary(column, unit, scale):
    assert stated_scale(METRIC_BY_COLUMN[column], unit) == scale


@pytest.mark.parametrize("lane", [0, 17])
def test_single_links_are_parts_of_their_total(lane):
    for name in (
        f"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L{lane}",
        f"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_L{lane}_TOTAL",
    ):
        found = exporter_name(name)
        assert found is not None
        assert (found.metric.column, found.part) == ("nvlink_crc_count", f"L{lane}")


@pytest.mark.parametrize(
    ("column", "value", "is_known"),
    [
        ("ecc_dbe_volatile", -1, False),
        ("gpu_temp_margin_c", -1, True),
        ("performance_state", 32, False),
        ("performance_state", 8, True),
        ("power_w", 4294967295, False),
    ],
)
def test_some_numbers_stand_for_no_value_in_some_metrics(column, value, is_known):
    assert is_value(METRIC_BY_COLUMN[column], value) == is_known


@pytest.mark.parametrize("text", ["N/A", "[N/A]", "ERROR - FAILED TO CONVERT TO STRING", "nil"])
def test_words_may_stand_for_no_value(text):
    assert is_blank_text(text)
    assert not is_blank_text("hot")
