"""The hourly job makes tables that Dagster can make together, of the hours that it should."""

import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

SLURM = Path(__file__).parents[2] / "deploy" / "slurm"
HOURLY = SLURM / "hourly.sh"


def selections() -> list[list[str]]:
    return [
        found.split(",") for found in re.findall(r"^make_tables (\S+)", HOURLY.read_text(), re.M)
    ]


@pytest.mark.slow
def test_each_run_names_all_tables_that_are_made_together(tmp_path: Path) -> None:
    import dagster as dg

    from tests.end_to_end.test_definitions import definitions

    graph = definitions(tmp_path, "hour").resolve_asset_graph()
    for names in selections():
        keys = dg.AssetSelection.assets(*names)
        together = keys.required_multi_asset_neighbors().resolve(graph)
        assert {key.to_user_string() for key in together} == set(names)


def stubbed(
    folder: Path,
    *,
    job: Path = HOURLY,
    fails: str = "",
    now: str | None = "2026-03-29 01:12:00 UTC",
) -> subprocess.CompletedProcess[str]:
    """Runs the job with programs that only note what they were asked."""
    for name in ("forewarn", "dagster"):
        script = f'#!/bin/sh\necho "{name} $*"\n[ "{name} $1" != "{fails}" ]\n'
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return subprocess.run(
        ["/bin/sh", job],
        env={
            "PATH": "/usr/bin:/bin",
            "FOREWARN_BIN": str(folder),
            **({} if now is None else {"FOREWARN_NOW": now}),
            "TZ": "Europe/Berlin",  # skips an hour at that time
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_makes_the_last_three_full_hours_of_utc_and_then_scores(tmp_path: Path) -> None:
    done = stubbed(tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[:2] == ["forewarn ingest", "forewarn dagster-home"]
    assert lines[-1] == "forewarn score"
    (ranged,) = [line for line in lines if "--partition-range" in line]
    assert ranged.endswith("--partition-range 2026-03-28-22:00...2026-03-29-00:00")


def test_unless_told_otherwise_the_hours_are_those_before_the_present(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    done = stubbed(tmp_path, now=None)
    (first, last) = re.findall(r"\d{4}-\d\d-\d\d-\d\d:00", done.stdout)
    assert done.stderr == ""
    ends = [datetime.strptime(one, "%Y-%m-%d-%H:%M").replace(tzinfo=UTC) for one in (first, last)]
    assert ends[1] - ends[0] == timedelta(hours=2)
    assert ends[1] in (before - timedelta(hours=1), before)


def test_an_input_that_fails_keeps_no_score_back_and_tables_that_fail_do(tmp_path: Path) -> None:
    assert stubbed(tmp_path, fails="forewarn ingest").stdout.endswith("forewarn score\n")
    failed = stubbed(tmp_path, fails="dagster asset")
    assert failed.returncode != 0
    assert "forewarn score" not in failed.stdout


def test_a_dagster_whose_database_is_down_keeps_nothing_from_landing(tmp_path: Path) -> None:
    done = stubbed(tmp_path, fails="forewarn dagster-home")
    assert done.stdout.splitlines() == ["forewarn ingest", "forewarn dagster-home"]
    assert done.returncode != 0


@pytest.mark.parametrize("fails", ["", "forewarn outcomes", "forewarn retain"])
def test_once_a_day_alerts_are_judged_and_old_data_goes_whichever_fails(
    tmp_path: Path, fails: str
) -> None:
    done = stubbed(tmp_path, job=SLURM / "daily.sh", fails=fails)
    assert done.stdout.splitlines() == ["forewarn outcomes", "forewarn retain"]
    assert done.returncode == (1 if fails else 0)


@pytest.mark.parametrize(
    ("given", "workers", "memory"),
    [
        ({"SLURM_CPUS_PER_TASK": "16", "SLURM_MEM_PER_NODE": "32000"}, "16", "2000MiB"),
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_MEM_PER_CPU": "3000"}, "4", "3000MiB"),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_MEM_PER_NODE": "32000"}, "8", "4000MiB"),
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_CPUS_ON_NODE": "8"}, "4", "auto"),
        ({}, "1", "auto"),
    ],
)
def test_workers_share_the_cores_and_the_memory_of_their_job(
    tmp_path: Path, given: dict[str, str], workers: str, memory: str
) -> None:
    (tmp_path / "srun").write_text(
        '#!/bin/sh\necho "$POLARS_MAX_THREADS" "$SRUN_CPUS_PER_TASK" "$@"\n'
    )
    (tmp_path / "srun").chmod(0o755)
    job = SLURM / "dask_workers.sh"
    assert job.stat().st_mode & 0o111
    done = subprocess.run(
        ["/bin/sh", job, "tcp://head:8786"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "FOREWARN_BIN": "/bin", **given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        *("1", workers, "/bin/dask", "worker", "tcp://head:8786", "--nworkers", workers),
        *("--nthreads", "1", "--memory-limit", memory, "--death-timeout", "300", "--no-dashboard"),
    ]


def test_workers_without_a_scheduler_say_what_is_missing() -> None:
    done = subprocess.run(
        ["/bin/sh", SLURM / "dask_workers.sh"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "the address of the scheduler" in done.stderr


def test_scrontab_runs_files_that_are_shipped_and_may_be_run() -> None:
    text = (SLURM / "scrontab").read_text()
    named = re.findall(r"^[\d*]+ .*/deploy/slurm/(\S+)$", text, re.MULTILINE)
    assert named == ["hourly.sh", "daily.sh"]
    for name in named:
        assert (SLURM / name).stat().st_mode & 0o111
        assert subprocess.run(["/bin/sh", "-n", SLURM / name], check=False).returncode == 0
    assert len(re.findall(r"^#SCRON ", text, re.MULTILINE)) == 2
