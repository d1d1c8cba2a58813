"""Seeded walks over the rules of the state machine, and the shortest one that still fails.

What happens is in `machine_rules`, what may never happen in `machine_oracle` and `machine_books`.
"""

# ruff: noqa: S311 - seeded worlds, no secrets

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.remediation.machine_books import Watcher
from tests.remediation.machine_oracle import Violation
from tests.remediation.machine_rules import RULES, WEIGHTS
from tests.remediation.machine_world import Machine

Weaken = Callable[[dict[str, Any]], None]
Step = tuple[str, int]
"""A rule by name, and the seed of what it draws."""

LENGTH = 60
"""Steps of one walk; in a longer one a world is mostly held up by its own past."""


@dataclass
class Walk:
    """A walk as it went.

    Attributes:
        seed: Draws the world.
        steps: The steps.
        used: How often each rule was used.
        checked: How often each invariant was checked.
        violation: What did not hold at the last step; None: all did.
    """

    seed: int
    steps: list[Step]
    used: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    violation: Violation | None = None


@dataclass
class Soak:
    """Many walks: steps made, rules used, invariants checked, and the walk that ended them."""

    steps: int = 0
    used: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    walk: Walk | None = None

    @property
    def violation(self) -> Violation | None:
        return None if self.walk is None else self.walk.violation


def soak(n_steps: int, *, seed: int) -> Soak:
    """Walks of `LENGTH` steps from one seed after the other, until a violation or enough steps."""
    made = Soak()
    while made.steps < n_steps:
        one = walk(seed, steps_of(seed, LENGTH))
        made.steps, seed = made.steps + len(one.steps), seed + 1
        made.used += one.used
        made.checked += one.checked
        if one.violation is not None:
            made.walk = one
            break
    return made


def said(found: Walk) -> str:
    """A violation with what is needed to see it again."""
    steps = "\n".join(f"    {step!r}," for step in found.steps)
    return f"{found.violation}\nwalk({found.seed}, [\n{steps}\n])"


def steps_of(seed: int, length: int) -> list[Step]:
    """The steps that a seed draws."""
    rng = random.Random(seed)
    names = list(RULES)
    weights = [WEIGHTS.get(name, 1) for name in names]
    return [(name, rng.randrange(1 << 30)) for name in rng.choices(names, weights, k=length)]


def walk(seed: int, steps: Sequence[Step], *, weaken: Weaken | None = None) -> Walk:
    """Walks a world of a seed through steps, until an invariant does not hold."""
    machine = Machine(seed, weaken=weaken)
    machine.watcher = watcher = Watcher(machine)
    made = Walk(seed, list(steps))
    try:
        for place, (name, drawn) in enumerate(steps):
            made.used[name] += 1
            made.steps = list(steps[: place + 1])
            RULES[name](machine, random.Random(drawn))
            watcher.after_step()
        watcher.at_end()
    except Violation as found:
        made.violation = found
    made.checked = watcher.checked
    return made


def shrink(found: Walk, *, weaken: Weaken | None = None) -> Walk:
    """The shortest walk that could be found in which the same invariant does not hold."""
    best = found
    size = max(1, len(best.steps) // 2)
    while True:
        place, is_shorter = 0, False
        while place < len(best.steps):
            rest = [*best.steps[:place], *best.steps[place + size :]]
            tried = walk(best.seed, rest, weaken=weaken)
            same = tried.violation and best.violation
            if same and tried.violation.invariant == best.violation.invariant:
                best, is_shorter = tried, True
            else:
                place += size
        if size == 1 and not is_shorter:
            return best
        size = max(1, size // 2)
