"""Feature and label assets.

What a feature or a label is lives in `features.matrix` and `features.labels`.
"""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg
import polars as pl

from features.core_tables import CoreTables
from features.tables import CORE_HEALTH_EVENTS
from features.telemetry_features import telemetry_reach
from pipelines.defs.partitions import ONE_RUN, Partitions, run_span
from pipelines.defs.resources import Installation
from pipelines.defs.table_look import TableLook, core_ins
from pipelines.flow.feature_set import telemetry_spec
from pipelines.flow.steps import gpu_matrix_of, labels_of
from pipelines.orchestration.early_hours import note_made
from pipelines.orchestration.hour_state import missing_core
from pipelines.settings import Settings


def feature_assets(
    partitions: Partitions, settings: Settings, look: TableLook
) -> Sequence[dg.AssetsDefinition]:
    """The feature and label assets of one installation.

    Args:
        partitions: How they are cut.
        settings: How far features look back.
        look: How they are shown.
    """
    return [
        _gpu_matrix(partitions, settings, look),
        _labels(partitions, look),
    ]


def _gpu_matrix(partitions: Partitions, settings: Settings, look: TableLook) -> dg.AssetsDefinition:
    telemetry = partitions.trailing(telemetry_reach(telemetry_spec(settings)))
    history = partitions.trailing(timedelta(days=30))

    @look.asset(
        "features/gpu_matrix",
        deps=[dg.AssetDep(["core", "gpu_telemetry"], partition_mapping=telemetry)],
        ins={
            "health_events": dg.AssetIn(["core", "health_events"], partition_mapping=history),
            **core_ins("jobs", "incidents", "inventory", "topology"),
        },
        partitions_def=partitions.data,
        backfill_policy=ONE_RUN,
        code_version="1",
        description="One row per GPU and hour; nothing at or after as_of enters it.",
    )
    def gpu_matrix(
        context: dg.AssetExecutionContext, installation: Installation, **core: pl.DataFrame
    ) -> pl.DataFrame:
        settings, span = installation.settings, run_span(context)
        lacked = missing_core(settings, now=installation.now)
        catalogue = installation.catalogue
        matrix = gpu_matrix_of(CoreTables(**core), settings, catalogue=catalogue, span=span)
        note_made(settings.data_root, span, lacked=lacked, step=partitions.step)
        return matrix

    return gpu_matrix


def _labels(partitions: Partitions, look: TableLook) -> dg.AssetsDefinition:
    @look.asset(
        "features/labels",
        ins=core_ins("incidents", "inventory", "maintenance", "node_states"),
        partitions_def=partitions.daily,
        backfill_policy=ONE_RUN,
        code_version="1",
        description="Outcome per GPU and node, hour and horizon; null where it is unknown.",
    )
    def labels(
        context: dg.AssetExecutionContext, installation: Installation, **core: pl.DataFrame
    ) -> pl.DataFrame:
        settings, span = installation.settings, run_span(context)
        # Outcomes are known as far as events were ingested, not as far as the clock has run.
        seen = installation.store.covered_until(CORE_HEALTH_EVENTS)
        end = min(settings.data_end(installation.now), seen or settings.start)
        catalogue = installation.catalogue
        return labels_of(CoreTables(**core), settings, catalogue=catalogue, span=span, data_end=end)

    return labels
