"""Labels: did an incident start in [as_of + L, as_of + L + H), and where is that unknown.

What an incident is decides `features.incidents`; no feature is computed here.

The first thing that happens to the entity at or after `as_of` decides a row. In order of time,
and at the same moment in the order of this list:

1. an incident is open at `as_of` (start <= as_of < end): null, `in_incident`;
2. an incident starts before `as_of + L`: null, `in_lead`;
3. an incident starts in [as_of + L, as_of + L + H): 1;
4. our own action or planned maintenance on the node begins, or is under way: null;
5. the entity is no longer watched (it left, or moved to another node): null, `not_watched`;
6. the record ends: null, `data_end`;
7. none of these before `as_of + L + H`: 0.

So a positive stays positive whatever is missing after it, a stay that ends at the very moment of
its incident (the broken GPU was taken out) is a positive, and what follows our own drain is never
a negative and never a positive.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from features.contracts import UTC_TIME
from features.errors import DataError
from features.tables import LABELS

# "Never": later than any record, early enough for lead and horizon to be added.
LONGEST_OPEN: Final = timedelta(days=7)
"""An incident without a known end is taken to be over by then; repairs take up to five days."""

_NEVER: Final = datetime(9000, 1, 1, tzinfo=UTC)
_ALWAYS: Final = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LabelSpec:
    """Minimum lead and horizons of the labels.

    Attributes:
        lead: Minimum lead L, the time a drain needs; zero or more.
        horizons_h: Horizons H in hours, positive.

    Raises:
        DataError: A lead or horizon is out of range, or there is no horizon.
    """

    lead: timedelta = timedelta(minutes=30)
    horizons_h: tuple[int, ...] = (1, 24, 168)

    def __post_init__(self) -> None:
        if self.lead < timedelta(0):
            raise DataError(f"label spec: lead must be zero or more, got {self.lead}. Raise it.")
        if not self.horizons_h or min(self.horizons_h) < 1:
            raise DataError(
                f"label spec: horizons_h must hold hours of 1 or more, got {self.horizons_h}. "
                "Name at least one horizon."
            )


def build_labels(
    grid: pl.DataFrame,
    *,
    incidents: pl.DataFrame,
    inventory: pl.DataFrame,
    maintenance: pl.DataFrame,
    data_end: datetime,
    spec: LabelSpec,
    catalogue_version: str | None = None,
) -> pl.DataFrame:
    """Labels of every grid row and horizon, with the reason where one is unknown.

    A GPU's label counts its own incidents; an incident of its node only makes it `in_incident`
    while it lasts, because nobody can watch a GPU in a dead node. A node's label counts its own
    incidents and those of GPUs while they were in it. A GPU incident without a recorded end ends
    when the GPU is next taken out or put in.

    Args:
        grid: Rows of `features.grid.watched_grid`, all of one entity kind or of both.
        incidents: core/incidents.
        inventory: core/inventory; says until when an entity was watched.
        maintenance: core/maintenance, our own actions included.
        data_end: End of the record, exclusive.
        spec: Lead and horizons.
        catalogue_version: Fault catalogue that typed the incidents; it is stored with every
            label, for where there was no incident another catalogue might have seen one.

    Returns:
        features/labels, in the order of (as_of, entity_kind, entity_id, horizon_h).
    """
    placed = _close_open_incidents(_place_incidents(incidents, inventory), inventory)
    parts = []
    for kind in ("gpu", "node"):
        rows = grid.filter(pl.col("entity_kind") == kind).sort("as_of")
        if rows.is_empty():
            continue
        own = _own_incidents(placed, kind)
        rows = _with_next(rows, own, by="entity_id", names={"next": "first", "open": "own_until"})
        node_wide = placed.filter(pl.col("entity_kind") == "node")
        rows = _with_next(rows, node_wide, by="node", names={"open": "node_until"})
        for action in ("own_action", "maintenance"):
            chosen = maintenance.filter(pl.col("kind") == action)
            chosen = chosen.with_columns(pl.col("end").fill_null(_NEVER))
            names = {"next": f"{action}_next", "open": f"{action}_until"}
            rows = _with_next(rows, chosen, by="node", names=names)
        parts.append(_with_watched_until(rows, inventory, kind))
    if not parts:
        return LABELS.empty()
    labels = _decide(pl.concat(parts), data_end=data_end, spec=spec)
    return labels.with_columns(pl.lit(catalogue_version, pl.String).alias("catalogue_version"))


def _place_incidents(incidents: pl.DataFrame, inventory: pl.DataFrame) -> pl.DataFrame:
    """Fills the node of GPU incidents that name none from the stay they happened in.

    A stay that ends at the incident's start counts: the GPU was taken out for it.
    """
    stays = inventory.select(
        pl.col("gpu_uuid").alias("entity_id"),
        pl.col("node").alias("stay_node"),
        pl.col("valid_from").fill_null(_ALWAYS),
        pl.col("valid_to").fill_null(_NEVER),
    )
    found = (
        incidents.filter(pl.col("node").is_null() & (pl.col("entity_kind") == "gpu"))
        .select("incident_id", "entity_id", "start")
        .join(stays, on="entity_id")
        .filter(pl.col("start").is_between("valid_from", "valid_to"))
        .sort("incident_id", "valid_from")
        .unique("incident_id", keep="first", maintain_order=True)
        .select("incident_id", "stay_node")
    )
    return incidents.join(found, on="incident_id", how="left", maintain_order="left").with_columns(
        pl.when(pl.col("entity_kind") == "node")
        .then("entity_id")
        .otherwise(pl.coalesce("node", "stay_node"))
        .alias("node")
    )


def _close_open_incidents(incidents: pl.DataFrame, inventory: pl.DataFrame) -> pl.DataFrame:
    """Ends open incidents: a GPU's when it is next taken out or put in, all after `LONGEST_OPEN`.

    A site without node states never says when a fault was over; without a bound, one fault would
    hide all that follows it.
    """
    moves = (
        pl.concat(
            [
                inventory.select("gpu_uuid", pl.col(edge).alias("moved_at"))
                for edge in ("valid_from", "valid_to")
            ]
        )
        .drop_nulls()
        .sort("moved_at")
        .rename({"gpu_uuid": "entity_id"})
    )
    gpu_wide = incidents.filter(pl.col("entity_kind") == "gpu").sort("start")
    node_wide = incidents.filter(pl.col("entity_kind") == "node")
    gpu_wide = gpu_wide.join_asof(
        moves,
        left_on="start",
        right_on="moved_at",
        by="entity_id",
        strategy="forward",
        check_sortedness=False,
    )
    both = pl.concat([gpu_wide, node_wide], how="diagonal")
    longest = pl.col("start") + LONGEST_OPEN
    assumed = pl.min_horizontal("moved_at", longest)
    return both.with_columns(pl.coalesce("end", assumed).alias("end"))


def _own_incidents(placed: pl.DataFrame, kind: str) -> pl.DataFrame:
    """The incidents that count for entities of a kind, keyed by entity_id."""
    if kind == "gpu":
        return placed.filter(pl.col("entity_kind") == "gpu")
    return placed.filter(pl.col("node").is_not_null()).with_columns(
        pl.col("node").alias("entity_id")
    )


def _with_next(
    rows: pl.DataFrame, intervals: pl.DataFrame, *, by: str, names: Mapping[str, str]
) -> pl.DataFrame:
    """Adds what the intervals of an entity or node say about each row's as_of.

    Args:
        rows: Grid rows sorted by as_of.
        intervals: Rows with `by`, start, end (never null); with incident_id and fault_type too
            where the next one is wanted as `first`.
        by: Column that names the entity in both.
        names: `next` names the column for the first start at or after as_of; `open` the column
            for the latest end of the intervals that started at or before as_of.
    """
    carried = [name for name in ("incident_id", "fault_type") if name in intervals.columns]
    intervals = intervals.sort("start", *carried[:1])
    if "next" in names:
        upcoming = intervals.select(by, pl.col("start").alias(names["next"]), *carried)
        # Of incidents that start together the one with the smallest id is the first.
        upcoming = upcoming.unique([by, names["next"]], keep="first", maintain_order=True)
        rows = rows.join_asof(
            upcoming,
            left_on="as_of",
            right_on=names["next"],
            by=by,
            strategy="forward",
            coalesce=False,
            check_sortedness=False,
        ).drop(f"{by}_right", strict=False)
    begun = intervals.select(by, "start", pl.col("end").cum_max().over(by).alias(names["open"]))
    begun = begun.unique([by, "start"], keep="last", maintain_order=True)
    return rows.join_asof(
        begun, left_on="as_of", right_on="start", by=by, check_sortedness=False
    ).drop("start", strict=False)


def _with_watched_until(rows: pl.DataFrame, inventory: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Adds the end of the unbroken time in which the entity was watched at its node.

    Stays that touch or overlap on the same node are one; an entity outside any stay is watched
    until as_of, that is, not at all.
    """
    key = ["entity_id", "node"]
    entity = "gpu_uuid" if kind == "gpu" else "node"
    stays = inventory.select(
        pl.col(entity).alias("entity_id"),
        pl.col("node"),
        pl.col("valid_from").fill_null(_ALWAYS),
        pl.col("valid_to").fill_null(_NEVER).alias("watched_until"),
    ).sort("valid_from")
    seen_until = pl.col("watched_until").cum_max().shift(1).over(key)
    is_new = (pl.col("valid_from") > seen_until).fill_null(value=True)
    merged = (
        stays.with_columns(is_new.cum_sum().over(key).alias("run"))
        .group_by(*key, "run")
        .agg(pl.col("valid_from").min(), pl.col("watched_until").max())
        .sort("valid_from")
    )
    rows = rows.join_asof(
        merged.drop("run"),
        left_on="as_of",
        right_on="valid_from",
        by=key,
        check_sortedness=False,
    )
    return rows.drop("valid_from", strict=False).with_columns(
        pl.max_horizontal(pl.col("watched_until").fill_null(pl.col("as_of")), "as_of")
    )


def _decide(rows: pl.DataFrame, *, data_end: datetime, spec: LabelSpec) -> pl.DataFrame:
    """Labels from the moments gathered for each row, one row per horizon."""
    as_of = pl.col("as_of")
    window_start = as_of + spec.lead
    window_end = window_start + pl.duration(hours=pl.col("horizon_h"))
    moments = _moments(data_end)
    earliest = pl.min_horizontal(*moments.values())
    decided_by = pl.coalesce(
        *(pl.when(moment == earliest).then(pl.lit(word)) for word, moment in moments.items())
    )
    is_broken = (pl.max_horizontal("own_until", "node_until") > as_of).fill_null(value=False)
    censored_by = (
        pl.when(is_broken)
        .then(pl.lit("in_incident"))
        .when(earliest >= window_end)
        .then(None)
        .when(decided_by != "incident")
        .then(decided_by)
        .when(earliest < window_start)
        .then(pl.lit("in_lead"))
    )
    is_positive = (decided_by == "incident") & (earliest < window_end)
    horizons = pl.DataFrame({"horizon_h": spec.horizons_h}, schema={"horizon_h": pl.Int32})
    labelled = rows.join(horizons, how="cross").with_columns(
        censored_by.alias("censored_by"), is_positive.alias("is_positive")
    )
    is_known = pl.col("censored_by").is_null()
    is_positive_known = pl.col("is_positive") & is_known
    return labelled.select(
        "entity_kind",
        "entity_id",
        "as_of",
        "horizon_h",
        pl.when(is_known).then(pl.col("is_positive").cast(pl.Int8)).alias("label"),
        pl.when(is_positive_known).then("fault_type").alias("fault_type"),
        pl.when(is_positive_known).then("incident_id").alias("incident_id"),
        "censored_by",
    ).sort("as_of", "entity_kind", "entity_id", "horizon_h")


def _moments(data_end: datetime) -> dict[str, pl.Expr]:
    """When each thing that decides a label happens, in the order of precedence at one moment."""
    as_of = pl.col("as_of")

    def begins(action: str) -> pl.Expr:
        is_open = (pl.col(f"{action}_until") > as_of).fill_null(value=False)
        return pl.when(is_open).then(as_of).otherwise(pl.col(f"{action}_next")).fill_null(_NEVER)

    return {
        "incident": pl.col("first").fill_null(_NEVER),
        "own_action": begins("own_action"),
        "maintenance": begins("maintenance"),
        "not_watched": pl.col("watched_until"),
        "data_end": pl.max_horizontal(pl.lit(data_end, UTC_TIME), as_of),
    }
