"""The `schedule` section: what Dagster runs by itself, when, and whom it names.

What is due is decided in `pipelines.orchestration.hour_plan` and
`pipelines.orchestration.day_plan`; nothing is run here.
"""

import re
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator

from pipelines.sections.section import Section

Part = Literal[
    "hourly", "records", "daily", "training", "drop_folder", "champion_moved", "operations_alerts"
]
PARTS: Final[tuple[Part, ...]] = (
    "hourly",
    "records",
    "daily",
    "training",
    "drop_folder",
    "champion_moved",
    "operations_alerts",
)
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_OWNER: Final = re.compile(r"team:\S+|[^@\s]+@[^@\s]+\.[^@\s]+")


class ScheduleSettings(Section):
    """What Dagster runs by itself; docs/orchestration.md says what each part does.

    Attributes:
        running: The parts that are on when Dagster sees them first; a person can stop or start
            each of them in its UI, which then counts.
        time_zone: Zone in which hours of the day are meant; data is cut by UTC in any case.
        owner: Who is named as the owner of every asset: `team:gpu-operations` or an address.
        scores: Whether Dagster scores each hour; false beside `forewarn score --loop`.
        daily_hour: Hour of the day of the daily job.
        training_weekday: Day of the training.
        training_hour: Its hour.
        catch_up_hours: Most hours that one run makes after time off.
        look_back_days: Hours older than this are left to a backfill by hand.
        attempts: Failures of an hour after which it is set aside: told of, and tried ever more
            rarely.
        retry_minutes: Wait after the first failure of an hour; it doubles, up to a day.
        longest_run_minutes: A run that takes longer is given up.
        stale_minutes: Age of the newest telemetry above which the check of its freshness fails.
        mlflow_url: Address of the MLflow pages, for links to model versions; None: no links.
    """

    running: tuple[Part, ...] = PARTS
    time_zone: str = "UTC"
    owner: str | None = None
    scores: bool = True
    daily_hour: int = Field(default=3, ge=0, le=23)
    training_weekday: Weekday = "sunday"
    training_hour: int = Field(default=4, ge=0, le=23)
    catch_up_hours: int = Field(default=48, ge=1, le=8784)
    look_back_days: int = Field(default=14, ge=1, le=366)
    attempts: int = Field(default=3, ge=1, le=20)
    retry_minutes: float = Field(default=5.0, gt=0, le=1440)
    longest_run_minutes: int = Field(default=120, ge=5, le=2880)
    stale_minutes: int = Field(default=120, ge=60, le=10_080)
    mlflow_url: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$")

    @field_validator("time_zone")
    @classmethod
    def _is_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError("no such time zone: give a name such as Europe/Berlin") from error
        return name

    @field_validator("owner")
    @classmethod
    def _is_owner(cls, owner: str | None) -> str | None:
        if owner is not None and not _OWNER.fullmatch(owner):
            raise ValueError("give team:NAME or an e-mail address")
        return owner
