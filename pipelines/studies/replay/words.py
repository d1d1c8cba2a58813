"""What the replay says: the verdict in a sentence, what was done, costs assumed, what is unknown.

No figure is worked out here (`simulation.replay.comparison`); layout is in the template.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from models.evaluation.row_metrics import Estimate
from pipelines.report.words import (
    ACTION_WORDS,
    Tile,
    counted,
    fault_words,
    minus,
    moment,
    percent,
    plain,
)
from pipelines.studies.replay.input import ReplayInput
from simulation.replay.comparison import Comparison, Figures, break_even
from simulation.replay.history import HOUR, History, moment_of
from simulation.replay.holds import HoldOutcome
from simulation.replay.intervals import RESAMPLES

FEW: Final = 10
"""Outages below which nothing can be said."""
KIND_WORDS: Final = {
    "rework": "work since the last checkpoint",
    "hung": "hanging until noticed",
    "restart": "restarts after failures",
    "interruption": "restarts after drains",
    "idle": "GPUs idle on held nodes",
    "repair": "nodes in repair",
}
STRATEGY_WORDS: Final = {
    "never": "nothing is ever drained",
    "always": "every node scored above 0, as far as caps allow",
    "static rules": "any Xid 48, 63, 64, 74, 79 or 95 in the last 24 h",
    "history rank": "the nodes that failed most so far",
    "model": "the stored scores",
    "oracle": "knows every failure: the bound",
}


@dataclass(frozen=True)
class DrainRow:
    """One drain of the model, as a row."""

    at: str
    node: str
    action: str
    verdict: str
    came: str
    cost: str


def gpu_hours(value: float | None) -> str:
    """GPU-hours as a reader would say them.

    >>> gpu_hours(1234.4), gpu_hours(3.26), gpu_hours(-0.0), gpu_hours(None)
    ('1,234', '3.3', '0', 'unknown')
    """
    if value is None:
        return "unknown"
    text = f"{value:,.1f}" if abs(value) < 9.95 else f"{value:,.0f}"
    return minus("0" if text in ("0.0", "-0.0", "-0") else text)


def between(found: Estimate) -> str:
    """The interval of GPU-hours."""
    if found.low is None or found.high is None:
        return "no interval"
    return f"{gpu_hours(found.low)} to {gpu_hours(found.high)}"


def subject(found: Comparison) -> Figures:
    """The strategy that the verdict is on: the model, or history rank where there are no scores."""
    model = found.figures.get("model")
    return model if model is not None else found.figures["history rank"]


def verdict(given: ReplayInput, found: Comparison, kept: Comparison) -> str:
    """Whether acting pays, in one sentence, with the break-even where it does not.

    Args:
        given: What was replayed.
        found: The comparison in which checks find failures to come.
        kept: The one in which they find nothing.
    """
    one, bound = subject(found), found.figures.get("oracle")
    name = "the scores" if one.name == "model" else "history"
    n_outages = len(given.history.outages)
    few = f" With {counted(n_outages, 'failure')} this is an anecdote." if n_outages < FEW else ""
    if one.n_drains == 0:
        said = (
            f"Acting on {name} would have done nothing: to the policy no drain was worth its cost, "
            "or guards held all back." + _cost_sentence(given, found.figures["never"])
        )
        return said + _bound_sentence(bound) + few
    saved = one.saved
    value = saved.value or 0.0
    if value <= 0:
        said = (
            f"Acting on {name} does not pay here: it loses {gpu_hours(-value)} GPU-hours "
            f"(95 % interval of the saving {between(saved)}){_break_even(one, bound)}."
        )
        return said + _bound_sentence(bound) + few
    said = f"Acting on {name} saves {gpu_hours(value)} GPU-hours (95 % interval {between(saved)})"
    if (saved.low or 0.0) <= 0:
        said += ", which chance alone may have done"
    said += f"{_break_even(one, bound)}."
    other = subject(kept).saved.value or 0.0
    if other <= 0:
        said += (
            " That holds only if the check of a drained node finds the failure to come: with nodes "
            f"kept out for the horizon instead, it loses {gpu_hours(-other)}."
        )
    return said + few


def _cost_sentence(given: ReplayInput, never: Figures) -> str:
    """What a failure and a check cost here, which is often why nothing is worth it."""
    history = given.history
    if not history.outages:
        return ""
    failure = never.lost_by_jobs / len(history.outages)
    check = given.site.costs.drain_hours * sum(history.sizes) / len(history.sizes)
    return (
        f" A failure cost jobs {gpu_hours(failure)} GPU-hours on average, and the check of a "
        f"drained node alone costs {gpu_hours(check)}."
    )


def _break_even(one: Figures, bound: Figures | None) -> str:
    """From when on such drains pay, as the end of a sentence."""
    found = break_even(one, bound)
    parts = []
    if found.precision is not None and one.precision is not None:
        need = (
            "not pay even if all of them were useful"
            if found.precision > 1
            else f"pay once {percent(found.precision)} of them are useful"
        )
        whose = "the oracle's" if found.is_of_oracle else "those here"
        parts.append(
            f"; at this cost drains would {need}, each sparing what {whose} do on average, and "
            f"{percent(one.precision)} were"
        )
    if found.failure_factor is not None:
        parts.append(
            f"; they break even where failures cost {found.failure_factor:.2g} times what they did"
        )
    return "".join(parts)


def _bound_sentence(bound: Figures | None) -> str:
    if bound is None:
        return ""
    value = bound.saved.value or 0.0
    if value <= 0:
        return (
            " Even a perfect forecast would save nothing: recovery is cheap here, against what a "
            "drain costs."
        )
    return f" A perfect forecast under the same guards would save {gpu_hours(value)} GPU-hours."


def done_sentence(one: Figures) -> str:
    """What a strategy did."""
    if not one.n_drains:
        return "No node would have been taken."
    kinds = ", ".join(
        f"{counted(n, 'time')} {ACTION_WORDS[name].lower()}"
        for name, n in sorted(one.actions.items())
    )
    drains = one.drains
    return (
        f"{counted(one.n_drains, 'drain')} ({kinds}): {drains['useful']} useful, "
        f"{drains['late']} too late, {drains['wasted']} wasted, {drains['open']} open at the end "
        f"of the record. Of {gpu_hours(one.by_kind['idle'])} GPU-hours idle on them, jobs used "
        f"{gpu_hours(one.unused)} in the record; the rest was free there too."
    )


def tiles(found: Comparison) -> tuple[Tile, ...]:
    """The numbers in large type."""
    one, never = subject(found), found.figures["never"]
    judged = one.n_drains - one.drains["open"]
    return (
        Tile(gpu_hours(one.saved.value), "GPU-hours saved, net", f"95 %: {between(one.saved)}"),
        Tile(
            f"{one.drains['useful']} of {judged}",
            "judged drains useful",
            f"{one.drains['wasted']} wasted, {one.drains['late']} too late",
        ),
        Tile(
            f"{one.n_failure_interruptions} + {one.n_drain_interruptions}",
            "jobs interrupted, by failures and by drains",
            f"never draining: {never.n_failure_interruptions}",
        ),
        Tile(ettr(one), "productive share of job time (ETTR)", f"never draining: {ettr(never)}"),
    )


def ettr(one: Figures) -> str:
    """The productive share to a hundredth of a percent, for savings are of that size."""
    return "unknown" if one.ettr is None else f"{100 * one.ettr:.2f}\u00a0%"


def drain_rows(history: History, holds: Sequence[HoldOutcome]) -> tuple[DrainRow, ...]:
    """The drains of one run, by time."""
    return tuple(_drain_row(history, one) for one in holds)


def _drain_row(history: History, one: HoldOutcome) -> DrainRow:
    came = "no failure within the horizon"
    if one.verdict == "open":
        came = "the record ends first"
    elif one.changed and one.verdict in ("useful", "late"):
        outage = history.outages[min(one.changed)]
        after = (outage.start - one.since) / HOUR
        came = f"{fault_words(outage.fault_type)}, {after:.1f} h later"
        if one.verdict == "late":
            came += f"; ended {counted(len(one.changed[outage.number].hurt), 'job')} all the same"
    return DrainRow(
        at=moment(moment_of(one.since)),
        node=plain(history.names[one.node]),
        action=one.action,
        verdict=one.verdict,
        came=came,
        cost=gpu_hours(sum(charge.gpu_hours for charge in one.charges)),
    )


def length(history: History) -> str:
    """The length of the time."""
    days = history.span_h / 24
    return counted(round(days), "day") if days >= 1.5 else f"{history.span_h:.0f} hours"


def record_sentence(history: History) -> str:
    """What the record holds."""
    hits = sum(len(one.hits) for one in history.outages)
    return (
        f"{counted(len(history.names), 'node')}, {counted(sum(history.sizes), 'GPU')}, "
        f"{length(history)} with {counted(history.ticks.size, 'tick')} and "
        f"{counted(len(history.outages), 'failure')} that ended {counted(hits, 'job attempt')}."
    )


def assumptions(given: ReplayInput) -> tuple[str, ...]:
    """The costs that GPU-hours rest on, one line each."""
    costs = given.site.costs
    lost = (
        f"A job that a failure ends loses {costs.lost_work_minutes:g} min of work (at most its "
        f"age), hangs at most {costs.detection_minutes:g} min, and computes again "
        f"{costs.wait_minutes + costs.restart_minutes:g} min later, or "
        f"{costs.standby_restart_minutes:g} min where a standby node of the policy file is free."
    )
    out = (
        f"A drained node is checked for {costs.drain_hours:g} h once it is empty. Repair takes as "
        f"long as in the record, times {_planned(given):g} where it is planned."
    )
    resampled = (
        f"Intervals: {RESAMPLES.resamples:,} draws of node-weeks with replacement, seed "
        f"{RESAMPLES.seed}."
    )
    return (lost, out, resampled)


def _planned(given: ReplayInput) -> float:
    costs = given.site.costs
    return costs.planned_repair_hours / costs.repair_hours if costs.repair_hours else 1.0


def approximations(given: ReplayInput) -> tuple[str, ...]:
    """What a replay cannot know, one line each."""
    said = f"""
The record is of a world without these drains. Scores, node states and job starts are taken as \
they were, also where a drain would have changed them.
A job that would have started on a held node goes elsewhere at once and runs there unharmed. The \
held node's idle GPUs count as lost in full instead, also where nobody wanted them.
A check finds a failure that would begin within {given.site.horizon_h} h, or (second column) none, \
and the node is kept out that long. The truth lies between.
A wasted drain saves nothing by luck: once the node is back, all is as recorded.
A drain that has not emptied within {given.site.drains.longest_hours:g} h is given back.
Jobs whose requeue the record does not tell are not interrupted, as the hook does, unless their \
partition is listed.
Kill switch, people's requests, failing commands and lost leases of the past are not replayed.
"""
    return tuple(said.strip().splitlines())


def summary(given: ReplayInput, found: Comparison, kept: Comparison) -> list[str]:
    """The text for the terminal."""
    rows = [("strategy", "lost", "saved", "95 % interval", "if kept", "useful/late/wasted", "ETTR")]
    for name, one in found.figures.items():
        drains = one.drains
        rows.append(
            (
                name,
                gpu_hours(one.lost),
                gpu_hours(one.saved.value),
                between(one.saved),
                gpu_hours(kept.figures[name].saved.value),
                f"{drains['useful']}/{drains['late']}/{drains['wasted']}",
                ettr(one),
            )
        )
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    since, until = (moment_of(at) for at in (given.history.start, given.history.end))
    head = (
        f"{plain(given.name)}, {moment(since)} to {moment(until)}: {record_sentence(given.history)}"
    )
    note = "GPU-hours. If kept: no check finds anything, and nodes stay out for the horizon."
    return [head, *given.cautions, "", *table, note, "", verdict(given, found, kept)]
