"""One job under one regime, event by event: incidents, the real ladder, standby, foretold drains.

Parameters are in `.parameters`, many runs and tables in `.study`.
"""

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal

import numpy as np

from models.recovery.ettr import Stretch, cumulative_ettr, sliding_ettr
from models.recovery.ladder import StopCheck, Trigger, TriggerKind, run_ladder
from remediation.policy.standby import standby_pool_size
from simulation.recovery.parameters import MACHINE_CAUSES, SHARES, Cause, Foresight, Regime

_DAY_S: Final = 86400.0
_HOUR_S: Final = 3600.0
_TRIGGERS: Final[Mapping[Cause, TriggerKind]] = {
    "network": "alert", "machine": "crash", "transient": "crash", "code": "crash",
    "silent": "nan", "hang": "hang", "slow": "slow",
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """How a run went.

    Attributes:
        ettr: Productive time by wall time.
        worst_hour: Least ETTR of any hour.
        longest_stop_min: Longest unproductive stretch, in minutes.
        incidents: Incidents by how they ended; `change` are restarts that people asked for,
            `stacks` evictions that stacks decided.
        drains: Foretold drains made, right and wrong.
        evicted: Machines evicted.
        short: Evictions for which the pool did not suffice.
        machine_loss_s: Mean time that an incident of a machine cost, in seconds.
        stretches: The whole time, in order.
    """

    ettr: float
    worst_hour: float
    longest_stop_min: float
    incidents: Mapping[str, int]
    drains: Mapping[str, int]
    evicted: int
    short: int
    machine_loss_s: float
    stretches: tuple[Stretch, ...] = field(repr=False)


@dataclass
class _Pool:
    """Standby machines: taken at once, given back when replaced."""

    ready: int
    refill_s: float
    returns: list[float] = field(default_factory=list)
    short: int = 0

    def take(self, wanted: int, now: float) -> bool:
        while self.returns and self.returns[0] <= now:
            heapq.heappop(self.returns)
            self.ready += 1
        given = min(wanted, self.ready)
        self.ready -= given
        for _ in range(given):
            heapq.heappush(self.returns, now + self.refill_s)
        self.short += given < wanted
        return given == wanted


@dataclass
class _Tests:
    """Stop-time tests: they find a machine that is broken openly, and take their time."""

    regime: Regime
    open_fault: frozenset[str]
    clock: "_Clock"
    name: str = "stop-time tests"

    def suspects(self, machines: frozenset[str]) -> frozenset[str]:
        self.clock.now += self.regime.diagnose_s
        return self.open_fault & machines


@dataclass
class _Job:
    """The job as the ladder reaches it."""

    regime: Regime
    cause: Cause
    faulty: frozenset[str]
    pool: _Pool
    clock: "_Clock"
    gone: set[str] = field(default_factory=set)
    rolled_back: bool = False

    def restart(self, *, without: frozenset[str]) -> bool:
        self.gone |= without
        self.clock.now += self._restart_s(len(without))
        is_well = self._is_well()
        if not is_well:
            self.clock.now += self.regime.refail_s + self.regime.detect_s
        return is_well

    def roll_back(self) -> bool:
        self.rolled_back = True
        return True

    def replay(self, machines: frozenset[str]) -> frozenset[str]:
        self.clock.now += self.regime.replay_s
        return self.faulty & machines

    def _restart_s(self, wanted: int) -> float:
        if not wanted:
            return self.regime.in_place_s
        is_ready = self.pool.take(wanted, self.clock.now)
        return self.regime.swap_s if is_ready else self.regime.reschedule_s

    def _is_well(self) -> bool:
        if self.cause == "transient":
            return True
        if self.cause == "code":
            return self.rolled_back
        return self.faulty <= self.gone


@dataclass
class _Clock:
    now: float = 0.0


EventKind = Literal["incident", "drain"]


@dataclass(frozen=True)
class _Event:
    """Something that happens once the job has spent so long training."""

    at_s: float
    kind: EventKind
    cause: Cause | None
    is_right: bool = True


def run_job(regime: Regime, *, seed: int, foresight: Foresight | None = None) -> Run:
    """Runs a job for the regime's days.

    Incidents come by a Poisson process of the time that the job trains. The same seed draws the
    same incidents under every foresight, and under every regime with the same time between them.

    Args:
        regime: How it runs and recovers.
        seed: Decides every draw.
        foresight: Which incidents are foretold; None: none.
    """
    end = regime.days * _DAY_S
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    size = standby_pool_size(regime.n_nodes, regime.pool_p_fail) if regime.pool_p_fail > 0 else 0
    state = _State(regime, _Pool(size, regime.refill_h * _HOUR_S), rng)
    for event in _events(regime, foresight or Foresight(), seed):
        state.train_until(event.at_s, end)
        if state.clock.now >= end:
            break
        if event.kind == "drain":
            state.drain(is_right=event.is_right)
        else:
            state.meet(event.cause)
    state.train_until(np.inf, end)
    return state.summary(end)


def _events(regime: Regime, foresight: Foresight, seed: int) -> list[_Event]:
    """Incidents in training time; those foretold in time are drains instead, beside wrong ones."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    span, gap = regime.days * _DAY_S, regime.mtbi_h * _HOUR_S
    count = int(rng.poisson(span / gap))
    times = np.sort(rng.uniform(0, span, count))
    causes = rng.choice(len(SHARES), size=count, p=_normal(list(SHARES.values())))
    luck = rng.uniform(size=count)
    names = list(SHARES)
    events: list[_Event] = []
    in_time = foresight.lead_s >= foresight.drain_s
    for at, number, chance in zip(times.tolist(), causes.tolist(), luck.tolist(), strict=True):
        cause = names[number]
        if in_time and cause in MACHINE_CAUSES and chance < foresight.recall:
            drained = max(0.0, at - foresight.lead_s + foresight.drain_s)
            events.append(_Event(drained, "drain", None))
        else:
            events.append(_Event(at, "incident", cause))
    expected = count * sum(SHARES[c] for c in MACHINE_CAUSES) / sum(SHARES.values())
    wrong = rng.poisson(expected * foresight.recall * (1 / foresight.precision - 1))
    events += [
        _Event(at, "drain", None, is_right=False) for at in rng.uniform(0, span, wrong).tolist()
    ]
    return sorted(events, key=lambda event: event.at_s)


@dataclass
class _State:
    """The run so far: the wall clock, the time spent training (in vain or not), the stretches."""

    regime: Regime
    pool: _Pool
    rng: np.random.Generator
    clock: _Clock = field(default_factory=_Clock)
    exposed: float = 0.0
    stretches: list[Stretch] = field(default_factory=list)
    incidents: Counter[str] = field(default_factory=Counter)
    drains: Counter[str] = field(default_factory=Counter)
    evicted: int = 0
    machine_losses: list[float] = field(default_factory=list)

    def train_until(self, exposed: float, end: float) -> None:
        span = min(max(0.0, exposed - self.exposed), max(0.0, end - self.clock.now))
        self.exposed += span
        self._add(span, is_productive=True)
        self.clock.now += span

    def meet(self, cause: Cause | None) -> None:
        """An incident: what was trained since the last checkpoint is lost, then the ladder."""
        began, lost = self.clock.now, 0.0
        if cause is None or cause == "change":
            # People stop it at a checkpoint of their choosing.
            self.clock.now += self.regime.in_place_s
            self.incidents["change"] += 1
        else:
            # The step under way is lost too.
            steps = self.rng.uniform(0, self.regime.checkpoint_steps) + self.rng.uniform()
            lost = self._lose(steps * self.regime.step_s)
            self._climb(cause)
        self._add(self.clock.now - began, is_productive=False)
        if cause in MACHINE_CAUSES:
            self.machine_losses.append(lost + self.clock.now - began)

    def drain(self, *, is_right: bool) -> None:
        """A swap at a checkpoint: the replacement was made ready before, the restart is lost."""
        self.clock.now += self.regime.in_place_s
        self.drains["right" if is_right else "wrong"] += 1
        self.evicted += 1
        self._add(self.regime.in_place_s, is_productive=False)

    def summary(self, end: float) -> Run:
        cut = [
            Stretch(s.start_s, min(s.end_s, end), s.is_productive)
            for s in self.stretches
            if s.start_s < end
        ]
        kept = 1 - self.regime.checkpoint_stall
        _, sliding = sliding_ettr(cut)
        stops = [s.end_s - s.start_s for s in cut if not s.is_productive]
        return Run(
            ettr=(cumulative_ettr(cut) or 0.0) * kept,
            worst_hour=float(sliding.min(initial=1.0)) * kept,
            longest_stop_min=max(stops, default=0.0) / 60,
            incidents=dict(self.incidents),
            drains=dict(self.drains),
            evicted=self.evicted,
            short=self.pool.short,
            machine_loss_s=float(np.mean(self.machine_losses)) if self.machine_losses else 0.0,
            stretches=tuple(cut),
        )

    def _climb(self, cause: Cause) -> None:
        names = _names(self.regime.n_nodes)
        drawn = self.rng.choice(
            self.regime.n_nodes, size=self._n_evicted_around(), replace=False
        ).tolist()
        faulty = frozenset({f"n{drawn[0]}"}) if cause in MACHINE_CAUSES else frozenset[str]()
        known: frozenset[str] = frozenset()
        is_stalled = cause in ("hang", "slow")
        self.clock.now += self.regime.detect_hang_s if is_stalled else self.regime.detect_s
        if is_stalled:
            self.clock.now += self.regime.localize_s
            known = frozenset(f"n{number}" for number in drawn)
        elif cause == "network":
            known = faulty
        tests: list[StopCheck] = [
            _Tests(self.regime, frozenset() if cause == "silent" else faulty, self.clock)
        ]
        job = _Job(self.regime, cause, faulty, self.pool, self.clock)
        ended = run_ladder(
            Trigger(_TRIGGERS[cause], known), names, tests, job, budget=self.regime.budget
        )
        if ended.outcome == "person":
            self.clock.now += self.regime.person_s
        self.evicted += len(ended.evicted)
        by_stacks = is_stalled and ended.outcome == "eviction"
        self.incidents["stacks" if by_stacks else str(ended.outcome)] += 1

    def _n_evicted_around(self) -> int:
        return min(max(1, self.regime.over_evicted), self.regime.n_nodes)

    def _lose(self, span: float) -> float:
        """Turns the last productive time into lost time; returns how much there was."""
        last = self.stretches[-1] if self.stretches else None
        if last is None or not last.is_productive:
            return 0.0
        at = max(last.start_s, last.end_s - span)
        self.stretches[-1] = Stretch(last.start_s, at, is_productive=True)
        self.stretches.append(Stretch(at, last.end_s, is_productive=False))
        return last.end_s - at

    def _add(self, span: float, *, is_productive: bool) -> None:
        if span <= 0:
            return
        start = self.stretches[-1].end_s if self.stretches else 0.0
        last = self.stretches[-1] if self.stretches else None
        if last is not None and last.is_productive == is_productive:
            self.stretches[-1] = Stretch(last.start_s, start + span, is_productive)
        else:
            self.stretches.append(Stretch(start, start + span, is_productive))


@cache
def _names(n_nodes: int) -> frozenset[str]:
    return frozenset(f"n{number}" for number in range(n_nodes))


def _normal(shares: list[float]) -> list[float]:
    total = sum(shares)
    return [share / total for share in shares]
