"""What may be asked for: query parameters and names, held to their form before anything is read.

What answers hold is in `shapes`.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Path, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from features.vocabulary import FAULT_TYPES
from pipelines.api.answers import ApiError
from pipelines.api.score_pages import CURSOR
from remediation.ledger.entries import KINDS

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d(:\d\d(\.\d{1,6})?)?.*", re.ASCII)
_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)
_PLAIN: Final = r"^[^\x00-\x1f\x7f]{1,253}$"
_EXAMPLE: Final = "2026-01-05T10:00:00Z"


def _is_time_text(value: Any) -> Any:
    if isinstance(value, datetime) or _TIME.fullmatch(str(value)):
        return value
    raise ValueError(f"expected a time such as {_EXAMPLE}")


def _has_zone(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"this time has no zone, so it could be any hour; write {_EXAMPLE}")
    # Within a day of the first and the last moment there are, UTC may have no such time.
    return min(max(at, _FIRST), _LAST).astimezone(UTC)


Moment = Annotated[
    datetime,
    BeforeValidator(_is_time_text),
    AfterValidator(_has_zone),
    Field(description="With a time zone", examples=[_EXAMPLE]),
]
PlainName = Annotated[str, Field(pattern=_PLAIN)]
NodeName = Annotated[str, Path(pattern=_PLAIN, examples=["gpu-node-017"])]
GpuName = Annotated[
    str, Path(pattern=_PLAIN, examples=["GPU-0a1b2c3d-0000-0000-0000-000000000000"])
]
Cursor = Annotated[str, Field(pattern=rf"^{CURSOR}$")]
Horizon = Annotated[int, Field(ge=1, le=8784)]
Place = Annotated[int, Field(ge=1, le=2**62)]


class _Asked(BaseModel):
    # A misspelt filter must not silently give the whole list.
    model_config = ConfigDict(frozen=True, extra="forbid")


class AskedScores(_Asked):
    """Filters of the ranking."""

    kind: Literal["node", "gpu"] = "node"
    horizon_h: Horizon | None = Field(None, description="Absent: the one the hook acts on")
    node: PlainName | None = None
    rack: PlainName | None = None
    status: Literal["ok", "prior", "unknown"] | None = None
    fault_type: Annotated[str, Field(json_schema_extra={"enum": list(FAULT_TYPES)})] | None = None
    min_score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: Cursor | None = Field(None, description="Cursor of the page before")


class AskedNodes(_Asked):
    """Filters of the list of nodes."""

    rack: PlainName | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    after: Cursor | None = Field(None, description="Cursor of the page before")


class AskedStretch(_Asked):
    """A stretch of time, newest first."""

    since: Moment | None = None
    before: Moment | None = None
    limit: Annotated[int, Field(ge=1, le=2000)] = 500


class AskedHistory(AskedStretch):
    """The history of one entity and horizon."""

    horizon_h: Horizon | None = None


class AskedAlerts(AskedStretch):
    """Alerts or outcomes."""

    node: PlainName | None = None


class AskedDecisions(_Asked):
    """Decisions of the hook."""

    node: PlainName | None = None
    before: Place | None = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class AskedLedger(AskedDecisions):
    """Entries of the ledger."""

    kind: Annotated[str, Field(json_schema_extra={"enum": list(KINDS)})] | None = None


class AskedStanding(_Asked):
    """How things stand for one actuator."""

    actuator: PlainName | None = None


async def _takes_nothing(request: Request) -> None:
    if request.query_params:
        raise ApiError(422, "this route takes no parameters")


NO_QUERY: Final = (Depends(_takes_nothing),)
"""Of routes without parameters."""


def one_of(name: str, value: str | None, known: tuple[str, ...]) -> None:
    """Refuses a word that is none of those there are.

    Raises:
        ApiError: It is another.
    """
    if value is not None and value not in known:
        raise ApiError(422, f"{name}: expected one of {', '.join(known)}")
