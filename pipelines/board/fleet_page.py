"""The fleet page's content: who is at risk, what happens next, the map, the ranked list.

Frames and the hook's view in, plain rows out; reading is in `pipelines.board.desk`, layout in the
template.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from pipelines.api.fleet_view import Snapshot
from pipelines.board.health import is_in_time
from pipelines.board.hook_view import Decided, HookView
from pipelines.board.words import STATE_WORDS, age
from pipelines.report.words import ACTION_WORDS, counted, fault_words, hours, percent, plain
from pipelines.serving.score_database import Tick
from remediation.decision import HARM

PAGE_ROWS: Final = 50
MOST_FIRST: Final = 8
"""Nodes named at the top: more cannot be taken in at a glance; the ranked list has all."""

ONLY: Final[Mapping[str, str]] = {
    "": "all nodes",
    "alert": "above the alert threshold",
    "planned": "the hook wants to act",
    "held": "held by Forewarn",
    "out": "out of service",
    "unknown": "unknown",
}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What of the ranked list is asked for; all of it comes from outside.

    Attributes:
        horizon_h: Horizon; None: the first that is scored.
        text: Only nodes or racks whose name holds it.
        rack: Only this rack.
        fault_type: Only this fault type.
        only: One of `ONLY`.
        page: Page, from 1.
    """

    horizon_h: int | None = None
    text: str = ""
    rack: str = ""
    fault_type: str = ""
    only: str = ""
    page: int = 1


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """What comes next for a node.

    Attributes:
        words: What the hook intends, or did.
        stops: Guards that said no, each with its reason.
        is_blocked: Whether a guard stopped what the policy wants.
        decision: The decision; None: there is none on these scores.
    """

    words: str
    stops: tuple[str, ...] = ()
    is_blocked: bool = False
    decision: Decided | None = None


def fleet_frame(
    snapshot: Snapshot, *, horizon_h: int, states: pl.DataFrame, hook: HookView
) -> pl.DataFrame:
    """The nodes of a tick by falling score, unknown ones last.

    Args:
        snapshot: The tick.
        horizon_h: Horizon, hours.
        states: `node`, `state`, `reason`, `actor` at present.
        hook: How the hook stands.

    Returns:
        Columns of the scores with `node`, `rack`, `is_alert`, `is_held`, `is_planned`, `state`
        (unknown where nobody says).
    """
    policy = snapshot.tick.policies.get(horizon_h)
    threshold = 2.0 if policy is None else policy.threshold
    rows = snapshot.nodes.frame[snapshot.nodes.ranking[horizon_h]]
    planned = [one.node for one in hook.of_tick(snapshot.tick.as_of) if wants_to_act(one)]
    return (
        rows.with_columns(node=pl.col("entity_id"))
        .with_columns(
            is_alert=(pl.col("score") >= threshold).fill_null(value=False),
            is_held=pl.col("node").is_in(list(hook.view.held)),
            is_planned=pl.col("node").is_in(planned),
        )
        .join(states, on="node", how="left", maintain_order="left")
        .with_columns(pl.col("state").fill_null("unknown"))
    )


def select(fleet: pl.DataFrame, wanted: Wanted) -> pl.DataFrame:
    """The rows that pass every filter, in the same order."""
    keeps = pl.lit(value=True)
    if wanted.text:
        text = wanted.text.lower()
        names = (pl.col(c).fill_null("").str.to_lowercase() for c in ("node", "rack"))
        keeps &= pl.any_horizontal(name.str.contains(text, literal=True) for name in names)
    if wanted.rack:
        keeps &= pl.col("rack").eq_missing(pl.lit(wanted.rack))
    if wanted.fault_type:
        keeps &= pl.col("fault_type").eq_missing(pl.lit(wanted.fault_type))
    picked = {
        "alert": pl.col("is_alert"),
        "planned": pl.col("is_planned"),
        "held": pl.col("is_held"),
        "out": pl.col("state").is_in(["drain", "down"]),
        "unknown": pl.col("score").is_null(),
    }
    return fleet.filter(keeps & picked.get(wanted.only, pl.lit(value=True)))


def at_risk(fleet: pl.DataFrame) -> pl.DataFrame:
    """Nodes that someone should know of at once, highest score first."""
    return fleet.filter(pl.col("is_alert") | pl.col("is_planned"))


def headline(
    fleet: pl.DataFrame, hook: HookView, *, as_of: datetime, is_valid: bool, has_threshold: bool
) -> str:
    """The page in one line, for whoever was woken.

    Args:
        fleet: From `fleet_frame`.
        hook: How the hook stands.
        as_of: Moment of the scores.
        is_valid: Whether they may still be acted on.
        has_threshold: Whether a score of this horizon can be an alert.
    """
    risky = int(fleet["is_alert"].sum())
    words = ["No node is above the alert threshold"]
    if risky:
        words = [f"{counted(risky, 'node')} above the alert threshold"]
    elif not has_threshold:
        words = ["No alert threshold is set for this horizon, so nothing is an alert"]
    wants = [one for one in hook.of_tick(as_of) if wants_to_act(one)]
    leave = sum(one.is_to_approve for one in wants)
    blocked = sum(bool(one.stops) for one in wants) - leave
    if is_valid and wants:
        acts = len(wants) - blocked - leave
        words.append(f"the hook {'would act' if hook.is_dry_run else 'acts'} on {acts}")
        words += [f"guards stop it on {blocked}"] if blocked else []
        waits = counted(leave, "node waits", "nodes wait")
        words += [f"{waits} for a person's leave"] if leave else []
    unknown = fleet["score"].null_count()
    words += [f"{counted(unknown, 'node')} unknown"] if unknown else []
    return ("" if is_valid else "Last known: ") + "; ".join(words) + "."


def title(fleet: pl.DataFrame, *, is_valid: bool, has_threshold: bool) -> str:
    """What a browser's tab says; it never says 0 where nobody knows. Arguments as `headline`."""
    risky, unknown = int(fleet["is_alert"].sum()), fleet["score"].null_count()
    said = f"{risky:,} at risk" if has_threshold or risky else "no threshold"
    if unknown:
        said += f", {unknown:,} unknown"
    return said if is_valid else f"Expired ({said})"


def nobody(hook: HookView, *, is_valid: bool, has_threshold: bool) -> str:
    """What an empty list of nodes at risk means; arguments as `headline`."""
    if not has_threshold:
        said = "No alert threshold is set for this horizon, so no node can be above it"
    else:
        said = f"No node {'is' if is_valid else 'was'} above its alert threshold"
    if hook.problem:
        return f"{said}; what the hook wants is unknown, for its ledger cannot be read."
    wants = "wants to act on none" if is_valid else "acts on no expired score"
    return f"{said}, and the hook {wants}."


def wants_to_act(decided: Decided) -> bool:
    """Whether the policy wants more than to look."""
    # A word that an older or newer hook used is taken for the worst, so that it is seen.
    return HARM.get(decided.wanted, HARM["drain_now"]) > HARM["watch"]


def next_step(node: str, hook: HookView, *, tick: Tick | None, now: datetime) -> NextStep:
    """What comes next for a node, in words."""
    held, alone = hook.view.held.get(node), hook.requested.held_back(node, now)
    decided = hook.decided.get(node)
    if decided is not None and (tick is None or decided.as_of != tick.as_of):
        decided = None
    if held is not None:
        would = "Would be held" if hook.is_dry_run else "Held"
        done = plain(held.action).replace("_", " ")
        return NextStep(words=f"{would} for {age(held.since, now)} ({done})", decision=decided)
    if alone is not None:
        until = age(now, alone.until)
        return NextStep(
            words=f"Left alone for another {until}, asked by {alone.actor}", decision=decided
        )
    if hook.problem:
        return NextStep(words="Unknown: the hook's ledger cannot be read")
    if tick is None or not is_in_time(tick, now):
        return NextStep(words="Nothing: these scores have expired", decision=decided)
    if decided is None:
        return NextStep(words="The hook has decided nothing on these scores")
    return _intended(decided, hook)


def _intended(decided: Decided, hook: HookView) -> NextStep:
    """What the hook intends by a decision on scores that still hold."""
    wanted = ACTION_WORDS.get(decided.wanted, plain(decided.wanted))
    stops = tuple(f"{one.guard.replace('_', ' ')}: {one.reason}" for one in decided.stops)
    if not wants_to_act(decided):
        return NextStep(words=wanted, decision=decided)
    if stops:
        words = f"Wanted: {wanted.lower()}. Stopped"
        return NextStep(words=words, stops=stops, is_blocked=True, decision=decided)
    words = f"Would: {wanted.lower()} (dry run)" if hook.is_dry_run else wanted
    return NextStep(words=words, decision=decided)


def list_rows(
    fleet: pl.DataFrame, hook: HookView, *, tick: Tick, now: datetime
) -> list[dict[str, Any]]:
    """Rows as the template shows them; a page of them, not the fleet."""
    return [_row(row, hook, tick=tick, now=now) for row in fleet.iter_rows(named=True)]


def _row(row: dict[str, Any], hook: HookView, *, tick: Tick, now: datetime) -> dict[str, Any]:
    marks = [
        *(["alert"] if row["is_alert"] else []),
        *(["held"] if row["is_held"] else []),
        *([STATE_WORDS[row["state"]]] if row["state"] != "up" else []),
    ]
    fault = None if row["fault_type"] is None else fault_words(row["fault_type"])
    share = row["fault_probability"]
    return {
        "node": row["node"],
        "rack": row["rack"],
        "score": row["score"],
        "probability": percent(row["score"]),
        "horizon": hours(row["horizon_h"]),
        "fault": fault if fault is None or share is None else f"{fault} ({percent(share)})",
        "reasons": [plain(one) for one in row["reasons"] or ()],
        "status": row["status"],
        "why": plain(row["status_reason"]) if row["status_reason"] else "",
        "marks": marks,
        "state_reason": plain(row["reason"]) if row["reason"] else "",
        "next": next_step(row["node"], hook, tick=tick, now=now),
    }
