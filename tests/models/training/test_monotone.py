"""Rules of the constraints that physics gives."""

import pytest

from features.matrix import MatrixSpec, matrix_features
from features.tables import CORE_TOPOLOGY
from models.specs import TrainSpec
from models.training.monotone import RISING, rising_features, with_rising
from pipelines.sources.catalogue import load_catalogue


@pytest.mark.parametrize(
    ("name", "is_rising"),
    [
        ("nvlink_crc_count_increase_6h", True),
        ("node_link_event_count_24h", True),
        ("excess_heat_rise_c_peer_6h", True),
        ("app_event_count_7d", False),
        ("node_event_count_24h", False),
        ("power_violation_us_increase_1h", False),
        ("power_w_std_6h", False),
        ("hours_since_hbm_event", False),
    ],
)
def test_errors_and_troubles_only_raise_a_score(name: str, is_rising: bool) -> None:
    assert rising_features([name]) == (((name, 1),) if is_rising else ())


def test_every_word_of_the_rule_is_a_feature() -> None:
    features = matrix_features(MatrixSpec(catalogue=load_catalogue()), CORE_TOPOLOGY.empty())
    found = [feature.name for feature in features if RISING.match(feature.name)]
    for word in ("ecc_", "remapped", "pcie_replay", "nvlink_crc", "thermal_violation", "hbm_",
                 "precursor", "off_bus", "node_link", "excess_heat", "thermal_throttle",
                 "row_remap_pending", "own_incident", "node_incident"):  # fmt: skip
        assert any(name.startswith(word) for name in found), word


def test_constraints_of_ones_own_are_kept() -> None:
    names = ["ecc_sbe_volatile_increase_1h", "power_w_mean_1h"]
    own = TrainSpec(monotone=(("power_w_mean_1h", -1),))
    assert with_rising(own, names) is own
    assert with_rising(TrainSpec(), names).monotone == (("ecc_sbe_volatile_increase_1h", 1),)
