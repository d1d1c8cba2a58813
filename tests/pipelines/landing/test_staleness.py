"""Rules of staleness: clocks that are wrong by any amount hold up nothing."""

from datetime import UTC, datetime, timedelta

from pipelines.landing.staleness import _stale_hours

HOUR = timedelta(hours=1)
T0 = datetime(2026, 1, 5, tzinfo=UTC)


def test_a_change_in_the_last_hour_there_is_makes_no_other_hour_stale() -> None:
    changed = {T0: 2, datetime(9999, 12, 31, 23, tzinfo=UTC): 3}
    assert _stale_hours(changed, {}, 3 * HOUR) == []
    assert _stale_hours(changed, {T0: 1, T0 + HOUR: 3}, 3 * HOUR) == [T0]
