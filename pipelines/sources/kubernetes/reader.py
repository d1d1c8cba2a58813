"""Reads Kubernetes objects of any kind into raw tables, and keeps the account of each.

Where the objects come from is in `kubernetes.pull` (a server) and `kubernetes.json_files` (files).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from features.contracts import TableContract
from features.raw_tables import (
    RAW_COVERAGE,
    RAW_INVENTORY,
    RAW_JOB_LOG,
    RAW_KERNEL_LOG,
    RAW_NODE_STATES,
)
from features.tables import CORE_TOPOLOGY
from pipelines.sources.kubernetes.conditions import cordon
from pipelines.sources.kubernetes.devices import node_devices, slice_devices
from pipelines.sources.kubernetes.events import NodeTurn, event_facts, turn_rows
from pipelines.sources.kubernetes.gpus import claim_gpus
from pipelines.sources.kubernetes.jobs import JobCollector, batch_job_row
from pipelines.sources.kubernetes.nodes import (
    DOWN_AFTER,
    LEVELS,
    NodeReading,
    condition_events,
    last_report,
    node_state_rows,
    topology_rows,
)
from pipelines.sources.kubernetes.objects import (
    SOURCE,
    Json,
    RefusedError,
    mapping,
    name_of,
    text,
)
from pipelines.sources.kubernetes.pods import USER_LABELS, pod_runs, run_row
from pipelines.sources.kubernetes.workloads import POD
from pipelines.sources.result import ReadTally, SourceResult, as_table, merge

TABLES: Final[Sequence[TableContract]] = (
    RAW_NODE_STATES,
    RAW_JOB_LOG,
    RAW_KERNEL_LOG,
    RAW_INVENTORY,
    RAW_COVERAGE,
    CORE_TOPOLOGY,
)
"""Tables that Kubernetes gives; the first carries the account."""

_SHOWN: Final = 300
_NAMES: Final = ("namespace", "name", "uid")
_TABLE_OF: Final[Mapping[str, TableContract]] = {
    "Node": RAW_NODE_STATES,
    "Pod": RAW_JOB_LOG,
    "Job": RAW_JOB_LOG,
    "Event": RAW_KERNEL_LOG,
    "ResourceSlice": RAW_INVENTORY,
    "ResourceClaim": RAW_JOB_LOG,
}


@dataclass(frozen=True, kw_only=True)
class KubernetesOptions:
    """How objects are read.

    Attributes:
        ingested_at: When they are read, UTC.
        seen_at: When the API gave them; None: not known, each node's own last report counts.
        since: What ended, or was told, before this is passed over; None: nothing is.
        site: Name of the cluster, for coverage.
        levels: Labels by level of place.
        user_labels: Labels that may name a pod's user.
        down_after: How long a kubelet may be silent before its node is down.
    """

    ingested_at: datetime
    seen_at: datetime | None = None
    since: datetime | None = None
    site: str = SOURCE
    levels: Mapping[str, Sequence[str]] = field(default_factory=lambda: LEVELS)
    user_labels: Sequence[str] = USER_LABELS
    down_after: timedelta = DOWN_AFTER


Rows = dict[str, list[Mapping[str, Any]]]


class KubernetesReader:
    """Reads one listing of a cluster, page by page.

    Jobs of several pods and node states between readings are known only when all has been read;
    what is held until then is one small record per GPU pod of a job and per event of a node.

    Args:
        options: How objects are read.
        claims: GPUs of DRA claims that were found beforehand.
    """

    def __init__(
        self,
        options: KubernetesOptions,
        *,
        claims: Mapping[tuple[str, str], int | None] | None = None,
    ) -> None:
        self._options = options
        self._claims = dict(claims or {})
        self._jobs = JobCollector()
        self._turns: list[NodeTurn] = []
        self._cordoned: dict[str, datetime | None] = {}
        self._taken: set[tuple[str, str, str]] = set()
        self._nodes = NodeReading(
            seen_at=options.seen_at,
            since=options.since,
            down_after=options.down_after,
            levels=options.levels,
        )
        # Each adds an object's rows; False: it says nothing that is asked for.
        self._kinds: dict[str, Callable[[Json, Rows], bool]] = {
            "Node": self._node,
            "Pod": self._pod,
            "Job": self._job,
            "Event": self._event,
            "ResourceSlice": self._slice,
            "ResourceClaim": self._claim,
        }

    def read(self, objects: Iterable[Any], *, origin: str, kind: str | None = None) -> SourceResult:
        """Reads objects.

        Args:
            objects: Objects as the API gives them, any JSON.
            origin: File or address.
            kind: Kind of those that do not tell; the items of a list do not.

        Returns:
            Rows and account of these objects.
        """
        rows: Rows = {}
        tallies: dict[str, ReadTally] = {}
        for found in objects:
            own = found if isinstance(found, dict) else {}
            named = text(own, "kind") or kind or ""
            table = _TABLE_OF.get(named, RAW_NODE_STATES).asset_key
            if table not in tallies:
                tallies[table] = ReadTally(table=table, source=SOURCE, origin=origin)
            tally = tallies[table]
            tally.read()
            if not isinstance(found, dict):
                tally.quarantined("not an API object", _shown(found))
                continue
            self._take(own, named, rows=rows, tally=tally)
        return merge(self._chunk(rows, tallies.values()))

    def finish(self, *, origin: str) -> SourceResult:
        """What is known only at the end: attempts of jobs, and node states that events tell.

        Args:
            origin: File or address that speaks for the whole.
        """
        rows: Rows = {
            RAW_JOB_LOG.asset_key: [
                row for row in self._jobs.rows() if not self._is_over(row["end"])
            ],
            RAW_NODE_STATES.asset_key: list(
                turn_rows(
                    self._turns,
                    cordoned_since=self._cordoned,
                    seen_at=self._options.seen_at,
                    down_after=self._options.down_after,
                )
            ),
        }
        tally = ReadTally(table=RAW_JOB_LOG.asset_key, source=SOURCE, origin=origin)
        return merge(self._chunk(rows, [tally]))

    def _take(self, found: Json, kind: str, *, rows: Rows, tally: ReadTally) -> None:
        """Reads one object and counts what became of it."""
        metadata = mapping(found, "metadata")
        identity = (kind, text(metadata, "uid") or "", text(metadata, "resourceVersion") or "")
        if identity[1] and identity[2] and identity in self._taken:
            tally.skipped()
            return
        try:
            read = self._kinds.get(kind)
            is_taken = read is not None and read(found, rows)
        except RefusedError as error:
            tally.quarantined(str(error), _shown(found))
            return
        self._taken.add(identity)
        if is_taken:
            tally.parsed()
        else:
            tally.skipped()

    def _node(self, node: Json, rows: Rows) -> bool:
        _add(rows, RAW_NODE_STATES, node_state_rows(node, self._nodes))
        _add(rows, CORE_TOPOLOGY, topology_rows(node, self._nodes))
        _add(rows, RAW_KERNEL_LOG, condition_events(node, self._nodes))
        seen_at = self._options.seen_at or last_report(node) or self._options.ingested_at
        _add(rows, RAW_INVENTORY, node_devices(node, seen_at=seen_at))
        held = [finding.since for finding in cordon(node) if finding.state == "drain"]
        if held:
            self._cordoned[name_of(node)] = min((t for t in held if t is not None), default=None)
        return True

    def _pod(self, pod: Json, rows: Rows) -> bool:
        runs = pod_runs(pod, claims=self._claims, user_labels=self._options.user_labels)
        told = [run for run in runs if not self._is_over(run.end)]
        for run in told:
            is_job = run.workload.kind == POD
            _add(rows, RAW_JOB_LOG, [run_row(run, step=None if is_job else run.pod)])
        # Of a larger job all runs are wanted, for they decide together when it began.
        for run in runs:
            if run.workload.kind != POD:
                self._jobs.add(run)
        return bool(told)

    def _job(self, job: Json, rows: Rows) -> bool:
        row = batch_job_row(job)
        if row is None or self._is_over(row["end"]):
            return False
        _add(rows, RAW_JOB_LOG, [row])
        return True

    def _event(self, event: Json, rows: Rows) -> bool:
        facts = event_facts(event, since=self._options.since)
        self._turns += facts.turns
        _add(rows, RAW_KERNEL_LOG, facts.health)
        return bool(facts.turns or facts.health)

    def _slice(self, found: Json, rows: Rows) -> bool:
        seen_at = self._options.seen_at or self._options.ingested_at
        devices = slice_devices(found, seen_at=seen_at)
        _add(rows, RAW_INVENTORY, devices or [])
        return devices is not None

    def _claim(self, claim: Json, _: Rows) -> bool:
        name = name_of(claim)
        namespace = text(mapping(claim, "metadata"), "namespace") or "default"
        count = claim_gpus(claim)
        self._claims[namespace, name] = count
        return count != 0

    def _is_over(self, end: datetime | None) -> bool:
        since = self._options.since
        return since is not None and end is not None and end < since

    def _chunk(self, rows: Rows, tallies: Iterable[ReadTally]) -> list[SourceResult]:
        """The frames, with the accounts; the frames go with the first account."""
        tables = {}
        for table in TABLES:
            if rows.get(table.asset_key):
                stamp = {"source": SOURCE, "ingested_at": self._options.ingested_at}
                own = [{**stamp, **row} for row in rows[table.asset_key]]
                tables[table.asset_key] = as_table(table, own)
        return [SourceResult(tables), *(tally.result({}) for tally in tallies)]


def coverage(
    options: KubernetesOptions, *, origin: str, start: datetime, every_s: float | None
) -> SourceResult:
    """That the cluster was looked at, whatever it gave.

    Args:
        options: How objects were read; `seen_at` (else `ingested_at`) is when.
        origin: File or address.
        start: Since when the objects speak.
        every_s: Usual time between two looks, in seconds; None: not known.
    """
    end = options.seen_at or options.ingested_at
    row = {
        "entity_kind": "site",
        "entity_id": options.site,
        "start": min(start, end),
        "end": end,
        "expected_every_s": every_s,
        "origin": origin,
        "source": SOURCE,
        "ingested_at": options.ingested_at,
    }
    return SourceResult({RAW_COVERAGE.asset_key: as_table(RAW_COVERAGE, [row])})


def _add(rows: Rows, table: TableContract, new: Iterable[Mapping[str, Any]]) -> None:
    rows.setdefault(table.asset_key, []).extend(new)


def _shown(found: Any) -> str:
    """An object as an example: what names it. The rest may hold secrets (environment of pods)."""
    if not isinstance(found, dict):
        return f"{type(found).__name__} {found!r}"[:_SHOWN]
    metadata = mapping(found, "metadata")
    named = {"kind": found.get("kind"), **{key: metadata.get(key) for key in _NAMES}}
    fields = ", ".join(sorted(str(key) for key in found))
    told = ", ".join(f"{key} {value}" for key, value in named.items() if isinstance(value, str))
    return f"{told or 'nameless'}; fields: {fields}"[:_SHOWN]
