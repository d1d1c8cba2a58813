"""Features of repairs and outages: of a GPU, of its node, and who sits in the node now.

Incidents are counted in `features.history_features`. What our own actions did to a node is left
out, so that a drain by us is no reason for the next one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from features.contracts import UTC_TIME
from features.core_tables import CoreTables
from features.event_index import US_PER_DAY, EventIndex, ExposureIndex, Floats, Ints, group_codes
from features.history_rows import ENTITY
from features.registry import Feature, window_suffix

_US: Final = timedelta(microseconds=1)
_ALWAYS: Final = datetime(1, 1, 1, tzinfo=UTC)
_HOURS_PER_DAY: Final = 24.0

_REPAIRS: Final = ("incidents.end",)
_OUTAGES: Final = ("node_states.state", "node_states.valid_from", "node_states.valid_to")
_WORK: Final = ("maintenance.kind", "maintenance.start")
_STAYS: Final = ("inventory.node", "inventory.valid_from", "inventory.valid_to")


@dataclass(frozen=True, kw_only=True)
class RepairSpec:
    """Which features of repairs are built.

    Attributes:
        windows: Windows in which repairs, outages and planned work are counted.
    """

    windows: tuple[timedelta, ...] = (timedelta(30), timedelta(180))


def repair_features(spec: RepairSpec) -> tuple[Feature, ...]:
    """The features that `build_repairs` gives, in order."""
    features = [
        Feature(
            f"{name}_{window_suffix(window)}",
            "repair",
            unit,
            window,
            f"{words} in the last {window_suffix(window)}",
            inputs,
            availability,
        )
        for window in spec.windows
        for name, unit, words, inputs, availability in (
            ("own_repair_count", "1", "Repairs of this GPU", _REPAIRS, "0 without repairs"),
            ("node_outage_count", "1", "Times this node went down", _OUTAGES, "0 without outages"),
            ("node_outage_hours", "h", "Time this node was down", _OUTAGES, "0 without outages"),
            ("node_work_count", "1", "Times of planned work on this node", _WORK, "0 without work"),
        )
    ]
    return (*features, *_STANDING)


_STANDING: Final = tuple(
    Feature(name, "repair", unit, None, words, inputs, availability)
    for name, unit, words, inputs, availability in (
        (
            "own_days_since_repair",
            "d",
            "Time since the last repair of this GPU",
            _REPAIRS,
            "null before the first repair",
        ),
        (
            "node_days_since_outage",
            "d",
            "Time since this node came back from its last outage",
            _OUTAGES,
            "null before the first return",
        ),
        (
            "node_days_since_new_gpu",
            "d",
            "Time since a GPU was last put into this node",
            _STAYS,
            "null where no stay on the node has a known beginning",
        ),
        ("node_gpu_count", "1", "GPUs in this node", _STAYS, "0 without stays"),
        (
            "slot_number",
            "1",
            "Number of its slot",
            ("inventory.slot",),
            "null where the slot is not known or no number",
        ),
    )
)


def build_repairs(grid: pl.DataFrame, tables: CoreTables, *, spec: RepairSpec) -> pl.DataFrame:
    """Computes repair and outage features for every row of a grid.

    Args:
        grid: Rows with `entity_kind`, `entity_id`, `node`, `slot`, `as_of`.
        tables: Incidents, node states, maintenance and inventory are used. What began or ended
            strictly before `as_of` counts; an outage or stay that ends later is under way.
        spec: Which features.

    Returns:
        `entity_id`, `as_of` and one Float32 column per feature of `repair_features`, in the order
        of the grid.
    """
    as_of = _micros(grid["as_of"])
    down = tables.node_states.filter(pl.col("state") == "down", pl.col("valid_from").is_not_null())
    repairs = _Asked.of(grid, tables.incidents.drop_nulls("end"), key=ENTITY, time="end")
    outages = _Asked.of(grid, _edges(down, "valid_from"), key=("node",), time="valid_from")
    returns = _Asked.of(grid, _edges(down, "valid_to"), key=("node",), time="valid_to")
    planned = tables.maintenance.filter(pl.col("kind") == "maintenance")
    work = _Asked.of(grid, planned, key=("node",), time="start")
    codes, down_codes = group_codes(grid, down, key=("node",))
    downtime = ExposureIndex(down_codes, down)
    columns: dict[str, Floats] = {}
    for window in spec.windows:
        suffix, since = window_suffix(window), as_of - window // _US
        for name, asked in (
            ("own_repair_count", repairs),
            ("node_outage_count", outages),
            ("node_work_count", work),
        ):
            columns[f"{name}_{suffix}"] = asked.count(as_of) - asked.count(since)
        days = downtime.days(codes, as_of) - downtime.days(codes, since)
        columns[f"node_outage_hours_{suffix}"] = days * _HOURS_PER_DAY
    columns["own_days_since_repair"] = repairs.days_since(as_of)
    columns["node_days_since_outage"] = returns.days_since(as_of)
    columns |= _occupants(grid, tables.inventory)
    return grid.select("entity_id", "as_of").with_columns(
        pl.Series(feature.name, columns[feature.name], nan_to_null=True).cast(pl.Float32)
        for feature in repair_features(spec)
    )


@dataclass(frozen=True)
class _Asked:
    """Events with the groups that rows ask about."""

    index: EventIndex
    codes: Ints

    @classmethod
    def of(
        cls, rows: pl.DataFrame, events: pl.DataFrame, *, key: tuple[str, ...], time: str
    ) -> "_Asked":
        codes, event_codes = group_codes(rows, events, key=key)
        return cls(EventIndex(event_codes, _micros(events[time])), codes)

    def count(self, before: Ints) -> Floats:
        return self.index.count(self.codes, before).astype(np.float64)

    def days_since(self, before: Ints) -> Floats:
        return np.asarray((before - self.index.last_time(self.codes, before)) / US_PER_DAY)


def _edges(down: pl.DataFrame, edge: str) -> pl.DataFrame:
    """Intervals whose edge is that of the whole outage: no other one goes on from there."""
    other = "valid_to" if edge == "valid_from" else "valid_from"
    known = down.drop_nulls(edge)
    return known.join(down, left_on=["node", edge], right_on=["node", other], how="anti")


def _occupants(grid: pl.DataFrame, inventory: pl.DataFrame) -> dict[str, Floats]:
    """Who sits in the node, since when the last one has, and in which slot this one does."""
    as_of = _micros(grid["as_of"])
    key = ("node",)
    always = pl.col("valid_from").fill_null(pl.lit(_ALWAYS, UTC_TIME))
    begun = _Asked.of(grid, inventory.with_columns(always), key=key, time="valid_from")
    ended = _Asked.of(grid, inventory.drop_nulls("valid_to"), key=key, time="valid_to")
    put_in = _Asked.of(grid, inventory.drop_nulls("valid_from"), key=key, time="valid_from")
    slot = grid["slot"].cast(pl.Float64, strict=False)
    return {
        "node_days_since_new_gpu": put_in.days_since(as_of),
        "node_gpu_count": begun.count(as_of) - ended.count(as_of),
        "slot_number": slot.fill_null(np.nan).to_numpy(),
    }


def _micros(times: pl.Series) -> Ints:
    return times.dt.epoch("us").to_numpy().astype(np.int64)
