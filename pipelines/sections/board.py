"""Settings of the board: where it listens, the site's time zone, how long a login lasts.

Who may log in is in `pipelines.sections.api`: the same tokens.
"""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from pipelines.sections.section import Section


class BoardSettings(Section):
    """The board; docs/board.md says what each is for.

    Attributes:
        listen: Address and port; others than loopback need a token.
        time_zone: IANA name of the site's zone, such as `Europe/Berlin`.
        login_hours: How long a login lasts.
    """

    listen: str = "127.0.0.1:8081"
    time_zone: str = "UTC"
    login_hours: float = Field(default=12.0, gt=0, le=168)

    @field_validator("time_zone")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(
                f"{name!r} is no time zone that is known here; write it as Europe/Berlin"
            ) from error
        return name
