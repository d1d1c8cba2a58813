"""The time zone that a page shows its times in, always printed beside them.

All times inside are UTC; how old something is is said in `pipelines.board.words`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_FORM: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,30}(/[A-Za-z0-9_+-]{1,30}){0,2}", re.ASCII)
_SPACE: Final = "\u00a0"


@dataclass(frozen=True)
class Zone:
    """A time zone by its IANA name.

    Attributes:
        name: `UTC`, or a name such as `Europe/Berlin`.
        tz: What it stands for.
    """

    name: str
    tz: tzinfo

    def local(self, at: datetime) -> datetime:
        """The time on this zone's clocks."""
        return at.astimezone(self.tz)

    def text(self, at: datetime) -> str:
        """A time to the minute, with the zone's short name.

        >>> UTC_ZONE.text(datetime(2026, 1, 31, 7, 5, tzinfo=UTC)).replace(_SPACE, " ")
        '2026-01-31 07:05 UTC'
        """
        local = self.local(at)
        return f"{local:%Y-%m-%d %H:%M}{_SPACE}{local.tzname()}"


UTC_ZONE: Final = Zone("UTC", UTC)


def zone_named(name: str | None) -> Zone:
    """The zone of a name from a cookie or a setting; UTC where it names none.

    Args:
        name: An IANA name. It comes from outside and may hold anything.
    """
    if name is None or name == UTC_ZONE.name or not _FORM.fullmatch(name):
        return UTC_ZONE
    try:
        return Zone(name, ZoneInfo(name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC_ZONE
