"""No bytes crash a parser, and none of them go missing."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.errors import SourceError
from features.tables import TABLE_BY_KEY
from pipelines.sources.kernel.log import parse_kernel_log
from pipelines.sources.slurm.sacct import parse_sacct
from pipelines.sources.telemetry.dcgm_text import parse_dcgm_text
from pipelines.sources.telemetry.nvidia_smi_csv import parse_nvidia_smi_csv

NOW = datetime(2026, 1, 6, tzinfo=UTC)
LOCAL = {"origin": "f", "time_zone": "Europe/Berlin", "ingested_at": NOW}

PARSERS = {
    "dcgm_text": lambda data: parse_dcgm_text(data, origin="f", ts=NOW, ingested_at=NOW),
    "kernel_log": lambda data: parse_kernel_log(data, **LOCAL, boot_time=NOW),
    "nvidia_smi_csv": lambda data: parse_nvidia_smi_csv(data, **LOCAL),
    "sacct": lambda data: parse_sacct(data, **LOCAL),
    "sacct_columns": lambda data: parse_sacct(data, **LOCAL, columns=["JobID", "State", "JobName"]),
}

PIECES = {
    "dcgm_text": [
        b"DCGM_FI_DEV_GPU_TEMP", b"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", b"# HELP ", b"{", b"}", b'"',
        b'UUID="GPU-a"', b'GPU_I_ID="1"', b'gpu="0"', b",", b" ", b"\\", b"NaN", b"1e400", b"-1",
        b"9223372036854775794", b"99999999999999999999", b"(in mW)",
    ],
    "kernel_log": [
        b"NVRM: Xid (PCI:0000:8a:00): ", b"79", b", pid=1", b"99999999999999999999", b"SXid (",
        b"NVRM: The NVIDIA GPU 0000:b3:00.0", b"fallen off the bus", b"Dec 31 23:59:60 n1 ",
        b"Feb 29 02:30:00 n1 kernel: ", b"[99999999999999999.9] ", b"0001-01-01T00:00:00+14:00 ",
        b"9999-12-31T23:59:59 n1 kernel: ", b'{"MESSAGE": "NVRM"}', b"[Mon Oct 29 12:07:39 0000] ",
        b"6,1,99999999999999999999,-;", b"AER: error received: 0000:8a:00.0", b"EDAC CE page",
        b"Killed process 1 (a)", b"GSP error",
    ],
    "nvidia_smi_csv": [
        b"timestamp, uuid, index, power.draw [W]", b"2026/01/05 00:05:00.123", b", ", b"GPU-a",
        b"[N/A]", b"ERR!", b"1e9", b"0xffffffffffffffff", b"GPU is lost", b"99999999999999999999",
        b"0001/01/01 00:00:00", b"9999/12/31 23:59:59",
    ],
    "sacct": [
        b"JobID|State|Start|NodeList|AllocTRES|JobName|Comment", b"JobID|State", b"|", b"1_[1-2]",
        b"COMPLETED", b"CANCELLED by 1", b"2026-01-05T00:00:00", b"0001-01-01T00:00:00",
        b"9999-12-31T23:59:59", b"n[1-999999]", b"n[", b"gres/gpu=99999999999", b"Unknown", b"\r",
    ],
}  # fmt: skip
PIECES["sacct_columns"] = PIECES["sacct"]


def texts(kind):
    """Bytes that look like the format often enough to get into its corners."""
    pieces = st.sampled_from([*PIECES[kind], b"\n", b"\n", b"\xff", b"\x00"]) | st.binary(
        max_size=4
    )
    return st.lists(pieces, max_size=25).map(b"".join) | st.binary(max_size=60)


@pytest.mark.parametrize("kind", PARSERS)
@settings(max_examples=60)
@given(data=st.data())
def test_any_bytes_are_read_refused_or_skipped(kind, data):
    text = data.draw(texts(kind))
    try:
        result = PARSERS[kind](text)
    except SourceError:
        assert kind in ("sacct", "nvidia_smi_csv")  # no header: the whole file is not its kind
        return
    n_lines = len(text.split(b"\n")) - text.endswith(b"\n") - (not text)
    n_read, n_parsed, n_skipped, n_quarantined = result.reads.drop("source", "origin").row(0)
    assert n_read == n_lines == n_parsed + n_skipped + n_quarantined
    assert result.quarantine["count"].sum() == n_quarantined
    for key, frame in result.tables.items():
        assert frame.schema == TABLE_BY_KEY[key].schema
        assert TABLE_BY_KEY[key].enforce(frame).rejects.is_empty()
