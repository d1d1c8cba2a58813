"""The world of the state machine: a cluster, people, scores, clocks and faults; nothing is judged.

What may never happen is in `machine_oracle` and `machine_books`, what happens in `machine_rules`.
"""

# ruff: noqa: S311 - seeded worlds, no secrets

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from features.errors import SourceError
from features.tables import GPU_SCORES, NODE_SCORES
from remediation import site as settings
from remediation.cluster.state import ClusterState, JobView, NodeView
from remediation.hook import ALL_GUARDS, HookRun, run_once
from remediation.ledger.entries import Entry, MemoryLedger
from remediation.score_source import PublishedScores
from remediation.site import Burst, Caps, Drains, LevelRule, Site
from simulation.chaos.actuator import ChaosActuator, Effect, Fault, Kind
from simulation.chaos.cluster import ChaosCluster

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
TICK = timedelta(minutes=15)
VALID = timedelta(minutes=30)
THRESHOLD = 0.5


class Crash(BaseException):
    """The process is gone; nothing in the hook may catch it."""


@dataclass(frozen=True)
class Tick:
    """One published tick, as the publisher meant it: score, status and boot by node."""

    as_of: datetime
    expires_at: datetime
    trained_on: str
    scores: dict[str, tuple[float | None, str]]
    faults: dict[str, str]
    application_only: frozenset[str]

    def above(self, node: str) -> bool:
        score, status = self.scores.get(node, (None, "unknown"))
        return score is not None and status != "unknown" and score >= THRESHOLD

    def published(self) -> PublishedScores:
        rows = [
            {
                "entity_kind": "node", "entity_id": node, "node": node, "as_of": self.as_of,
                "horizon_h": 24, "score": score, "status": status,
                "status_reason": None if status == "ok" else "so it is",
                "fault_type": None if score is None else self.faults.get(node, "nvlink"),
                "fault_probability": None, "reasons": self._reasons(node), "missing_share": 0.0,
                "model_version": "17", "trained_on": self.trained_on,
            }
            for node, (score, status) in self.scores.items()
        ]  # fmt: skip
        return PublishedScores(
            as_of=self.as_of,
            expires_at=self.expires_at,
            model_versions={24: "17"},
            trained_on=self.trained_on,
            node_scores=pl.DataFrame(rows, schema=NODE_SCORES.schema),
            gpu_scores=GPU_SCORES.empty(),
        )

    def _reasons(self, node: str) -> list[str]:
        if node not in self.application_only:
            return ["links (90% of what raises the score): Link errors: 7"]
        return ["health events (90% of what raises the score): Number of application Xids: 4"]


@dataclass
class RunNote:
    """What one run of the hook was given, and did, as seen from outside."""

    tick: Tick
    begun: datetime
    state: ClusterState | None = None
    known: dict[str, NodeView] = field(default_factory=dict)
    looked: dict[str, tuple[NodeView | None, int]] = field(default_factory=dict)
    is_disturbed: bool = False
    n_ledger: int = 0


@dataclass(frozen=True)
class Planned:
    """What happens in the middle of a run, right after one of its steps has ended."""

    at: int
    do: Callable[[], None]
    is_crash: bool = False
    is_before: bool = False


class Stepped:
    """A part of a run each of whose calls is a step that others may cut in after."""

    def __init__(self, inner: Any, step: Callable[[str, Callable[[], Any]], Any]) -> None:
        self._inner, self._step = inner, step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        return lambda *args, **more: self._step(name, lambda: found(*args, **more))


class Machine:
    """The world. `watcher` is told of orders, effects and runs; it raises what may not be.

    Args:
        seed: Draws the site, the cluster and every later choice that a rule leaves open.
        weaken: Changes what a run is given, for mutations.
        site: Another site than the drawn one.
        nodes: Other nodes than the usual twelve.
    """

    def __init__(
        self,
        seed: int,
        *,
        weaken: Callable[[dict[str, Any]], None] | None = None,
        site: Site | None = None,
        nodes: Sequence[NodeView] = (),
    ) -> None:
        rng = random.Random(seed)
        self.site = site or _site(rng)
        self.now, self.skew = START, timedelta(0)
        self.cluster = ChaosCluster(nodes or _nodes())
        self.ledger = MemoryLedger()
        self.watcher: Any = None
        self.weaken = weaken
        self.sick: dict[str, float] = {}
        self.ticks: list[Tick] = []
        self.stopped = False
        self.hung: str | None = None
        self.fault: list[tuple[Fault, str | None]] = []
        self.n_jobs = self.n_boots = 0
        self.actuator = ChaosActuator(
            self.cluster, faults=self._fault, on_order=self._order, on_effect=self._effect
        )
        self.plans: list[Planned] = []
        self.stale: ClusterState | None = None
        self.running: list[RunNote] = []
        self._steps = 0

    # -- time ------------------------------------------------------------------------------------

    def clock(self) -> datetime:
        """The hook's clock, which may be wrong."""
        return self.now + self.skew

    def book(self, kinds: tuple[str, ...]) -> tuple[Entry, ...]:
        """The raw entries of some kinds, those of rehearsals left out."""
        entries = self.ledger.entries(kinds=kinds)
        return tuple(one for one in entries if one.actuator == ChaosActuator.name)

    # -- scores ----------------------------------------------------------------------------------

    def publish(self, rng: random.Random, **changes: Any) -> Tick:
        names = [n for n in self.cluster.nodes if n not in changes.pop("missing", ())]
        unknown = changes.pop("unknown", frozenset())
        prior = changes.pop("prior", frozenset())
        scores: dict[str, tuple[float | None, str]] = {}
        for name in names:
            score = self.sick.get(name, 0.05)
            status = "unknown" if name in unknown else "prior" if name in prior else "ok"
            scores[name] = (None if status == "unknown" else score, status)
        faults = {name: rng.choice(("nvlink", "hbm_uncorrectable", "thermal")) for name in names}
        values = {
            "as_of": self.now, "expires_at": self.now + VALID, "trained_on": "real",
            "scores": scores, "faults": faults, "application_only": frozenset(),
        }  # fmt: skip
        tick = Tick(**(values | changes))
        self.ticks.append(tick)
        return tick

    def latest(self, now: datetime) -> PublishedScores:
        """A `ScoreSource`; scores from the future are refused, as the folder source does."""
        if not self.ticks or self.ticks[-1].as_of > now:
            raise SourceError("no scores that can be trusted")
        return self.ticks[-1].published()

    # -- the hook --------------------------------------------------------------------------------

    def run(self, **changes: Any) -> HookRun | None:
        """One run; None: it crashed, or refused to go on."""
        if not self.ticks:
            return None
        site = self.site.model_copy(update={"kill_switch": _Switch(self)})
        note = RunNote(self.ticks[-1], self.clock(), n_ledger=len(self.ledger.entries()))
        self.running.append(note)
        parts: dict[str, Any] = {
            "scores": Stepped(self, self._step),
            "cluster": Stepped(_Reader(self), self._step),
            "actuator": Stepped(self.actuator, self._step),
            "ledger": Stepped(self.ledger, self._step),
            "site": site,
            "clock": self.clock,
            "guards": ALL_GUARDS,
        }
        parts |= changes
        if self.weaken is not None:
            self.weaken(parts)
        outer, self._steps = self._steps, 0
        try:
            made = run_once(**parts)
        except (Crash, SourceError):
            made = None
        finally:
            self._steps = outer
            self.running.pop()
        if made is not None:
            self.watcher.after_run(made, note)
        return made

    def _step(self, name: str, do: Callable[[], Any]) -> Any:
        place, self._steps = self._steps, self._steps + 1
        due = [plan for plan in self.plans if plan.at == place] if len(self.running) == 1 else []
        for plan in due:
            self.plans.remove(plan)
            if plan.is_crash and plan.is_before:
                raise Crash
        found = do()
        note = self.running[-1]
        if name == "read":
            note.state = found
        if name == "state":
            note.looked[found.name if found else ""] = (found, len(self.ledger.entries()))
        for plan in due:
            note.is_disturbed = True
            plan.do()
            if plan.is_crash:
                raise Crash
        return found

    def _fault(self, kind: Kind, node: str) -> Fault | None:
        del kind
        if node == self.hung:
            return "raises_before"
        for place, (fault, only) in enumerate(self.fault):
            if only in (None, node):
                del self.fault[place]
                return fault
        return None

    def _order(self, effect: Effect) -> None:
        self.watcher.on_order(effect, self.running[-1])

    def _effect(self, effect: Effect) -> None:
        self.watcher.on_effect(effect, self.running[-1] if self.running else None)


class _Switch:
    """The kill switch's file, as far as the hook looks at it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.parent = self

    def lstat(self) -> None:
        if not self._machine.stopped:
            raise FileNotFoundError

    def is_dir(self) -> bool:
        return True


class _Reader:
    """A `ClusterReader` that may be stale once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def read(self) -> ClusterState:
        stale, self._machine.stale = self._machine.stale, None
        return stale or self._machine.cluster.read()


DENIED = "n8"
WATCHED = "n9"
"""A node on the deny list, and one of a group that is only observed."""


def _nodes() -> list[NodeView]:
    return [
        NodeView(
            name=f"n{i}",
            state="up",
            boot_id=f"boot-{i}",
            rack=f"r{i // 3}",
            switch=f"s{i // 6}",
            partitions=("small",) if i >= 10 else ("train",),
            n_gpus=8,
            driver="550" if i % 2 else "535",
        )
        for i in range(12)
    ]


def _site(rng: random.Random) -> Site:
    """A site whose caps are near, so that every one of them is met."""
    caps = Caps(
        held_percent=rng.choice((20, 30, 60)),
        held_most=rng.choice((1, 2, 3, 9)),
        partition_percent=rng.choice((20, 40, 100)),
        per_rack=rng.choice((1, 2, None)),
        actions_per_hour=rng.choice((1, 2, 9)),
        attempts=rng.choice((1, 2)),
    )
    level = rng.choice(("notify_then_drain",) * 4 + ("drain_after_jobs", "cordon"))
    return Site(
        caps=caps,
        groups={"watched": (WATCHED,)},
        levels=(LevelRule(group="watched", level="observe"), LevelRule(level=level)),
        deny=(DENIED,),
        drains=Drains(longest_hours=2, is_stuck_returned=rng.random() < 0.5),
        warning=settings.Warning(
            threshold=THRESHOLD, n=(n := rng.choice((1, 1, 1, 2))), k=rng.choice((n, 3))
        ),
        burst=Burst(
            fleet_nodes=4, fleet_percent=rng.choice((30, 40)), component_nodes=3, quiet_hours=6,
            hold_hours=rng.choice((2, 12)),
        ),
        undrain_cooldown_hours=rng.choice((3, 8)),
        maintenance=(
            settings.Window(
                name="work", start=START + timedelta(hours=3), end=START + timedelta(hours=5),
                nodes=("n0", "n1", "n2"),
            ),
        ),
        working_hours=()
        if rng.random() < 0.7
        else (settings.WorkingHours(start="07:00", end="19:00", time_zone="UTC"),),
    )  # fmt: skip


def job(machine: Machine, nodes: tuple[str, ...], *, may: bool | None, hours: float) -> JobView:
    """A new job on some nodes."""
    machine.n_jobs += 1
    return JobView(
        job_id=f"j{machine.n_jobs}", nodes=nodes, n_gpus=8 * len(nodes), partition="train",
        remaining_h=hours, is_requeue_allowed=may,
    )  # fmt: skip
