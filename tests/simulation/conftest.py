import pytest

from simulation.fleet.generate import Fleet, simulate_failures, simulate_fleet
from simulation.fleet.regime import Regime
from simulation.regimes.load import load_regime


@pytest.fixture(scope="session")
def demo() -> Regime:
    return load_regime("demo")


@pytest.fixture(scope="session")
def small(demo: Regime) -> Fleet:
    """Three nodes for eight days: a second's work, with failures of several kinds."""
    return simulate_fleet(demo, seed=5, nodes=3, days=8)


@pytest.fixture(scope="session")
def h100_year() -> Fleet:
    """Failures of 20,000 GPU-years."""
    return simulate_failures(load_regime("h100").with_size(nodes=2500, days=365.25), seed=20)
