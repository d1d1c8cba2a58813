"""The sentences of the shadow report: what it would have done, how often right, what to do next.

The figures are made in `pipelines.report.shadow.figures`, the layout is in
`templates/shadow.html.j2`.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from models.evaluation.row_metrics import Estimate
from pipelines.report.shadow.figures import FATES, Drift, Fate, Figures, Row, Worth
from pipelines.report.shadow.input import ShadowInput
from pipelines.report.words import (
    Tile,
    counted,
    fault_words,
    minus,
    moment,
    percent,
    percent_interval,
    plain,
)
from remediation.shadow import hold_time
from simulation.replay.tables import STATIC_XIDS

LEAST_JUDGED: Final = 10
"""Judged actions below which a share says nothing: with 9, its interval spans half of all."""
LEAST_PRECISION: Final = 0.5
"""Lower end of the precision from which on automation may act: surely more often right than not."""
MOST_DARK: Final = 0.1
MOST_UNKNOWN: Final = 0.2

STAY: Final = "Stay in observe."
OUTCOME_WORDS: Final = {
    "right": "right",
    "early": "failed before the lead was over",
    "late": "failed after the horizon",
    "wrong": "wrong: nothing failed",
}
HELD_BACK_WORDS: Final = {**OUTCOME_WORDS, "right": "failed in time", "wrong": "nothing failed"}
WHY_WORDS: Final = {
    "data_end": "the record ends before the horizon does",
    "not_watched": "the node left, was replaced, or is not in the inventory",
    "maintenance": "someone took the node out before the outcome was known",
    "own_action": "our own drain hid the outcome",
    "in_incident": "an earlier failure was still open",
}
FATE_WORDS: Final = {
    "caught": "caught",
    "too_late": "announced too late",
    "held_back": "announced, held back by guards",
    "hidden": "announced, outcome hidden",
    "missed": "nothing announced it",
}
NOT_CAUGHT: Final = {
    "too_late": "announced before the drain could be over",
    "held_back": "announced, but held back by guards",
    "hidden": "announced, but something hid the outcome",
    "missed": "that nothing announced",
}


@dataclass(frozen=True)
class Advice:
    """What to do next, and why."""

    do: str
    why: str


def gpu_hours(value: float) -> str:
    """GPU-hours as a reader would say them.

    >>> gpu_hours(1234.4), gpu_hours(3.26), gpu_hours(-0.0)
    ('1,234', '3.3', '0')
    """
    text = f"{value:,.1f}" if abs(value) < 9.95 else f"{value:,.0f}"
    return minus("0" if text in ("0.0", "-0.0") else text)


def gpu_hours_interval(found: Estimate) -> str:
    """The interval of GPU-hours; empty where there is none."""
    if found.low is None or found.high is None:
        return ""
    return f"{gpu_hours(found.low)} to {gpu_hours(found.high)}"


def length(given: ShadowInput) -> str:
    """The length of the time."""
    days = (given.until - given.since) / timedelta(days=1)
    return counted(round(days), "day") if days >= 1.5 else f"{24 * days:.0f} hours"


def did_sentence(given: ShadowInput, found: Figures) -> str:
    """What it would have done."""
    when = f"from {moment(given.since)} to {moment(given.until)}"
    if not found.actions and not found.held_back:
        return (
            f"The ledger holds no decision {when} that wanted an action, so there is nothing to "
            "judge: let the hook run on in observe mode."
        )
    kinds = Counter(row.would_be.action for row in found.actions)
    nodes = len({row.would_be.decision.node for row in found.actions})
    said = ", ".join(f"{counted(n, 'time')} {plain(kind)}" for kind, n in sorted(kinds.items()))
    done = (
        f"Allowed up to {given.level}, the hook would have acted "
        f"{counted(len(found.actions), 'time')} on {counted(nodes, 'node')} in {length(given)} "
        f"({said})."
        if found.actions
        else f"Allowed up to {given.level}, the hook would not have acted once in {length(given)}."
    )
    held = counted(len(found.held_back), "more alarm", "more alarms")
    return f"{done} Guards and caps would have held back {held}."


def right_sentence(found: Figures) -> str:
    """How often it would have been right."""
    counts, n = found.worth.counts, found.n_judged
    unjudged = len(found.actions) - n
    hidden = f" {unjudged} cannot be judged and count as neither." if unjudged else ""
    if n == 0:
        return f"No action can be judged, so nothing can be said on how often it is right.{hidden}"
    said = (
        f"{counts['right']} of {counted(n, 'judged action')} would have been right "
        f"({percent(found.precision.value)}, 95 % interval {percent_interval(found.precision)}); "
        f"{counts['wrong']} wrong, {counts['early']} with the failure before the lead was over, "
        f"{counts['late']} with the failure after the horizon.{hidden}"
    )
    few = f" With fewer than {LEAST_JUDGED} judged, that is too few to say anything."
    return said + (few if n < LEAST_JUDGED else "")


def missed_sentence(found: Figures) -> str:
    """What it would have missed, beside what it would have caught."""
    n = len(found.fates)
    if n == 0:
        return "No failure is known of this time, so nothing could be caught or missed."
    by_fate = Counter(one.fate for one in found.fates)
    not_caught = n - by_fate["caught"]
    why = "; ".join(
        f"{by_fate[fate]} {NOT_CAUGHT[fate]}" for fate in reversed(FATES[1:]) if by_fate[fate]
    )
    caught = (
        f"{by_fate['caught']} of {counted(n, 'known failure')} ({percent(found.recall.value)}, "
        f"95 % interval {percent_interval(found.recall)}) would have been caught"
    )
    few = " These are too few to say anything." if n < LEAST_JUDGED else ""
    return f"{not_caught} would have struck all the same ({why or 'none'}); {caught}.{few}"


def saved_sentence(found: Figures) -> str:
    """What it would have saved."""
    worth = found.worth
    if found.n_judged == 0:
        return "No action can be judged, so no GPU-hours are claimed."
    between = gpu_hours_interval(worth.net)
    unjudged = (
        f" Actions that cannot be judged would have cost up to {gpu_hours(worth.unjudged)} more."
        if worth.unjudged
        else ""
    )
    return (
        f"Net {gpu_hours(worth.net.value or 0.0)} GPU-hours (95 % interval by node {between}): "
        f"{gpu_hours(worth.saved)} spared by right actions, less {gpu_hours(worth.spent_right)} "
        f"that these cost and {gpu_hours(worth.wasted)} wasted by the others. Had every node been "
        "kept out for its whole hold, instead of until its check, the net would be "
        f"{gpu_hours(worth.net_if_kept)}. All known failures together cost jobs "
        f"{gpu_hours(found.lost)}.{unjudged}"
    )


def advice(found: Figures, *, level: str) -> Advice:
    """What to do next, with the reason.

    Args:
        found: The figures.
        level: Level that they were reckoned for.
    """
    if found.is_synthetic:
        return Advice(
            STAY,
            "Record or model is synthetic: nothing on this page is a reason to act on a cluster.",
        )
    reason = _reason_to_stay(found)
    if reason:
        return Advice(STAY, reason)
    lacks = []
    if (found.worth.net.low or 0.0) <= 0:
        lacks.append("the interval of the saving reaches down to nothing")
    if found.worth.net_if_kept <= 0:
        lacks.append("it would have cost more than it saved, had each node been kept for its hold")
    if (found.precision.low or 0.0) < LEAST_PRECISION:
        lacks.append(f"it may be right less than {percent(LEAST_PRECISION)} of the time")
    if len(found.drift.versions) > 1:
        lacks.append("the model changed in this time, and the figures mix its versions")
    if lacks:
        return Advice(
            "Go to recommend: a person approves each action.",
            f"It would have saved on balance, but {', and '.join(lacks)}.",
        )
    other = (
        ""
        if level == "cordon"
        else f" The hours are those of {level}; a cordon leaves GPUs idle for longer, so look at "
        "this page with --level cordon first."
    )
    return Advice(
        "Allow cordon for one group, caps at their defaults.",
        f"Even at the lower ends of both intervals it is right in "
        f"{percent(found.precision.low)} of its actions and saves GPU-hours.{other}",
    )


def _reason_to_stay(found: Figures) -> str:
    drift = found.drift
    if found.n_judged < LEAST_JUDGED:
        return (
            f"Only {counted(found.n_judged, 'action')} could be judged; {LEAST_JUDGED} are the "
            "least that say anything."
        )
    if len(drift.dark_days) > MOST_DARK * drift.n_days:
        return f"{len(drift.dark_days)} of {drift.n_days} days had no scores: mend that first."
    if drift.unknown_share is None or drift.unknown_share > MOST_UNKNOWN:
        share = percent(drift.unknown_share)
        return f"The share of node scores that are unknown is {share}: mend telemetry first."
    if (found.worth.net.value or 0.0) <= 0:
        return "It would have cost more GPU-hours than it saved."
    return ""


def tiles(found: Figures) -> tuple[Tile, ...]:
    """The numbers in large type; what is missed stands as large as what is caught."""
    n = len(found.fates)
    caught = sum(one.fate == "caught" for one in found.fates)
    share = None if found.recall.value is None else 1 - found.recall.value
    counts, judged = found.worth.counts, found.n_judged
    few = "too few to say anything" if judged < LEAST_JUDGED else ""
    between = gpu_hours_interval(found.worth.net)
    return (
        Tile(
            f"{counts['right']} of {judged}",
            "judged actions right",
            few or f"{percent(found.precision.value)}; {percent_interval(found.precision)}",
        ),
        Tile(percent(found.recall.value), "of known failures caught", f"{caught} of {n}"),
        Tile(percent(share), "of known failures missed", f"{n - caught} of {n}"),
        Tile(
            gpu_hours(found.worth.net.value or 0.0),
            "GPU-hours saved, net",
            f"{few and few + '; '}95 % interval {between}" if between else "nothing judged",
        ),
    )


def what_happened(row: Row) -> str:
    """What became of the node of an action or alarm."""
    outcome = row.outcome
    if outcome.kind == "unjudged":
        return f"cannot be judged: {WHY_WORDS.get(outcome.why or '', plain(outcome.why or ''))}"
    is_acting = row.would_be.is_acting
    said = (OUTCOME_WORDS if is_acting else HELD_BACK_WORDS)[outcome.kind]
    if outcome.incident is None:
        return said
    gap = (outcome.incident["start"] - row.would_be.decision.as_of) / timedelta(hours=1)
    return (
        f"{said}: {fault_words(outcome.incident['fault_type'])} at "
        f"{moment(outcome.incident['start'])}, {gap:.1f} h after the score"
    )


def fault_rows(fates: tuple[Fate, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Per fault type: known failures, then how many of each fate; the most frequent first."""
    by_type: dict[str, Counter[str]] = {}
    for one in fates:
        by_type.setdefault(one.incident["fault_type"], Counter())[one.fate] += 1
    ordered = sorted(by_type.items(), key=lambda item: (-item[1].total(), item[0]))
    return tuple(
        (fault_words(name), (found.total(), *(found[fate] for fate in FATES)))
        for name, found in ordered
    )


def worth_rows(found: Figures) -> tuple[tuple[str, Worth | None, str], ...]:
    """The hook beside its two references: name, worth (None: nothing is done), and a remark."""
    codes = ", ".join(map(str, STATIC_XIDS))
    rows: list[tuple[str, Worth | None, str]] = [
        ("Hook", found.worth, f"{len(found.actions) - found.n_judged} more cannot be judged"),
        ("Do nothing", None, f"jobs lost {gpu_hours(found.lost)} GPU-hours to known failures"),
    ]
    if found.static is not None:
        late = f"{found.n_static_unjudged} more cannot be judged, mostly as the failure was there"
        rows.append((f"Drain on any Xid {codes}", found.static, late))
    return tuple(rows)


def drift_rows(drift: Drift) -> tuple[tuple[str, str], ...]:
    """What the time is made of."""
    versions = "; ".join(
        f"{plain(name)} ({moment(first)} to {moment(last)})" for name, first, last in drift.versions
    )
    dark = ", ".join(f"{day:%Y-%m-%d}" for day in drift.dark_days[:10])
    more = len(drift.dark_days) - 10
    return (
        ("Model versions", versions or "none"),
        (
            "Days without scores",
            f"{len(drift.dark_days)} of {drift.n_days}"
            + (f": {dark}" if dark else "")
            + (f" and {more} more" if more > 0 else ""),
        ),
        ("Node scores unknown", percent(drift.unknown_share)),
        ("Node scores by history alone", percent(drift.prior_share)),
        ("Decisions left out, as a hook could act on them", f"{drift.n_acted_on:,}"),
    )


def assumptions(given: ShadowInput, found: Figures) -> tuple[str, ...]:
    """The costs that GPU-hours rest on, one line each."""
    costs = given.site.costs
    failed = (
        f"A job that a failure ends loses {costs.lost_work_minutes:g} min of work since its last "
        f"checkpoint (at most its age), hangs at most {costs.detection_minutes:g} min, waits "
        f"{costs.wait_minutes:g} min for another node and restarts in {costs.restart_minutes:g} "
        "min, on all its GPUs."
    )
    out = (
        f"A drained node is out for {costs.drain_hours:g} h of check. A node that really failed is "
        f"repaired in {costs.repair_hours:g} h after a failure, in "
        f"{costs.planned_repair_hours:g} h after a drain."
    )
    told = f"Jobs are given {costs.notice_minutes:g} min of notice where an action moves them."
    lines = [failed, out, told]
    if found.n_assumed:
        lines.append(f"{counted(found.n_assumed, 'node')} of unknown size: 8 GPUs taken.")
    return tuple(lines)


def approximations(given: ShadowInput) -> tuple[str, ...]:
    """What this page only comes close to."""
    horizon_h = given.site.horizon_h
    held = hold_time(given.site, horizon_h) / timedelta(hours=1)
    said = f"""
Level {given.level} is taken for every node and fault, whatever the levels of the site.
All guards but level, own holds and caps speak as the ledger has them. The caps are asked anew, \
about the cluster of that moment as the core tables tell it.
A would-be hold lasts {held:g} h, whatever became of the node; decisions on the node within it are \
one action.
The ledger writes a decision once until its verdicts change, so an alarm that the hourly rate held \
back gets its next turn only with the next score.
Jobs are those that really ran. That a held node would have sent them elsewhere, and what that \
would have delayed, is not followed.
A drain that was right is taken to have kept the node out until the failure, and a wrong one to \
have given it back after the check. Who gives nodes back later loses more: the summary names the \
net for a whole hold.
Right means a failure in core/incidents. Failures that nobody recorded are unknown here.
"""
    return tuple(said.strip().splitlines())
