"""Rules of hours whose features were computed before older hours were made."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.orchestration.early_hours import FILE, note_made, read_early, to_make_anew
from pipelines.storage.store import Span

HOUR = timedelta(hours=1)
T0 = datetime(2026, 3, 1, tzinfo=UTC)


def hours(*numbers: int) -> set[datetime]:
    return {T0 + n * HOUR for n in numbers}


def note(folder: Path, first: int, last: int, *, lacked: set[datetime]) -> None:
    made = Span(T0 + first * HOUR, T0 + last * HOUR)
    note_made(folder, made, lacked=lacked, step=HOUR)


def test_an_hour_is_early_for_what_was_missing_before_it_and_is_not_made_with_it(
    tmp_path: Path,
) -> None:
    note(tmp_path, 10, 12, lacked=hours(2, 3, 7, 10, 15))
    assert read_early(tmp_path, step=HOUR) == {
        T0 + 10 * HOUR: hours(2, 3, 7),
        T0 + 11 * HOUR: hours(2, 3, 7),
    }


def test_made_again_with_its_whole_past_an_hour_is_forgotten_and_others_stay(
    tmp_path: Path,
) -> None:
    note(tmp_path, 10, 12, lacked=hours(2))
    note(tmp_path, 10, 11, lacked=set())
    assert read_early(tmp_path, step=HOUR) == {T0 + 11 * HOUR: hours(2)}


@given(lacked=st.sets(st.integers(0, 60)))
def test_what_was_missing_is_kept_to_the_hour(
    tmp_path_factory: pytest.TempPathFactory, lacked: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("early")
    note(folder, 100, 101, lacked=hours(*lacked))
    assert read_early(folder, step=HOUR) == ({T0 + 100 * HOUR: hours(*lacked)} if lacked else {})


@pytest.mark.parametrize(
    ("missing", "aside", "is_due"),
    [
        (hours(2, 3), set(), False),  # nothing has come
        (hours(3), set(), False),  # more is to come
        (set(), set(), True),
        (hours(3), hours(3), True),  # what is left cannot be made
        (hours(2, 3), hours(2, 3), False),  # made so already: it would never end
        (hours(9), set(), True),  # of no matter to it
    ],
)
def test_it_is_made_anew_once_its_past_has_been_made_up(
    missing: set[datetime], aside: set[datetime], is_due: bool
) -> None:
    early = {T0 + 10 * HOUR: hours(2, 3)}
    found = to_make_anew(early, missing=missing, aside=aside)
    assert found == (hours(10) if is_due else set())


def test_a_file_that_cannot_be_read_counts_as_empty(tmp_path: Path) -> None:
    for content in ("", "[]", '{"x": 1}', '{"2026-03-01T10": [["2026-03-01T02"]]}'):
        (tmp_path / FILE).write_text(content)
        assert read_early(tmp_path, step=HOUR) == {}
