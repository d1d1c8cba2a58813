"""Builds the cluster's state at a past moment from core tables, for the demo and for replays.

A live scheduler is read elsewhere; nothing at or after the moment is looked at.
"""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import polars as pl

from features.tables import CORE_INVENTORY
from remediation.cluster.state import ClusterState, JobView, NodeState, NodeView

# Where two intervals overlap, the one that forbids more counts.
_STRENGTH: Final = {"up": 0, "unknown": 1, "drain": 2, "down": 3}


@dataclass(frozen=True, kw_only=True)
class FrameClusterReader:
    """Reads the state at `as_of` from core tables.

    What the tables do not hold (boot id, checkpoint age, remaining time, requeue) is unknown.

    Attributes:
        as_of: The moment; a row counts if it started before it and had not ended by it.
        node_states: core/node_states.
        jobs: core/jobs.
        topology: core/topology.
        inventory: core/inventory; counts a node's GPUs.
        rack_level: Topology level that is the rack.
        switch_level: Topology level that is the leaf switch.
        partition_level: Topology level that is the partition or pool.
        state_without_record: State of a node that no interval covers. "up" only where the source
            records nothing but trouble.
    """

    as_of: datetime
    node_states: pl.DataFrame
    jobs: pl.DataFrame
    topology: pl.DataFrame
    inventory: pl.DataFrame = field(default_factory=CORE_INVENTORY.empty)
    rack_level: str = "rack"
    switch_level: str = "switch"
    partition_level: str = "pool"
    state_without_record: NodeState = "unknown"

    def read(self) -> ClusterState:
        """The state at `as_of`; the same each time."""
        return self._state

    @cached_property
    def _state(self) -> ClusterState:
        open_states = self._valid(self.node_states, ordered=True)
        places = self._valid(self.topology)
        stays = self._valid(self.inventory)
        gpus = dict(stays.group_by("node").agg(pl.col("gpu_uuid").n_unique()).iter_rows())
        states = _strongest(open_states)
        # A node known only by an ended interval is still a node: its state is without record.
        known = self.node_states.filter(_from(self.as_of))["node"]
        names = sorted({*known, *places["node"], *gpus})
        by_level = {
            level: _places(places, level)
            for level in (self.rack_level, self.switch_level, self.partition_level)
        }
        nodes = tuple(
            NodeView(
                name=name,
                state=states.get(name, {}).get("state", self.state_without_record),
                reason=states.get(name, {}).get("reason"),
                actor=states.get(name, {}).get("actor"),
                rack=next(iter(by_level[self.rack_level].get(name, ())), None),
                switch=next(iter(by_level[self.switch_level].get(name, ())), None),
                partitions=by_level[self.partition_level].get(name, ()),
                n_gpus=gpus.get(name),
            )
            for name in names
        )
        return ClusterState(as_of=self.as_of, nodes=nodes, jobs=self._jobs())

    def _valid(self, frame: pl.DataFrame, *, ordered: bool = False) -> pl.DataFrame:
        ended = pl.col("valid_to") <= self.as_of
        found = frame.filter(_from(self.as_of), ~ended.fill_null(value=False))
        return found.sort("node", "valid_from", nulls_last=False) if ordered else found

    def _jobs(self) -> tuple[JobView, ...]:
        ended = (pl.col("end") <= self.as_of).fill_null(value=False)
        running = self.jobs.filter(
            pl.col("start") < self.as_of, ~ended, pl.col("nodes").list.len() > 0
        ).sort("job_id", "attempt")
        return tuple(
            JobView(
                job_id=row["job_id"],
                nodes=tuple(row["nodes"]),
                n_gpus=row["n_gpus"],
                start=row["start"],
                user=row["user"],
                partition=row["partition"],
            )
            for row in running.iter_rows(named=True)
        )


def _from(as_of: datetime) -> pl.Expr:
    """Rows that had begun before `as_of`; an unknown begin lies before the record."""
    return (pl.col("valid_from") < as_of).fill_null(value=True)


def _strongest(states: pl.DataFrame) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in states.iter_rows(named=True):
        before = found.get(row["node"])
        if before is None or _STRENGTH[row["state"]] >= _STRENGTH[before["state"]]:
            found[row["node"]] = row
    return found


def _places(places: pl.DataFrame, level: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    at_level = places.filter(pl.col("level") == level).sort("node", "place")
    for node, place in at_level.select("node", "place").iter_rows():
        found[node] = (*found.get(node, ()), place)
    return found
