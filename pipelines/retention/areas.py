"""The areas that retention looks at in an installation.

What each knows of its own data is in `landing`, `records` and `tables`. Dagster's records are an
area, too: whoever has its instance adds it (`pipelines.defs.dagster_history`).
"""

from datetime import datetime

from pipelines.retention.chores import Area
from pipelines.retention.landing import LandingArea
from pipelines.retention.records import LeftoversArea, ModelsArea, ScoreDatabaseArea
from pipelines.retention.tables import TablesArea
from pipelines.settings import Settings


def areas_of(settings: Settings, *, now: datetime) -> list[Area]:
    """Every area but Dagster's, in the order in which they are done.

    Args:
        settings: The installation.
        now: The present.
    """
    return [
        LandingArea(settings, now),
        TablesArea(settings, now),
        ScoreDatabaseArea(settings, now),
        ModelsArea(settings, now),
        LeftoversArea(settings),
    ]
