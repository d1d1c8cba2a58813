"""How a text of `sacct --parsable2` is laid out, and what reading it has met so far.

Nothing is read here: see `slurm.sacct_fast`.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from features.errors import DataError
from features.hostlist import expand_hostlist, expand_short
from pipelines.sources.local_time import to_utc
from pipelines.sources.slurm.field_values import Ints
from pipelines.sources.slurm.fields import NO_NODES, RefusedError
from pipelines.sources.slurm.sacct_records import Layout

MOST_NODES: Final = 2_000_000
"""Node names that one frame may hold: a short hostlist can stand for a very long list."""

BUCKET_S: Final = 900  # zones change their offset at full quarter hours

_BUCKETS_PER_DAY: Final = 96
_LONG_LIST: Final = 4096
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock

Meaning = tuple[Any, ...]


class Refused(tuple[None, None]):
    """What a value means that breaks its rule: nothing, and its line is not plain."""

    __slots__ = ()


REFUSED: Final = Refused((None, None))


class Room:
    """Memory that is used again: fresh memory costs more than what is written into it."""

    def __init__(self) -> None:
        self._room = np.empty(0, np.int32)

    def places(self, n_slots: int, n_lines: int) -> tuple[Ints, Ints]:
        """Two arrays (n_slots, n_lines) of anything; the ones given before are void."""
        size = n_slots * n_lines
        if self._room.size < 2 * size:
            self._room = np.empty(2 * size, np.int32)
        both = self._room[: 2 * size].reshape(2, n_slots, n_lines)
        return both[0], both[1]


class HostLists:
    """Writes hostlists out and remembers the shorter ones, up to `MOST_NODES` names in all.

    Names are kept joined by commas: that many lists would keep Python's garbage collector busy.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._held = 0

    def size(self, text: str) -> int:
        """How many nodes a hostlist names.

        Args:
            text: The hostlist.

        Raises:
            RefusedError: It is none.
        """
        if text in NO_NODES:
            return 0
        try:
            size, names = expand_short(text, most=_LONG_LIST)
        except DataError as error:
            raise RefusedError("NodeList is not a hostlist") from error
        if names is not None:
            if self._held + size > MOST_NODES:
                self._known.clear()
                self._held = 0
            self._known[text] = ",".join(names)
            self._held += size
        return size

    def names(self, text: str) -> str:
        """The names, joined by commas; `size` has found the text to be a hostlist.

        Args:
            text: The hostlist.
        """
        return self._known.get(text) or ",".join(expand_hostlist(text))


class Clock:
    """How far a wall clock is behind UTC, as `local_time.to_utc` reads it, by quarter hours."""

    def __init__(self) -> None:
        self._by_day: dict[int, int | None] = {}

    def shift(self, bucket: int, zone: ZoneInfo) -> int:
        """Seconds to add to the times of a quarter of an hour.

        Args:
            bucket: Which, counted from 1970-01-01T00:00 of the wall clock.
            zone: The clock's zone.
        """
        day = bucket // _BUCKETS_PER_DAY
        if day not in self._by_day:
            first = day * _BUCKETS_PER_DAY
            ends = {self._at(b, zone) for b in (first - 4, first, first + 48, first + 100)}
            self._by_day[day] = ends.pop() if len(ends) == 1 else None
        shift = self._by_day[day]  # None: the clock is changed near that day
        return self._at(bucket, zone) if shift is None else shift

    @staticmethod
    def _at(bucket: int, zone: ZoneInfo) -> int:
        try:
            local = _EPOCH + timedelta(seconds=bucket * BUCKET_S)
        except OverflowError:
            return 0
        moment = to_utc(local, zone)
        if moment is None:
            return 0  # the end of the year 9999: such a time is set aside by its year
        return round((moment - local.replace(tzinfo=UTC)).total_seconds())


@dataclass(frozen=True)
class SacctForm:
    """How a text is laid out and read.

    Attributes:
        layout: Columns and delimiter.
        header: The header line, which may be repeated; None: there is none.
        zone: Zone of its clock; None: not known.
        origin: File or address, for messages.
        hosts: Hostlists met so far, written out: neighbouring pieces name the same ones.
        room: Arrays that every piece uses anew.
        known: By column, what the values met so far mean.
        clock: The zone's shifts met so far.
    """

    layout: Layout
    header: str | None
    zone: ZoneInfo | None
    origin: str
    hosts: HostLists = field(default_factory=HostLists)
    room: Room = field(default_factory=Room)
    known: dict[str, dict[bytes, Meaning]] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
