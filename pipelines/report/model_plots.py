"""The plots of a model version: what the report draws, and alerts, gains and mixed-up fault types.

Where they go is decided in `pipelines.report.model_page`; drawing itself is in
`pipelines.report.figure`.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from features.registry import FAMILY_WORDS
from models.bundle import ModelBundle
from models.candidate.build import Candidate
from models.policies.warnings import raise_alerts
from pipelines.report.figure import ALARM, BASELINES, INK, MODEL, MUTED, SHADE, TONES, Plot, draw
from pipelines.report.input import Method
from pipelines.report.plots import lead_time_plot, precision_recall_plot, reliability_plot
from pipelines.report.words import FAULT_WORDS, counted, percent, short

_WIDTH_PX: Final = 560
_SIZE_IN: Final = (5.6, 4.1)
_FEATURES_SHOWN: Final = 12
_REFERENCES: Final = frozenset({"oracle", "always", "never"})
_VARIABLE: Final = re.compile(r"var\(--([a-z0-9-]+)\)")


@dataclass(frozen=True)
class NamedPlot:
    """A plot with the name of its file."""

    name: str
    plot: Plot


def model_plots(made: Candidate, *, recall_ceiling: float | None = None) -> tuple[NamedPlot, ...]:
    """Every plot that a candidate has numbers for.

    Args:
        made: The candidate.
        recall_ceiling: Share of failures that announce themselves, where known.

    Returns:
        Plots in the order of reading.
    """
    baselines = [
        Method(name=name, role="baseline", rows=one.all_rows)
        for name, one in made.baselines.items()
        if one is not None and name not in _REFERENCES
    ]
    model = Method(name="this model", role="model", rows=made.gpu_evaluation.all_rows)
    threshold = made.thresholds["gpu"].threshold
    drawn = {
        "calibration": reliability_plot(made.gpu_evaluation.all_rows.reliability),
        "precision_recall": precision_recall_plot(
            [model, *baselines], threshold=threshold, recall_ceiling=recall_ceiling
        ),
        "lead_times": lead_time_plot(made.events["node"], lead=made.bundle.model.lead),
        "alerts_per_day": alerts_plot(made),
        "gains": gains_plot(made.bundle),
        "fault_types": confusion_plot(made),
    }
    return tuple(NamedPlot(name, plot) for name, plot in drawn.items() if plot is not None)


def standalone(plot: Plot, *, width_px: int = _WIDTH_PX) -> str:
    """The plot as an SVG file of its own, in the colours of the light page."""
    colours = {tone.variable: tone.light for tone in TONES}
    svg = _VARIABLE.sub(lambda hit: colours.get(hit[1], INK.light), str(plot.svg))
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    height = round(width_px * float(box[2]) / float(box[1])) if box else width_px
    size = f'<svg width="{width_px}" height="{height}" style="font-family:sans-serif"'
    return svg.replace("<svg", size, 1)


def in_markdown(plot: Plot) -> str:
    """The plot as an image within a line of markdown, for pages that keep no files."""
    content = base64.b64encode(standalone(plot).encode()).decode()
    return f"![{plot.caption}](data:image/svg+xml;base64,{content})"


def alerts_plot(made: Candidate) -> Plot | None:
    """Alerts on nodes by day of the test, by what became of them."""
    policy, rows = made.bundle.policies["node"], made.node_test
    alerts = raise_alerts(rows, policy).join(
        rows.select("entity_id", "as_of", "label"), on=["entity_id", "as_of"], how="left"
    )
    if rows.is_empty():
        return None
    days = rows.select(pl.col("as_of").dt.date().unique().sort()).to_series().to_list()
    counts = {
        name: [_count(alerts, day, label) for day in days]
        for name, label in (("failure followed", 1), ("none followed", 0), ("not known", None))
    }
    total = alerts.height
    alt = f"{counted(total, 'alert')} on nodes in {counted(len(days), 'day')} of the test."
    caption = "Alerts on nodes per day of the test, at the threshold the version carries."
    svg = draw("alerts", size_in=_SIZE_IN, alt=alt, paint=partial(_paint_days, days, counts))
    return Plot(svg, caption, _WIDTH_PX // 2)


def gains_plot(bundle: ModelBundle) -> Plot | None:
    """What the boosters gained most from: families, and the features with the largest gain."""
    gains = sum(np.asarray(b.feature_importance("gain")) for b in bundle.model.boosters)
    total = float(np.sum(gains))
    if not total:
        return None
    shares = np.asarray(gains) / total
    families: dict[str, float] = {}
    for feature, share in zip(bundle.features, shares.tolist(), strict=True):
        name = FAMILY_WORDS[feature.family]
        families[name] = families.get(name, 0.0) + share
    top = np.argsort(-shares, kind="stable")[:_FEATURES_SHOWN]
    named = [(bundle.features[i].name, float(shares[i])) for i in top if shares[i] > 0]
    ranked = sorted(families.items(), key=lambda item: -item[1])
    first = ", ".join(f"{name} {percent(share)}" for name, share in ranked[:3])
    svg = draw(
        "gains",
        size_in=(_SIZE_IN[0], 1.6 + 0.24 * (len(named) + len(ranked))),
        alt=f"Share of the boosters' gain by family: {first}.",
        paint=partial(_paint_gains, ranked, named),
    )
    caption = "Share of the training loss that splits on it took away: use, not cause."
    return Plot(svg, caption, _WIDTH_PX // 2)


def confusion_plot(made: Candidate) -> Plot | None:
    """Fault types as they came and as they were forecast at the last row before the onset."""
    kinds = made.bundle.fault_types
    known = pl.col("fault_type").is_not_null() & pl.col("incident_id").is_not_null()
    last = (
        made.gpu_test.filter(pl.col("label") == 1, known)
        .sort("as_of", "entity_id")
        .unique("incident_id", keep="last", maintain_order=True)
    )
    if kinds is None or last.is_empty():
        return None
    forecast, _ = kinds.forecast(last)
    true = last["fault_type"].to_list()
    names = [name for name in kinds.classes if name in {*true, *forecast}]
    names += sorted({*true} - {*names})
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    for came, told in zip(true, forecast, strict=True):
        counts[names.index(came), names.index(told)] += 1
    right = int(np.trace(counts))
    svg = draw(
        "confusion",
        size_in=(_SIZE_IN[0], 2.0 + 0.4 * len(names)),
        alt=f"Fault types: {right} of {counted(len(true), 'incident')} forecast right.",
        paint=partial(_paint_confusion, [FAULT_WORDS.get(name, name) for name in names], counts),
    )
    caption = "Each test incident once, by the forecast of the last row before it. Right: diagonal."
    return Plot(svg, caption, _WIDTH_PX // 2)


def _count(alerts: pl.DataFrame, day: date, label: int | None) -> int:
    of_day = alerts.filter(pl.col("as_of").dt.date() == day)
    wanted = pl.col("label").is_null() if label is None else pl.col("label") == label
    return of_day.filter(wanted).height


def _paint_days(days: Sequence[date], counts: Mapping[str, Sequence[int]], figure: Figure) -> None:
    axes = figure.subplots()
    looks: tuple[dict[str, Any], ...] = (
        {"color": MODEL.light},
        {"color": BASELINES[0].light, "hatch": "//", "edgecolor": INK.light},
        {"color": SHADE.light, "edgecolor": MUTED.light},
    )
    bottom = np.zeros(len(days))
    places = np.asarray([(day - days[0]).days for day in days], dtype=np.float64)
    for (name, values), look in zip(counts.items(), looks, strict=True):
        axes.bar(places, values, bottom=bottom, label=name, width=0.8, **look)
        bottom += np.asarray(values)
    axes.set_ylabel("Alerts on nodes")
    axes.set_ylim(0, max(1.0, 1.1 * float(bottom.max())))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.xaxis.set_major_formatter(lambda at, _: f"{days[0] + timedelta(days=at):%d %b}")
    figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=10)


def _paint_gains(
    families: Sequence[tuple[str, float]], features: Sequence[tuple[str, float]], figure: Figure
) -> None:
    above, below = figure.subplots(
        2, height_ratios=[len(families), max(1, len(features))], sharex=False
    )
    for axes, rows, colour, title in (
        (above, families, MODEL.light, "Families"),
        (below, features, ALARM.light, "Features with the largest gain"),
    ):
        names = [short(name, 44) for name, _ in rows][::-1]
        values = [100 * share for _, share in rows][::-1]
        axes.barh(range(len(names)), values, color=colour, height=0.7)
        axes.set_yticks(range(len(names)), names)
        axes.set_title(title, loc="left", fontsize=11, color=INK.light)
        axes.grid(visible=False, axis="y")
    below.set_xlabel("Share of the gain, %")


def _paint_confusion(names: Sequence[str], counts: npt.NDArray[np.int64], figure: Figure) -> None:
    axes = figure.subplots()
    axes.grid(visible=False)
    largest = max(1, int(counts.max()))
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = MODEL.light if row == column else BASELINES[0].light
            axes.scatter(column, row, s=500 * count / largest, color=colour, alpha=0.35)
        axes.text(
            column,
            row,
            str(count),
            ha="center",
            va="center",
            color=INK.light if count else MUTED.light,
        )
    places = range(len(names))
    axes.set_xticks(places, names, rotation=30, ha="right")
    axes.set_yticks(places, names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("Forecast")
    axes.set_ylabel("What came")
