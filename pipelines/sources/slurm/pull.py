"""Asking a live Slurm: accounting and events of a span of time, and how the nodes are now.

How commands are run and tried again is in `slurm.commands`.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from features.errors import SettingsError, SourceError
from features.raw_tables import RAW_COVERAGE
from pipelines.sources.result import SourceResult, as_table
from pipelines.sources.slurm.commands import CLOCK, CommandRunner, PatientRunner
from pipelines.sources.slurm.events import parse_events
from pipelines.sources.slurm.nodes import parse_scontrol_nodes
from pipelines.sources.slurm.places import parse_reservations, parse_topology
from pipelines.sources.slurm.queue import QUEUE_COLUMNS, parse_squeue
from pipelines.sources.slurm.sacct import parse_sacct_parts

Question = Literal["accounting", "events", "nodes", "queue", "reservations", "topology"]

QUESTIONS: Final[tuple[Question, ...]] = (
    "accounting", "events", "nodes", "queue", "reservations", "topology",
)  # fmt: skip

SACCT_COLUMNS: Final = (
    "JobID", "JobName", "User", "Partition", "State", "ExitCode", "Submit", "Start", "End",
    "NodeList", "AllocTRES",
)  # fmt: skip
EVENT_COLUMNS: Final = ("Cluster", "NodeName", "TimeStart", "TimeEnd", "Reason", "State", "User")

_DELIMITER: Final = "\x1f"  # no name holds it, as names may hold |


@dataclass(frozen=True, kw_only=True)
class SlurmAsk:
    """What is asked of a cluster.

    Attributes:
        questions: Which; `accounting` and `events` need slurmdbd.
        window: Longest span of accounting asked for at once.
        timeout_s: Seconds allowed for a command.
        site: Name of the site, for its coverage.
        every_s: How often this is asked, where that is known.
    """

    questions: Collection[Question] = field(default=QUESTIONS)
    window: timedelta = timedelta(hours=6)
    timeout_s: float = 300.0
    site: str = "site"
    every_s: float | None = None

    def __post_init__(self) -> None:
        unknown = sorted(set(self.questions) - set(QUESTIONS))
        if unknown or self.window <= timedelta(0) or self.timeout_s <= 0:
            raise SettingsError(
                f"Slurm: questions {', '.join(unknown) or '(fine)'}, window {self.window}, timeout "
                f"{self.timeout_s:g} s. Ask some of {', '.join(QUESTIONS)}, with a window and a "
                f"timeout above zero."
            )


def pull_slurm(
    runner: CommandRunner,
    span_start: datetime,
    span_end: datetime,
    *,
    ingested_at: datetime,
    ask: SlurmAsk | None = None,
) -> Iterator[SourceResult]:
    """Asks Slurm through its commands, each tried again where it fails in passing.

    Jobs that ran in several windows come several times, which `features.core_build` undoes.

    Args:
        runner: Runs the commands; wrap it in `PatientRunner` for other limits than the usual.
        span_start: Start of the span of accounting and events, UTC, inclusive.
        span_end: Its end, UTC, exclusive.
        ingested_at: Now, UTC; the moment the nodes and the queue are seen.
        ask: What to ask; None: everything.

    Yields:
        `raw/job_log`, `raw/node_states`, `core/maintenance`, `core/topology`, and `raw/coverage`
        of what was asked whether or not it gave rows.

    Raises:
        CommandError: A command failed for good.
        SourceError: An answer cannot be read.
    """
    if span_end <= span_start:
        raise SourceError(
            f"Slurm was asked for the span from {span_start} to {span_end}, which is empty. Give "
            f"an end after the start."
        )
    want = ask if ask is not None else SlurmAsk()
    patient = runner if isinstance(runner, PatientRunner) else PatientRunner(runner=runner)
    asked = _Asked(patient, want, ingested_at)
    if "accounting" in want.questions:
        low = span_start
        while low < span_end:
            high = min(low + want.window, span_end)
            yield from asked.accounting(low, high)
            low = high
    if "events" in want.questions:
        yield from asked.events(span_start, span_end)
    now: dict[Question, Callable[[], SourceResult]] = {
        "nodes": asked.nodes,
        "queue": asked.queue,
        "reservations": asked.reservations,
        "topology": asked.topology,
    }
    for question, answer in now.items():
        if question in want.questions:
            yield answer()


@dataclass(frozen=True)
class _Asked:
    """The commands of each question."""

    runner: CommandRunner
    ask: SlurmAsk
    ingested_at: datetime

    def _run(self, *argv: str) -> bytes:
        return self.runner.run([*CLOCK, *argv], timeout=self.ask.timeout_s)

    def accounting(self, low: datetime, high: datetime) -> Iterator[SourceResult]:
        """Jobs that ran, waited or ended in a window."""
        data = self._run(
            "sacct", "--allusers", "--duplicates", "--parsable2",
            f"--delimiter={_DELIMITER}", f"--starttime={_clock(low)}", f"--endtime={_clock(high)}",
            f"--format={','.join(SACCT_COLUMNS)}",
        )  # fmt: skip
        yield from parse_sacct_parts(
            data, origin="sacct", time_zone=None, ingested_at=self.ingested_at, delimiter=_DELIMITER
        )
        yield self._covered("sacct", low, high)

    def events(self, low: datetime, high: datetime) -> Iterator[SourceResult]:
        """Outages of nodes that touch the span."""
        data = self._run(
            "sacctmgr", "--parsable2", "--readonly", "list", "event", "event=node",
            f"start={_clock(low)}", f"end={_clock(high)}", f"format={','.join(EVENT_COLUMNS)}",
        )  # fmt: skip
        yield parse_events(data, origin="sacctmgr", time_zone=None, ingested_at=self.ingested_at)
        yield self._covered("sacctmgr", low, high)

    def nodes(self) -> SourceResult:
        """The states of the nodes now."""
        return parse_scontrol_nodes(
            self._run("scontrol", "--oneliner", "show", "node"),
            origin="scontrol show node",
            seen_at=self.ingested_at,
            time_zone=None,
            ingested_at=self.ingested_at,
            site=self.ask.site,
            every_s=self.ask.every_s,
        )

    def queue(self) -> SourceResult:
        """The jobs that slurmctld knows now."""
        return parse_squeue(
            self._run(
                "squeue",
                "--all",
                "--noheader",
                f"--format={_DELIMITER.join(QUEUE_COLUMNS.values())}",
            ),
            origin="squeue",
            time_zone=None,
            ingested_at=self.ingested_at,
            columns=tuple(QUEUE_COLUMNS),
            delimiter=_DELIMITER,
        )

    def reservations(self) -> SourceResult:
        """Planned work."""
        return parse_reservations(
            self._run("scontrol", "--oneliner", "show", "reservation"),
            origin="scontrol show reservation",
            time_zone=None,
            ingested_at=self.ingested_at,
        )

    def topology(self) -> SourceResult:
        """Switches and blocks; nothing where the cluster is flat."""
        return parse_topology(
            self._run("scontrol", "show", "topology"),
            origin="scontrol show topology",
            ingested_at=self.ingested_at,
        )

    def _covered(self, source: str, low: datetime, high: datetime) -> SourceResult:
        row = {
            "entity_kind": "site", "entity_id": self.ask.site, "start": low, "end": high,
            "expected_every_s": None, "origin": source, "source": source,
            "ingested_at": self.ingested_at,
        }  # fmt: skip
        return SourceResult({RAW_COVERAGE.asset_key: as_table(RAW_COVERAGE, [row])})


def _clock(moment: datetime) -> str:
    """A time as Slurm's commands read it under `CLOCK`; @seconds they refuse."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
