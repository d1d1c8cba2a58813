"""Parts of the page that hold a fleet against published laws: capture, MTTF, Summit's Xids.

Failures against the fault table are in `faults`.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from models.evaluation.intervals import poisson_interval
from pipelines.report.figure import BASELINES, INK, MODEL, MUTED, SHADE, Plot, draw
from pipelines.report.input import Missing
from pipelines.report.words import UNKNOWN, percent, round_percent
from pipelines.studies.fleet_report.checks import BAND
from pipelines.studies.fleet_report.page import (
    HALF_IN,
    HALF_PX,
    Cell,
    Part,
    Table,
    legend_below,
    plain_log_axis,
    rate,
)
from simulation.fleet.regime_sections import DAYS_PER_YEAR
from simulation.fleet.reliability import RSC1_PER_NODE_DAY, RSC2_PER_NODE_DAY

SUMMIT_GPU_YEARS: Final = 27_648 * 401 / DAYS_PER_YEAR
"""27,648 V100 from 2019-12-27 to 2021-01-31."""


def capture_part(capture: pl.DataFrame) -> Part:
    """Whether history tells which nodes fail next.

    Args:
        capture: `simulation.fleet.calibration.capture_curve`.
    """
    title = "Do the same nodes fail again?"
    top = capture.filter(pl.col("share_of_nodes") == 0.05).row(0, named=True)
    if top["captured_second_half"] is None:
        return Part("capture", title, "", Missing("too few failures for a history"), None)
    says = (
        f"The 5 % of nodes with most failures in the first half of the record take "
        f"{percent(top['captured_second_half'])} of those in the second "
        "half; published: 20 to 60 %."
    )
    head = ("Worst nodes", "Later failures", "By the law", "Failures ranked by")
    rows = [
        (
            round_percent(row["share_of_nodes"]),
            tuple(
                (percent(row[name]), "")
                for name in ("captured_second_half", "law", "captured_first_half")
            ),
        )
        for row in capture.iter_rows(named=True)
    ]
    return Part(
        "capture",
        title,
        says,
        _capture_plot(capture, top),
        Table(head, tuple(rows)),
        "Nodes are ranked by the first half of the record and judged on the second. The last "
        "column looks at the failures that ranked them: hindsight, always better.",
    )


def _capture_plot(capture: pl.DataFrame, top: dict[str, Any]) -> Plot:
    alt = (
        f"Share of later failures on the nodes with most earlier ones. At 5 % of nodes "
        f"{percent(top['captured_second_half'])} measured, {percent(top['law'])} by the law."
    )
    caption = (
        "Look at 5 % of nodes: the blue line should cross the upright bar (the published range) "
        "and lie at the dashed law or below it, since repairs heal what the law does not know of."
    )
    size = (HALF_IN, 4.4)
    svg = draw("capture", size_in=size, alt=alt, paint=partial(_paint_capture, capture=capture))
    return Plot(svg, caption, HALF_PX)


def _paint_capture(figure: Figure, *, capture: pl.DataFrame) -> None:
    axes = figure.subplots()
    x = capture["share_of_nodes"].to_numpy()
    axes.plot(
        [0.05, 0.05],
        BAND,
        color=SHADE.light,
        linewidth=12,
        solid_capstyle="butt",
        label="published at 5 %: 20 to 60 %",
    )
    axes.plot(x, x, color=MUTED.light, linewidth=1.0, label="if all nodes were alike")
    axes.plot(
        x,
        capture["law"].to_numpy(),
        color=BASELINES[0].light,
        dashes=(4, 2),
        label="law of the gamma frailty",
    )
    axes.plot(
        x,
        capture["captured_second_half"].to_numpy(),
        color=MODEL.light,
        marker="o",
        markersize=5,
        linewidth=2.2,
        label="measured, second half by the first",
    )
    plain_log_axis(axes, "x", low=0.009, high=1.1)
    axes.xaxis.set_major_formatter(lambda share, _: round_percent(share))
    axes.yaxis.set_major_formatter(lambda share, _: round_percent(share))
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("Nodes with most earlier failures, share (logarithmic)")
    axes.set_ylabel("Later failures on them, share")
    legend_below(figure)


def mttf_part(mttf: pl.DataFrame, *, per_node_day: float) -> Part:
    """How long jobs live between failures.

    Args:
        mttf: `simulation.fleet.reliability.mttf_by_size`.
        per_node_day: Noticed failures of the fleet per node and day.
    """
    title = "How long does a job run before a failure stops it?"
    says = (
        f"{1000 * per_node_day:.2f} failures per 1,000 node-days; Meta reports "
        f"{1000 * RSC1_PER_NODE_DAY:.2f} on RSC-1 and {1000 * RSC2_PER_NODE_DAY:.2f} on RSC-2."
    )
    seen = mttf.filter(pl.col("failures") > 0)
    if seen.is_empty():
        return Part("mttf", title, says, Missing("no simulated job was stopped by a failure"), None)
    last = seen.row(-1, named=True)
    alt = (
        f"Mean time to failure against GPUs of a job, both logarithmic. {last['n_gpus']:,} GPUs: "
        f"{rate(last['mttf_h'])} h measured, {rate(last['law_h'])} h by the law."
    )
    caption = (
        "Look whether the points fall along the dashed line, 1/N with the fleet's own rate, and "
        "between the two lines of Meta's clusters; bars are 95 % intervals."
    )
    size = (HALF_IN, 4.6)
    svg = draw("mttf", size_in=size, alt=alt, paint=partial(_paint_mttf, mttf=seen))
    head = ("GPUs", "Measured, h", "Law 1/N, h", "RSC-1, h", "RSC-2, h", "Failures")
    return Part(
        "mttf",
        title,
        says,
        Plot(svg, caption, HALF_PX),
        Table(head, tuple(_mttf_row(row) for row in mttf.iter_rows(named=True))),
        "Jobs of one size start at random moments on random nodes in service. Large jobs share "
        "failures, so that their intervals are too narrow.",
    )


def _mttf_row(row: dict[str, Any]) -> tuple[str, tuple[Cell, ...]]:
    measured: Cell = (f"above {rate(row['low_h'])}", "no failure")
    if row["mttf_h"] is not None:
        measured = (rate(row["mttf_h"]), f"{rate(row['low_h'])} to {rate(row['high_h'])}")
    laws = [
        (UNKNOWN if row[name] is None else rate(row[name]), "")
        for name in ("law_h", "rsc1_h", "rsc2_h")
    ]
    return f"{row['n_gpus']:,}", (measured, *laws, (f"{row['failures']:,}", ""))


def _paint_mttf(figure: Figure, *, mttf: pl.DataFrame) -> None:
    axes = figure.subplots()
    x = mttf["n_gpus"].to_numpy()
    for name, label, tone, dashes in (
        ("rsc2_h", "Meta RSC-2: 2.34 per 1,000 node-days", BASELINES[1], (1.5, 1.5)),
        ("law_h", "1/N with this fleet's rate", INK, (5, 2)),
        ("rsc1_h", "Meta RSC-1: 6.50 per 1,000 node-days", BASELINES[0], (7, 2, 1.5, 2)),
    ):
        axes.plot(x, mttf[name].to_numpy(), color=tone.light, dashes=dashes, label=label)
    low, high = mttf["low_h"].to_numpy(), mttf["high_h"].to_numpy()
    axes.vlines(x, low, high, color=MODEL.light, linewidth=1.6)
    axes.plot(
        x,
        mttf["mttf_h"].to_numpy(),
        linestyle="none",
        marker="o",
        markersize=6,
        color=MODEL.light,
        label="measured, 95 % interval",
    )
    ends = [values.to_numpy() for values in mttf.select("rsc1_h", "rsc2_h", "low_h", "high_h")]
    plain_log_axis(axes, "x", low=0.7 * float(x.min()), high=1.4 * float(x.max()))
    plain_log_axis(axes, "y", low=0.7 * float(np.min(ends)), high=1.4 * float(np.max(ends)))
    axes.set_xticks(x.tolist(), [f"{int(size):,}" for size in x])
    axes.tick_params(axis="x", labelsize=9)
    axes.set_xlabel("GPUs of the job (logarithmic)")
    axes.set_ylabel("Mean time to failure, hours (logarithmic)")
    legend_below(figure)


def summit_part(summit: pl.DataFrame | None, *, gpu_years: float, asked: str) -> Part:
    """The mix of Xids beside Summit's.

    Args:
        summit: `simulation.fleet.reliability.compare_with_summit`; null: no counts were given.
        gpu_years: GPU-years whose Xids were counted.
        asked: The command that would give them.
    """
    title = "Are the Xids mixed as on a real machine?"
    if summit is None:
        says = (
            "To see the mix beside that of Summit's 27,648 V100, give the counts of its failure "
            f"table, a CSV file with the columns failure and events: {asked}"
        )
        return Part("xids", title, says, None, None)
    known = summit.filter("is_comparable")
    by_xid = {row["xid"]: row for row in known.iter_rows(named=True)}
    parts = [percent(by_xid[code]["simulated_share"]) for code in (31, 13, 43)]
    theirs = [percent(by_xid[code]["summit_share"]) for code in (31, 13, 43)]
    says = (
        f"Xids 31, 13 and 43, which applications cause, are {', '.join(parts)} of what can be "
        f"compared; on Summit {', '.join(theirs)}."
    )
    head = ("Failure (Xid)", "Summit", "Simulated", "Share here")
    return Part(
        "xids",
        title,
        says,
        _summit_plot(known, gpu_years=gpu_years),
        Table(head, tuple(_summit_row(row) for row in summit.iter_rows(named=True))),
        f"Events per GPU-year, counts below. Simulated: {gpu_years:,.0f} GPU-years with jobs; "
        f"Summit: {SUMMIT_GPU_YEARS:,.0f}. Not compared, and in no share, is what means something "
        f"else on newer GPUs or came from one node.",
    )


def _summit_plot(known: pl.DataFrame, *, gpu_years: float) -> Plot:
    alt = "Xids per GPU-year, simulated and on Summit. " + "; ".join(
        f"Xid {row['xid']}: {rate(row['simulated_per_gpu_year'])} and "
        f"{rate(row['summit_events'] / SUMMIT_GPU_YEARS)}"
        for row in known.iter_rows(named=True)
    )
    caption = (
        "Look for the same order from top to bottom and the same few that make nearly all; the "
        "levels of the rest differ, for Summit ran V100, other programs and other drivers."
    )
    size = (HALF_IN, 1.6 + 0.36 * known.height)
    paint = partial(_paint_summit, known=known, gpu_years=gpu_years)
    return Plot(draw("xids", size_in=size, alt=alt, paint=paint), caption, HALF_PX)


def _summit_row(row: dict[str, Any]) -> tuple[str, tuple[Cell, ...]]:
    share: Cell = ("not compared", "")
    if row["is_comparable"]:
        share = (percent(row["simulated_share"]), f"Summit {percent(row['summit_share'])}")
    theirs = rate(row["summit_events"] / SUMMIT_GPU_YEARS)
    return f"{row['failure']} ({row['xid']})", (
        (theirs, f"{row['summit_events']:,}"),
        (rate(row["simulated_per_gpu_year"]), f"{row['simulated_events']:,}"),
        share,
    )


def _paint_summit(figure: Figure, *, known: pl.DataFrame, gpu_years: float) -> None:
    axes = figure.subplots()
    names = [f"{row['failure']} ({row['xid']})" for row in known.iter_rows(named=True)]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK.light, labelsize=9)
    theirs = known["summit_events"].to_numpy() / SUMMIT_GPU_YEARS
    counts = known["simulated_events"].to_list()
    ends = np.array([poisson_interval(count) for count in counts]) / gpu_years
    found = known["simulated_per_gpu_year"].to_numpy()
    values = np.concatenate([theirs, found, ends[:, 1]])
    floor = 0.5 * float(values[values > 0].min())
    for place, (low, high) in enumerate(ends):
        axes.plot([max(low, floor), high], [place, place], color=MODEL.light, linewidth=1.6)
    axes.plot(
        theirs,
        range(len(names)),
        linestyle="none",
        marker="D",
        markersize=7,
        markerfacecolor="none",
        markeredgecolor=BASELINES[0].light,
        label="Summit",
    )
    axes.plot(
        np.where(found > 0, found, np.nan),
        range(len(names)),
        linestyle="none",
        marker="o",
        color=MODEL.light,
        label="simulated, 95 % interval",
    )
    plain_log_axis(axes, "x", low=floor, high=2 * float(values.max()))
    axes.set_xlabel("Events per GPU-year (logarithmic)")
    legend_below(figure, columns=2)
