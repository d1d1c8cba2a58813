"""The curves of the scheduling comparison over the load, as one SVG file.

Its numbers are made in `simulation.scheduling.comparison`.
"""

from functools import partial
from typing import Final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pipelines.report.figure import BASELINES, INK, MODEL, TONES, draw
from simulation.scheduling.policies import FIFO, LOANING, LYRA, PASSING, SCALING, SJF

_DRAWN: Final = (FIFO, PASSING, SJF, LOANING, SCALING, LYRA)
_DASHES: Final = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)), (0, (3, 1.2)), "-")
_PANELS: Final = (("queuing_s", "waiting, mean"), ("completion_s", "submit to end, mean"))
_LEAST_S: Final = 1.0
_SPANS: Final = (
    (1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"),
    (10_800.0, "3 h"), (21_600.0, "6 h"), (43_200.0, "12 h"), (86_400.0, "1 day"),
    (259_200.0, "3 days"), (864_000.0, "10 days"), (2_592_000.0, "30 days"),
)  # fmt: skip
"""Where the axis has marks: powers of ten of seconds say little to a reader."""


def render_figure(runs: pl.DataFrame) -> str:
    """Mean waiting and completion over the load.

    Args:
        runs: Rows of `simulation.scheduling.comparison.compare`.

    Returns:
        An SVG file that needs nothing else.
    """
    means = runs.group_by("load", "policy").mean().sort("load")
    alt = "Mean waiting and completion time of jobs over the offered load, one line for each policy"
    svg = draw("scheduling", size_in=(9.0, 4.0), alt=alt, paint=partial(_paint, means=means))
    # Inside a page the colours follow its style sheet; a file of its own brings them along.
    colours = "".join(f"--{tone.variable}:{tone.light};" for tone in TONES)
    style = f"<svg style='{colours} font-family:sans-serif; background:#fefefe' "
    return str(svg).replace("<svg ", style, 1) + "\n"


def _paint(figure: Figure, *, means: pl.DataFrame) -> None:
    for axes, (measure, title) in zip(figure.subplots(1, 2), _PANELS, strict=True):
        _paint_panel(axes, means, measure)
        axes.set_title(title, loc="left", color=INK.light)
        axes.set_xlabel("offered load")
    figure.axes[0].legend(frameon=False, fontsize=9)


def _paint_panel(axes: Axes, means: pl.DataFrame, measure: str) -> None:
    for number, policy in enumerate(_DRAWN):
        rows = means.filter(pl.col("policy") == policy.name)
        tone = MODEL if policy is LYRA else BASELINES[number % len(BASELINES)]
        axes.plot(
            rows["load"].to_numpy(),
            rows[measure].clip(lower_bound=_LEAST_S).to_numpy(),
            linestyle=_DASHES[number],
            linewidth=2.2 if policy is LYRA else 1.6,
            color=tone.light,
            label=policy.name,
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: dict(_SPANS)[seconds]))
    axes.yaxis.set_major_locator(FixedLocator([seconds for seconds, _ in _SPANS]))
    axes.yaxis.set_minor_locator(NullLocator())
