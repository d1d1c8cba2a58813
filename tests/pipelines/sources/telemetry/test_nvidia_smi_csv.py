"""Query output of nvidia-smi, with its lost GPUs and unknown cells."""

from datetime import UTC, datetime

import pytest

from features.errors import SourceError
from features.raw_tables import RAW_GPU_TELEMETRY, RAW_KERNEL_LOG
from pipelines.sources.telemetry.nvidia_smi_csv import parse_nvidia_smi_csv, stream_nvidia_smi_csv
from tests.pipelines.sources.reading import read_all

NOW = datetime(2026, 1, 6, tzinfo=UTC)
HEADER = "timestamp, index, uuid, pci.bus_id, power.draw [W]"
AT = "2026/01/05 00:05:00.123"
TS = datetime(2026, 1, 5, 0, 5, 0, 123_000, tzinfo=UTC)
DIFFERS = "differs from an earlier line of the same GPU and moment"
ROW = f"{AT}, 0, GPU-a, 00000000:01:00.0, 35.12 W"


def parse(*lines, zone="UTC", ts=None):
    return parse_nvidia_smi_csv(
        "\n".join(lines) + "\n",
        origin="n1.csv",
        time_zone=zone,
        ingested_at=NOW,
        node="n1",
        ts=ts,
    )


def rows(result, *columns):
    return result.table("raw/gpu_telemetry").select(columns).rows()


def events(result):
    return result.table("raw/kernel_log").select("kind", "ts", "pci_bus_id", "node").rows()


def rules(result):
    return dict(result.quarantine.select("rule", "count").rows())


def test_a_row_becomes_a_sample_that_holds_the_contract():
    result = parse(HEADER, ROW)
    columns = ("gpu_uuid", "ts", "node", "gpu_index", "source")
    assert rows(result, *columns) == [("GPU-a", TS, "n1", 0, "nvidia_smi_csv")]
    assert rows(result, "power_w")[0][0] == pytest.approx(35.12, abs=1e-5)
    enforced = RAW_GPU_TELEMETRY.enforce(result.table("raw/gpu_telemetry"))
    assert (enforced.frame.height, enforced.rejects.height) == (1, 0)
    assert result.reads.select("n_read", "n_parsed", "n_skipped").rows() == [(2, 1, 1)]


def test_times_are_in_the_zone_that_is_given():
    assert rows(parse(HEADER, ROW, zone="Europe/Berlin"), "ts") == [
        (datetime(2026, 1, 4, 23, 5, 0, 123_000, tzinfo=UTC),)
    ]


@pytest.mark.parametrize(
    ("field", "cell", "column", "value"),
    [
        ("power.draw [W]", "350.5", "power_w", 350.5),  # nounits
        ("power.draw [W]", "350500 mW", "power_w", 350.5),
        ("power.draw [mW]", "350500", "power_w", 350.5),
        ("utilization.gpu [%]", "97 %", "gpu_util_pct", 97.0),
        ("memory.used [MiB]", "12 MiB", "fb_used_mib", 12.0),
        ("clocks.sm [MHz]", "1980 MHz", "sm_clock_mhz", 1980.0),
        ("clocks.current.memory [MHz]", "2619 MHz", "memory_clock_mhz", 2619.0),
        ("clocks_throttle_reasons.active", "0x0000000000000004", "clock_event_reasons", 4),
        ("clocks_event_reasons.active", "0x0000000000000100", "clock_event_reasons", 256),
        ("ecc.errors.uncorrected.aggregate.total", "2", "ecc_dbe_aggregate", 2),
        ("remapped_rows.pending", "Yes", "row_remap_pending", 1),
        ("remapped_rows.failure", "0", "row_remap_failure", 0),
        ("temperature.memory", "[N/A]", "memory_temp_c", None),
        ("temperature.memory", "N/A", "memory_temp_c", None),
        ("power.draw [W]", "[Not Supported]", "power_w", None),
        ("power.draw [W]", "[Unknown Error]", "power_w", None),
        ("power.draw [W]", "ERR!", "power_w", None),
        ("power.draw [W]", "", "power_w", None),
        ("temperature.gpu", "45 C", "gpu_temp_c", 45.0),
        ("pcie.link.width.current", "16x", "pcie_link_width", 16),
        ("memory.used [MB]", "12", "fb_used_mib", 12.0),  # older drivers mean MiB
        ("pstate", "P32", "performance_state", None),
    ],
)
def test_cells_are_read_in_all_their_spellings(field, cell, column, value):
    result = parse(f"timestamp, uuid, {field}", f"{AT}, GPU-a, {cell}")
    assert rows(result, column) == [(value,)]
    assert rules(result) == {}


@pytest.mark.parametrize(
    ("field", "cell", "rule"),
    [
        ("temperature.gpu", "113 F", "is in a unit that is not known"),
        ("power.draw [hp]", "1", "is in a unit that is not known"),
        ("fan.speed [%]", "30 W", "is in a unit that is not known"),
        ("memory.used [MiB]", "81 559 MiB", "is not a number"),
        ("temperature.gpu", "Yes", "is not a number"),
        ("temperature.gpu", "P8", "is not a number"),
        ("utilization.gpu [%]", "Active", "is not a number"),
        ("temperature.gpu", "0x2D", "is in a unit that is not known"),
    ],
)
def test_words_and_units_of_other_metrics_are_no_value(field, cell, rule):
    result = parse(f"timestamp, uuid, {field}", f"{AT}, GPU-a, {cell}")
    assert rules(result) == {f"{field.partition(' ')[0]} {rule}": 1}
    assert result.table("raw/gpu_telemetry").height == 1


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (f"{AT}, 0, GPU-a, 00000000:01:00.0", "4 fields, the header has 5"),
        ("yesterday, 0, GPU-a, x, 35 W", "timestamp is not YYYY/MM/DD HH:MM:SS.mmm"),
        ("2026/02/30 00:00:00, 0, GPU-a, x, 3", "timestamp is not YYYY/MM/DD HH:MM:SS.mmm"),
        (f"{AT}, 0, [N/A], x, 35 W", "uuid is unknown"),
        (f"{AT}, 0, GPU-b, x, warm", "power.draw is not a number"),
        (f"{AT}, 0, GPU-b, x, 9000 W", "power_w > 3000"),
        (f"{AT}, 0, GPU-a, x, 36 W", f"power_w {DIFFERS}"),
        ("1970/01/01 00:00:12, 0, GPU-a, x, 3", "timestamp is before 2000"),
    ],
)
def test_a_bad_row_is_refused_and_the_others_stay(row, rule):
    result = parse(HEADER, ROW, row)
    assert rules(result) == {rule: 1}
    assert ("GPU-a",) in rows(result, "gpu_uuid")


def test_a_lost_gpu_is_an_event_and_the_other_gpus_stay():
    lost = "Unable to determine the device handle for GPU0000:8A:00.0: Unknown Error"
    result = parse(HEADER, ROW, lost, ROW.replace("GPU-a", "GPU-b").replace("00.123", "00.223"))
    assert rows(result, "gpu_uuid") == [("GPU-a",), ("GPU-b",)]
    after = TS.replace(microsecond=223_000)  # never known before it happened
    assert events(result) == [("off_bus", after, "00000000:8a:00.0", "n1")]
    assert RAW_KERNEL_LOG.enforce(result.table("raw/kernel_log")).rejects.is_empty()


def test_a_lost_gpu_in_the_last_line_takes_the_last_time():
    lost = "Unable to determine the device handle for GPU 00000000:8B:00.0: GPU is lost. Reboot"
    assert events(parse(HEADER, ROW, lost)) == [("off_bus", TS, "00000000:8b:00.0", "n1")]


def test_a_row_of_a_lost_gpu_gives_an_event_and_keeps_what_is_known():
    whole = f"{AT}, 0, GPU-a, 00000000:01:00.0, [GPU is lost]"
    nameless = f"{AT}, 1, [GPU is lost], 00000000:02:00.0, [GPU is lost]"
    result = parse(HEADER, whole, nameless)
    assert rows(result, "gpu_uuid", "power_w") == [("GPU-a", None)]
    assert events(result) == [
        ("off_bus", TS, "00000000:01:00.0", "n1"),
        ("off_bus", TS, "00000000:02:00.0", "n1"),
    ]
    assert rules(result) == {}


def test_appended_output_repeats_its_header():
    later = ROW.replace("05:00", "10:00")
    result = parse(HEADER, ROW, "", HEADER, later)
    assert len(rows(result, "ts")) == 2
    assert result.reads.select("n_read", "n_skipped").rows() == [(5, 3)]


def test_a_driver_that_failed_before_the_first_header_stops_nothing():
    result = parse("NVIDIA-SMI has failed because it could not talk to the driver", HEADER, ROW)
    assert rows(result, "gpu_uuid") == [("GPU-a",)]
    assert rules(result) == {"nvidia-smi itself could not work": 1}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["uuid, name, power.draw [W]", "GPU-a, H100, 3 W"], "column 'timestamp' is missing"),
        (["timestamp, uid, index", f"{AT}, GPU-a, 0"], "column 'uuid' is missing.*nearest: uid"),
        ([ROW], "column 'uuid' is missing from the header. Found: 2026/01/05.*without noheader"),
        ([""], "column 'uuid' is missing"),
    ],
)
def test_a_missing_column_is_one_clear_error(lines, message):
    with pytest.raises(SourceError, match=message):
        parse(*lines)


def test_the_name_of_the_file_gives_the_node(tmp_path):
    path = tmp_path / "gpu016__2026-01-30.csv"
    path.write_text(f"{HEADER}\n{ROW}\n")
    result = read_all(stream_nvidia_smi_csv, [path], time_zone="UTC", ingested_at=NOW)
    assert rows(result, "node") == [("gpu016",)]


def test_output_of_nothing_but_a_failure_is_read_and_shows_no_gpu():
    result = parse("Failed to initialize NVML: Driver/library version mismatch", ts=NOW)
    assert result.table("raw/gpu_telemetry").is_empty()
    assert rules(result) == {"nvidia-smi itself could not work": 1}
    coverage = result.table("raw/coverage").select("entity_id", "start").rows()
    assert coverage == [("n1", NOW)]


def test_a_time_in_the_files_name_stands_in_for_a_missing_field(tmp_path):
    path = tmp_path / "n4__2026-01-05T00-05-00Z.csv"
    path.write_text("uuid, name, pci.bus_id, index, pstate, fan.speed [%]\n"
                    "GPU-a, NVIDIA A10, 00000000:01:00.0, 2, P8, 38 %\n")  # fmt: skip
    result = read_all(stream_nvidia_smi_csv, [path], time_zone="UTC", ingested_at=NOW)
    columns = ("node", "ts", "gpu_index", "performance_state", "fan_speed_pct")
    assert rows(result, *columns) == [("n4", datetime(2026, 1, 5, 0, 5, tzinfo=UTC), 2, 8, 38.0)]
    seen = result.table("raw/inventory")
    assert seen.select("gpu_uuid", "slot", "pci_bus_id", "model").rows() == [
        ("GPU-a", "2", "00000000:01:00.0", "NVIDIA A10")
    ]


def test_of_two_fields_of_a_metric_the_first_known_one_counts():
    header = "timestamp, uuid, power.draw.instant [W], power.draw [W]"
    line = "2026/01/05 00:05:00.000, GPU-a, 90.00 W, {}"
    assert rows(parse(header, line.format("80.00 W")), "power_w") == [(80.0,)]
    assert rows(parse(header, line.format("[N/A]")), "power_w") == [(90.0,)]
