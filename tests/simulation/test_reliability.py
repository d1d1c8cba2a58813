import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from simulation.fleet.calibration import calibrate
from simulation.fleet.events import tell_node
from simulation.fleet.generate import Fleet, simulate_failures, simulate_fleet
from simulation.fleet.kernel_lines import KernelLine
from simulation.fleet.regime import Regime
from simulation.fleet.reliability import (
    RSC1_PER_NODE_DAY,
    RSC2_PER_NODE_DAY,
    SUMMIT_XIDS,
    compare_with_summit,
    count_xids,
    failure_rate_per_node_day,
    mttf_by_size,
)
from simulation.fleet.schedule import Attempt, attempts_by_node
from simulation.regimes.load import load_regime

RECORD = Path(__file__).parents[2] / "../shared/data/summit/summit_xid_counts.csv"


@pytest.fixture(scope="module", params=["h100", pytest.param("a100", marks=pytest.mark.slow)])
def year(request: pytest.FixtureRequest, h100_year: Fleet) -> Fleet:
    if request.param == "h100":
        return h100_year
    return simulate_failures(load_regime("a100").with_size(nodes=2500, days=365), seed=5)


def test_the_failure_rate_lies_between_two_published_clusters(year: Fleet) -> None:
    assert RSC2_PER_NODE_DAY < failure_rate_per_node_day(year) < RSC1_PER_NODE_DAY


def test_mean_time_to_failure_falls_as_one_over_the_gpus(year: Fleet) -> None:
    table = mttf_by_size(year).filter(pl.col("failures") >= 100)
    assert table["n_gpus"].to_list()[-4:] == [64, 256, 1024, 4096]
    slope, _ = np.polyfit(np.log(table["n_gpus"]), np.log(table["mttf_h"]), 1)
    assert slope == pytest.approx(-1, abs=0.05)
    for row in table.iter_rows(named=True):
        assert row["mttf_h"] == pytest.approx(row["law_h"], rel=0.2), row
        assert row["rsc1_h"] < row["mttf_h"] < row["rsc2_h"]


def test_the_law_gives_the_published_projection_for_16_384_gpus(h100_year: Fleet) -> None:
    half = mttf_by_size(h100_year, sizes=[8192, 16384], starts=1)
    assert half["n_gpus"].to_list() == [8192]  # a larger job than half of the fleet is left out
    assert half["rsc1_h"][0] / 2 == pytest.approx(1.8, abs=0.05)  # hours, Kokolis et al. 2025


def test_jobs_on_nodes_that_never_fail_have_no_mean_time_to_failure() -> None:
    regime = load_regime("quiet").with_size(nodes=8, days=20)
    calm = simulate_failures(regime.model_copy(update={"hazard_multiplier": 0.0}), seed=1)
    table = mttf_by_size(calm, sizes=[8, 32], starts=20)
    assert table["failures"].to_list() == [0, 0]
    assert table["mttf_h"].null_count() == table["law_h"].null_count() == 2
    assert (table["job_h"] > 0).all()
    assert (table["low_h"] > 0).all()


def _summit() -> dict[str, int]:
    if not RECORD.is_file():
        pytest.skip("Summit's counts (../shared/data/summit) are not here")
    lines = (line for line in RECORD.read_text().splitlines() if not line.startswith("#"))
    return {row["failure"]: int(row["events"]) for row in csv.DictReader(lines)}


def test_applications_make_nearly_all_xids_as_on_summit() -> None:
    fleet = simulate_fleet(load_regime("a100"), seed=6, nodes=24, days=45)
    summit = calibrate(fleet, summit=_summit()).summit
    assert summit is not None
    by_xid = {row["xid"]: row for row in summit.iter_rows(named=True)}
    for side in ("summit", "simulated"):
        assert sum(by_xid[code][f"{side}_share"] for code in (31, 13, 43)) > 0.98
        assert all(by_xid[code][f"{side}_share"] < 0.01 for code in (48, 62, 79))


def test_crashes_of_jobs_are_of_the_kinds_of_summit_in_its_order() -> None:
    """Events, not lines, of which one crash of a big job makes many; so many that none is luck."""
    regime = load_regime("a100")
    often = regime.workload.model_copy(update={"crash_share": 0.3})
    calm = {"workload": often, "hazard_multiplier": 0.0, "decoys": ()}
    fleet = simulate_fleet(regime.model_copy(update=calm), seed=1, nodes=24, days=15)
    crashes: Counter[int | None] = Counter()
    by_node = attempts_by_node(fleet.attempts, len(fleet.nodes))
    for truth, attempts in zip(fleet.nodes, by_node, strict=True):
        lines = tell_node(fleet.regime, truth, attempts, seed=fleet.seed).lines
        crashes.update(_crash_code(a, lines) for a in attempts if _began_on(a, truth.node.index))
    assert crashes.total() > 1500
    assert crashes[None] == 0
    summit = {code: _summit()[name] for name, (code, _) in SUMMIT_XIDS.items() if code in crashes}
    assert sorted(crashes, key=crashes.__getitem__) == sorted(summit, key=summit.__getitem__)


def _began_on(attempt: Attempt, node: int) -> bool:
    return attempt.is_own_crash and attempt.placement[0][0] == node


def _crash_code(attempt: Attempt, lines: Sequence[KernelLine]) -> int | None:
    """The first Xid of a crash's GPUs in its last seconds."""
    end_s, slots = attempt.end_s or 0, attempt.placement[0][1]
    last = (line for line in lines if end_s - 20 <= line.at_s <= end_s + 1)
    return next((line.code for line in last if line.slot in slots), None)


def test_double_bit_errors_of_an_a100_are_within_a_factor_of_three_of_summits() -> None:
    regime = load_regime("a100").with_size(nodes=400, days=365.25)
    silent = regime.disturbances.model_copy(update={"chatter_per_day": 0.0})
    fleet = simulate_failures(regime.model_copy(update={"disturbances": silent}), seed=4)
    table = compare_with_summit(count_xids(fleet), _summit(), gpu_years=3200)
    row = table.row(by_predicate=pl.col("xid") == 48, named=True)
    of_summit = row["summit_events"] / (27_648 * 401 / 365.25)  # GPUs, 2019-12-27 to 2021-01-31
    assert 1 / 3 < row["simulated_per_gpu_year"] / of_summit < 3


def test_shares_are_taken_among_what_can_be_compared() -> None:
    table = compare_with_summit({31: 3, 48: 1, 64: 50}, {"Double-bit error": 2}, gpu_years=2)
    by_xid = {row["xid"]: row for row in table.iter_rows(named=True)}
    assert list(by_xid) == [code for code, _ in SUMMIT_XIDS.values()]
    assert (by_xid[31]["simulated_share"], by_xid[48]["simulated_share"]) == (0.75, 0.25)
    assert (by_xid[31]["summit_share"], by_xid[48]["summit_share"]) == (0.0, 1.0)
    assert by_xid[64]["simulated_share"] is None
    assert by_xid[64]["simulated_per_gpu_year"] == 25


def test_xids_are_counted_line_by_line(demo: Regime) -> None:
    regime = demo.with_size(nodes=3, days=10)
    counts = count_xids(simulate_failures(regime, seed=3))
    assert counts
    assert set(counts) <= {
        13,
        31,
        43,
        45,
        48,
        54,
        62,
        63,
        64,
        74,
        79,
        92,
        94,
        95,
        109,
        119,
        120,
        154,
    }
