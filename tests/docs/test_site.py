"""The site is built without a warning, loads nothing from elsewhere, and keeps what links say."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class _Loaded(HTMLParser):
    """Addresses that a page loads by itself; a link that a person follows is none."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADS.get(tag, ""))
        if address:
            self.found.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: a warning that is not written is not counted either.
    made = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert not [*folder.rglob("__pycache__")]
    return folder


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.found, page
        assert not [one for one in loaded.found if re.match(r"(https?:)?//", one)], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", sheet.read_text("utf-8")), sheet


@pytest.mark.slow
def test_a_link_to_a_file_of_the_repository_becomes_its_path(site: Path) -> None:
    html = (site / "inputs.html").read_text(encoding="utf-8")
    assert "<code>pipelines/mappings/titan.yaml</code>" in html
    assert 'href="../pipelines' not in html


@pytest.mark.slow
def test_what_alerts_link_to_is_a_place_on_the_site(site: Path) -> None:
    rules = (ROOT / "deploy" / "prometheus").glob("*alerts.yaml")
    links = re.findall(
        r"https://forewarn\.example/(\S+)#(\S+)", "\n".join(one.read_text() for one in rules)
    )
    assert len(links) > 20
    for page, anchor in links:
        assert f'id="{anchor}"' in (site / page).read_text(encoding="utf-8"), anchor


def test_every_linked_file_of_the_repository_is_there() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\((\.\.[^)#\s]*)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_page_of_decisions_names_each_by_its_title() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "index.md").read_text(encoding="utf-8")
    for decision in folder.glob("0*.md"):
        title = decision.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert f"[{title}]({decision.name})" in index
