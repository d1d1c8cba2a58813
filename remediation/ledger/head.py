"""The ledger's head kept elsewhere, and exports: how a ledger cut off at its end is noticed.

The chain itself is in `remediation.ledger.entries`.

A chain that lost its last entries still holds. So the hook notes the last hash in a small file of
its own folder, on another disk or with another backup than the ledger, after each entry was
committed. After a crash the noted head is at most older than the ledger, and thus still in it. A
ledger that lacks the noted head was tampered with or restored from a backup: nodes may be held
that it does not know of. The hook then stops and says so.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from features.errors import SettingsError
from remediation.ledger.entries import (
    FIRST_HASH,
    KINDS,
    Entry,
    Ledger,
    LedgerError,
    NewEntry,
    Verification,
    export_json_lines,
    parse_json_line,
    verify_chain,
)

_MOST_BYTES: Final = 4096
_NEXT_STEP: Final = (
    "Look at every node that is cordoned or drained, and note the head anew only after that"
)


@dataclass(frozen=True)
class Head:
    """The end of a ledger at some moment.

    Attributes:
        seq: Place of its last entry; 0: it was empty.
        hash: Hash of that entry; zeros: it was empty.
    """

    seq: int
    hash: str


class HeadFile:
    """A file with a ledger's head, replaced as a whole.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        """The path."""
        return str(self._path)

    def read(self) -> Head | None:
        """The noted head; None: there is no file.

        Raises:
            LedgerError: It cannot be read, or holds something else.
        """
        try:
            with self._path.open("rb") as file:
                values = json.loads(file.read(_MOST_BYTES))
            return Head(int(values["seq"]), str(values["hash"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerError(f"ledger head {self}: {error.strerror}. Nothing was done.") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise LedgerError(f"ledger head {self}: not a head. {_NEXT_STEP}.") from error

    def write(self, head: Head) -> None:
        """Notes a head, durably and whole; one that is noted and greater stays.

        Raises:
            LedgerError: It cannot be written.
        """
        noted = self.read()
        if noted is not None and noted.seq >= head.seq:
            return
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("w", encoding="ascii") as file:
                file.write(json.dumps({"seq": head.seq, "hash": head.hash}) + "\n")
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise LedgerError(f"ledger head {self}: {error.strerror}. Nothing was done.") from error


class HeadedLedger:
    """A ledger that notes its head elsewhere after each entry, and is checked against it.

    Args:
        ledger: The ledger.
        head: Where its head is noted.

    Raises:
        LedgerError: The head cannot be read or written.
    """

    def __init__(self, ledger: Ledger, head: HeadFile) -> None:
        self._ledger = ledger
        self._head = head
        self._is_checked = False
        # Noted before the first entry, so that a ledger with entries always has a head: without
        # this, taking the head away together with the ledger's end would go unnoticed.
        if head.read() is None and not ledger.entries():
            head.write(Head(0, FIRST_HASH))

    def append(self, new: NewEntry) -> bool:
        """As in `Ledger`."""
        return self.append_all((new,))[0]

    def append_all(self, new: Sequence[NewEntry]) -> tuple[bool, ...]:
        """As in `Ledger`; the head is noted once.

        Raises:
            LedgerError: As in `Ledger`, or the ledger lacks the head that was noted: written on,
                it would in time outgrow that head, and nothing would be noticed any more.
        """
        if not self._is_checked and not (found := self.verify()).is_whole:
            raise LedgerError(f"ledger: {found.problem}. Nothing was written.")
        is_written = self._ledger.append_all(new)
        written = [one for one, is_new in zip(new, is_written, strict=True) if is_new]
        if written:
            # Entries of its moment and later: the last of them is this entry or follows it.
            kind, since = written[-1].kind, written[-1].recorded_at
            last = self._ledger.entries(kinds=(kind,), since=since)[-1]
            self._head.write(Head(last.seq, last.hash))
        return is_written

    def entries(
        self, *, kinds: tuple[str, ...] = KINDS, since: datetime | None = None
    ) -> tuple[Entry, ...]:
        """As in `Ledger`."""
        return self._ledger.entries(kinds=kinds, since=since)

    def verify(self, *, expected_head: str | None = None) -> Verification:
        """As in `Ledger`; the noted head must be in the chain too."""
        self._is_checked = False
        noted = self._head.read()
        found = self._ledger.verify(expected_head=None if noted is None else noted.hash)
        place = found.n_entries + 1
        if noted is None and found.is_whole and found.n_entries > 0:
            problem = f"its head was noted in {self._head}, which is gone. {_NEXT_STEP}"
            return replace(found, broken_at=place, problem=problem)
        if noted is not None and found.broken_at == place:
            problem = (
                f"it ends at entry {found.n_entries}, but entry {noted.seq} was noted in "
                f"{self._head}: its end was cut off, or a backup restored. {_NEXT_STEP}"
            )
            return replace(found, problem=problem)
        self._is_checked = found.is_whole
        if found.is_whole and expected_head is not None:
            return self._ledger.verify(expected_head=expected_head)
        return found


def note_head_anew(ledger: Ledger, path: Path) -> Head:
    """Notes the head of a ledger as it is: for a ledger that had none, or after a restore.

    Args:
        ledger: The ledger itself, not one with a head.
        path: The head's file; an earlier one is kept beside it, its name ending in `.before`.

    Raises:
        LedgerError: The ledger does not hold, or the head cannot be written.
    """
    found = ledger.verify()
    if not found.is_whole:
        raise LedgerError(f"ledger: {found.problem}. No head was noted.")
    if path.exists():
        path.replace(path.with_name(f"{path.name}.before"))
    head = Head(found.n_entries, found.head)
    HeadFile(path).write(head)
    return head


def check_head(head: str | None) -> None:
    """Refuses a hash that none can be: a slip of the hand must not look like a ledger cut off.

    Raises:
        SettingsError: It is not 64 hex digits.
    """
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise SettingsError(f"head {head!r}: expected 64 hex digits, as `ledger export` says them")


def write_export(ledger: Ledger, path: Path) -> int:
    """Writes all entries as JSON lines, whole or not at all; returns how many.

    Raises:
        LedgerError: The ledger cannot be read.
        OSError: The file cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    n_entries = 0
    try:
        with part.open("w", encoding="ascii") as file:
            for line in export_json_lines(ledger):
                file.write(line + "\n")
                n_entries += 1
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return n_entries


def verify_export(path: Path, *, expected_head: str | None = None) -> Verification:
    """Recomputes the chain of an export.

    Args:
        path: JSON lines.
        expected_head: A hash noted earlier that must be in the chain.

    Raises:
        LedgerError: A line is no entry; the text says which.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return verify_chain(_entries(file, path), expected_head=expected_head)


def _entries(lines: Iterable[bytes], path: Path) -> Iterable[Entry]:
    for number, line in enumerate(lines, start=1):
        try:
            yield parse_json_line(line.decode("ascii"))
        except (LedgerError, ValueError, RecursionError) as error:
            raise LedgerError(f"ledger export {path}, line {number}: not an entry") from error
