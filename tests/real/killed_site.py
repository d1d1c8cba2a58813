"""A small site under Dagster's own processes, started as their systemd units start them.

What is killed when, and what must hold afterwards, is in `test_kill_nine`.
"""

import contextlib
import os
import secrets
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import dagster as dg
import yaml
from quick_definitions import SENSOR_SECONDS, WHOLE_RECORD
from sqlalchemy.exc import SQLAlchemyError

from pipelines.orchestration.dagster_home import dagster_environment
from pipelines.serving.scorer_status import read_status
from pipelines.settings import ENVIRONMENT_VARIABLE, Settings, load_settings

HOUR: Final = timedelta(hours=1)
ROOT: Final = Path(__file__).parents[2]
UNITS: Final = ROOT / "deploy" / "systemd"
PROGRAMS: Final = Path(sys.executable).parent
_MARK: Final = "FOREWARN_TEST_UNIT"
APPEND_FOR_EVER: Final = """
import itertools, sys
from datetime import UTC, datetime
from pathlib import Path
from remediation.ledger.entries import NewEntry
from remediation.ledger.sqlite import SqliteLedger
with SqliteLedger(Path(sys.argv[1])) as ledger:
    for n in itertools.count():
        ledger.append(NewEntry(key=f"i{n}", kind="intent", recorded_at=datetime.now(UTC),
                               actuator="fake", node="a", body={"n": n}))
        print(n, flush=True)
"""
"""A program that adds to a ledger of the hook, and tells of each entry once it is written."""


@dataclass(frozen=True)
class Process:
    """A process as the kernel has it."""

    pid: int
    words: str


@dataclass
class Unit:
    """A service that its unit file starts; a mark in the environment stands for its cgroup.

    Dagster gives its processes sessions of their own, and a child outlives its parent: neither
    session nor parent tells whose they are.
    """

    name: str
    environment: Mapping[str, str]
    log: Path
    port: int = 0
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    _main: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it as systemd does, with what comes before."""
        environment = {**self.environment, _MARK: self.mark}
        for words in _commands(self.name, "ExecStartPre"):
            subprocess.run(self._here(words), env=environment, check=True, capture_output=True)
        (words,) = _commands(self.name, "ExecStart")
        with self.log.open("ab") as log:
            self._main = subprocess.Popen(
                self._here(words), env=environment, cwd=ROOT / "tests" / "real", stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    def is_up(self) -> bool:
        return self._main is not None and self._main.poll() is None

    @property
    def pid(self) -> int:
        """Its main process."""
        assert self._main is not None
        return self._main.pid

    def processes(self) -> list[Process]:
        """All of it, with what outlived an earlier start."""
        return list(_marked(self.mark))

    def code_servers(self) -> list[Process]:
        return [one for one in self.processes() if "dagster api grpc" in one.words]

    def run_workers(self) -> list[Process]:
        return [one for one in self.processes() if "multiprocessing.spawn" in one.words]

    def kill_main(self) -> None:
        """Kills its main process, and leaves the others to themselves."""
        assert self._main is not None
        self._main.kill()
        self._main.wait()

    def kill(self) -> None:
        """Kills all of it, as systemd does with what is left once the main process is gone."""
        while found := self.processes():
            for one in found:
                kill(one.pid)
            self.is_up()  # collects it
            time.sleep(0.01)

    def _here(self, words: list[str]) -> list[str]:
        """A command line of the unit file, for this checkout, a free port and quick sensors."""
        program, *rest = words
        instead = {"pipelines.definitions": "quick_definitions", "3000": str(self.port)}
        return [str(PROGRAMS / Path(program).name), *(instead.get(one, one) for one in rest)]


def _marked(mark: str) -> Iterator[Process]:
    wanted = f"{_MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # over, or another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                yield Process(int(folder.name), words.decode(errors="replace"))


def _commands(unit: str, key: str) -> list[list[str]]:
    lines = (UNITS / f"{unit}.service").read_text().splitlines()
    return [shlex.split(line.partition("=")[2]) for line in lines if line.startswith(f"{key}=")]


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(found: Any, *, seconds: float, what: str, every: float = 0.05) -> Any:
    """Waits for a function to return something; a database that is away is waited for, too."""
    deadline = time.monotonic() + seconds
    why: object = ""
    while time.monotonic() < deadline:
        try:
            if value := found():
                return value
        except (SQLAlchemyError, dg.DagsterError) as error:
            why = error
        time.sleep(every)
    raise AssertionError(f"{what}: not within {seconds} s {why}")


@dataclass
class Site:
    """One installation, its hours, and the units that make them."""

    folder: Path
    inputs: Path
    start: datetime
    last: datetime
    more: dict[str, Any]
    sensor_seconds: int = 2

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(self.folder / "whole.yaml", end=self.last)

    @property
    def settings_file(self) -> Path:
        return self.folder / "forewarn.yaml"

    @property
    def settings(self) -> Settings:
        return load_settings(self.settings_file)

    @property
    def home(self) -> Path:
        return self.folder / "data" / "dagster"

    def record_ends(self, end: datetime) -> None:
        """Has the record end there: hours before are due."""
        new = self.folder / "new.yaml"
        self._write(new, end=end)
        new.replace(self.settings_file)

    def unit(self, name: str) -> Unit:
        port = free_port() if name.endswith("web") else 0
        return Unit(name, self.environment(), self.folder / f"{name}.log", port=port)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **dagster_environment(self.settings),
            ENVIRONMENT_VARIABLE: str(self.settings_file),
            WHOLE_RECORD: str(self.folder / "whole.yaml"),
            SENSOR_SECONDS: str(self.sensor_seconds),
            "DAGSTER_HOME": str(self.home),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "OMP_NUM_THREADS": "1",
            "POLARS_MAX_THREADS": "1",
        }

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        with dg.DagsterInstance.from_config(str(self.home)) as instance:
            yield instance

    def _write(self, path: Path, *, end: datetime) -> None:
        content = {
            "site": "killed",
            "inputs": str(self.inputs),
            "data_root": "data",
            "start": self.start.isoformat(),
            "end": end.isoformat(),
            "horizons_h": [24],
            "trained_on": "synthetic",
            "node_states_hold_only_trouble": True,
            "schedule": {"running": ["hourly", "operations_alerts"], "retry_minutes": 0.02},
            "serving": {"settle_minutes": 0},
        }
        path.write_text(yaml.safe_dump(content | self.more, sort_keys=False))


def write_fleet(folder: Path, *, start: datetime) -> Path:
    """The raw files of a day of eight nodes; returns the list of inputs."""
    regime = {"extends": "demo", "start": start.isoformat(), "nodes": 8, "days": 1}
    path = folder / "regime.yaml"
    path.write_text(yaml.safe_dump(regime))
    command = [
        *(str(PROGRAMS / "forewarn"), "simulate", "fleet", "--regime", str(path)),
        *("--out", str(folder / "raw"), "--truth", str(folder / "truth")),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "raw" / "inputs.yaml"


def scorer_is_at(phase: str, scores: Path, unit: Unit) -> bool:
    """Whether the scorer that a unit has started is at a phase, or past it with a tick made."""
    status = read_status(scores)
    if status is None or status.pid != unit.pid:
        return False
    return status.phase == phase or status.n_ticks > 0


def leave_half_files(folder: Path) -> None:
    """What a writer leaves that is killed: half of a file under its name until it is whole."""
    for path in [one for one in folder.rglob("*") if one.suffix in {".parquet", ".json", ".run"}]:
        half = path.read_bytes()[: path.stat().st_size // 2]
        path.with_name(f".unfinished-1-00000000-{path.name}").write_bytes(half)


def damaged_databases(folder: Path) -> list[Path]:
    """The SQLite files in a folder that do not hold together."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and path.read_bytes()[:15] == b"SQLite format 3":
            with contextlib.closing(sqlite3.connect(path)) as sql:
                if sql.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                    found.append(path)
    return found


def this_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
