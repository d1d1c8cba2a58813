"""The values the hook passes along: a decision, a guard's verdict, and both together.

How they come about is in `remediation.policy.choice` and `remediation.guards.judge`.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from features.tables import DECISIONS
from features.vocabulary import ACTIONS

HARM: Final = {action: place for place, action in enumerate(ACTIONS)}
"""How much an action harms running work, by its place in the vocabulary."""


def touches_node(action: str) -> bool:
    """Whether an action changes the node: all but `none` and `watch`.

    >>> touches_node("watch"), touches_node("cordon")
    (False, True)
    """
    return HARM[action] >= HARM["cordon"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What the policy wants for one node.

    Attributes:
        decision_id: Stable id (`decision_id_of`).
        node: Node name.
        boot_id: Instance and boot it was decided for; None: unknown.
        as_of: as_of of the score.
        decided_at: When.
        wanted: The action.
        score: Node score; None: unknown.
        status: ok, prior or unknown.
        horizon_h: Horizon of the score.
        fault_type: Most probable fault type.
        model_version: Model of the score.
        trained_on: synthetic or real.
        cost_of_acting: Expected GPU-hours of the cheapest adequate action; None: not weighed.
        cost_of_waiting: Expected GPU-hours of doing nothing; None: not weighed.
        preemption_cost: Lyra's, in preempted jobs.
        jobs: Ids of the jobs it was weighed with.
        is_application_only: Whether all that raised the score are signals of applications.
        sentence: All of it in one sentence.
    """

    decision_id: str
    node: str
    boot_id: str | None
    as_of: datetime
    decided_at: datetime
    wanted: str
    score: float | None
    status: str
    horizon_h: int
    fault_type: str | None
    model_version: str
    trained_on: str
    cost_of_acting: float | None = None
    cost_of_waiting: float | None = None
    preemption_cost: float = 0.0
    jobs: tuple[str, ...] = ()
    is_application_only: bool = False
    sentence: str

    @property
    def benefit(self) -> float:
        """GPU-hours that acting is expected to save; minus infinity where not weighed."""
        if self.cost_of_acting is None or self.cost_of_waiting is None:
            return float("-inf")
        return self.cost_of_waiting - self.cost_of_acting


@dataclass(frozen=True)
class Verdict:
    """What one guard says to one decision.

    Attributes:
        guard: The guard's name.
        is_allowed: Whether it lets the wanted action pass whole.
        reason: Why, with numbers.
        ceiling: The most harmful action it leaves; for a pass, any.
    """

    guard: str
    is_allowed: bool
    reason: str
    ceiling: str


@dataclass(frozen=True)
class Judged:
    """A decision with every verdict and what they leave of it.

    Attributes:
        decision: The decision.
        verdicts: One per guard, in their order; none where no node is touched.
        action: What is to be done.
        is_settled: Whether an earlier run already carried it out; then nothing is done again.
    """

    decision: Decision
    verdicts: tuple[Verdict, ...]
    action: str
    is_settled: bool = False

    @property
    def blocked_by(self) -> tuple[str, ...]:
        """The guards that said no, each with its reason."""
        return tuple(
            f"{verdict.guard}: {verdict.reason}"
            for verdict in self.verdicts
            if not verdict.is_allowed
        )


def decision_id_of(
    *, node: str, boot_id: str | None, as_of: datetime, horizon_h: int, model_version: str
) -> str:
    """The id of a decision: the same node, boot, moment, horizon and model give the same id.

    Returns:
        16 hex digits.
    """
    parts = json.dumps([node, boot_id, as_of.timestamp(), horizon_h, model_version])
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def decisions_frame(judged: Sequence[Judged], *, is_dry_run: bool) -> pl.DataFrame:
    """The table remediation/decisions.

    Args:
        judged: Decisions with verdicts, in order.
        is_dry_run: Whether the actuator only records.

    Returns:
        One row per decision, in the given order.
    """
    decisions = [one.decision for one in judged]
    same_name = (
        "decision_id",
        "node",
        "as_of",
        "decided_at",
        "wanted",
        "score",
        "horizon_h",
        "fault_type",
        "cost_of_acting",
        "cost_of_waiting",
        "sentence",
        "model_version",
    )
    # By column: a row as a dict for each of 25,000 nodes takes twice as long.
    columns: dict[str, list[Any]] = {
        name: [getattr(one, name) for one in decisions] for name in same_name
    }
    columns["action"] = [one.action for one in judged]
    columns["blocked_by"] = [list(one.blocked_by) for one in judged]
    columns["is_dry_run"] = [is_dry_run] * len(judged)
    return pl.DataFrame(
        [pl.Series(name, columns[name], dtype=dtype) for name, dtype in DECISIONS.schema.items()]
    )
