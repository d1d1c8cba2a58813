"""Fewer features than an installation has, so that a tick of the small site takes little time."""

import pytest

from features.catalogue import FaultCatalogue
from features.matrix import MatrixSpec
from features.telemetry_spec import TelemetrySpec
from pipelines.settings import Settings

FEW = TelemetrySpec(
    gauges=("gpu_temp_c", "power_w"), counters=(), flags=(), peer_gauges=("gpu_temp_c",)
)


def few_features(_settings: Settings, catalogue: FaultCatalogue) -> MatrixSpec:
    return MatrixSpec(catalogue=catalogue, telemetry=FEW, parts=("telemetry",))


@pytest.fixture(autouse=True)
def _few_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.flow.steps.matrix_spec", few_features)
