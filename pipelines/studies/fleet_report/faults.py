"""Parts of the page that hold failures against the fault table: rates, signs, leads, downtimes.

Laws of whole fleets and of jobs are in `laws` and `use`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from models.evaluation.intervals import exact_share
from pipelines.report.figure import ALARM, BASELINES, INK, MODEL, MUTED, Plot, draw
from pipelines.report.input import Missing
from pipelines.report.words import counted, fault_words, percent, round_percent
from pipelines.studies.fleet_report.checks import distribution_checks
from pipelines.studies.fleet_report.page import (
    HALF_IN,
    HALF_PX,
    WHOLE_IN,
    WHOLE_PX,
    Cell,
    Part,
    Table,
    fault_axis,
    legend_below,
    plain_log_axis,
    rate,
)

_ACROSS: Final = 4
_NO_FAILURE: Final = Missing("nothing failed in the simulated time")


def rates_part(rates: pl.DataFrame, *, gpu_years: float) -> Part:
    """Failures per GPU-year of each class, stated and measured.

    Args:
        rates: `simulation.fleet.calibration.rate_table`.
        gpu_years: GPU-years of the record, in words only.
    """
    observed, expected = int(rates["observed"].sum()), float(rates["expected"].sum())
    stated, found = (float(rates[f"{name}_per_gpu_year"].sum()) for name in ("stated", "observed"))
    says = (
        f"{counted(observed, 'failure')} in {rate(gpu_years)} GPU-years; {expected:,.0f} expected"
    )
    if observed:
        says += (
            f". All classes together fail at {percent(found / stated)} of the stated rate: the "
            "units drawn are no average, drivers and air change rates, and repairs replace the "
            "worst GPUs"
        )
    head = ("Fault", "Stated", "Measured, 95 % interval", "Failures")
    return Part(
        "rates",
        "How often does each fault strike?",
        f"{says}.",
        _rates_plot(rates) if observed else _NO_FAILURE,
        Table(head, tuple(_rate_row(row) for row in rates.iter_rows(named=True))),
        "Rates per GPU-year in service. Expected: given the units drawn, their time in service, "
        "drivers and air; intervals are exact (Poisson).",
    )


def _rate_row(row: dict[str, float | str]) -> tuple[str, tuple[Cell, ...]]:
    low, high = float(row["low_per_gpu_year"]), float(row["high_per_gpu_year"])
    return (
        fault_words(str(row["fault_type"])),
        (
            (rate(float(row["stated_per_gpu_year"])), ""),
            (rate(float(row["observed_per_gpu_year"])), f"{rate(low)} to {rate(high)}"),
            (f"{row['observed']:,}", f"{row['expected']:,.1f} expected"),
        ),
    )


def _rates_plot(rates: pl.DataFrame) -> Plot:
    worst = (
        rates.filter(pl.col("observed") > 0).sort("observed", descending=True).row(0, named=True)
    )
    alt = (
        f"Rates of {counted(rates.height, 'fault type')} per GPU-year, stated, expected and "
        f"measured. Most frequent: {fault_words(worst['fault_type'])}, "
        f"{rate(worst['observed_per_gpu_year'])} measured, {rate(worst['stated_per_gpu_year'])} "
        f"stated."
    )
    caption = (
        "Look whether each bar (95 % interval of what was measured) crosses its diamond (what the "
        "units drawn lead to expect); the upright mark is the stated rate of the average unit."
    )
    size = (HALF_IN, 1.6 + 0.34 * rates.height)
    svg = draw("rates", size_in=size, alt=alt, paint=partial(_paint_rates, rates=rates))
    return Plot(svg, caption, HALF_PX)


def _paint_rates(figure: Figure, *, rates: pl.DataFrame) -> None:
    axes = figure.subplots()
    fault_axis(axes, rates["fault_type"].to_list())
    stated, found, low, high = (
        rates[f"{name}_per_gpu_year"].to_numpy() for name in ("stated", "observed", "low", "high")
    )
    n = rates["observed"].to_numpy()
    exposure = float(n.sum() / found.sum())
    expected = rates["expected"].to_numpy() / exposure
    known = np.concatenate([stated, found, expected])
    floor = 0.6 * float(known[known > 0].min())
    ceiling = 1.7 * float(max(known.max(), high[n > 0].max()))
    for place in range(rates.height):
        ends = [max(low[place], floor), max(high[place], floor)]
        axes.plot(ends, [place, place], color=MODEL.light, linewidth=1.6)
    _marks(axes, stated, "|", INK.light, "stated", size=13)
    _marks(axes, expected, "D", BASELINES[0].light, "expected of the units drawn", size=7)
    _marks(axes, np.where(n > 0, found, np.nan), "o", MODEL.light, "measured, 95 % interval")
    plain_log_axis(axes, "x", low=floor, high=ceiling)
    axes.set_xlabel("Failures per GPU-year (logarithmic)")
    legend_below(figure)


def _marks(
    axes: Axes, values: np.ndarray, marker: str, color: str, label: str, *, size: float = 5.5
) -> None:
    axes.plot(
        values,
        range(values.size),
        linestyle="none",
        marker=marker,
        markersize=size,
        markerfacecolor="none" if marker == "D" else color,
        markeredgecolor=color,
        markeredgewidth=2.0 if marker == "|" else 1.3,
        label=label,
    )


def signs_part(signs: pl.DataFrame) -> Part:
    """Which share of failures announces itself.

    Args:
        signs: `simulation.fleet.calibration.sign_table`.
    """
    failures, silent = int(signs["failures"].sum()), int(signs["silent"].sum())
    says = "Nothing failed."
    if failures:
        share = percent(1 - silent / failures)
        says = (
            f"{share} of {counted(failures, 'failure')} gave signs beforehand; no reader of "
            f"signs can foretell the others."
        )
    head = ("Fault", "Stated without", "Measured", "Failures", "Decoys")
    return Part(
        "signs",
        "Which failures announce themselves?",
        says,
        _signs_plot(signs) if failures else _NO_FAILURE,
        Table(head, tuple(_sign_row(row) for row in signs.iter_rows(named=True))),
        "Decoys show the same signs and lead to nothing; classes with signs of one kind share "
        "them. Below what was measured its 95 % interval, exact (binomial).",
    )


def _sign_row(row: dict[str, float | str | None]) -> tuple[str, tuple[Cell, ...]]:
    silent, n = int(row["silent"] or 0), int(row["failures"] or 0)
    measured: Cell = ("no failure", "")
    if n:
        low, high = exact_share(silent, n)
        measured = (percent(silent / n), f"{percent(low)} to {percent(high)}")
    decoys = "none" if row["kind"] is None else f"{row['decoys']:,}"
    stated = percent(float(row["stated_share_without"] or 0.0))
    name = fault_words(str(row["fault_type"]))
    return name, (
        (stated, ""),
        measured,
        (f"{n:,}", ""),
        (decoys, str(row["kind"] or "").replace("_", " ")),
    )


def _signs_plot(signs: pl.DataFrame) -> Plot:
    n, silent = int(signs["failures"].sum()), int(signs["silent"].sum())
    alt = (
        f"Share of failures without signs for {counted(signs.height, 'fault type')}, stated and "
        f"measured. Of all failures, {percent(silent / n)} gave none."
    )
    caption = (
        "Look whether each bar (95 % interval of what was measured) crosses its upright mark (the "
        "stated share); the farther right, the less a model can foretell."
    )
    size = (HALF_IN, 1.4 + 0.34 * signs.height)
    svg = draw("signs", size_in=size, alt=alt, paint=partial(_paint_signs, signs=signs))
    return Plot(svg, caption, HALF_PX)


def _paint_signs(figure: Figure, *, signs: pl.DataFrame) -> None:
    axes = figure.subplots()
    fault_axis(axes, signs["fault_type"].to_list())
    shares = np.full(signs.height, np.nan)
    for place, row in enumerate(signs.iter_rows(named=True)):
        if row["failures"]:
            shares[place] = row["silent"] / row["failures"]
            ends = exact_share(row["silent"], row["failures"])
            axes.plot(ends, [place, place], color=MODEL.light, linewidth=1.6)
    _marks(axes, signs["stated_share_without"].to_numpy(), "|", INK.light, "stated", size=13)
    _marks(axes, shares, "o", MODEL.light, "measured, 95 % interval")
    axes.set_xlim(-0.02, 1.02)
    axes.xaxis.set_major_formatter(lambda share, _: round_percent(share))
    axes.set_xlabel("Failures without any sign, share")
    legend_below(figure)


def leads_part(leads: pl.DataFrame) -> Part:
    """How early signs come.

    Args:
        leads: `simulation.fleet.calibration.lead_table`.
    """
    panels = _panels(leads.with_columns(group=pl.lit("")), "lead_h")
    says = "No failure announced itself."
    if panels:
        half = float((leads["lead_h"] >= 0.5).mean() or 0.0)  # type: ignore[arg-type]
        says = (
            f"{percent(half)} of {counted(leads.height, 'announced failure')} are announced half "
        )
        says += "an hour ahead or more, the time a drain needs."
    return Part(
        "leads",
        "How long before the failure do signs begin?",
        says,
        _distributions("leads", panels, "Hours from the first sign to the failure (logarithmic)")
        if panels
        else Missing("no failure of this regime announces itself"),
        _distribution_table(leads, "leads", "Lead times") if panels else None,
        "p: how often chance alone lies as far off (Kolmogorov and Smirnov). Left out are failures "
        "so soon after a GPU came that its longest lead had no room.",
        is_wide=True,
    )


def downtimes_part(downtimes: pl.DataFrame, *, tails: Mapping[str, float]) -> Part:
    """How long a node is out of service.

    Args:
        downtimes: `simulation.fleet.calibration.downtime_table`.
        tails: Fault type -> share of its downtimes beyond the range; those without a tail miss.
    """
    apart = downtimes.group_by("fault_type").agg(pl.col("low_h").n_unique().alias("n"))
    several = apart.filter(pl.col("n") > 1)["fault_type"].to_list()
    group = pl.when(pl.col("fault_type").is_in(several), "is_replaced").then(pl.lit(", replaced"))
    panels = _panels(downtimes.with_columns(group=group.otherwise(pl.lit(""))), "downtime_h", tails)
    says = "Nothing was out of service."
    if panels:
        values = downtimes["downtime_h"].to_numpy()
        says = (
            f"A failure takes a node out for {rate(float(values.mean()))} h on average, half of "
            f"them for {rate(float(np.median(values)))} h or less."
        )
    return Part(
        "downtimes",
        "How long is a node out?",
        says,
        _distributions("downtimes", panels, "Hours out of service (logarithmic)")
        if panels
        else _NO_FAILURE,
        _distribution_table(downtimes, "downtimes", "Downtimes") if panels else None,
        "Where a class has a tail, p is of the values within the range; the share in the tail is a "
        "check of its own.",
        is_wide=True,
    )


@dataclass(frozen=True)
class _Panel:
    """One distribution: title, sorted hours, and the corners (hours, share) of the stated one."""

    title: str
    values: np.ndarray
    hours: tuple[float, ...]
    shares: tuple[float, ...]


def _panels(
    table: pl.DataFrame, column: str, tails: Mapping[str, float] | None = None
) -> list[_Panel]:
    panels = []
    for (fault, group), rows in table.sort(column).group_by("fault_type", "group"):
        first = rows.row(0, named=True)
        ends: tuple[float, ...] = (first["low_h"], first["high_h"])
        shares: tuple[float, ...] = (0.0, 1.0)
        tail = (tails or {}).get(str(fault), 0.0)
        if tail:
            ends, shares = (*ends, first["tail_h"]), (0.0, 1 - tail, 1.0)
        title = f"{fault_words(str(fault))}{group} ({rows.height:,})"
        panels.append(_Panel(title, rows[column].to_numpy(), ends, shares))
    return sorted(panels, key=lambda panel: panel.title)


def _distributions(name: str, panels: Sequence[_Panel], unit: str) -> Plot:
    medians = ", ".join(
        f"{panel.title}: {rate(float(np.median(panel.values)))} h" for panel in panels
    )
    alt = f"Distributions against the stated log-uniform ones. Medians: {medians}."
    caption = (
        "Look whether the blue steps (what was measured) follow the dashed line (the stated "
        "log-uniform law): the height at x is the share of failures at or below x hours."
    )
    rows = -(-len(panels) // _ACROSS)
    svg = draw(
        name,
        size_in=(WHOLE_IN, 0.7 + 2.1 * rows),
        alt=alt,
        paint=partial(_paint_distributions, panels=panels, unit=unit),
    )
    return Plot(svg, caption, WHOLE_PX)


def _paint_distributions(figure: Figure, *, panels: Sequence[_Panel], unit: str) -> None:
    rows = -(-len(panels) // _ACROSS)
    grid = figure.subplots(rows, _ACROSS, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.ravel()):
        if place >= len(panels):
            axes.set_visible(False)
            continue
        panel, values = panels[place], panels[place].values
        left = 0.8 * min(panel.hours[0], float(values[0]))
        right = 1.25 * max(panel.hours[-1], float(values[-1]))
        corners = [left, *panel.hours, right], [0, *panel.shares, 1]
        axes.plot(*corners, color=ALARM.light, dashes=(4, 2))
        x = np.concatenate([[left], values, [right]])
        y = np.concatenate([[0.0], (np.arange(values.size) + 1) / values.size, [1.0]])
        axes.plot(x, y, color=MODEL.light, drawstyle="steps-post", linewidth=1.8)
        plain_log_axis(axes, "x", low=left, high=right)
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(lambda share, _: round_percent(share))
        axes.set_title(panel.title, loc="left", fontsize=10.5, color=INK.light, pad=4)
    figure.supxlabel(unit, fontsize=11, color=MUTED.light)


def _distribution_table(table: pl.DataFrame, part: str, what: str) -> Table:
    column = "lead_h" if part == "leads" else "downtime_h"
    checks = distribution_checks(table, "leads" if part == "leads" else "downtimes")
    rows = [
        (
            check.what.split(" of ", 1)[1],
            ((check.stated, ""), (check.found, ""), (f"{check.p:.2g}", "")),
        )
        for check in checks
    ]
    if not rows:
        few = f"{table.height:,}, longest {rate(float(table[column].max()))} h"  # type: ignore[arg-type]
        rows = [("all", (("too few to test", ""), (few, ""), ("", "")))]
    return Table((what, "Stated", "Measured", "p"), tuple(rows))
