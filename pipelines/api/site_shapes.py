"""What answers about the hook, the models and the site hold, as `shapes` for scores.

Answers are never validated by it at run time; tests hold them against it.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from pipelines.api.shapes import Count, Shape, Share


class Verdict(Shape):
    """What one guard said."""

    guard: str
    is_allowed: bool
    reason: str


class DecisionRow(Shape):
    """A decision of the hook, as its ledger has it."""

    seq: int
    decided_at: datetime
    actuator: str
    decision_id: str | None
    node: str | None
    wanted: str
    action: str = Field(description="What the guards leave of it")
    score: Share | None
    status: str
    horizon_h: int
    fault_type: str | None
    as_of: datetime
    expires_at: datetime | None = Field(description="Until then it may be approved")
    boot_id: str | None
    cost_of_acting: float | None
    cost_of_waiting: float | None
    jobs: list[str]
    sentence: str
    verdicts: list[Verdict]
    model_version: str


class DecisionPage(Shape):
    """Decisions, newest first."""

    before: int | None = Field(description="Give it as `before` for the next page")
    why_none: str | None
    rows: list[DecisionRow]


class LedgerRow(Shape):
    """An entry of the ledger."""

    seq: int
    key: str
    kind: str
    recorded_at: datetime
    actuator: str
    actor: str
    node: str | None
    decision_id: str | None
    refers_to: str | None
    body: dict[str, Any]
    previous_hash: str
    hash: str


class LedgerPage(Shape):
    """Entries, newest first."""

    before: int | None
    why_none: str | None
    rows: list[LedgerRow]


class HeldRow(Shape):
    """A node that the ledger says we hold."""

    node: str
    action: str
    since: datetime
    boot_id: str | None
    is_seen: bool
    intent_key: str


class WaitingRow(Shape):
    """Something that waits for a person."""

    key: str
    why: str
    node: str | None
    asked_at: datetime
    text: str


class Standing(Shape):
    """How things stand by the ledger, for one actuator."""

    why_none: str | None
    actuator: str | None
    last_seq: int | None
    n_held: Count
    held: list[HeldRow]
    n_waiting: Count
    waiting: list[WaitingRow]
    n_open_intents: Count


class RequestBody(Shape):
    """A request of an operator to the hook."""

    what: Literal["approve", "hold", "undrain"]
    node: Annotated[str, Field(min_length=1, max_length=253)]
    confirm: Annotated[
        str, Field(min_length=1, max_length=253, description="The node's name, typed again")
    ]
    decision_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = Field(
        None, description="For approve"
    )
    until: datetime | None = Field(None, description="For hold; with a time zone")
    boot_id: Annotated[str, Field(pattern=r"^[ -~]{1,200}$")] | None = Field(
        None, description="Boot that you saw; absent: the last one that the ledger has"
    )


class Accepted(Shape):
    """A request that lies in the hook's inbox; the hook judges it in its next round."""

    nonce: str
    what: str
    node: str | None
    actor: str
    boot_id: str | None
    boot_from: Literal["request", "decision", "hold", "ledger"]
    expires: datetime
    ledger_key: str = Field(description="Key of the ledger entry with what became of it")


class ModelVersion(Shape):
    """A version of a model."""

    label: str
    name: str
    version: int
    registered_at: datetime
    aliases: list[str]
    gate: str | None
    is_gate_passed: bool | None
    promoted_by: str | None
    promoted_at: str | None
    promoted_reason: str | None


class Models(Shape):
    """Versions, newest first; at most 50 of a model."""

    why_none: str | None
    rows: list[ModelVersion]


class ModelCard(Shape):
    """The card of a version, with where it stands."""

    standing: ModelVersion
    card: dict[str, Any]


class ScoresHealth(Shape):
    """What a tick says of its own inputs."""

    as_of: datetime
    age_s: float
    is_expired: bool
    coverage: Share
    n_nodes: Count
    n_gpus: Count
    unknown_gpus: dict[str, int] = Field(description="GPUs without a score, by cause")
    n_silent_nodes: Count
    silent_nodes: list[str] = Field(description="Nothing came from any of their GPUs; at most 1000")


class TableHealth(Shape):
    """How far a table reaches."""

    table: str
    covered_until: datetime | None
    age_s: float | None
    why: str | None


class SourceHealth(Shape):
    """A source in the last hour that is known of it."""

    source: str
    entity_kind: str
    hour: datetime
    n_entities: Count
    n_silent: Count
    n_received: Count
    n_expected: int | None
    watermark: datetime | None


class ScorerHealth(Shape):
    """The scorer's own state."""

    phase: str
    as_of: datetime | None
    updated_at: datetime | None
    started_at: datetime | None
    n_ticks: Count
    n_failures: Count
    is_failing: bool
    failing_parts: list[str]
    n_open_alerts: Count


class DataHealth(Shape):
    """How the data does."""

    site: str
    at: datetime
    problems: list[str]
    scores: ScoresHealth | None
    tables: list[TableHealth]
    sources: list[SourceHealth]
    scorer: ScorerHealth | None


class Alive(Shape):
    """The process answers."""

    status: Literal["alive"]


class Ready(Shape):
    """It has scores to show."""

    status: Literal["ready"]
