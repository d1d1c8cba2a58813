"""Ranked pages of scores: filters, cursors, and rows as plain values.

The tick they are of is in `fleet_view`; routes are in `score_routes`.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pipelines.api.answers import ApiError
from pipelines.api.fleet_view import Kind, ScoreTable, Snapshot
from pipelines.api.score_rows import Rows

MOST_ROWS: Final = 1000
USUAL_ROWS: Final = 100
MOST_GPUS: Final = 256
"""GPUs of a node that are shown; no machine has as many."""

CURSOR: Final = r"[0-9a-f]{32}\.[a-z0-9-]{1,16}\.[0-9]{1,10}"
"""Form of a cursor: tag of the tick, list, place in it."""
BEGIN_AGAIN: Final = "another tick was published since; begin again with the first page"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which scores are asked for.

    Attributes:
        kind: Nodes or GPUs.
        horizon_h: Horizon; None: the first of the installation that is scored.
        node: Only of this node.
        rack: Only of this rack.
        status: Only of this status.
        fault_type: Only with this most probable fault type.
        min_score: Only known scores from there on.
        limit: Rows of a page.
        after: Cursor of the page before, of the form `CURSOR`.
    """

    kind: Kind = "node"
    horizon_h: int | None = None
    node: str | None = None
    rack: str | None = None
    status: str | None = None
    fault_type: str | None = None
    min_score: float | None = None
    limit: int = USUAL_ROWS
    after: str | None = None


def score_page(snapshot: Snapshot, wanted: Wanted, *, usual_h: int) -> dict[str, Any]:
    """A page of the ranking: highest scores first, unknown ones last, equal ones by name.

    Args:
        snapshot: The tick.
        wanted: Which rows.
        usual_h: The horizon where none is asked for.

    Returns:
        `kind`, `horizon_h`, `rows`, `n_total` (rows of the whole selection), `after` (null: no
        more).

    Raises:
        ApiError: There is no such horizon, or the cursor is of another list or tick.
    """
    horizon_h = usual_h if wanted.horizon_h is None else wanted.horizon_h
    table = snapshot.table(wanted.kind)
    if horizon_h not in table.ranking:
        scored = ", ".join(map(str, sorted(table.ranking))) or "none"
        raise ApiError(404, f"no {wanted.kind} is scored for {horizon_h} h; scored are: {scored}")
    what = f"{wanted.kind}-{horizon_h}h"
    chosen = _chosen(table, wanted, horizon_h=horizon_h)
    page, after = _page(snapshot, chosen, what=what, after=wanted.after, limit=wanted.limit)
    return {
        "kind": wanted.kind,
        "horizon_h": horizon_h,
        "n_total": len(chosen),
        "after": after,
        "rows": table.plain.rows(table.ranking[horizon_h][page]),
    }


def _chosen(table: ScoreTable, wanted: Wanted, *, horizon_h: int) -> Rows:
    """Places in the ranking that pass every filter, in order."""
    ranked = table.ranking[horizon_h]
    if wanted.min_score is not None:
        n_high = np.searchsorted(table.falling[horizon_h], -wanted.min_score, side="right")
        ranked = ranked[: int(n_high)]
    keeps = np.ones(len(ranked), dtype=bool)
    for name in ("node", "rack", "status", "fault_type"):
        value = getattr(wanted, name)
        if value is not None:
            keeps &= table.plain.texts[name].has(value)[ranked]
    return np.flatnonzero(keeps)


def _page(
    snapshot: Snapshot,
    places: Rows,
    *,
    what: str,
    after: str | None,
    limit: int,
) -> tuple[Rows, str | None]:
    """The places of a page, and the cursor of the next.

    Args:
        snapshot: The tick; a cursor of another one is refused.
        places: All places that are asked for, rising.
        what: The list they are places in.
        after: Cursor of the page before, of the form `CURSOR`.
        limit: Places of a page.
    """
    begin = 0
    if after is not None:
        if not re.fullmatch(CURSOR, after):
            raise ApiError(400, "after: not a cursor that was given; begin with the first page")
        etag, of, place = after.split(".")
        if etag != snapshot.etag:
            raise ApiError(410, f"after: {BEGIN_AGAIN}")
        if of != what:
            raise ApiError(400, f"after: a cursor of the list {of}, not of {what}")
        begin = int(place)
    rest = places[np.searchsorted(places, begin) :]
    page = rest[:limit]
    if len(rest) == len(page):
        return page, None
    return page, f"{snapshot.etag}.{what}.{int(page[-1]) + 1}"


def node_detail(snapshot: Snapshot, node: str) -> dict[str, Any]:
    """A node with its scores and those of its GPUs.

    Raises:
        ApiError: The tick does not have it.
    """
    scores = snapshot.nodes.plain.rows(snapshot.nodes.rows_of(node))
    gpus = snapshot.gpus.plain.rows(snapshot.gpus.rows_on(node))
    if not scores and not gpus:
        raise ApiError(404, "the newest tick has no node of this name")
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in gpus:
        grouped.setdefault(row["entity_id"], []).append(row)
    shown = list(grouped.items())[:MOST_GPUS]
    return {
        "node": node,
        **rack_of(snapshot, node),
        "scores": scores,
        "n_gpus": len(grouped),
        "gpus": [{"gpu_uuid": name, "scores": rows} for name, rows in shown],
    }


def gpu_detail(snapshot: Snapshot, gpu_uuid: str) -> dict[str, Any]:
    """A GPU with its scores.

    Raises:
        ApiError: The tick does not have it.
    """
    rows = snapshot.gpus.plain.rows(snapshot.gpus.rows_of(gpu_uuid))
    if not rows:
        raise ApiError(404, "the newest tick has no GPU of this name")
    node = rows[0]["node"]
    return {"gpu_uuid": gpu_uuid, "node": node, **rack_of(snapshot, node), "scores": rows}


def node_page(
    snapshot: Snapshot, *, rack: str | None, after: str | None, limit: int
) -> dict[str, Any]:
    """A page of the nodes by name, with the scores of each.

    Args:
        snapshot: The tick.
        rack: Only nodes of this rack.
        after: Cursor of the page before.
        limit: Nodes of a page.

    Raises:
        ApiError: The cursor is of another list or tick.
    """
    table = snapshot.nodes
    places = np.arange(len(table.ids), dtype=np.int64)
    if rack is not None:
        places = np.flatnonzero(table.plain.texts["rack"].has(rack)[table.first[:-1]])
    page, cursor = _page(snapshot, places, what="nodes", after=after, limit=limit)
    nodes = [table.ids[place] for place in page.tolist()]
    rows = [
        {
            "node": node,
            **rack_of(snapshot, node),
            "scores": table.plain.rows(table.rows_of(node)),
        }
        for node in nodes
    ]
    return {"n_total": len(places), "after": cursor, "rows": rows}


def rack_of(snapshot: Snapshot, node: str | None) -> dict[str, str | None]:
    """The rack of a node, or why it is unknown."""
    rack = None if node is None else snapshot.racks.get(node)
    why = snapshot.why_no_racks or "the topology does not have this node"
    return {"rack": rack, "why_no_rack": why if rack is None else None}
