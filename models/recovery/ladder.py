"""The ladder of an incident: diagnose, evict, reattempt, roll back, replay, and then a person.

After ByteRobust (SOSP'25): quick coarse steps first, the dear exact one last. The machine here
decides only; checks and the job are reached through Protocols. Alerts that evict without any
diagnosis are in `.immediate`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from features.errors import DataError

Step = Literal["diagnose", "evict", "reattempt", "roll_back", "replay", "end"]
Outcome = Literal["eviction", "reattempt", "rollback", "replay", "person"]
TriggerKind = Literal["alert", "crash", "user_code", "hang", "slow", "nan"]

OUTCOMES: Final[tuple[Outcome, ...]] = ("eviction", "reattempt", "rollback", "replay", "person")

PUBLISHED_SHARES: Final = {
    "eviction": 0.3252, "reattempt": 0.2270, "rollback": 0.0920, "replay": 0.0123,
}  # fmt: skip
"""Shares of incidents in ByteRobust's 19 jobs of 9,600 GPUs and more; others ended otherwise."""


class StopCheck(Protocol):
    """A test of machines while the job stands still, such as a GPU diagnostic or an all-reduce."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def suspects(self, machines: frozenset[str]) -> frozenset[str]:
        """The machines that fail it."""
        ...


class JobControl(Protocol):
    """What can be done to the job."""

    def restart(self, *, without: frozenset[str]) -> bool:
        """Starts the job again, without some machines; whether it got past where it failed."""
        ...

    def roll_back(self) -> bool:
        """Goes back to the code and data before their last change; False: there is none."""
        ...

    def replay(self, machines: frozenset[str]) -> frozenset[str]:
        """Suspects of a dual-phase replay (`models.localization.replay`)."""
        ...


@dataclass(frozen=True)
class Trigger:
    """What began an incident.

    Attributes:
        kind: What was seen.
        suspects: Machines already known to be at fault (an immediate rule, stacks, collectives).
    """

    kind: TriggerKind
    suspects: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Climb:
    """Where an incident stands.

    Attributes:
        machines: Machines of the job, those evicted no longer among them.
        budget: Machines that may still be evicted.
        step: What to do next.
        suspects: Whom to evict, for the step `evict`.
        taken: The steps taken, in order.
        evicted: Machines evicted, in order.
        outcome: How it ended; None: not yet.
        why: Why a person is needed; empty: none is.
    """

    machines: frozenset[str]
    budget: int
    step: Step
    suspects: frozenset[str] = frozenset()
    taken: tuple[Step, ...] = ()
    evicted: tuple[str, ...] = ()
    outcome: Outcome | None = None
    why: str = ""


def begin(trigger: Trigger, machines: Iterable[str], *, budget: int) -> Climb:
    """The first step of an incident.

    Args:
        trigger: What began it.
        machines: Machines of the job.
        budget: Most machines to evict for it.

    Raises:
        DataError: The budget is negative.
    """
    if budget < 0:
        raise DataError(f"incident ladder: expected a budget of 0 machines or more, got {budget}")
    climb = Climb(frozenset(machines), budget, "diagnose")
    if found := trigger.suspects & climb.machines:
        return _to_evict(climb, found)
    if trigger.kind == "user_code":
        # Its own text names the code: machines are not to blame first.
        return replace(climb, step="roll_back")
    return climb


def take(climb: Climb, checks: Sequence[StopCheck], control: JobControl) -> Climb:
    """Takes the next step.

    Args:
        climb: Where the incident stands.
        checks: Stop-time checks, the cheapest first; the first that finds suspects ends the row.
        control: The job.

    Returns:
        Where it stands then. Every incident ends: each step but an eviction is taken once, and an
        eviction takes a machine from the budget.
    """
    now = replace(climb, taken=(*climb.taken, climb.step), suspects=frozenset())
    if climb.step in ("diagnose", "replay"):
        found = _look(climb.step, now.machines, checks, control)
        return _to_evict(now, found) if found else _next(now)
    if climb.step == "evict":
        now = replace(
            now,
            machines=now.machines - climb.suspects,
            budget=now.budget - len(climb.suspects),
            evicted=(*now.evicted, *sorted(climb.suspects)),
        )
        solved: Outcome = "replay" if "replay" in now.taken else "eviction"
        return _judge(now, is_well=control.restart(without=climb.suspects), outcome=solved)
    if climb.step == "reattempt":
        is_well = control.restart(without=frozenset())
        return _judge(now, is_well=is_well, outcome="reattempt")
    if climb.step == "roll_back":
        is_well = control.roll_back() and control.restart(without=frozenset())
        return _judge(now, is_well=is_well, outcome="rollback")
    return climb


def run_ladder(
    trigger: Trigger,
    machines: Iterable[str],
    checks: Sequence[StopCheck],
    control: JobControl,
    *,
    budget: int,
) -> Climb:
    """Takes steps until the incident ends.

    Args:
        trigger: What began it.
        machines: Machines of the job.
        checks: Stop-time checks, the cheapest first.
        control: The job.
        budget: Most machines to evict for it.

    Raises:
        DataError: The budget is negative.
    """
    climb = begin(trigger, machines, budget=budget)
    while climb.step != "end":
        climb = take(climb, checks, control)
    return climb


def _look(
    step: Step, machines: frozenset[str], checks: Sequence[StopCheck], control: JobControl
) -> frozenset[str]:
    """Suspects of the replay, or of the first stop-time check that has any."""
    if step == "replay":
        return control.replay(machines) & machines
    found = (check.suspects(machines) & machines for check in checks)
    return next(filter(None, found), frozenset())


def _judge(now: Climb, *, is_well: bool, outcome: Outcome) -> Climb:
    if is_well:
        return replace(now, step="end", outcome=outcome)
    return _next(now)


def _next(now: Climb) -> Climb:
    """The next rung. After an eviction that did not help, another look comes first."""
    if now.taken[-1] == "evict" and "replay" not in now.taken:
        return replace(now, step="diagnose")
    rungs: tuple[Step, ...] = ("diagnose", "reattempt", "roll_back", "replay")
    left = [rung for rung in rungs if rung not in now.taken]
    if left:
        return replace(now, step=left[0])
    return _to_person(now, "every step was taken and the job still fails")


def _to_evict(now: Climb, found: frozenset[str]) -> Climb:
    if len(found) > now.budget:
        # Evicting a part of them would leave a known fault in the job.
        return _to_person(
            now, f"{len(found)} machines are suspect and {now.budget} more may be evicted"
        )
    return replace(now, step="evict", suspects=found)


def _to_person(now: Climb, why: str) -> Climb:
    return replace(now, step="end", outcome="person", why=why)
