"""Rules of the reference pages: they say what the program says, and all of it."""

import re
from collections.abc import Callable

import pytest

from features.tables import TABLES
from pipelines.reference_docs.pages import FOLDER, PAGES
from pipelines.reference_docs.tables import tables_page
from pipelines.settings import Settings


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_program_says(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), (
        f"docs/reference/{name} is stale: run python -m pipelines.reference_docs"
    )


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES.keys())
def test_every_row_has_as_many_cells_as_its_head(page: Callable[[], str]) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", page(), flags=re.MULTILINE):
        widths = {len(re.split(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table[:200]


def test_every_column_of_every_table_is_there() -> None:
    sections = dict(
        re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", tables_page(), re.DOTALL | re.MULTILINE)
    )
    for table in TABLES:
        shown = re.findall(r"^\| `(\w+)` \|", sections[table.asset_key], re.MULTILINE)
        assert shown == [column.name for column in table.columns]


@pytest.mark.parametrize("name", ["settings.md", "hook_settings.md", "tables.md"])
def test_every_key_has_a_meaning(name: str) -> None:
    rows = re.findall(r"^\| `.*\|$", PAGES[name](), re.MULTILINE)
    assert rows
    assert not [row for row in rows if row.endswith("|  |")]


def test_every_setting_is_there() -> None:
    shown = set(re.findall(r"^\| `(\w+)` \|", PAGES["settings.md"](), re.MULTILINE))
    assert shown == set(Settings.model_fields)
