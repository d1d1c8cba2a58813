"""Builds core tables from raw ones: deduplicated, resolved against the inventory, accounted for.

How raw records are read is in `pipelines.sources`; incidents are built in `features.incidents`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.contracts import REJECT_SCHEMA, TableContract
from features.job_attempts import job_attempts, step_causes
from features.node_intervals import node_intervals
from features.packing import floor_to_ms, to_resolution
from features.scheduler_states import job_cause, node_state
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_JOBS,
    CORE_NODE_STATES,
)

REPEAT_GAP: Final = timedelta(seconds=5)
"""Repeats of a health event within this time, and one hour, are one event (and one Xid chain)."""

CLOCK_TOLERANCE: Final = timedelta(minutes=10)
"""How far a sample's time may lie after its reading before its clock is not believed."""


@dataclass(frozen=True)
class Built:
    """A core table with the account of the raw rows it was built from.

    n_read + n_added == frame.height + n_merged + n_skipped + the counts in rejects.

    Attributes:
        frame: Rows that hold the table's contract.
        rejects: One row per rule broken: rule, count, example.
        n_read: Raw rows given.
        n_merged: Raw rows that went into another row: duplicates, repeats.
        n_skipped: Raw rows that the table is not about: job steps.
        n_added: Rows that no raw row is: times between sightings that nobody saw.
    """

    frame: pl.DataFrame
    rejects: pl.DataFrame
    n_read: int
    n_merged: int = 0
    n_skipped: int = 0
    n_added: int = 0


def build_core_telemetry(raw: pl.DataFrame, inventory: pl.DataFrame) -> Built:
    """One row per GPU and millisecond, gauges on the steps of their resolution.

    Rows of one GPU and moment are merged: each metric takes the first known value, the sources in
    alphabetical order and each source's rows in the order given. A node that the source did not
    give is taken from the GPU's stay.

    Args:
        raw: raw/gpu_telemetry.
        inventory: core/inventory.

    Returns:
        core/gpu_telemetry, sorted by (gpu_uuid, ts).
    """
    is_early = pl.col("ts") > pl.col("ingested_at") + CLOCK_TOLERANCE
    raw_kept, rejects = _set_aside(raw, [("ts is later than the time of reading", is_early)])
    clean = raw_kept.with_columns(floor_to_ms(pl.col("ts")))
    merged = _merged_samples(clean)
    return _built(
        CORE_GPU_TELEMETRY,
        _with_stay_nodes(merged, inventory),
        rejects=[rejects],
        n_read=raw.height,
        n_merged=raw_kept.height - merged.height,
    )


def _merged_samples(raw: pl.DataFrame) -> pl.DataFrame:
    """One row per (gpu_uuid, ts) in their order, each column with the first value known.

    Rows are put in order by numbers and each column is then taken once: sorting whole rows and
    grouping them takes three to four times as long.
    """
    order = raw.select(
        _rank(raw["gpu_uuid"]).alias("gpu"),
        pl.col("ts").to_physical(),
        _rank(raw["source"]).alias("source"),
    ).with_row_index("row")
    order = order.sort("gpu", "ts", "source", maintain_order=True)
    is_first = order.select(
        pl.col("gpu").ne_missing(pl.col("gpu").shift())
        | pl.col("ts").ne_missing(pl.col("ts").shift())
        | (pl.int_range(pl.len()) == 0)
    ).to_series()
    rows, starts = order["row"], is_first.arg_true().to_numpy()
    known = [
        _first_known(raw[name], rows, starts)
        for name in CORE_GPU_TELEMETRY.schema
        if name in CORE_GPU_TELEMETRY.key or raw[name].null_count() < raw.height
    ]
    is_known = {column.name for column in known}
    return pl.DataFrame(known).select(
        name if name in is_known else pl.lit(None, dtype).alias(name)
        for name, dtype in CORE_GPU_TELEMETRY.schema.items()
    )


def _rank(words: pl.Series) -> pl.Series:
    """Place of each word among the distinct ones, sorted; null stays null."""
    distinct = words.unique().drop_nulls().sort()
    places = pl.int_range(len(distinct), dtype=pl.UInt32, eager=True)
    return words.replace_strict(distinct, places, default=None, return_dtype=pl.UInt32)


def _first_known(values: pl.Series, rows: pl.Series, starts: npt.NDArray[Any]) -> pl.Series:
    """The first known value of each group, on the steps of its resolution.

    Args:
        values: One column.
        rows: Its rows in order, groups together.
        starts: Where in `rows` each group starts.
    """
    if values.dtype.is_float():
        values = values.fill_nan(None)
    values = values.rechunk()
    if len(starts) == len(rows):
        return to_resolution(values.gather(rows))
    if values.null_count():
        # The place in `rows` of each known value; past the end for the others.
        n_rows = np.uint32(len(rows))
        is_known = values.is_not_null().gather(rows).to_numpy()
        places = np.where(is_known, np.arange(n_rows, dtype=np.uint32), n_rows)
        first = pl.Series(np.minimum.reduceat(places, starts))
        rows = rows.gather(first.set(first == n_rows, None))
    else:
        rows = rows.gather(starts)
    return to_resolution(values.gather(rows))


def _with_stay_nodes(samples: pl.DataFrame, inventory: pl.DataFrame) -> pl.DataFrame:
    """Gives samples without a node the one in which their GPU stayed."""
    places = samples["node"].is_null().arg_true()
    if places.is_empty():
        return samples
    stays = inventory.select("gpu_uuid", pl.col("node").alias("stay_node"), *_VALIDITY)
    homeless = samples.select("gpu_uuid", "ts").gather(places)
    found = _at_stay(homeless, stays, by=["gpu_uuid"])["stay_node"]
    return samples.with_columns(samples["node"].clone().scatter(places, found))


def build_health_events(raw: pl.DataFrame, inventory: pl.DataFrame) -> Built:
    """Health events with their GPU, repeats counted instead of repeated.

    Lines of one node, device, kind, code and severity that follow each other within 5 s are
    repeats; a storm of them gives one event per 5 s. Each hour (UTC) counts anew, so that an
    hour's events rest on its own lines alone: whatever else is built with them, and in whatever
    order lines came, they are the same. Only earlier lines decide what belongs together, so what
    comes later changes no event but its count (which therefore is no feature).

    Args:
        raw: raw/kernel_log.
        inventory: core/inventory; finds the GPU by node and device at the time of the event.

    Returns:
        core/health_events, sorted by (ts, event_id). Lines without a node or a time are rejects.
    """
    is_lost = [
        ("node is null", pl.col("node").is_null()),
        ("ts is null", pl.col("ts").is_null()),
    ]
    kept, rejects = _set_aside(raw, is_lost)
    device = ["node", "pci_bus_id", "kind", "code", "severity"]
    in_hour = [*device, "hour"]
    since_last = pl.col("ts") - pl.col("ts").shift(1).over(in_hour)
    chain = (since_last > REPEAT_GAP).fill_null(value=True).cum_sum().over(in_hour)
    in_chain = pl.col("ts") - pl.col("ts").min().over(*in_hour, "chain")
    gap_us = REPEAT_GAP // timedelta(microseconds=1)
    # The first slice is closed on both sides: a repeat after exactly 5 s is still a repeat.
    slice_number = ((in_chain.dt.total_microseconds() - 1).clip(0) // gap_us).alias("slice")
    events = (
        kept.sort("ts", maintain_order=True)
        .with_columns(pl.col("ts").dt.truncate("1h").alias("hour"))
        .with_columns(chain.alias("chain"))
        .with_columns(slice_number)
        .group_by(*in_hour, "chain", "slice", maintain_order=True)
        .agg(
            pl.col("ts").first(),
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("line").first().alias("message"),
        )
        .drop("hour", "chain", "slice")
        .with_columns(_event_id())
        .sort("ts", "event_id")
    )
    stays = inventory.select("gpu_uuid", "node", "pci_bus_id", *_VALIDITY)
    gpu_uuid = _at_stay(events, stays, by=["node", "pci_bus_id"])["gpu_uuid"]
    return _built(
        CORE_HEALTH_EVENTS,
        events.with_columns(gpu_uuid),
        rejects=[rejects],
        n_read=raw.height,
        n_merged=kept.height - events.height,
    )


def build_jobs(raw: pl.DataFrame) -> Built:
    """One row per attempt of a job, whatever the number of times and the order it was read.

    Steps are skipped: the job's own record holds what happened to it. Only where that leaves the
    cause open is a step asked that ran out of memory or lost its node.

    Args:
        raw: raw/job_log.

    Returns:
        core/jobs, sorted by (job_id, attempt).
    """
    parents = raw.filter(pl.col("step").is_null())
    steps = raw.filter(pl.col("step").is_not_null())
    attempts = job_attempts(parents).with_columns(
        pl.int_range(pl.len()).over("job_id").cast(pl.Int32).alias("attempt")
    )
    states = attempts["state"]
    causes = _by_distinct(states, "cause", [job_cause(state) for state in _distinct(states)])
    named = attempts.with_columns(causes).join(
        step_causes(steps, attempts), on=["job_id", "attempt"], how="left", maintain_order="left"
    )
    is_open = pl.col("cause") == "unknown"
    cause = (
        pl.when(is_open).then(pl.coalesce("step_cause", "cause")).otherwise("cause").alias("cause")
    )
    jobs = named.with_columns(cause, end_state="state").select(CORE_JOBS.schema.names())
    return _built(
        CORE_JOBS,
        jobs,
        n_read=raw.height,
        n_merged=parents.height - jobs.height,
        n_skipped=steps.height,
    )


def build_node_states(raw: pl.DataFrame) -> Built:
    """Intervals in which nodes were up, drained, down or in an unknown state.

    See `features.node_intervals`: records and sightings are joined, and the worst holds.

    Args:
        raw: raw/node_states.

    Returns:
        core/node_states, sorted by (node, valid_from, state).
    """
    states = [node_state(text) for text in _distinct(raw["state"])]
    named = raw.with_columns(_by_distinct(raw["state"], "state", list(states)))
    is_backward = pl.col("valid_to") < pl.col("valid_from")
    kept, rejects = _set_aside(named, [("valid_to is before valid_from", is_backward)])
    found = node_intervals(kept)
    built = _built(
        CORE_NODE_STATES,
        found.select(CORE_NODE_STATES.schema.names()),
        rejects=[rejects],
        n_read=raw.height,
        n_merged=max(0, kept.height - found.height),
    )
    return replace(built, n_added=max(0, found.height - kept.height))


_VALIDITY: Final = ("valid_from", "valid_to")


def _at_stay(rows: pl.DataFrame, stays: pl.DataFrame, *, by: list[str]) -> pl.DataFrame:
    """What the latest stay that covers each row's `ts` says, in the rows' order; null: none does.

    Args:
        rows: Rows with `ts` and the columns `by`.
        stays: Rows with the columns `by`, valid_from, valid_to and what is asked for.
        by: Columns that name the device.
    """
    numbered = rows.select(*by, "ts").with_row_index("row")
    began = pl.col("valid_from").is_null() | (pl.col("valid_from") <= pl.col("ts"))
    goes_on = pl.col("valid_to").is_null() | (pl.col("ts") < pl.col("valid_to"))
    devices = numbered.select(by).unique()
    found = (
        numbered.join(stays.join(devices, on=by, how="semi"), on=by)
        .filter(began & goes_on)
        .sort("valid_from", nulls_last=False)
        .unique("row", keep="last", maintain_order=True)
    )
    return numbered.select("row").join(
        found.drop(by, "ts"), on="row", how="left", maintain_order="left"
    )


def _set_aside(
    frame: pl.DataFrame, rules: Sequence[tuple[str, pl.Expr]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Splits off the rows that break a rule; a row counts under the first rule it breaks."""
    rejects: list[dict[str, object]] = []
    for rule, is_bad in rules:
        if not frame.select(is_bad.any()).item():
            continue
        bad = frame.filter(is_bad)
        example = str(bad.row(0, named=True))
        rejects.append({"rule": rule, "count": bad.height, "example": example})
        frame = frame.filter(~is_bad.fill_null(value=False))
    return frame, pl.DataFrame(rejects, schema=REJECT_SCHEMA)


def _built(
    table: TableContract,
    frame: pl.DataFrame,
    *,
    rejects: Sequence[pl.DataFrame] = (),
    n_read: int,
    n_merged: int = 0,
    n_skipped: int = 0,
) -> Built:
    """Holds the frame against the table's contract and gathers the account."""
    enforced = table.enforce(frame)
    return Built(
        enforced.frame,
        pl.concat([*rejects, enforced.rejects]),
        n_read=n_read,
        n_merged=n_merged,
        n_skipped=n_skipped,
    )


def _event_id() -> pl.Expr:
    parts = [
        pl.col("node"),
        pl.col("pci_bus_id").fill_null("-"),
        pl.col("kind"),
        pl.col("code").cast(pl.String).fill_null("-"),
        pl.col("severity"),
        pl.col("ts").dt.strftime("%Y%m%dT%H%M%S%.6fZ"),
    ]
    return pl.concat_str(parts, separator="/", ignore_nulls=True).alias("event_id")


def _distinct(words: pl.Series) -> list[str]:
    return list(words.unique(maintain_order=True).drop_nulls())


def _by_distinct(words: pl.Series, name: str, meanings: Sequence[str | None]) -> pl.Series:
    """Replaces each distinct word, in order of first appearance, by its meaning."""
    new = pl.Series(meanings, dtype=pl.String)
    old = pl.Series(_distinct(words), dtype=pl.String)
    return words.replace_strict(old, new, default=None, return_dtype=pl.String).alias(name)
