"""The XML report of nvidia-smi."""

from datetime import UTC, datetime

import pytest

from features.tables import TABLE_BY_KEY
from pipelines.sources.telemetry.nvidia_smi_xml import parse_nvidia_smi_xml, stream_nvidia_smi_xml
from tests.pipelines.sources.reading import read_all

NOW = datetime(2026, 1, 6, tzinfo=UTC)
TS = datetime(2026, 1, 5, 0, 5, 9, tzinfo=UTC)
HEAD = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'


def gpu(body="", uuid="GPU-a", bus="00000000:1B:00.0"):
    return (
        f'<gpu id="{bus}"><product_name>NVIDIA H100</product_name><uuid>{uuid}</uuid>'
        f"<pci><pci_bus_id>{bus}</pci_bus_id></pci>{body}</gpu>"
    )


def report(*gpus, time="Mon Jan  5 00:05:09 2026", head=HEAD):
    return f"{head}<nvidia_smi_log><timestamp>{time}</timestamp>{''.join(gpus)}</nvidia_smi_log>\n"


def parse(text, **options):
    return parse_nvidia_smi_xml(
        text, origin="x", time_zone="UTC", ingested_at=NOW, **{"node": "n1"} | options
    )


def value(body, column):
    return parse(report(gpu(body))).table("raw/gpu_telemetry")[column].item()


def rules(result):
    return dict(result.quarantine.select("rule", "count").rows())


def account(result):
    return result.reads.select("n_read", "n_parsed", "n_skipped", "n_quarantined").row(0)


def test_a_report_gives_readings_and_places():
    result = parse(report(gpu("<temperature><gpu_temp>39 C</gpu_temp></temperature>")))
    frame = result.table("raw/gpu_telemetry")
    assert frame.select("gpu_uuid", "ts", "node", "gpu_temp_c").rows() == [
        ("GPU-a", TS, "n1", 39.0)
    ]
    assert result.table("raw/inventory").select(
        "gpu_uuid", "node", "pci_bus_id", "model"
    ).rows() == [("GPU-a", "n1", "00000000:1b:00.0", "NVIDIA H100")]
    assert result.table("raw/coverage").select("entity_id", "start", "end").rows() == [
        ("n1", TS, TS)
    ]
    for key, table in result.tables.items():
        assert TABLE_BY_KEY[key].enforce(table).rejects.is_empty()
    assert account(result) == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("body", "column", "expected"),
    [
        ("<power_readings><power_draw>26.60 W</power_draw></power_readings>", "power_w", 26.6),
        (
            ("<gpu_power_readings><average_power_draw>139.62 W</average_power_draw>"
            "<instant_power_draw>142 W</instant_power_draw></gpu_power_readings>"),
            "power_w",
            139.62,
        ),
        (
            ("<gpu_power_readings><average_power_draw>N/A</average_power_draw>"
            "<instant_power_draw>142 W</instant_power_draw></gpu_power_readings>"),
            "power_w",
            142,
        ),
        ("<performance_state>P8</performance_state>", "performance_state", 8),
        ("<fan_speed>38 %</fan_speed>", "fan_speed_pct", 38),
        (
            ("<pci><pci_gpu_link_info><link_widths><current_link_width>8x</current_link_width>"
            "</link_widths></pci_gpu_link_info></pci>"),
            "pcie_link_width",
            8,
        ),
        ("<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>",
         "row_remap_pending", 1),
        ("<remapped_rows>N/A</remapped_rows>", "row_remap_pending", None),
        (
            ("<retired_pages><double_bit_retirement><retired_count>2</retired_count>"
            "</double_bit_retirement></retired_pages>"),
            "retired_pages_dbe",
            2,
        ),
        ("<gpu_recovery_action>Reboot</gpu_recovery_action>", "recovery_action", 2),
        (
            ("<clocks_event_reasons_counters><clocks_event_reasons_counters_hw_therm_slowdown>7 us"
            "</clocks_event_reasons_counters_hw_therm_slowdown></clocks_event_reasons_counters>"),
            "hw_thermal_slowdown_us",
            7,
        ),
        (
            ("<utilization><gpu_util>Requested functionality has been deprecated</gpu_util>"
            "</utilization>"),
            "gpu_util_pct",
            None,
        ),
    ],
)  # fmt: skip
def test_elements_of_old_and_new_reports(body, column, expected):
    assert value(body, column) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("parts", "sbe", "dbe"),
    [
        (
            "<single_bit><total>3</total></single_bit><double_bit><total>1</total></double_bit>",
            3,
            1,
        ),
        (
            (
                "<sram_correctable>1</sram_correctable><sram_uncorrectable>2</sram_uncorrectable>"
                "<dram_correctable>4</dram_correctable><dram_uncorrectable>8</dram_uncorrectable>"
            ),
            5,
            10,
        ),
        (
            (
                "<sram_correctable>N/A</sram_correctable><dram_correctable>4</dram_correctable>"
                "<sram_uncorrectable_parity>1</sram_uncorrectable_parity>"
                "<sram_uncorrectable_secded>2</sram_uncorrectable_secded>"
                "<dram_uncorrectable>4</dram_uncorrectable>"
            ),
            None,  # the sum of something unknown is unknown
            7,
        ),
    ],
)
def test_ecc_counts_of_every_layout(parts, sbe, dbe):
    body = f"<ecc_errors><aggregate>{parts}</aggregate></ecc_errors>"
    assert value(body, "ecc_sbe_aggregate") == sbe
    assert value(body, "ecc_dbe_aggregate") == dbe
    assert value(body, "ecc_dbe_volatile") is None


@pytest.mark.parametrize("stem", ["clocks_event_reason", "clocks_throttle_reason"])
def test_reasons_become_the_bits_of_the_driver(stem):
    flags = {"gpu_idle": "Not Active", "sw_thermal_slowdown": "Active\n ", "hw_slowdown": "Active"}
    body = "".join(f"<{stem}_{key}>{word}</{stem}_{key}>" for key, word in flags.items())
    assert value(f"<{stem}s>{body}</{stem}s>", "clock_event_reasons") == 0x28
    assert value(f"<{stem}s>N/A</{stem}s>", "clock_event_reasons") is None


def test_a_mig_instances_values_are_not_the_gpus():
    body = (
        "<mig_devices><mig_device><fb_memory_usage><used>19 MiB</used></fb_memory_usage>"
        "</mig_device></mig_devices>"
    )
    assert value(body, "fb_used_mib") is None
    assert (
        value(f"{body}<fb_memory_usage><used>38 MiB</used></fb_memory_usage>", "fb_used_mib") == 38
    )


def test_a_lost_gpu_is_an_event_and_stands_in_no_others_way():
    text = report(gpu(uuid="GPU is lost", bus="00000000:8A:00.0"), gpu())
    before = "Unable to determine the device handle for GPU 0000:43:00.0: Unknown Error\n"
    result = parse(before + text)
    events = result.table("raw/kernel_log")
    assert events.select("kind", "pci_bus_id", "ts", "node").rows() == [
        ("off_bus", "00000000:43:00.0", TS, "n1"),
        ("off_bus", "00000000:8a:00.0", TS, "n1"),
    ]
    assert result.table("raw/gpu_telemetry")["gpu_uuid"].to_list() == ["GPU-a"]
    assert account(result) == (3, 3, 0, 0)


@pytest.mark.parametrize(
    ("head", "rule"),
    [
        (
            ('<?xml version="1.0"?><!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaa">'
            '<!ENTITY b "&a;&a;&a;&a;">]>'),
            "report has a document type of its own",
        ),
        ('<?xml version="1.0"?><!DOCTYPE x SYSTEM "file:///etc/passwd" [ ]>',
         "report has a document type of its own"),
    ],
)  # fmt: skip
def test_entities_are_refused_before_they_are_expanded(head, rule):
    result = parse(report(gpu("<fan_speed>&b;</fan_speed>"), head=head))
    assert result.table("raw/gpu_telemetry").is_empty()
    assert rules(result) == {rule: 1}


def test_endless_depth_is_refused():
    result = parse(f"{HEAD}<nvidia_smi_log>{'<a>' * 100_000}")
    assert rules(result) == {"report is more than 64 deep": 1}


def test_reports_one_after_the_other_and_one_that_breaks_off():
    broken = report(gpu("<fan_speed>1 %</fan_speed>"), gpu(uuid="GPU-b"))
    broken = broken[: broken.index("GPU-b")]
    later = report(gpu("<fan_speed>2 %</fan_speed>"), time="Mon Jan  5 00:10:09 2026")
    result = parse(broken + "\n" + later)
    assert result.table("raw/gpu_telemetry")["fan_speed_pct"].to_list() == [1.0, 2.0]
    assert rules(result) == {"report is not valid XML: no element found": 1} or rules(result) == {
        "report is not valid XML: unclosed token": 1
    }
    assert account(result) == (3, 2, 0, 1)


def test_a_bad_reading_spoils_its_own_cell_only():
    body = "<fan_speed>fast</fan_speed><performance_state>P2</performance_state>"
    result = parse(report(gpu(body)))
    frame = result.table("raw/gpu_telemetry")
    assert frame.select("fan_speed_pct", "performance_state").rows() == [(None, 2)]
    assert rules(result) == {"fan_speed_pct is not a number": 1}


def test_a_report_without_a_time_needs_one():
    text = report(gpu(), time="N/A")
    assert rules(parse(text)) == {"report has no time": 1}
    assert parse(text, ts=TS).table("raw/gpu_telemetry")["ts"].to_list() == [TS]


def test_the_zone_of_the_clock_is_a_setting_and_the_node_the_name_of_the_file(tmp_path):
    path = tmp_path / "n5__night.xml"
    path.write_text(report(gpu()))
    result = read_all(stream_nvidia_smi_xml, [path], time_zone="Europe/Berlin", ingested_at=NOW)
    assert result.table("raw/gpu_telemetry").select("node", "ts").rows() == [
        ("n5", datetime(2026, 1, 4, 23, 5, 9, tzinfo=UTC))
    ]


@pytest.mark.parametrize("name", ["\x01\x1b[31m", "a & b", "a &b; c", "\uffff", "&#38;"])
def test_the_name_of_a_process_spoils_no_report(name):
    body = f"<process_name>{name}</process_name><fan_speed>30 %</fan_speed>"
    result = parse(report(gpu(body), gpu(uuid="GPU-b", bus="00000000:1C:00.0")))
    assert account(result) == (2, 2, 0, 0)
    assert result.table("raw/gpu_telemetry")["fan_speed_pct"].to_list() == [30.0, None]


def test_a_decimal_comma_is_not_cut_to_whole_numbers():
    body = "<utilization><gpu_util>97,5 %</gpu_util></utilization>"
    result = parse(report(gpu(body)))
    assert result.table("raw/gpu_telemetry")["gpu_util_pct"].to_list() == [None]
    assert rules(result) == {"gpu_util_pct is in a unit that is not known": 1}
