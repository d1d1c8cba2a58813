"""Which jobs, schedules and sensors an installation has, and which of them are on.

What each does is in the module it comes from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from pipelines.defs.hourly import hourly_job, hourly_sensor
from pipelines.defs.schedules import (
    daily_job,
    daily_schedule,
    records_job,
    records_schedule,
    training_job,
    training_schedule,
)
from pipelines.defs.sensors import alerts_sensor, champion_sensor, drop_folder_sensor
from pipelines.sections.schedule import Part
from pipelines.settings import Settings

JOBS: Final = ("hourly", "records", "daily", "training")
_DAILY_GROUPS: Final = ("monitoring", "housekeeping")


@dataclass(frozen=True)
class Automation:
    """What runs the assets.

    Attributes:
        jobs: What can be run.
        schedules: What runs at a time of the day.
        sensors: What runs when something is found to be due.
    """

    jobs: Sequence[UnresolvedAssetJobDefinition]
    schedules: Sequence[dg.ScheduleDefinition]
    sensors: Sequence[dg.SensorDefinition]


def automation_of(
    assets: Sequence[dg.AssetsDefinition],
    settings: Settings,
    *,
    is_running: bool,
) -> Automation:
    """The automation of an installation.

    Args:
        assets: All its assets.
        settings: What is to run, and when.
        is_running: False: all is off until a person starts it, whatever the settings say.
    """
    chosen, whole = settings.schedule, sorted(_without_partitions(assets))
    hourly, records = hourly_job(settings), records_job(settings)
    daily = daily_job(settings, whole=whole)
    training = training_job(settings)

    def at_times(part: Part) -> dg.DefaultScheduleStatus:
        is_on = is_running and part in chosen.running
        return dg.DefaultScheduleStatus.RUNNING if is_on else dg.DefaultScheduleStatus.STOPPED

    def when_due(part: Part) -> dg.DefaultSensorStatus:
        is_on = is_running and part in chosen.running
        return dg.DefaultSensorStatus.RUNNING if is_on else dg.DefaultSensorStatus.STOPPED

    return Automation(
        jobs=(hourly, records, daily, training),
        schedules=(
            records_schedule(records, settings, status=at_times("records")),
            daily_schedule(daily, chosen, whole=whole, status=at_times("daily")),
            training_schedule(training, chosen, status=at_times("training")),
        ),
        sensors=(
            hourly_sensor((hourly, records), status=when_due("hourly")),
            drop_folder_sensor(records, status=when_due("drop_folder")),
            champion_sensor(hourly, status=when_due("champion_moved")),
            alerts_sensor(JOBS, status=when_due("operations_alerts")),
        ),
    )


def _without_partitions(assets: Sequence[dg.AssetsDefinition]) -> Iterator[str]:
    """Keys of what is made once a day as a whole."""
    for asset in assets:
        for spec in asset.specs:
            if spec.group_name in _DAILY_GROUPS and spec.partitions_def is None:
                yield "/".join(spec.key.path)
