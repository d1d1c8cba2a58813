"""What all inputs of a site's list have in common: a name, a clock, files or windows of a server.

Each kind is in `pipelines.sources.site.inputs` (files) or `pipelines.sources.site.server_inputs`.
"""

from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator


def _as_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone; write UTC or Europe/Berlin") from error
    return name


LONGEST_STEP_S: Final = 604_800.0
"""A week: what is looked at more rarely is no series."""

TimeZone = Annotated[str, AfterValidator(_as_zone)]


class Section(BaseModel):
    """A part of the list: unknown keys are errors, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _is_text(cls, value: object) -> object:
        text = str(value) if isinstance(value, str | Path) else ""
        if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
            raise ValueError("expected text; no file name or table can hold NUL or half a pair")
        return value


class Input(Section):
    """What all inputs have.

    Attributes:
        kind: What it is; decides which of these classes reads the entry.
        name: Name of the input, for `--source` and messages; None: its kind.
        time_zone: Zone of clocks that print no offset; None: the site's.
    """

    kind: str
    name: str | None = Field(None, min_length=1, max_length=100)
    time_zone: TimeZone | None = None

    @property
    def label(self) -> str:
        """Its name, or what is read where it has none."""
        return self.name or self.kind


class FileInput(Input):
    """An input that is files.

    Attributes:
        path: File or pattern, relative to the list.
        may_be_absent: Whether it is fine that no file matches (a drop folder).
    """

    path: str = Field(min_length=1)
    may_be_absent: bool = False

    @property
    def label(self) -> str:
        """Its name, or what is read where it has none."""
        return self.name or f"{self.kind} {self.path}"


class PullInput(Input):
    """An input that is a server.

    Attributes:
        keep_days: How far back the server has data.
    """

    keep_days: int = Field(15, ge=1, le=3660)

    @property
    def address(self) -> str:
        """What is asked, for messages and accounts; never holds a secret."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """Its name, or what is asked where it has none."""
        return self.name or f"{self.kind} {self.address}"


class WindowInput(PullInput):
    """A server that has a history, asked window by window.

    Attributes:
        window_minutes: Length of one question; a window lands whole or not at all.
        settle_minutes: Age below which data is not asked for yet: it is still arriving.
        late_hours: Age below which a window is asked for again in every run, for late data.
    """

    window_minutes: int = Field(60, ge=1, le=1440)
    settle_minutes: int = Field(2, ge=0, le=1440)
    late_hours: int = Field(2, ge=0, le=168)


class PresentInput(PullInput):
    """A server that only knows how things are now, asked once in every run."""
