"""What a report says first: the state of the fleet, the plan and the ranked nodes, in words.

Layout is the template's, pictures are in the plot modules; text is not escaped here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from features.vocabulary import ACTIONS
from pipelines.report.input import ReportInput
from pipelines.report.words import ACTION_WORDS, UNKNOWN, counted, fault_words, percent, plain

MAX_CARDS = 30
MAX_RANKED = 40

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Listing:
    """Some rows of a longer list.

    Attributes:
        rows: Rows shown.
        n_left_out: Rows not shown.
    """

    rows: tuple[Row, ...]
    n_left_out: int = 0


def latest_scores(report: ReportInput) -> pl.DataFrame:
    """Node scores at `as_of` for the horizon shown, riskiest first, unknown last."""
    return report.node_scores.filter(
        pl.col("as_of") == report.as_of, pl.col("horizon_h") == report.horizon_h
    ).sort(["score", "entity_id"], descending=[True, False], nulls_last=True)


def headline(report: ReportInput) -> str:
    """The state of the fleet in one sentence."""
    latest = latest_scores(report)
    n_unknown = latest.filter(pl.col("status") == "unknown").height
    parts = []
    if isinstance(report.decisions, pl.DataFrame):
        counts = dict(report.decisions.group_by("action").len().iter_rows())
        acting = sum(counts.get(action, 0) for action in ACTIONS if action not in ("none", "watch"))
        held = report.decisions.filter(
            pl.col("wanted") != pl.col("action"), ~pl.col("wanted").is_in(["none", "watch"])
        ).height
        parts.append(f"{counted(acting, 'node')} to take out of service")
        if held:
            parts.append(f"{counted(held, 'node')} held back by guards")
        parts.append(f"{counts.get('watch', 0):,} to watch")
    if report.node_threshold is not None:
        above = latest.filter(pl.col("score") >= report.node_threshold).height
        parts.append(f"{above:,} above the alert threshold of {percent(report.node_threshold)}")
    if n_unknown:
        parts.append(f"{n_unknown:,} without a score")
    said = ", ".join(parts) or "no plan"
    return f"Of {counted(latest.height, 'node')}: {said}."


def plan_cards(decisions: pl.DataFrame, *, latest: pl.DataFrame) -> Listing:
    """Decisions that want something done, the most harmful action and highest score first.

    Args:
        decisions: remediation/decisions rows.
        latest: scores/node_scores rows at the moment of the plan, one per node, for reasons.
    """
    reasons = dict(latest.select("entity_id", "reasons").iter_rows())
    order = {action: place for place, action in enumerate(ACTIONS)}
    wanted = (
        decisions.filter((pl.col("wanted") != "none") | (pl.col("action") != "none"))
        .with_columns(
            pl.col("wanted").replace_strict(order, return_dtype=pl.Int64).alias("_wanted"),
            pl.col("action").replace_strict(order, return_dtype=pl.Int64).alias("_action"),
        )
        .sort(
            ["_action", "_wanted", "score", "node"],
            descending=[True, True, True, False],
            nulls_last=True,
        )
    )
    cards = tuple(
        _card(row, reasons.get(row["node"], []))
        for row in wanted.head(MAX_CARDS).iter_rows(named=True)
    )
    return Listing(cards, wanted.height - len(cards))


def _card(row: Row, reasons: Sequence[str]) -> Row:
    facts = {
        "Score": f"{percent(row['score'])} within {row['horizon_h']} h",
        "Likely fault": fault_words(row["fault_type"]),
        "Cost of acting": _gpu_hours(row["cost_of_acting"]),
        "Cost of waiting": _gpu_hours(row["cost_of_waiting"]),
        "Model": plain(row["model_version"]),
    }
    is_held = row["wanted"] != row["action"]
    return {
        "node": plain(row["node"]),
        "action": "Held back"
        if is_held and row["action"] == "none"
        else ACTION_WORDS[row["action"]],
        "wanted": ACTION_WORDS[row["wanted"]] if is_held else "",
        "is_acting": row["action"] not in ("none", "watch"),
        "sentence": plain(row["sentence"]),
        "blocked_by": [plain(reason) for reason in row["blocked_by"]],
        "reasons": [plain(reason) for reason in reasons],
        "facts": facts,
    }


def _gpu_hours(cost: float | None) -> str:
    return UNKNOWN if cost is None else f"{cost:,.1f} GPU-hours"


def ranking(report: ReportInput) -> Listing:
    """Nodes by score with reasons, and the scores of the other horizons."""
    latest = latest_scores(report)
    others = report.node_scores.filter(pl.col("as_of") == report.as_of)
    by_horizon = {
        (row["entity_id"], row["horizon_h"]): row["score"]
        for row in others.select("entity_id", "horizon_h", "score").iter_rows(named=True)
    }
    actions: dict[str, str] = {}
    if isinstance(report.decisions, pl.DataFrame):
        actions = dict(report.decisions.select("node", "action").iter_rows())
    rows = []
    for place, row in enumerate(latest.head(MAX_RANKED).iter_rows(named=True), start=1):
        score = row["score"]
        is_above = (
            score is not None
            and report.node_threshold is not None
            and score >= report.node_threshold
        )
        action = actions.get(row["entity_id"])
        rows.append(
            {
                "rank": place,
                "node": plain(row["entity_id"]),
                "score": percent(score),
                "width": None if score is None else round(100 * score, 1),
                "is_above": is_above,
                "others": [
                    percent(by_horizon.get((row["entity_id"], h))) for h in other_horizons(report)
                ],
                "fault": _fault(row),
                "reasons": [plain(reason) for reason in row["reasons"]],
                "status": _status(row),
                "missing": percent(row["missing_share"]),
                "action": ACTION_WORDS[action] if action else "No decision",
            }
        )
    return Listing(tuple(rows), latest.height - len(rows))


def other_horizons(report: ReportInput) -> tuple[int, ...]:
    """Horizons scored at `as_of` beside the one shown."""
    at_once = report.node_scores.filter(pl.col("as_of") == report.as_of)
    found = at_once["horizon_h"].unique().sort().to_list()
    return tuple(h for h in found if h != report.horizon_h)


def _fault(row: Row) -> str:
    if row["fault_type"] is None:
        return UNKNOWN
    share = row["fault_probability"]
    words = fault_words(row["fault_type"])
    return words if share is None else f"{words} ({percent(share)})"


def _status(row: Row) -> str:
    reason = row["status_reason"]
    return row["status"] if reason is None else f"{row['status']}: {plain(reason)}"
