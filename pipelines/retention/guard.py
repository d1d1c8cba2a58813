"""Whether retention keeps what features, labels, training and judging rest on, by a right clock.

The numbers are in `pipelines.sections.retention`; nothing is removed here.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from features.errors import DataError, SettingsError
from features.history_features import HistorySpec
from features.raw_tables import RAW_GPU_TELEMETRY, RAW_KERNEL_LOG
from features.telemetry_features import telemetry_reach
from pipelines.flow.drift import WEEKS
from pipelines.flow.feature_set import telemetry_spec
from pipelines.landing.ingest import landing_of
from pipelines.settings import RollingSplit, Settings
from pipelines.sources.site.input_base import WindowInput
from pipelines.sources.site.listing import load_inputs

_DAY: Final = timedelta(days=1)
_REMEMBERED_DAYS: Final = 7
"""How far core/coverage looks back in what has landed."""
_CATCH_UP_DAYS: Final = 2
"""Time in which a site that was off for a weekend is brought up to date."""
_LEAST_TRAINING_DAYS: Final = 30
"""Days that training is to have where it takes all there is."""
_JUDGED_DAYS: Final = 14
"""Late news is judged for a week, and a week is judged whole."""
_SILENT: Final = timedelta(days=7)
"""Where nothing newer has landed, the clock is as likely wrong as every source silent."""


def check_retention(settings: Settings, *, now: datetime) -> None:
    """Refuses numbers by which something would be removed that is still needed.

    Args:
        settings: The installation.
        now: The present.

    Raises:
        SettingsError: Every number that is too small, with what needs more; nothing was removed.
    """
    if wrong := list(problems(settings, now=now)):
        raise SettingsError("retention: " + "; ".join(wrong) + ". Nothing was removed.")


def check_clock(settings: Settings, *, now: datetime) -> None:
    """Refuses a present that is far ahead of all that servers and nodes gave a time.

    A machine's clock that is a year ahead would make a year of data old. What it stamps itself,
    such as inventories, says nothing about it; records from after the present neither.

    Args:
        settings: The installation.
        now: The present.

    Raises:
        DataError: The newest record is older than a week; nothing was removed.
    """
    tables = (RAW_GPU_TELEMETRY.asset_key, RAW_KERNEL_LOG.asset_key)
    newest = landing_of(settings).journal.newest(tables, until=now)
    end = settings.data_end(now)
    if newest is not None and end - newest > _SILENT:
        raise DataError(
            f"retention: the newest record is of {newest:%Y-%m-%d %H:%M} UTC, and the clock says "
            f"{now:%Y-%m-%d %H:%M}: by a wrong clock, data would go that is not over. Nothing was "
            f"removed. If the clock is right, see why nothing lands (forewarn ingest); of a record "
            f"that has ended, give its end in the settings."
        )


def problems(settings: Settings, *, now: datetime) -> Iterator[str]:
    """As `check_retention`, each problem as a sentence."""
    kept = settings.retention
    for key, needed, why in needs(settings, now=now):
        if getattr(kept, key) < needed:
            yield f"{key} is {getattr(kept, key)}, but {why}: at least {needed} are needed"


def needs(settings: Settings, *, now: datetime) -> Iterator[tuple[str, int, str]]:
    """What each number must be at least, with the reason.

    Args:
        settings: The installation.
        now: The present.

    Yields:
        Key of the section, days, and the reason.
    """
    outcome = _days(settings.lead + timedelta(hours=max(settings.horizons_h)))
    yield from _of_features(settings)
    yield from _of_training(settings, outcome, now=now)
    weeks = WEEKS * 7 + 7 + outcome
    yield "scores_days", weeks, f"drift compares {WEEKS} weeks of scores with what came"
    judged_days = 2 * outcome + _JUDGED_DAYS
    yield "outcomes_days", judged_days, "outcomes are judged anew until late news is in"
    look_back = settings.schedule.look_back_days
    yield (
        "dagster_days",
        look_back + _CATCH_UP_DAYS,
        f"what was made in the last {look_back} days must not be made again",
    )


def _of_features(settings: Settings) -> Iterator[tuple[str, int, str]]:
    """What features rest on."""
    kept = settings.retention
    reach = telemetry_reach(telemetry_spec(settings))
    yield "landing_days", _landing_days(settings), "late data comes, and coverage looks back"
    yield (
        "telemetry_days",
        _days(reach) + _CATCH_UP_DAYS,
        f"features look {_days(reach)} days back and catching up takes {_CATCH_UP_DAYS}",
    )
    longest = max(HistorySpec().windows)
    yield (
        "history_days",
        kept.matrix_days + _days(longest),
        f"history features look {longest.days} days back from all {kept.matrix_days} of the matrix",
    )


def _of_training(
    settings: Settings, outcome: int, *, now: datetime
) -> Iterator[tuple[str, int, str]]:
    """What training, calibration and tests rest on."""
    training, why = _training_days(settings, now=now)
    yield "matrix_days", training + outcome, f"{why}, and outcomes take {outcome} more"
    if settings.retention.matrix_every_h > 1:
        judged = _judged_days(settings, now=now)
        yield (
            "matrix_full_days",
            judged + outcome,
            f"thresholds and tests of {judged} days need every hour",
        )


def _landing_days(settings: Settings) -> int:
    inputs = load_inputs(settings.inputs).spec.inputs
    late = max((one.late_hours for one in inputs if isinstance(one, WindowInput)), default=0)
    return max(_REMEMBERED_DAYS, _days(timedelta(hours=late))) + _CATCH_UP_DAYS


def _training_days(settings: Settings, *, now: datetime) -> tuple[int, str]:
    """Days before the record's end that training reaches back to, and why."""
    split, span = settings.split, settings.training.span
    if split is None:
        return 1, "there is no split"
    if isinstance(split, RollingSplit):
        judged = split.valid_days + split.test_days
        reach = span if isinstance(span, int) else _LEAST_TRAINING_DAYS
        return judged + reach, f"calibration and test take {judged} days and training {reach}"
    since = settings.start
    if isinstance(span, int):
        since = max(since, split.train_until - timedelta(days=span))
    days = _days(settings.data_end(now) - since)
    return days, f"split names fixed times and training reaches back to {since:%Y-%m-%d}"


def _judged_days(settings: Settings, *, now: datetime) -> int:
    """Days before the record's end that thresholds and tests rest on."""
    split = settings.split
    if split is None:
        return 1
    if isinstance(split, RollingSplit):
        return split.valid_days + split.test_days
    return _days(settings.data_end(now) - split.train_until)


def _days(length: timedelta) -> int:
    return -(-length // _DAY)
