"""Scores as plain columns: rows out of them take microseconds and wait for nobody.

Polars shares one pool of threads: a row that is asked for while a new tick is read and sorted would
wait until that is done. What is read and how it is ranked is in `fleet_view`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.vocabulary import FAULT_TYPES

Rows = npt.NDArray[np.int64]
NO_CODE: Final = -1
_NO_SUCH: Final = -2
_TEXTS: Final = (
    "node", "rack", "status", "status_reason", "cause", "fault_type", "model_version",
)  # fmt: skip
_NUMBERS: Final = ("score", "fault_probability", "missing_share")
_LEAST_SHARE: Final = 0.00005


@dataclass(frozen=True)
class Coded:
    """A column of texts as numbers.

    Attributes:
        codes: Number of each row; -1 where it is null.
        values: What the numbers stand for, sorted; null at the end, so that -1 finds it.
        code_of: The number of each value.
    """

    codes: npt.NDArray[np.int32]
    values: Sequence[str | None]
    code_of: dict[str, int]

    @classmethod
    def of(cls, column: pl.Series) -> "Coded":
        """Codes of a column."""
        values = column.drop_nulls().unique().sort().to_list()
        codes = column.cast(pl.Enum(values)).to_physical().cast(pl.Int32).fill_null(NO_CODE)
        return cls(codes.to_numpy(), [*values, None], {one: at for at, one in enumerate(values)})

    def has(self, value: str) -> npt.NDArray[np.bool_]:
        """Which rows have a value."""
        found: npt.NDArray[np.bool_] = self.codes == self.code_of.get(value, _NO_SUCH)
        return found

    def at(self, rows: Rows) -> list[str | None]:
        """The values of rows."""
        return [self.values[code] for code in self.codes[rows].tolist()]


@dataclass(frozen=True)
class Lists:
    """A column of lists.

    Attributes:
        first: Where each row's list begins in `flat`, shape (rows + 1,).
        flat: All lists, one after another.
    """

    first: npt.NDArray[np.int64]
    flat: Any

    @classmethod
    def of(cls, column: pl.Series, *, is_text: bool) -> "Lists":
        """Lists of a column; a null is an empty one."""
        lengths = column.list.len().fill_null(0)
        flat = column.filter(lengths > 0).explode()
        first = np.concatenate([[0], np.cumsum(lengths.to_numpy(), dtype=np.int64)])
        return cls(first, Coded.of(flat) if is_text else flat.to_numpy())

    def at(self, rows: Rows) -> list[list[Any]]:
        """The lists of rows."""
        spans = zip(self.first[rows].tolist(), self.first[rows + 1].tolist(), strict=True)
        if isinstance(self.flat, Coded):
            return [self.flat.at(np.arange(a, b)) if b > a else [] for a, b in spans]
        return [self.flat[a:b].tolist() for a, b in spans]


@dataclass(frozen=True)
class PlainColumns:
    """The columns of a `ScoreTable`, for rows as `shapes.Score` says.

    Attributes:
        entity_ids: The entities, sorted, one each.
        entity: Number of each row's entity.
        horizon_h: Horizon of each row.
        texts: Columns of texts.
        numbers: Columns of numbers; nan where null.
        reasons: Reasons of each row.
        shares: Shares of fault types of each row; empty: unknown.
    """

    entity_ids: list[str]
    entity: npt.NDArray[np.int64]
    horizon_h: npt.NDArray[np.int32]
    texts: dict[str, Coded]
    numbers: dict[str, npt.NDArray[np.float64]]
    reasons: Lists
    shares: Lists

    @classmethod
    def of(cls, frame: pl.DataFrame, entity_ids: list[str], first: Rows) -> "PlainColumns":
        """The columns of scores that are sorted by entity.

        Args:
            frame: Scores with `rack` and `cause`.
            entity_ids: The entities, sorted, one each.
            first: Row at which each begins; one more at the end.
        """
        return cls(
            entity_ids=entity_ids,
            entity=np.repeat(np.arange(len(entity_ids)), np.diff(first)),
            horizon_h=frame["horizon_h"].to_numpy(),
            texts={name: Coded.of(frame[name]) for name in _TEXTS},
            numbers={
                name: frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
                for name in _NUMBERS
            },
            reasons=Lists.of(frame["reasons"], is_text=True),
            shares=Lists.of(frame["fault_probabilities"], is_text=False),
        )

    def rows(self, rows: Rows) -> list[dict[str, Any]]:
        """Rows as plain values.

        Args:
            rows: Their numbers.
        """
        columns: dict[str, list[Any]] = {
            "entity_id": [self.entity_ids[at] for at in self.entity[rows].tolist()],
            "horizon_h": self.horizon_h[rows].tolist(),
            **{name: coded.at(rows) for name, coded in self.texts.items()},
            **{name: _known(values[rows]) for name, values in self.numbers.items()},
            "fault_probabilities": [by_type(shares) for shares in self.shares.at(rows)],
            "reasons": self.reasons.at(rows),
        }
        names = tuple(columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _known(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - nan


def by_type(shares: Sequence[float]) -> dict[str, float] | None:
    """Shares by fault type, without those that round to nothing; none: null.

    >>> by_type([0.75, 0.25] + [0.0] * 10)
    {'hbm_uncorrectable': 0.75, 'row_remap_failure': 0.25}
    """
    if not shares:
        return None
    named = zip(FAULT_TYPES, shares, strict=True)
    return {name: round(share, 4) for name, share in named if share >= _LEAST_SHARE}
