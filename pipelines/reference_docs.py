"""Writes the pages of `docs/reference` from what they describe: contracts, settings, commands, API.

What a page says is made in `reference_docs_*`; the words are those of the described code.

Run as `python -m pipelines.reference_docs`; a test compares the files with what this module says.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pipelines.reference_docs_commands import commands_page
from pipelines.reference_docs_http import http_page
from pipelines.reference_docs_settings import hook_settings_page, settings_page
from pipelines.reference_docs_tables import tables_page

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "tables.md": tables_page,
    "settings.md": settings_page,
    "hook_settings.md": hook_settings_page,
    "commands.md": commands_page,
    "http_api.md": http_page,
}


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
