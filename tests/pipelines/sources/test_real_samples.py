"""Samples written by nobody here: every one parses or is refused with a reason; none crashes."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from features.errors import SourceError
from features.tables import TABLE_BY_KEY
from pipelines.sources.kernel.log import parse_kernel_log, stream_kernel_log
from pipelines.sources.slurm.sacct import stream_sacct
from pipelines.sources.telemetry.dcgm_text import stream_dcgm_text
from pipelines.sources.telemetry.nvidia_smi_csv import stream_nvidia_smi_csv
from tests.pipelines.sources.reading import read_all

SAMPLES = Path(__file__).parents[3] / "../shared/data/samples"
NOW = datetime(2026, 5, 1, tzinfo=UTC)
XDMOD = [
    "JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID",
    "Submit", "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS",
    "ReqCPUS", "ReqMem", "ReqTRES", "AllocTRES", "Timelimit", "NodeList", "JobName",
]  # fmt: skip

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not SAMPLES.is_dir(), reason="the real samples (../shared/data/samples) are not here"
    ),
]


def files(folder, pattern="*"):
    return sorted(path for path in (SAMPLES / folder).glob(pattern) if path.is_file())


def ids(path):
    return path.name


def account(result):
    """Parsed, skipped, quarantined; each table holds its contract."""
    n_read, n_parsed, n_skipped, n_quarantined = result.reads.drop("source", "origin").row(0)
    assert n_read == n_parsed + n_skipped + n_quarantined
    assert result.quarantine["count"].sum() == n_quarantined
    for key, frame in result.tables.items():
        assert TABLE_BY_KEY[key].enforce(frame).rejects.is_empty()
    return n_parsed, n_skipped, n_quarantined


def xid_lines():
    path = SAMPLES / "xid/xid_lines.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


@pytest.mark.parametrize("sample", xid_lines(), ids=lambda sample: sample["line"][:60])
def test_every_xid_line_has_its_code(sample):
    result = parse_kernel_log(sample["line"], origin="x", time_zone="UTC", ingested_at=NOW)
    frame = result.table("raw/kernel_log")
    kind = {"Xid": "xid", "SXid": "sxid"}.get(sample["kind"])
    if kind is None:
        assert frame["code"].drop_nulls().is_empty()
    else:
        assert frame.select("kind", "code").rows() == [(kind, sample["code"])]
    assert account(result)[2] == 0


def test_the_xid_lines_read_as_one_log_lose_none():
    text = "\n".join(sample["line"] for sample in xid_lines())
    result = parse_kernel_log(text, origin="x", time_zone="UTC", ingested_at=NOW)
    expected = sorted(s["code"] for s in xid_lines() if s["code"] is not None)
    assert sorted(result.table("raw/kernel_log")["code"].drop_nulls()) == expected


@pytest.mark.parametrize("path", files("dcgm_exporter", "*.prom"), ids=ids)
def test_every_scrape_is_read_or_refused_with_a_reason(path):
    parsed, _, quarantined = account(read_all(stream_dcgm_text, [path], ts=NOW, ingested_at=NOW))
    expected = {"15": 1, "17": 1}  # a series without a UUID; a value that is no number
    assert quarantined == expected.get(path.name[:2], 0)
    assert parsed or path.name[:2] in ("08", "17")  # only fields that the project does not use


@pytest.mark.parametrize("path", files("nvidia_gpu_exporter"), ids=ids)
def test_scrapes_of_another_exporter_are_skipped(path):
    parsed, skipped, quarantined = account(
        read_all(stream_dcgm_text, [path], ts=NOW, ingested_at=NOW)
    )
    assert (parsed, quarantined) == (0, 0)
    assert skipped


@pytest.mark.parametrize("path", files("slurm"), ids=ids)
def test_every_slurm_file_is_read_or_is_one_clear_error(path):
    columns = XDMOD if path.name.startswith("xdmod") else None
    if "sacct" in path.name:
        result = read_all(stream_sacct, [path], time_zone="UTC", ingested_at=NOW, columns=columns)
        parsed, skipped, quarantined = account(result)
        assert (parsed, quarantined) == (result.reads["n_read"][0] - skipped, 0)
        assert parsed >= 5
    else:
        with pytest.raises(SourceError, match="this is no output of sacct"):
            read_all(stream_sacct, [path], time_zone="UTC", ingested_at=NOW)


def test_a_job_that_is_broken_over_lines_is_put_together():
    path = SAMPLES / "slurm/gcm__sample-sacct-fake-line-break.txt"
    jobs = read_all(stream_sacct, [path], time_zone="UTC", ingested_at=NOW).table("raw/job_log")
    assert jobs["job_id"].to_list() == ["200131", "201729", "201844", "201729"]
    assert jobs["n_gpus"].to_list() == [2048, 1024, 256, 8]
    assert [len(nodes) for nodes in jobs["nodes"]] == [256, 128, 32, 1]


@pytest.mark.parametrize("path", files("nvidia_smi"), ids=ids)
def test_nvidia_smi_files_without_a_timestamp_are_one_clear_error(path):
    with pytest.raises(SourceError, match="is missing from the header"):
        read_all(stream_nvidia_smi_csv, [path], time_zone="UTC", ingested_at=NOW)


@pytest.mark.parametrize("path", files("system"), ids=ids)
def test_logs_without_gpu_trouble_give_no_event(path):
    result = read_all(stream_kernel_log, [path], time_zone="UTC", ingested_at=NOW)
    parsed, skipped, quarantined = account(result)
    assert (parsed, quarantined) == (0, 0)
    assert skipped


def test_the_fabric_managers_log_has_its_one_error():
    path = SAMPLES / "fabric/gpud__fabricmanager.log"
    result = read_all(stream_kernel_log, [path], time_zone="UTC", ingested_at=NOW)
    events = result.table("raw/kernel_log")
    assert events.select("kind", "code", "pci_bus_id", "severity", "ts").rows() == [
        (
            "sxid",
            12028,
            "00000000:86:00.0",
            "nonfatal",
            datetime(2025, 2, 27, 15, 10, 2, tzinfo=UTC),
        )
    ]
    assert account(result) == (1, result.reads["n_read"][0] - 1, 0)


@pytest.mark.parametrize(
    "sample", [s for s in xid_lines() if s["code"] in range(144, 151)], ids=lambda s: s["line"][:60]
)
def test_nvlink_errors_have_the_severity_that_their_line_names(sample):
    result = parse_kernel_log(sample["line"], origin="x", time_zone="UTC", ingested_at=NOW)
    expected = "nonfatal" if "Nonfatal" in sample["line"] else "fatal"
    assert result.table("raw/kernel_log")["severity"].to_list() == [expected]
