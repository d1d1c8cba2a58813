"""Starts the Dagster and MLflow pages and the board on loopback and stops them together.

No asset and no setting is defined here.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from features.errors import SettingsError, SourceError
from pipelines.defs.dagster_instance import prepare_home
from pipelines.flow.registry_storage import registry_place
from pipelines.orchestration.dagster_home import dagster_environment
from pipelines.settings import ENVIRONMENT_VARIABLE, Settings

HOST: Final = "127.0.0.1"
DAGSTER_PORT: Final = 3000
MLFLOW_PORT: Final = 5000
BOARD_PORT: Final = 8081
SCHEDULES_OFF: Final = "FOREWARN_SCHEDULES_OFF"
"""Environment variable that keeps schedules and sensors off until a person starts them."""
_STOP_SECONDS: Final = 20
_READY_SECONDS: Final = 180
_POLL_SECONDS: Final = 0.2


def serve(
    settings: Settings,
    *,
    settings_file: Path,
    say: Callable[[str], None],
    has_schedules: bool = False,
) -> None:
    """Runs the servers until one ends or the user presses Ctrl-C.

    Args:
        settings: The installation.
        settings_file: Where they were read from; the code server reads them again.
        say: Where lines for the user go.
        has_schedules: Whether schedules and sensors run as the settings say; else they are
            there, and off until a person starts them.

    Raises:
        SettingsError: A port is taken.
        SourceError: A server ended by itself, or never answered.
    """
    began, places = time.monotonic(), _places(settings)
    for name, port, _ in places:
        _refuse_taken_port(name, port)
    # A shell that starts us in the background leaves SIGINT ignored, and so would our children,
    # which then never stop.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    environment = _environment(settings, settings_file, has_schedules=has_schedules)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        servers += (_start(command, environment | own) for command, own in _commands(settings))
        for name, port, path in places:
            _wait_until_ready(name, port, path, servers=servers)
            say(f"{name:<8} http://{HOST}:{port}  ({time.monotonic() - began:.0f} s)")
        say("Ctrl-C stops them all.")
        while all(server.poll() is None for server in servers):
            time.sleep(0.5)
        raise SourceError("one of the servers ended by itself; what it said is above")
    except KeyboardInterrupt:
        say("Stopping.")
    finally:
        _stop(servers)


def _places(settings: Settings) -> list[tuple[str, int, str]]:
    """Name, port and a page of each server that answers once it is up."""
    mlflow = [("MLflow", MLFLOW_PORT, "/health")] if registry_place(settings).database else []
    return [("Board", BOARD_PORT, "/"), *mlflow, ("Dagster", DAGSTER_PORT, "/server_info")]


def _environment(settings: Settings, settings_file: Path, *, has_schedules: bool) -> dict[str, str]:
    home = settings.data_root / "dagster"
    prepare_home(settings, home)
    return {
        **os.environ,
        **dagster_environment(settings),
        ENVIRONMENT_VARIABLE: str(settings_file.resolve()),
        "FOREWARN__SCHEDULE__MLFLOW_URL": f"http://{HOST}:{MLFLOW_PORT}",
        "DAGSTER_HOME": str(home.resolve()),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # A file in the folder we were started from, named like a library, is not to be run.
        "PYTHONSAFEPATH": "1",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **({} if has_schedules else {SCHEDULES_OFF: "1"}),
    }


def _commands(settings: Settings) -> list[tuple[list[str], dict[str, str]]]:
    """Each server's command, and what it alone needs in its environment, secrets among it."""
    registry = registry_place(settings)
    dagster = [
        *(sys.executable, "-m", "dagster", "dev", "-m", "pipelines.definitions"),
        *("-h", HOST, "-p", str(DAGSTER_PORT), "--log-level", "warning"),
    ]
    mlflow = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--backend-store-uri", registry.uri),
        *("--artifacts-destination", str(registry.artifacts)),
        *("-h", HOST, "-p", str(MLFLOW_PORT)),
    ]
    # The console script's own entry: the settings are named by the environment.
    entry = "from pipelines.cli import main; main()"
    board = [sys.executable, "-c", entry, "board", "--listen", f"{HOST}:{BOARD_PORT}"]
    if registry.database is None:  # a server of its own has pages of its own
        return [(dagster, {}), (board, {})]
    registry.folder.mkdir(parents=True, exist_ok=True)
    # Keys of the bucket of artifacts: without them no page of MLflow shows a file.
    return [(dagster, {}), (mlflow, dict(registry.environment)), (board, {})]


def _start(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=dict(environment), start_new_session=True)  # noqa: S603 - fixed arguments


def _wait_until_ready(
    name: str, port: int, path: str, *, servers: list[subprocess.Popen[bytes]]
) -> None:
    """Waits until a server answers."""
    until = time.monotonic() + _READY_SECONDS
    while not _answers(port, path):
        if any(server.poll() is not None for server in servers):
            raise SourceError(f"before {name} was up a server ended; what it said is above")
        if time.monotonic() > until:
            raise SourceError(f"{name} does not answer on port {port} after {_READY_SECONDS} s")
        time.sleep(_POLL_SECONDS)


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(servers: list[subprocess.Popen[bytes]]) -> None:
    # A second Ctrl-C would leave servers that hold their ports and that no key reaches.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for server in servers:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
    until = time.monotonic() + _STOP_SECONDS
    for server in servers:
        try:
            server.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _refuse_taken_port(name: str, port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise SettingsError(
                f"{name}: port {port} on {HOST} is taken; stop what listens there and try again"
            )
