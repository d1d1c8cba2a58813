"""What a registered feature is: its name, family, unit, window, meaning, availability.

No feature is computed here; each family's module registers its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, get_args

import polars as pl

from features.errors import DataError

Family = Literal[
    "telemetry_gauge",
    "telemetry_counter",
    "telemetry_state",
    "structural",
    "event",
    "history",
    "stay",
    "peer",
    "job",
    "repair",
]

FAMILIES: Final[tuple[Family, ...]] = get_args(Family)

FAMILY_WORDS: Final[dict[Family, str]] = {
    "telemetry_gauge": "telemetry",
    "telemetry_counter": "error counters",
    "telemetry_state": "device state",
    "structural": "data coverage",
    "event": "health events",
    "history": "earlier incidents",
    "stay": "time in place",
    "peer": "against its peers",
    "job": "jobs",
    "repair": "repairs and outages",
}
"""What reasons and docs call a family."""


@dataclass(frozen=True)
class Feature:
    """One column of the feature matrix.

    Attributes:
        name: Column name.
        family: Kind of feature; reasons are grouped by it.
        unit: Unit of measure; `1` for a pure number.
        window: Length w of the observation window [as_of - w, as_of); None: no fixed length.
        meaning: One line in words, for reasons and docs.
        inputs: Columns it is computed from, as `table.column` without the room.
        availability: When it is known and what it is otherwise, in words, for docs: "null without
            a sample in the window", "0 without events".
    """

    name: str
    family: Family
    unit: str
    window: timedelta | None
    meaning: str
    inputs: tuple[str, ...]
    availability: str


def feature_names(features: Iterable[Feature]) -> tuple[str, ...]:
    """The features' column names, in their order.

    Raises:
        DataError: Two features share a name.
    """
    names = tuple(feature.name for feature in features)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(
            f"feature registry: each name must be used once, got {', '.join(repeated)} more than "
            f"once among {len(names)} features. Rename one of them."
        )
    return names


def matrix_columns(features: Iterable[Feature]) -> dict[str, pl.DataType]:
    """The features' columns as models take them, in their order: the signature of a model."""
    return dict.fromkeys(feature_names(features), pl.Float32())


def window_suffix(window: timedelta) -> str:
    """The window as a column suffix in the largest whole unit.

    >>> window_suffix(timedelta(hours=6)), window_suffix(timedelta(minutes=15))
    ('6h', '15m')
    >>> window_suffix(timedelta(days=7))
    '7d'
    """
    seconds = int(window.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        # A day stays "24h": the next shorter windows are in hours, and names then sort together.
        if seconds % size == 0 and seconds // size > (1 if unit == "d" else 0):
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
