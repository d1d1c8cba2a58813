"""Times of history files: what counts from 1970, and what lies beyond the years there are."""

from datetime import UTC, datetime

import polars as pl
import pytest

from pipelines.sources.history.mapping import FileFormat
from pipelines.sources.history.times import to_utc


@pytest.mark.parametrize(
    ("form", "text", "utc"),
    [
        ("epoch_s", "1767600000", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("epoch_s", "1767600000.5", datetime(2026, 1, 5, 8, 0, 0, 500_000, tzinfo=UTC)),
        ("epoch_ms", "1767600000000", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("epoch_us", "1767600000000000", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("epoch_s", "1767600000000", None),  # milliseconds, said to be seconds
        ("epoch_s", "99999999999999999", None),  # its microseconds do not fit 64 bits
        ("epoch_s", "-99999999999999999", None),
        ("epoch_s", "nan", None),
        ("epoch_s", "soon", None),
    ],
)
def test_counts_from_1970_are_a_moment_or_refused(form, text, utc):
    found = to_utc(pl.Series([text]), FileFormat(format="csv", time_format=form), where="f, at")
    assert found.utc.to_list() == [utc]
    assert found.refused.is_null().to_list() == [utc is not None]


def test_no_time_is_none_and_breaks_no_rule():
    form = FileFormat(format="csv", time_format="epoch_s")
    found = to_utc(pl.Series([None], dtype=pl.String), form, where="f, at")
    assert (found.utc.to_list(), found.refused.to_list()) == ([None], [None])
