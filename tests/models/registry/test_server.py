"""Rules of a registry that is an MLflow server: it holds what the embedded one holds."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from models.registry.model_registry import CHAMPION, ModelRegistry
from models.registry.place import RegistryPlace
from models.registry.registered import RegistryError
from tests.models.registry.test_model_registry import ACCEPTED

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # MLflow warns of itself

_START_S = 120


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "mlflow", "server", "--workers", "1",
                "--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}",
                "--artifacts-destination", str(tmp_path / "files"),
                "-h", "127.0.0.1", "-p", str(port),
            ],
            stdout=log, stderr=log, start_new_session=True, cwd=tmp_path,
            env={"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                 "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(f"{url}/health", timeout=2).ok:
                break
        except requests.RequestException:
            time.sleep(0.3)
    yield url, process
    end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends the server with its workers."""
    subprocess.run(["/bin/kill", "-KILL", "--", f"-{process.pid}"], check=False)
    process.wait(30)


def place(url: str, folder: Path) -> RegistryPlace:
    return RegistryPlace(
        name=url,
        uri=url,
        folder=folder,
        artifacts=None,
        advice="Check that it runs.",
        environment={
            "MLFLOW_TRACKING_TOKEN": "of-the-registry",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        },
    )


def test_a_server_keeps_versions_with_their_files_and_its_loss_is_named(
    server, bundle, tmp_path
) -> None:
    url, process = server
    registry = ModelRegistry(place(url, tmp_path / "one"))
    version = registry.register(bundle)
    registry.promote(version, decision=ACCEPTED)
    assert not registry.register(bundle).is_new
    elsewhere = ModelRegistry(place(url, tmp_path / "other"))
    champion = elsewhere.version_of(bundle.name, CHAMPION)
    assert elsewhere.load(champion).fingerprint == bundle.fingerprint
    assert any((tmp_path / "files").rglob("model.lgb"))
    end(process)
    with pytest.raises(RegistryError, match=rf"{url} cannot be read.*Check that it runs"):
        registry.names()
    with pytest.raises(RegistryError, match="cannot be read"):
        ModelRegistry(place(url, tmp_path / "late")).versions(bundle.name)
