"""Where a secret is found, as settings say it, and reading it from there.

What a secret opens is not known here; none is kept.
"""

import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from features.errors import SettingsError
from remediation.given_text import given_text


class SecretSource(BaseModel):
    """Where a secret is found, never what it is; exactly one of file and variable.

    Attributes:
        file: A file that holds it.
        variable: An environment variable that holds it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Path | None = None
    variable: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.file is None) == (self.variable is None):
            raise ValueError("name either a file or an environment variable")
        if self.file is not None and not self.file.is_absolute():
            raise ValueError("name the file by its whole path: secrets do not lie beside settings")
        return self


def read_secret(source: SecretSource | None, *, what: str) -> str | None:
    """A secret; a line break at its end is no part of it.

    Args:
        source: Where it is found; None: there is none.
        what: The setting, for the message.

    Raises:
        SettingsError: It is not there, empty, or more than a line of text.
    """
    if source is None:
        return None
    if source.file is None:
        found, where = os.environ.get(str(source.variable), ""), f"variable {source.variable}"
    else:
        where = f"file {source.file}"
        try:
            found = given_text(source.file)
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{what}: {where} cannot be read: {error}") from error
    if not found.strip():
        raise SettingsError(f"{what}: {where} is empty")
    if not found.strip().isprintable():
        raise SettingsError(f"{what}: {where} holds more than one line, or a control character")
    return found.strip()
