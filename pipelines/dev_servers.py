"""Starts the Dagster and MLflow pages and the board on loopback and stops them together.

No asset and no setting is defined here.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from features.errors import SettingsError
from pipelines.settings import ENVIRONMENT_VARIABLE, Settings

HOST: Final = "127.0.0.1"
DAGSTER_PORT: Final = 3000
MLFLOW_PORT: Final = 5000
BOARD_PORT: Final = 8081
_PORTS: Final = (("Board", BOARD_PORT), ("Dagster", DAGSTER_PORT), ("MLflow", MLFLOW_PORT))
_STOP_SECONDS: Final = 20

# Quiet and local: no telemetry, no sign-up window over the page, and runs that do not swamp a
# small machine.
DAGSTER_YAML: Final = """\
telemetry: {enabled: false}
nux: {enabled: false}
concurrency:
  runs: {max_concurrent_runs: 2}
"""


def serve(settings: Settings, *, settings_file: Path, say: Callable[[str], None]) -> None:
    """Runs the servers until one ends or the user presses Ctrl-C.

    Args:
        settings: The installation.
        settings_file: Where they were read from; the code server reads them again.
        say: Where lines for the user go.

    Raises:
        SettingsError: A port is taken.
    """
    for name, port in _PORTS:
        _refuse_taken_port(name, port)
    # A shell that starts us in the background leaves SIGINT ignored, and so would our children,
    # which then never stop.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = settings.data_root / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(DAGSTER_YAML, encoding="utf-8")
    environment = {
        **os.environ,
        ENVIRONMENT_VARIABLE: str(settings_file.resolve()),
        "DAGSTER_HOME": str(home.resolve()),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    servers = [_start(command, environment) for command in _commands(settings)]
    for name, port in _PORTS:
        say(f"{name:<8} http://{HOST}:{port}")
    say("Ctrl-C stops them all.")
    try:
        while all(server.poll() is None for server in servers):
            time.sleep(0.5)
        say("One of them ended; stopping the others.")
    except KeyboardInterrupt:
        say("Stopping.")
    finally:
        _stop(servers)


def _commands(settings: Settings) -> list[list[str]]:
    registry = settings.registry_dir.resolve()
    registry.mkdir(parents=True, exist_ok=True)
    dagster = [
        *(sys.executable, "-m", "dagster", "dev", "-m", "pipelines.definitions"),
        *("-h", HOST, "-p", str(DAGSTER_PORT)),
    ]
    mlflow = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{registry / 'mlflow.db'}"),
        *("--artifacts-destination", str(registry / "artifacts")),
        *("-h", HOST, "-p", str(MLFLOW_PORT)),
    ]
    # The console script's own entry: the settings are named by the environment.
    entry = "from pipelines.cli import main; main()"
    board = [sys.executable, "-c", entry, "board", "--listen", f"{HOST}:{BOARD_PORT}"]
    return [dagster, mlflow, board]


def _start(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=dict(environment), start_new_session=True)  # noqa: S603 - fixed arguments


def _stop(servers: list[subprocess.Popen[bytes]]) -> None:
    for server in servers:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
    for server in servers:
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _refuse_taken_port(name: str, port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise SettingsError(
                f"{name}: port {port} on {HOST} is taken; stop what listens there and try again"
            )
