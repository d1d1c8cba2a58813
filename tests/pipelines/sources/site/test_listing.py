"""A site's list of inputs: what it may say, and that its files are read as it says."""

from datetime import UTC, datetime

import pytest

from features.errors import SettingsError, SourceError
from pipelines.sources.site.listing import load_inputs
from pipelines.sources.site.readers import read_inputs

NOW = datetime(2026, 1, 6, tzinfo=UTC)
SMI = "timestamp, uuid, temperature.gpu\n2026/01/05 00:05:00.000, GPU-a, 40\nGPU is lost\n"


@pytest.fixture
def site(tmp_path):
    """Files of every kind, and a function that writes a list and loads it."""
    files = {
        "kernel/n1.log": "Jan  5 00:05:00 n1 kernel: NVRM: Xid (PCI:0000:01:00): 31, x\nbroken\n",
        "kernel/_temporary/n2.log": "NVRM: Xid (PCI:0000:01:00): 13, half a file\n",
        "sacct/jobs.txt": "JobID|State|Submit\n1|FAILED|2026-01-05T00:05:00\n2|FAILED|Unknown\n",
        "dcgm/n1__2026-01-05T00-05-00Z.prom": 'DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 41\n',
        "smi/n1.csv": SMI,
        "inventory.csv": "uuid,host\nGPU-a,n1\n",
        "mappings/inventory.yaml": (
            "file: {format: csv}\n"
            "tables: {core/inventory: {columns: {gpu_uuid: uuid, node: host}}}\n"
        ),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def load(*inputs, zone="time_zone: UTC"):
        path = tmp_path / "inputs.yaml"
        path.write_text("\n".join(["site: demo", zone, "inputs:", *(f"  - {i}" for i in inputs)]))
        return load_inputs(path)

    return load


ALL = (
    "{kind: history, path: inventory.csv, mapping: mappings/inventory.yaml}",
    '{kind: dcgm_text, path: "dcgm/*.prom"}',
    '{kind: nvidia_smi_csv, path: "smi/*.csv"}',
    '{kind: kernel_log, path: "kernel/**/*.log"}',
    '{kind: sacct, path: "sacct/*.txt"}',
)


def test_inputs_of_every_kind_are_read_into_their_tables(site):
    result = read_inputs(site(*ALL), ingested_at=NOW)
    heights = {key: frame.height for key, frame in result.tables.items()}
    assert heights == {
        "core/inventory": 1,
        "raw/gpu_telemetry": 2,
        "raw/kernel_log": 2,  # a lost GPU of nvidia-smi and an Xid; nothing of _temporary
        "raw/job_log": 2,
        "raw/inventory": 2,
        "raw/coverage": 3,  # the two samples, and the log by its readable lines
    }
    account = result.reads.select("n_read", "n_parsed", "n_skipped", "n_quarantined").sum().row(0)
    assert account[0] == sum(account[1:])


def test_only_inputs_that_give_a_wanted_table_are_read(site):
    inputs = site(*ALL, '{kind: sacct, path: "absent/*.txt"}')
    result = read_inputs(inputs, ingested_at=NOW, tables=["raw/kernel_log"])
    assert set(result.tables) == {"raw/kernel_log"}
    assert result.table("raw/kernel_log").height == 2
    assert result.reads["source"].to_list() == ["kernel_log"]  # nvidia-smi counts with telemetry


def test_reading_the_tables_one_by_one_counts_no_record_twice(site):
    inputs = site(*ALL)
    whole = read_inputs(inputs, ingested_at=NOW)
    parts = [read_inputs(inputs, ingested_at=NOW, tables=[key]) for key in whole.tables]
    assert sum(part.reads["n_read"].sum() for part in parts) == whole.reads["n_read"].sum()
    assert sum(p.quarantine.height for p in parts) == whole.quarantine.height


def test_the_zone_of_an_input_goes_before_the_sites(site):
    inputs = site(
        '{kind: sacct, path: "sacct/*.txt", time_zone: Asia/Kolkata}',
        zone="time_zone: Europe/Berlin",
    )
    result = read_inputs(inputs, ingested_at=NOW, tables=["raw/job_log"])
    assert result.table("raw/job_log")["submit"][0] == datetime(2026, 1, 4, 18, 35, tzinfo=UTC)


def test_a_pattern_without_a_file_is_one_clear_error(site):
    inputs = site('{kind: sacct, path: "absent/*.txt"}')
    with pytest.raises(SourceError, match=r"inputs\.yaml: no file matches 'absent/\*\.txt'"):
        read_inputs(inputs, ingested_at=NOW)


def test_an_absolute_path_is_taken_as_it_is(site, tmp_path):
    inputs = site(f'{{kind: sacct, path: "{tmp_path}/sacct/*.txt"}}')
    assert read_inputs(inputs, ingested_at=NOW).table("raw/job_log").height == 2


@pytest.mark.parametrize(
    ("entry", "zone", "message"),
    [
        ("{kind: sacct}", "time_zone: UTC", r"inputs\[0\]\.path: Field required"),
        ("{kind: sackt, path: a}", "time_zone: UTC", r"inputs\[0\].*'sackt'"),
        ("{kind: sacct, path: 5}", "time_zone: UTC", r"inputs\[0\]\.path: .*string, got 5"),
        (
            "{kind: sacct, path: a, colour: red}",
            "time_zone: UTC",
            r"inputs\[0\]\.colour: .*not perm",
        ),
        ("{kind: sacct, path: a}", "", r"inputs\[0\]\.time_zone is needed: kind sacct"),
        ("{kind: nvidia_smi_csv, path: a}", "", r"inputs\[0\]\.time_zone is needed"),
        ("{kind: sacct, path: a}", "time_zone: Mars", r"time_zone: 'Mars' is no time zone"),
        ("{kind: history, path: a}", "", r"inputs\[0\]\.mapping: Field required"),
        ("{kind: dcgm_text, path: a, time_zone: UTC}", "", r"inputs\[0\]\.time_zone: .*got 'UTC'"),
    ],
)
def test_a_mistake_is_named_with_file_and_key_path(site, entry, zone, message):
    with pytest.raises(SettingsError, match=rf"inputs\.yaml: {message}"):
        site(entry, zone=zone)


@pytest.mark.parametrize("text", ["", "- a\n", "inputs: [", "site: x\ninputs: []\n", "\xff"])
def test_a_file_that_is_no_list_of_inputs_is_one_clear_error(tmp_path, text):
    path = tmp_path / "inputs.yaml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match=r"list of inputs .*inputs\.yaml"):
        load_inputs(path)
    with pytest.raises(SettingsError, match=r"absent\.yaml cannot be read"):
        load_inputs(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    "pattern", ["../{}/kernel/*.log", "kernel/../kernel/*.log", ".hidden/*.log"]
)
def test_folders_that_a_pattern_names_are_looked_into_also_where_they_begin_with_a_dot(
    site, tmp_path, pattern
):
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "n1.log").touch()
    (tmp_path / ".hidden" / ".n2.log").touch()
    inputs = site(f"{{kind: kernel_log, path: '{pattern.format(tmp_path.name)}'}}")
    assert [path.name for path in inputs.files(inputs.spec.inputs[0])] == ["n1.log"]


def test_a_name_that_no_file_system_takes_is_an_unreadable_input(site):
    inputs = site(f"{{kind: kernel_log, path: {'a' * 300}}}")
    with pytest.raises(SourceError, match="cannot be listed: File name too long"):
        inputs.files(inputs.spec.inputs[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("site: 2026-02-30\n", "day is out of range"),
        ("[" * 600, "nested too deeply"),
        ("site: " + "9" * 5000, "4300"),
        ('site: "a\\0b"\ninputs: []\n', "NUL"),
        ('site: "a\\ud800"\ninputs: []\n', "half a pair"),
        ("site: a\ninputs: [{kind: dcgm_text, path: x, every_s: .inf}]\n", "finite number"),
        ("site: a\ninputs: [{kind: dcgm_text, path: x, every_s: 1.0e+9}]\n", "604800"),
    ],
)
def test_a_list_that_says_no_values_is_one_clear_error(tmp_path, text, expected):
    path = tmp_path / "inputs.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=expected):
        load_inputs(path)


def test_aliases_of_aliases_do_not_blow_up_the_message(tmp_path):
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path = tmp_path / "inputs.yaml"
    path.write_text("\n".join([*levels, "site: *a11"]))
    with pytest.raises(SettingsError) as caught:
        load_inputs(path)
    assert len(str(caught.value)) < 20_000
