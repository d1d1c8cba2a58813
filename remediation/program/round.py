"""One round of the hook as a program: under the lease, with what people asked for, on fresh scores.

Opening the parts is in `remediation.program.parts`, the loop in `remediation.program.loop`;
deciding, guarding and acting is `remediation.hook`'s.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from features.clock import Clock, utc_now
from features.errors import SourceError
from remediation.actuators.kill_switch import stopped_by
from remediation.actuators.protocol import Actuator, Order, Outcome
from remediation.checks import CheckRunner
from remediation.cluster.state import ClusterState, NodeView
from remediation.guards.judge import Guard
from remediation.guards.wrong_clock import stopped_by_clock
from remediation.holds.recovery import check_chain
from remediation.hook import HookRun, run_once
from remediation.hook_settings import HookSettings
from remediation.inbox.requested import Requested
from remediation.inbox.site import Inbox
from remediation.lease.leadership import Fence, Leadership, LeaseError
from remediation.ledger.entries import Ledger
from remediation.ledger.journal import Journal
from remediation.ledger.view import STATE_KINDS, LedgerView, view_of
from remediation.program.asked import asked_of, guards_with
from remediation.program.parts import (
    CoreTables,
    Ports,
    open_leadership,
    open_ledger,
    open_ports,
    open_scores,
)
from remediation.program.returns import Returns, note_checks, return_nodes
from remediation.score_source import PublishedScores, ScoreSource
from remediation.site import Site

DONE: Final = 0
NEEDS_A_PERSON: Final = 1
CANNOT_RUN: Final = 2
REFUSED: Final = 3
"""Exit codes: nothing is left to do; a person must look; an error; kill switch or lease said no."""

NO_POLICY: Final = (
    "the scores came without a warning policy for {horizon_h} h: only observing. Publish scores of "
    "a promoted model, or set `warning` in the site's settings"
)


@dataclass(frozen=True, kw_only=True)
class Hook:
    """A hook with its parts opened.

    Attributes:
        settings: Its settings.
        scores: Where scores are read.
        ports: Its sides of the cluster.
        ledger: The ledger.
        checks: Runs checks of nodes that are to come back; None: none are run.
        clock: The present.
    """

    settings: HookSettings
    scores: ScoreSource
    ports: Ports
    ledger: Ledger
    checks: CheckRunner | None = None
    clock: Clock = utc_now

    @property
    def name(self) -> str:
        """The actuator's name in the ledger."""
        return self.ports.actuator.name

    def view(self) -> LedgerView:
        """How things stand by the ledger and the settings as they are."""
        return view_now(self.ledger, actuator=self.name, site=self.settings.site, now=self.clock())


@dataclass(frozen=True, kw_only=True)
class Round:
    """What came of one round.

    Attributes:
        run: What was found, decided and done; None: the lease was another's.
        refused_by: Why the round was not made.
        stopped_by: Why nothing was done although it was made.
        returned: Nodes that are back in service.
        messages: What a person must look at, in words.
    """

    run: HookRun | None = None
    refused_by: str | None = None
    stopped_by: str | None = None
    returned: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code that says it."""
        if self.refused_by is not None or self.stopped_by is not None:
            return REFUSED
        return NEEDS_A_PERSON if self.messages else DONE


@dataclass(frozen=True)
class Tick:
    """The latest scores, or why they cannot be read; a `ScoreSource` for one round.

    Read before the round, for the warning policy comes with them; told within it, for a hold must
    be seen to also while scores are gone.

    Attributes:
        scores: The scores; None: they cannot be read.
        error: Why not.
    """

    scores: PublishedScores | None
    error: SourceError | None = None

    def latest(self, now: datetime) -> PublishedScores:
        """The scores.

        Raises:
            SourceError: They could not be read.
        """
        if self.scores is None:
            raise self.error or SourceError(f"no scores were read at {now}")
        return self.scores


@dataclass(frozen=True)
class Given:
    """A cluster as it was just read; a `ClusterReader` for one round.

    Attributes:
        state: Its state.
    """

    state: ClusterState

    def read(self) -> ClusterState:
        """The state."""
        return self.state


@dataclass(frozen=True, kw_only=True)
class Fenced:
    """An actuator that asks right before each act whether it still may.

    Attributes:
        actuator: The actuator.
        fence: Says why not.
    """

    actuator: Actuator
    fence: Fence

    @property
    def name(self) -> str:
        """As in `Actuator`."""
        return self.actuator.name

    @property
    def is_dry_run(self) -> bool:
        """As in `Actuator`."""
        return self.actuator.is_dry_run

    def state(self, node: str) -> NodeView | None:
        """As in `Actuator`."""
        return self.actuator.state(node)

    def cordon(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._unless_fenced(self.actuator.cordon, order)

    def drain(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._unless_fenced(self.actuator.drain, order)

    def end_notice(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._unless_fenced(self.actuator.end_notice, order)

    def undrain(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._unless_fenced(self.actuator.undrain, order)

    def _unless_fenced(self, act: Callable[[Order], Outcome], order: Order) -> Outcome:
        why = self.fence()
        return act(order) if why is None else Outcome(status="not_done", detail=why)


@contextmanager
def opened(
    settings: HookSettings,
    *,
    core_tables: CoreTables | None = None,
    checks: CheckRunner | None = None,
) -> Iterator[Hook]:
    """The hook with its parts opened; the ledger is closed at the end.

    Args:
        settings: Its settings.
        core_tables: Reads stored core tables; None: they cannot be read from here.
        checks: Runs checks of nodes that are to come back; None: none are run.

    Raises:
        SettingsError: A part cannot be opened.
        LedgerError: The ledger cannot be opened.
    """
    ports = open_ports(settings, core_tables=core_tables)
    with open_ledger(settings) as ledger:
        yield Hook(
            settings=settings,
            scores=open_scores(settings),
            ports=ports,
            ledger=ledger,
            checks=checks,
        )


def run_round(
    hook: Hook,
    *,
    leadership: Leadership | None = None,
    asked_to_end: Fence = lambda: None,
    more: tuple[Guard, ...] = (),
) -> Round:
    """Makes one round: takes the lease, hears people, decides, acts, and gives the lease back.

    Args:
        hook: The hook.
        leadership: Its side of the lease; None: one is opened for this round.
        asked_to_end: Says why no further node may be begun, such as a signal; None: go on.
        more: Further guards, asked last.

    Raises:
        ForewarnError: A part cannot be read or written; nothing further was done.
    """
    lease = leadership or open_leadership(hook.settings)
    if not lease.take():
        return Round(refused_by="another hook has the lease: its round is under way")
    try:
        return _round(hook, may_act=_first_of(asked_to_end, lease.fence), more=more)
    finally:
        # While a check runs the lease is kept: another hook would begin the same check.
        if hook.checks is None or not hook.checks.running:
            with suppress(LeaseError):  # it ends by itself; another error must not be hidden
                lease.release()


def read_tick(scores: ScoreSource, now: datetime) -> Tick:
    """The latest scores, or why they cannot be read."""
    try:
        return Tick(scores.latest(now))
    except SourceError as error:
        return Tick(None, error)


def site_on(site: Site, tick: Tick) -> tuple[Site, str | None]:
    """The site with the warning policy that came with the scores, unless it has one of its own.

    The threshold with its n of k is chosen with each model for the alert budget; without one the
    hook only observes.

    Args:
        site: The site.
        tick: The scores.

    Returns:
        The site, and what a person must know.
    """
    if "warning" in site.model_fields_set or tick.scores is None:
        return site, None
    policy = tick.scores.policies.get(site.horizon_h)
    if policy is None:
        return site.model_copy(update={"levels": ()}), NO_POLICY.format(horizon_h=site.horizon_h)
    warning = site.warning.model_copy(
        update={
            "threshold": policy.threshold,
            "n": policy.n,
            "k": policy.k,
            "tick_minutes": policy.tick / timedelta(minutes=1),
        }
    )
    return site.model_copy(update={"warning": warning}), None


def view_now(ledger: Ledger, *, actuator: str, site: Site, now: datetime) -> LedgerView:
    """How things stand by the ledger, as a round sees it."""
    hours = site.caps.dry_run_hold_hours
    return view_of(
        ledger.entries(kinds=STATE_KINDS),
        actuator=actuator,
        now=now,
        would_hold=timedelta(hours=site.horizon_h if hours is None else hours),
    )


def _round(hook: Hook, *, may_act: Fence, more: tuple[Guard, ...]) -> Round:
    now = hook.clock()
    state = hook.ports.cluster.read()
    tick = read_tick(hook.scores, now)
    site, unsaid = site_on(hook.settings.site, tick)
    messages = [] if unsaid is None else [unsaid]
    stops: list[str] = []
    if hook.settings.inbox is not None:
        inbox = Inbox.of(hook.settings.inbox).read(
            state, ledger=hook.ledger, actuator=hook.name, site=site, now=now
        )
        messages += inbox.refused
        stops += [inbox.stopped_by] if inbox.stopped_by else []
    requested = asked_of(hook.ledger, actuator=hook.name)
    stops += [requested.stopped_by] if requested.stopped_by else []
    if stops:
        site = site.model_copy(update={"is_stopped": True})
    actuator = Fenced(actuator=hook.ports.actuator, fence=may_act)
    returned, said = _see_to_returns(hook, requested, state, site, actuator=actuator)
    messages += said
    if returned:
        state = hook.ports.cluster.read()  # what is back must not look like a hold of nobody's
    run = run_once(
        scores=tick,
        cluster=Given(state),
        actuator=actuator,
        ledger=hook.ledger,
        site=site,
        clock=hook.clock,
        guards=guards_with(requested, may_act=may_act, more=more),
        may_act=may_act,
    )
    if run.published.is_expired(run.now):
        messages.append(
            f"the scores of {run.published.as_of:%Y-%m-%d %H:%M} UTC have expired: nothing is "
            f"begun on them; look at what publishes scores"
        )
    return Round(
        run=run,
        returned=returned,
        stopped_by=next(iter(stops), None) or stopped_by(site),
        messages=(*messages, *run.messages),
    )


def _see_to_returns(
    hook: Hook, requested: Requested, state: ClusterState, site: Site, *, actuator: Fenced
) -> tuple[tuple[str, ...], list[str]]:
    """Brings back what may come back; which nodes, and what a person must know of it."""
    now = hook.clock()
    view = view_now(hook.ledger, actuator=hook.name, site=site, now=now)
    # Taken also where nothing is held any more: the lease is kept while a check is not.
    results = () if hook.checks is None else hook.checks.finished()
    if hook.checks is not None:
        hook.checks.keep(view.held)
    if actuator.is_dry_run or not view.held:
        return (), []
    check_chain(hook.ledger)
    returned: tuple[str, ...] = ()
    journal = Journal(hook.ledger, hook.name, hook.clock)
    note_checks(results, view, journal=journal)
    site = stopped_by_clock(site, journal=Journal(hook.ledger, hook.name, hook.clock))
    if stopped_by(site) is None:
        returns = Returns(
            view=view,
            state=state,
            requested=requested,
            settings=hook.settings.returns,
            now=now,
            may_act=_first_of(lambda: stopped_by(site), actuator.fence),
        )
        returned = return_nodes(returns, actuator=actuator, journal=journal, checks=hook.checks)
    return returned, journal.messages


def _first_of(*fences: Fence) -> Fence:
    return lambda: next((why for fence in fences if (why := fence()) is not None), None)
