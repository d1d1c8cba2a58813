"""Rules of the weekly drift: what is compared, what cannot be, and how it is told."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from features.monitoring_tables import DRIFT
from features.tables import GPU_MATRIX
from models.drift.calibration import CalibrationWeek
from pipelines.flow.drift import _table, drift_in_words

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
WHERE = {"label": "gpu-failure-24h/1", "start": MONDAY}
BUNDLE: Any = SimpleNamespace(
    model=SimpleNamespace(feature_names=("power_w", "fan_pct"), horizon_h=24), drift=None
)


def one_row(**features: float) -> pl.DataFrame:
    return pl.DataFrame({"entity_id": ["a"], "as_of": [MONDAY], "node": ["n"], **features})


def test_features_that_are_built_no_more_are_an_alarm_that_names_them() -> None:
    found = _table(one_row(power_w=300.0), BUNDLE, None, **WHERE)
    text, code = drift_in_words(DRIFT.conform(found))
    assert code == 1
    assert "1 of the 2 features that the model reads are not built any more (fan_pct)" in text


@pytest.mark.parametrize("rows", [GPU_MATRIX.empty(), one_row(power_w=300.0, fan_pct=40.0)])
def test_a_week_without_rows_or_reference_is_no_alarm(rows: pl.DataFrame) -> None:
    found = _table(rows, BUNDLE, None, **WHERE)
    assert found.is_empty()
    assert drift_in_words(found)[1] == 0


def test_calibration_is_told_also_where_inputs_could_not_be_compared() -> None:
    week = CalibrationWeek(MONDAY, 900, 10.0, 30, 1.8, 4.9)
    text, code = drift_in_words(_table(GPU_MATRIX.empty(), BUNDLE, week, **WHERE))
    assert code == 1
    assert "Inputs were not compared" in text
    assert "Calibration: Week from 2026-01-05: 30 incidents came" in text
