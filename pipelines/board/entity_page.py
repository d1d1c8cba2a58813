"""The page of a node or a GPU: what is said of it now, and all that was seen of it over time.

Reading is in `pipelines.board.stored` and `history`; the chart is in `entity_chart`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from features.errors import DataError, ForewarnError
from pipelines.api.fleet_view import Snapshot
from pipelines.board.desk import Desk
from pipelines.board.entity_chart import CHART_COLUMNS, entity_chart, event_name
from pipelines.board.fleet_page import next_step
from pipelines.board.history import score_line
from pipelines.board.hook_view import HookView
from pipelines.board.stored import Told, told_of_gpu, told_of_node
from pipelines.board.words import KIND_WORDS, STATUS_WORDS, scores_age, told
from pipelines.board.zone import Zone
from pipelines.report.words import fault_words, hours, percent, plain
from pipelines.serving.score_database import Tick
from pipelines.serving.score_reader import EntityKind, alerts, outcomes
from pipelines.storage.store import Span

SPANS: Final[Mapping[str, tuple[str, timedelta]]] = {
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
}
MOST_ROWS: Final = 100
_LEDGER_ROWS: Final = 30


def entity_values(
    desk: Desk,
    *,
    kind: EntityKind,
    name: str,
    snapshot: Snapshot | None,
    horizon_h: int,
    span_name: str,
    zone: Zone,
    now: datetime,
) -> dict[str, Any] | None:
    """What the page shows; None: nobody knows the entity.

    Args:
        desk: What pages are made from.
        kind: Node or GPU.
        name: The entity.
        snapshot: The newest tick; None: nothing is published.
        horizon_h: Horizon of the history shown, hours.
        span_name: One of `SPANS`.
        zone: Whose clocks times are shown on.
        now: The present.
    """
    end = desk.sources.settings.data_end(now)
    span = Span(end - SPANS[span_name][1], end)
    rows = _rows(snapshot, kind, name)
    problems: list[str] = []
    node = name if kind == "node" else (rows["node"][0] if rows.height else None)
    stored = _stored(desk, kind=kind, name=name, node=node, span=span, problems=problems)
    if rows.is_empty() and stored is None:
        raise DataError(problems[0])  # whether there is such an entity, nobody knows
    if rows.is_empty() and stored is not None and stored.stays.is_empty():
        return None
    if stored is not None and kind == "gpu" and node is None:
        node = stored.stays["node"][-1]
    line = _line(desk, kind, name, horizon_h=horizon_h, span=span, problems=problems)
    hook = desk.hook(now)
    tick = None if snapshot is None else snapshot.tick
    threshold = _threshold(tick, horizon_h) if kind == "node" else None
    return {
        "kind": kind,
        "name": name,
        "node": node,
        "horizon_h": horizon_h,
        "span_name": span_name,
        "spans": [(key, words) for key, (words, _) in SPANS.items()],
        "problems": problems,
        **_now_values(snapshot, rows, node, now),
        **_seen_values(stored, line, span=span, zone=zone, threshold=threshold),
        **_hook_values(desk, hook, node if kind == "node" else None, tick, zone, now),
        **_records(desk, node if kind == "node" else None, problems),
        **_gpu_values(snapshot, name if kind == "node" else None, horizon_h),
    }


def _rows(snapshot: Snapshot | None, kind: EntityKind, name: str) -> pl.DataFrame:
    if snapshot is None:
        return pl.DataFrame(schema={"node": pl.String})
    return snapshot.node_rows(name) if kind == "node" else snapshot.gpu_rows(name)


def _stored(
    desk: Desk, *, kind: EntityKind, name: str, node: str | None, span: Span, problems: list[str]
) -> Told | None:
    def read() -> Told:
        if kind == "node":
            return told_of_node(desk.store, name, span=span)
        return told_of_gpu(desk.store, name, node=node, span=span, columns=CHART_COLUMNS)

    try:
        return desk.reads.read(("told", kind, name, node, span.end - span.start), read)
    except (ForewarnError, OSError, PolarsError) as error:
        problems.append(f"The stored tables cannot be read: {error}")
        return None


def _line(
    desk: Desk, kind: EntityKind, name: str, *, horizon_h: int, span: Span, problems: list[str]
) -> pl.DataFrame:
    try:
        return score_line(desk, kind=kind, entity_id=name, horizon_h=horizon_h, span=span)
    except (ForewarnError, OSError, PolarsError) as error:
        problems.append(f"The score history cannot be read: {error}")
        return pl.DataFrame(schema={"as_of": pl.Datetime("us", "UTC"), "score": pl.Float64})


def _threshold(tick: Tick | None, horizon_h: int) -> float | None:
    """The score above which nodes are alerted on; None: the tick has no policy for it."""
    policy = None if tick is None else tick.policies.get(horizon_h)
    return None if policy is None else policy.threshold


def _now_values(
    snapshot: Snapshot | None, rows: pl.DataFrame, node: str | None, now: datetime
) -> dict[str, Any]:
    """What the newest tick says."""
    tick = None if snapshot is None else snapshot.tick
    return {
        "snapshot": snapshot,
        "rack": None if snapshot is None or node is None else snapshot.racks.get(node),
        "warning": "" if tick is None else scores_age(tick.as_of, tick.expires_at, now)[2],
        "scores": [_score(row) for row in rows.iter_rows(named=True)],
    }


def _seen_values(
    stored: Told | None, line: pl.DataFrame, *, span: Span, zone: Zone, threshold: float | None
) -> dict[str, Any]:
    """What was seen over the span, as a chart and as text."""
    found: dict[str, Any] = {"chart": None, "tables": None, "line": _summary(line)}
    if stored is not None:
        found["chart"] = entity_chart(stored, line, span=span, zone=zone, threshold=threshold)
        found["tables"] = _tables(stored)
    return found


def _score(row: dict[str, Any]) -> dict[str, Any]:
    fault = None if row["fault_type"] is None else fault_words(row["fault_type"])
    share = row["fault_probability"]
    return {
        "horizon": hours(row["horizon_h"]),
        "probability": percent(row["score"]),
        "status": STATUS_WORDS.get(row["status"], row["status"]),
        "why": plain(row["status_reason"]) if row["status_reason"] else "",
        "fault": fault if fault is None or share is None else f"{fault} ({percent(share)})",
        "reasons": [plain(one) for one in row["reasons"] or ()],
        "missing": percent(row["missing_share"]),
        "model": row["model_version"],
    }


def _summary(line: pl.DataFrame) -> list[dict[str, Any]]:
    """The history as text: per day the lowest and the highest score, and how often unknown."""
    days = line.group_by_dynamic("as_of", every="1d").agg(
        low=pl.col("score").min(),
        high=pl.col("score").max(),
        n=pl.len(),
        n_unknown=pl.col("score").null_count(),
    )
    return [
        {
            "day": row["as_of"],
            "low": percent(row["low"]),
            "high": percent(row["high"]),
            "n": row["n"],
            "n_unknown": row["n_unknown"],
        }
        for row in days.sort("as_of", descending=True).iter_rows(named=True)
    ]


def _tables(stored: Told) -> dict[str, Any]:
    newest = stored.jobs.sort("start", descending=True).head(MOST_ROWS)
    return {
        "incidents": [
            {**row, "fault": fault_words(row["fault_type"]), "evidence": plain(row["evidence"])}
            for row in stored.incidents.sort("start", descending=True).iter_rows(named=True)
        ],
        "events": [
            {**row, "name": event_name(row), "message": plain(row["message"] or "")}
            for row in stored.events.head(MOST_ROWS).iter_rows(named=True)
        ],
        "n_events": stored.n_events,
        "jobs": newest.to_dicts(),
        "n_jobs": stored.jobs.height,
        "stays": stored.stays.to_dicts(),
        "states": stored.states.sort("valid_from", descending=True).to_dicts(),
    }


def _hook_values(
    desk: Desk,
    hook: HookView,
    node: str | None,
    tick: Tick | None,
    zone: Zone,
    now: datetime,
) -> dict[str, Any]:
    if node is None:
        return {"next": None, "is_held": False, "pending": ()}
    return {
        "next": next_step(node, hook, tick=tick, now=now),
        "is_held": node in hook.view.held,
        "pending": desk.asked.follow(hook.outcomes, now=now, zone=zone, node=node),
    }


def _records(desk: Desk, node: str | None, problems: list[str]) -> dict[str, Any]:
    """Ledger and past alerts of a node; what cannot be read is named, for it is not none."""
    found: dict[str, Any] = {"entries": [], "alerts": []}
    if node is None:
        return found
    for name, words, read in (
        ("entries", "The hook's ledger", _entries),
        ("alerts", "Past alerts", _alerts),
    ):
        try:
            found[name] = read(desk, node)
        except (ForewarnError, OSError) as error:
            problems.append(f"{words} cannot be read: {error}")
    return found


def _entries(desk: Desk, node: str) -> list[dict[str, Any]]:
    found = desk.sources.ledger.entries(node=node, limit=_LEDGER_ROWS)
    return [
        {
            "at": one.recorded_at,
            "kind": KIND_WORDS.get(one.kind, one.kind),
            "actor": one.actor,
            "words": plain(told(one.body, one.kind)),
        }
        for one in found
    ]


def _alerts(desk: Desk, node: str) -> list[dict[str, Any]]:
    """Past alerts with what became of them; an alert without outcome is still open."""
    raised = alerts(desk.sources.engine, node=node, limit=MOST_ROWS)
    became = outcomes(desk.sources.engine, node=node, limit=MOST_ROWS)
    keys = ["node", "as_of", "horizon_h", "model_version"]
    joined = raised.join(became.select(*keys, "outcome", "lead_h"), on=keys, how="left")
    return joined.sort("as_of", descending=True).to_dicts()


def _gpu_values(snapshot: Snapshot | None, node: str | None, horizon_h: int) -> dict[str, Any]:
    if snapshot is None or node is None:
        return {"gpus": []}
    rows = snapshot.gpus_of(node).filter(pl.col("horizon_h") == horizon_h)
    ranked = rows.sort("score", descending=True, nulls_last=True)
    return {
        "gpus": [{**_score(row), "gpu": row["entity_id"]} for row in ranked.iter_rows(named=True)]
    }
