"""No bytes crash a telemetry parser, and none of their records go missing."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.tables import TABLE_BY_KEY
from pipelines.sources.telemetry.nvidia_gpu_exporter import parse_nvidia_gpu_exporter
from pipelines.sources.telemetry.nvidia_smi_xml import parse_nvidia_smi_xml

NOW = datetime(2026, 1, 6, tzinfo=UTC)

PARSERS = {
    "nvidia_gpu_exporter": lambda data: parse_nvidia_gpu_exporter(
        data, origin="f", ts=NOW, ingested_at=NOW
    ),
    "nvidia_smi_xml": lambda data: parse_nvidia_smi_xml(
        data, origin="f", time_zone="Europe/Berlin", ingested_at=NOW, node="n1"
    ),
}
PIECES = {
    "nvidia_gpu_exporter": [
        b"nvidia_smi_temperature_gpu", b"nvidia_smi_gpu_info", b'{uuid="GPU-a"}', b"{", b'"', b" ",
        b"5", b"N/A", b"-1", b"1e400", b"99999999999999999999", b"nvidia_smi_pstate",
        b'{uuid="GPU-a",index="99999999",pci_bus_id="zz"}',
    ],
    "nvidia_smi_xml": [
        b'<?xml version="1.0"?>', b"<!DOCTYPE nvidia_smi_log SYSTEM 'x'>", b"<nvidia_smi_log>",
        b"</nvidia_smi_log>", b"<timestamp>Mon Jan  5 00:05:09 2026</timestamp>",
        b"<timestamp>Mon Jan 99 99:99:99 0000</timestamp>", b'<gpu id="00000000:1B:00.0">',
        b"<gpu>", b"</gpu>", b"<uuid>GPU-a</uuid>", b"<uuid>GPU is lost</uuid>", b"<fan_speed>",
        b"</fan_speed>", b"1e9 %", b"&amp;", b"&x;", b"<!DOCTYPE a [<!ENTITY x 'y'>]>",
        b"<![CDATA[", b"GPU is lost",
    ],
}  # fmt: skip


def texts(kind):
    """Bytes that look like the format often enough to get into its corners."""
    pieces = st.sampled_from([*PIECES[kind], b"\n", b"\xff", b"\x00"]) | st.binary(max_size=4)
    return st.lists(pieces, max_size=25).map(b"".join) | st.binary(max_size=60)


@pytest.mark.parametrize("kind", PARSERS)
@settings(max_examples=50)
@given(data=st.data())
def test_any_bytes_are_read_refused_or_skipped(kind, data):
    result = PARSERS[kind](data.draw(texts(kind)))
    n_read, n_parsed, n_skipped, n_quarantined = result.reads.drop("source", "origin").row(0)
    assert n_read == n_parsed + n_skipped + n_quarantined
    assert result.quarantine["count"].sum() == n_quarantined
    for key, frame in result.tables.items():
        assert frame.schema == TABLE_BY_KEY[key].schema
        assert TABLE_BY_KEY[key].enforce(frame).rejects.is_empty()
