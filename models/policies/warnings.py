"""The warning policy: which scores become alerts. One pure function for alerts, hook and replay.

Nothing here trains, and importing it loads neither lightgbm nor mlflow.
"""

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from features.contracts import UTC_TIME
from features.errors import DataError

ALERT_COLUMNS = ("entity_id", "as_of", "score")


@dataclass(frozen=True, kw_only=True)
class WarningPolicy:
    """When a score becomes an alert (persistence and cooldown, as in ByteDance's Falcon).

    An entity raises an alert at `as_of` when its score there is at or above the threshold, at
    least `n` of its scores in `(as_of - k * tick, as_of]` are, and it raised none in
    `(as_of - cooldown, as_of)`.

    Attributes:
        threshold: Score from which on a row is above.
        n: Rows above that are needed.
        k: Ticks looked back on, the present one included.
        tick: Time between two ticks. Absent ticks count as not above.
        cooldown: Time in which an entity that raised an alert raises no other.
    """

    threshold: float
    n: int = 1
    k: int = 1
    tick: timedelta
    cooldown: timedelta

    def __post_init__(self) -> None:
        """Refuses what no row could satisfy.

        Raises:
            DataError: A value is out of range.
        """
        if not 1 <= self.n <= self.k:
            raise DataError(f"warning policy: needs 1 <= n <= k, got n={self.n} and k={self.k}.")
        if self.tick <= timedelta(0) or self.cooldown < timedelta(0):
            raise DataError(
                f"warning policy: tick must be positive and cooldown not negative, got "
                f"{self.tick} and {self.cooldown}."
            )

    def to_dict(self) -> dict[str, Any]:
        """The policy as plain values, for JSON."""
        return {
            "threshold": self.threshold,
            "n": self.n,
            "k": self.k,
            "tick_s": self.tick.total_seconds(),
            "cooldown_s": self.cooldown.total_seconds(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "WarningPolicy":
        """The policy from what `to_dict` gave."""
        return cls(
            threshold=values["threshold"],
            n=values["n"],
            k=values["k"],
            tick=timedelta(seconds=values["tick_s"]),
            cooldown=timedelta(seconds=values["cooldown_s"]),
        )


def raise_alerts(
    scores: pl.DataFrame, policy: WarningPolicy, *, earlier: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Picks the scores that become alerts.

    Run over a whole time or tick by tick, the alerts are the same, if each run is given the
    scores of the last `k` ticks too and the `earlier` alerts of the last cooldown.

    Args:
        scores: `entity_id`, `as_of`, `score`; a null score (unknown) is not above. Their order
            does not matter.
        policy: The policy.
        earlier: Alerts already raised (`entity_id`, `as_of`); none is raised again.

    Returns:
        Alerts: `entity_id`, `as_of`, `score`, sorted by entity and time.

    Raises:
        DataError: A column is missing, or two scores share entity and time.

    >>> from datetime import UTC
    >>> hour = timedelta(hours=1)
    >>> start = datetime(2026, 1, 1, tzinfo=UTC)
    >>> scores = pl.DataFrame({
    ...     "entity_id": ["a"] * 4,
    ...     "as_of": [start + i * hour for i in range(4)],
    ...     "score": [0.9, 0.1, 0.8, 0.9],
    ... })
    >>> policy = WarningPolicy(threshold=0.5, n=2, k=3, tick=hour, cooldown=6 * hour)
    >>> raise_alerts(scores, policy)["as_of"].dt.hour().to_list()
    [2]
    """
    absent = [name for name in ALERT_COLUMNS if name not in scores.columns]
    if absent:
        raise DataError(
            f"scores: column {absent[0]!r} is missing, found {', '.join(scores.columns)}. "
            f"Give entity_id, as_of and score."
        )
    if scores.select(pl.struct("entity_id", "as_of").is_duplicated().any()).item():
        raise DataError(
            "scores: two rows share entity_id and as_of. Keep one horizon and model version."
        )
    above = (
        scores.filter(pl.col("score") >= policy.threshold)
        .select(
            pl.col("entity_id").cast(pl.String),
            pl.col("as_of").cast(UTC_TIME),
            pl.col("score").cast(pl.Float64),
        )
        .sort("entity_id", "as_of")
    )
    last = _last_alerts(earlier)
    window = policy.k * policy.tick
    recent: deque[datetime] = deque()
    kept = []
    entity = None
    # Only rows above come here, few of all; the cooldown makes each depend on the one before.
    for position, (row_entity, as_of, _) in enumerate(above.iter_rows()):
        if row_entity != entity:
            entity = row_entity
            recent.clear()
        recent.append(as_of)
        while recent[0] <= as_of - window:
            recent.popleft()
        before = last.get(row_entity)
        is_cold = before is None or (before < as_of and before <= as_of - policy.cooldown)
        if len(recent) >= policy.n and is_cold:
            kept.append(position)
            last[row_entity] = as_of
    return above[kept]


def _last_alerts(earlier: pl.DataFrame | None) -> dict[str, datetime]:
    if earlier is None or earlier.is_empty():
        return {}
    newest = earlier.group_by("entity_id").agg(pl.col("as_of").max())
    return dict(newest.select("entity_id", "as_of").iter_rows())
