"""A private PostgreSQL in a folder of its own, reached by a Unix socket only.

What is written and expected is each test's own. The server refuses to run as root, so under root
it runs as `nobody`.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

_FOLDERS = (*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/bin"))
PROGRAMS = next((one for one in _FOLDERS if (one / "initdb").exists()), None)
ABSENT = "PostgreSQL (Debian package postgresql) is not installed"


class PostgresServer:
    """One server; its data is gone with it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="forewarn-pg-"))
        self._user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user, -1)
        self._process: subprocess.Popen[bytes] | None = None
        self._run(
            "initdb", "-D", str(self.folder / "data"), "-U", "forewarn", "-A", "trust",
            "-E", "UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip

    @property
    def conninfo(self) -> str:
        return f"host={self.folder} user=forewarn dbname=postgres"

    def database(self, name: str) -> str:
        """The connection string of a new database."""
        self._run("createdb", "-h", str(self.folder), "-U", "forewarn", name)
        return f"host={self.folder} user=forewarn dbname={name}"

    def start(self) -> Self:
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    PROGRAMS / "postgres", "-D", self.folder / "data", "-k", self.folder,
                    "-c", "listen_addresses=", "-c", "shared_buffers=16MB",
                ],
                stdout=log, stderr=log, cwd="/", user=self._user,
            )  # fmt: skip
        deadline = time.monotonic() + 120
        ready = [str(PROGRAMS / "pg_isready"), "-q", "-h", str(self.folder)]
        while time.monotonic() < deadline and self._process.poll() is None:
            if subprocess.run(ready, check=False).returncode == 0:
                return self
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"postgres did not start: {(self.folder / 'log.txt').read_text()}")

    def kill(self) -> None:
        """Ends it as a lost machine would: without a last word to anyone."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [PROGRAMS / program, *arguments],
            check=True, capture_output=True, cwd="/", user=self._user,
        )  # fmt: skip
