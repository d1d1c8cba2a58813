"""The pages in a real Chromium: they run under their own policy, without a word in the console."""

import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from pipelines.api.access import open_access
from pipelines.api.sources import open_sources
from pipelines.board.serve import build_board
from tests.pipelines.board.board_world import BoardWorld

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
EVIL = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


@dataclass
class Faulty:
    """The board, which answers with an error once it is told to, from the second page on."""

    app: Any
    is_broken: bool = False
    n_pages: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/":
            self.n_pages += 1
            if self.is_broken and self.n_pages > 1:
                await send({"type": "http.response.start", "status": 502, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await self.app(scope, receive, send)


@dataclass(frozen=True)
class Served:
    """A board that is served."""

    address: str
    app: Faulty
    site: BoardWorld


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A board on a free port of this machine, with hostile names in it."""
    site = BoardWorld(tmp_path, reasons=[EVIL])
    site.nodes = {"n1": 0.9, EVIL: 0.8, "n3": None}
    site.publish()
    site.decide_on("n1", stops=[("cap_rack", EVIL)])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sources = open_sources(site.settings, now=lambda: site.now)
    app = Faulty(build_board(sources, open_access(site.settings)))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.05)
    yield Served(f"http://127.0.0.1:{port}", app, site)
    server.should_exit = True
    thread.join(timeout=120)


def browse(address: str, folder: Path, *more: str, seconds: int = 4) -> tuple[str, list[str]]:
    """The page as it is once its script has run, and what the console said."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}", f"--virtual-time-budget={1000 * seconds}",
        *more, address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout, re.findall(r".*CONSOLE.*|.*Refused to.*", done.stderr)


@pytest.mark.parametrize("path", ["/", "/node?name=n1", "/data", "/audit", "/quality", "/login"])
def test_a_page_runs_under_its_policy_without_an_error(
    served: Served, tmp_path: Path, path: str
) -> None:
    page, console = browse(served.address + path, tmp_path, "--dump-dom")
    assert console == []
    assert "<title>owned" not in page
    # The script ran: only it shows this button.
    assert ('id="pause" aria-pressed' in page) == (path != "/login")


@pytest.mark.parametrize("scheme", ["0", "1"])
def test_a_page_is_drawn_light_and_dark(served: Served, tmp_path: Path, scheme: str) -> None:
    picture = tmp_path / "page.png"
    browse(
        served.address,
        tmp_path,
        f"--blink-settings=preferredColorScheme={scheme}",
        "--window-size=1280,900",
        f"--screenshot={picture}",
    )
    assert picture.stat().st_size > 20_000


def test_an_open_page_looks_for_news(served: Served, tmp_path: Path) -> None:
    page, _ = browse(served.address, tmp_path, "--dump-dom", seconds=70)
    assert served.app.n_pages > 1
    assert 'role="status" hidden' in page


def test_a_page_says_that_its_connection_is_lost(served: Served, tmp_path: Path) -> None:
    served.app.is_broken = True
    page, _ = browse(served.address, tmp_path, "--dump-dom", seconds=70)
    assert "The connection to the board is lost. What you see is as of" in page
    assert 'class="lost"' in page
