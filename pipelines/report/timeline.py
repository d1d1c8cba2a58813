"""The timeline of one GPU around its incident: score, the metrics that moved, health events.

The heat map is in `evidence`; which GPU is shown is the caller's choice.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from features.telemetry_metrics import METRICS, Metric
from pipelines.report.evidence import days, hatch_gaps, time_axis
from pipelines.report.figure import ALARM, BASELINES, INK, MODEL, MUTED, SHADE, Plot, draw
from pipelines.report.input import GpuTimeline
from pipelines.report.words import (
    counted,
    fault_words,
    hours,
    moment,
    percent,
    round_percent,
    short,
)

N_METRICS = 4
N_EVENT_ROWS = 6
_GAP_STEPS = 3
_NOT_SHOWN: Final = frozenset({"energy_j", "fb_free_mib"})
"""Energy says what power says, free memory what used memory says."""
_TWINS: Final = {"ecc_sbe_aggregate": "ecc_sbe_volatile", "ecc_dbe_aggregate": "ecc_dbe_volatile"}
"""Lifetime counts that grow with the count since reset: one of the two is enough."""
_SHOWN_AS: Final = {"degC": ("°C", 1.0), "us": ("s", 1e-6)}

FloatArray = npt.NDArray[np.float64]


def timeline_plot(timeline: GpuTimeline, *, lead: timedelta, horizon_h: int) -> Plot | None:
    """Stacked panels over one time axis.

    Args:
        timeline: What was seen of the GPU.
        lead: Minimum lead L.
        horizon_h: Horizon H of its scores, hours.

    Returns:
        The plot; None without telemetry and without scores.
    """
    telemetry = timeline.telemetry.sort("ts")
    scores = timeline.scores.sort("as_of")
    if telemetry.is_empty() and scores.is_empty():
        return None
    metrics = moving_metrics(telemetry, before=timeline.start)
    rows = _event_rows(timeline.health_events)
    heights = [1.5, *[1.0] * len(metrics), 0.35 + 0.26 * max(1, len(rows))]

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
        column = list(panels[:, 0])
        _paint_score(column[0], timeline, scores, lead=lead, horizon_h=horizon_h)
        for axes, metric in zip(column[1:-1], metrics, strict=True):
            _paint_metric(axes, telemetry, metric)
        _paint_events(column[-1], rows)
        for axes in column:
            axes.axvline(days(timeline.start), color=ALARM.light, linewidth=1.6)
        column[-1].set_xlim(*_limits(timeline))
        time_axis(column[-1])

    alt = _description(timeline, scores, metrics, len(rows))
    caption = (
        f"Red line: onset of the incident. Shaded: an alert in these "
        f"{counted(horizon_h, 'hour')}, no later than {hours(lead / timedelta(hours=1))} before "
        f"the onset, counts as caught. Hatched: no sample. Counters are shown as their increase."
    )
    size = (13.2, 1.0 + 1.15 * sum(heights))
    return Plot(draw("timeline", size_in=size, alt=alt, paint=paint), caption, 760)


def moving_metrics(telemetry: pl.DataFrame, *, before: datetime) -> tuple[Metric, ...]:
    """The metrics that changed most in the last quarter of the time before the onset.

    Args:
        telemetry: core/gpu_telemetry rows of one GPU, sorted by time.
        before: Onset; nothing at or after it decides.

    Returns:
        Up to four, in the order of `METRICS`.
    """
    seen = telemetry.filter(pl.col("ts") < before)
    change = {
        metric.column: _change(series(seen[metric.column], metric), metric)
        for metric in METRICS
        if metric.column in seen.columns
        and metric.kind != "state"
        and metric.column not in _NOT_SHOWN
    }
    moved = sorted(
        (n for n in change if change[n] > 0 and not change.get(_TWINS.get(n, ""), 0) > 0),
        key=lambda n: (-change[n], n),
    )
    return tuple(metric for metric in METRICS if metric.column in moved[:N_METRICS])


def _change(values: FloatArray, metric: Metric) -> float:
    if metric.kind == "counter":
        values = np.diff(values)
    cut = (3 * values.size) // 4
    early, late = values[:cut][~np.isnan(values[:cut])], values[cut:][~np.isnan(values[cut:])]
    if early.size < 2 or not late.size:
        return 0.0
    difference = abs(float(late.mean() - early.mean()))
    spread = float(early.std() + late.std())
    return difference / spread if spread > 0 else difference


def series(column: pl.Series, metric: Metric) -> FloatArray:
    """A metric as numbers to draw: NaN where unknown, counters as their increase over the view.

    Args:
        column: Values by rising time; null is unknown.
        metric: What they are; a counter that falls was reset and goes on from there.
    """
    values = column.cast(pl.Float64).to_numpy().astype(np.float64)
    if metric.kind != "counter":
        return values
    known = ~np.isnan(values)
    steps = np.diff(values[known], prepend=values[known][:1])
    grown = np.full(values.size, np.nan)
    grown[known] = np.cumsum(np.where(steps < 0, values[known], steps))
    return grown


def gaps(times: pl.Series) -> tuple[tuple[datetime, datetime], ...]:
    """Times between two samples that are more than three usual steps apart."""
    step = times.diff().drop_nulls().median()
    if not isinstance(step, timedelta):
        return ()
    return tuple((a, b) for a, b in pairwise(times) if b - a > _GAP_STEPS * step)


def _paint_score(
    axes: Axes, timeline: GpuTimeline, scores: pl.DataFrame, *, lead: timedelta, horizon_h: int
) -> None:
    last = timeline.start - lead
    first = last - timedelta(hours=horizon_h)
    axes.axvspan(days(first), days(last), color=SHADE.light, linewidth=0)
    values = scores["score"].cast(pl.Float64).to_numpy()
    axes.plot(
        _days_of(scores["as_of"]), values, color=MODEL.light, linewidth=2, drawstyle="steps-post"
    )
    tops = [float(np.nanmax(values))] if np.isfinite(values).any() else [0.01]
    if timeline.threshold is not None:
        axes.axhline(timeline.threshold, color=INK.light, linewidth=1, dashes=(4, 2))
        axes.annotate(
            f"alert at {percent(timeline.threshold)}",
            (0, timeline.threshold),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=10,
        )
        tops.append(1.15 * timeline.threshold)
    axes.set_ylim(0, 1.35 * max(tops))
    _label(axes, first, "alerts in here count", MUTED.light)
    _label(axes, timeline.start, "onset", ALARM.light)
    axes.yaxis.set_major_locator(_few_ticks())
    axes.yaxis.set_major_formatter(lambda share, _: round_percent(share))
    _title(axes, f"Score: an incident within {horizon_h} h, after the minimum lead")


def _label(axes: Axes, at: datetime, text: str, color: str) -> None:
    axes.annotate(
        text,
        (days(at), 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, -3),
        textcoords="offset points",
        va="top",
        fontsize=10,
        color=color,
    )


def _few_ticks(*, whole: Literal["yes", "no"] = "no") -> MaxNLocator:
    return MaxNLocator(nbins=3, min_n_ticks=2, integer=whole == "yes")


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=11, color=INK.light, pad=4)
    axes.tick_params(length=0)


def _paint_metric(axes: Axes, telemetry: pl.DataFrame, metric: Metric) -> None:
    unit, factor = _SHOWN_AS.get(metric.unit, (metric.unit, 1.0))
    values = factor * series(telemetry[metric.column], metric)
    holes = gaps(telemetry["ts"])
    hatch_gaps(axes, holes)
    times, values = _broken(telemetry["ts"], values, holes)
    axes.plot(times, values, color=BASELINES[4].light, linewidth=1.3)
    is_counter = metric.kind == "counter"
    axes.yaxis.set_major_locator(_few_ticks(whole="yes" if is_counter else "no"))
    axes.yaxis.set_major_formatter(lambda value, _: _amount(value))
    if is_counter:
        axes.set_ylim(bottom=0)
    _title(
        axes,
        f"{metric.meaning}: increase over this view, {unit}"
        if is_counter
        else f"{metric.meaning}, {unit}",
    )


def _amount(value: float) -> str:
    for size, sign in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:g}{sign}"
    return f"{value:,g}"


def _broken(
    times: pl.Series, values: FloatArray, holes: Sequence[tuple[datetime, datetime]]
) -> tuple[FloatArray, FloatArray]:
    """The line with a NaN inside every hole, so that nothing is drawn across it."""
    x = _days_of(times)
    at = np.searchsorted(x, [days(end) for _, end in holes])
    return np.insert(x, at, np.nan), np.insert(values, at, np.nan)


def _event_rows(events: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Health events by what they are, the most frequent first, in words."""
    named = events.sort("ts", "event_id").with_columns(
        pl.when(pl.col("code").is_not_null())
        .then(pl.format("{} {}", pl.col("kind").replace({"xid": "Xid", "sxid": "SXid"}), "code"))
        .otherwise("kind")
        .alias("name")
    )
    counts = (
        named.group_by("name")
        .agg(pl.col("count").sum())
        .sort(["count", "name"], descending=[True, False])
    )
    return [
        (f"{short(name, 22)} ({count:,})", named.filter(pl.col("name") == name))
        for name, count in counts.head(N_EVENT_ROWS).iter_rows()
    ]


def _paint_events(axes: Axes, rows: Sequence[tuple[str, pl.DataFrame]]) -> None:
    _title(axes, "Health events of the GPU and its node (lines logged)")
    axes.set_ylim(max(1, len(rows)) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.tick_params(axis="y", labelcolor=INK.light)
    for place, (_, events) in enumerate(rows):
        x = _days_of(events["ts"])
        axes.plot(x, [place] * len(x), "D", color=INK.light, markersize=5)
    if not rows:
        axes.annotate("none", (0.01, 0.5), xycoords="axes fraction", va="center", color=MUTED.light)


def _limits(timeline: GpuTimeline) -> tuple[float, float]:
    seen = [timeline.start, *timeline.telemetry["ts"], *timeline.scores["as_of"]]
    first, last = days(min(seen)), days(max(seen))
    room = 0.01 * max(last - first, 1e-3)
    return first - room, last + room


def _days_of(times: pl.Series) -> FloatArray:
    return np.asarray([days(at) for at in times], dtype=np.float64)


def _description(
    timeline: GpuTimeline, scores: pl.DataFrame, metrics: Sequence[Metric], n_events: int
) -> str:
    early = scores.filter(pl.col("as_of") < timeline.start)["score"].drop_nulls()
    highest = early.max()
    score = percent(highest) if isinstance(highest, float) else "unknown"
    names = ", ".join(metric.meaning for metric in metrics) or "none"
    return (
        f"Timeline of GPU {short(timeline.gpu_uuid, 40)} on {short(timeline.node, 40)} around a "
        f"{fault_words(timeline.fault_type)} incident at {moment(timeline.start)}. Highest score "
        f"before it: {score}. Metrics shown: {names}. {counted(n_events, 'kind')} of health events."
    )
