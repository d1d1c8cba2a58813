"""Fields of API objects: absent, null, of another type, beyond any range."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.kubernetes.objects import (
    TEXT_LENGTH,
    cut,
    items,
    mapping,
    parse_moment,
    quantity,
    text,
    whole,
    written_by,
)

_WORDS = st.text(max_size=8)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-01-05T08:00:00Z", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("2026-01-05t08:00:00z", datetime(2026, 1, 5, 8, tzinfo=UTC)),
        ("2026-01-05T08:00:00.123456789Z", datetime(2026, 1, 5, 8, 0, 0, 123456, tzinfo=UTC)),
        ("2026-01-05T08:00:00.5+05:30", datetime(2026, 1, 5, 2, 30, 0, 500000, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+10:00", None),
        ("2026-02-31T00:00:00Z", None),
        ("2026-01-05", None),
        ("2026-01-05T08:00:00", None),
        ("٢026-01-05T08:00:00Z", None),
        (1767600000, None),
        (None, None),
        ({}, None),
    ],
)
def test_times_are_rfc_3339_and_unset_ones_are_null(written: Any, read: datetime | None):
    assert parse_moment(written) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("8", 8),
        (8, 8),
        (" 8 ", 8),
        ("2k", 2000),
        ("1Ki", 1024),
        ("500m", Decimal("0.5")),
        ("1e1", 10),
        ("2E", 2 * 10**18),
        ("0", 0),
        ("-1", -1),
        ("eight", None),
        ("", None),
        ("8 GPUs", None),
        ("9" * 40, None),
        (10**40, None),
        (True, None),
        (1.5, None),
        (None, None),
        ([8], None),
    ],
)
def test_quantities_are_read_as_the_api_writes_them(written: Any, read: Any):
    assert quantity(written) == read


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, True, 1.0, "1", None, []])
def test_whole_numbers_fit_the_column_or_are_null(value: Any):
    assert whole({"n": value}, "n") is None


def test_a_path_through_other_types_ends_in_nothing():
    assert mapping({"a": [1]}, "a", "b") == {}
    assert mapping(None, "a") == {}
    assert list(items({"a": [1, {"b": 2}, None]}, "a")) == [{"b": 2}]
    assert list(items({"a": {"b": 2}}, "a")) == []
    assert text({"a": ""}, "a") is None


def test_the_owner_of_a_field_is_the_manager_whose_entry_has_it():
    found = {
        "metadata": {
            "managedFields": [
                {"manager": "kubelet", "fieldsV1": {"f:status": {}}},
                None,
                {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
            ]
        }
    }
    assert written_by(found, "f:spec", "f:unschedulable") == ("kubectl-cordon", None)
    assert written_by(found, "f:spec", "f:taints") == (None, None)


@given(ANY_JSON)
def test_any_json_has_fields_or_none(value: Any):
    mapping(value, "a", "b")
    parse_moment(value)
    quantity(value)


@given(st.text(max_size=3000))
def test_messages_are_one_short_line(words: str):
    line = cut(words)
    assert len(line) <= TEXT_LENGTH
    assert "\n" not in line
