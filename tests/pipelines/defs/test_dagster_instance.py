"""Rules of Dagster's home: many processes may ready and open it at once, and it holds together."""

import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import dagster as dg
import pytest

from features.errors import SourceError
from pipelines.defs.dagster_instance import home_of_environment, opened, prepare_home
from pipelines.settings import load_settings

N_AT_ONCE = 5
OPEN = """
import sys
from pathlib import Path
from pipelines.defs.dagster_instance import opened
print("ready", flush=True)
sys.stdin.readline()
with opened(Path(sys.argv[1])) as instance:
    instance.get_runs(limit=1)
"""


def settings_file(folder: Path) -> Path:
    path = folder / "forewarn.yaml"
    path.write_text("site: s\ninputs: inputs.yaml\ndata_root: data\nstart: 2026-01-01T00:00:00Z\n")
    return path


def test_a_home_that_was_made_ready_holds_its_databases_and_opens(tmp_path: Path) -> None:
    settings, home = load_settings(settings_file(tmp_path)), tmp_path / "home"
    prepare_home(settings, home)
    assert (home / "history" / "runs.db").exists()
    assert (home / "schedules" / "schedules.db").exists()
    assert prepare_home(settings, home)  # as at each start
    with opened(home) as instance:
        assert instance.get_runs() == []


def test_a_file_that_another_wrote_is_kept(tmp_path: Path) -> None:
    theirs = tmp_path / "dagster.yaml"
    theirs.write_text("telemetry: {enabled: false}\n")
    assert not prepare_home(load_settings(settings_file(tmp_path)), tmp_path)
    assert theirs.read_text() == "telemetry: {enabled: false}\n"


@pytest.mark.slow
def test_processes_that_open_a_new_home_at_once_leave_one_revision_in_each_database(
    tmp_path: Path,
) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", OPEN, str(tmp_path)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
            )
            for _ in range(N_AT_ONCE)
        ]  # fmt: skip
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in started:
            assert one.stdin is not None
            one.stdin.close()
    assert [one.returncode for one in started] == [0] * N_AT_ONCE
    databases = [
        tmp_path / name for name in ("history/runs.db", "schedules/schedules.db")
    ] + list(tmp_path.glob("history/runs/index.db"))  # fmt: skip
    assert len(databases) == 3
    for path in databases:
        with closing(sqlite3.connect(path)) as sql:
            assert sql.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,), path


def test_a_home_that_cannot_be_opened_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("a file where the folder of the databases should be")
    with pytest.raises((SourceError, OSError), match="history"):
        prepare_home(load_settings(settings_file(tmp_path)), tmp_path)


def test_settings_of_dagster_that_are_no_yaml_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("storage: [")
    with pytest.raises(SourceError, match="cannot be opened: while parsing.*See its dagster.yaml"):
        opened(tmp_path).__enter__()


def test_an_instance_that_cannot_be_opened_tells_the_cause_below_what_dagster_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_home: str) -> None:
        cause = ConnectionRefusedError("connection to server at db failed: refused\nIs it running?")
        raise dg.DagsterError("too many retries for DB connection") from cause

    monkeypatch.setattr(dg.DagsterInstance, "from_config", fails)
    with pytest.raises(
        SourceError, match="opened: connection to server at db failed: refused. See"
    ):
        opened(tmp_path).__enter__()


def test_the_instance_of_the_environment_needs_a_folder_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for named in ("", "relative", str(tmp_path / "absent")):
        monkeypatch.setenv("DAGSTER_HOME", named)
        with pytest.raises(SourceError, match="DAGSTER_HOME must name"):
            home_of_environment()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert home_of_environment() == tmp_path
