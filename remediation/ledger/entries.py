"""The ledger: entries, the hash chain over them, the Protocol, and a ledger in memory.

The SQLite ledger is in `remediation.ledger.sqlite`; what entries mean for the present is in
`remediation.ledger.view`.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from features.errors import DataError, ForewarnError

KINDS: Final = (
    "observed",  # the nodes above the threshold in one tick
    "decision",  # what was decided for a node, with every verdict
    "intent",  # about to act; written before anything is done
    "result",  # what came of an intent
    "released",  # a node we held is no longer ours
    "escalation",  # something that a person must look at
    "acknowledged",  # a person has
    "request",  # a person's signed request, accepted or refused
    "checked",  # what a check of a node that we hold found
)

NEEDS_REFERENCE: Final = {"result": "intent", "released": "intent", "acknowledged": "escalation"}
"""Kinds that answer an earlier entry, and of which kind that is."""

FIRST_HASH: Final = "0" * 64


class LedgerError(ForewarnError):
    """The ledger cannot be read or written, or has been tampered with. Then nothing is done."""


@dataclass(frozen=True, kw_only=True)
class NewEntry:
    """An entry to be written.

    Attributes:
        key: Names the entry; a key is written once and never again.
        kind: One of `KINDS`.
        recorded_at: When, with a time zone.
        actuator: Actuator of the run, so that dry runs and real ones never mix.
        actor: Who: `forewarn` or a person.
        node: Node, where it is about one.
        decision_id: Decision, where it is about one.
        refers_to: Key of the entry it answers.
        body: Everything else, plain values.
    """

    key: str
    kind: str
    recorded_at: datetime
    actuator: str
    actor: str = "forewarn"
    node: str | None = None
    decision_id: str | None = None
    refers_to: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry as written.

    Attributes:
        seq: Place in the ledger, from 1.
        key: As in `NewEntry`.
        kind: As in `NewEntry`.
        recorded_at: As in `NewEntry`, UTC.
        actuator: As in `NewEntry`.
        actor: As in `NewEntry`.
        node: As in `NewEntry`.
        decision_id: As in `NewEntry`.
        refers_to: As in `NewEntry`.
        body_json: Body as canonical JSON.
        previous_hash: Hash of the entry before; zeros for the first.
        hash: SHA-256 of all of the above.
    """

    seq: int
    key: str
    kind: str
    recorded_at: datetime
    actuator: str
    actor: str
    node: str | None
    decision_id: str | None
    refers_to: str | None
    body_json: str
    previous_hash: str
    hash: str

    @property
    def body(self) -> dict[str, Any]:
        """The body as plain values."""
        body: dict[str, Any] = json.loads(self.body_json)
        return body


@dataclass(frozen=True)
class Verification:
    """Whether the chain holds.

    Attributes:
        n_entries: Entries looked at.
        head: Hash of the last; kept elsewhere, it also shows a tail cut off.
        broken_at: Place of the first entry that does not hold; None: all do.
        problem: What is wrong with it, in words.
    """

    n_entries: int
    head: str
    broken_at: int | None = None
    problem: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether every entry holds."""
        return self.broken_at is None


class Ledger(Protocol):
    """An append-only record; a key is written at most once."""

    def append(self, new: NewEntry) -> bool:
        """Writes an entry durably before it returns.

        Returns:
            Whether it was written; False: the key was there already, nothing changed.

        Raises:
            LedgerError: It cannot be written, or answers no entry of the right kind.
        """
        ...

    def append_all(self, new: Sequence[NewEntry]) -> tuple[bool, ...]:
        """Writes entries in order and durably, all of them or none: one wait for the disk.

        Returns:
            For each whether it was written, as in `append`.

        Raises:
            LedgerError: As in `append`; then none is written.
        """
        ...

    def entries(
        self, *, kinds: tuple[str, ...] = KINDS, since: datetime | None = None
    ) -> tuple[Entry, ...]:
        """Entries in order.

        Args:
            kinds: Only these kinds.
            since: Only those recorded at or after it.

        Raises:
            LedgerError: It cannot be read.
        """
        ...

    def verify(self, *, expected_head: str | None = None) -> Verification:
        """Recomputes the chain from the first entry.

        Args:
            expected_head: A hash noted earlier that must be in the chain.

        Raises:
            LedgerError: It cannot be read.
        """
        ...


def check_entry(new: NewEntry) -> None:
    """Refuses an entry that no ledger may hold.

    Raises:
        LedgerError: The kind is unknown, the time has no zone, or a reference is missing.
    """
    if new.kind not in KINDS:
        raise LedgerError(f"ledger: kind {new.kind!r} is unknown; use one of {', '.join(KINDS)}")
    if new.recorded_at.utcoffset() is None:
        raise LedgerError(f"ledger: entry {new.key} has a time without zone, {new.recorded_at}")
    if (new.kind in NEEDS_REFERENCE) != (new.refers_to is not None):
        raise LedgerError(
            f"ledger: {new.kind} {new.key} refers to {new.refers_to}; exactly "
            f"{', '.join(NEEDS_REFERENCE)} refer to another entry"
        )


def check_answer(new: NewEntry, found: str | None, *, of: str) -> None:
    """Refuses an entry that answers none of the kind that it must answer.

    Args:
        new: An entry that refers to another.
        found: Kind of the entry that it refers to; None: there is none.
        of: Which ledger, for the message.

    Raises:
        LedgerError: It does not answer one.
    """
    wanted = NEEDS_REFERENCE[new.kind]
    if found != wanted:
        raise LedgerError(f"{of}: {new.key} answers no {wanted} {new.refers_to!r}")


def seal(new: NewEntry, *, seq: int, previous_hash: str) -> Entry:
    """Gives an entry its place and hash.

    Args:
        new: The entry.
        seq: Its place.
        previous_hash: Hash of the entry before.

    Raises:
        DataError: The body is not plain values.
    """
    try:
        body_json = json.dumps(
            new.body, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True
        )
    except (TypeError, ValueError) as error:
        raise DataError(f"ledger: body of {new.key} cannot be written as JSON: {error}") from error
    open_entry = Entry(
        seq=seq,
        key=new.key,
        kind=new.kind,
        recorded_at=new.recorded_at.astimezone(UTC),
        actuator=new.actuator,
        actor=new.actor,
        node=new.node,
        decision_id=new.decision_id,
        refers_to=new.refers_to,
        body_json=body_json,
        previous_hash=previous_hash,
        hash="",
    )
    values = to_values(open_entry)
    return from_values({**values, "hash": _hash(values)})


def to_values(entry: Entry) -> dict[str, Any]:
    """An entry as plain values; its time as text of one width, so that text order is time order."""
    return {
        **{name: getattr(entry, name) for name in Entry.__dataclass_fields__},
        "recorded_at": time_text(entry.recorded_at),
    }


def from_values(values: Mapping[str, Any]) -> Entry:
    """The entry from what `to_values` gave."""
    return Entry(**{**values, "recorded_at": datetime.fromisoformat(values["recorded_at"])})


def from_rows(rows: Iterable[Sequence[Any]], *, of: str) -> tuple[Entry, ...]:
    """Entries from the rows of a table whose columns are the fields of `Entry`, in order.

    Args:
        rows: The rows.
        of: Which ledger, for the message.

    Raises:
        LedgerError: A time is none.
    """
    names = tuple(Entry.__dataclass_fields__)
    try:
        return tuple(from_values(dict(zip(names, row, strict=True))) for row in rows)
    except ValueError as error:
        raise LedgerError(
            f"{of}: an entry's time is not a time ({error}): it was altered. "
            f"Compare with the last export."
        ) from error


def time_text(at: datetime) -> str:
    """A time in UTC to the microsecond.

    >>> time_text(datetime(2026, 1, 5, tzinfo=UTC))
    '2026-01-05T00:00:00.000000+00:00'
    """
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def verify_chain(entries: Iterable[Entry], *, expected_head: str | None = None) -> Verification:
    """Recomputes every hash and link; works on a ledger and on its export alike.

    Args:
        entries: All entries, in order.
        expected_head: A hash noted earlier that must be in the chain.
    """
    previous, n_entries, is_head_seen = FIRST_HASH, 0, expected_head in (None, FIRST_HASH)
    for n_entries, entry in enumerate(entries, start=1):
        problem = ""
        if entry.seq != n_entries:
            problem = f"entry {n_entries} is missing, found {entry.seq}"
        elif entry.previous_hash != previous:
            problem = f"entry {entry.seq} does not follow the one before it"
        elif entry.hash != _hash(to_values(entry)):
            problem = f"entry {entry.seq} ({entry.key}) was altered"
        if problem:
            return Verification(n_entries, previous, n_entries, problem)
        previous = entry.hash
        is_head_seen = is_head_seen or previous == expected_head
    if not is_head_seen:
        problem = f"the noted head {expected_head} is not in the ledger: its end was cut off"
        return Verification(n_entries, previous, n_entries + 1, problem)
    return Verification(n_entries, previous)


def export_json_lines(ledger: Ledger) -> Iterator[str]:
    """Each entry as one line of JSON, with its hash; `parse_json_line` reads it back."""
    for entry in ledger.entries():
        yield json.dumps(to_values(entry), sort_keys=True)


def parse_json_line(line: str) -> Entry:
    """The entry of one exported line.

    Raises:
        LedgerError: The line is not one.
    """
    try:
        return from_values(json.loads(line))
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(f"ledger export: not an entry: {line[:80]!r}") from error


def _hash(values: Mapping[str, Any]) -> str:
    hashed = {name: value for name, value in values.items() if name != "hash"}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class MemoryLedger:
    """A ledger that lives as long as the process: for tests, replays and simulation."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._kind_of: dict[str, str] = {}
        self._answered: set[tuple[str, str]] = set()

    def append(self, new: NewEntry) -> bool:
        """As in `Ledger`."""
        check_entry(new)
        if new.key in self._kind_of:
            return False
        if new.refers_to is not None:
            check_answer(new, self._kind_of.get(new.refers_to), of="ledger")
            if (new.kind, new.refers_to) in self._answered:
                raise LedgerError(f"ledger: {new.refers_to} has its {new.kind} already")
            self._answered.add((new.kind, new.refers_to))
        previous = self._entries[-1].hash if self._entries else FIRST_HASH
        self._entries.append(seal(new, seq=len(self._entries) + 1, previous_hash=previous))
        self._kind_of[new.key] = new.kind
        return True

    def append_all(self, new: Sequence[NewEntry]) -> tuple[bool, ...]:
        """As in `Ledger`."""
        before = len(self._entries)
        try:
            return tuple([self.append(one) for one in new])
        except BaseException:
            for entry in self._entries[before:]:
                del self._kind_of[entry.key]
                self._answered.discard((entry.kind, entry.refers_to or ""))
            del self._entries[before:]
            raise

    def entries(
        self, *, kinds: tuple[str, ...] = KINDS, since: datetime | None = None
    ) -> tuple[Entry, ...]:
        """As in `Ledger`."""
        return tuple(
            entry
            for entry in self._entries
            if entry.kind in kinds and (since is None or entry.recorded_at >= since)
        )

    def verify(self, *, expected_head: str | None = None) -> Verification:
        """As in `Ledger`."""
        return verify_chain(self._entries, expected_head=expected_head)
