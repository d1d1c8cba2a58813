"""The figures of the shadow report: how often right, what was missed, what it was worth, drift.

No words and no layout (`pipelines.report.shadow.words`, `templates/shadow.html.j2`); nothing is
read.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from models.evaluation import intervals
from models.evaluation.row_metrics import Bootstrap, Estimate, estimate, resample_groups
from pipelines.report.shadow.hours import Balance, Fleet, fleet_of, lost_in_all, reckon
from pipelines.report.shadow.input import ShadowInput
from remediation.decision import Decision, Judged
from remediation.guards.caps import CAPS
from remediation.guards.judge import CEILING_OF_LEVEL
from remediation.shadow import DRY_RUN, WouldBe, is_known_up, is_shadow, read_wishes, replay
from remediation.shadow_outcomes import Outcome, match, place_incidents, window
from simulation.replay.tables import STATIC_XIDS

RESAMPLES: Final = Bootstrap(resamples=2000, seed=1, group="node")
FATES: Final = ("caught", "too_late", "held_back", "hidden", "missed")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One would-be action or alarm held back, with all that is known of it."""

    would_be: WouldBe
    outcome: Outcome
    hours: Balance | None


@dataclass(frozen=True, kw_only=True)
class Worth:
    """What all judged actions together are worth, in GPU-hours.

    Attributes:
        saved: By right actions, before their cost.
        spent_right: Cost of right actions.
        wasted: Cost of actions that were not right.
        unjudged: Cost of actions that cannot be judged; not in `net`.
        net: Saved less all costs of judged actions, with its interval by node.
        net_if_kept: The same, had every node been kept out for its whole hold.
        counts: Judged actions by outcome.
    """

    saved: float
    spent_right: float
    wasted: float
    unjudged: float
    net: Estimate
    net_if_kept: float
    counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Fate:
    """An incident of the time, and whether anything announced it."""

    incident: Mapping[str, Any]
    fate: str


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Whether the time is of one piece.

    Attributes:
        versions: Model versions that wanted actions or scored, with their first and last moment.
        dark_days: Days without any scores.
        n_days: Days of the time, parts included.
        unknown_share: Share of node scores that are unknown; None: no scores are stored.
        prior_share: Share that rests on history alone.
        n_acted_on: Decisions left out because a hook could carry them out.
    """

    versions: tuple[tuple[str, datetime, datetime], ...]
    dark_days: tuple[date, ...]
    n_days: int
    unknown_share: float | None
    prior_share: float | None
    n_acted_on: int


@dataclass(frozen=True, kw_only=True)
class Figures:
    """All figures of one report.

    Attributes:
        actions: Would-be actions, in order of time.
        held_back: Alarms that guards held back for good.
        precision: Right among judged, with Wilson's interval.
        recall: Caught among the incidents of the time, with Wilson's interval.
        fates: The incidents of the time.
        worth: GPU-hours; of the would-be actions.
        lost: GPU-hours that jobs lost to all incidents of the time.
        static: The static rule on the same time; None: no events are stored.
        n_static_unjudged: Its actions that cannot be judged.
        drift: Whether the time is of one piece.
        is_synthetic: Whether record or model is synthetic.
        n_assumed: Nodes with actions whose size is unknown.
    """

    actions: tuple[Row, ...]
    held_back: tuple[Row, ...]
    precision: Estimate
    recall: Estimate
    fates: tuple[Fate, ...]
    worth: Worth
    lost: float
    static: Worth | None
    n_static_unjudged: int
    drift: Drift
    is_synthetic: bool
    n_assumed: int

    @property
    def n_judged(self) -> int:
        """Actions that are right, early, late or wrong."""
        return sum(self.worth.counts.values())


def wilson(hits: int, n: int) -> Estimate:
    """A share with its 95 % score interval (Wilson 1927).

    >>> print(wilson(8, 10))
    0.800 [0.490, 0.943]
    >>> print(wilson(0, 0))
    not defined
    """
    if n == 0:
        return Estimate(None, None, None)
    return Estimate(hits / n, *intervals.wilson(hits, n))


def figures_of(given: ShadowInput) -> Figures:
    """Works out every figure.

    Args:
        given: What the report rests on.
    """
    decisions = [entry for entry in given.entries if entry.kind == "decision"]
    wishes = read_wishes(decisions, since=given.since, until=given.until)
    fleet = fleet_of(given.tables.jobs, given.tables.inventory, at=given.until)
    rows = _rows(given, replay_of(given, wishes), fleet)
    actions = tuple(row for row in rows if row.would_be.is_acting)
    held_back = tuple(row for row in rows if not row.would_be.is_acting)
    fates = fates_of(_in_time(given), actions, held_back, lead=given.settings.lead)
    worth = worth_of(actions, nodes=_nodes(given))
    caught = sum(one.fate == "caught" for one in fates)
    static = _static_rows(given, wishes, fleet)
    synthetic = any(one.decision.trained_on != "real" for one in wishes)
    return Figures(
        actions=actions,
        held_back=held_back,
        precision=wilson(worth.counts["right"], sum(worth.counts.values())),
        recall=wilson(caught, len(fates)),
        fates=fates,
        worth=worth,
        lost=lost_in_all([one.incident for one in fates], fleet, costs=given.site.costs),
        static=None if static is None else worth_of(static, nodes=_nodes(given)),
        n_static_unjudged=sum(row.outcome.kind == "unjudged" for row in static or ()),
        drift=drift_of(given, wishes),
        is_synthetic=given.is_synthetic or synthetic,
        n_assumed=len({row.would_be.decision.node for row in actions} - set(fleet.gpus)),
    )


def replay_of(given: ShadowInput, wishes: Sequence[Judged]) -> tuple[WouldBe, ...]:
    """The wishes gone through as if automation had been allowed."""
    cluster_at = given.cluster_at()
    return replay(wishes, cluster_at=cluster_at, site=given.site, level=given.level)


def _rows(given: ShadowInput, found: Sequence[WouldBe], fleet: Fleet) -> tuple[Row, ...]:
    tables = given.tables
    outcomes = match(
        found,
        incidents=tables.incidents,
        inventory=tables.inventory,
        maintenance=tables.maintenance,
        node_states=tables.node_states,
        data_end=given.data_end,
        lead=given.settings.lead,
    )
    hours = reckon(found, outcomes, fleet, costs=given.site.costs)
    return tuple(
        Row(would_be=one, outcome=outcome, hours=worth)
        for one, outcome, worth in zip(found, outcomes, hours, strict=True)
    )


def _static_rows(
    given: ShadowInput, wishes: Sequence[Judged], fleet: Fleet
) -> tuple[Row, ...] | None:
    """A rule that drains on certain Xids, under the same level, caps and judgement."""
    if given.tables.events is None:
        return None
    horizon_h = wishes[0].decision.horizon_h if wishes else given.site.horizon_h
    wanted = CEILING_OF_LEVEL[given.level]
    events = given.tables.events.filter(
        pl.col("kind") == "xid", pl.col("code").is_in(STATIC_XIDS)
    ).sort("ts", "event_id")
    asked = [
        Judged(
            Decision(
                decision_id=row["event_id"],
                node=row["node"],
                boot_id=None,
                as_of=row["ts"],
                decided_at=row["ts"],
                wanted=wanted,
                score=None,
                status="ok",
                horizon_h=horizon_h,
                fault_type=None,
                model_version="rule",
                trained_on="real",
                sentence=f"Xid {row['code']}",
            ),
            (),
            wanted,
        )
        for row in events.iter_rows(named=True)
    ]
    found = replay(
        asked,
        cluster_at=given.cluster_at(),
        site=given.site,
        level=given.level,
        guards=(is_known_up, *CAPS),
    )
    return tuple(row for row in _rows(given, found, fleet) if row.would_be.is_acting)


def worth_of(actions: Sequence[Row], *, nodes: Sequence[str]) -> Worth:
    """What judged actions are worth together; the interval draws nodes with replacement.

    Args:
        actions: Would-be actions.
        nodes: All nodes of the fleet; one without an action counts with zero.
    """
    by_node = dict.fromkeys(sorted({*nodes, *(r.would_be.decision.node for r in actions)}), 0.0)
    saved = spent_right = wasted = unjudged = kept = 0.0
    counts = Counter(dict.fromkeys(("right", "early", "late", "wrong"), 0))
    for row in actions:
        if row.hours is None:
            continue
        if row.outcome.kind == "unjudged":
            unjudged += row.hours.spent
            continue
        counts[row.outcome.kind] += 1
        by_node[row.would_be.decision.node] += row.hours.net
        saved += row.hours.saved
        kept += row.hours.spent_if_kept
        if row.outcome.kind == "right":
            spent_right += row.hours.spent
        else:
            wasted += row.hours.spent
    value = saved - spent_right - wasted
    drawn = resample_groups(len(by_node), RESAMPLES) @ np.array(list(by_node.values()))
    net = estimate(value, drawn) if counts.total() else Estimate(0.0, None, None)
    return Worth(
        saved=saved,
        spent_right=spent_right,
        wasted=wasted,
        unjudged=unjudged,
        net=net,
        net_if_kept=saved - kept,
        counts=dict(counts),
    )


def _in_time(given: ShadowInput) -> list[dict[str, Any]]:
    end = min(given.until, given.data_end)
    placed = place_incidents(given.tables.incidents, given.tables.inventory)
    first = given.since + given.settings.lead
    return [one for one in placed if first <= one["start"] < end]


def fates_of(
    incidents: Sequence[Mapping[str, Any]],
    actions: Sequence[Row],
    held_back: Sequence[Row],
    *,
    lead: timedelta,
) -> tuple[Fate, ...]:
    """What each incident was to the hook; the best of what fits counts.

    `caught`: in the window of a right action. `too_late`: before the lead of an action was over.
    `held_back`: an alarm was there in time, and guards held it back. `hidden`: an action was
    there, but something hid its outcome before. `missed`: nothing announced it.
    """
    return tuple(
        Fate(incident=one, fate=_fate(one, actions, held_back, lead=lead)) for one in incidents
    )


def _fate(
    incident: Mapping[str, Any],
    actions: Sequence[Row],
    held_back: Sequence[Row],
    *,
    lead: timedelta,
) -> str:
    found = {"missed"}
    for rows, is_action in ((actions, True), (held_back, False)):
        for row in rows:
            decision = row.would_be.decision
            start, end = window(decision, lead)
            if decision.node != incident["node"] or not decision.as_of <= incident["start"] < end:
                continue
            if not is_action:
                found |= {"held_back"} if incident["start"] >= start else set()
            elif incident["start"] < start:
                found.add("too_late")
            else:
                found.add("caught" if row.outcome.kind == "right" else "hidden")
    return min(found, key=FATES.index)


def drift_of(given: ShadowInput, wishes: Sequence[Judged]) -> Drift:
    """Whether the time is of one piece: models, days without scores, unknown nodes."""
    ticks = [
        datetime.fromisoformat(entry.body["as_of"])
        for entry in given.entries
        if entry.kind == "observed" and given.since <= entry.recorded_at < given.until
    ]
    first, last = given.since.date(), (given.until - timedelta(microseconds=1)).date()
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    seen = {at.date() for at in ticks}
    times: dict[str, list[datetime]] = {}
    for wish in wishes:
        times.setdefault(wish.decision.model_version, []).append(wish.decision.as_of)
    shares: Counter[str] = Counter()
    scores = given.tables.node_scores
    if scores is not None:
        own = scores.filter(pl.col("horizon_h") == given.site.horizon_h)
        for version, first, last in (
            own.group_by("model_version")
            .agg(pl.col("as_of").min().alias("first"), pl.col("as_of").max().alias("last"))
            .iter_rows()
        ):
            times.setdefault(version, []).extend((first, last))
        shares.update(own["status"].to_list())
    n_scores = shares.total()
    left_out = sum(
        entry.kind == "decision"
        and entry.actuator != DRY_RUN
        and given.since <= entry.recorded_at < given.until
        and not is_shadow(entry)
        for entry in given.entries
    )
    return Drift(
        versions=tuple(sorted((name, min(at), max(at)) for name, at in times.items())),
        dark_days=tuple(day for day in days if day not in seen),
        n_days=len(days),
        unknown_share=shares["unknown"] / n_scores if n_scores else None,
        prior_share=shares["prior"] / n_scores if n_scores else None,
        n_acted_on=left_out,
    )


def _nodes(given: ShadowInput) -> tuple[str, ...]:
    known = {*given.tables.inventory["node"], *given.tables.node_states["node"]}
    return tuple(sorted(known))
