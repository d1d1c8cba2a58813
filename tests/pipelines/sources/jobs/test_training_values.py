"""Names and values of training metrics in the spellings of many loggers."""

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from pipelines.sources.jobs.training_values import (
    MetricKeys,
    NoMomentError,
    checkpoint_of,
    is_in_ms,
    moment_of,
    names_alike,
    number_of,
    step_of,
)

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("key", "column"),
    [
        ("loss", "loss"), ("train_loss", "loss"), ("lm loss", "loss"), ("Loss/train", "loss"),
        ("train/loss", "loss"), ("grad_norm", "grad_norm"), ("Gradient Norm", "grad_norm"),
        ("grad-norm", "grad_norm"), ("global_step", "step"), ("iteration", "step"),
        ("_step", "step"), ("iteration-time", "step_time_s"), ("elapsed_ms", "step_time_s"),
        ("elapsed time per iteration (ms)", "step_time_s"), ("timestamp", "ts"),
        ("@timestamp", "ts"),
        ("last_checkpoint", "checkpoint_step"), ("eval_loss", None), ("lm loss vs samples", None),
        ("learning_rate", None), ("", None), ("损失", None),
    ],
)  # fmt: skip
def test_a_key_is_known_in_its_spellings(key, column):
    found = MetricKeys().by_name().get(names_alike(key))
    assert (found and found[0]) == column


def test_a_sites_own_key_comes_first_and_wins_over_a_default():
    names = MetricKeys({"loss": ("my/loss", "time")}).by_name()
    assert names["my_loss"] == ("loss", 0)
    assert names["time"] == ("loss", 1)
    assert names["loss"] == ("loss", 2)


def test_a_column_that_is_none_is_one_clear_error():
    with pytest.raises(SettingsError, match="lr is none; choose from loss, grad_norm"):
        MetricKeys({"lr": ("lr",)})


@pytest.mark.parametrize(
    ("name", "expected"),
    [("elapsed_ms", True), ("step_time", False), ("elapsed_time_per_iteration_ms", True),
     ("elapsed_time_per_iteration", True), ("items", False), ("step_time_s", False)],
)  # fmt: skip
def test_a_name_tells_milliseconds(name, expected):
    assert is_in_ms(name) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), ("1.5", 1.5), (" -1e-3 ", -0.001), (True, None), (None, None), ([1], None),
     ("", None), ("1_000", None), ("0x1", None), ("nano", None), (10**400, None), ("inf", math.inf),
     ("-Infinity", -math.inf), (float("inf"), math.inf), ("\u0661", None)],
)  # fmt: skip
def test_numbers_are_numbers_and_nothing_else(value, expected):
    assert number_of(value) == expected


@pytest.mark.parametrize("value", ["NaN", "nan", "-nan", float("nan")])
def test_nan_is_a_number_here(value):
    assert math.isnan(number_of(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (7.0, 7), ("12", 12), (2**63 - 1, 2**63 - 1), (2**63, None), (-1, None), (0.5, None),
     (float("nan"), None), (float("inf"), None), (True, None), ("x", None)],
)  # fmt: skip
def test_a_step_is_a_whole_number_from_zero(value, expected):
    assert step_of(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(500, 500), ("500", 500), (True, 9), (False, None), ("", None), ("/c/checkpoint-500", 500),
     ("/c/global_step1000/mp_rank_00_model_states.pt", 1000), ("/c/iter_0002000/x", 2000),
     ("s3://b/run7/epoch=3", 3), ("/c/300", 300), ("latest", None), (-1, None)],
)  # fmt: skip
def test_a_checkpoint_names_its_step(value, expected):
    assert checkpoint_of(value, step=9) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1767225600, (2026, 1, 1)), (1767225600.5, (2026, 1, 1, 0, 0, 0, 500000)),
        (1767225600500, (2026, 1, 1, 0, 0, 0, 500000)),
        (1767225600500000, (2026, 1, 1, 0, 0, 0, 500000)),
        (1767225600500000000, (2026, 1, 1, 0, 0, 0, 500000)), ("1767225600", (2026, 1, 1)),
        ("2026-01-01T00:00:00Z", (2026, 1, 1)), ("2026-01-01 02:00:00+02:00", (2026, 1, 1)),
        ("2026-01-01 01:00:00,250", (2026, 1, 1, 0, 0, 0, 250000)),  # in the given zone
        ("2026-01-01T01:00:00", (2026, 1, 1)),
    ],
)  # fmt: skip
def test_a_time_is_read_in_any_unit_and_form(value, expected):
    assert moment_of(value, zone=BERLIN) == datetime(*expected, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, 12.5, 0, "3600", -5])
def test_a_duration_is_no_moment(value):
    assert moment_of(value, zone=BERLIN) is None


@pytest.mark.parametrize(
    "value", ["yesterday", "00:05:12", [], True, "2026-13-01T00:00:00", "nan", 1e300, -1e18,
              "0001-01-01T00:00:00+14:00"],
)  # fmt: skip
def test_what_tells_no_time_is_refused(value):
    with pytest.raises(NoMomentError):
        moment_of(value, zone=BERLIN)


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none())


@given(ANYTHING)
def test_any_value_is_read_or_refused(value):
    number_of(value)
    step = step_of(value)
    assert step is None or 0 <= step < 2**63
    found = checkpoint_of(value, step=1)
    assert found is None or 0 <= found < 2**63
    try:
        moment = moment_of(value, zone=BERLIN)
    except NoMomentError:
        return
    assert moment is None or moment.tzinfo is UTC
