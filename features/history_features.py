"""Features from what happened before: incidents and stays of a GPU, its node, places and batch.

Nothing is known here of telemetry, and nothing at or after `as_of` is looked at: incidents and
stays count when they began before `as_of`, the end of a stay when it lay before `as_of`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.contracts import UTC_TIME
from features.errors import DataError
from features.event_index import US_PER_DAY, EventIndex, ExposureIndex, Floats, group_codes
from features.history_rows import (
    ENTITY,
    current_stay,
    known_stays,
    past_incidents,
    place_column,
    with_batch,
    with_places,
)
from features.history_scopes import (
    SCOPES,
    CountSpec,
    micros,
    scope_features,
    scope_history,
    scope_keys,
)
from features.registry import Feature

_WITHOUT_STAY: Final = "null without a stay of known beginning"
_WITHOUT_PREVIOUS: Final = "null without an ended stay before this one"


@dataclass(frozen=True, kw_only=True)
class HistorySpec:
    """Which history is looked at.

    Attributes:
        windows: Windows in which incidents are counted, shortest first; the rate uses the last.
        scopes: Groups beside the levels of the topology, out of `SCOPES`.
        levels: Levels to count in; None: all that the topology has.
        ordinal_levels: Levels whose places are whole numbers with a meaning in their order
            (cage 0 is the lowest); each gives the number itself as a feature.
        repeat_gap: An incident closer than this to the same entity's one before is not counted,
            so that one bad unit with a hundred repeats does not stand for its whole row.
        weeks: Weeks in which incidents of the same day of the week are counted; 0: none. For
            horizons of about a day.
        known_after: How long after its start an incident is known to be one, where a rule decides
            that by what follows.

    Raises:
        DataError: No window, a window that is not positive, or an unknown scope.
    """

    windows: tuple[timedelta, ...] = (timedelta(7), timedelta(30), timedelta(180))
    scopes: tuple[str, ...] = ("own", "slot", "node", "batch", "fleet")
    levels: tuple[str, ...] | None = None
    ordinal_levels: tuple[str, ...] = ()
    repeat_gap: timedelta = timedelta(0)
    weeks: int = 0
    known_after: timedelta = timedelta(0)

    @property
    def counting(self) -> CountSpec:
        """How the incidents of a group are counted."""
        return CountSpec(windows=self.windows, weeks=self.weeks)

    def __post_init__(self) -> None:
        if not self.windows or min(self.windows) <= timedelta(0):
            raise DataError(
                f"history spec: windows must be one or more positive lengths, got {self.windows}."
            )
        unknown = sorted(set(self.scopes) - set(SCOPES))
        if unknown:
            raise DataError(
                f"history spec: unknown scope {', '.join(unknown)}; choose from "
                f"{', '.join(SCOPES)}. Levels of the topology go into `levels`."
            )


def history_levels(topology: pl.DataFrame, spec: HistorySpec) -> tuple[str, ...]:
    """The levels that are counted in: those of the spec, or all that the topology has, sorted."""
    if spec.levels is not None:
        return spec.levels
    return tuple(sorted(topology["level"].unique().to_list()))


def history_features(spec: HistorySpec, levels: Sequence[str]) -> tuple[Feature, ...]:
    """The features that `build_history` gives, in order.

    Args:
        spec: Which history is looked at.
        levels: Levels that are counted in; see `history_levels`.

    Returns:
        For each scope and level what `features.history_scopes` counts; then the GPU's own record,
        its stays, and its place.
    """
    features: list[Feature] = []
    for scope in scope_keys(spec.scopes, levels):
        features += scope_features(scope, spec.counting)
    return (*features, *_OWN_FEATURES, *_STAY_FEATURES, *map(_place_feature, spec.ordinal_levels))


def build_history(
    grid: pl.DataFrame,
    *,
    incidents: pl.DataFrame,
    inventory: pl.DataFrame,
    topology: pl.DataFrame,
    spec: HistorySpec,
) -> pl.DataFrame:
    """Computes history, stay and place features for every row of a grid.

    Args:
        grid: Rows with `entity_kind`, `entity_id`, `node`, `slot`, `as_of`, all of one kind; of
            nodes, a stay is the time in which any GPU was in the node.
        incidents: core/incidents; those with `start < as_of` count.
        inventory: core/inventory; stays with `valid_from < as_of` count, their end only where
            `valid_to < as_of`. Stays without a known beginning give no age and no exposure.
        topology: core/topology; the place known just before `as_of`.
        spec: Which history is looked at.

    Returns:
        `entity_id`, `as_of` and one Float32 column per feature of `history_features`, in the
        grid's order. Null: the group is unknown, or nothing of the kind has happened yet.
    """
    levels = history_levels(topology, spec)
    placed = sorted({*levels, *spec.ordinal_levels})
    is_node = (grid["entity_kind"] == "node").any()
    stays = known_stays(inventory, entity_kind="node" if is_node else "gpu")
    past = past_incidents(
        incidents, stays, repeat_gap=spec.repeat_gap, known_after=spec.known_after
    )
    rows = with_places(with_batch(grid, stays, at="as_of"), topology, levels=placed, at="as_of")
    past = with_places(past, topology, levels=placed, at="start")
    stays = with_places(stays, topology, levels=placed, at="valid_from")
    columns: dict[str, Floats] = {}
    for scope, key in scope_keys(spec.scopes, levels).items():
        found = scope_history(key, rows=rows, past=past, stays=stays, spec=spec.counting)
        columns |= {f"{scope}_{name}": values for name, values in found.items()}
    columns |= _own_record(rows, past=past, stays=stays)
    columns |= _stay_record(rows, stays)
    for level in spec.ordinal_levels:
        number = rows[place_column(level)].cast(pl.Float64, strict=False)
        columns[_place_feature(level).name] = number.fill_null(np.nan).to_numpy()
    return rows.select("entity_id", "as_of").with_columns(
        pl.Series(feature.name, columns[feature.name], nan_to_null=True).cast(pl.Float32)
        for feature in history_features(spec, levels)
    )


_OWN_INPUTS: Final = ("incidents.start", "inventory.valid_from")
_OWN_FEATURES: Final = tuple(
    Feature(name, "history", "1", None, meaning, _OWN_INPUTS, availability)
    for name, meaning, availability in (
        ("own_incident_count", "Incidents of this GPU, ever", "0 without incidents"),
        (
            "own_incident_count_in_stay",
            "Incidents of this GPU since it was put into this node",
            f"0 without incidents; {_WITHOUT_STAY}",
        ),
    )
)

_STAY_INPUTS: Final = ("inventory.valid_from", "inventory.valid_to")
_STAY_FEATURES: Final = tuple(
    Feature(name, "stay", unit, None, meaning, _STAY_INPUTS, availability)
    for name, unit, meaning, availability in (
        ("age_days", "d", "Time since this GPU was first seen", _WITHOUT_STAY),
        (
            "cohort_days",
            "d",
            "When this GPU was first seen, from the first of the fleet",
            _WITHOUT_STAY,
        ),
        ("stay_age_days", "d", "Time since this GPU was put into this node", _WITHOUT_STAY),
        ("earlier_stay_count", "1", "Earlier stays of this GPU", _WITHOUT_STAY),
        ("previous_stay_days", "d", "Length of the stay before this one", _WITHOUT_PREVIOUS),
        (
            "idle_before_stay_days",
            "d",
            "Time between the stay before and this one",
            _WITHOUT_PREVIOUS,
        ),
        ("watched_days", "d", "Time this GPU has been in any node", _WITHOUT_STAY),
        ("node_stay_count", "1", "GPUs put into this node so far", "0 without stays"),
    )
)


def _place_feature(level: str) -> Feature:
    return Feature(
        f"{level}_number",
        "structural",
        "1",
        None,
        f"Number of its {level}",
        ("topology.place",),
        "null where the place is not known or no number",
    )


def _own_record(
    rows: pl.DataFrame, *, past: pl.DataFrame, stays: pl.DataFrame
) -> dict[str, Floats]:
    """Incidents of the entity, ever and since its present stay began."""
    codes, past_codes = group_codes(rows, past, key=ENTITY)
    index = EventIndex(past_codes, micros(past["start"]))
    total = index.count(codes, micros(rows["as_of"])).astype(np.float64)
    since = current_stay(rows, stays)["valid_from"]
    earlier = index.count(codes, since.dt.epoch("us").fill_null(0).to_numpy())
    in_stay = np.where(since.is_null().to_numpy(), np.nan, total - earlier)
    return {"own_incident_count": total, "own_incident_count_in_stay": in_stay}


def _stay_record(rows: pl.DataFrame, stays: pl.DataFrame) -> dict[str, Floats]:
    """Age, stays and moves of the entity, and how many GPUs its node has had."""
    moment, since, first = pl.col("as_of"), pl.col("valid_from"), pl.col("first_seen")
    # The end of the stay before is known only where it lay before as_of.
    ended = pl.when(pl.col("previous_to") < moment).then("previous_to")
    spans = {
        "age_days": moment - first,
        "cohort_days": first - pl.lit(stays["valid_from"].min(), UTC_TIME),
        "stay_age_days": moment - since,
        "previous_stay_days": ended - pl.col("previous_from"),
        "idle_before_stay_days": since - ended,
    }
    record = current_stay(rows, stays).select(
        pl.col("earlier").cast(pl.Float64).alias("earlier_stay_count"),
        *((span.dt.total_microseconds() / US_PER_DAY).alias(name) for name, span in spans.items()),
    )
    columns = {name: record[name].fill_null(np.nan).to_numpy() for name in record.columns}
    as_of = micros(rows["as_of"])
    codes, stay_codes = group_codes(rows, stays, key=ENTITY)
    watched = ExposureIndex(stay_codes, stays).days(codes, as_of)
    columns["watched_days"] = np.where(record["age_days"].is_null().to_numpy(), np.nan, watched)
    codes, stay_codes = group_codes(rows, stays, key=("node",))
    count = ExposureIndex(stay_codes, stays).begun(codes, as_of)
    columns["node_stay_count"] = np.where(codes >= 0, count, np.nan)
    return columns
