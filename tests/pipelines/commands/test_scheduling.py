"""The command, from a file of jobs to its table and picture."""

from datetime import datetime, timedelta
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from typer.testing import CliRunner

from features.errors import DataError, SettingsError, SourceError
from pipelines.cli import app
from pipelines.studies.scheduling_words import render
from simulation.scheduling.policies import FIFO, LYRA, POLICIES

START = datetime(2017, 10, 2)  # noqa: DTZ001 - the trace has no zone


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "jobs.csv"
    pl.DataFrame(
        {
            "timestamp": [START + timedelta(hours=n) for n in range(40)],
            "duration": [3600.0 * (1 + n % 7) for n in range(40)],
            "num_gpus": [(1, 2, 4, 8)[n % 4] for n in range(40)],
        }
    ).write_csv(path)
    return path


def invoke(*arguments):
    asked = ["simulate", "scheduling", *map(str, arguments)]
    return CliRunner().invoke(app, asked, catch_exceptions=False)


def test_the_command_prints_a_table_and_writes_the_runs_and_a_picture(jobs, tmp_path):
    out, figure = tmp_path / "runs.csv", tmp_path / "curves.svg"
    asked = ("--load", 0.01, "--load", 0.02, "--seeds", 1, "--days", 1, "--n-jobs", 50)
    result = invoke("--jobs", jobs, *asked, "--out", out, "--figure", figure)
    assert result.exit_code == 0
    for policy in POLICIES:
        assert sum(line.startswith(f"{policy.name} ") for line in result.stdout.splitlines()) >= 2
    runs = pl.read_csv(out)
    assert runs.height == 2 * len(POLICIES)
    assert runs["load"].unique().sort().to_list() == [0.01, 0.02]
    svg = ET.parse(figure).getroot()  # noqa: S314 - our own file
    assert svg.tag.endswith("svg")
    assert LYRA.name in "".join(svg.itertext())


def test_a_table_tells_ratios_and_says_where_there_are_none():
    rows = [
        {"policy": name, "load": 0.9, "seed": seed, "n_jobs": 5, "queuing_s": queuing,
         "queuing_p95_s": 9.0, "completion_s": completion, "completion_p95_s": 9.0,
         "training_use": 0.5, "all_use": 0.25, "preemptions": 3, "reclaimed": 0}
        for name, queuing, completion in ((FIFO.name, 300.0, 600.0), ("SJF", 0.0, 300.0))
        for seed in range(2)
    ]  # fmt: skip
    text = render(pl.DataFrame(rows))
    line = next(line for line in text.splitlines() if line.startswith("SJF"))
    assert line.split() == [
        "SJF", "0", "(9)", "300", "(9)", "-", "2", "(2", "to", "2)", "-", "1", "50.0%", "25.0%",
        "3",
    ]  # fmt: skip


HEAD = "timestamp,duration,num_gpus\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00\x01", r"expected (a CSV file with the )?columns timestamp, duration"),
        (b"", "jobs.csv: expected a CSV file"),
        (HEAD.encode(), "jobs.csv: none of 0 rows"),
        (f"{HEAD}2017-10-09 07:01:55,bad,1\n".encode(), "jobs.csv: .*bad.*duration"),
        (f"{HEAD}yesterday,5,1\n".encode(), "timestamp: expected times, got String, .*yesterday"),
        (f"{HEAD}2017-10-09 07:01:55,nan,1\n".encode(), "duration: .* 1 other values"),
        (f"{HEAD}2017-10-09 07:01:55,1e300,1\n".encode(), "duration: expected at most 10 years"),
        (f"{HEAD}2017-10-09 07:01:55,5,1.5\n".encode(), "num_gpus: expected whole numbers"),
    ],
)
def test_a_file_that_is_no_list_of_jobs_is_refused_by_name(tmp_path, content, said):
    wrong = tmp_path / "jobs.csv"
    wrong.write_bytes(content)
    with pytest.raises((SourceError, DataError), match=said):
        invoke("--jobs", wrong)


def test_an_absent_file_of_jobs_and_places_that_cannot_be_written_are_refused_first(jobs, tmp_path):
    with pytest.raises(SourceError, match="absent cannot be read: No such file"):
        invoke("--jobs", tmp_path / "absent")
    with pytest.raises(SettingsError, match="is a folder; name a file"):
        invoke("--jobs", tmp_path / "absent", "--out", tmp_path)
    with pytest.raises(SettingsError, match="cannot be written: .*jobs.csv: Not a directory"):
        invoke("--jobs", tmp_path / "absent", "--figure", jobs / "curves.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.csv"]


@pytest.mark.parametrize("options", [("--load", "inf"), ("--load", 1e9), ("--preemption-s", "inf")])
def test_numbers_that_no_cluster_has_are_refused(jobs, options):
    assert invoke("--jobs", jobs, *options).exit_code == 2


def test_a_load_named_twice_is_run_once(jobs, tmp_path):
    invoke("--jobs", jobs, *("--load", 0.01) * 2, "--seeds", 1, "--days", 1, "--n-jobs", 5,
           "--out", tmp_path / "runs.csv")  # fmt: skip
    assert pl.read_csv(tmp_path / "runs.csv").height == len(POLICIES)
