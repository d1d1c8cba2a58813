"""What Dagster serves in `test_kill_nine`: an installation whose hourly sensor looks at once.

Hours fall due as the test moves the record's end, so they are cut from a second settings file,
which names the last of them. Beside that nothing differs from `pipelines.definitions`.
"""

import os
from pathlib import Path
from typing import Final

import dagster as dg

from pipelines.definitions import build_definitions
from pipelines.defs.resources import Installation
from pipelines.settings import settings_path

WHOLE_RECORD: Final = "FOREWARN_TEST_WHOLE_RECORD"
"""Environment variable: the settings file whose record ends where the test does."""
SENSOR_SECONDS: Final = "FOREWARN_TEST_SENSOR_SECONDS"


@dg.definitions
def defs() -> dg.Definitions:
    built = build_definitions(Path(os.environ[WHOLE_RECORD]))
    seconds = int(os.environ[SENSOR_SECONDS])
    for sensor in built.sensors or []:
        if sensor.name == "hourly":
            sensor._min_interval = seconds
    moving = Installation(settings_file=str(settings_path()))
    return dg.Definitions(
        assets=built.assets,
        asset_checks=built.asset_checks,
        jobs=built.jobs,
        schedules=built.schedules,
        sensors=built.sensors,
        resources={**(built.resources or {}), "installation": moving},
        executor=built.executor,
    )
