"""What a page on a synthetic fleet is made of: parts, each with a plot and a table.

What stands in them is decided by the other modules of this package, the layout by `templates/`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pipelines.report.figure import INK, Plot
from pipelines.report.input import Missing
from pipelines.report.words import fault_words

HALF_IN: Final = 5.2
"""Width of a plot that stands beside its table, inches."""
WHOLE_IN: Final = 13.2
"""Width of a plot that fills the page."""
HALF_PX: Final = 300
WHOLE_PX: Final = 760

Cell = tuple[str, str]
"""A value, and what stands small below it."""


@dataclass(frozen=True)
class Table:
    """A table of words.

    Attributes:
        head: Column titles; the first is that of the rows' names.
        rows: For each row its name and its cells.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True)
class Part:
    """One question that the page answers.

    Attributes:
        anchor: Its place on the page.
        title: The question.
        says: The answer in one sentence.
        plot: Picture; `Missing` says why there is none, null: words and numbers only.
        table: Numbers; null: none.
        note: Below the table.
        is_wide: Whether the plot fills the page's width.
    """

    anchor: str
    title: str
    says: str
    plot: Plot | Missing | None
    table: Table | None
    note: str = ""
    is_wide: bool = False


def rate(value: float) -> str:
    """A rate, with three digits that count.

    >>> [rate(value) for value in (0.0301, 7304.2, 0.0, 12.5)]
    ['0.0301', '7,304', '0', '12.5']
    """
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def fault_axis(axes: Axes, faults: Sequence[str]) -> None:
    """One line per fault type, the first at the top."""
    axes.set_yticks(range(len(faults)), [fault_words(fault) for fault in faults])
    axes.set_ylim(len(faults) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK.light)
    axes.grid(visible=False, axis="y")


def plain_log_axis(axes: Axes, which: str, *, low: float, high: float) -> None:
    """A logarithmic axis with few ticks, written as plain numbers.

    Args:
        axes: Where.
        which: `x` or `y`.
        low: Its lower end, above zero.
        high: Its upper end.
    """
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    axis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def log_ticks(low: float, high: float) -> list[float]:
    """At least two round numbers between the ends, as few as tell.

    >>> log_ticks(0.09, 7), log_ticks(6, 72)
    ([0.1, 1.0], [10.0, 30.0])
    """
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        ticks = [step * 10.0**e for e in exponents for step in steps]
        ticks = [float(f"{tick:g}") for tick in ticks if low <= tick <= high]
        if len(ticks) >= 2:
            break
    every = -(-len(ticks) // 6)
    return ticks[::every]


def legend_below(figure: Figure, *, columns: int = 1) -> None:
    """The legend under the plot, in the page's ink."""
    figure.legend(
        loc="outside lower left",
        ncols=columns,
        frameon=False,
        fontsize=10,
        labelcolor=INK.light,
        handlelength=2.2,
        columnspacing=1.2,
        borderpad=0.2,
    )
