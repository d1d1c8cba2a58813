"""Readings in columns to rows: one per GPU, page and moment, one column per metric.

Names and labels are already numbers here; no text is read.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from features.telemetry_metrics import METRICS
from pipelines.sources.telemetry.dcgm_fields import ExporterName, blank_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PARSED: Final = 0
SKIPPED: Final = 1
NOT_FINITE: Final = 2
TOO_SMALL: Final = 3
TOO_LARGE: Final = 4
DIFFERS: Final = 5


@dataclass(frozen=True)
class Readings:
    """Readings of GPUs, each array of shape (readings,), in the order they came.

    Attributes:
        row: Row that each belongs to.
        field: Field that it gives.
        part: Part of the metric (a link) by its label; -1 for the whole.
        value: The number as exported.
        scale: Factor to the metric's unit.
        is_instance: Whether a MIG instance's line repeats it.
    """

    row: Ints
    field: Ints
    part: Ints
    value: Floats
    scale: Floats
    is_instance: npt.NDArray[np.bool_]


def first_known(row: Ints, code: Ints, n_rows: int) -> Ints:
    """Per row the first code that is known (not negative); -1 where none is."""
    is_known = code >= 0
    first = np.full(n_rows, -1, np.int64)
    # Of repeated places the last assignment counts: go backwards.
    first[row[is_known][::-1]] = code[is_known][::-1]
    return first


def rows_of(keys: Ints) -> tuple[Ints, Ints]:
    """Numbers the distinct keys in the order they appear.

    Args:
        keys: One per reading.

    Returns:
        Row per reading; the first reading of each row.
    """
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[inverse], first[order]


def is_blank_value(value: Floats) -> npt.NDArray[np.bool_]:
    """`dcgm_fields.is_blank` for an array."""
    code_32 = ((value >= 2**31 - 16) & (value <= 2**31 - 1)) | (value == 2**32 - 1)
    code_47 = (value >= 2**47) & (value <= 2**47 + 15)
    code_63 = (value >= 2**63 - 1024) & (value <= 2**64)
    blank: npt.NDArray[np.bool_] = np.isnan(value) | code_32 | code_47 | code_63
    return blank


def build_matrix(
    readings: Readings, fields: list[ExporterName], *, n_rows: int
) -> tuple[dict[str, Floats], Ints]:
    """Puts readings in their cells.

    A blank leaves its cell null. Of several names of a metric the first in the table counts; its
    parts add up where no name gives the whole, unless one of them is blank.

    Args:
        readings: The readings.
        fields: What their field numbers stand for.
        n_rows: Rows.

    Returns:
        Values by metric column, of the metrics there are readings of, NaN where unknown; what
        became of each reading.
    """
    minimum, maximum, extra_blank, is_whole = _limits(fields)
    value = readings.value * readings.scale
    value = np.where(is_whole[readings.field], np.rint(value), value)
    is_blank = is_blank_value(readings.value) | (readings.value == extra_blank[readings.field])
    is_blank |= (readings.value == -1) & (minimum[readings.field] >= 0)
    fate = np.select(
        [
            is_blank,
            ~np.isfinite(value),
            value < minimum[readings.field],
            value > maximum[readings.field],
        ],
        [PARSED, NOT_FINITE, TOO_SMALL, TOO_LARGE],
        PARSED,
    ).astype(np.int64)
    is_sum = np.array([field.metric.kind == "counter" for field in fields], np.bool_)
    part = np.where(is_sum[readings.field], readings.part, -1)
    n_parts = int(part.max(initial=-1)) + 2
    slots, slot = np.unique(readings.field * n_parts + part + 1, return_inverse=True)
    place = readings.row * slots.size + slot
    cells = np.full(n_rows * slots.size, np.nan)
    blank_cells = np.zeros(n_rows * slots.size, np.bool_)
    is_taken = (fate == PARSED) & ~is_blank
    cells[place[is_taken][::-1]] = value[is_taken][::-1]
    blank_cells[place[is_blank]] = True
    differs = is_taken & (cells[place] != value)
    fate[differs] = np.where(readings.is_instance[differs], SKIPPED, DIFFERS)
    shape = (n_rows, slots.size)
    columns = _columns(
        cells.reshape(shape), blank_cells.reshape(shape), slots=slots, n_parts=n_parts,
        fields=fields,
    )  # fmt: skip
    return columns, fate


def _limits(
    fields: list[ExporterName],
) -> tuple[Floats, Floats, Floats, npt.NDArray[np.bool_]]:
    metrics = [field.metric for field in fields]
    return (
        np.array([metric.minimum for metric in metrics], np.float64),
        np.array([metric.maximum for metric in metrics], np.float64),
        np.array([blank_of(metric) for metric in metrics], np.float64),
        np.array([not metric.dtype.is_float() for metric in metrics], np.bool_),
    )


def _columns(
    cells: Floats,
    is_blank: npt.NDArray[np.bool_],
    *,
    slots: Ints,
    n_parts: int,
    fields: list[ExporterName],
) -> dict[str, Floats]:
    """One column per metric out of the slots that give it."""
    wholes: dict[str, list[tuple[int, int]]] = {}
    parts: dict[str, dict[int, list[int]]] = {}
    for at, slot in enumerate(slots.tolist()):
        number, part = divmod(slot, n_parts)
        field = fields[number]
        if field.part or part:
            parts.setdefault(field.metric.column, {}).setdefault(field.rank, []).append(at)
        else:
            wholes.setdefault(field.metric.column, []).append((field.rank, at))
    columns = {}
    for metric in METRICS:
        if metric.column not in wholes and metric.column not in parts:
            continue
        column = np.full(cells.shape[0], np.nan)
        for _, at in sorted(wholes.get(metric.column, [])):
            column = np.where(np.isnan(column), cells[:, at], column)
        for _, places in sorted(parts.get(metric.column, {}).items()):
            total = np.nansum(cells[:, places], axis=1)
            is_known = ~np.isnan(cells[:, places]).all(axis=1) & ~is_blank[:, places].any(axis=1)
            column = np.where(np.isnan(column) & is_known, total, column)
        columns[metric.column] = column
    return columns
