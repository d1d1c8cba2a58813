"""The plots that show what the scores rest on: risk by node and time, one GPU before its incident.

How far to trust the scores is drawn in `plots`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.dates import AutoDateLocator
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pipelines.report.figure import HEAT, INK, MUTED, SURFACE, Plot, draw
from pipelines.report.words import counted, hours, moment, percent, short, without_domain

MAX_NODES = 40
MAX_MOMENTS = 240
_NICE: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_QUANTILES: Final = (0.4, 0.6, 0.75, 0.87, 0.95, 0.985)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_UNKNOWN: Final = -1
_ABSENT: Final = -2


@dataclass(frozen=True)
class HeatMap:
    """Risk by node and time.

    Attributes:
        plot: The picture.
        edges: Scores at which the colour changes, rising; one fewer than colours used.
        n_left_out: Nodes not shown.
    """

    plot: Plot
    edges: tuple[float, ...]
    n_left_out: int


@dataclass(frozen=True)
class _Grid:
    """Scores by node and cell of time; `latest` is of the last moment, not of the last cell."""

    nodes: tuple[str, ...]
    starts: tuple[datetime, ...]
    width: timedelta
    score: npt.NDArray[np.float64]
    is_row: npt.NDArray[np.bool_]
    latest: tuple[float | None, ...]


def heat_map(
    scores: pl.DataFrame,
    *,
    nodes: Sequence[str],
    incidents: pl.DataFrame,
    test_start: datetime | None = None,
) -> HeatMap | None:
    """Node scores over time, one row per node, the riskiest at the top.

    Args:
        scores: `entity_id`, `as_of`, `score` of one horizon; null is unknown.
        nodes: Nodes in the order to show; beyond 40 they are left out.
        incidents: core/incidents, marked at their onset.
        test_start: Where the test time begins; earlier scores are of a model that had seen
            what followed.

    Returns:
        The heat map; None with fewer than two moments.
    """
    if scores["as_of"].n_unique() < 2 or not nodes:
        return None
    grid = _grid(scores, tuple(nodes[:MAX_NODES]))
    edges = _edges(grid.score)
    level = _levels(grid, edges)
    end = grid.starts[-1] + grid.width
    cut = test_start if test_start and grid.starts[0] < test_start < end else None
    shown = incidents.filter(
        pl.col("node").is_in(list(grid.nodes)), pl.col("start").is_between(grid.starts[0], end)
    ).sort("start", "incident_id")

    height = 1.0 + 0.26 * len(grid.nodes)
    svg = draw(
        "heat",
        size_in=(13.2, height),
        alt=_description(grid, shown.height),
        paint=partial(_paint_heat, grid=grid, level=level, incidents=shown, cut=cut),
    )
    return HeatMap(
        Plot(svg, _caption(grid, cut), 760), tuple(edges.tolist()), len(nodes) - len(grid.nodes)
    )


def _paint_heat(
    figure: Figure,
    *,
    grid: _Grid,
    level: npt.NDArray[np.int_],
    incidents: pl.DataFrame,
    cut: datetime | None,
) -> None:
    axes = figure.subplots()
    _paint_cells(axes, grid, level)
    _paint_onsets(axes, grid, incidents)
    if cut is not None:
        _paint_test_start(axes, cut)
    _paint_node_axis(axes, grid)
    axes.set_xlim(days(grid.starts[0]), days(grid.starts[-1] + grid.width))
    time_axis(axes)


def _grid(scores: pl.DataFrame, nodes: tuple[str, ...]) -> _Grid:
    moments = scores["as_of"].unique().sort()
    steps = moments.diff().drop_nulls()
    step = steps.median()
    step = step if isinstance(step, timedelta) else timedelta(hours=1)
    first, last = moments[0], moments[-1]
    per_cell = -(-((last - first) // step + 1) // MAX_MOMENTS)
    width = step * per_cell
    n_cells = (last - first) // width + 1
    cells = scores.filter(pl.col("entity_id").is_in(list(nodes))).select(
        pl.col("entity_id").replace_strict(nodes, range(len(nodes))).alias("row"),
        ((pl.col("as_of") - first).dt.total_microseconds() // (width // _MICROSECOND)).alias(
            "column"
        ),
        "score",
    )
    highest = cells.group_by("row", "column").agg(pl.col("score").max())
    score = np.full((len(nodes), n_cells), np.nan)
    is_row = np.zeros(score.shape, dtype=bool)
    at = (highest["row"].to_numpy(), highest["column"].to_numpy())
    score[at] = highest["score"].cast(pl.Float64).to_numpy()
    is_row[at] = True
    at_last = scores.filter(pl.col("as_of") == last).select("entity_id", "score")
    latest = dict(at_last.iter_rows())
    return _Grid(
        nodes,
        tuple(first + i * width for i in range(n_cells)),
        width,
        score,
        is_row,
        tuple(latest.get(node) for node in nodes),
    )


def _edges(score: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Round scores near the upper quantiles, so that colours tell apart what is there."""
    known = score[~np.isnan(score)]
    chosen: list[float] = []
    for wanted in np.quantile(known, _QUANTILES) if known.size else ():
        left = [edge for edge in _NICE if not chosen or edge > chosen[-1]]
        if left:
            chosen.append(min(left, key=lambda edge: abs(np.log(edge / max(wanted, 1e-4)))))
    return np.asarray(chosen)


def _description(grid: _Grid, n_incidents: int) -> str:
    return (
        f"Heat map of the scores of {counted(len(grid.nodes), 'node')} from "
        f"{moment(grid.starts[0])} to {moment(grid.starts[-1] + grid.width)}, riskiest now at the "
        f"top: {short(grid.nodes[0], 40)}. {counted(n_incidents, 'incident')} marked."
    )


def _caption(grid: _Grid, cut: datetime | None) -> str:
    cell = hours(grid.width / timedelta(hours=1))
    said = (
        f"Node score over time, the riskiest now at the top; the figure at the right is the latest "
        f"score. A cell is {cell} wide and shows its highest score; a gap is a time without any."
    )
    if cut is None:
        return said
    return f"{said} Left of the dashed line the model had seen in training what followed."


def _levels(grid: _Grid, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.int_]:
    level = np.digitize(np.nan_to_num(grid.score, nan=0.0), edges)
    level = np.where(np.isnan(grid.score), _UNKNOWN, level)
    return np.where(grid.is_row, level, _ABSENT)


def _paint_cells(axes: Axes, grid: _Grid, level: npt.NDArray[np.int_]) -> None:
    """One polygon per run of equal colour: a month of hourly scores stays small."""
    start, width = days(grid.starts[0]), grid.width / timedelta(days=1)
    for value in np.unique(level[level != _ABSENT]):
        boxes = []
        for row, is_value in enumerate(level == value):
            flips = np.flatnonzero(np.diff(is_value.astype(np.int8), prepend=0, append=0))
            for left, right in flips.reshape(-1, 2):
                x0, x1 = start + left * width, start + right * width
                y0, y1 = row - 0.44, row + 0.44
                boxes.append([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
        if value == _UNKNOWN:
            look: dict[str, Any] = {
                "facecolors": "none",
                "edgecolors": MUTED.light,
                "hatch": "////",
            }
            axes.add_collection(PolyCollection(boxes, linewidths=0.4, **look))
        else:
            axes.add_collection(PolyCollection(boxes, facecolors=HEAT[value].light, linewidths=0))


def _paint_onsets(axes: Axes, grid: _Grid, incidents: pl.DataFrame) -> None:
    x = [days(at) for at in incidents["start"]]
    y = [grid.nodes.index(node) for node in incidents["node"]]
    # A rim in the page's colour keeps the mark visible on light and on dark cells.
    look: dict[str, Any] = {"linestyle": "none", "marker": "x", "zorder": 5}
    axes.plot(x, y, color=SURFACE.light, markersize=9, markeredgewidth=4.6, **look)
    axes.plot(x, y, color=INK.light, markersize=7, markeredgewidth=1.8, **look)


def _paint_test_start(axes: Axes, at: datetime) -> None:
    axes.axvline(days(at), color=INK.light, linewidth=1.4, dashes=(4, 2))
    axes.annotate(
        "test time",
        (days(at), 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 3),
        textcoords="offset points",
        fontsize=10,
        color=INK.light,
    )


def _paint_node_axis(axes: Axes, grid: _Grid) -> None:
    axes.set_ylim(len(grid.nodes) - 0.5, -0.5)
    axes.set_yticks(
        range(len(grid.nodes)), [short(name, 24) for name in without_domain(grid.nodes)]
    )
    axes.tick_params(axis="y", length=0, labelcolor=INK.light)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    for row in range(len(grid.nodes)):
        axes.annotate(
            percent(grid.latest[row]),
            (1.0, row),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
            color=INK.light,
        )


def days(at: datetime) -> float:
    """A time in the unit of matplotlib's date axes."""
    return (at - _EPOCH) / timedelta(days=1)


def time_axis(axes: Axes) -> None:
    """Dates and times on the x axis, as few as tell."""
    locator = AutoDateLocator(minticks=4, maxticks=10)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(_tick)
    axes.set_xlabel("Time, UTC")


def _tick(day: float, _: float) -> str:
    at = _EPOCH + timedelta(minutes=round(day * 24 * 60))
    is_midnight = at.hour == 0 and at.minute == 0
    return f"{at:%b} {at.day}" if is_midnight else f"{at:%H:%M}"


def hatch_gaps(axes: Axes, gaps: Sequence[tuple[datetime, datetime]]) -> None:
    """Hatches the times without samples, so that an absent line is not taken for a calm one."""
    for start, end in gaps:
        x = days(start)
        axes.add_patch(
            Rectangle(
                (x, 0),
                days(end) - x,
                1,
                transform=axes.get_xaxis_transform(),
                facecolor="none",
                edgecolor=MUTED.light,
                hatch="////",
                linewidth=0,
                zorder=0,
            )
        )
