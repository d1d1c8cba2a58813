"""Where the record is cut for training now: the times of a fixed split, or days back from its end.

The two forms are in `pipelines.settings`; rows are cut in `models.training.splits`.
"""

from datetime import UTC, datetime, timedelta

from features.errors import SettingsError
from features.tables import GPU_MATRIX
from models.training.splits import Origin
from pipelines.settings import RollingSplit, Settings, SplitSettings
from pipelines.storage.store import TableStore


def split_of(settings: Settings, *, data_end: datetime | None = None) -> SplitSettings | None:
    """The two cuts; None where there is no split, or a rolling one leaves nothing to train on.

    A rolling split counts back from the last midnight, UTC, of the data, so that all that is made
    on one day is cut at the same times.

    Args:
        settings: The installation.
        data_end: Where its data ends; None: where its stored features end.
    """
    if not isinstance(settings.split, RollingSplit):
        return settings.split
    valid_until = _midnight(_end(settings, data_end)) - timedelta(days=settings.split.test_days)
    train_until = valid_until - timedelta(days=settings.split.valid_days)
    if train_until <= settings.start:
        return None
    return SplitSettings(train_until=train_until, valid_until=valid_until)


def origin_of(settings: Settings, *, data_end: datetime | None = None) -> Origin:
    """The cuts of a training, with the end of its test.

    Args:
        settings: The installation.
        data_end: As in `split_of`.

    Raises:
        SettingsError: There is no split, or it leaves nothing to train on.
    """
    split, end = split_of(settings, data_end=data_end), _end(settings, data_end)
    if settings.split is None:
        raise SettingsError(
            f"site {settings.site}: training needs split.train_until and split.valid_until; or, "
            f"for a record that goes on, split.valid_days and split.test_days"
        )
    if split is None:
        raise SettingsError(
            f"site {settings.site}: split leaves nothing to train on: its days back from "
            f"{end:%Y-%m-%d} reach to the record's start, {settings.start:%Y-%m-%d}. Wait until "
            f"the record is longer, or give fewer days."
        )
    is_rolling = isinstance(settings.split, RollingSplit)
    return Origin(split.train_until, split.valid_until, _midnight(end) if is_rolling else end)


def _end(settings: Settings, data_end: datetime | None) -> datetime:
    """The record's stated end; where it goes on, the data's."""
    if settings.end is not None:
        return settings.end
    stored = TableStore(settings.store_root).covered_until(GPU_MATRIX)
    return data_end or stored or settings.start


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
