"""The tutorial's commands, run in order in an empty folder: the page promises that they work."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BOARD = "127.0.0.1:8081"


def _script(page: str, *, board: str) -> str:
    """The page's commands; the board at an address that is free on this machine."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    text = "".join(blocks).replace(BOARD, board)
    text = text.replace(
        "forewarn board &", f"forewarn board --listen {board} & trap 'kill $!' EXIT"
    )
    return "set -euo pipefail\n" + text


def _free_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.slow
def test_every_command_works_in_order(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FOREWARN", "DAGSTER"))}
    process = subprocess.Popen(
        ["bash", "-c", _script(PAGE.read_text(encoding="utf-8"), board=_free_address())],
        cwd=tmp_path,
        env={**environment, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, complained = process.communicate(timeout=900)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, f"{said[-2000:]}\n{complained[:2000]}"
    assert "Within 24 h:" in said
    assert "DRY RUN: nothing was done" in said
    assert '"entity_id"' in said
    assert "The most any model can catch" in said


def test_only_what_needs_the_readers_own_path_is_not_run() -> None:
    """Indented blocks are not run."""
    text = PAGE.read_text(encoding="utf-8")
    assert [line.strip() for line in text.splitlines() if line.startswith("    ")] == [
        "export PATH=/path/to/forewarn/.venv/bin:$PATH",
        "mkdir tutorial && cd tutorial",
    ]
