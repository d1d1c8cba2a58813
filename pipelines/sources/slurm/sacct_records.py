"""Cutting `sacct --parsable2` text into records, with delimiters and line breaks inside fields.

sacct escapes nothing, so a job may be called `a | grep b`. What fields mean is in `sacct`.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations_with_replacement
from typing import Final

from features.errors import SourceError

_USERS_TEXT: Final = frozenset(
    {
        "JobName", "Comment", "SubmitLine", "WorkDir", "AdminComment", "SystemComment", "Extra",
        "Container",
    }
)  # fmt: skip
_SITES_TEXT: Final = frozenset({"Account", "Constraints", "Reason", "Reservation", "WCKey"})

FREE_TEXT: Final = _USERS_TEXT | _SITES_TEXT
"""Columns whose text people choose: only these can hold a delimiter or a line break."""

MANDATORY: Final = ("JobID", "State")

_MOST_LINES: Final = 100  # lines that one record may be broken over
_MOST_READINGS: Final = 500
_JOB_START: Final = re.compile(r"\d+[_+.\d\[]*", re.ASCII)
_HEADER_START: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?P<delimiter>[^A-Za-z0-9_]+)", re.ASCII)
_KNOWN_COLUMNS: Final = (
    "JobID", "JobIDRaw", "JobName", "User", "Partition", "State", "ExitCode", "Submit", "Start",
    "End", "NodeList", "AllocTRES", "AllocGRES", "ReqTRES", *sorted(FREE_TEXT),
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """How the records of a file are laid out.

    Attributes:
        columns: Column names in order, as Slurm spells them.
        delimiter: What stands between fields.
        is_closed: Whether each record ends with a delimiter too (`--parsable`).
    """

    columns: tuple[str, ...]
    delimiter: str
    is_closed: bool = False

    def split(self, text: str) -> list[str]:
        """Fields of a record's text."""
        fields = text.split(self.delimiter)
        if self.is_closed and len(fields) > 1 and not fields[-1].strip():
            fields.pop()
        return fields

    @property
    def may_trail(self) -> bool:
        """Whether the last field may hold line breaks, so that whole lines may go on."""
        return not self.is_closed and self.columns[-1] in FREE_TEXT

    def ends_closed(self, line: str, n_delimiters: int) -> bool:
        """Whether a text that ends with `line` ends with the delimiter that closes a record."""
        if not self.is_closed or not n_delimiters:
            return False
        return not line.rpartition(self.delimiter)[2].strip()


@dataclass(frozen=True)
class Record:
    """One record, or the lines that could not be made one.

    Attributes:
        fields: Column -> value; None where the record is refused.
        rule: The rule it breaks, where it is refused.
        text: Its text.
        n_lines: Lines of the file it takes.
    """

    fields: Mapping[str, str] | None
    rule: str | None
    text: str
    n_lines: int = 1


def header_layout(line: str, *, origin: str, delimiter: str | None) -> Layout:
    """Reads the header line.

    Args:
        line: First line that is neither blank nor a comment.
        origin: File, for messages.
        delimiter: What stands between fields; None: what follows the first name.

    Returns:
        The layout, column names in Slurm's spelling.

    Raises:
        SourceError: `JobID` or `State` is not among the columns.
    """
    text = line.strip()
    if delimiter is None:
        found = _HEADER_START.match(text)
        delimiter = found["delimiter"] if found else "|"
    names = [name.strip() for name in text.split(delimiter)]
    is_closed = len(names) > 1 and not names[-1]
    if is_closed:
        names.pop()
    known = {name.lower(): name for name in _KNOWN_COLUMNS}
    columns = tuple(known.get(name.lower(), name) for name in names)
    check_columns(columns, origin=origin)
    return Layout(columns, delimiter, is_closed)


def check_columns(columns: Sequence[str], *, origin: str) -> None:
    """Makes sure that the columns without which no record can be read are there.

    Args:
        columns: Column names.
        origin: File, for messages.

    Raises:
        SourceError: One is missing.
    """
    for column in MANDATORY:
        if column in columns:
            continue
        shown = [name if len(name) <= 40 else f"{name[:39]}…" for name in columns[:40]]
        near = get_close_matches(column, columns, n=3, cutoff=0.5)
        hint = f" Close to it: {', '.join(near)}." if near else ""
        raise SourceError(
            f"{origin}: this is no output of sacct --parsable2: column {column!r} is missing from "
            f"its first line. Found: {', '.join(shown) or '(nothing)'}.{hint} Run sacct with "
            f"--parsable2 --format=JobID,JobName,User,Partition,State,ExitCode,Submit,Start,End,"
            f"NodeList,AllocTRES, or, for output without a header, list its columns."
        )


def cut_records(
    lines: Sequence[str],
    layout: Layout,
    *,
    is_valid: Callable[[Mapping[str, str]], bool],
    more_follows: bool = False,
) -> Iterator[Record]:
    """Cuts lines into records.

    A short line is joined with the lines after it until it has all fields; a line with too many
    fields is repaired by finding the one free-text column that held the delimiter.

    Args:
        lines: The lines after the header.
        layout: How they are laid out.
        is_valid: Whether a candidate's checkable fields (job id, state, times) make sense.
        more_follows: Whether these are not the last lines: then the last record is left uncut
            where lines that are not here could still belong to it.

    Yields:
        Records and refused text; their lines add up to `lines`, less those left uncut.
    """
    counts = [line.count(layout.delimiter) for line in lines]
    at = 0
    while at < len(lines):
        n_lines, is_open = _extent(lines, counts, at, layout, is_valid)
        if is_open and more_follows:
            return
        record = _record(lines[at : at + n_lines], layout, is_valid)
        yield record
        at += record.n_lines


def _extent(
    lines: Sequence[str],
    counts: Sequence[int],
    at: int,
    layout: Layout,
    is_valid: Callable[[Mapping[str, str]], bool],
) -> tuple[int, bool]:
    """How many lines the record at `at` takes, and whether only the end of the lines ended it."""
    width = len(layout.columns)
    n_delimiters, n_lines = 0, 0
    while n_lines < _MOST_LINES:
        if at + n_lines == len(lines):
            return n_lines, True
        line = lines[at + n_lines]
        if n_lines and counts[at + n_lines] >= width - 1:
            fields = layout.split(line)
            if len(fields) >= width and is_valid(dict(zip(layout.columns, fields, strict=False))):
                return n_lines, False  # a whole record: what came before it is torn off
        n_delimiters += counts[at + n_lines]
        n_lines += 1
        if n_delimiters - layout.ends_closed(line, n_delimiters) >= width - 1:
            return (
                _trail(lines, counts, at, n_lines, layout) if layout.may_trail else (n_lines, False)
            )
    return n_lines, False


def _trail(
    lines: Sequence[str], counts: Sequence[int], at: int, n_lines: int, layout: Layout
) -> tuple[int, bool]:
    """Adds the lines that a line break in the last field of a record has torn off."""
    is_first_id = layout.columns[0] == "JobID"
    while n_lines < _MOST_LINES:
        if at + n_lines == len(lines):
            return n_lines, True
        line = lines[at + n_lines]
        begins = is_first_id and _JOB_START.match(line.partition(layout.delimiter)[0])
        if counts[at + n_lines] >= len(layout.columns) - 1 or begins:
            return n_lines, False
        n_lines += 1
    return n_lines, False


def _record(
    lines: Sequence[str], layout: Layout, is_valid: Callable[[Mapping[str, str]], bool]
) -> Record:
    """Makes a record of its lines, or says why they are none."""
    width = len(layout.columns)
    text = "\n".join(lines)
    fields = layout.split(text)
    if len(fields) > width:
        repaired = _repair(fields, layout, is_valid)
        if repaired is not None:
            return Record(repaired, None, text, len(lines))
        rule = "delimiter inside a field, and which field cannot be told"
    elif len(fields) == width:
        record = dict(zip(layout.columns, fields, strict=True))
        if len(lines) == 1 or is_valid(record):
            return Record(record, None, text, len(lines))
        rule = "broken over several lines in a way that cannot be mended"
    else:
        rule = "too few fields"
    return Record(None, f"{rule} (the header has {width})", lines[0])


def _repair(
    fields: Sequence[str], layout: Layout, is_valid: Callable[[Mapping[str, str]], bool]
) -> Mapping[str, str] | None:
    """Gives surplus fields back to free-text columns, if only one reading makes sense.

    Readings are tried in order of how likely they are: one text that a user chose, several of
    them (a job's name stands in its submit line too), then those that a site chose.
    """
    surplus = len(fields) - len(layout.columns)
    wanted = [column for column in layout.columns if column in USED_COLUMNS]
    # Of a name that stands twice the last counts, as it does in a record.
    places = {column: at for at, column in enumerate(layout.columns)}
    users = sorted(places[column] for column in _USERS_TEXT if column in places)
    sites = sorted(places[column] for column in _SITES_TEXT if column in places)
    stages = [
        ({at: surplus} for at in users),
        _shares(users, surplus),
        ({at: surplus} for at in sites),
        _shares(sorted([*users, *sites]), surplus),
    ]
    for stage in stages:
        readings: dict[tuple[str, ...], Mapping[str, str]] = {}
        for extra in stage:
            record = _read_as(fields, layout, extra)
            if is_valid(record):
                readings.setdefault(tuple(record[column] for column in wanted), record)
        if readings:
            return next(iter(readings.values())) if len(readings) == 1 else None
    return None


def _shares(places: Sequence[int], surplus: int) -> Iterator[dict[int, int]]:
    """Every way to share the surplus among columns; none where there are very many."""
    if not places or math.comb(len(places) + surplus - 1, surplus) > _MOST_READINGS:
        return
    for chosen in combinations_with_replacement(places, surplus):
        yield {at: chosen.count(at) for at in set(chosen)}


def _read_as(fields: Sequence[str], layout: Layout, extra: Mapping[int, int]) -> Mapping[str, str]:
    """The record where some columns take more than one field."""
    record: dict[str, str] = {}
    at = 0
    for place, column in enumerate(layout.columns):
        end = at + 1 + extra.get(place, 0)
        record[column] = layout.delimiter.join(fields[at:end])
        at = end
    return record


USED_COLUMNS: Final = frozenset(
    {
        "JobID", "JobName", "User", "Partition", "State", "ExitCode", "Submit", "Start", "End",
        "NodeList", "AllocTRES", "AllocGRES", "ReqTRES",
    }
)  # fmt: skip
"""Columns that become part of a row: readings that differ only in others are the same."""
