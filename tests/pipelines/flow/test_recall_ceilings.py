"""Rules of what recall can reach on a synthetic fleet."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pipelines.flow.recall_ceilings import recall_ceilings
from pipelines.settings import Settings
from simulation.regimes.load import load_regime


def settings(tmp_path: Any, **changes: Any) -> Settings:
    values = {"site": "lab", "inputs": tmp_path / "inputs.yaml", "data_root": tmp_path / "data"}
    return Settings.model_validate(values | {"start": datetime(2026, 1, 1, tzinfo=UTC)} | changes)


def test_the_ceiling_of_all_lies_among_those_of_gpus_and_counts_the_frequent_most(tmp_path) -> None:
    found = recall_ceilings(settings(tmp_path, regime="h100"))
    gpu = [one for one in load_regime("h100").faults if one.entity_kind == "gpu"]
    assert set(found) == {"all", *(one.fault_type for one in load_regime("h100").faults)}
    assert all(0 <= share <= 1 for share in found.values())
    told = sum(one.per_gpu_year * one.announced_share(least_lead_h=0.5) for one in gpu)
    assert found["all"] == pytest.approx(told / sum(one.per_gpu_year for one in gpu))


def test_without_precursors_nothing_can_be_caught_and_of_real_machines_nothing_is_known(
    tmp_path,
) -> None:
    assert set(recall_ceilings(settings(tmp_path, regime="no-precursor")).values()) == {0.0}
    assert recall_ceilings(settings(tmp_path)) == {}
