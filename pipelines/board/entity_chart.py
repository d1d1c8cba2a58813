"""The one chart of a node or GPU: scores, telemetry, events, jobs, incidents and states over time.

Which panels there are and what their bars say; drawing is in `pipelines.board.time_axis`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl
from markupsafe import Markup

from features.telemetry_metrics import METRIC_BY_COLUMN, METRICS, Metric
from pipelines.board.downsample import stretches
from pipelines.board.stored import Told
from pipelines.board.time_axis import N_BINS, Axis, Bar, Line, Panel, Row, Sign, draw
from pipelines.board.zone import Zone
from pipelines.report.timeline import series
from pipelines.report.words import counted, fault_words, percent, short
from pipelines.storage.store import Span

ALWAYS: Final = ("gpu_temp_c", "memory_temp_c", "power_w", "gpu_util_pct", "sm_clock_mhz")
"""Metrics shown whether they moved or not; the others only where they changed."""

CHART_COLUMNS: Final = tuple(
    metric.column
    for metric in METRICS
    if metric.column in ALWAYS or (metric.kind == "counter" and metric.column != "energy_j")
)
_MICROSECOND: Final = timedelta(microseconds=1)
_UNITS: Final = {"degC": "°C"}
_MOST_COUNTERS: Final = 6
_MOST_EVENT_ROWS: Final = 8
_MOST_LANES: Final = 6
_STATE_SIGNS: Final[dict[str, Sign]] = {"up": "ok", "drain": "own", "down": "bad"}


def entity_chart(
    told: Told, scores: pl.DataFrame, *, span: Span, zone: Zone, threshold: float | None
) -> Markup:
    """Everything known of an entity in a span, over one axis.

    Args:
        told: What is stored of it.
        scores: `as_of`, `score`; null is unknown. By rising time.
        span: The time shown.
        zone: Whose clocks label it.
        threshold: Alert threshold of nodes; None: not one of this kind.
    """
    starts = told.incidents["start"].to_list()
    marks = tuple((at, "incident") for at in starts if span.start <= at < span.end)
    axis = Axis(start=span.start, end=span.end, zone=zone, marks=marks)
    panels = [_score_panel(scores, span, threshold), *_metric_panels(told.telemetry)]
    panels += [_fact_panel(told), _event_panel(told), _job_panel(told)]
    alt = (
        f"Score, {counted(max(0, len(panels) - 4), 'metric')}, "
        f"{counted(told.n_events, 'event')}, {counted(told.jobs.height, 'job')} and "
        f"{counted(told.incidents.height, 'incident')} from {zone.text(span.start)} to "
        f"{zone.text(span.end)}. The tables below say the same."
    )
    return draw(axis, panels, alt=alt)


def _score_panel(scores: pl.DataFrame, span: Span, threshold: float | None) -> Panel:
    within = scores.filter((pl.col("as_of") >= span.start) & (pl.col("as_of") <= span.end))
    pieces: list[Any] = []
    # A gap is where ticks are missing, which the median of all of them tells, not of one run.
    usual = within["as_of"].diff().drop_nulls().median()
    longest = int(3 * usual / _MICROSECOND) if isinstance(usual, timedelta) else 0
    run = within.with_columns(run=pl.col("score").is_null().rle_id())
    for _, part in run.group_by("run", maintain_order=True):
        at = part["as_of"].to_physical().to_numpy()
        values = part["score"].cast(pl.Float64).to_numpy().astype(np.float64)
        pieces += stretches(at, values, n_bins=N_BINS, longest_step_us=longest)
    line = Line(tuple(pieces), is_steps=True, sign="sc")
    level = None if threshold is None else (threshold, f"alert from {percent(threshold)}")
    return Panel(
        "Score: probability of an incident within the horizon",
        lines=(line,) if pieces else (),
        height=96,
        level=level if pieces else None,
        is_share=True,
    )


def _metric_panels(telemetry: pl.DataFrame) -> list[Panel]:
    shown = [name for name in ALWAYS if name in telemetry.columns]
    moved = [
        metric.column
        for metric in METRICS
        if metric.kind == "counter"
        and metric.column in telemetry.columns
        and _has_grown(telemetry[metric.column], metric)
    ]
    return [_metric_panel(telemetry, METRIC_BY_COLUMN[n]) for n in shown + moved[:_MOST_COUNTERS]]


def _has_grown(values: pl.Series, metric: Metric) -> bool:
    grown = series(values, metric)
    return bool(np.nanmax(grown) > 0) if np.isfinite(grown).any() else False


def _metric_panel(telemetry: pl.DataFrame, metric: Metric) -> Panel:
    at = telemetry["ts"].to_physical().to_numpy()
    pieces = stretches(at, series(telemetry[metric.column], metric), n_bins=N_BINS)
    unit = _UNITS.get(metric.unit, metric.unit)
    rise = ": increase over this view" if metric.kind == "counter" else ""
    return Panel(f"{metric.meaning}{rise}, {unit}", lines=(Line(pieces),), height=56)


def _fact_panel(told: Told) -> Panel:
    rows = [
        Row("node", tuple(_state_bar(row) for row in told.states.iter_rows(named=True))),
        Row(
            "incident",
            tuple(
                Bar(row["start"], row["end"], f"{fault_words(row['fault_type'])}", "bad")
                for row in told.incidents.iter_rows(named=True)
            ),
        ),
    ]
    if told.maintenance.height:
        bars = (
            Bar(row["start"], row["end"], row["reason"] or row["kind"].replace("_", " "), "own")
            for row in told.maintenance.iter_rows(named=True)
        )
        rows.append(Row("work", tuple(bars)))
    if told.stays["gpu_uuid"].n_unique() == 1:
        stays = (
            Bar(row["valid_from"], row["valid_to"], f"in {row['node']}, slot {row['slot']}", "idle")
            for row in told.stays.iter_rows(named=True)
        )
        rows.append(Row("stay", tuple(stays)))
    return Panel("State, incidents, planned work and place", rows=tuple(rows))


def _state_bar(row: dict[str, Any]) -> Bar:
    text = ", ".join(part for part in (row["state"], row["reason"], row["actor"]) if part)
    return Bar(row["valid_from"], row["valid_to"], text, _STATE_SIGNS.get(row["state"], "unknown"))


def event_name(row: dict[str, Any]) -> str:
    """A health event's kind with its code.

    >>> event_name({"kind": "xid", "code": 79}), event_name({"kind": "off_bus", "code": None})
    ('Xid 79', 'off bus')
    """
    kind = {"xid": "Xid", "sxid": "SXid"}.get(row["kind"], str(row["kind"]).replace("_", " "))
    return kind if row["code"] is None else f"{kind} {row['code']}"


def _event_panel(told: Told) -> Panel:
    by_name: dict[str, list[tuple[datetime, str]]] = {}
    for row in told.events.iter_rows(named=True):
        words = f"{event_name(row)}, {counted(row['count'], 'line')}"
        by_name.setdefault(event_name(row), []).append((row["ts"], words))
    most = sorted(by_name.items(), key=lambda one: (-len(one[1]), one[0]))[:_MOST_EVENT_ROWS]
    rows = tuple(Row(name, moments=tuple(moments)) for name, moments in most)
    return Panel("Health events", rows=rows or (Row("none"),))


def _job_panel(told: Told) -> Panel:
    """Jobs in as many lanes as run at once; those that fit into none are in the table only."""
    lanes: list[list[Bar]] = []
    free_at: list[datetime | None] = []
    for row in told.jobs.iter_rows(named=True):
        bar = Bar(row["start"], row["end"], _job_words(row), "bad" if _failed(row) else "idle")
        place = next((i for i, end in enumerate(free_at) if _is_free(end, row["start"])), None)
        if place is not None:
            lanes[place].append(bar)
            free_at[place] = row["end"]
        elif len(lanes) < _MOST_LANES:
            lanes.append([bar])
            free_at.append(row["end"])
    rows = tuple(Row(f"jobs {i}" if i > 1 else "jobs", tuple(b)) for i, b in enumerate(lanes, 1))
    return Panel("Jobs on the node", rows=rows or (Row("none"),))


def _is_free(end: datetime | None, start: datetime | None) -> bool:
    return end is not None and start is not None and end <= start


def _failed(row: dict[str, Any]) -> bool:
    return row["cause"] is not None or row["end_state"] in ("FAILED", "NODE_FAIL", "TIMEOUT")


def _job_words(row: dict[str, Any]) -> str:
    parts: Sequence[Any] = (
        f"job {short(row['job_id'], 24)}",
        row["user"],
        None if row["n_gpus"] is None else f"{row['n_gpus']} GPUs",
        "running" if row["end"] is None else row["end_state"],
        row["cause"],
    )
    return ", ".join(str(part) for part in parts if part)
