"""Parts of the page on time and use: hazards over time, the job mix, ceilings of recall.

Published laws are in `laws`, telemetry is in `look`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import poisson

from pipelines.report.figure import ALARM, BASELINES, INK, MODEL, SHADE, Plot, draw
from pipelines.report.input import Missing
from pipelines.report.words import counted, fault_words, percent, round_percent
from pipelines.studies.fleet_report.page import (
    HALF_IN,
    HALF_PX,
    WHOLE_IN,
    WHOLE_PX,
    Cell,
    Part,
    Table,
    rate,
)
from simulation.fleet.regime import Regime


@dataclass(frozen=True)
class _Course:
    """Failures of some classes over time, per day: what is drawn in one panel."""

    title: str
    day: np.ndarray
    expected: np.ndarray
    low: np.ndarray
    high: np.ndarray
    observed: np.ndarray
    noticed: np.ndarray | None


def time_part(over_time: pl.DataFrame, *, regime: Regime) -> Part:
    """What changes while the fleet runs: driver, heat, a new health check.

    Args:
        over_time: `simulation.fleet.calibration.hazards_over_time`.
        regime: The fleet's parameters.
    """
    title = "What changes over time?"
    groups = _drifting(regime)
    courses = [_course(over_time, "All faults", None)]
    courses += [
        _course(over_time, f"{what}: {_listed(faults)}", faults, has_check=is_check)
        for what, faults, is_check in groups
    ]
    says = f"{'; '.join(_told(regime))}."
    total = over_time.select(pl.col("observed", "expected").sum()).row(0)
    alt = (
        f"Failures per day over {regime.days:g} days, observed and expected, in "
        f"{counted(len(courses), 'panel')}, and the share of nodes on the new driver. In all "
        f"{total[0]:,} observed, {total[1]:,.0f} expected."
    )
    caption = (
        "Look whether the blue steps stay in the shaded band, where 95 % of them should lie, and "
        "move with the dashed line, which knows of driver, air and nodes in service."
    )
    if any(course.noticed is not None for course in courses):
        caption += " Red dots: what the site noticed; they join the blue steps with the new check."
    share = over_time.filter(pl.col("fault_type") == regime.faults[0].fault_type)
    svg = draw(
        "time",
        size_in=(WHOLE_IN, 1.2 + 1.9 * len(courses) + 1.3),
        alt=alt,
        paint=partial(_paint_time, courses=courses, share=share),
    )
    head = ("Failures", "Observed", "Expected", "Noticed")
    rows = [_class_row(over_time, fault.fault_type) for fault in regime.faults]
    return Part(
        "time", title, says, Plot(svg, caption, WHOLE_PX), Table(head, tuple(rows)), is_wide=True
    )


def _drifting(regime: Regime) -> list[tuple[str, list[str], bool]]:
    """What makes rates or counts move in this regime, and of which classes."""
    found = [
        (
            "The new driver changes",
            [f.fault_type for f in regime.faults if f.new_driver_factor != 1],
            False,
        ),
        ("Heat changes", [f.fault_type for f in regime.faults if f.heat_doubling_c], False),
        ("A new health check finds", [f.fault_type for f in regime.faults if f.health_check], True),
    ]
    return [(what, faults, is_check) for what, faults, is_check in found if faults]


def _told(regime: Regime) -> list[str]:
    plan = regime.disturbances
    rollout = (
        f"Driver {plan.driver_before} gives way to {plan.driver_after} from day "
        f"{plan.driver_day:g} on, a node every {60 * plan.driver_stagger_h:g} min"
    )
    drivers = [
        f"{fault_words(f.fault_type)} x {f.new_driver_factor:g}"
        for f in regime.faults
        if f.new_driver_factor != 1
    ]
    change = f"it multiplies {', '.join(drivers)}" if drivers else "it changes no rate"
    heat = [
        f"{fault_words(f.fault_type)} doubles for {f.heat_doubling_c:g} °C"
        for f in regime.faults
        if f.heat_doubling_c
    ]
    checks = [
        f"{fault_words(f.fault_type)}: {percent(f.health_check.missed_before)} went unnoticed "
        f"before day {f.health_check.day:g}"
        for f in regime.faults
        if f.health_check
    ]
    return [
        rollout,
        change,
        ", ".join(heat) or "heat changes no rate",
        ", ".join(checks) or "no new health check comes",
    ]


def _listed(faults: Sequence[str]) -> str:
    return ", ".join(fault_words(fault) for fault in faults)


def _course(
    over_time: pl.DataFrame, title: str, faults: Sequence[str] | None, *, has_check: bool = False
) -> _Course:
    rows = over_time if faults is None else over_time.filter(pl.col("fault_type").is_in(faults))
    bins = rows.group_by("day").agg(pl.col("expected", "observed", "noticed").sum()).sort("day")
    day = bins["day"].to_numpy()
    width = float(day[1] - day[0])
    expected = bins["expected"].to_numpy()
    low, high = poisson.ppf(0.025, expected), poisson.ppf(0.975, expected)
    noticed = bins["noticed"].to_numpy() / width if has_check else None
    observed = bins["observed"].to_numpy() / width
    return _Course(title, day, expected / width, low / width, high / width, observed, noticed)


def _class_row(over_time: pl.DataFrame, fault: str) -> tuple[str, tuple[Cell, ...]]:
    rows = over_time.filter(pl.col("fault_type") == fault)
    observed, expected, noticed = rows.select(pl.col("observed", "expected", "noticed").sum()).row(
        0
    )
    cells = ((f"{observed:,}", ""), (f"{expected:,.1f}", ""), (f"{noticed:,}", ""))
    return fault_words(fault), cells


def _paint_time(figure: Figure, *, courses: Sequence[_Course], share: pl.DataFrame) -> None:
    heights = [*[1.0] * len(courses), 0.55]
    grid = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
    for axes, course in zip(grid[:-1, 0], courses, strict=True):
        _paint_course(axes, course)
    axes = grid[-1, 0]
    day = share["day"].to_numpy()
    axes.plot(day, share["share_on_new_driver"].to_numpy(), color=BASELINES[1].light, linewidth=2)
    axes.set_ylim(-0.03, 1.05)
    axes.yaxis.set_major_formatter(lambda value, _: round_percent(value))
    axes.set_title("Time in service on the new driver, share", loc="left", fontsize=11)
    axes.set_xlabel("Days since the record's start")
    half = (day[1] - day[0]) / 2
    axes.set_xlim(day[0] - half, day[-1] + half)
    unique: dict[str, Any] = {}
    for panel in grid[:, 0]:
        lines, labels = panel.get_legend_handles_labels()
        unique |= dict(zip(labels, lines, strict=True))
    figure.legend(
        unique.values(),
        unique.keys(),
        loc="outside lower left",
        ncols=4,
        frameon=False,
        fontsize=10,
        labelcolor=INK.light,
    )


def _paint_course(axes: Axes, course: _Course) -> None:
    steps: dict[str, Any] = {"drawstyle": "steps-mid"}
    axes.fill_between(
        course.day, course.low, course.high, step="mid", color=SHADE.light, linewidth=0,
        label="where 95 % should lie",
    )  # fmt: skip
    label = "expected"
    axes.plot(course.day, course.expected, color=INK.light, dashes=(4, 2), label=label)
    axes.plot(course.day, course.observed, color=MODEL.light, label="happened", **steps)
    if course.noticed is not None:
        axes.plot(
            course.day,
            course.noticed,
            color=ALARM.light,
            dashes=(1.5, 1.5),
            label="noticed",
            **steps,
        )
    axes.set_ylim(bottom=0)
    axes.set_title(course.title, loc="left", fontsize=11, color=INK.light)
    axes.set_ylabel("Failures per day", fontsize=10)


def jobs_part(jobs: pl.DataFrame, *, days: float) -> Part:
    """Who uses the fleet.

    Args:
        jobs: `pipelines.studies.fleet_report.evidence.job_mix`.
        days: Length of the record of jobs.
    """
    title = "Is the job mix like yours?"
    if jobs["jobs"].sum() == 0 or jobs["gpu_h"].sum() == 0:
        return Part("jobs", title, "", Missing("no job was submitted in this time"), None)
    one = float(jobs.filter(pl.col("n_gpus") == 1)["job_share"].sum())
    big = float(jobs.filter(pl.col("n_gpus") >= 256)["time_share"].sum())
    says = (
        f"{percent(one)} of jobs use one GPU; jobs of 256 GPUs and more take {percent(big)} of "
        f"the GPU time."
    )
    head = ("GPUs", "Jobs", "Share of jobs", "GPU hours", "Share of GPU time")
    return Part(
        "jobs",
        title,
        says,
        _jobs_plot(jobs),
        Table(head, tuple(_job_row(row) for row in jobs.iter_rows(named=True))),
        f"Batch jobs of the fleet's first {days:.3g} days. Jobs of several nodes come as earlier "
        f"ones leave room, and few of the largest fall into so short a time.",
    )


def _job_row(row: dict[str, Any]) -> tuple[str, tuple[Cell, ...]]:
    return f"{row['n_gpus']:,}", (
        (f"{row['jobs']:,}", ""),
        (percent(row["job_share"]), f"stated {percent(row['stated_job_share'])}"),
        (rate(row["gpu_h"]), ""),
        (percent(row["time_share"]), f"stated {percent(row['stated_time_share'])}"),
    )


def _jobs_plot(jobs: pl.DataFrame) -> Plot:
    alt = "Share of jobs and of GPU time by GPUs of a job. " + "; ".join(
        f"{row['n_gpus']:,} GPUs: {percent(row['job_share'])} and {percent(row['time_share'])}"
        for row in jobs.iter_rows(named=True)
    )
    caption = (
        "Look how the two halves differ: most jobs are small, most GPU time is taken by large "
        "ones; the dark marks are what the regime asks for."
    )
    size = (HALF_IN, 1.5 + 0.3 * jobs.height)
    svg = draw("jobs", size_in=size, alt=alt, paint=partial(_paint_jobs, jobs=jobs))
    return Plot(svg, caption, HALF_PX)


def _paint_jobs(figure: Figure, *, jobs: pl.DataFrame) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    places = np.arange(jobs.height)
    for axes, part, title, tone in (
        (left, "job", "Share of jobs", MODEL),
        (right, "time", "Share of GPU time", BASELINES[0]),
    ):
        axes.barh(places, jobs[f"{part}_share"].to_numpy(), color=tone.light, height=0.66)
        axes.plot(
            jobs[f"stated_{part}_share"].to_numpy(),
            places,
            linestyle="none",
            marker="|",
            markersize=12,
            markeredgewidth=2,
            color=INK.light,
            label="stated",
        )
        axes.set_title(title, loc="left", fontsize=11, color=INK.light)
        axes.xaxis.set_major_formatter(lambda share, _: round_percent(share))
        axes.grid(visible=False, axis="y")
    left.set_yticks(places, [f"{size:,}" for size in jobs["n_gpus"]])
    left.set_ylim(jobs.height - 0.4, -0.6)
    left.tick_params(axis="y", length=0, labelcolor=INK.light)
    right.tick_params(axis="y", length=0)
    left.set_ylabel("GPUs of the job")


def ceiling_part(ceiling: pl.DataFrame) -> Part:
    """What the best possible model could catch.

    Args:
        ceiling: `simulation.fleet.ceiling.recall_ceiling`.
    """
    title = "How much could the best possible model catch?"
    if ceiling.is_empty():
        return Part("ceiling", title, "", Missing("nothing failed in the simulated time"), None)
    horizons = ceiling["horizon_h"].unique().sort().to_list()
    best = ceiling.filter(pl.col("fault_type") == "all", pl.col("horizon_h") == horizons[-1])
    at_budget, by_signs = best["ceiling_at_budget"].item(), best["ceiling_by_signs"].item()
    says = (
        f"No model that reads signs can catch more than {percent(by_signs)} of failures half an "
        f"hour ahead; {percent(at_budget)} within {horizons[-1]:g} h if it also knew every unit's "
        f"true rate."
    )
    faults = ceiling["fault_type"].unique(maintain_order=True).to_list()
    rows = [_ceiling_row(ceiling.filter(pl.col("fault_type") == fault), fault) for fault in faults]
    return Part(
        "ceiling",
        title,
        says,
        None,
        Table(("Fault", "Failures", "Announced", *(f"{h:g} h" for h in horizons)), tuple(rows)),
        "For each horizon the share that can be caught within the alert budget, below it by signs "
        "alone. A model above these numbers has seen what it must not: a leak.",
        is_wide=True,
    )


def _ceiling_row(rows: pl.DataFrame, fault: str) -> tuple[str, tuple[Cell, ...]]:
    first = rows.row(0, named=True)
    cells: list[Cell] = [(f"{first['incidents']:,}", ""), (f"{first['announced']:,}", "")]
    for row in rows.sort("horizon_h").iter_rows(named=True):
        signs = percent(row["ceiling_by_signs"])
        cells.append((percent(row["ceiling_at_budget"]), f"signs {signs}"))
    name = "all faults" if fault == "all" else fault_words(fault)
    return name, tuple(cells)
