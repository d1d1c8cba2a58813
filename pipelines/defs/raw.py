"""Raw assets: what the site's inputs say, as received.

Parsing is in `pipelines.sources`; nothing is interpreted here.
"""

from collections.abc import Iterator, Sequence

import dagster as dg
import polars as pl

from pipelines.defs.partitions import ONE_RUN, Partitions, run_span
from pipelines.ingest import STATIC_TABLES, read_raw
from pipelines.resources import Installation

KINDS = {"parquet"}


def raw_assets(partitions: Partitions) -> Sequence[dg.AssetsDefinition]:
    """The raw assets of one installation."""

    @dg.multi_asset(
        outs={
            "gpu_telemetry": dg.AssetOut(key=["raw", "gpu_telemetry"], kinds=KINDS),
            "kernel_log": dg.AssetOut(key=["raw", "kernel_log"], kinds=KINDS),
        },
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        group_name="raw",
        description="GPU samples and kernel log lines of the run's hours, as received.",
    )
    def raw_hourly(
        context: dg.AssetExecutionContext, installation: Installation
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        span = run_span(context)
        tables = ("raw/gpu_telemetry", "raw/kernel_log")
        raw = read_raw(installation.settings, tables, span=span, now=installation.now)
        raw.keep_accounts(installation.store, name="raw_hourly")
        return raw.frames["raw/gpu_telemetry"], raw.frames["raw/kernel_log"]

    @dg.multi_asset(
        outs={
            name.replace("/", "_"): dg.AssetOut(key=name.split("/"), kinds=KINDS)
            for name in STATIC_TABLES
        },
        group_name="raw",
        description="Jobs, node states, stays, places, planned work and incidents, as recorded.",
    )
    def raw_static(installation: Installation) -> Iterator[dg.Output[pl.DataFrame]]:
        raw = read_raw(installation.settings, STATIC_TABLES, span=None, now=installation.now)
        raw.keep_accounts(installation.store, name="raw_static")
        for name in STATIC_TABLES:
            yield dg.Output(raw.frames[name], output_name=name.replace("/", "_"))

    return [raw_hourly, raw_static]
