"""Everything Dagster serves, named module by module.

Assets are defined in `pipelines.defs`; `build_definitions` joins them for one installation.
"""

import os
import warnings
from datetime import datetime
from pathlib import Path

import dagster as dg
from dagster_shared.utils.warnings import BetaWarning

from pipelines.defs.automation import automation_of
from pipelines.defs.checks import table_check_assets
from pipelines.defs.core import core_assets
from pipelines.defs.features import feature_assets
from pipelines.defs.housekeeping import housekeeping_assets
from pipelines.defs.io import ParquetTables
from pipelines.defs.models import model_assets
from pipelines.defs.monitoring import monitoring_assets
from pipelines.defs.partitions import partitions_of
from pipelines.defs.raw import raw_assets
from pipelines.defs.resources import Installation
from pipelines.defs.table_look import look_of
from pipelines.dev_servers import SCHEDULES_OFF
from pipelines.settings import Settings, load_settings, settings_path


def build_definitions(
    settings_file: Path, *, now: datetime | None = None, is_running: bool = True
) -> dg.Definitions:
    """The definitions of one installation.

    Args:
        settings_file: Its settings file.
        now: A fixed clock, for demonstrations and tests; None: the machine's.
        is_running: Whether schedules and sensors are on as the settings say; False: none is
            until a person starts it.

    Raises:
        SettingsError: The settings file cannot be used.
    """
    settings = load_settings(settings_file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # backfill policies are "beta" in Dagster
        return _definitions(settings, settings_file, now=now, is_running=is_running)


def _definitions(
    settings: Settings, settings_file: Path, *, now: datetime | None, is_running: bool
) -> dg.Definitions:
    partitions, look = partitions_of(settings), look_of(settings)
    assets = [
        *raw_assets(partitions, look),
        *core_assets(partitions, look),
        *feature_assets(partitions, settings, look),
        *model_assets(partitions, look),
        *monitoring_assets(look),
        *housekeeping_assets(look),
    ]
    automation = automation_of(assets, settings, is_running=is_running)
    return dg.Definitions(
        assets=assets,
        asset_checks=table_check_assets(assets),
        jobs=automation.jobs,
        schedules=automation.schedules,
        sensors=automation.sensors,
        resources={
            "io_manager": ParquetTables(
                root=str(settings.store_root),
                landing_root=str(settings.landing_root),
                settings_file=str(settings_file),
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
    return build_definitions(settings_path(), is_running=not os.environ.get(SCHEDULES_OFF))
