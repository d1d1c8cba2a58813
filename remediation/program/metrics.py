"""The hook as metrics: its last round, what stops it, what it holds, what waits for a person.

Read beside the hook, with its own settings, so that it goes on telling when the loop is dead. The
cluster is not asked and nothing is changed; scores are in `pipelines.serving.open_metrics`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from features.clock import Clock, utc_now
from features.errors import ForewarnError
from remediation.actuators.kill_switch import stopped_by
from remediation.decision import touches_node
from remediation.guards.caps import CAPS
from remediation.hook import ALL_GUARDS
from remediation.hook_settings import HookSettings
from remediation.ledger.entries import Entry, Ledger, LedgerError, MemoryLedger
from remediation.ledger.sqlite import VERSION, stored_version
from remediation.ledger.view import RATE_WINDOW, LedgerView
from remediation.program.asked import asked_of
from remediation.program.loop import RoundNote
from remediation.program.parts import open_ledger
from remediation.program.round import view_now
from remediation.program.status import open_questions

QUESTIONS: Final = (
    "ambiguous", "burst", "check", "clock", "gone", "guard", "notice", "repair", "return", "stuck",
    "unknown_hold",
)  # fmt: skip
"""What a person may be asked about; each is shown also while it is 0."""

_CAPS: Final = frozenset(guard.__name__ for guard in CAPS)


class HookMetrics:
    """A collector of prometheus_client.

    Args:
        settings: The hook's settings.
        now: Clock.
    """

    def __init__(self, settings: HookSettings, *, now: Clock = utc_now) -> None:
        self._settings = settings
        self._now = now

    def describe(self) -> list[Metric]:
        """Nothing is read at registration."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        kind = self._settings.actuator.kind
        info = GaugeMetricFamily("forewarn_hook_info", "By what it acts", labels=("actuator",))
        info.add_metric((kind,), 1)
        yield info
        yield from self._round()
        stops: dict[str, int] = {"kill_switch": stopped_by(self._settings.site) is not None}
        now = self._now()
        try:
            with self._ledger() as ledger:
                view = view_now(ledger, actuator=kind, site=self._settings.site, now=now)
                questions = open_questions(ledger, view, actuator=kind, now=now)
                stopped = _stopped_by_guards(ledger, actuator=kind, now=now)
                stops["request"] = asked_of(ledger, actuator=kind).stopped_by is not None
        except (ForewarnError, OSError):
            yield _gauge("forewarn_hook_ledger_readable", "Whether its ledger is", 0)
        else:
            yield _gauge("forewarn_hook_ledger_readable", "Whether its ledger is", 1)
            stops["burst"] = any(hold.is_active(now) for hold in view.holds)
            yield from self._standing(view, questions, now)
            yield from _held_back(stopped)
        yield _by("forewarn_hook_stopped", "Whether automation is stopped", "why", stops)

    @contextmanager
    def _ledger(self) -> Iterator[Ledger]:
        """The ledger as it lies there: to make one, or bring it forward, is the hook's alone.

        Raises:
            LedgerError: It is gone, or of another release.
        """
        file, head = self._settings.ledger_file, self._settings.ledger.head
        if self._settings.ledger.postgres_variable is None:
            found = stored_version(file)
            has_run = RoundNote.read(self._settings.state) or (head is not None and head.exists())
            if found is None and not has_run:
                yield MemoryLedger()
                return
            if found != VERSION:
                raise LedgerError(f"ledger {file}: expected version {VERSION}, got {found}")
        with open_ledger(self._settings) as ledger:
            yield ledger

    def _round(self) -> Iterator[Metric]:
        note = RoundNote.read(self._settings.state)
        if note is None:
            return
        yield _gauge(
            "forewarn_hook_round_timestamp_seconds", "End of its last round",
            note.ended_at.timestamp(),
        )  # fmt: skip
        yield _gauge(
            "forewarn_hook_failed_rounds", "Rounds that failed in a row", note.failed_in_row
        )

    def _standing(
        self, view: LedgerView, questions: tuple[Entry, ...], now: datetime
    ) -> Iterator[Metric]:
        caps = self._settings.site.caps
        yield _gauge("forewarn_hook_nodes_held", "Nodes that it holds", len(view.held))
        acted = sum(now - RATE_WINDOW < at <= now for at in view.acted_at)
        yield _gauge("forewarn_hook_actions_last_hour", "Actions within the last hour", acted)
        yield _gauge(
            "forewarn_hook_actions_per_hour_limit", "Actions an hour at most", caps.actions_per_hour
        )
        waiting = Counter(str(one.body["why"]) for one in questions)
        every = {why: waiting[why] for why in (*QUESTIONS, *sorted(set(waiting) - set(QUESTIONS)))}
        yield _by("forewarn_hook_questions", "What waits for a person", "why", every)


def hook_registry(settings: HookSettings, *, now: Clock = utc_now) -> CollectorRegistry:
    """A registry with the hook's metrics.

    Args:
        settings: The hook's settings.
        now: Clock.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(HookMetrics(settings, now=now))
    return registry


def _stopped_by_guards(ledger: Ledger, *, actuator: str, now: datetime) -> list[frozenset[str]]:
    """The guards that said no, for each node that the last hour's newest decision would touch."""
    newest = {
        one.node: one.body
        for one in ledger.entries(kinds=("decision",), since=now - RATE_WINDOW)
        if one.actuator == actuator
    }
    return [
        frozenset(str(guard) for guard, is_allowed, *_ in body["verdicts"] if not is_allowed)
        for body in newest.values()
        if touches_node(body["wanted"])
    ]


def _held_back(stopped: list[frozenset[str]]) -> Iterator[Metric]:
    counts = Counter(guard for guards in stopped for guard in guards)
    yield _by(
        "forewarn_hook_nodes_stopped",
        "Nodes at risk within the last hour that a guard said no to",
        "guard",
        {guard.__name__: counts[guard.__name__] for guard in ALL_GUARDS} | dict(counts),
    )
    yield _gauge(
        "forewarn_hook_nodes_capped",
        "Nodes at risk within the last hour that nothing but caps held back",
        sum(bool(guards) and guards <= _CAPS for guards in stopped),
    )


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)


def _by(name: str, words: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=(label,))
    for one, value in values.items():
        family.add_metric((one,), float(value))
    return family
