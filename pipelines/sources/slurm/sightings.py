"""What a look at Slurm says about a node or a job at that moment, as raw rows.

How the formats are cut into fields is in `slurm.nodes`, `slurm.queue` and `slurm.json_documents`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from features.raw_tables import RAW_COVERAGE, RAW_JOB_LOG, RAW_NODE_STATES
from features.scheduler_states import OPEN_JOB_STATES, UNSTARTED_JOB_STATES, node_state
from features.tables import CORE_MAINTENANCE, CORE_TOPOLOGY
from pipelines.sources.result import ReadTally, SourceResult, as_table
from pipelines.sources.slurm.fields import (
    NO_VALUE,
    RefusedError,
)

_STATE: Final = re.compile(
    r"[A-Za-z_]+[*~#!%$@^-]{0,2}(?:\+[A-Za-z_]+[*~#!%$@^-]{0,2})*\+?", re.ASCII
)
_USER_NUMBER: Final = re.compile(r"\(\d+\)$")
_BOTH: Final = "DRAIN"


@dataclass
class SlurmRows:
    """Rows gathered from one reading.

    Attributes:
        source: Kind of source.
        origin: File or command.
        ingested_at: When it is read, UTC.
        tally: What became of each record.
    """

    source: str
    origin: str
    ingested_at: datetime
    table: str
    jobs: list[dict[str, Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    maintenance: list[dict[str, Any]] = field(default_factory=list)
    topology: list[dict[str, Any]] = field(default_factory=list)
    coverage: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tally = ReadTally(table=self.table, source=self.source, origin=self.origin)

    def sees(self, site: str, at: datetime, *, every_s: float | None = None) -> None:
        """Notes that the reading speaks of the whole site at a moment, whatever it gives."""
        self.coverage.append(
            {
                "entity_kind": "site", "entity_id": site, "start": at, "end": at,
                "expected_every_s": every_s, "origin": self.origin,
            }
        )  # fmt: skip

    def result(self) -> SourceResult:
        """The rows as frames, with their account; the reading's own table is always there."""
        stamp = {"source": self.source, "ingested_at": self.ingested_at}
        stamped = (
            (RAW_JOB_LOG, self.jobs),
            (RAW_NODE_STATES, self.states),
            (RAW_COVERAGE, self.coverage),
        )
        tables = {
            table.asset_key: as_table(table, [row | stamp for row in rows])
            for table, rows in stamped
            if rows or table.asset_key == self.table
        }
        plain = ((CORE_MAINTENANCE, self.maintenance), (CORE_TOPOLOGY, self.topology))
        tables |= {
            table.asset_key: as_table(table, rows)
            for table, rows in plain
            if rows or table.asset_key == self.table
        }
        return self.tally.result(tables)


def sighting_rows(
    node: str,
    state: str,
    *,
    reason: str | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    seen_at: datetime,
) -> list[dict[str, Any]]:
    """Rows of `raw/node_states` that a look at a node gives.

    The sighting itself is an interval without length: it says nothing of the time before or
    after. Where the node is out of service, `since` says when the reason was given; from then on
    it was out of service. Of a node that is both down and draining it is not known which came
    first, so the time before the sighting counts as draining only.

    Args:
        node: Node.
        state: State as Slurm writes it.
        reason: Reason.
        actor: Who gave it.
        since: When it was given.
        seen_at: When the node was looked at.

    Returns:
        One or two rows, without source and ingested_at.

    Raises:
        RefusedError: The state has not the form of one, or the node has no name.
    """
    word = state.strip()
    if not node.strip():
        raise RefusedError("a node without a name")
    if _STATE.fullmatch(word) is None:
        raise RefusedError("State is not a state of a Slurm node")
    text = (reason or "").strip()
    about = {
        "node": node.strip(),
        "reason": None if text in NO_VALUE else text,
        "actor": user_name(actor or ""),
    }
    rows = [about | {"state": word, "valid_from": seen_at, "valid_to": seen_at}]
    meaning = node_state(word)
    if since is not None and since < seen_at and meaning in ("drain", "down"):
        has_both = meaning == "down" and re.search(r"drain|drng", word, re.IGNORECASE) is not None
        earlier = {
            "state": _BOTH if has_both else word, "valid_from": since, "valid_to": seen_at,
        }  # fmt: skip
        rows.insert(0, about | earlier)
    return rows


def user_name(text: str) -> str | None:
    """The user of `root(0)`; None where nobody is named.

    Args:
        text: The user as Slurm writes it.

    Example:
        >>> user_name("root(0)"), user_name("Unknown")
        ('root', None)
    """
    word = _USER_NUMBER.sub("", text.strip())
    return None if word in NO_VALUE else word


def job_row(
    job_id: str,
    state: str,
    *,
    step: str | None = None,
    name: str | None = None,
    user: str | None = None,
    partition: str | None = None,
    ended_with: tuple[int | None, int | None] = (None, None),
    times: Sequence[datetime | None] = (None, None, None),
    nodes: list[str] | None = None,
    n_gpus: int | None = None,
) -> dict[str, Any]:
    """A row of `raw/job_log`, without source and ingested_at.

    Of a job that has not begun the start is the scheduler's plan, and of one that has not ended
    the end is its time limit: neither has happened, so neither is kept.

    Args:
        job_id: Job.
        state: One of `slurm.fields.JOB_STATES`.
        step: Step, or None for the job itself.
        name: Name.
        user: User.
        partition: Partition.
        ended_with: Exit code and signal.
        times: Submitted, started, ended.
        nodes: Nodes.
        n_gpus: GPUs in all.
    """
    submit, start, end = times
    is_open = state in OPEN_JOB_STATES
    start = None if state in UNSTARTED_JOB_STATES else start
    end = None if is_open else end
    return {
        "job_id": job_id, "step": step, "job_name": name or None, "user": user or None,
        "partition": partition or None, "state": state,
        "exit_code": None if is_open else ended_with[0],
        "exit_signal": None if is_open else ended_with[1],
        "filed_at": submit or start or end, "submit": submit, "start": start, "end": end,
        "nodes": nodes, "n_gpus": n_gpus,
    }  # fmt: skip
