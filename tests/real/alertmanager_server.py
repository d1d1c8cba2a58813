"""A real Alertmanager on a free loopback port, and a receiver of what it delivers.

What is sent and expected is each test's own.
"""

import json
import shutil
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import requests

PROGRAM = shutil.which("prometheus-alertmanager")
ABSENT = "Alertmanager (Debian package prometheus-alertmanager) is not installed"


class Receiver:
    """A webhook that remembers what Alertmanager delivers."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                messages.append(json.loads(self.rfile.read(size)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def states(self) -> list[tuple[str, str]]:
        """Node and state of each alert delivered, in order, repeats left out."""
        found = [
            (alert["labels"].get("node", ""), alert["status"])
            for message in self.messages
            for alert in message["alerts"]
        ]
        return list(dict.fromkeys(found))


class AlertmanagerServer:
    """One server; its data is gone with its folder."""

    def __init__(self, folder: Path, receiver: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        (folder / "am.yml").write_text(
            "route: {receiver: hook, group_by: [node], group_wait: 0s, group_interval: 1s,"
            " repeat_interval: 1h}\n"
            f"receivers: [{{name: hook, webhook_configs: [{{url: '{receiver}'}}]}}]\n"
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    PROGRAM, f"--config.file={self.folder / 'am.yml'}",
                    f"--storage.path={self.folder / 'data'}", "--cluster.listen-address=",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if requests.get(f"{self.url}/-/ready", timeout=2).ok:
                    return self
            except requests.RequestException:
                time.sleep(0.05)
        self.__exit__()
        raise RuntimeError(f"Alertmanager did not start: {(self.folder / 'log.txt').read_text()}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(20)

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that it holds as active."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=10)
        found: list[dict[str, Any]] = answer.json()
        return found
