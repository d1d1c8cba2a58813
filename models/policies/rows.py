"""Scored rows as arrays that say at once what a warning policy would have raised and caught.

The definitions are those of `models.policies.warnings` and `models.evaluation.event_metrics`;
nothing is chosen here.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from features.contracts import UTC_TIME
from features.errors import DataError
from models.evaluation.event_metrics import caught_pairs
from models.policies.kernel import alert_positions
from models.policies.warnings import WarningPolicy
from models.specs import Task

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
MICROSECOND = timedelta(microseconds=1)

COUNTING_WINDOW = timedelta(days=1)
"""What strikes several nodes at once does so within this time."""

CANDIDATES = 60
"""Thresholds tried, at ranks that grow by a constant factor from the strictest on."""

FINER_CANDIDATES = 16
"""Thresholds tried between two of these, where a budget runs out."""


@dataclass(frozen=True)
class Episodes:
    """Outcomes of alerts: one per incident caught, one per false alert.

    An incident counts once, however many alerts catch it: the share of true episodes is at most
    that of true alerts.

    Attributes:
        n_true: Incidents caught.
        n_false: False alerts.
        n_effective: Independent episodes they are worth, at most their sum: fewer when they come
            in clusters, of one cause or of one node.
    """

    n_true: int
    n_false: int
    n_effective: float

    @property
    def size(self) -> int:
        """All of them."""
        return self.n_true + self.n_false

    @property
    def precision(self) -> float:
        """Share of true ones; 0 without any."""
        return self.n_true / self.size if self.size else 0.0


@dataclass(frozen=True)
class PolicyRows:
    """Scored rows, sorted by entity and time, with what each would catch.

    Attributes:
        entity: Entity codes, shape (rows,).
        time_us: `as_of` in microseconds, shape (rows,).
        score: Scores, none unknown, shape (rows,).
        is_false: Whether an alert there would be false, shape (rows,).
        caught: Codes of the incidents that an alert at each row would catch, row after row.
        caught_from: Where each row's begin in `caught`, shape (rows + 1,).
        place: Code of each entity's node, shape (entities,).
        incident_place: Code of each incident's node, shape (incidents,).
        incident_us: Start of each incident in microseconds, shape (incidents,).
        n_places: Nodes watched.
        node_days: Time watched, rows without score included.
    """

    entity: IntArray
    time_us: IntArray
    score: FloatArray
    is_false: npt.NDArray[np.bool_]
    caught: IntArray
    caught_from: IntArray
    place: IntArray
    incident_place: IntArray
    incident_us: IntArray
    n_places: int
    node_days: float
    _outcomes: dict[WarningPolicy, Episodes] = field(
        default_factory=dict, repr=False, compare=False
    )

    @property
    def n_incidents(self) -> int:
        """Incidents that some row could catch."""
        return int(self.incident_us.size)

    @cached_property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds worth trying, strictest first: distinct scores at growing ranks.

        Raises:
            DataError: There is no score.
        """
        if not self.score.size:
            raise DataError("threshold: no row has a score. Score the validation rows first.")
        ranked = np.sort(self.score)[::-1]
        ranks = np.unique(np.geomspace(1, ranked.size, CANDIDATES).round().astype(int)) - 1
        return tuple(dict.fromkeys(ranked[ranks].tolist()))

    def thresholds_between(self, high: float, low: float) -> tuple[float, ...]:
        """Thresholds strictly between two, strictest first: distinct scores at even ranks."""
        between = np.unique(self.score[(self.score > low) & (self.score < high)])[::-1]
        ranks = np.linspace(0, between.size - 1, min(between.size, FINER_CANDIDATES))
        return tuple(between[ranks.round().astype(int)].tolist())

    def alerts(self, policy: WarningPolicy) -> IntArray:
        """Positions of the rows that `models.policies.warnings.raise_alerts` would pick."""
        # Persistence and cooldown look only at rows above: the others need not be visited.
        above = np.flatnonzero(self.score >= policy.threshold)
        window, cooldown = policy.k * policy.tick, policy.cooldown
        kept: IntArray = alert_positions(
            self.entity[above],
            self.time_us[above],
            self.score[above],
            policy.threshold,
            policy.n,
            window // MICROSECOND,
            cooldown // MICROSECOND,
        )
        return above[kept]

    def caught_by(self, alerts: IntArray) -> IntArray:
        """Codes of the incidents that alerts at these positions catch, rising."""
        first, counts = self.caught_from[alerts], self.n_caught(alerts)
        # Places within `caught`: each row's stretch, one after the other.
        skipped = np.repeat(first - np.cumsum(counts) + counts, counts)
        return np.unique(self.caught[skipped + np.arange(skipped.size)])

    def n_caught(self, alerts: IntArray) -> IntArray:
        """How many incidents each alert catches."""
        return self.caught_from[alerts + 1] - self.caught_from[alerts]

    def outcome(self, policy: WarningPolicy) -> Episodes:
        """Episodes of a policy, remembered: each promise of precision walks the same policies."""
        if policy not in self._outcomes:
            self._outcomes[policy] = self.episodes(self.alerts(policy))
        return self._outcomes[policy]

    def episodes(self, alerts: IntArray) -> Episodes:
        """Outcomes of alerts at these positions, counted and weighed.

        A batch of bad parts makes many incidents, a hot day many false alarms, and none of them
        is a witness of its own. True and false episodes are counted by day and by node; where
        counts vary `phi` times as much as independent ones would, N episodes are worth N / phi
        (quasi-likelihood, Wedderburn 1974). True and false ones share the larger `phi`: of
        either there may be too few to see how they cluster.

        Args:
            alerts: Positions of rows.

        Returns:
            Their number, and how many independent ones they are worth.
        """
        incidents = self.caught_by(alerts)
        false = alerts[self.is_false[alerts]]
        phi = max(
            self._clustering(self.incident_us[incidents], self.incident_place[incidents]),
            self.clustering(false),
        )
        size = incidents.size + false.size
        return Episodes(incidents.size, false.size, size / phi)

    def clustering(self, alerts: IntArray) -> float:
        """How many times more counts of alerts vary, by node and by day, than independent ones.

        Args:
            alerts: Positions of rows.

        Returns:
            At least 1.
        """
        return self._clustering(self.time_us[alerts], self.place[self.entity[alerts]])

    @cached_property
    def _days(self) -> tuple[int, int]:
        """Number of the first day of the rows since 1970, and how many there are."""
        if not self.time_us.size:
            return 0, 0
        first, last = (
            int(time) // (COUNTING_WINDOW // MICROSECOND)
            for time in (self.time_us.min(), self.time_us.max())
        )
        return first, last - first + 1

    def _clustering(self, time_us: IntArray, place: IntArray) -> float:
        first, n_days = self._days
        day = time_us // (COUNTING_WINDOW // MICROSECOND) - first
        by_day = dispersion(day, n_units=max(n_days, int(day.max(initial=0)) + 1))
        return by_day + dispersion(place, n_units=self.n_places) - 1.0


def dispersion(units: IntArray, *, n_units: int) -> float:
    """Variance of the counts per unit over their mean: 1 for independent events, at least 1.

    Args:
        units: Unit of each event, 0 to `n_units - 1`, shape (events,).
        n_units: Units there are, those without events included.

    Returns:
        The index of dispersion.

    >>> dispersion(np.array([0, 1, 2]), n_units=4)
    1.0
    >>> dispersion(np.array([2, 2, 2, 2]), n_units=4)
    4.0
    """
    if units.size < 2 or n_units < 2:
        return 1.0
    counts = np.bincount(units, minlength=n_units)
    mean = units.size / n_units
    variance = (float(counts @ counts) - n_units * mean * mean) / (n_units - 1)
    return max(1.0, variance / mean)


def policy_rows(
    rows: pl.DataFrame,
    *,
    incidents: pl.DataFrame,
    task: Task,
    tick: timedelta,
) -> PolicyRows:
    """Prepares rows once, for any number of policies.

    Args:
        rows: `entity_id`, `as_of`, `node`, `score`, `label`; no two of one entity and time.
        incidents: core/incidents.
        task: Lead, horizon, entity kind.
        tick: Time between two rows of an entity.

    Returns:
        The rows.
    """
    known = rows.filter(pl.col("label").is_not_null())
    scored = _scored(rows)
    pairs = caught_pairs(known, incidents, task=task)
    facts = _incident_facts(pairs, scored, incidents)
    hits = pairs.join(scored, on=["entity_id", "as_of"]).join(facts, on="incident_id")
    hits = hits.sort("position", "incident")
    n_caught = np.bincount(hits["position"].to_numpy(), minlength=scored.height)
    nodes = rows.select(_NODE, "as_of").unique().height
    return PolicyRows(
        entity=scored["entity"].to_numpy(),
        time_us=scored["as_of"].dt.epoch("us").to_numpy(),
        score=scored["score"].to_numpy(),
        is_false=(scored["label"] == 0).fill_null(value=False).to_numpy() & (n_caught == 0),
        caught=hits["incident"].cast(pl.Int64).to_numpy(),
        caught_from=np.concatenate([[0], np.cumsum(n_caught)]),
        place=scored.unique("entity", maintain_order=True)["place"].to_numpy(),
        incident_place=facts["place"].to_numpy(),
        incident_us=facts["us"].to_numpy(),
        n_places=rows.select(_NODE).n_unique(),
        node_days=nodes * (tick / timedelta(days=1)),
    )


_NODE = pl.coalesce("node", "entity_id")


def _scored(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with a score, sorted by entity and time, with codes of entity and node."""
    places = rows.select(place_name=_NODE).unique().sort("place_name").with_row_index("place")
    return (
        rows.filter(pl.col("score").is_not_null())
        .select(
            "entity_id",
            pl.col("as_of").cast(UTC_TIME),
            pl.col("score").cast(pl.Float64),
            "label",
            place_name=_NODE,
        )
        .join(places, on="place_name")
        .sort("entity_id", "as_of")
        .with_row_index("position")
        .with_columns(
            pl.col("place").cast(pl.Int64),
            entity=pl.col("entity_id").rank("dense").cast(pl.Int64) - 1,
        )
    )


def _incident_facts(
    pairs: pl.DataFrame, scored: pl.DataFrame, incidents: pl.DataFrame
) -> pl.DataFrame:
    """Catchable incidents: incident_id, incident (code), place, us."""
    places = scored.select("entity_id", "place").unique("entity_id")
    return (
        pairs.select("incident_id", "entity_id")
        .unique("incident_id")
        .join(places, on="entity_id", how="left")
        .join(incidents.select("incident_id", "start"), on="incident_id")
        .sort("start", "incident_id")
        .with_row_index("incident")
        .select(
            "incident_id",
            "incident",
            # One without any score is caught by nothing, wherever it is.
            pl.col("place").fill_null(0),
            us=pl.col("start").dt.epoch("us"),
        )
    )
