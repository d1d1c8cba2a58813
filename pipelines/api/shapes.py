"""What answers hold, for the API's own description; answers are never validated by it at run time.

How answers are made is in the routes; tests hold them against it.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, create_model

from features.contracts import TableContract
from features.monitoring_tables import LIVE_OUTCOMES, LIVE_QUALITY

Share = Annotated[float, Field(ge=0, le=1)]
Status = Literal["ok", "prior", "unknown"]
Count = Annotated[int, Field(ge=0)]


class Shape(BaseModel):
    """Base of all: says what there is, and nothing else is there."""

    model_config = ConfigDict(extra="forbid")


class Problem(Shape):
    """Every error (RFC 9457)."""

    type: str = Field(examples=["about:blank"])
    title: str = Field(examples=["Gone"])
    status: int = Field(examples=[410])
    detail: str = Field(description="What is wrong and what to do")
    errors: list[dict[str, str]] | None = Field(None, description="Where in the request, and what")


class TickHead(Shape):
    """Which tick an answer is of."""

    as_of: datetime = Field(description="Moment of the scores")
    published_at: datetime
    expires_at: datetime = Field(description="From then on they say nothing about the present")
    is_expired: bool
    trained_on: Literal["synthetic", "real"]


class Score(Shape):
    """One score of one entity and horizon."""

    entity_id: str = Field(examples=["gpu-node-017"])
    node: str | None
    rack: str | None
    horizon_h: int = Field(ge=1, examples=[24])
    score: Share | None = Field(
        description="Probability of a failure; null: status_reason says why"
    )
    status: Status
    status_reason: str | None
    cause: str | None = Field(description="Why it is unknown, as one word; null where it is known")
    fault_type: str | None = Field(description="Most probable fault type")
    fault_probability: Share | None
    fault_probabilities: dict[str, Share] | None = Field(description="Share of each fault type")
    reasons: list[str] = Field(examples=[["HBM temperature 12 C above its rack"]])
    missing_share: Share = Field(description="Share of inputs that were missing")
    model_version: str


class ScorePage(TickHead):
    """A page of the ranking."""

    kind: Literal["node", "gpu"]
    horizon_h: int
    n_total: Count = Field(description="Rows of all pages")
    after: str | None = Field(description="Cursor of the next page; null: there is none")
    rows: list[Score]


class Placed(Shape):
    """Where something stands."""

    rack: str | None
    why_no_rack: str | None


class NodeRow(Placed):
    """A node of a list."""

    node: str
    scores: list[Score]


class NodePage(TickHead):
    """A page of nodes by name."""

    n_total: Count
    after: str | None
    rows: list[NodeRow]


class GpuOfNode(Shape):
    """A GPU of a node."""

    gpu_uuid: str
    scores: list[Score]


class NodeDetail(TickHead, Placed):
    """A node with its GPUs."""

    node: str
    scores: list[Score]
    n_gpus: Count
    gpus: list[GpuOfNode]


class GpuDetail(TickHead, Placed):
    """A GPU."""

    gpu_uuid: str
    node: str | None
    scores: list[Score]


class HistoryRow(Shape):
    """A tick at which a score changed."""

    entity_id: str
    horizon_h: int
    as_of: datetime
    node: str | None
    score: Share | None
    status: Status
    status_reason: str | None
    fault_type: str | None
    fault_probability: Share | None
    model_version: str


class AlertRow(Shape):
    """An alert that was raised."""

    node: str
    horizon_h: int
    as_of: datetime
    ends_at: datetime
    score: Share
    threshold: float
    fault_type: str | None
    model_version: str


class OpenAlert(AlertRow):
    """An alert that is open."""

    last_above: datetime
    reasons: list[str]


_TYPES: Final[dict[Any, Any]] = {
    pl.String: str, pl.Int32: int, pl.Int64: int, pl.Float32: float, pl.Float64: float,
    pl.Boolean: bool, pl.Datetime: datetime,
}  # fmt: skip


def shape_of(contract: TableContract, name: str) -> type[Shape]:
    """A row of a table, as its contract has it."""
    fields: dict[str, Any] = {}
    for column in contract.columns:
        kind = _TYPES[column.dtype.base_type()]
        kind = kind | None if column.nullable else kind
        fields[column.name] = (kind, Field(description=column.meaning))
    return create_model(name, __base__=Shape, __doc__=contract.meaning, **fields)


OutcomeRow = shape_of(LIVE_OUTCOMES, "OutcomeRow")
QualityRow = shape_of(LIVE_QUALITY, "QualityRow")


class Stretch(Shape):
    """A page of rows by falling time; it holds whole ticks, so it may exceed its limit."""

    before: datetime | None = Field(description="Give it as `before` for the next page")


class HistoryPage(Stretch):
    """Ticks at which a score changed; between two of them it stayed within a factor of 2."""

    rows: list[HistoryRow]


class AlertPage(Stretch):
    """Alerts, newest first."""

    rows: list[AlertRow]


class OpenAlerts(Shape):
    """Open alerts, highest score first."""

    n_total: Count
    rows: list[OpenAlert]


class OutcomePage(Stretch):
    """Outcomes, newest first."""

    rows: list[OutcomeRow]  # type: ignore[valid-type]


class Quality(Shape):
    """Quality by week, newest first; a null has nothing it could be computed from."""

    rows: list[QualityRow]  # type: ignore[valid-type]
