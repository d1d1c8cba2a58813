"""What the name of a job's file says: the job, its array task, a node, a rank.

What stands in the file is read in `jobs.output`, `jobs.training_jsonl` and `tensorboard_events`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from features.errors import SettingsError

_END: Final = r"(?:\.(?:out|err|log|txt|stdout|stderr|json|jsonl|ndjson))?(?:\.gz)?$"
_JOB: Final = r"(?P<job>[0-9]+)(?:_(?P<task>[0-9]+)|\+(?P<component>[0-9]+))?"

DEFAULT_PATTERNS: Final = (
    # Slurm: slurm-<job>.out, slurm-<job>_<task>.out
    rf"(?:^|/)slurm-{_JOB}(?:[-_.](?P<rank>[0-9]{{1,7}}))?{_END}",
    # one file per rank: <job>-<node>-<rank>.log
    rf"(?:^|/){_JOB}-(?P<node>[A-Za-z][A-Za-z0-9_.-]*)-(?P<rank>[0-9]{{1,7}}){_END}",
    # torchrun: <run>_<eight random characters>/attempt_0/<rank>/stderr.log
    r"(?:^|/)(?P<job>[^/]+?)(?:_[a-z0-9_]{8})?/attempt_[0-9]+/(?P<rank>[0-9]{1,7})/[^/]+$",
    # the job alone: <job>.out, <job>_<task>.log
    rf"(?:^|/){_JOB}{_END}",
    # a folder per job: <job>/train.log
    r"(?:^|/)(?P<job>[0-9]+(?:_[0-9]+)?)/[^/]+$",
)
"""Expressions on the path (`/` between parts), the first that matches wins."""

_PATTERN_LENGTH: Final = 1000
_NAME_LENGTH: Final = 1000
_GROUPS: Final = frozenset({"job", "task", "component", "node", "rank"})
_NO_JOB: Final = frozenset({"none", "null", ""})  # torchrun's run id where none was given


@dataclass(frozen=True)
class FileOwner:
    """Who wrote a file, as far as its name tells.

    Attributes:
        job_id: Job as sacct names it: `123`, `123_4`, `123+1`.
        node: Node.
        rank: Rank.
    """

    job_id: str | None = None
    node: str | None = None
    rank: int | None = None


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Makes sure that patterns can be used.

    Args:
        patterns: Expressions in Rust syntax (they run in linear time) with the group `job` and
            perhaps task, component, node and rank.

    Returns:
        The patterns.

    Raises:
        SettingsError: One is too long, is no expression, or has other groups.
    """
    for pattern in patterns:
        if len(pattern) > _PATTERN_LENGTH:
            raise SettingsError(
                f"file pattern {pattern[:60]!r}... has {len(pattern)} characters, at most "
                f"{_PATTERN_LENGTH} are allowed. Write a shorter one."
            )
        try:
            named = {name for name in _groups(pattern, "") if not name.isdecimal()}
        except pl.exceptions.ComputeError as error:
            raise SettingsError(
                f"file pattern {pattern!r} is no regular expression (Rust syntax): {error}"
            ) from error
        if "job" not in named or named - _GROUPS:
            raise SettingsError(
                f"file pattern {pattern!r} has the groups {', '.join(sorted(named)) or '(none)'}; "
                f"expected job, and perhaps {', '.join(sorted(_GROUPS - {'job'}))}. Name them as "
                f"in {DEFAULT_PATTERNS[0]!r}."
            )
    return tuple(patterns)


def owner_of(path: Path, patterns: Sequence[str] = DEFAULT_PATTERNS) -> FileOwner:
    """Reads the owner from a path.

    Args:
        path: The file.
        patterns: What `check_patterns` has passed.

    Returns:
        The owner; nothing known where no pattern matches.

    >>> owner_of(Path("logs/slurm-123_4.out")).job_id
    '123_4'
    >>> owner_of(Path("123-node-07-5.log"))
    FileOwner(job_id='123', node='node-07', rank=5)
    """
    name = path.as_posix()[-_NAME_LENGTH:]
    for pattern in patterns:
        found = _groups(pattern, name)
        if found.get("job") is None:
            continue
        job = str(found["job"])
        if job.lower() in _NO_JOB:
            job_id = None
        elif found.get("task") is not None:
            job_id = f"{job}_{found['task']}"
        elif found.get("component") is not None:
            job_id = f"{job}+{found['component']}"
        else:
            job_id = job
        rank = found.get("rank")
        return FileOwner(job_id, found.get("node"), None if rank is None else int(rank))
    return FileOwner()


def run_of(path: Path, patterns: Sequence[str] = DEFAULT_PATTERNS) -> str:
    """The job a file is about, or else the name of the run: its folder, or the file itself.

    Args:
        path: The file.
        patterns: What `check_patterns` has passed.

    Returns:
        A job id or a run's name.

    >>> run_of(Path("runs/llama-7b/tb/metrics.jsonl")), run_of(Path("metrics.jsonl"))
    ('llama-7b', 'metrics')
    """
    owner = owner_of(path, patterns)
    if owner.job_id is not None:
        return owner.job_id
    if _GENERIC_FILE.match(path.name):
        for folder in path.parents[:_MOST_FOLDERS]:
            if folder.name and not _GENERIC_FOLDER.fullmatch(folder.name):
                return folder.name
    return path.name.split(".", maxsplit=1)[0] or path.name


_MOST_FOLDERS: Final = 4
_GENERIC_FOLDER: Final = re.compile(
    r"version_\d+|tb|tensorboard|tb_logs|lightning_logs|logs?|runs?|metrics|events|train|outputs?",
    re.IGNORECASE,
)
_GENERIC_FILE: Final = re.compile(
    r"(?:events\.out\.tfevents|(?:metrics?|train(?:ing|er)?|logs?|history|scalars|steps?|progress)"
    r"(?:[_-](?:metrics?|logs?|history|state))?(?:\.|$))",
    re.IGNORECASE,
)


def _groups(pattern: str, name: str) -> dict[str, str | None]:
    found = pl.select(pl.lit(name).str.extract_groups(pattern)).to_series()
    row: dict[str, str | None] = found.struct.unnest().row(0, named=True)
    return row
