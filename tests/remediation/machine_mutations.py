"""Ways to weaken the hook, by name: the state machine must find each of them out.

How it finds them is in `machine_oracle` and `machine_books`; the hook itself is never changed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from remediation import hook
from remediation.actuators.protocol import Outcome
from remediation.guards.judge import passes
from remediation.holds import tending
from remediation.hook import ALL_GUARDS
from remediation.ledger.journal import Journal
from remediation.policy import choice as policy
from tests.remediation.machine_walk import LENGTH, Walk, Weaken, steps_of, walk

Patch = Callable[[Any, str, Any], None]

EQUIVALENT = {
    "guard same_boot": "within one run a decision takes its boot from the same state as the guard; "
    "it counts for decisions that a person approves later",
    "guard score_known": "the policy wants nothing of a node whose score is unknown, and no order "
    "can be made without one: see `takes unknown for sick`",
    "guard not_held": "`clear_record` and `node_state` are behind it: see `takes held nodes anew`",
    "guard clear_record": "`not_held` stands behind it: see `takes held nodes anew`",
    "guard not_held_out": "no world of the walks has a hold-out: see test_guarantees_guards",
}
"""Weakenings that no walk can find; each with the reason."""


@dataclass(frozen=True)
class Mutation:
    """A weakening: `patch` changes modules, `weaken` changes what a run is given."""

    patch: Callable[[Patch], None] = lambda _: None
    weaken: Weaken | None = None


def _without(*names: str) -> Weaken:
    """Guards that say yes to everything, under the same names."""

    def weaken(parts: dict[str, Any]) -> None:
        def yes(name: str) -> Any:
            return lambda decision, context: passes(name, "removed")

        parts["guards"] = tuple(
            yes(guard.__name__) if guard.__name__ in names else guard for guard in parts["guards"]
        )

    return weaken


def _view(**changes: Any) -> Callable[[Patch], None]:
    """A view of the ledger that forgets something."""
    real = hook.view_of
    return lambda patch: patch(
        hook, "view_of", lambda *args, **more: replace(real(*args, **more), **changes)
    )


def _skip_re_read(patch: Patch) -> None:
    real = hook._carry_out
    now: list[Any] = []

    def carry_out(one: Any, expected: Any, context: Any, **more: Any) -> Any:
        now[:] = [expected]
        return real(one, expected, context, **more)

    patch(hook, "_carry_out", carry_out)
    patch(hook, "read_state", lambda actuator, node: now[0])


def _act_before_intent(patch: Patch) -> None:
    patch(Journal, "intent", lambda self, one, *, attempt, before: f"intent:{attempt}")


def _forget_held(patch: Patch) -> None:
    patch(hook, "_held_by_us", lambda state, view: frozenset())
    patch(hook, "_renewed", lambda context, key, *, journal: context)


def _ignore_boots(patch: Patch) -> None:
    real = hook.alerts_of

    def alerts_of(above: Any, earlier: Any, *, site: Any) -> Any:
        above = [replace(one, boot_id=None) for one in above]
        earlier = [replace(tick, boot_ids=(None,) * len(tick.nodes)) for tick in earlier]
        return real(above, earlier, site=site)

    patch(hook, "alerts_of", alerts_of)


def _fill_unknown(patch: Patch) -> None:
    real = hook.node_scores_of

    def node_scores_of(published: Any, horizon_h: int) -> Any:
        return tuple(
            replace(one, score=0.9, status="ok") if one.score is None else one
            for one in real(published, horizon_h)
        )

    patch(hook, "node_scores_of", node_scores_of)


def _release_unread(patch: Patch) -> None:
    real = hook.note_released

    @dataclass(frozen=True)
    class Snapshot:
        seen: Any

        def state(self, name: str) -> Any:
            return self.seen.by_name.get(name)

    def note_released(view: Any, state: Any, *, actuator: Any, journal: Any) -> None:
        real(view, state, actuator=Snapshot(state), journal=journal)

    patch(hook, "note_released", note_released)


def _close_as(status: str) -> Callable[[Patch], None]:
    """Guesses what came of intents without result."""

    def close(view: Any, *, actuator: Any, journal: Any) -> None:
        for intent in view.open_intents:
            guess = Outcome(status=status, detail="guessed")  # type: ignore[arg-type]
            journal.result(intent.key, guess, about=intent, after=None)

    return lambda patch: patch(hook, "close_open_intents", close)


def _tend_with(**drains: Any) -> Callable[[Patch], None]:
    real = hook.tend

    def tend(view: Any, state: Any, *, actuator: Any, journal: Any, site: Any) -> None:
        site = site.model_copy(update={"drains": site.drains.model_copy(update=drains)})
        real(view, state, actuator=actuator, journal=journal, site=site)

    return lambda patch: patch(hook, "tend", tend)


def _end_at_once(patch: Patch) -> None:
    real = hook.tend

    def tend(view: Any, state: Any, *, actuator: Any, journal: Any, site: Any) -> None:
        costs = site.costs.model_copy(update={"notice_minutes": 0.0})
        site = site.model_copy(update={"costs": costs})
        real(view, state, actuator=actuator, journal=journal, site=site)

    patch(hook, "tend", tend)


def _nothing(module: Any, name: str) -> Callable[[Patch], None]:
    return lambda patch: patch(module, name, lambda *args, **more: None)


def _steps_unread(patch: Patch) -> None:
    real = tending.take_step

    def take_step(step: str, held: Any, node: Any, *args: Any, **more: Any) -> Any:
        patch(tending, "read_state", lambda actuator, name: node)
        return real(step, held, node, *args, **more)

    patch(tending, "take_step", take_step)


def _of_ledger_only(patch: Patch) -> None:
    patch(hook, "_held_by_us", lambda state, view: frozenset(view.held))


def _of_cluster_only(patch: Patch) -> None:
    patch(
        hook,
        "_held_by_us",
        lambda state, view: frozenset(n.name for n in state.nodes if n.owner == "forewarn"),
    )
    patch(hook, "_renewed", lambda context, key, *, journal: context)


MUTATIONS: dict[str, Mutation] = {
    f"guard {guard.__name__}": Mutation(weaken=_without(guard.__name__)) for guard in ALL_GUARDS
} | {
    "skips the re-read": Mutation(_skip_re_read),
    "believes a clock that went back": Mutation(
        lambda p: p(hook, "stopped_by_clock", lambda site, *, journal: site)
    ),
    "acts before the intent": Mutation(_act_before_intent),
    "caps forget held nodes": Mutation(_forget_held),
    "counts only the ledger's holds": Mutation(_of_ledger_only),
    "counts only the cluster's holds": Mutation(_of_cluster_only),
    "judges once": Mutation(
        lambda p: p(hook, "_renewed", lambda context, key, *, journal: context)
    ),
    "ignores boots": Mutation(_ignore_boots),
    "rate forgets restarts": Mutation(_view(acted_at=())),
    "forgets failed tries": Mutation(_view(failed={})),
    "forgets undrains": Mutation(_view(undrained={})),
    "forgets unclear acts": Mutation(_view(ambiguous={}, unclear=())),
    "forgets holds": Mutation(_view(held={})),
    "forgets bursts": Mutation(_view(holds=())),
    "sees no burst": Mutation(lambda p: p(hook, "new_bursts", lambda *args, **more: ())),
    "tells of no unclear act": Mutation(_nothing(hook, "tell_ambiguous")),
    "tells of no unknown hold": Mutation(_nothing(hook, "tell_unknown_holds")),
    "tells of no trip": Mutation(_nothing(hook, "_tell_held_back")),
    "releases without a look": Mutation(_release_unread),
    "releases nothing": Mutation(_nothing(hook, "note_released")),
    "guesses done": Mutation(_close_as("done")),
    "guesses not done": Mutation(_close_as("not_done")),
    "steps without a look": Mutation(_steps_unread),
    "steps in spite of the switch": Mutation(lambda p: p(tending, "stopped_by", lambda site: None)),
    "ends notices at once": Mutation(_end_at_once),
    "tends nothing": Mutation(_nothing(hook, "tend")),
    "gives back at once": Mutation(_tend_with(longest_hours=1e-9, is_stuck_returned=True)),
    "interrupts any job": Mutation(
        lambda p: p(policy, "adequate_actions", lambda *a, **m: ("checkpoint_then_drain",))
    ),
    "takes unknown for sick": Mutation(_fill_unknown),
    "takes held nodes anew": Mutation(weaken=_without("not_held", "clear_record")),
}


def hunt(name: str, patch: Patch, *, most_steps: int, seed: int = 0) -> tuple[Walk | None, int]:
    """Walks until a weakened hook is found out.

    Returns:
        The walk that found it, None if none did, and the steps that were needed.
    """
    mutation = MUTATIONS[name]
    mutation.patch(patch)
    steps = 0
    while steps < most_steps:
        made = walk(seed, steps_of(seed, LENGTH), weaken=mutation.weaken)
        steps, seed = steps + len(made.steps), seed + 1
        if made.violation is not None:
            return made, steps
    return None, steps
