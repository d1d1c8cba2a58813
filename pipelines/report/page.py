"""The report: values in, one self-contained HTML page out.

No clock, no file is written, nothing is fetched; the words and pictures are in the other
modules of this package, the layout is in `templates/`.
"""

from importlib import resources
from itertools import pairwise

import polars as pl
from jinja2 import Environment, FunctionLoader, StrictUndefined

from features.errors import DataError
from features.monitoring_tables import QUARANTINE, READS
from features.tables import CORE_INCIDENTS, DECISIONS, NODE_SCORES
from pipelines.report import data as report_data
from pipelines.report import plan as report_plan
from pipelines.report import trust as report_trust
from pipelines.report import words as report_words
from pipelines.report.evidence import heat_map
from pipelines.report.figure import HEAT, TONES
from pipelines.report.input import (
    MIN_CLASS_INCIDENTS,
    EvaluationResult,
    GpuTimeline,
    Missing,
    ReportInput,
)
from pipelines.report.plots import lead_time_plot, precision_recall_plot, reliability_plot
from pipelines.report.timeline import timeline_plot


def render_report(report: ReportInput) -> str:
    """Renders a report as one HTML page that needs nothing else.

    Args:
        report: What to show; a part that is `Missing` says why.

    Returns:
        The page: the same text for the same input. Every name and message from outside is
        escaped.

    Raises:
        StructureError: A frame is not the table it should be.
        DataError: There is no score at `as_of` for the horizon.
    """
    _check(report)
    return page_environment().get_template("report.html.j2").render(
        report=report,
        words=report_words,
        tones=TONES,
        min_class_incidents=MIN_CLASS_INCIDENTS,
        notes=_notes(report),
        plan=_plan(report),
        trust=_trust(report),
        evidence=_evidence(report),
        data=_data(report),
    )  # fmt: skip


def _check(report: ReportInput) -> None:
    frames = [
        (NODE_SCORES, report.node_scores),
        (CORE_INCIDENTS, report.incidents),
        (READS, report.reads),
        (QUARANTINE, report.quarantine),
    ]
    if isinstance(report.decisions, pl.DataFrame):
        frames.append((DECISIONS, report.decisions))
    for contract, frame in frames:
        contract.conform(frame)
    if report_plan.latest_scores(report).is_empty():
        newest = report.node_scores["as_of"].unique().sort().tail(1).to_list()
        horizons = report.node_scores["horizon_h"].unique().sort().to_list()
        raise DataError(
            f"report: scores/node_scores has no row of as_of {report.as_of.isoformat()} and "
            f"horizon {report.horizon_h} h; its newest as_of is {[str(at) for at in newest]}, "
            f"its horizons are {horizons}. Give the report the as_of and a horizon of the scores."
        )


def page_environment() -> Environment:
    """Templates of the project's pages; every value is escaped."""
    templates = resources.files("pipelines.report").joinpath("templates")
    environment = Environment(
        loader=FunctionLoader(lambda name: templates.joinpath(name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["missing_part"] = lambda part: isinstance(part, Missing)
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return environment


def _notes(report: ReportInput) -> dict[str, object]:
    decisions = report.decisions
    if isinstance(decisions, Missing):
        return {"n_real": 0}
    return {"n_real": decisions.filter(~pl.col("is_dry_run")).height}


def _plan(report: ReportInput) -> dict[str, object]:
    cards = report.decisions
    return {
        "headline": report_plan.headline(report),
        "cards": cards
        if isinstance(cards, Missing)
        else report_plan.plan_cards(cards, latest=report_plan.latest_scores(report)),
        "ranking": report_plan.ranking(report),
        "other_horizons": report_plan.other_horizons(report),
    }


def _trust(report: ReportInput) -> dict[str, object] | Missing:
    found = report.evaluation
    if isinstance(found, Missing):
        return found
    return {
        "verdict": report_trust.verdict(found),
        "tiles": report_trust.tiles(found),
        "cautions": report_trust.cautions(report, found),
        "metrics": report_trust.metric_rows(found),
        "classes": report_trust.class_rows(found.classes),
        "fault_types": report_trust.fault_type_rows(found),
        **_trust_plots(report, found),
    }


def _trust_plots(report: ReportInput, found: EvaluationResult) -> dict[str, object]:
    model = found.model
    events = model.events if model else None
    leads = lead_time_plot(events, lead=report.lead) if events else None
    return {
        "curve": precision_recall_plot(found.methods, threshold=found.threshold)
        or Missing("no incident in the test time, so there is no curve"),
        "reliability": reliability_plot(model.rows.reliability if model else ())
        or Missing("no probabilities were judged"),
        "leads": leads or Missing("no incident was caught in the test time"),
    }


def _evidence(report: ReportInput) -> dict[str, object]:
    latest = report_plan.latest_scores(report)
    shown = report.node_scores.filter(
        pl.col("horizon_h") == report.horizon_h, pl.col("as_of") <= report.as_of
    )
    judged = report.evaluation
    heat = heat_map(
        shown,
        nodes=latest["entity_id"].to_list(),
        incidents=report.incidents,
        test_start=None if isinstance(judged, Missing) else judged.test.start,
    )
    timeline = report.timeline
    picture = None
    if isinstance(timeline, GpuTimeline):
        picture = timeline_plot(timeline, lead=report.lead, horizon_h=report.horizon_h)
    return {
        "heat": heat or Missing("node scores of one moment only"),
        "heat_legend": _heat_legend(heat.edges) if heat else (),
        "timeline": picture
        or (timeline if isinstance(timeline, Missing) else Missing("no sample and no score")),
    }


def _heat_legend(edges: tuple[float, ...]) -> tuple[tuple[str, str], ...]:
    """Colour variable and range of each level."""
    bounds = [0.0, *edges, 1.0]
    return tuple(
        (
            HEAT[level].variable,
            f"from {report_words.round_percent(low)}"
            if high == 1.0
            else f"below {report_words.round_percent(high)}"
            if low == 0.0
            else f"{report_words.round_percent(low)} to {report_words.round_percent(high)}",
        )
        for level, (low, high) in enumerate(pairwise(bounds))
    )


def _data(report: ReportInput) -> dict[str, object]:
    return {
        "reads": report_data.read_rows(report.reads),
        "refused": report_data.refused_rows(report.quarantine),
    }
