"""Reads what `scontrol show node`, `squeue` and `scontrol show topology` print into values.

Pure; the commands are run in `remediation.actuators.slurm_state`.

Text is read and not JSON: `scontrol --json` begins with Slurm 23.02, squeue's JSON changed its
shape in 23.02 and again in 23.11, needs a plugin that some builds lack, and is some 8 kB per job.
The one-line form of scontrol and squeue's `--Format` have kept their fields from 20.11 on.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from features.errors import DataError, SourceError
from features.hostlist import expand_hostlist
from features.scheduler_states import node_state
from remediation.cluster.state import JobView, NodeView

_NODE: Final = re.compile(r"NodeName=(\S+) (?:Arch|CoresPerSocket)=")
_STATE: Final = re.compile(r" State=(\S+)")
_PARTITIONS: Final = re.compile(r" Partitions=(\S+)")
_STARTED: Final = re.compile(r" SlurmdStartTime=(\d+)")
_ALLOCATED: Final = re.compile(r" CPUAlloc=(\d+)")
_GRES: Final = re.compile(r" Gres=(\S+)")
_CONFIGURED: Final = re.compile(r" CfgTRES=(\S+)")
_STAMP: Final = re.compile(r" \[([^\[\]@\s]+)@(\d+)\]")
_GPU_GRES: Final = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[^:,()=]+)?[:=](\d+)")
_GPU_TRES: Final = re.compile(r"(?:^|,)gres/gpu=(\d+)")
_WORDS: Final = re.compile(r"[+,\s]+")
_SIGNS: Final = "*~#!%$@^-"

_PLACE: Final = re.compile(r"(SwitchName|BlockName)=(\S+) (?:.*? )?Nodes=(\S+)")
_RECORD: Final = re.compile(r"[A-Z]\w*=")
_LEAF: Final = re.compile(r" Level=0 ")

# RFC 3339 with a zone: a time without one could be anybody's.
_CHECKPOINT: Final = re.compile(
    r"(?:^|[\s;,])checkpoint=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))"
    r"(?=$|[\s;,])"
)

# A job without limit in a partition without one is shown with a year.
_NO_LIMIT: Final = ("UNLIMITED", "INVALID", "365-00:00:00")

SERVICE_WORDS: Final = frozenset(
    {
        "IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "RESERVED", "BLOCKED", "CLOUD",
        "DYNAMIC_NORM", "DRAIN",
    }
)  # fmt: skip
"""Words of a node that is in service or only drained: nothing else is wrong with it."""

JOB_FIELDS: Final = (
    "JobArrayID", "JobID", "State", "NodeList", "StartTime", "EndTime", "TimeLimit", "UserName",
    "Partition", "Requeue", "BatchFlag", "tres-alloc", "tres-per-node", "tres-per-job",
    "tres-per-socket", "tres-per-task", "Comment", "admin_comment",
)  # fmt: skip
"""Fields asked of squeue; all are there from 20.11 on. Names of jobs, which may hold anything,
are not needed."""

ON_NODE_STATES: Final = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED,SIGNALING,STAGE_OUT,STOPPED"
"""Job states in which a job has nodes."""


@lru_cache(maxsize=65_536)
def _nodes_of(text: str) -> tuple[str, ...]:
    """The names of a node list; jobs name the same lists again and again."""
    return tuple(expand_hostlist(text))


@dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """A node as Slurm tells of it.

    Attributes:
        view: What the hook sees.
        words: Its state's words in upper case, signs kept apart: `IDLE`, `DRAIN`, `*`.
        is_allocated: Whether any of its CPUs is given to a job.
    """

    view: NodeView
    words: frozenset[str]
    is_allocated: bool

    @property
    def is_draining(self) -> bool:
        """Whether it gets no new jobs until somebody undrains it."""
        return not self.words.isdisjoint({"DRAIN", "DRAINED", "DRAINING", "DRNG"})


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """A job that has nodes.

    Attributes:
        view: What the hook sees.
        number: Its plain job id, which `scontrol notify` needs for a task of an array too.
        is_ending: Whether it is over but for its epilog.
    """

    view: JobView
    number: str
    is_ending: bool


class Place(NamedTuple):
    """Where a node is; None: unknown."""

    rack: str | None = None
    switch: str | None = None


class Marks(NamedTuple):
    """What stands behind each field and each record; random, so that no comment can forge it."""

    field: str
    record: str

    @property
    def format(self) -> str:
        """For `squeue --Format`; a size of 0 cuts nothing off."""
        *fields, last = JOB_FIELDS
        return ",".join(f"{name}:0{self.field}" for name in fields) + f",{last}:0{self.record}"


def parse_nodes(
    text: str, *, places: Mapping[str, Place], origin: str = "scontrol show node"
) -> tuple[SlurmNode, ...]:
    """Reads `scontrol --oneliner show node`, with times in seconds since the epoch.

    Slurm has no boot id. `BootTime` cannot stand in: slurmctld computes it anew from the uptime
    at each registration, so it moves by a second or two. The start of slurmd can: every boot and
    every new instance starts it. A restart of slurmd alone counts as a new instance too, which
    errs towards starting clean.

    A line that does not begin as a node does belongs to a comment of the node before it.

    Args:
        text: What it printed.
        places: Rack and switch by node.
        origin: For messages.

    Raises:
        SourceError: There is no node, a node lacks a state, stands there twice, or the text ends
            in the middle of a line.
    """
    if text and not text.endswith("\n"):
        raise _torn(origin, text)
    nodes = tuple(_node(line, places, origin) for line in text.split("\n") if _NODE.match(line))
    names = {node.view.name for node in nodes}
    if not nodes:
        raise SourceError(f"{origin}: no node in its answer, which begins {text[:80]!r}")
    if len(names) != len(nodes):
        raise SourceError(
            f"{origin}: {len(nodes)} nodes have {len(names)} names. A comment of a node may hold a "
            f"line that looks like a node: look for it with scontrol show node."
        )
    return nodes


def _node(line: str, places: Mapping[str, Place], origin: str) -> SlurmNode:
    # Reason, comment and extra stand last and may hold anything.
    head, _, tail = line.partition(" Reason=")
    name = head[len("NodeName=") :].partition(" ")[0]
    state = _STATE.search(head)
    allocated = _ALLOCATED.search(head)
    if not name or state is None or allocated is None:
        raise SourceError(f"{origin}: a node without name, state or CPUAlloc: {line[:120]!r}")
    started, partitions = _STARTED.search(head), _PARTITIONS.search(head)
    stamp = _STAMP.search(tail)
    place = places.get(name, Place())
    return SlurmNode(
        view=NodeView(
            name=name,
            state=node_state(state[1]),
            reason=(tail[: stamp.start()] if stamp else tail.strip()) or None,
            actor=stamp[1] if stamp else None,
            boot_id=f"slurmd-{started[1]}" if started else None,
            rack=place.rack,
            switch=place.switch,
            partitions=tuple(partitions[1].split(",")) if partitions else (),
            n_gpus=_node_gpus(head),
        ),
        words=_state_words(state[1]),
        is_allocated=int(allocated[1]) > 0,
    )


def _state_words(text: str) -> frozenset[str]:
    words: set[str] = set()
    for part in _WORDS.split(text.upper()):
        word = part.rstrip(_SIGNS)
        words |= {word, *part[len(word) :]}
    return frozenset(words - {""})


def _node_gpus(head: str) -> int | None:
    """GPUs by `Gres`, else by the tracked resources; None where neither counts any."""
    for found in (_GRES.search(head), _CONFIGURED.search(head)):
        counts = _GPU_GRES.findall(found[1]) if found else []
        if counts:
            # CfgTRES names the total first and then each type.
            return sum(map(int, counts)) if found and "gres/gpu" not in found[1] else int(counts[0])
    return None


def parse_jobs(
    text: str,
    marks: Marks,
    *,
    now: datetime,
    gpus: Mapping[str, int | None],
    origin: str = "squeue",
) -> tuple[SlurmJob, ...]:
    """Reads squeue's answer to `Marks.format`.

    Args:
        text: What it printed; nothing where no job runs.
        marks: The marks it was asked with.
        now: The present, for ages and time left.
        gpus: GPUs of each node, which tell "none" from "not counted".
        origin: For messages.

    Raises:
        SourceError: A record has not the fields that were asked for, or is cut off.
    """
    *records, rest = text.split(marks.record + "\n")
    if rest:
        raise _torn(origin, rest)
    return tuple(_job(record.split(marks.field), now, gpus, origin) for record in records)


def _job(fields: list[str], now: datetime, gpus: Mapping[str, int | None], origin: str) -> SlurmJob:
    if len(fields) != len(JOB_FIELDS):
        raise SourceError(
            f"{origin}: {len(JOB_FIELDS)} fields were asked for, got {len(fields)}: {fields[:6]}"
        )
    told = dict(zip(JOB_FIELDS, fields, strict=True))
    try:
        nodes = _nodes_of(told["NodeList"]) if told["NodeList"] else ()
    except DataError as error:
        raise SourceError(f"{origin}: job {told['JobArrayID']}: {error}") from error
    start, end = _moment(told["StartTime"]), _moment(told["EndTime"])
    has_end = end is not None and told["TimeLimit"] not in _NO_LIMIT
    return SlurmJob(
        view=JobView(
            job_id=told["JobArrayID"],
            nodes=nodes,
            n_gpus=_job_gpus(told, nodes, gpus),
            start=start,
            user=told["UserName"] or None,
            partition=told["Partition"] or None,
            checkpoint_age_h=checkpoint_age_h((told["Comment"], told["admin_comment"]), now=now),
            remaining_h=max(0.0, _hours(end - now)) if end and has_end else None,
            is_requeue_allowed=_may_requeue(told),
        ),
        number=told["JobID"],
        is_ending=told["State"] == "COMPLETING",
    )


def _may_requeue(told: Mapping[str, str]) -> bool | None:
    """Slurm requeues batch jobs only; of a heterogeneous job it takes all parts or none."""
    if "+" in told["JobArrayID"] or told["Requeue"] not in ("0", "1"):
        return None
    return told["Requeue"] == "1" and told["BatchFlag"] == "1"


def _job_gpus(
    told: Mapping[str, str], nodes: tuple[str, ...], gpus: Mapping[str, int | None]
) -> int | None:
    tracked = _GPU_TRES.search(told["tres-alloc"])
    if tracked:
        return int(tracked[1])
    per_job, per_node = (
        [int(n) for n in _GPU_GRES.findall(told[name])]
        for name in ("tres-per-job", "tres-per-node")
    )
    if per_job:
        return sum(per_job)
    if per_node:
        return sum(per_node) * len(nodes)
    if "gpu" in told["tres-per-socket"] + told["tres-per-task"]:
        return None
    return 0 if nodes and all(gpus.get(node) is not None for node in nodes) else None


def checkpoint_age_h(comments: Iterable[str], *, now: datetime) -> float | None:
    """Hours since the newest checkpoint that a job's comments name, as `checkpoint=<time>`.

    Args:
        comments: The job's comment and the administrator's.
        now: The present; a checkpoint after it says nothing.

    >>> checkpoint_age_h(["checkpoint=2026-01-05T10:00:00Z"],
    ...                  now=datetime(2026, 1, 5, 12, tzinfo=UTC))
    2.0
    """
    ages = []
    for found in (text for comment in comments for text in _CHECKPOINT.findall(comment)):
        try:
            ages.append(_hours(now - datetime.fromisoformat(found)))
        except ValueError:  # a day or an hour that does not exist
            continue
    return min((age for age in ages if age >= 0), default=None)


def parse_places(text: str, *, racks: Mapping[str, str]) -> dict[str, Place]:
    """Reads `scontrol show topology`: the leaf switch of each node, or its block as its rack.

    A block (topology/block) is what shares one NVLink domain: on today's machines a rack.

    Args:
        text: What it printed; nothing where the topology is flat.
        racks: Rack by node from elsewhere; goes before a block.

    Raises:
        SourceError: A line is no record, is cut off, or names nodes in an unknown form.
    """
    if text and not text.endswith("\n"):
        raise _torn("scontrol show topology", text)
    places = {node: Place(rack=rack) for node, rack in racks.items()}
    for line in text.splitlines():
        if not _RECORD.match(line):
            raise SourceError(f"scontrol show topology: {line[:80]!r} is no record of it")
        found = _PLACE.match(line)
        if found is None or (found[1] == "SwitchName" and not _LEAF.search(line)):
            continue
        try:
            names = _nodes_of(found[3])
        except DataError as error:
            raise SourceError(f"scontrol show topology: {found[2]}: {error}") from error
        for name in names:
            known = places.get(name, Place())
            if found[1] == "SwitchName":
                places[name] = known._replace(switch=known.switch or found[2])
            else:
                places[name] = known._replace(rack=known.rack or found[2])
    return places


def _moment(text: str) -> datetime | None:
    return datetime.fromtimestamp(int(text), UTC) if text.isascii() and text.isdigit() else None


def _hours(span: timedelta) -> float:
    return span / timedelta(hours=1)


def _torn(origin: str, text: str) -> SourceError:
    return SourceError(
        f"{origin}: its answer is cut off; it ends with {text[-80:]!r}. Ask again; if it stays so, "
        f"run the command by hand."
    )
