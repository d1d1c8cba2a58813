"""Whether the system itself is alive, part by part, in words and never by colour alone.

Pure: what is judged was read elsewhere. The fleet's own health is not here.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from pipelines.board.hook_view import HookView
from pipelines.board.words import ago, is_ahead, scores_age
from pipelines.report.words import counted, percent
from pipelines.serving.score_database import Tick
from pipelines.serving.scorer_status import ScorerStatus

State = Literal["ok", "attention", "unknown"]
STATE_SIGNS: Final = {"ok": "✓", "attention": "!", "unknown": "?"}
STATE_NAMES: Final = {"ok": "OK", "attention": "Attention", "unknown": "Unknown"}

_SILENT_SCORER: Final = timedelta(minutes=30)
_QUIET_HOOK: Final = timedelta(hours=2)


@dataclass(frozen=True)
class Signal:
    """How one part of the system is.

    Attributes:
        name: The part.
        state: ok, attention (someone should look), or unknown.
        words: Why, in one sentence.
        href: Page that tells more.
    """

    name: str
    state: State
    words: str
    href: str

    @property
    def sign(self) -> str:
        """A sign that is read without colour."""
        return STATE_SIGNS[self.state]

    @property
    def state_name(self) -> str:
        """The state as a word."""
        return STATE_NAMES[self.state]


def signals(
    *,
    tick: Tick | None,
    problem: str,
    scorer: ScorerStatus | None,
    hook: HookView,
    n_silent: int,
    min_coverage: float,
    now: datetime,
) -> tuple[Signal, ...]:
    """Every part, in the order in which one would look.

    Args:
        tick: What is said of the newest scores; None: none are published.
        problem: Why the newest tick cannot be read; empty: it was.
        scorer: The scorer's own word; None: there is none.
        hook: How the hook stands.
        n_silent: Nodes from which nothing comes.
        min_coverage: Below this share of scored GPUs someone should look.
        now: The present.
    """
    return (
        scores_signal(tick, problem=problem, now=now),
        _scorer_signal(scorer, tick, now=now),
        _data_signal(tick, n_silent=n_silent, min_coverage=min_coverage, now=now),
        _hook_signal(hook, now=now),
    )


def is_in_time(tick: Tick, now: datetime) -> bool:
    """Whether a tick's scores may still be acted on."""
    return scores_age(tick.as_of, tick.expires_at, now)[0]


def scores_signal(tick: Tick | None, *, problem: str, now: datetime) -> Signal:
    """Whether there are scores that may be acted on; arguments as in `signals`."""
    if tick is None:
        words = problem or "No scores are published yet. Run: forewarn score"
        return Signal("Scores", "attention", words, "/data")
    is_valid, words, _ = scores_age(tick.as_of, tick.expires_at, now)
    said = f"{problem}. {words}" if problem else words
    return Signal("Scores", "ok" if is_valid and not problem else "attention", said, "/data")


def _scorer_signal(scorer: ScorerStatus | None, tick: Tick | None, *, now: datetime) -> Signal:
    if scorer is None:
        words = "No scorer runs here as a service; scores come by schedule or by hand."
        return Signal("Scorer", "unknown", words if tick else "It never ran here.", "/data")
    problems = [f"{part}: {text}" for part, text in sorted(scorer.problems.items())]
    if scorer.last_error or problems:
        words = "; ".join([one for one in (scorer.last_error, *problems) if one])
        return Signal("Scorer", "attention", f"Its last attempt failed: {words}", "/data")
    return Signal("Scorer", *_sign_of_life(scorer, now=now), "/data")


def _sign_of_life(scorer: ScorerStatus, *, now: datetime) -> tuple[State, str]:
    """How a scorer is that tells of no failure, by when it last wrote its status."""
    try:
        written = datetime.fromisoformat(scorer.updated_at)
    except ValueError:
        return "unknown", "Its status says no time."
    if written.tzinfo is None:
        return "unknown", "Its status says a time without a zone."
    since = ago(written, now)
    if scorer.phase == "stopped":
        return "attention", f"It was stopped {since}."
    if is_ahead(written, now):
        return "attention", f"Its last sign is of {since}."
    if now - written > _SILENT_SCORER:
        words = f"It last gave a sign {since}, in phase {scorer.phase}: it may have died."
        return "attention", words
    at = f"{scorer.phase}: {scorer.why}" if scorer.why else scorer.phase
    return "ok", f"Phase {at}; last sign {since}."


def _data_signal(tick: Tick | None, *, n_silent: int, min_coverage: float, now: datetime) -> Signal:
    if tick is None:
        return Signal("Data", "unknown", "Nothing was scored yet.", "/data")
    covered = f"{percent(tick.coverage)} of GPUs could be scored"
    if not is_in_time(tick, now):
        words = f"Nothing newer was scored. Last known: {covered}, {n_silent:,} nodes silent."
        return Signal("Data", "unknown", words, "/data")
    if n_silent:
        words = f"{counted(n_silent, 'node')} silent: nothing comes from their exporter. {covered}."
        return Signal("Data", "attention", words, "/data")
    state: State = "ok" if tick.coverage >= min_coverage else "attention"
    return Signal("Data", state, f"{covered}.", "/data")


def _hook_signal(hook: HookView, *, now: datetime) -> Signal:
    stopped = _stopped(hook, now)
    if stopped:
        return Signal("Hook", "attention", stopped, "/audit")
    if hook.wrote_at is None:
        return Signal("Hook", "unknown", "It has written nothing yet.", "/audit")
    by = "a dry run: it touches nothing" if hook.is_dry_run else f"by {hook.actuator}"
    words = f"It last wrote {ago(hook.wrote_at, now)} ({by})."
    if is_ahead(hook.wrote_at, now):
        return Signal("Hook", "attention", words, "/audit")
    if hook.asked:
        waits = counted(len(hook.asked), "question waits", "questions wait")
        return Signal("Hook", "attention", f"{waits} for a person. {words}", "/audit")
    if now - hook.wrote_at > _QUIET_HOOK:
        said = f"{words} It writes when a node is above the threshold: whether it runs is unknown."
        return Signal("Hook", "unknown", said, "/audit")
    return Signal("Hook", "ok", words, "/audit")


def _stopped(hook: HookView, now: datetime) -> str:
    """Why nothing is done at present; empty: it may be."""
    if hook.problem:
        return f"Its ledger cannot be read: {hook.problem}"
    if hook.requested.stopped_by is not None:
        return f"Automation is stopped: {hook.requested.stopped_by}."
    bursts = [one.text for one in hook.view.holds if one.is_active(now)]
    return f"It holds still after a burst: {bursts[0]}" if bursts else ""
