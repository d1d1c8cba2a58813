"""The plots of the replay: savings with intervals, losses by kind, and the sweeps.

Nothing is computed but what is drawn; words are in `pipelines.studies.replay.words`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from pipelines.report.figure import BASELINES, INK, LINE, MODEL, MUTED, Plot, draw
from pipelines.report.words import round_percent
from pipelines.studies.replay.words import KIND_WORDS, between, gpu_hours
from simulation.replay.comparison import Comparison
from simulation.replay.sweeps import RECALL, Sweep

_MIN_WIDTH_PX: Final = 340
_SHOWN_KINDS: Final = ("rework", "hung", "restart", "interruption", "idle")
_HATCHES: Final = ("", "///", "...", "\\\\\\", "xx")
_GPU_HOURS: Final = FuncFormatter(lambda value, _: gpu_hours(value))


@dataclass(frozen=True)
class SweepPlot:
    """A plot with its heading."""

    title: str
    plot: Plot


@dataclass(frozen=True)
class _Axis:
    """How a sweep is titled and its axis labelled."""

    title: str
    label: str
    is_log: bool


_AXES: Final = {
    "drain_hours": _Axis(
        "If drains cost more or less", "Check of a drained node, hours", is_log=True
    ),
    "checkpoint_minutes": _Axis(
        "If jobs write checkpoints more or less often", "Checkpoint interval, minutes", is_log=True
    ),
    "standby_nodes": _Axis("If standby nodes were kept ready", "Warm standby nodes", is_log=False),
    "precision": _Axis(
        "If scores were better or worse",
        f"Precision of made-up alarms on {round_percent(RECALL)} of failures",
        is_log=False,
    ),
}


def savings_plot(found: Comparison, kept: Comparison) -> Plot:
    """What each strategy saves against never, with intervals, under both findings."""
    names = [name for name in found.figures if name != "never"]
    alt = "GPU-hours saved against never draining: " + "; ".join(
        f"{name} {gpu_hours(found.figures[name].saved.value)} "
        f"({between(found.figures[name].saved)}), if kept "
        f"{gpu_hours(kept.figures[name].saved.value)}"
        for name in names
    )
    caption = (
        "Right of the line a strategy saves, left of it it costs. Filled: the check of a drained "
        "node finds the failure to come. Open: it finds nothing, and the node is kept out for the "
        "horizon. Bars are 95 % intervals over node-weeks."
    )
    svg = draw(
        "savings",
        size_in=(6.4, 1.2 + 0.62 * len(names)),
        alt=alt,
        paint=partial(_paint_savings, names=names, both=(found, kept)),
    )
    return Plot(svg, caption, _MIN_WIDTH_PX)


def _paint_savings(
    figure: Figure, *, names: Sequence[str], both: tuple[Comparison, Comparison]
) -> None:
    axes = figure.subplots()
    for place, name in enumerate(reversed(names)):
        for one, shift, is_filled in zip(both, (0.13, -0.13), (True, False), strict=True):
            saved = one.figures[name].saved
            colour = MODEL.light if name == "model" else INK.light
            if saved.low is not None and saved.high is not None:
                ends = [saved.low, saved.high]
                axes.plot(ends, [place + shift] * 2, color=colour, linewidth=1.4)
            axes.plot(
                [saved.value or 0.0],
                [place + shift],
                linestyle="none",
                marker="o",
                markersize=7,
                markeredgecolor=colour,
                markerfacecolor=colour if is_filled else "none",
            )
    axes.axvline(0, color=MUTED.light, linewidth=1.2)
    axes.set_yticks(range(len(names)), list(reversed(names)))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_GPU_HOURS)
    axes.set_xlabel("GPU-hours saved against never draining")


def losses_plot(found: Comparison) -> Plot:
    """What each strategy loses, by kind; repair, nearly the same for all, is left out."""
    names = list(found.figures)
    alt = "GPU-hours lost, repair left out: " + "; ".join(
        f"{name} "
        + ", ".join(
            f"{KIND_WORDS[kind]} {gpu_hours(found.figures[name].by_kind[kind])}"
            for kind in _SHOWN_KINDS
        )
        for name in names
    )
    repair = gpu_hours(found.figures["never"].by_kind["repair"])
    caption = (
        f"Failures cost the first three kinds, drains the other two. Nodes in repair ({repair} "
        "GPU-hours with never) are left out: a drain moves a repair, and does not spare it."
    )
    svg = draw(
        "losses",
        size_in=(6.4, 1.9 + 0.42 * len(names)),
        alt=alt,
        paint=partial(_paint_losses, names=names, found=found),
    )
    return Plot(svg, caption, _MIN_WIDTH_PX)


def _paint_losses(figure: Figure, *, names: Sequence[str], found: Comparison) -> None:
    axes = figure.subplots()
    left = np.zeros(len(names))
    places = np.arange(len(names))[::-1]
    for kind, tone, hatch in zip(_SHOWN_KINDS, BASELINES, _HATCHES, strict=True):
        values = np.array([found.figures[name].by_kind[kind] for name in names])
        axes.barh(
            places,
            values,
            left=left,
            height=0.62,
            color=tone.light,
            edgecolor=LINE.light,
            linewidth=0.5,
            hatch=hatch,
            label=KIND_WORDS[kind],
        )
        left = left + values
    axes.set_yticks(places, names)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_GPU_HOURS)
    axes.set_xlabel("GPU-hours lost, repair left out")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=10)


def sweep_plot(sweep: Sweep) -> SweepPlot:
    """What the scores save over one setting, beside the oracle."""
    axis = _AXES[sweep.name]
    alt = f"{axis.title}. GPU-hours saved: " + "; ".join(
        f"{point.value:g}: {gpu_hours(point.saved.value)} ({between(point.saved)}), oracle "
        f"{gpu_hours(point.oracle)}"
        for point in sweep.points
    )
    svg = draw(
        f"sweep-{sweep.name.replace('_', '-')}",
        size_in=(5.2, 3.7),
        alt=alt,
        paint=partial(_paint_sweep, sweep=sweep, axis=axis),
    )
    return SweepPlot(axis.title, Plot(svg, _sweep_caption(sweep), _MIN_WIDTH_PX))


def _sweep_caption(sweep: Sweep) -> str:
    said = "Against never draining under the same setting. "
    if sweep.name == "drain_hours":
        ratios = [
            f"{point.ratio:.2g} at {point.value:g} h" for point in sweep.points if point.ratio
        ]
        costs = ", ".join(ratios[:: max(1, len(ratios) - 1)]) or "no drain is made"
        return f"{said}A drain costs, against a failure's cost to jobs: {costs}."
    if sweep.name == "checkpoint_minutes":
        return (
            f"{said}A failure loses half an interval, so rare checkpoints make acting worth more."
        )
    if sweep.name == "standby_nodes":
        lost = " to ".join(gpu_hours(sweep.points[place].lost) for place in (0, -1))
        kept = gpu_hours(sweep.points[-1].kept)
        return (
            f"{said}Standby alone takes never draining from {lost} GPU-hours lost; keeping "
            f"{sweep.points[-1].value:g} nodes ready costs {kept}, with or without drains."
        )
    return (
        f"{said}The policy takes the precision at its word, and does nothing where it is too low."
    )


def _paint_sweep(figure: Figure, *, sweep: Sweep, axis: _Axis) -> None:
    axes = figure.subplots()
    x = np.array([point.value for point in sweep.points])
    saved = np.array([point.saved.value or 0.0 for point in sweep.points])
    low = np.array([_or(point.saved.low, point.saved.value) for point in sweep.points])
    high = np.array([_or(point.saved.high, point.saved.value) for point in sweep.points])
    bound: Any = [np.nan if point.oracle is None else point.oracle for point in sweep.points]
    label = "made-up scores" if sweep.name == "precision" else "scores"
    axes.axhline(0, color=MUTED.light, linewidth=1.2)
    axes.vlines(x, low, high, color=MODEL.light, linewidth=1.2)
    axes.plot(x, saved, color=MODEL.light, marker="o", markersize=6, label=label)
    axes.plot(
        x, bound, color=BASELINES[1].light, dashes=(5, 2), marker="s", markersize=5, label="oracle"
    )
    if sweep.base is not None:
        axes.axvline(sweep.base, color=INK.light, linewidth=1.0, dashes=(1.5, 1.5))
        axes.plot([], [], color=INK.light, dashes=(1.5, 1.5), linewidth=1.0, label="policy file")
    _scale(axes, x, axis, name=sweep.name)
    axes.yaxis.set_major_formatter(_GPU_HOURS)
    axes.set_ylabel("GPU-hours saved")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=10)


def _scale(axes: Axes, x: Any, axis: _Axis, *, name: str) -> None:
    if axis.is_log:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(x)))
    axes.xaxis.set_minor_locator(NullLocator())
    is_share = name == "precision"
    said = FuncFormatter(lambda value, _: round_percent(value) if is_share else f"{value:g}")
    axes.xaxis.set_major_formatter(said)
    axes.set_xlabel(axis.label)
    if is_share:
        axes.tick_params(axis="x", labelrotation=45)


def _or(value: float | None, otherwise: float | None) -> float:
    return value if value is not None else otherwise or 0.0
