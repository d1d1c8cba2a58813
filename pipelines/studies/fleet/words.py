"""Results of the study of synthetic fleets as a table in Markdown.

What is measured is in `pipelines.studies.fleet.study`.
"""

from collections.abc import Sequence

from models.evaluation.fleet_judgement import ClassRecall, ScoreTruth
from models.evaluation.intervals import poisson_interval
from models.evaluation.row_metrics import Estimate
from pipelines.studies.fleet.plan import Judged, StudyPlan

_POLICIES = {"budget": "within the budget", "strict": "of high precision"}
_HEADER = (
    "| class | incidents | caught | recall | signs | over it | record | over it | ceiling | "
    "over it | lead |"
)


def study_in_words(plan: StudyPlan, judged: Sequence[Judged]) -> str:
    """The study as Markdown.

    Args:
        plan: What was asked.
        judged: What came of it.

    Returns:
        A heading and tables for each regime and horizon.
    """
    head = (
        f"Learned on {plan.regime} at {plan.density:g} times its rates, seeds "
        f"{_list(plan.train_seeds)}; calibrated and tuned on seeds {_list(plan.valid_seeds)}, at "
        f"{plan.hazards:g} times its rates, as judged; {plan.nodes} nodes for {plan.days} days "
        f"each, features "
        f"{plan.feature_set}, at most {plan.budget:g} alerts per 1,000 nodes and day."
    )
    lines = [head]
    for one in judged:
        lines += ["", f"### {one.regime}, {one.horizon_h} h, policy {_POLICIES[one.policy]}", ""]
        lines += [one.choice.explanation, ""]
        lines += _events(one)
    return "\n".join(lines) + "\n"


def _events(one: Judged) -> list[str]:
    events = one.events
    if events is None:
        return ["No policy, so no alert."]
    scale = 1000.0 / events.node_days if events.node_days else 0.0
    ends = poisson_interval(events.n_alerts, clustering=one.clustering)
    low, high = (scale * end for end in ends)
    head = (
        f"{events.n_alerts} alerts in {events.node_days:.0f} node-days: "
        f"{scale * events.n_alerts:.2f} [{low:.2f}, {high:.2f}] per 1,000 nodes and day (by "
        f"node they vary {one.clustering:.1f} times as much as independent ones), precision "
        f"{_share(events.precision)}, recall {_share(events.recall)}."
    )
    lines = [
        head,
        "",
        _HEADER,
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_class(row) for row in one.classes),
    ]
    return lines if one.truth is None else [*lines, "", *_truth(one.truth)]


def _class(row: ClassRecall) -> str:
    pairs = (
        (row.by_signs, row.ratio_by_signs),
        (row.by_record, row.ratio_by_record),
        (row.ceiling, row.ratio),
    )
    bounds = " | ".join("" if value is None else f"{value:.2f}" for pair in pairs for value in pair)
    lead = "" if row.lead_h is None else f"{row.lead_h:.1f} h"
    return (
        f"| {row.fault_type} | {row.n_incidents} | {row.n_caught} | {_share(row.recall)} | "
        f"{bounds} | {lead} |"
    )


def _truth(truth: ScoreTruth) -> list[str]:
    check = truth.check
    bands = "; ".join(
        f"{band.expected / band.n_rows:.2g}: {_share(band.ratio)} ({band.n_rows} rows)"
        for band in check.bands
    )
    words = (
        f"Observed over expected by band above the threshold (mean score), each expected to hold "
        f"as many: {bands or 'no rows'}. Of all rows {_share(check.observed_by_expected)}; slope "
        f"{_share(check.slope)}; log loss {_small(Estimate(check.log_loss, None, None))}, "
        f"{_small(truth.log_loss_gain)} below that of the base rate."
    )
    return [words]


def _share(value: Estimate) -> str:
    if value.value is None:
        return "not defined"
    if value.low is None or value.high is None:
        return f"{value.value:.2f}"
    return f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def _small(value: Estimate) -> str:
    if value.value is None:
        return "not defined"
    if value.low is None or value.high is None:
        return f"{value.value:.5f}"
    return f"{value.value:.5f} [{value.low:.5f}, {value.high:.5f}]"


def _list(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
