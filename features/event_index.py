"""Counts and times of past events per group, for many questions at once, by binary search.

What the groups mean (a GPU, a node, a place) is decided in `features.history_features`.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NO_GROUP: Final = -1
US_PER_DAY: Final = 86_400_000_000.0


class EventIndex:
    """Events sorted by (group, time); a question is a group and a moment, exclusive.

    Each time is replaced by its rank among all distinct times, so that group and time fit one
    integer whatever the number of groups; a question is then a single search.
    """

    def __init__(self, groups: Ints, times: Ints) -> None:
        """Sorts the events.

        Args:
            groups: Group codes from 0, shape (n,); events of `NO_GROUP` are left out.
            times: Microseconds, shape (n,).
        """
        known = groups >= 0
        groups, times = groups[known], times[known]
        self._moments = np.unique(times)
        self._width = self._moments.size + 1
        keys = groups * self._width + np.searchsorted(self._moments, times)
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._times = times[order]
        # Sums are of time since the first moment: a day in microseconds keeps its precision.
        origin = self._moments[0] if self._moments.size else 0
        self._origin = int(origin)
        self._sums = np.concatenate(([0.0], np.cumsum((self._times - origin) / US_PER_DAY)))

    def _span(self, groups: Ints, before: Ints) -> tuple[Ints, Ints]:
        """First position of each group, and the first whose time is not before the moment."""
        codes = np.maximum(groups, 0)
        base = codes * self._width
        first = np.searchsorted(self._keys, base)
        last = np.searchsorted(self._keys, base + np.searchsorted(self._moments, before))
        return first, np.where(groups >= 0, last, first)

    def count(self, groups: Ints, before: Ints) -> Ints:
        """Events of each group strictly before each moment, shape (m,); 0 for no group."""
        first, last = self._span(groups, before)
        return last - first

    def last_time(self, groups: Ints, before: Ints) -> Floats:
        """Time of the last event strictly before each moment, in microseconds; NaN for none."""
        first, last = self._span(groups, before)
        times = np.full(groups.size, np.nan)
        has_event = last > first
        times[has_event] = self._times[last[has_event] - 1]
        return times

    def elapsed(self, groups: Ints, before: Ints) -> Floats:
        """Sum over a group's events before each moment of the days from event to moment."""
        first, last = self._span(groups, before)
        days = (before - self._origin) / US_PER_DAY
        return np.asarray((last - first) * days - (self._sums[last] - self._sums[first]))


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
        .to_numpy()
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
        return self._begins.elapsed(groups, before) - self._ends.elapsed(groups, before)
