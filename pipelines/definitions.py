"""Everything Dagster serves, named module by module.

Assets are defined in `pipelines.defs`; `build_definitions` joins them for one installation.
"""

from datetime import datetime
from pathlib import Path

import dagster as dg

from pipelines.defs.core import core_assets
from pipelines.defs.features import feature_assets
from pipelines.defs.models import model_assets
from pipelines.defs.monitoring import monitoring_assets, monitoring_checks
from pipelines.defs.partitions import partitions_of
from pipelines.defs.raw import raw_assets
from pipelines.io import ParquetTables
from pipelines.resources import Installation
from pipelines.settings import load_settings, settings_path


def build_definitions(settings_file: Path, *, now: datetime | None = None) -> dg.Definitions:
    """The definitions of one installation.

    Args:
        settings_file: Its settings file.
        now: A fixed clock, for demonstrations and tests; None: the machine's.

    Raises:
        SettingsError: The settings file cannot be used.
    """
    settings = load_settings(settings_file)
    partitions = partitions_of(settings)
    return dg.Definitions(
        assets=[
            *raw_assets(partitions),
            *core_assets(partitions),
            *feature_assets(partitions, settings),
            *model_assets(partitions),
            *monitoring_assets(),
        ],
        asset_checks=monitoring_checks(),
        resources={
            "io_manager": ParquetTables(
                root=str(settings.store_root), landing_root=str(settings.landing_root)
            ),
            "installation": Installation(
                settings_file=str(settings_file), frozen_now=now.isoformat() if now else ""
            ),
        },
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The installation that the environment names (FOREWARN_SETTINGS)."""
    return build_definitions(settings_path())
