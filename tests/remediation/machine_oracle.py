"""What no order and no effect of the hook may be: each invariant, from the world and raw entries.

The ledger view, guards and caps of the hook are not used: this is the second opinion on them. What
must be in the ledger and told after a run is in `machine_books`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil, inf

from remediation.cluster.state import ClusterState, NodeView
from remediation.ledger.entries import Entry
from simulation.chaos.actuator import ChaosActuator, Effect
from tests.remediation.machine_world import DENIED, TICK, WATCHED, Machine, RunNote, Tick

HOUR = timedelta(hours=1)
CEILING = {
    "observe": 0, "recommend": 0, "cordon": 1, "drain_after_jobs": 2, "notify_then_drain": 3,
}  # fmt: skip
HARM = {"cordon": 1, "drain_after_jobs": 2, "checkpoint_then_drain": 3, "drain_now": 4}


class Violation(BaseException):
    """An invariant does not hold; nothing in the hook may catch it.

    Attributes:
        invariant: Its number in the list of guarantees, and a word.
    """

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


def is_ours(reason: str | None) -> bool:
    return (reason or "").startswith("forewarn:")


def held_in(nodes: Iterable[NodeView]) -> set[str]:
    return {node.name for node in nodes if node.state != "up" and is_ours(node.reason)}


@dataclass(frozen=True)
class Done:
    """An order that arrived."""

    node: str
    decision_id: str
    kind: str
    hook_time: datetime
    true_time: datetime
    had_effect: bool


class Oracle:
    """Checks orders and effects as they come."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.orders: list[Done] = []
        self.undrained: dict[str, tuple[datetime, datetime]] = {}
        self.foreign: dict[str, str] = {}
        self.first_seen: dict[datetime, dict[str, str | None]] = {}
        self.checked: Counter[str] = Counter()
        self.excused: set[str] = set()

    def check(self, invariant: str, holds: bool, text: str = "") -> None:
        self.checked[invariant] += 1
        if not holds:
            raise Violation(invariant, text)

    # -- what people did ---------------------------------------------------------------------------

    def person_undrained(self, node: str) -> None:
        """A cool-down starts, if the books know of the hold: see `acknowledged`."""
        if self.is_booked(node):
            self.undrained[node] = (self.machine.now, self.machine.clock())

    def acknowledged(self, node: str) -> None:
        """Who says so has looked: the node may be taken anew, whatever became of the last try."""
        self.undrained.pop(node, None)
        self.excused.add(node)

    def is_booked(self, node: str) -> bool:
        """Whether the ledger says, or fears, that we hold a node."""
        answers = self.answers()
        for one in self.machine.book(("intent",)):
            if one.node != node or "step" in one.body or ("released", one.key) in answers:
                continue
            result = answers.get(("result", one.key))
            is_unclear = result is None or is_status(result, "ambiguous")
            is_settled = ("acknowledged", f"escalation:{one.key}") in answers
            if (is_unclear and not is_settled) or (result and is_status(result, "done")):
                return True
        return False

    def answers(self) -> dict[tuple[str, str | None], Entry]:
        kinds = ("result", "released", "acknowledged")
        return {(e.kind, e.refers_to): e for e in self.machine.book(kinds)}

    def clock_went_back(self) -> None:
        now = self.machine.clock()
        self.undrained = {n: (t, min(h, now)) for n, (t, h) in self.undrained.items()}

    # -- orders ------------------------------------------------------------------------------------

    def on_order(self, effect: Effect, note: RunNote) -> None:
        name = effect.order.expected.name
        intent = self._open_intent(effect)
        self.check("13 intent first", intent is not None, f"{effect.kind} of {name}")
        seen, at = note.looked.get(name, (None, -1))
        self.check(
            "11 re-read",
            seen == effect.order.expected and intent is not None and at >= intent.seq,
            f"{name}: not read again after the intent",
        )
        self.check("22 kill switch", not self.machine.stopped, f"{effect.kind} of {name}")
        if effect.kind == "hold":
            self._check_hold(effect, note)
        elif effect.kind == "end_notice":
            self._check_end(effect)
        else:
            self._check_return(effect)
        done = Done(
            name, effect.order.reason.decision_id, effect.kind, self.machine.clock(),
            self.machine.now, had_effect=False,
        )  # fmt: skip
        self.orders.append(done)

    def _open_intent(self, effect: Effect) -> Entry | None:
        entries = self.machine.book(("intent", "result"))
        # Of two hooks at once, one may take the other for dead and repeat what is safe to repeat.
        is_safe = effect.kind == "end_notice"
        answered = {e.refers_to for e in entries if not (is_safe and is_status(e, "not_done"))}
        for one in reversed(entries):
            if one.kind != "intent" or one.key in answered:
                continue
            if one.node != effect.order.expected.name:
                continue
            step = one.body.get("step")
            is_decision = one.decision_id == effect.order.reason.decision_id
            if step == effect.kind or (effect.kind == "hold" and step is None and is_decision):
                return one
        return None

    def _check_hold(self, effect: Effect, note: RunNote) -> None:
        tick, name = note.tick, effect.order.expected.name
        state = note.state
        found = effect.order.expected
        self.check("17 down", found.state not in ("down", "unknown"), f"{name} is {found.state}")
        self.check("9 foreign", found.state == "up", f"{name} is held: {found.reason}")
        if state is None:
            raise Violation("11 re-read", "acted before the cluster was read")
        self._check_policy(effect, tick, state)
        self._check_scores(name, tick, note, boot=effect.order.expected.boot_id)
        self._check_site(name)
        self._check_caps(name, note, state)
        self._check_rate(name)
        self._check_tries(effect)
        active = self.stops(name, note, state)
        self.check("8 burst", not active, f"{name} acted on in {active}")
        self._check_cool_down(name)

    def _check_policy(self, effect: Effect, tick: Tick, state: ClusterState) -> None:
        name, action = effect.order.expected.name, effect.order.action
        level = "observe" if name == WATCHED else self.machine.site.levels[1].level
        self.check("1 level", HARM[action] <= CEILING[level], f"{action} of {name} at {level}")
        score, status = tick.scores.get(name, (None, "unknown"))
        self.check("6 unknown", score is not None and status != "unknown", name)
        self.check("28 synthetic", tick.trained_on == "real", f"{name} by {tick.trained_on}")
        self.check("28 prior", status == "ok", f"{name} by {status}")
        self.check("8 applications", name not in tick.application_only, name)
        jobs = state.jobs_on(name)
        may = all(job.is_requeue_allowed is True for job in jobs)
        self.check("25 requeue", HARM[action] < 3 or may, f"{action} of {name} with {jobs}")

    def _check_scores(self, name: str, tick: Tick, note: RunNote, *, boot: str | None) -> None:
        machine = self.machine
        last = max((one.recorded_at for one in machine.ledger.entries()), default=machine.clock())
        known = min(machine.now, max(machine.clock(), last))
        is_expired = machine.clock() >= tick.expires_at or known >= tick.expires_at
        self.check("5 expired", not is_expired, f"{name} at {machine.clock()}, {tick.expires_at}")
        warning = machine.site.warning
        since = tick.as_of - warning.k * TICK
        boots = {as_of: seen.get(name) for as_of, seen in self.first_seen.items()}
        ticks = {t.as_of for t in machine.ticks if since < t.as_of <= tick.as_of and t.above(name)}
        self.check("7 n of k", len(ticks) >= warning.n, f"{name}: above in {sorted(ticks)}")
        same = [at for at in ticks if boots.get(at, boot) == boot]
        self.check("12 boot", len(same) >= warning.n, f"{name}: {boot} was above in {same} only")

    def _check_site(self, name: str) -> None:
        site, now = self.machine.site, self.machine.clock()
        self.check("22 deny list", name != DENIED)
        inside = [w.name for w in site.maintenance if w.start <= now < w.end and name in w.nodes]
        self.check("22 maintenance", not inside, f"{name} in {inside} at {now}")
        self.check("22 hours", not site.working_hours or 7 <= now.hour < 19, f"{name} at {now}")

    def _check_caps(self, name: str, note: RunNote, state: ClusterState) -> None:
        machine, caps = self.machine, self.machine.site.caps
        late = {o.expected.name for kind, o in machine.actuator.under_way if kind == "hold"}
        # What a person has acknowledged may still arrive, at any moment: nobody can count it.
        surprises = self.excused - held_in(state.nodes)
        held = (held_in(machine.cluster.nodes.values()) | late) - surprises
        self.check("13 twice", name not in held, f"{name} is held already")
        with_it = held | {name}
        # A window that begins within the run counts from the next run on.
        everybody = self.manageable(state, note.begun)
        most = min(share(len(everybody), caps.held_percent), caps.held_most)
        self.check("2 fleet cap", len(with_it) <= most, f"{sorted(with_it)}, {most} allowed")
        node = state.by_name[name]
        for partition in node.partitions:
            members = {one.name for one in state.nodes if partition in one.partitions}
            allowed = share(len(members & everybody), caps.partition_percent)
            here = with_it & members
            self.check("2 partition cap", len(here) <= allowed, f"{sorted(here)}, {allowed}")
            left = {n for n in members - with_it if state.by_name[n].state == "up"}
            self.check("2 never all", bool(left) or note.is_disturbed, f"{name} of {partition}")
        if caps.per_rack is not None:
            rack = {one.name for one in state.nodes if one.rack == node.rack}
            self.check("2 rack cap", len(with_it & rack) <= caps.per_rack, str(with_it & rack))
        for job in state.jobs_on(name):
            here = with_it & set(job.nodes)
            self.check("2 job cap", len(here) <= caps.per_job, f"{sorted(here)} of {job.job_id}")

    def _check_rate(self, name: str) -> None:
        since = self.machine.clock() - HOUR
        recent = [
            one.node
            for one in self.orders
            if one.kind == "hold" and one.had_effect and one.hook_time > since
        ]
        most = self.machine.site.caps.actions_per_hour
        self.check("2 rate cap", len(recent) < most, f"{name} after {recent} within the hour")

    def _check_tries(self, effect: Effect) -> None:
        machine, name = self.machine, effect.order.expected.name
        boot = effect.order.expected.boot_id
        entries = machine.book(("intent", "result"))
        failed = {e.refers_to for e in entries if e.kind == "result" and is_status(e, "not_done")}
        tries = [
            e for e in entries
            if e.kind == "intent" and e.node == name and "step" not in e.body and e.key in failed
            and e.body["boot_id"] == boot and e.recorded_at > machine.clock() - 24 * HOUR
        ]  # fmt: skip
        most = machine.site.caps.attempts
        self.check("19 attempts", len(tries) < most, f"{name} after {len(tries)}")
        twice = [
            one
            for one in self.orders
            if one.had_effect and one.kind == "hold"
            and one.decision_id == effect.order.reason.decision_id
        ]  # fmt: skip
        self.check("13 twice", not twice, f"decision on {name} was carried out before")

    def _check_cool_down(self, name: str) -> None:
        machine = self.machine
        true_at, hook_at = self.undrained.get(name, (None, None))
        if true_at is None or hook_at is None:
            return
        span = machine.site.undrain_cooldown_hours * HOUR
        is_over = machine.now >= true_at + span or machine.clock() >= hook_at + span
        self.check("10 cool-down", is_over, f"{name}, returned {true_at}, now {machine.now}")

    def _check_end(self, effect: Effect) -> None:
        taken = self._taken(effect)
        notice = timedelta(minutes=self.machine.site.costs.notice_minutes)
        is_over = taken is not None and self.machine.clock() - taken.recorded_at >= notice
        self.check("25 notice", is_over, f"{effect.order.expected.name} before its notice is over")

    def _check_return(self, effect: Effect) -> None:
        site, name = self.machine.site, effect.order.expected.name
        taken = self._taken(effect)
        bound = site.drains.longest_hours * HOUR
        is_stuck = taken is not None and self.machine.clock() - taken.recorded_at > bound
        self.check("16 give back", site.drains.is_stuck_returned and is_stuck, name)

    def _taken(self, effect: Effect) -> Entry | None:
        step = self._open_intent(effect)
        if step is None:
            return None
        intents = self.machine.book(("intent",))
        return next((one for one in intents if one.key == step.body["of"]), None)

    # -- effects -----------------------------------------------------------------------------------

    def on_effect(self, effect: Effect, note: RunNote | None) -> None:
        before, name = effect.before, effect.order.expected.name
        if before is None:
            raise Violation("12 boot", f"{name} is not there")
        self.check("17 down", before.state != "down", f"{effect.kind} of {name}")
        self.check("9 foreign", name not in self.foreign, f"{effect.kind} of {name}")
        if effect.kind != "hold":
            self.check("9 foreign", is_ours(before.reason), f"{effect.kind} of {name}")
        for job_id in effect.jobs:
            job = self.machine.cluster.jobs[job_id]
            self.check("25 requeue", job.is_requeue_allowed is True, job_id)
        for place in range(len(self.orders) - 1, -1, -1):
            one = self.orders[place]
            same = one.decision_id == effect.order.reason.decision_id and one.kind == effect.kind
            if same and not one.had_effect:
                self.orders[place] = Done(**{**vars(one), "had_effect": True})
                return
        raise Violation("13 intent first", f"{effect.kind} of {name} without an order")

    def after_step(self) -> None:
        for name, reason in self.foreign.items():
            node = self.machine.cluster.nodes.get(name)
            kept = node is not None and node.state == "drain" and node.reason == reason
            self.check("9 foreign", kept, f"{name} was {reason!r}, is {node}")

    # -- the fleet ---------------------------------------------------------------------------------

    def manageable(self, state: ClusterState, now: datetime) -> set[str]:
        windows = [w for w in self.machine.site.maintenance if w.start <= now < w.end]
        return {
            node.name
            for node in state.nodes
            if (node.state == "up" or (node.state == "drain" and is_ours(node.reason)))
            and node.name != DENIED
            and not any(node.name in window.nodes for window in windows)
        }

    def stops(self, name: str, note: RunNote, state: ClusterState) -> list[str]:
        """Scopes in which a burst has stopped automation, as far as a node is in them."""
        now, node = self.machine.clock(), state.by_name[name]
        entries = self.machine.book(("escalation", "acknowledged"))
        ended = {one.refers_to for one in entries if one.kind == "acknowledged"}
        bursts = [e for e in entries if e.kind == "escalation" and e.body["why"] == "burst"]
        found = [
            body["scope"]
            for one in bursts
            if one.key not in ended
            and now < datetime.fromisoformat((body := one.body)["until"])
            and (is_in(node, body["scope"]) or name in body["nodes"])
        ]
        acknowledged = {one.body["scope"] for one in bursts if one.key in ended}
        new = self.new_bursts(note, state)
        return found + [
            scope
            for scope, nodes in new.items()
            if scope not in acknowledged and (is_in(node, scope) or name in nodes)
        ]

    def new_bursts(self, note: RunNote, state: ClusterState) -> dict[str, set[str]]:
        """Bursts that begin with the tick of a run, counted anew and simply."""
        burst, tick, now = self.machine.site.burst, note.tick, self.machine.clock()
        new = {name for name in state.by_name if tick.above(name)}
        for one in self.machine.ledger.entries(kinds=("observed", "escalation")):
            if one.seq > note.n_ledger or not is_real(one):
                continue
            if one.kind == "observed":
                age = (tick.as_of - datetime.fromisoformat(one.body["as_of"])).total_seconds() / 60
                if burst.within_minutes <= age < burst.quiet_hours * 60:
                    new -= set(one.body["nodes"])
            elif one.body["why"] == "burst":
                until = datetime.fromisoformat(one.body["until"])
                if now < until + burst.quiet_hours * HOUR:
                    new -= set(one.body["nodes"])
        found = {"fleet": new}
        for name in new:
            node = state.by_name[name]
            for scope in (f"rack {node.rack}", f"switch {node.switch}", f"driver {node.driver}"):
                found.setdefault(scope, set()).add(name)
        drivers = Counter(f"driver {node.driver}" for node in state.nodes)
        wide = {"fleet": len(self.manageable(state, now))} | (drivers if len(drivers) > 1 else {})
        return {
            scope: nodes
            for scope, nodes in found.items()
            if len(nodes) >= self._needed(scope, wide)
        }

    def _needed(self, scope: str, wide: dict[str, int]) -> float:
        burst = self.machine.site.burst
        if scope in wide:
            return max(burst.fleet_nodes, ceil(wide[scope] * burst.fleet_percent / 100))
        return inf if scope.startswith("driver") else burst.component_nodes


def share(n: int, percent: float) -> int:
    return min(n, max(1, int(n * percent / 100)))


def is_in(node: NodeView, scope: str) -> bool:
    if scope == "fleet":
        return True
    kind, place = scope.split(" ", 1)
    return bool(getattr(node, kind) == place)


def is_real(entry: Entry) -> bool:
    """Whether an entry is not a rehearsal's."""
    return entry.actuator == ChaosActuator.name


def is_status(entry: Entry, status: str) -> bool:
    return bool(entry.body.get("status") == status)
