"""Which data partitions are to be made next, and in which run: pure, from what is stored.

Partitions are called hours here, which they are unless a site is cut by days. What is stored and
what failed is gathered in `pipelines.orchestration.hour_state`; Dagster is told in
`pipelines.defs.hourly`.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from pipelines.settings import Settings
from pipelines.storage.store import Span

Stage = Literal["hour", "core", "scores"]
"""What a run makes: all of it, from inputs to core tables, or features and scores."""

_HOUR: Final = timedelta(hours=1)
_LONGEST_WAIT: Final = timedelta(days=1)
_DOUBLINGS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A run that did not make its hours.

    Attributes:
        stage: What it was to make.
        span: The hours.
        at: When it ended.
    """

    stage: Stage
    span: Span
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How hours are made up.

    Attributes:
        step: Length of a partition.
        most: Partitions in one run.
        attempts: Failures of an hour alone after which it is set aside.
        first_wait: Wait after the first of them; it doubles, up to a day.
    """

    step: timedelta
    most: int
    attempts: int
    first_wait: timedelta


@dataclass(frozen=True, kw_only=True)
class HourState:
    """What is there and what is not.

    Attributes:
        due: Start of each hour that is over and settled, rising.
        without_core: Those of them that lack core tables, or whose core tables rest on less than
            has landed since.
        without_scores: Those that lack what is made of core tables, as far as it is wanted.
        failed: Runs that failed.
        is_busy: Whether a run of hours is under way.
    """

    due: Sequence[datetime]
    without_core: AbstractSet[datetime]
    without_scores: AbstractSet[datetime]
    failed: Sequence[Failed] = ()
    is_busy: bool = False


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A run to start.

    Attributes:
        stage: What it makes.
        span: The hours.
    """

    stage: Stage
    span: Span

    @property
    def words(self) -> str:
        """The run in one word, the same for the same hours.

        >>> begin = datetime(2026, 3, 29, 1, tzinfo=UTC)
        >>> Launch(stage="core", span=Span(begin, begin + timedelta(hours=2))).words
        'core/2026-03-29T01/2026-03-29T03'
        """
        return f"{self.stage}/{self.span.start:%Y-%m-%dT%H}/{self.span.end:%Y-%m-%dT%H}"


def launch_of(words: str) -> Launch | None:
    """The run that `Launch.words` stands for; None for other words."""
    try:
        stage, start, end = words.split("/")
        first, last = (
            datetime.strptime(text, "%Y-%m-%dT%H").replace(tzinfo=UTC) for text in (start, end)
        )
    except ValueError:
        return None
    if stage not in ("hour", "core", "scores") or first >= last:
        return None
    return Launch(stage=stage, span=Span(first, last))  # type: ignore[arg-type]


def rule_of(settings: Settings) -> Rule:
    """How an installation makes up hours."""
    chosen = settings.schedule
    step = timedelta(days=1) if settings.data_partition == "day" else _HOUR
    return Rule(
        step=step,
        most=max(1, timedelta(hours=chosen.catch_up_hours) // step),
        attempts=chosen.attempts,
        first_wait=timedelta(minutes=chosen.retry_minutes),
    )


def due_hours(settings: Settings, *, now: datetime) -> list[datetime]:
    """Start of each partition that is over, settled, and not too long ago, rising.

    Args:
        settings: Record, settling time and look-back.
        now: The present.
    """
    step = rule_of(settings).step
    settled = now.astimezone(UTC) - timedelta(minutes=settings.serving.settle_minutes)
    until = min(settled, settings.end.astimezone(UTC)) if settings.end else settled
    since = until - timedelta(days=settings.schedule.look_back_days)
    start = settings.start.astimezone(UTC)
    if step > _HOUR:
        start = start.replace(hour=0)
    first = max(start, start + -((start - since) // step) * step)
    return [first + i * step for i in range(max(0, (until - first) // step))]


def next_launch(state: HourState, rule: Rule, *, now: datetime) -> Launch | str:
    """The run that is to start now, or why none is.

    One run at a time. The newest hour comes first, and as little as it needs before it: the core
    tables of the newest stretch. A stretch that failed is tried in halves, until the hour that
    cannot be made stands alone; it then waits, longer each time, and holds up no other.

    Args:
        state: What is there.
        rule: How hours are made up.
        now: The present.
    """
    if state.is_busy:
        return "a run of hours is under way"
    if not state.due:
        return "no hour is due"
    newest = state.due[-1]
    core = _Open(state, rule, stages=("hour", "core"), missing=state.without_core, now=now)
    unscored = state.without_scores - state.without_core
    scores = _Open(state, rule, stages=("hour", "scores"), missing=unscored, now=now)
    stretch = core.stretch_to(newest)
    is_whole = stretch == [newest] and newest in state.without_scores
    candidates: tuple[tuple[Stage, list[datetime]], ...] = (
        ("hour" if is_whole else "core", stretch),
        ("scores", [newest] if scores.is_open(newest) else []),
        ("core", core.stretch_to(core.newest())),
        ("scores", scores.stretch_to(scores.newest())),
    )
    for stage, hours in candidates:
        if hours:
            return Launch(stage=stage, span=Span(hours[0], hours[-1] + rule.step))
    waiting = core.n_waiting + scores.n_waiting
    return f"{waiting} failed hours wait to be tried again" if waiting else "every hour is made"


def set_aside(state: HourState, rule: Rule) -> dict[datetime, int]:
    """Hours that are still not made after so many failures, each with their number.

    Args:
        state: What is there.
        rule: How often an hour is tried before it is set aside.
    """
    open_hours = (state.without_core | state.without_scores) & set(state.due)
    alone = _failures_alone(state.failed, rule.step, stages=("hour", "core", "scores"))
    return {
        hour: len(alone[hour])
        for hour in sorted(open_hours)
        if len(alone.get(hour, ())) >= rule.attempts
    }


@dataclass
class _Open:
    """Hours that lack something, and which of them may be tried now."""

    state: HourState
    rule: Rule
    stages: tuple[Stage, ...]
    missing: AbstractSet[datetime]
    now: datetime
    n_waiting: int = 0
    _most: dict[datetime, int] = field(default_factory=dict)
    _is_fresh: dict[datetime, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        alone = _failures_alone(self.state.failed, self.rule.step, stages=self.stages)
        smallest = _smallest_failed(self.state.failed, self.rule.step, stages=self.stages)
        for hour in self.state.due:
            if hour not in self.missing:
                continue
            failures = alone.get(hour, ())
            if failures and self.now < max(failures) + _wait(len(failures), self.rule):
                self.n_waiting += 1
                continue
            halved = max(1, smallest[hour] // 2) if hour in smallest else self.rule.most
            self._most[hour] = 1 if failures else min(self.rule.most, halved)
            self._is_fresh[hour] = not failures

    def is_open(self, hour: datetime) -> bool:
        return hour in self._most

    def newest(self) -> datetime | None:
        """The newest hour that never failed alone, else the newest of all."""
        return max(self._most, key=lambda hour: (self._is_fresh[hour], hour), default=None)

    def stretch_to(self, last: datetime | None) -> list[datetime]:
        """Consecutive open hours up to `last`, as many as one run may take; rising."""
        if last is None or not self.is_open(last):
            return []
        stretch, most, hour = [last], self._most[last], last - self.rule.step
        while self.is_open(hour) and len(stretch) < (most := min(most, self._most[hour])):
            stretch.append(hour)
            hour -= self.rule.step
        return stretch[::-1]


def _wait(n_failures: int, rule: Rule) -> timedelta:
    return min(_LONGEST_WAIT, rule.first_wait * float(2 ** min(n_failures - 1, _DOUBLINGS)))


def _failures_alone(
    failed: Sequence[Failed], step: timedelta, *, stages: Sequence[Stage]
) -> Mapping[datetime, list[datetime]]:
    """When each hour failed by itself: of a stretch that failed, any hour may be the cause."""
    found: dict[datetime, list[datetime]] = {}
    for one in failed:
        if one.stage in stages and one.span.end - one.span.start == step:
            found.setdefault(one.span.start, []).append(one.at)
    return found


def _smallest_failed(
    failed: Sequence[Failed], step: timedelta, *, stages: Sequence[Stage]
) -> Mapping[datetime, int]:
    """Number of hours in the shortest stretch that failed, for each hour in one."""
    found: dict[datetime, int] = {}
    for one in failed:
        if one.stage in stages:
            size = (one.span.end - one.span.start) // step
            for part in one.span.steps(step):
                found[part.start] = min(size, found.get(part.start, size))
    return found
