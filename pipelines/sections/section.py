"""What every section of the settings is: typed values that cannot be changed or misspelt.

No section is defined here.
"""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A section of the settings: unknown keys are refused and values stay as they were read."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _as_path(path: object) -> object:
    if isinstance(path, str):
        if not path.strip():
            raise ValueError("a path cannot be empty; write . for this file's own folder")
        try:
            is_name = b"\0" not in os.fsencode(path)
        except UnicodeEncodeError:
            is_name = False
        if not is_name:
            raise ValueError("a path cannot hold a NUL character, or half a pair of Unicode's")
    return path


GivenPath = Annotated[Path, BeforeValidator(_as_path)]
"""A path in the settings; a relative one counts from the settings file's own folder."""
