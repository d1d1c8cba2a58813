"""Reads a folder of dumps, one file per rank, in any mixture of forms; refuses, never guesses.

The forms are in `.py_spy` and `.recorder`; nothing is grouped or judged here.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import orjson

from features.errors import SourceError
from models.localization.flight_recorder import FlightRecord
from models.localization.stacks import RankStack
from pipelines.sources.files import decode, read_bytes
from pipelines.sources.stacks.py_spy import threads_of_json, threads_of_text
from pipelines.sources.stacks.recorder import is_recorder, record_of_json

MOST_BYTES: Final = 64 << 20
"""A larger file is no dump of one rank: py-spy writes some 20 kB, a recorder a few MB."""

_RANK: Final = re.compile(r"rank[_.-]?(\d{1,7})", re.ASCII | re.IGNORECASE)
_LAST: Final = re.compile(r"(\d{1,7})\D*$", re.ASCII)


@dataclass(frozen=True)
class Refused:
    """A file that gave nothing.

    Attributes:
        file: Its name.
        rank: The rank it is named after; None: none.
        why: The rule it breaks.
    """

    file: str
    rank: int | None
    why: str


@dataclass(frozen=True)
class Dumps:
    """What a folder gave: n_files == parsed files + refused files.

    Attributes:
        stacks: Rank -> its stack dump.
        records: Rank -> its flight recorder.
        refused: Files refused.
        n_files: Files seen.
    """

    stacks: Mapping[int, RankStack] = field(default_factory=dict)
    records: Mapping[int, FlightRecord] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()
    n_files: int = 0

    @property
    def n_parsed(self) -> int:
        """Files that gave a dump."""
        return len(self.stacks) + len(self.records)


def rank_in_name(name: str) -> int | None:
    """The rank a file is named after: behind `rank`, else its last number.

    >>> [rank_in_name(n) for n in ("rank12.json", "nccl_trace_rank_3", "pid77_rank-8.txt", "4.txt")]
    [12, 3, 8, 4]
    >>> rank_in_name("stack.txt") is None
    True
    """
    stem = name.split(".", maxsplit=1)[0] if _RANK.search(name) is None else name
    found = _RANK.search(name) or _LAST.search(stem)
    return int(found[1]) if found else None


def read_dumps(folder: Path, *, n_ranks: int | None = None) -> Dumps:
    """Reads every file of a folder; subfolders and hidden files are left.

    Args:
        folder: The folder.
        n_ranks: Ranks of the job; a file of a higher rank is refused. None: any.

    Raises:
        SourceError: The folder cannot be read, or holds no file.
    """
    return parse_dumps(
        ((path.name, partial(_data, path)) for path in _files(folder)), n_ranks=n_ranks
    )


def parse_dumps(
    files: Iterable[tuple[str, Callable[[], bytes]]], *, n_ranks: int | None = None
) -> Dumps:
    """Parses files one by one.

    Args:
        files: Name, and what gives the content or raises a SourceError.
        n_ranks: Ranks of the job; a file of a higher rank is refused. None: any.
    """
    stacks: dict[int, RankStack] = {}
    records: dict[int, FlightRecord] = {}
    refused: list[Refused] = []
    n_files = 0
    for n_files, (name, content) in enumerate(files, start=1):  # noqa: B007 - the last counts
        rank = rank_in_name(name)
        try:
            found = _parse(content(), _checked(rank, n_ranks))
            _take(found, stacks, records)
        except SourceError as error:
            refused.append(Refused(name, rank, str(error)))
    return Dumps(stacks, records, tuple(refused), n_files)


def rounds_in(folder: Path) -> list[Path]:
    """Subfolders of a folder without files of its own: the rounds of a fail-slow search.

    Args:
        folder: The folder.

    Returns:
        The subfolders by name, numbers in them as numbers; empty where files lie beside them.

    Raises:
        SourceError: The folder cannot be read.
    """
    entries = _entries(folder)
    if any(path.is_file() for path in entries):
        return []
    return sorted((path for path in entries if path.is_dir()), key=_natural)


def _files(folder: Path) -> list[Path]:
    paths = sorted((path for path in _entries(folder) if path.is_file()), key=_natural)
    if not paths:
        raise SourceError(
            f"{folder} holds no file. Expected one dump per rank, its rank in the name "
            "(rank0.json, rank1.json, ...): `py-spy dump --json --pid PID > rank0.json`"
        )
    return paths


def _entries(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise SourceError(
            f"{folder} cannot be read: {error.strerror or error}. Expected a folder of dumps"
        ) from error


def _natural(path: Path) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), part) if part.isdecimal() else (-1, part) for part in parts]


def _checked(rank: int | None, n_ranks: int | None) -> int:
    if rank is None:
        raise SourceError("no rank in the file's name; name it rank<N>")
    if n_ranks is not None and rank >= n_ranks:
        raise SourceError(f"rank {rank} is beyond the layout of {n_ranks} ranks")
    return rank


def _take(
    found: RankStack | FlightRecord, stacks: dict[int, RankStack], records: dict[int, FlightRecord]
) -> None:
    if found.rank in (stacks if isinstance(found, RankStack) else records):
        raise SourceError("a second file of the same rank and form; the first is taken")
    if isinstance(found, RankStack):
        stacks[found.rank] = found
    else:
        records[found.rank] = found


def _data(path: Path) -> bytes:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror or error}") from error
    if size > MOST_BYTES:
        raise SourceError(f"larger than {MOST_BYTES >> 20} MB: not a dump of one rank")
    return read_bytes(path)


def _parse(data: bytes, rank: int) -> RankStack | FlightRecord:
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not data.strip():
        raise SourceError("the file is empty")
    if data[:1] == b"\x80":
        raise SourceError(
            "a pickle, which is never read: dump the recorder as JSON instead "
            "(torch._C._distributed_c10d._dump_nccl_trace_json())"
        )
    if start not in (b"[", b"{"):
        if not data.endswith(b"\n"):
            # A stack cut short would look like another place of the code.
            raise SourceError("cut off: a text dump ends with a whole line")
        return RankStack(rank, threads_of_text(decode(data)))
    try:
        # Through text: bytes that are no UTF-8 cost a character, not the file.
        content = orjson.loads(decode(data))
    except (orjson.JSONDecodeError, RecursionError) as error:
        raise SourceError(f"not whole JSON, cut off or damaged ({error})") from error
    if is_recorder(content):
        return record_of_json(content, rank=rank)
    return RankStack(rank, threads_of_json(content))
