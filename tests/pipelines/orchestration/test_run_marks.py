"""Rules of the marks: a run at work is seen, one whose process was killed is seen, too."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import dagster as dg
import pytest
import yaml

from pipelines.defs import hourly
from pipelines.orchestration import run_marks
from pipelines.orchestration.dagster_home import dagster_yaml
from pipelines.orchestration.run_marks import dead, mark, state_of, sweep
from pipelines.settings import Settings, load_settings

_HOLD = "import sys,time; from pathlib import Path; "
_HOLD += "from pipelines.orchestration.run_marks import mark; "
_HOLD += "mark(Path(sys.argv[1]), 'r1'); print('held', flush=True); time.sleep(float(sys.argv[2]))"

_RUN = """
import os, signal, sys
import dagster as dg
from pipelines.defs.resources import Installation
told = dg.DagsterInstance.handle_new_event
def handle(self, event, **more):
    if event.is_dagster_event and event.dagster_event.event_type_value == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
    return told(self, event, **more)
dg.DagsterInstance.handle_new_event = handle
@dg.asset
def made(installation: Installation) -> None: ...
with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
    dg.materialize(
        [made],
        instance=instance,
        tags={"forewarn/chain": "hours"} | dict(word.split("=") for word in sys.argv[4:]),
        resources={"installation": Installation(settings_file=sys.argv[2])},
    )
"""


def test_a_run_is_at_work_until_its_process_takes_the_next(tmp_path: Path) -> None:
    assert state_of(tmp_path, "r1") == "unmarked"
    mark(tmp_path, "r1")
    assert state_of(tmp_path, "r1") == "at_work"
    mark(tmp_path, "r2")
    assert (state_of(tmp_path, "r1"), state_of(tmp_path, "r2")) == ("unmarked", "at_work")
    assert dead(tmp_path) == []


def test_a_mark_is_never_seen_free_while_it_is_taken_or_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, seen = fcntl.flock, []

    def taken(file: IO[str], how: int) -> None:
        seen.append(state_of(tmp_path, "r1") if how & fcntl.LOCK_EX else "")
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", taken)
    mark(tmp_path, "r1")
    assert seen == ["unmarked"]

    def given_back(looker: IO[str], how: int) -> None:
        run_marks._give_back()
        lock(looker, how)

    monkeypatch.setattr(fcntl, "flock", given_back)
    assert state_of(tmp_path, "r1") == "unmarked"


def test_a_process_that_ends_well_takes_its_mark_along(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _HOLD, str(tmp_path), "0"], check=True)
    assert not list(tmp_path.iterdir())


def test_a_run_whose_process_was_killed_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path), "60"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert state_of(tmp_path, "r1") == "at_work"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert state_of(tmp_path, "r1") == "dead"
    assert dead(tmp_path) == ["r1"]
    sweep(tmp_path, "r1")
    assert state_of(tmp_path, "r1") == "unmarked"


def killed_at(event: str, folder: Path, *tags: str) -> Settings:
    """A site one of whose runs was killed as an event of it was told."""
    file, start = folder / "forewarn.yaml", "2026-01-01T00:00:00Z"
    content = {"site": "a", "inputs": "i.yaml", "data_root": "data", "start": start}
    file.write_text(yaml.safe_dump(content))
    settings = load_settings(file)
    (folder / "dagster.yaml").write_text(dagster_yaml(settings))
    command = [sys.executable, "-c", _RUN, str(folder), str(file), event, *tags]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return settings


@pytest.mark.slow
@pytest.mark.parametrize("event", ["RESOURCE_INIT_STARTED", "STEP_START", "PIPELINE_SUCCESS"])
def test_a_run_killed_at_its_very_start_or_end_is_found_and_ended(
    event: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = killed_at(event, tmp_path, "dagster/sensor_name=hourly")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.STARTED
        if event == "RESOURCE_INIT_STARTED":
            assert hourly.end_dead_runs(instance, settings)  # it may yet take its mark
            monkeypatch.setattr(hourly, "_UNMARKED_S", 0)
        assert not hourly.end_dead_runs(instance, settings)
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.FAILURE
    assert not list(settings.run_marks_dir.glob("*.run"))


@pytest.mark.slow
def test_a_run_without_a_mark_that_the_daemon_did_not_start_may_be_at_work_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = killed_at("RESOURCE_INIT_STARTED", tmp_path)
    monkeypatch.setattr(hourly, "_UNMARKED_S", 0)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert hourly.end_dead_runs(instance, settings)
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.STARTED
