"""The pages of `docs/reference` and what makes each: contracts, settings, commands, API.

What a page says is made in the other modules of this package; the words are those of the described
code. A test compares the files with what this module says.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pipelines.reference_docs.commands import commands_page
from pipelines.reference_docs.http_api import http_page
from pipelines.reference_docs.settings import hook_settings_page, settings_page
from pipelines.reference_docs.tables import tables_page

FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "tables.md": tables_page,
    "settings.md": settings_page,
    "hook_settings.md": hook_settings_page,
    "commands.md": commands_page,
    "http_api.md": http_page,
}
