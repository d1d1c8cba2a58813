from pathlib import Path

import pytest
import yaml

from features.errors import SettingsError
from simulation.fleet.regime import Regime, parse_regime
from simulation.regimes.load import load_regime, regime_names

PUBLISHED = {  # fault type -> per GPU-year, share without precursor
    "hbm_uncorrectable": (0.03, 0.50),
    "row_remap_failure": (0.01, 0.45),
    "off_bus": (0.02, 0.70),
    "gsp": (0.01, 0.95),
    "nvlink": (0.01, 0.35),
    "thermal": (0.008, 0.20),
    "power": (0.003, 0.70),
    "other_gpu": (0.05, 0.80),
    "nic_fabric": (0.02, 0.60),
    "sdc": (0.002, 1.0),
}


def test_demo_regime_holds_the_published_fault_table(demo: Regime) -> None:
    table = {
        fault.fault_type: (
            fault.per_gpu_year,
            fault.precursor.share_without if fault.precursor else 1.0,
        )
        for fault in demo.faults
    }
    assert table == PUBLISHED
    assert sum(rate for rate, _ in table.values()) == pytest.approx(0.163)


def _document(demo: Regime) -> dict[str, object]:
    return demo.model_dump(mode="json")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"hazard_multiplyer": 3}, "hazard_multiplyer"),
        ({"start": "2026-01-01T00:00:00"}, "offset"),
        ({"gpus_per_node": 4}, "slot_factors"),
        ({"nodes": 0}, "nodes"),
    ],
)
def test_a_mistake_in_a_regime_is_one_error_that_names_it(
    demo: Regime, change: dict[str, object], word: str
) -> None:
    text = yaml.safe_dump(_document(demo) | change)
    with pytest.raises(SettingsError, match=word):
        parse_regime(text, origin="mine.yaml")


def test_an_unknown_fault_type_is_refused(demo: Regime) -> None:
    document = _document(demo)
    document["faults"][0]["fault_type"] = "gremlins"  # type: ignore[index]
    with pytest.raises(SettingsError, match="gremlins"):
        parse_regime(yaml.safe_dump(document), origin="mine.yaml")


def test_batch_shares_must_add_up(demo: Regime) -> None:
    document = _document(demo)
    document["batches"] = document["batches"][:1]  # type: ignore[index]
    with pytest.raises(SettingsError, match="add up to 1"):
        parse_regime(yaml.safe_dump(document), origin="mine.yaml")


def test_text_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(SettingsError, match="no YAML"):
        parse_regime("a: [", origin="mine.yaml")


def test_a_regime_file_of_ones_own_is_loaded_by_path(demo: Regime, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(_document(demo)), encoding="utf-8")
    assert load_regime(str(path)) == demo


def test_an_unknown_regime_names_the_known_ones() -> None:
    assert "demo" in regime_names()
    with pytest.raises(SettingsError, match="demo"):
        load_regime("no-such-regime")


def test_a_fleet_without_nodes_is_an_error(demo: Regime) -> None:
    assert demo.with_size(nodes=None, days=None) == demo
    with pytest.raises(SettingsError, match="nodes"):
        demo.with_size(nodes=0, days=None)


@pytest.mark.parametrize(
    ("fault_type", "least_lead_h", "share"),
    [
        ("hbm_uncorrectable", 0.5, 0.5),  # leads of 6 to 72 h: all signs come in time
        ("hbm_uncorrectable", 72.0, 0.0),
        ("off_bus", 0.5, 0.0),  # signs come 3 to 30 min ahead
        ("sdc", 0.5, 0.0),  # no sign at all
    ],
)
def test_the_announced_share_is_that_of_signs_that_come_in_time(
    fault_type: str, least_lead_h: float, share: float
) -> None:
    faults = {fault.fault_type: fault for fault in load_regime("demo").faults}
    announced = faults[fault_type].announced_share(least_lead_h=least_lead_h)
    assert announced == pytest.approx(share)
