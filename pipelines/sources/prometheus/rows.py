"""Compiled loops that turn long samples into wide rows: one row per line and sample time.

Which series belongs to which line is decided in `prometheus.pivot`, which calls these loops.
Importing this module compiles (seconds, once; then cached), so import it where it is used.

A *line* is a GPU as one exporter reports it. A *segment* is a stretch of one series' samples,
sorted by time. Segments are given as i64[m, 2], start and end of each among the samples.
`line_starts`, i64[n + 1], says which segments a line has, `row_starts` which rows.
"""

from typing import Any, Final

import numpy as np

from features.compiled import jit

# What became of a sample; counted by metric and fate.
TAKEN: Final = 0
BLANK: Final = 1
REPEAT: Final = 2
NOT_FINITE: Final = 3
TOO_SMALL: Final = 4
TOO_BIG: Final = 5
DIFFERS: Final = 6
LEFT_OUT: Final = 7
N_FATES: Final = 8

SAID_BLANK: Final = -np.inf
"""Stands in a cell for which there were only blanks, so that no sum of parts leaves one out."""


@jit
def _has_new(rows: Any, ts: Any) -> bool:
    """Whether a sorted list of times holds one that the sorted rows lack."""
    row = 0
    for moment in ts:
        while row < rows.shape[0] and rows[row] < moment:
            row += 1
        if row == rows.shape[0] or rows[row] != moment:
            return True
    return False


@jit
def _merge(rows: Any, ts: Any, out: Any) -> int:
    """Writes the distinct times of both sorted lists to `out`, sorted; returns how many."""
    n, row, i = 0, 0, 0
    while i < ts.shape[0] or row < rows.shape[0]:
        if row == rows.shape[0] or (i < ts.shape[0] and ts[i] <= rows[row]):
            moment = ts[i]
            i += 1
        else:
            moment = rows[row]
            row += 1
        if n == 0 or out[n - 1] != moment:
            out[n] = moment
            n += 1
    return n


@jit
def union_rows(line_starts: Any, segments: Any, ts: Any, row_ts: Any, row_starts: Any) -> int:
    """Finds the distinct sample times of each line.

    Args:
        line_starts: See the module.
        segments: See the module.
        ts: i64, times of the samples.
        row_ts: i64 of the length of `ts`, filled with the times, line after line, sorted.
        row_starts: Filled.

    Returns:
        Number of rows.
    """
    base = 0
    spare = np.empty(0, np.int64)
    for line in range(line_starts.shape[0] - 1):
        row_starts[line] = base
        n = 0
        for s in range(line_starts[line], line_starts[line + 1]):
            part = ts[segments[s, 0] : segments[s, 1]]
            if part.shape[0] == 0:
                continue
            # Most segments are the same scrapes as the first metric's, or their continuation.
            rows = row_ts[base : base + n]
            if not _has_new(rows, part):
                continue
            if spare.shape[0] < n + part.shape[0]:
                spare = np.empty(2 * (n + part.shape[0]), np.int64)
            n = _merge(rows, part, spare)
            row_ts[base : base + n] = spare[:n]
        base += n
    row_starts[line_starts.shape[0] - 1] = base
    return base


@jit
def near_any(moments: Any, others: Any, distance: int, out: Any) -> None:
    """Marks the sorted moments that lie within a distance of any of the sorted others."""
    place = 0
    for i in range(moments.shape[0]):
        while place < others.shape[0] and others[place] < moments[i] - distance:
            place += 1
        if place < others.shape[0] and others[place] <= moments[i] + distance:
            out[i] = True


@jit
def is_blank_value(value: float) -> bool:
    """The same rule as `dcgm_fields.is_blank`, compiled."""
    if np.isnan(value):
        return True
    return (
        2147483632.0 <= value <= 2147483647.0
        or value == 4294967295.0
        or 140737488355328.0 <= value <= 140737488355343.0
        or 9223372036854774784.0 <= value <= 18446744073709551616.0
    )


@jit
def _put(value: float, scale: float, rank: int, limits: Any, cell: Any, ranks: Any) -> int:
    """Scales, judges and stores one reading in a cell (of one element); returns its fate."""
    if is_blank_value(value) or value == limits[3] or value == limits[4]:
        if np.isnan(cell[0]):
            cell[0] = SAID_BLANK
        return BLANK
    if scale != 1.0:
        value *= scale
    if not np.isfinite(value):
        return NOT_FINITE
    if value < limits[0]:
        return TOO_SMALL
    if value > limits[1]:
        return TOO_BIG
    if limits[2] == 1.0:
        value = np.rint(value)
    if np.isnan(cell[0]) or cell[0] == SAID_BLANK:
        cell[0], ranks[0] = value, rank
        return TAKEN
    return REPEAT if cell[0] == value or ranks[0] != rank else DIFFERS


@jit
def fill_rows(rows: Any, segments: Any, samples: Any, limits: Any, cells: Any, fates: Any) -> None:
    """Puts each sample into its line's row, or counts why not.

    Args:
        rows: (line_starts, row_starts, row_ts, is_kept): see the module; the times of the rows;
            and a bool per row: samples of other rows are counted as LEFT_OUT.
        segments: (segments, metrics, ranks, scales): see the module; which row of the cells; the
            rank of the name (of several for a metric the lowest counts, and must come first
            within the line); the factor to the metric's unit.
        samples: (ts, values): i64 and f64.
        limits: f64[metrics, 5]: minimum, maximum, 1 where the metric is an integer, and two
            further numbers that stand for "no value" (NaN: none).
        cells: (cells, cell_ranks): f64[metrics, rows], NaN where there is no sample and
            `SAID_BLANK` where there are only blanks, and i8 of the same
            shape for the rank of the name that gave each cell; filled.
        fates: (counts, examples): i64[metrics, N_FATES], added to, and i64[metrics, N_FATES, 2]
            for segment and sample of the first of each; -1: none.
    """
    line_starts, row_starts, row_ts, is_kept = rows
    spans, metrics, ranks, scales = segments
    ts, values = samples
    values_of, ranks_of = cells
    counts, examples = fates
    for line in range(line_starts.shape[0] - 1):
        line_ts = row_ts[row_starts[line] : row_starts[line + 1]]
        for s in range(line_starts[line], line_starts[line + 1]):
            if spans[s, 0] == spans[s, 1]:
                continue
            metric = metrics[s]
            row = np.searchsorted(line_ts, ts[spans[s, 0]])
            for i in range(spans[s, 0], spans[s, 1]):
                while line_ts[row] < ts[i]:
                    row += 1
                at = row_starts[line] + row
                fate = LEFT_OUT
                if is_kept[at]:
                    cell, rank = values_of[metric, at : at + 1], ranks_of[metric, at : at + 1]
                    fate = _put(values[i], scales[s], ranks[s], limits[metric], cell, rank)
                counts[metric, fate] += 1
                if examples[metric, fate, 0] < 0:
                    examples[metric, fate, 0] = s
                    examples[metric, fate, 1] = i
