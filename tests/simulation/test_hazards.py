import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from simulation.fleet.climate import inlet_temperature
from simulation.fleet.generate import simulate_failures
from simulation.fleet.hardware import build_node
from simulation.fleet.hazards import Hazards
from simulation.fleet.regime import Regime
from simulation.regimes.load import load_regime

_DEMO = load_regime("demo")


def _hot(demo: Regime, **changes: object) -> Regime:
    """Thermal failures alone, very many, that take no time; they double by 3 degC."""
    thermal = next(fault for fault in demo.faults if fault.fault_type == "thermal")
    fault = thermal.model_dump() | {
        "heat_doubling_c": 3.0,
        "downtime": {"range_h": [0.01, 0.011]},
        "replaced_share": 0.0,
    }
    return Regime.model_validate(demo.model_dump() | {"faults": [fault], "days": 30.0} | changes)


def test_the_rate_doubles_by_the_stated_warmth(demo: Regime) -> None:
    regime = _hot(demo)
    at_s = np.array([1800.0, 86400 * 21.0 + 1800, 86400 * 21.5 + 1800])
    above_c = inlet_temperature(regime, at_s, seed=5) - regime.climate.inlet_c
    assert np.ptp(above_c) > 3
    assert Hazards(regime, seed=5).heat(at_s)[0] == pytest.approx(2 ** (above_c / 3))


def test_a_node_in_warm_air_fails_more_often(demo: Regime) -> None:
    regime = _hot(demo)
    node = build_node(regime, seed=5, index=3)
    rates = Hazards(regime, seed=5).unit_rates(node, np.ones(8))
    even = Hazards(_hot(demo, faults=[demo.faults[0].model_dump()]), seed=5)
    assert even.unit_rates(node, np.ones(8))[0] == pytest.approx(even.per_s[0])
    expected = 0.008 / (365.25 * 86400) * 2 ** (node.inlet_offset_c / 3)
    assert rates[0] == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 29), st.floats(0.001, 1))
def test_heat_seconds_are_the_integral_of_heat(start: float, length: float) -> None:
    hazards = Hazards(_hot(_DEMO), seed=5)
    edges = np.linspace(start * 86400, (start + length) * 86400, 20_001)
    middle = (edges[1:] + edges[:-1]) / 2
    slow = float((hazards.heat(middle)[0] * np.diff(edges)).sum())
    assert hazards.heat_seconds(edges[0], edges[-1])[0] == pytest.approx(slow, rel=2e-4)


def test_failures_come_when_the_rate_is_high_and_as_many_as_its_integral(demo: Regime) -> None:
    regime = _hot(demo, hazard_multiplier=400_000)
    calm = regime.disturbances.model_copy(update={"driver_day": 99.0})
    fleet = simulate_failures(regime.model_copy(update={"disturbances": calm, "nodes": 2}), seed=5)
    expected = sum(truth.expected for truth in fleet.nodes)
    assert abs(len(fleet.incidents) - expected) < 4 * expected**0.5
    hazards = Hazards(fleet.regime, seed=5)
    total = hazards.heat_seconds(0, fleet.end_s)[0]
    passed = [hazards.heat_seconds(0, i.onset_s)[0] / total for i in fleet.incidents]
    assert len(passed) > 2000
    assert kstest(passed, "uniform").pvalue > 0.001
    assert kstest([i.onset_s / fleet.end_s for i in fleet.incidents], "uniform").pvalue < 1e-4


def test_the_air_is_warmest_in_the_afternoon_whenever_the_record_begins(demo: Regime) -> None:
    even = demo.climate.model_copy(update={"wander_c": 0.0, "spells": ()})
    regime = demo.model_copy(update={"climate": even, "start": demo.start.replace(hour=9)})
    at_s = np.arange(0, 86400, 600)
    warmest_s = at_s[inlet_temperature(regime, at_s, seed=5).argmax()]
    assert warmest_s == (15 - 9) * 3600
