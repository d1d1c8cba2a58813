"""Cutting `sacct --parsable2` text into records, with delimiters and line breaks inside fields.

sacct escapes nothing, so a job may be called `a | grep b`. What fields mean is in `sacct`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from features.errors import SourceError

FREE_TEXT: Final = frozenset(
    {
        "JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir",
        "Constraints", "Reason", "Container", "Extra", "WCKey", "Account", "Reservation",
    }
)  # fmt: skip
"""Columns whose text users choose: only these can hold a delimiter or a line break."""

MANDATORY: Final = ("JobID", "State")

_MOST_LINES: Final = 100  # lines that one record may be broken over
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
    lines: Sequence[str], layout: Layout, *, is_valid: Callable[[Mapping[str, str]], bool]
) -> Iterator[Record]:
    """Cuts lines into records.

    A short line is joined with the lines after it until it has all fields; a line with too many
    fields is repaired by finding the one free-text column that held the delimiter.

    Args:
        lines: The lines after the header.
        layout: How they are laid out.
        is_valid: Whether a candidate's checkable fields (job id, state, times) make sense.

    Yields:
        Records and refused text; their lines add up to `lines`.
    """
    at = 0
    while at < len(lines):
        record = _next_record(lines, at, layout, is_valid)
        yield record
        at += record.n_lines


def _next_record(
    lines: Sequence[str],
    at: int,
    layout: Layout,
    is_valid: Callable[[Mapping[str, str]], bool],
) -> Record:
    width = len(layout.columns)
    text = lines[at]
    fields = layout.split(text)
    n_lines = 1
    while len(fields) < width and at + n_lines < len(lines) and n_lines < _MOST_LINES:
        following = layout.split(lines[at + n_lines])
        if len(following) >= width and is_valid(dict(zip(layout.columns, following, strict=False))):
            break  # a whole record: what came before it is torn off, not continued
        text = f"{text}\n{lines[at + n_lines]}"
        fields = layout.split(text)
        n_lines += 1
    if len(fields) > width:
        repaired = _repair(fields, layout, is_valid)
        if repaired is not None:
            return Record(repaired, None, text, n_lines)
        rule = "delimiter inside a field, and which field cannot be told"
    elif len(fields) == width:
        record = dict(zip(layout.columns, fields, strict=True))
        if n_lines == 1 or is_valid(record):
            return Record(record, None, text, n_lines)
        rule = "broken over several lines in a way that cannot be mended"
    else:
        rule = "too few fields"
    return Record(None, f"{rule} (the header has {width})", lines[at])


def _repair(
    fields: Sequence[str], layout: Layout, is_valid: Callable[[Mapping[str, str]], bool]
) -> Mapping[str, str] | None:
    """Gives the surplus fields back to a free-text column, if only one reading makes sense."""
    surplus = len(fields) - len(layout.columns)
    candidates: list[Mapping[str, str]] = []
    for place, column in enumerate(layout.columns):
        if column not in FREE_TEXT:
            continue
        whole = layout.delimiter.join(fields[place : place + surplus + 1])
        mended = [*fields[:place], whole, *fields[place + surplus + 1 :]]
        record = dict(zip(layout.columns, mended, strict=True))
        if is_valid(record):
            candidates.append(record)
    wanted = [column for column in layout.columns if column in USED_COLUMNS]
    readings = {tuple(record[column] for column in wanted) for record in candidates}
    return candidates[0] if len(readings) == 1 else None


USED_COLUMNS: Final = frozenset(
    {
        "JobID", "JobName", "User", "Partition", "State", "ExitCode", "Submit", "Start", "End",
        "NodeList", "AllocTRES", "AllocGRES", "ReqTRES",
    }
)  # fmt: skip
"""Columns that become part of a row: readings that differ only in others are the same."""
