"""What every section of the settings is: typed values that cannot be changed or misspelt.

No section is defined here.
"""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of the settings: unknown keys are refused and values stay as they were read."""

    model_config = ConfigDict(frozen=True, extra="forbid")
