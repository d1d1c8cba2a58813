"""How the hook stands: what it holds, what waits for a person, how much it may still do.

Nothing is changed here. What cannot be read is said and left out; the rest is shown.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from features.errors import ForewarnError
from remediation.actuators.kill_switch import stopped_by
from remediation.cluster.state import ClusterState
from remediation.guards.caps import share_of
from remediation.guards.judge import manageable_nodes
from remediation.holds.progress import progress_of
from remediation.hook_settings import HookSettings
from remediation.ledger.entries import Entry, Ledger
from remediation.ledger.view import RATE_WINDOW, Held, LedgerView, escalation_key
from remediation.program.asked import asked_of
from remediation.program.loop import RoundNote
from remediation.program.parts import CoreTables, open_ledger, open_ports, open_scores
from remediation.program.requests import escalation_of, short_id
from remediation.program.round import (
    CANNOT_RUN,
    DONE,
    NEEDS_A_PERSON,
    NO_POLICY,
    REFUSED,
    read_tick,
    site_on,
    view_now,
)
from remediation.score_source import PublishedScores
from remediation.site import Site

_OF_HOLDS: Final = ("stuck", "repair", "return", "notice", "gone", "check")
_OPEN_FOR: Final = {"guard": timedelta(days=1)}
_OTHERS_OPEN_FOR: Final = timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class HeldNode:
    """A node that we hold.

    Attributes:
        node: Node.
        action: How it was taken; None: the ledger does not know of it.
        stage: How far the hold has come.
        since: When it was taken; None: the ledger does not know.
        jobs: Jobs that are left on it.
        text: In words.
    """

    node: str
    action: str | None
    stage: str
    since: datetime | None
    jobs: tuple[str, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class Question:
    """Something that waits for a person.

    Attributes:
        id: What to acknowledge it by.
        key: Its key in the ledger.
        why: ambiguous, burst, check, gone, guard, notice, repair, return, stuck, unknown_hold.
        node: Node, where it is about one.
        asked_at: When it came up.
        text: In words.
    """

    id: str
    key: str
    why: str
    node: str | None
    asked_at: datetime
    text: str


@dataclass(frozen=True, kw_only=True)
class Recommended:
    """A decision that only a person's leave is wanting for.

    Attributes:
        node: Node.
        decision_id: What to approve it by.
        wanted: What would be done.
    """

    node: str
    decision_id: str
    wanted: str


@dataclass(frozen=True, kw_only=True)
class ScoresAge:
    """How old the scores are.

    Attributes:
        as_of: Their moment.
        expires_at: Until when they hold.
        is_expired: Whether they no longer do.
        model: The model that gave them.
        trained_on: synthetic or real.
        alerts: When a score is an alert, in words.
    """

    as_of: datetime
    expires_at: datetime
    is_expired: bool
    model: str
    trained_on: str
    alerts: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """How the hook stands.

    Attributes:
        now: The present.
        actuator: By what it acts.
        stopped_by: Why nothing is done; None: it may act.
        last_round: Its last round; None: none is noted.
        scores: The scores; None: they cannot be read.
        held: Nodes that we hold.
        most_held: How many may be held at once; None: unknown.
        actions_last_hour: Actions within the last hour; None: unknown.
        actions_per_hour: How many are allowed.
        questions: What waits for a person.
        recommended: What waits for a person's leave.
        cannot_read: What could not be read, and why.
    """

    now: datetime
    actuator: str
    stopped_by: str | None
    last_round: RoundNote | None
    scores: ScoresAge | None
    held: tuple[HeldNode, ...]
    most_held: int | None
    actions_last_hour: int | None
    actions_per_hour: int
    questions: tuple[Question, ...]
    recommended: tuple[Recommended, ...]
    cannot_read: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """The exit code that says it."""
        if self.cannot_read:
            return CANNOT_RUN
        if self.stopped_by is not None:
            return REFUSED
        is_late = self.scores is not None and self.scores.is_expired
        has_failed = self.last_round is not None and self.last_round.is_failed
        is_stuck = any(one.stage == "stuck" for one in self.held)
        needs = self.questions or self.recommended or is_late or has_failed or is_stuck
        return NEEDS_A_PERSON if needs else DONE


def status_of(
    settings: HookSettings, *, now: datetime, core_tables: CoreTables | None = None
) -> Status:
    """Reads all that can be read.

    Args:
        settings: The hook's settings.
        now: The present.
        core_tables: Reads stored core tables.
    """
    cannot: list[str] = []
    tick = read_tick(open_scores(settings), now)
    if tick.error is not None:
        cannot.append(f"scores: {tick.error}")
    site, _ = site_on(settings.site, tick)
    state, name = None, settings.actuator.kind
    try:
        state = open_ports(settings, core_tables=core_tables).cluster.read()
    except (ForewarnError, OSError) as error:
        cannot.append(f"cluster: {error}")
    view: LedgerView | None = None
    questions: tuple[Entry, ...] = ()
    asked_stop: str | None = None
    recommended: tuple[Recommended, ...] = ()
    try:
        with open_ledger(settings) as ledger:
            view = view_now(ledger, actuator=name, site=site, now=now)
            questions = open_questions(ledger, view, actuator=name, now=now, state=state)
            recommended = _recommended(ledger, tick.scores, actuator=name, now=now)
            asked_stop = asked_of(ledger, actuator=name).stopped_by
    except (ForewarnError, OSError) as error:
        cannot.append(f"ledger: {error}")
    held = _held(view, state, site=site, now=now)
    return Status(
        now=now,
        actuator=name,
        stopped_by=stopped_by(site) or asked_stop,
        last_round=RoundNote.read(settings.state),
        scores=None if tick.scores is None else _age(tick.scores, site, now=now),
        held=held,
        most_held=None if state is None else _most_held(state, site, now=now),
        actions_last_hour=(
            None if view is None else sum(now - RATE_WINDOW < at for at in view.acted_at)
        ),
        actions_per_hour=site.caps.actions_per_hour,
        questions=tuple(_question(one) for one in questions),
        recommended=recommended,
        cannot_read=tuple(cannot),
    )


def open_questions(
    ledger: Ledger,
    view: LedgerView,
    *,
    actuator: str,
    now: datetime,
    state: ClusterState | None = None,
) -> tuple[Entry, ...]:
    """The escalations that still wait for a person, the oldest first.

    Args:
        ledger: The ledger.
        view: How things stand by it.
        actuator: Only its escalations.
        now: The present.
        state: The cluster now, so that what was settled there is left out; None: unknown.
    """
    answered = {one.refers_to for one in ledger.entries(kinds=("acknowledged",))}
    of_holds = {
        escalation_key(f"{why}:{held.intent_key}")
        for held in view.held.values()
        for why in _OF_HOLDS
    }
    ours = None if state is None else {n.name for n in state.nodes if n.owner == "forewarn"}
    bursts = {hold.text for hold in view.holds if hold.is_active(now)}

    def is_open(one: Entry) -> bool:
        why = str(one.body["why"])
        if why == "ambiguous":
            return one.node in view.ambiguous
        if why in _OF_HOLDS:
            return one.key in of_holds
        if why == "unknown_hold" and ours is not None:
            return one.node in ours and one.node not in view.held
        if why == "burst":
            return str(one.body["text"]) in bursts
        return now - one.recorded_at < _OPEN_FOR.get(why, _OTHERS_OPEN_FOR)

    return tuple(
        one
        for one in ledger.entries(kinds=("escalation",))
        if one.actuator == actuator and one.key not in answered and is_open(one)
    )


def question_named(settings: HookSettings, named: str, *, now: datetime) -> Entry:
    """The open question that a person means.

    Args:
        settings: The hook's settings.
        named: Its key, or the id that is shown.
        now: The present.

    Raises:
        DataError: There is none, or more than one.
        LedgerError: The ledger cannot be read.
    """
    name = settings.actuator.kind
    with open_ledger(settings) as ledger:
        view = view_now(ledger, actuator=name, site=settings.site, now=now)
        return escalation_of(open_questions(ledger, view, actuator=name, now=now), named)


def _recommended(
    ledger: Ledger, scores: PublishedScores | None, *, actuator: str, now: datetime
) -> tuple[Recommended, ...]:
    """The decisions on these scores that nothing holds back but the level *recommend*."""
    if scores is None or scores.is_expired(now) or actuator == "dry_run":
        return ()
    last = {
        one.decision_id: one
        for one in ledger.entries(kinds=("decision",), since=scores.as_of)
        if one.actuator == actuator and datetime.fromisoformat(one.body["as_of"]) == scores.as_of
    }
    return tuple(
        Recommended(node=str(one.node), decision_id=str(one.decision_id), wanted=one.body["wanted"])
        for one in last.values()
        if [
            (guard, said.startswith("level recommend "))
            for guard, is_allowed, said, _ in one.body["verdicts"]
            if not is_allowed
        ]
        == [("policy_level", True)]
    )


def _question(entry: Entry) -> Question:
    return Question(
        id=short_id(entry.key),
        key=entry.key,
        why=entry.body["why"],
        node=entry.node,
        asked_at=entry.recorded_at,
        text=entry.body["text"],
    )


def _age(scores: PublishedScores, site: Site, *, now: datetime) -> ScoresAge:
    warning = site.warning
    has_policy = "warning" in site.model_fields_set or site.horizon_h in scores.policies
    return ScoresAge(
        as_of=scores.as_of,
        expires_at=scores.expires_at,
        is_expired=scores.is_expired(now),
        model=scores.model_versions.get(site.horizon_h, "none"),
        trained_on=scores.trained_on,
        alerts=(
            f"from {warning.threshold:.0%} in {warning.n} of {warning.k} ticks"
            if has_policy
            else NO_POLICY.format(horizon_h=site.horizon_h)
        ),
    )


def _most_held(state: ClusterState, site: Site, *, now: datetime) -> int:
    n_manageable = len(manageable_nodes(state, site=site, now=now))
    return min(share_of(n_manageable, site.caps.held_percent), site.caps.held_most)


def _held(
    view: LedgerView | None, state: ClusterState | None, *, site: Site, now: datetime
) -> tuple[HeldNode, ...]:
    """What the ledger or the cluster says that we hold; either alone is enough to be shown."""
    known = {} if view is None else dict(view.held)
    marked = () if state is None else tuple(n.name for n in state.nodes if n.owner == "forewarn")
    return tuple(
        _held_node(name, known.get(name), state, site=site, now=now)
        for name in sorted({*known, *marked})
    )


def _held_node(
    name: str, held: Held | None, state: ClusterState | None, *, site: Site, now: datetime
) -> HeldNode:
    stage, text = "unknown", "the cluster cannot be read"
    jobs: tuple[str, ...] = ()
    if state is not None:
        progress = progress_of(
            state.by_name.get(name),
            state.jobs_on(name),
            since=held.since if held else now,
            longest=timedelta(hours=site.drains.longest_hours),
            now=now,
        )
        stage, text, jobs = progress.stage, progress.text, progress.jobs
        if held is None:
            text = f"{stage}; taken by forewarn, but not by this ledger and actuator: look at it"
    return HeldNode(
        node=name,
        action=held.action if held else None,
        stage=stage,
        since=held.since if held else None,
        jobs=jobs,
        text=text,
    )
