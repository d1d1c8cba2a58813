"""The replayed world: what the scheduler shows, which nodes are held, what failures still do.

Who is held, and why, is decided in `simulation.replay.engine`; what a hold leads to is in
`simulation.replay.holds`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import heappop, heappush
from typing import Final

from remediation.cluster.reasons import PREFIX
from remediation.cluster.state import ClusterState, JobView, NodeView
from remediation.policy.capacity import capacity_of
from remediation.site import Site, matches
from simulation.replay.books import Books, Charge, failure_charges, restart_hours
from simulation.replay.history import HOUR, History, Outage, moment_of
from simulation.replay.holds import ChangedOutage, Finding, HoldOutcome, outcome_of_hold

REASON: Final = f"{PREFIX}v1 replay"


@dataclass
class World:
    """The cluster as it would have been, with the books of what was lost.

    Attributes:
        history: The record.
        site: The hook's site settings.
        finding: What the check of a drained node finds.
        books: What was lost so far.
        made: Every hold so far.
        held: Open holds by node.
        undrained: When a node was last given back, by name.
        now: The present.
        n_failures: Attempts that failures ended so far.
        n_shifts: Grows whenever another set of nodes may be manageable.
    """

    history: History
    site: Site
    finding: Finding
    books: Books = field(default_factory=Books)
    made: list[HoldOutcome] = field(default_factory=list)
    held: dict[int, HoldOutcome] = field(default_factory=dict)
    undrained: dict[str, datetime] = field(default_factory=dict)
    n_failures: int = 0
    n_shifts: int = 0

    def __post_init__(self) -> None:
        """Begins before the first moment, with no node shown."""
        names = self.history.names
        self.now: int = self.history.start
        self.standby = [code for code, one in enumerate(names) if matches(one, self.site.standby)]
        self._recorded: list[NodeView | None] = [None] * len(names)
        self._seen_at = [0] * len(names)
        self._releases: list[tuple[int, int]] = []
        self._over: dict[int, int] = {}
        self._changed: dict[int, ChangedOutage] = {}
        self._prevented: set[int] = set()
        self._met: set[int] = set()
        self._next_change = self._next_outage = 0
        self._nodes: tuple[NodeView, ...] | None = None
        self._busy_until: dict[int, int] = {}

    def is_shown(self, node: int) -> bool:
        """Whether the scheduler knows a node."""
        return self._recorded[node] is not None

    def is_free(self, node: int) -> bool:
        """Whether a node is up and we do not hold it."""
        view = self._recorded[node]
        return view is not None and view.state == "up" and node not in self.held

    def is_met(self, outage: int) -> bool:
        """Whether a hold has changed an outage, by number."""
        return outage in self._met

    def go_to(self, now: int) -> None:
        """Lets everything happen that happens before `now`."""
        outages = self.history.outages
        while self._next_outage < len(outages) and outages[self._next_outage].start < now:
            one = outages[self._next_outage]
            self._show(one.start)
            self._fail(one)
            self._next_outage += 1
        self._show(now)
        self.now = now

    def _show(self, now: int) -> None:
        """What the scheduler shows by `now`: recorded changes, and nodes given back."""
        changes = self.history.changes
        while self._next_change < len(changes) and changes[self._next_change].at <= now:
            one = changes[self._next_change]
            self._recorded[one.node] = one.view
            self._seen_at[one.node] = one.at
            self._next_change += 1
            self._nodes = None
            self.n_shifts += 1
        while self._releases and self._releases[0][0] <= now:
            at, node = heappop(self._releases)
            self._over[node] = at
            self._nodes = None
        for node, at in list(self._over.items()):
            view = self._recorded[node]
            # Up or held makes no difference to who is manageable; down or held does.
            self.n_shifts += view is None or view.state != "up"
            # A node that is down when its hold is over is not given back before it is up.
            if view is not None and view.state in ("up", "drain"):
                del self._over[node], self.held[node]
                self.undrained[self.history.names[node]] = moment_of(max(at, self._seen_at[node]))
                self._nodes = None

    def _fail(self, outage: Outage) -> None:
        changed = self._changed.pop(outage.number, None)
        hits = [hit for hit in outage.hits if changed is None or hit.attempt.key in changed.hurt]
        restart_h = self._restart_h(outage.node, outage.start, outage.end, is_needed=bool(hits))
        for hit in hits:
            for charge in failure_charges(
                hit.attempt, hit.onset, costs=self.site.costs, restart_h=restart_h
            ):
                self.books.add(outage.node, charge)
        self.n_failures += len(hits)
        length = (outage.end - outage.start) / HOUR
        repair = Charge("repair", outage.start, self.history.sizes[outage.node] * length)
        self.books.add(outage.node, repair if changed is None else changed.repair)

    def _restart_h(self, node: int, at: int, until: int, *, is_needed: bool) -> float:
        """How long jobs of a node take to compute again; takes a standby node for them."""
        spare = self._spare(node, at) if is_needed and self.standby else None
        if spare is not None:
            self._busy_until[spare] = until
        return restart_hours(self.site.costs, has_standby=spare is not None)

    def _spare(self, node: int, at: int) -> int | None:
        """The standby node that the hook's own reckoning of capacity would take."""
        view = self._recorded[node]
        others = [code for code in self.standby if code != node]
        nodes = tuple(one for code in others if (one := self._view(code)) is not None)
        state = ClusterState(as_of=moment_of(at), nodes=nodes, jobs=self.jobs(others, at))
        capacity = capacity_of(state, site=self.site, suspects=frozenset())
        found = None if view is None else capacity.replacement(view)
        return None if found is None else self.history.code_of[found.name]

    def _view(self, node: int) -> NodeView | None:
        view = self._recorded[node]
        if view is None or node not in self.held or node in self._over:
            return view
        return replace(view, state="drain", reason=REASON, actor="forewarn")

    def views(self) -> tuple[NodeView, ...]:
        """Every node as the scheduler shows it."""
        if self._nodes is None:
            found = (self._view(node) for node in range(len(self._recorded)))
            self._nodes = tuple(view for view in found if view is not None)
        return self._nodes

    def jobs(self, nodes: Iterable[int], at: int) -> tuple[JobView, ...]:
        """Running jobs of some nodes; a busy standby node runs what moved there."""
        found: dict[tuple[str, int], JobView] = {}
        for node in nodes:
            held = self.held.get(node)
            for one in self.history.attempts[node].running(at):
                if held is None or one.start < held.since:
                    found[one.key] = one.view
            if self._busy_until.get(node, at) > at:
                name = self.history.names[node]
                found[name, -1] = JobView(job_id=f"moved to {name}", nodes=(name,))
        return tuple(found[key] for key in sorted(found))

    def hold(self, node: int, action: str) -> None:
        """Takes a node now, and works out what that leads to."""
        made = outcome_of_hold(
            self.history,
            self.site,
            node=node,
            action=action,
            since=self.now,
            finding=self.finding,
            gone=self._prevented,
        )
        restart_h = self._restart_h(node, made.told, made.release, is_needed=bool(made.moved))
        for charge in made.charges:
            self.books.add(node, charge)
        for one in made.moved:
            self.books.add(node, Charge("interruption", made.told, one.gpus * restart_h))
        self._changed.update(made.changed)
        self._met.update(made.changed)
        self._prevented.update(made.prevented)
        self.made.append(made)
        self.held[node] = made
        self._nodes = None
        heappush(self._releases, (made.release, node))
