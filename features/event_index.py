"""Counts and times of past events per group, for many questions at once.

What the groups mean (a GPU, a node, a place) is decided in `features.history_features`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.compiled import jit

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NO_GROUP: Final = -1
US_PER_DAY: Final = 86_400_000_000.0
_WALK: Final = 8  # steps from the last place before the rest is searched by halves


class EventIndex:
    """Events by group and time; a question is a group and a moment, exclusive.

    A question starts where the one before it about the same group ended, so that questions in
    order of time, as a grid asks them, walk through each group once.
    """

    def __init__(self, groups: Ints, times: Ints) -> None:
        """Sorts the events.

        Args:
            groups: Group codes from 0, shape (n,); events of `NO_GROUP` are left out.
            times: Microseconds, shape (n,); quickest in order of time.
        """
        self._starts, self._times = _by_group(groups, times)
        self._sums: Ints | None = None

    def count(self, groups: Ints, before: Ints) -> Ints:
        """Events of each group strictly before each moment, shape (m,); 0 for no group."""
        first, last = _spans(self._starts, self._times, groups, before)
        return np.asarray(last - first)

    def last_time(self, groups: Ints, before: Ints) -> Floats:
        """Time of the last event strictly before each moment, in microseconds; NaN for none."""
        first, last = _spans(self._starts, self._times, groups, before)
        times = np.full(groups.size, np.nan)
        has_event = last > first
        times[has_event] = self._times[last[has_event] - 1]
        return times

    def elapsed(self, groups: Ints, before: Ints) -> Ints:
        """Sum over a group's events before each moment of the microseconds from event to moment.

        Whole numbers modulo 2**64, so that differences of sums are exact however long the sums
        are: what is known of later events does not change the last digit.
        """
        if self._sums is None:
            self._sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._times)))
        first, last = _spans(self._starts, self._times, groups, before)
        return np.asarray((last - first) * before - (self._sums[last] - self._sums[first]))


@jit
def _by_group(groups: Ints, times: Ints) -> tuple[Ints, Ints]:
    """Where each group's events start, shape (groups + 1,), and the times by (group, time)."""
    n_groups = groups.max() + 1 if groups.size else 0
    starts = np.zeros(n_groups + 1, dtype=np.int64)
    for group in groups:
        if group >= 0:
            starts[group + 1] += 1
    starts = np.cumsum(starts)
    filled = starts.copy()
    ordered = np.empty(starts[-1], dtype=np.int64)
    for i in range(groups.size):
        if groups[i] >= 0:
            ordered[filled[groups[i]]] = times[i]
            filled[groups[i]] += 1
    for group in range(n_groups):
        own = ordered[starts[group] : starts[group + 1]]
        if np.any(own[1:] < own[:-1]):
            own.sort()
    return starts, ordered


@jit
def _spans(starts: Ints, times: Ints, groups: Ints, before: Ints) -> tuple[Ints, Ints]:
    """First position of each question's group, and the first whose time is not before it."""
    first = np.zeros(groups.size, dtype=np.int64)
    last = np.zeros(groups.size, dtype=np.int64)
    reached = starts[:-1].copy()
    for i in range(groups.size):
        group, moment = groups[i], before[i]
        if group < 0 or group >= reached.size:
            continue
        low, high = starts[group], starts[group + 1]
        place = reached[group]
        if place > low and times[place - 1] >= moment:
            place = low + np.searchsorted(times[low:place], moment)
        else:
            stop = min(high, place + _WALK)
            while place < stop and times[place] < moment:
                place += 1
            if place == stop:
                place += np.searchsorted(times[place:high], moment)
        reached[group] = place
        first[i], last[i] = low, place
    return first, last


def group_codes(asked: pl.DataFrame, *others: pl.DataFrame, key: Sequence[str]) -> list[Ints]:
    """Gives rows of several frames the same dense code where their keys are equal.

    Args:
        asked: The frame whose keys get codes.
        others: Frames coded alike; a key that was not asked for gets `NO_GROUP`.
        key: Columns that name a group, of equal type in all frames.

    Returns:
        One array of codes per frame, in the order of its rows; a key with a null part is
        `NO_GROUP`.
    """
    names = list(key)
    known = (
        asked.select(names).drop_nulls().unique(maintain_order=True).with_row_index("code")
    ).with_columns(pl.col("code").cast(pl.Int64))
    return [
        frame.select(names)
        .join(known, on=names, how="left", maintain_order="left")["code"]
        .fill_null(NO_GROUP)
        .to_numpy(writable=True)  # loops are compiled anew for arrays that may not be written to
        for frame in (asked, *others)
    ]


class ExposureIndex:
    """How long the members of each group have been watched, from when each began and ended."""

    def __init__(self, groups: Ints, stays: pl.DataFrame) -> None:
        """Indexes stays.

        Args:
            groups: Group code of each stay.
            stays: `valid_from` (known) and `valid_to`; null: not ended.
        """
        has_end = stays["valid_to"].is_not_null()
        ends = stays["valid_to"].filter(has_end).dt.epoch("us").to_numpy()
        self._begins = EventIndex(groups, stays["valid_from"].dt.epoch("us").to_numpy())
        self._ends = EventIndex(groups[has_end.to_numpy()], ends)

    def begun(self, groups: Ints, before: Ints) -> Ints:
        """Stays of each group that began strictly before each moment."""
        return self._begins.count(groups, before)

    def days(self, groups: Ints, before: Ints) -> Floats:
        """Days that each group's stays had seen by each moment, shape (m,)."""
        seen = self._begins.elapsed(groups, before) - self._ends.elapsed(groups, before)
        return np.asarray(seen / US_PER_DAY)
