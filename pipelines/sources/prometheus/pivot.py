"""Flat samples to wide rows in arrays, and an account of every sample.

The compiled loops are in `prometheus.rows`, the tables made of the rows in `prometheus.tables`;
servers are not known here.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from features.telemetry_metrics import Metric
from pipelines.sources.prometheus.readings import F64, I64, Readings, Window
from pipelines.sources.prometheus.series import Line, Meaning, Series
from pipelines.sources.result import ReadTally
from pipelines.sources.telemetry.dcgm_fields import blank_of

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """Wide rows of one answer, sorted by line and time.

    Attributes:
        lines: The lines, sorted.
        devices: PCI address and product name of each line, where said.
        starts: i64[n + 1]: which rows each line has.
        ts: i64: time of each row, milliseconds since 1970.
        is_kept: Rows of the window, and of no replica that another makes needless.
        cells: Values by metric column, f64, NaN where unknown.
    """

    lines: tuple[Line, ...]
    devices: tuple[tuple[str | None, str | None], ...]
    starts: I64
    ts: I64
    is_kept: Bools
    cells: dict[str, F64]

    def owners(self) -> I64:
        """Which line each kept row is of."""
        return np.repeat(np.arange(len(self.lines)), np.diff(self.starts))[self.is_kept]


@dataclass(frozen=True)
class _Plan:
    """Useful series and their segments, sorted by line, metric, rank of the name, and time."""

    series: tuple[Series, ...]
    meanings: tuple[Meaning, ...]
    lines: tuple[Line, ...]
    line_starts: I64
    quantities: tuple[tuple[Metric, str], ...]
    segments: I64
    owners: I64  # per segment: which of the series


def pivot(readings: Readings, window: Window, *, reach_ms: int, tally: ReadTally) -> Rows:
    """Turns samples into rows, one per line and sample time.

    Args:
        readings: Samples of the window, and around it where replicas need that.
        window: Half-open; samples outside make no rows and count nowhere.
        reach_ms: A row of a replica is dropped where one before it (by name) has a row this near;
            0: none is.
        tally: Counts each sample of the window once.

    Returns:
        The rows.
    """
    from pipelines.sources.prometheus import rows as loops

    readings = _sorted_segments(readings)
    inside = _inside(readings, window)
    _account_for_others(readings, inside, tally)
    plan = _plan(readings)
    row_ts = np.empty(int((plan.segments[:, 1] - plan.segments[:, 0]).sum()), np.int64)
    starts = np.zeros(len(plan.lines) + 1, np.int64)
    n = loops.union_rows(plan.line_starts, plan.segments, readings.ts, row_ts, starts)
    row_ts = row_ts[:n].copy()
    is_kept = (row_ts >= window.start) & (row_ts < window.end)
    is_kept &= ~_needless(plan.lines, starts, row_ts, reach_ms)
    cells, fates, examples = _filled(plan, readings, starts=starts, row_ts=row_ts, is_kept=is_kept)
    n_inside = int((inside[plan.segments[:, 1]] - inside[plan.segments[:, 0]]).sum())
    _account(plan, readings, fates=fates, examples=examples, n_inside=n_inside, tally=tally)
    devices = tuple(_devices(plan))
    return Rows(plan.lines, devices, starts, row_ts, is_kept, _columns(plan.quantities, cells))


def _sorted_segments(readings: Readings) -> Readings:
    """Sorts the samples of segments that are out of order; those of hardly any server are."""
    late = np.flatnonzero(np.diff(readings.ts) < 0) + 1
    starts = readings.segments[:, 0]
    inner = np.setdiff1d(late, starts)  # a step back between two segments is none
    if inner.size == 0:
        return readings
    ts, values = readings.ts.copy(), readings.values.copy()
    for start, end in readings.segments[(np.diff(readings.segments, axis=1) > 1).ravel()]:
        if (np.diff(ts[start:end]) < 0).any():
            by_time = start + np.argsort(ts[start:end], kind="stable")
            ts[start:end], values[start:end] = ts[by_time], values[by_time]
    return replace(readings, ts=ts, values=values)


def _inside(readings: Readings, window: Window) -> I64:
    """i64[samples + 1]: how many samples before each are in the window."""
    ts = readings.ts
    if ts.size == 0 or (ts.min() >= window.start and ts.max() < window.end):
        return np.arange(ts.size + 1)
    is_in = (ts >= window.start) & (ts < window.end)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(is_in, dtype=np.int64)])


def _account_for_others(readings: Readings, inside: I64, tally: ReadTally) -> None:
    """Counts what gives no row: stale markers, refused chunks, series of no use."""
    tally.read(readings.n_stale)
    tally.skipped(readings.n_stale)
    for rule, count, example in readings.refused:
        tally.read(count)
        tally.quarantined(rule, example, count=count)
    is_useless = np.array([series.meaning is None for series in readings.series], np.bool_)
    counts = inside[readings.segments[:, 1]] - inside[readings.segments[:, 0]]
    for place in np.flatnonzero(is_useless[readings.owners]) if is_useless.any() else ():
        series, count = readings.series[readings.owners[place]], int(counts[place])
        tally.read(count)
        if series.refused is None:
            tally.skipped(count)
        elif count:
            tally.quarantined(series.refused, series.text, count=count)


def _plan(readings: Readings) -> _Plan:
    known = [(s.key, i, s.meaning) for i, s in enumerate(readings.series) if s.meaning is not None]
    known.sort(key=itemgetter(0))  # stable: a series in several frames keeps its order
    meanings = tuple(meaning for _, _, meaning in known)
    lines = tuple(dict.fromkeys(meaning.line for meaning in meanings))
    quantities = {(m.metric.dcgm_id, m.part): (m.metric, m.part) for m in meanings}
    place = np.full(len(readings.series), -1, np.int64)
    place[[i for _, i, _ in known]] = np.arange(len(known))
    at = place[readings.owners]
    kept = np.flatnonzero((at >= 0) & (readings.segments[:, 0] < readings.segments[:, 1]))
    order = kept[np.lexsort((readings.ts[readings.segments[kept, 0]], at[kept]))]
    code = {line: i for i, line in enumerate(lines)}
    line_of = np.array([code[meaning.line] for meaning in meanings], np.int64)
    return _Plan(
        tuple(readings.series[i] for _, i, _ in known),
        meanings,
        lines,
        np.searchsorted(line_of[at[order]], np.arange(len(lines) + 1)),
        tuple(quantities[key] for key in sorted(quantities)),
        np.ascontiguousarray(readings.segments[order]),
        at[order],
    )


def _needless(lines: Sequence[Line], starts: I64, row_ts: I64, reach_ms: int) -> Bools:
    """Rows of a replica where another, earlier by name, has one near enough."""
    from pipelines.sources.prometheus.rows import near_any

    is_needless = np.zeros(len(row_ts), np.bool_)
    if reach_ms <= 0:
        return is_needless
    parts = list(zip(lines, starts[:-1], starts[1:], strict=True))
    for _, group in groupby(parts, key=lambda part: (part[0].gpu_uuid, part[0].node, part[0].slot)):
        replicas = list(group)
        for at, (_, start, end) in enumerate(replicas):
            for _, other_start, other_end in replicas[:at]:
                others = row_ts[other_start:other_end]
                near_any(row_ts[start:end], others, reach_ms, is_needless[start:end])
    return is_needless


def _filled(
    plan: _Plan, readings: Readings, *, starts: I64, row_ts: I64, is_kept: Bools
) -> tuple[F64, I64, I64]:
    """Cells by quantity and row, and the fates of all samples with examples."""
    from pipelines.sources.prometheus import rows as loops

    n = len(plan.quantities)
    places = {(metric.dcgm_id, part): i for i, (metric, part) in enumerate(plan.quantities)}
    metrics = np.array([places[m.metric.dcgm_id, m.part] for m in plan.meanings], np.int64)
    cells = np.full((n, len(row_ts)), np.nan)
    fates = np.zeros((n, loops.N_FATES), np.int64)
    examples = np.full((n, loops.N_FATES, 2), -1, np.int64)
    of = plan.owners
    loops.fill_rows(
        (plan.line_starts, starts, row_ts, is_kept),
        (
            plan.segments,
            metrics[of],
            np.array([m.rank for m in plan.meanings], np.int64)[of],
            np.array([m.scale for m in plan.meanings], np.float64)[of],
        ),
        (readings.ts, readings.values),
        np.array([_limits(metric) for metric, _ in plan.quantities]).reshape(n, 5),
        (cells, np.zeros(cells.shape, np.int8)),
        (fates, examples),
    )
    return cells, fates, examples


def _limits(metric: Metric) -> tuple[float, float, float, float, float]:
    """What `fill_rows` must know of a metric. -1 is NVML's "not known" of what cannot be less."""
    negative = -1.0 if metric.minimum >= 0 else math.nan
    is_whole = float(not metric.dtype.is_float())
    return metric.minimum, metric.maximum, is_whole, negative, blank_of(metric)


def _account(
    plan: _Plan,
    readings: Readings,
    *,
    fates: I64,
    examples: I64,
    n_inside: int,
    tally: ReadTally,
) -> None:
    """Counts the samples of useful series by what became of them."""
    from pipelines.sources.prometheus import rows as loops

    n_judged = int(fates.sum() - fates[:, loops.LEFT_OUT].sum())
    tally.read(n_inside)
    tally.parsed(int(fates[:, [loops.TAKEN, loops.BLANK]].sum()))
    # Left out within the window: another replica's row stands for it.
    tally.skipped(int(fates[:, loops.REPEAT].sum()) + n_inside - n_judged)
    rules = (loops.NOT_FINITE, loops.TOO_SMALL, loops.TOO_BIG, loops.DIFFERS)
    for (metric, _), counts, firsts in zip(plan.quantities, fates, examples, strict=True):
        words = (
            f"{metric.column} is not finite",
            f"{metric.column} < {metric.minimum:g}",
            f"{metric.column} > {metric.maximum:g}",
            f"{metric.column} differs from an earlier line of the same GPU and moment",
        )
        for fate, rule in zip(rules, words, strict=True):
            if counts[fate]:
                segment, sample = firsts[fate]
                value, moment = readings.values[sample].item(), readings.ts[sample].item()
                text = f"{plan.series[plan.owners[segment]].text} {value!r} {moment}"
                tally.quarantined(rule, text, count=int(counts[fate]))


def _columns(quantities: Sequence[tuple[Metric, str]], cells: F64) -> dict[str, F64]:
    """Cells by metric: the whole where a name gives it, else the sum of its parts.

    A part that is blank makes the sum unknown; one without a sample is a link that is not there.
    """
    from pipelines.sources.prometheus.rows import SAID_BLANK

    columns: dict[str, F64] = {}
    for column, group in groupby(zip(quantities, cells, strict=True), lambda one: one[0][0].column):
        whole: F64 | None = None
        sums: F64 | None = None
        for (_, part), values in group:
            if not part:
                whole = values
            elif sums is None:
                sums = values
            else:
                both = np.where(np.isnan(values), 0.0, values) + np.where(np.isnan(sums), 0.0, sums)
                sums = np.where(np.isnan(values) & np.isnan(sums), np.nan, both)
        sums = None if sums is None else np.where(sums == SAID_BLANK, np.nan, sums)
        whole = None if whole is None else np.where(whole == SAID_BLANK, np.nan, whole)
        if whole is not None and sums is not None:
            columns[column] = np.where(np.isnan(whole), sums, whole)
        elif (found := whole if sums is None else sums) is not None:
            columns[column] = found
    return columns


def _devices(plan: _Plan) -> Iterator[tuple[str | None, str | None]]:
    """PCI address and product name of each line: the first that one of its series says."""
    for _, group in groupby(plan.meanings, key=lambda meaning: meaning.line):
        of_line = list(group)
        yield (
            next((m.pci_bus_id for m in of_line if m.pci_bus_id), None),
            next((m.model for m in of_line if m.model), None),
        )
