"""Raw assets: what the site's inputs say, as received.

Parsing is in `pipelines.sources` and landing in `pipelines.landing.ingest`; nothing is interpreted
here.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import dagster as dg
import polars as pl

from features.tables import TABLE_BY_KEY
from pipelines.defs.partitions import ONE_RUN, Partitions, run_span
from pipelines.defs.resources import Installation
from pipelines.defs.retries import SOURCE_RETRIES, own_mistakes_are_final
from pipelines.defs.table_look import LANDING_POOL, TableLook
from pipelines.landing.ingest import (
    ingest,
    keep_outside,
    landing_of,
    raise_for_dead,
    read_static,
)
from pipelines.landing.ingest_run import STATIC_TABLES, InputOutcome
from pipelines.landing.landed import LANDED_TABLES
from pipelines.storage.store import Span

HOURLY: Final = ("raw/gpu_telemetry", "raw/kernel_log")
STATIC_POOL: Final = "site_records"
WHOLE: Final = tuple(key for key in LANDED_TABLES if key.startswith("raw/") and key not in HOURLY)


def raw_assets(partitions: Partitions, look: TableLook) -> Sequence[dg.AssetsDefinition]:
    """The raw assets of one installation.

    Args:
        partitions: How they are cut.
        look: How they are shown.
    """
    return [
        _raw_hourly(partitions, look),
        _raw_whole(look),
        _raw_static(look),
    ]


def _raw_hourly(partitions: Partitions, look: TableLook) -> dg.AssetsDefinition:
    @dg.multi_asset(
        specs=[_spec(key, look) for key in HOURLY],
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        retry_policy=SOURCE_RETRIES,
        pool=LANDING_POOL,
        description="GPU samples and kernel log lines of the run's hours, as received.",
    )
    def raw_hourly(
        context: dg.AssetExecutionContext, installation: Installation
    ) -> Iterator[dg.MaterializeResult[None]]:
        yield from _land(installation, HOURLY, span=run_span(context))
        keep_outside(installation.settings, installation.store)

    return raw_hourly


def _raw_whole(look: TableLook) -> dg.AssetsDefinition:
    @dg.multi_asset(
        specs=[_spec(key, look) for key in WHOLE],
        retry_policy=SOURCE_RETRIES,
        pool=LANDING_POOL,
        description="Jobs, their output and metrics, node states and devices seen, as received.",
    )
    def raw_whole(installation: Installation) -> Iterator[dg.MaterializeResult[None]]:
        yield from _land(installation, WHOLE, span=None)

    return raw_whole


def _raw_static(look: TableLook) -> dg.AssetsDefinition:
    @dg.multi_asset(
        outs={
            name.replace("/", "_"): dg.AssetOut(
                **look.spec(name), description=TABLE_BY_KEY[name].meaning
            )
            for name in STATIC_TABLES
        },
        deps=[["raw", "inventory"], ["raw", "node_states"]],
        retry_policy=SOURCE_RETRIES,
        pool=STATIC_POOL,
        description="Stays, places, planned work and incidents, as the site's records have them.",
    )
    def raw_static(installation: Installation) -> Iterator[dg.Output[pl.DataFrame]]:
        with own_mistakes_are_final():
            frames = read_static(installation.settings, installation.store, now=installation.now)
        for name, frame in frames.items():
            yield dg.Output(frame, output_name=name.replace("/", "_"))

    return raw_static


def _spec(key: str, look: TableLook) -> dg.AssetSpec:
    return dg.AssetSpec(**look.spec(key), description=TABLE_BY_KEY[key].meaning)


def _land(
    installation: Installation, tables: Sequence[str], *, span: Span | None
) -> Iterator[dg.MaterializeResult[None]]:
    """Lands what is new, then says what each table holds of the run's time."""
    settings = installation.settings
    with own_mistakes_are_final():
        outcomes = ingest(settings, now=installation.now, tables=tables)
        raise_for_dead(outcomes)
    for key in tables:
        rows = landing_of(settings).count(LANDED_TABLES[key], span=span)
        yield dg.MaterializeResult(
            asset_key=key.split("/"), metadata={"rows": rows, "inputs": _words(outcomes)}
        )


def _words(outcomes: Sequence[InputOutcome]) -> dg.MarkdownMetadataValue:
    lines = [
        f"- {outcome.name}: {outcome.n_landed} new, {outcome.n_known} known"
        + "".join(f"\n  - **failed**: {failure}" for failure in outcome.failures)
        for outcome in outcomes
    ]
    return dg.MetadataValue.md("\n".join(lines) or "no input gives these tables")
