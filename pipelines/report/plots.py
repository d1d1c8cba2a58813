"""The plots that say how far to trust the scores: precision-recall, reliability, lead times.

Heat map and timeline are in `evidence`; nothing here is computed but what is drawn.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from models.evaluation.event_metrics import EventMetrics
from models.evaluation.intervals import wilson
from models.evaluation.row_metrics import CurvePoint, ReliabilityBin
from pipelines.report.figure import ALARM, BASELINES, INK, MODEL, MUTED, SHADE, Plot, draw
from pipelines.report.input import Method
from pipelines.report.words import counted, hours, number, percent, round_percent, short

FloatArray = npt.NDArray[np.float64]

_WIDTH_IN = 5.2
_SIZE_IN = (_WIDTH_IN, 4.1)
_MIN_WIDTH_PX = 300
_DASHES = ((5.0, 2.0), (1.5, 1.5), (7.0, 2.0, 1.5, 2.0), (3.0, 1.2), (9.0, 3.0))
_NAME_SIGNS = 32
_SETTLED_AT = 5
_PERCENT = FuncFormatter(lambda share, _: round_percent(share))


def precision_recall_plot(
    methods: Sequence[Method], *, threshold: float | None, recall_ceiling: float | None = None
) -> Plot | None:
    """Precision against recall, the model and the baselines that rank best.

    Args:
        methods: Methods with curves; those without are left out.
        threshold: The model's alert threshold, marked on its curve.
        recall_ceiling: Share of failures that announce themselves, where known.

    Returns:
        The plot; None without any curve.
    """
    drawn = _methods_drawn(methods)
    if not drawn:
        return None
    prevalence = drawn[0].rows.prevalence or 0.0
    names = ", ".join(
        f"{short(method.name, 60)} {number(method.rows.average_precision.value)}"
        for method in drawn
    )
    alt = (
        f"Precision against recall. Average precision: {names}. "
        f"No skill would give {number(prevalence)}."
    )

    caption = (
        "Each line: all rows at or above a falling threshold count as flagged. Higher is better; "
        "AP is the area under a line."
    )
    size = (_WIDTH_IN, 3.9 + 0.19 * (len(drawn) + 2))
    svg = draw(
        "pr",
        size_in=size,
        alt=alt,
        paint=partial(
            _paint_curves,
            drawn=drawn,
            threshold=threshold,
            prevalence=prevalence,
            recall_ceiling=recall_ceiling,
        ),
    )
    return Plot(svg, caption, _MIN_WIDTH_PX)


def _paint_curves(
    figure: Figure,
    *,
    drawn: Sequence[Method],
    threshold: float | None,
    prevalence: float,
    recall_ceiling: float | None,
) -> None:
    axes = figure.subplots()
    tops = [_draw_curve(axes, method, _style(drawn, method)) for method in drawn]
    axes.axhline(prevalence, color=MUTED.light, linewidth=1.0)
    label = f"no skill: {percent(prevalence)} of rows"
    axes.plot([], [], color=MUTED.light, linewidth=1.0, label=label)
    if recall_ceiling is not None:
        words = f"recall ceiling: {percent(recall_ceiling)} of failures announce themselves"
        axes.axvline(recall_ceiling, color=ALARM.light, linewidth=1.2, dashes=(4, 2), label=words)
    point = _point_at(drawn[0], threshold)
    if point is not None:
        axes.plot(
            [point.recall],
            [point.precision],
            linestyle="none",
            marker="o",
            markersize=8,
            markerfacecolor=MODEL.light,
            markeredgecolor=INK.light,
            label="alert threshold",
        )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, min(1.02, 1.12 * max([*tops, 2 * prevalence, 0.05])))
    axes.set_xlabel("Recall: share of positive rows found")
    axes.set_ylabel("Precision: share that is right")
    axes.xaxis.set_major_formatter(_PERCENT)
    axes.yaxis.set_major_formatter(_PERCENT)
    _legend_below(figure)


def _methods_drawn(methods: Sequence[Method]) -> list[Method]:
    """The model, then the baselines with the best average precision, as many as are told apart."""
    with_curve = [method for method in methods if method.rows.curve]
    model = [method for method in with_curve if method.role == "model"][:1]
    baselines = sorted(
        (method for method in with_curve if method.role == "baseline"),
        key=lambda method: -(method.rows.average_precision.value or 0.0),
    )
    return model + baselines[: len(BASELINES)]


def _style(drawn: Sequence[Method], method: Method) -> dict[str, Any]:
    if method.role == "model":
        return {"color": MODEL.light, "linewidth": 2.6, "zorder": 3}
    place = [other for other in drawn if other.role == "baseline"].index(method)
    return {"color": BASELINES[place].light, "dashes": _DASHES[place]}


def _draw_curve(axes: Axes, method: Method, style: dict[str, Any]) -> float:
    """Draws one curve and returns the height worth showing.

    The first rows of a ranking swing between 0 and 1 by chance: the line is flat up to the
    point where it rests on five positives.
    """
    points = method.rows.curve
    found = method.rows.n_positive
    settled = [p for p in points if p.recall * found >= _SETTLED_AT - 0.5] or list(points)
    label = f"{short(method.name, _NAME_SIGNS)}, AP {number(method.rows.average_precision.value)}"
    axes.plot(
        [0.0, *(p.recall for p in settled)],
        [settled[0].precision, *(p.precision for p in settled)],
        drawstyle="steps-pre",
        label=label,
        **style,
    )
    return max(p.precision for p in settled)


def _point_at(method: Method, threshold: float | None) -> CurvePoint | None:
    """The lowest point of the model's curve at or above the threshold."""
    if method.role != "model" or threshold is None:
        return None
    reached = [point for point in method.rows.curve if point.threshold >= threshold]
    return reached[-1] if reached else None


def _legend_below(figure: Figure, columns: int = 1) -> None:
    figure.legend(
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=10,
        labelcolor=INK.light,
        handlelength=2.6,
        columnspacing=1.2,
        borderpad=0.2,
    )


def reliability_plot(bins: Sequence[ReliabilityBin]) -> Plot | None:
    """What was said against what came, on logarithmic axes where scores span decades.

    Args:
        bins: Bins of rows of similar score.

    Returns:
        The plot; None without bins.
    """
    if not bins:
        return None
    worst = max(bins, key=lambda b: abs(b.rate - b.mean_score))
    alt = (
        f"Reliability in {counted(len(bins), 'bin')} of equal size. Largest gap: a mean score of "
        f"{percent(worst.mean_score)} where {percent(worst.rate)} came."
    )
    caption = (
        "Points on the line: a score of 10 % means 10 in 100. Below it the score promises too "
        "much. Bars: 95 % interval as if rows were independent, so the true ones are wider. "
        "A hollow triangle at the bottom is a bin that no incident followed."
    )
    svg = draw(
        "reliability", size_in=_SIZE_IN, alt=alt, paint=partial(_paint_reliability, bins=bins)
    )
    return Plot(svg, caption, _MIN_WIDTH_PX)


def _paint_reliability(figure: Figure, *, bins: Sequence[ReliabilityBin]) -> None:
    lowest = min((b.mean_score for b in bins if b.mean_score > 0), default=1.0)
    highest = max(max(b.mean_score, b.rate) for b in bins)
    is_log = lowest > 0 and highest / lowest > 30
    axes = figure.subplots()
    bounds = [wilson(round(b.rate * b.n_rows), b.n_rows) for b in bins]
    floor = _decade_below(bins) if is_log else 0.0
    top = min(1.0, 1.25 * max(highest, 8 * floor, *(high for _, high in bounds)))
    if is_log:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.plot([floor, top], [floor, top], color=MUTED.light, linewidth=1.0, label="true score")
    _draw_bins(axes, bins, bounds, floor)
    axes.set_xlim(floor, top)
    axes.set_ylim(floor, top)
    for axis in (axes.xaxis, axes.yaxis):
        if is_log:
            axis.set_major_locator(FixedLocator(_decade_ticks(floor, top)))
            axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(_PERCENT)
    axes.set_xlabel("Score: what was said (mean of the bin)")
    axes.set_ylabel("What came: share followed by an incident")
    mark: dict[str, Any] = {
        "linestyle": "none",
        "marker": "o",
        "color": MODEL.light,
        "markersize": 7,
    }
    axes.plot([], [], label="a tenth of all rows", **mark)
    _legend_below(figure, columns=2)


def _draw_bins(
    axes: Axes,
    bins: Sequence[ReliabilityBin],
    bounds: Sequence[tuple[float, float]],
    floor: float,
) -> None:
    for b, (low, high) in zip(bins, bounds, strict=True):
        at = max(b.mean_score, floor)
        axes.plot([at, at], [max(low, floor), high], color=MODEL.light, linewidth=1.2)
        is_empty = b.rate == 0
        axes.plot(
            [at],
            [max(b.rate, floor)],
            linestyle="none",
            marker="^" if is_empty else "o",
            markersize=8 if is_empty else 7,
            markerfacecolor="none" if is_empty else MODEL.light,
            markeredgecolor=MODEL.light,
            clip_on=False,
            zorder=4,
        )


def _decade_below(bins: Sequence[ReliabilityBin]) -> float:
    """The power of ten under every positive value, but no lower than one in 100,000."""
    smallest = min(v for b in bins for v in (b.mean_score, b.rate) if v > 0)
    return float(10.0 ** max(-5, math.floor(math.log10(smallest))))


def _decade_ticks(low: float, high: float) -> list[float]:
    steps = range(round(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**e for e in steps for m in (1, 3) if low <= m * 10.0**e <= high]
    return ticks if len(ticks) <= 6 else [t for t in ticks if f"{t:e}"[0] == "1"]


def lead_time_plot(events: EventMetrics, *, lead: timedelta) -> Plot | None:
    """Share of incidents that an alert announced at least so many hours ahead.

    Args:
        events: Alerts judged against incidents.
        lead: Minimum lead L; a later alert does not count as caught.

    Returns:
        The plot; None when no incident was caught.
    """
    if not events.lead_h or not events.n_incidents:
        return None
    leads = np.sort(np.asarray(events.lead_h))
    lead_h = lead / timedelta(hours=1)
    median = float(np.median(leads))

    alt = (
        f"Of {counted(events.n_incidents, 'incident')}, {events.n_caught} were caught; the median "
        f"lead is {hours(median)}, from {hours(float(leads[0]))} to {hours(float(leads[-1]))}."
    )
    caption = (
        f"Read: the height at 6 h is the share of all {counted(events.n_incidents, 'incident')} "
        f"known 6 h ahead. Each tick at the bottom is one caught incident."
    )
    if lead_h:
        caption += f" The shaded first {hours(lead_h)} are too short for a drain and do not count."
    svg = draw(
        "leads",
        size_in=_SIZE_IN,
        alt=alt,
        paint=partial(_paint_leads, leads=leads, n_incidents=events.n_incidents, lead_h=lead_h),
    )
    return Plot(svg, caption, _MIN_WIDTH_PX)


def _paint_leads(figure: Figure, *, leads: FloatArray, n_incidents: int, lead_h: float) -> None:
    # Sorted upwards, leads[i] is reached by the incidents from i on.
    share = (leads.size - np.arange(leads.size)) / n_incidents
    median = float(np.median(leads))
    axes = figure.subplots()
    x = np.concatenate([[0.0], leads, [leads[-1]]])
    y = np.concatenate([[share[0]], share, [0.0]])
    axes.axvspan(0, lead_h, color=SHADE.light, linewidth=0)
    axes.plot(x, y, drawstyle="steps-pre", color=MODEL.light, linewidth=2.4)
    axes.plot(leads, np.zeros(leads.size), "|", color=INK.light, markersize=9, clip_on=False)
    axes.axvline(median, color=ALARM.light, linewidth=1.2, dashes=(4, 2))
    right = float(1.04 * max(leads[-1], 2 * lead_h, 1.0))
    is_late = median > 0.6 * right
    axes.annotate(
        f"median {hours(median)}",
        (median, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(-5 if is_late else 5, 0),
        textcoords="offset points",
        ha="right" if is_late else "left",
        va="top",
        color=ALARM.light,
    )
    axes.set_xlim(0, right)
    axes.set_ylim(0, min(1.0, 1.3 * share[0]))
    axes.yaxis.set_major_formatter(_PERCENT)
    axes.set_xlabel("Lead of the first alert, hours before the onset")
    axes.set_ylabel("Incidents announced at least so early")
