"""What is counted of the events of one group: windows, rates, time of the week.

Which groups and events there are is in `features.history_features` and `features.history_states`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import numpy as np
import polars as pl

from features.errors import DataError
from features.event_index import (
    US_PER_DAY,
    EventIndex,
    ExposureIndex,
    Floats,
    Ints,
    group_codes,
)
from features.history_rows import ENTITY, place_column
from features.registry import Family, Feature, window_suffix

SCOPES: Final = {
    "own": (ENTITY, "this GPU"),
    "slot": (("node", "slot"), "this slot"),
    "node": (("node",), "this node"),
    "batch": (("batch",), "GPUs of this batch"),
    "model": (("model",), "GPUs of this model"),
    "fleet": (("fleet",), "the whole fleet"),
}
"""Groups that need no topology: the columns that name one, and its name in words."""

_DAYS_PER_YEAR: Final = 365.25
_LEAST_EXPOSURE_DAYS: Final = 1.0  # a rate over less than a GPU-day says nothing
_WEEK_DAYS: Final = 7
_TIMES: Final = ("incidents.start",)
_STAYS: Final = ("inventory.valid_from", "inventory.valid_to")


@dataclass(frozen=True, kw_only=True)
class EventKind:
    """A kind of event that is counted.

    Attributes:
        noun: Its part of feature names: incident, mass_outage.
        words: In words, plural: "Incidents".
        inputs: Columns its times are from.
        family: Family of its features.
    """

    noun: str
    words: str
    inputs: tuple[str, ...] = _TIMES
    family: Family = "history"


INCIDENT: Final = EventKind(noun="incident", words="Incidents")


@dataclass(frozen=True, kw_only=True)
class CountSpec:
    """How events of a group are counted.

    Attributes:
        windows: Windows, shortest first; the plain rate is over the last.
        weeks: Weeks back in which the day of the week that follows `as_of` is looked at; 0: none.
        has_rates: Whether exposure is known, and rates are made.
    """

    windows: tuple[timedelta, ...]
    weeks: int = 0
    has_rates: bool = True


def scope_keys(scopes: Sequence[str], levels: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Each scope with the columns that name its groups.

    Raises:
        DataError: A level is called as a scope is.
    """
    chosen = {scope: key for scope, (key, _) in SCOPES.items() if scope in scopes}
    twice = sorted(set(chosen) & set(levels))
    if twice:
        raise DataError(
            f"history spec: {', '.join(twice)} is both a scope and a level of the topology. Leave "
            f"it out of the scopes, or give the level another name."
        )
    return chosen | {level: (place_column(level),) for level in levels}


def scope_words(scope: str) -> str:
    """A scope's groups in words."""
    return SCOPES[scope][1] if scope in SCOPES else f"its {scope}"


def scope_features(scope: str, spec: CountSpec, *, kind: EventKind = INCIDENT) -> list[Feature]:
    """The features that `scope_history` gives for a scope, in order."""
    who, noun, last = scope_words(scope), kind.noun, kind.words.removesuffix("s").lower()
    unless = "" if scope in ("own", "node", "fleet") else f"; null where the {scope} is not known"
    none = f"0 without {kind.words.lower()}{unless}"

    def feature(name: str, unit: str, window: timedelta | None, meaning: str, null: str) -> Feature:
        return Feature(f"{scope}_{name}", kind.family, unit, window, meaning, kind.inputs, null)

    found = [
        feature(
            f"{noun}_count_{window_suffix(window)}",
            "1",
            window,
            f"{kind.words} of {who} in the last {window_suffix(window)}",
            none,
        )
        for window in spec.windows
    ]
    since = f"Time since the last {last} of {who}"
    found.append(
        feature(f"days_since_{noun}", "d", None, since, f"null before the first {last}{unless}")
    )
    if spec.has_rates and scope != "own":  # one GPU is one GPU: its rate is its count
        found.append(_rate_feature(scope, spec, kind=kind, unless=unless))
    if spec.weeks:
        meaning = f"{kind.words} of {who} on this day of the {spec.weeks} weeks before"
        found.append(feature(f"{noun}_count_same_weekday", "1", None, meaning, none))
    return found


def _rate_feature(scope: str, spec: CountSpec, *, kind: EventKind, unless: str) -> Feature:
    longest = window_suffix(spec.windows[-1])
    return Feature(
        f"{scope}_{kind.noun}_rate_{longest}",
        kind.family,
        "1/GPU-year",
        spec.windows[-1],
        f"{kind.words} per GPU-year of {scope_words(scope)} in the last {longest}",
        (*kind.inputs, *_STAYS),
        f"null below {_LEAST_EXPOSURE_DAYS:g} GPU-day of exposure in the window{unless}",
    )


def scope_history(
    key: Sequence[str],
    *,
    rows: pl.DataFrame,
    past: pl.DataFrame,
    stays: pl.DataFrame,
    spec: CountSpec,
    kind: EventKind = INCIDENT,
) -> dict[str, Floats]:
    """Counts, time since the last event, and rates of the groups of one scope.

    Args:
        key: Columns that name a group in all three frames.
        rows: Rows asked for, with `as_of`.
        past: Events, with `start`: when they were known.
        stays: Stays, with `valid_from` and `valid_to`, for exposure.
        spec: What is counted.
        kind: The kind of the events.

    Returns:
        Name without the scope -> values, shape (rows,); NaN: unknown.
    """
    codes, past_codes, stay_codes = group_codes(rows, past, stays, key=key)
    events = EventIndex(past_codes, micros(past["start"]))
    before = micros(rows["as_of"])
    total = events.count(codes, before)
    found: dict[str, Floats] = {}
    since = before
    for window in spec.windows:
        since = before - window // timedelta(microseconds=1)
        count = (total - events.count(codes, since)).astype(np.float64)
        found[f"{kind.noun}_count_{window_suffix(window)}"] = count
    found[f"days_since_{kind.noun}"] = (before - events.last_time(codes, before)) / US_PER_DAY
    if spec.has_rates:
        exposure = ExposureIndex(stay_codes, stays)
        exposed = exposure.days(codes, before) - exposure.days(codes, since)
        years = np.where(exposed >= _LEAST_EXPOSURE_DAYS, exposed, np.nan) / _DAYS_PER_YEAR
        name = f"{kind.noun}_rate_{window_suffix(spec.windows[-1])}"
        found[name] = found[f"{kind.noun}_count_{window_suffix(spec.windows[-1])}"] / years
    if spec.weeks:
        found[f"{kind.noun}_count_same_weekday"] = _same_weekday(events, codes, before, spec.weeks)
    is_known = codes >= 0
    return {name: np.where(is_known, values, np.nan) for name, values in found.items()}


def _same_weekday(events: EventIndex, codes: Ints, before: Ints, weeks: int) -> Floats:
    """Events of the 24 hours that began a whole number of weeks before each moment."""
    found = np.zeros(before.size)
    for week in range(1, weeks + 1):
        begin = before - np.int64(week * _WEEK_DAYS * US_PER_DAY)
        until = begin + np.int64(US_PER_DAY)
        found += events.count(codes, until) - events.count(codes, begin)
    return found


def micros(times: pl.Series) -> Ints:
    """Times as microseconds since 1970."""
    return times.dt.epoch("us").to_numpy().astype(np.int64)
