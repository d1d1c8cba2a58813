"""Where a secret is found, as settings say it.

Secrets themselves are read in `pipelines.serving.place`.
"""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator


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
