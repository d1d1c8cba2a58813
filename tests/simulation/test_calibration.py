"""The truth over 20,000 GPU-years against the parameters it was drawn from."""

from collections import defaultdict
from collections.abc import Callable
from math import log, sqrt

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, kstest

from models.evaluation.intervals import poisson_interval
from simulation.fleet.calibration import (
    calibrate,
    capture_curve,
    downtime_table,
    hazards_over_time,
    lead_table,
    rate_table,
    sign_table,
    unevenness,
)
from simulation.fleet.generate import Fleet, build_nodes, simulate_failures
from simulation.fleet.hardware import Gpu
from simulation.fleet.hazards import Hazards
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.regime_sections import DAYS_PER_YEAR
from simulation.regimes.load import load_regime

P_LEAST = 1e-4
"""A figure is wrong where chance alone would give it less often than so."""


def _fleet(name: str, *, days: float, nodes: int = 2500, **changes: object) -> Fleet:
    regime = load_regime(name).with_size(nodes=nodes, days=days)
    return simulate_failures(regime.model_validate(regime.model_dump() | changes), seed=20)


@pytest.fixture(scope="module")
def summer() -> Fleet:
    return _fleet("hot-summer", days=120)


def _is_likely(found: int, n: int, share: float) -> bool:
    tails = binom.cdf(found, n, share), binom.sf(found - 1, n, share)
    return bool(min(tails) > P_LEAST)


def test_each_class_fails_as_often_as_its_rate_says(h100_year: Fleet) -> None:
    table = rate_table(h100_year)
    assert table.height == 10
    for row in table.iter_rows(named=True):
        low, high = poisson_interval(row["observed"], confidence=1 - 2 * P_LEAST)
        assert low < row["expected"] < high, row


def test_units_drawn_have_the_fault_tables_rates_on_average(h100_year: Fleet) -> None:
    rates = []
    for truth in h100_year.nodes:
        factors = np.array([gpu.hazard_factor for gpu in truth.node.gpus])
        rates.append(truth.hazard_factor * factors.mean())
    # The mean of 2,500 nodes as uneven as the regime makes them.
    spread = sqrt(unevenness(h100_year.regime) / len(rates))
    assert abs(np.mean(rates) - 1) < 4 * spread


def test_each_class_is_silent_as_often_as_stated(h100_year: Fleet) -> None:
    for row in sign_table(h100_year).iter_rows(named=True):
        assert _is_likely(row["silent"], row["failures"], row["stated_share_without"]), row


def test_leads_are_log_uniform_in_the_stated_range(h100_year: Fleet) -> None:
    groups = lead_table(h100_year).partition_by("fault_type", as_dict=True)
    assert len(groups) == 9
    for (fault_type,), group in groups.items():
        low, high = group["low_h"][0], group["high_h"][0]
        place = ((group["lead_h"] / low).log() / log(high / low)).to_numpy()
        assert kstest(place, "uniform").pvalue > P_LEAST, fault_type


def test_downtimes_are_log_uniform_in_the_stated_ranges(h100_year: Fleet) -> None:
    table = downtime_table(h100_year).filter(
        pl.col("tail_h").is_null() | (pl.col("downtime_h") <= pl.col("high_h"))
    )
    floor_h = 0.5  # a swap takes half an hour
    groups = table.partition_by("fault_type", "low_h", as_dict=True)
    assert len(groups) == 11  # a remap failure has two ranges
    for key, group in groups.items():
        low, high = group["low_h"][0], group["high_h"][0]
        place = ((group["downtime_h"] / low).log() / log(high / low)).to_numpy()
        assert low >= floor_h
        assert kstest(place, "uniform").pvalue > P_LEAST, key


def test_the_stated_share_of_downtimes_is_in_the_tail(h100_year: Fleet) -> None:
    gsp = downtime_table(h100_year).filter(pl.col("fault_type") == "gsp")
    tail = gsp.filter(pl.col("downtime_h") > pl.col("high_h"))
    assert _is_likely(tail.height, gsp.height, 0.1)
    assert tail["downtime_h"].max() <= 23


def test_gpus_are_replaced_as_often_as_stated(h100_year: Fleet) -> None:
    for fault in h100_year.regime.faults:
        found = [i for i in h100_year.incidents if i.fault.fault_type == fault.fault_type]
        replaced = sum(i.is_replaced for i in found)
        assert _is_likely(replaced, len(found), fault.replaced_share), fault.fault_type


def test_decoys_are_as_many_as_stated_for_each_precursor(h100_year: Fleet) -> None:
    regime = h100_year.regime
    for decoy in regime.decoys:
        sharing = [f for f in regime.faults if f.precursor and f.precursor.kind == decoy.kind]
        rate = sum(f.per_gpu_year * (1 - f.precursor.share_without) for f in sharing if f.precursor)
        expected = decoy.per_precursor * rate * 20_000
        count = sum(d.kind == decoy.kind for truth in h100_year.nodes for d in truth.decoys)
        # Those that a failure would follow are not kept: 1 % at most.
        assert 0.99 * expected - 4 * sqrt(expected) < count < expected + 4 * sqrt(expected)


def test_nodes_that_failed_most_fail_most_again(h100_year: Fleet) -> None:
    top = capture_curve(h100_year).row(by_predicate=pl.col("share_of_nodes") == 0.05, named=True)
    assert 0.2 < top["captured_second_half"] < 0.6  # as published
    assert top["captured_second_half"] < top["captured_first_half"]
    # Repairs heal: replaced GPUs are drawn anew, and lemons are out while they are repaired.
    assert top["captured_second_half"] < top["law"]


def test_where_repairs_heal_nothing_capture_is_the_law_of_gamma_frailty() -> None:
    regime = load_regime("h100")
    faults = [
        fault.model_dump() | {"downtime": {"range_h": [0.01, 0.011]}, "replaced_share": 0.0}
        for fault in regime.faults
    ]
    curve = capture_curve(_fleet("h100", days=365.25, faults=faults))
    for row in curve.filter(pl.col("share_of_nodes") >= 0.05).iter_rows(named=True):
        assert row["captured_second_half"] == pytest.approx(row["law"], abs=0.05), row


def test_unevenness_is_that_of_the_nodes_drawn() -> None:
    regime = load_regime("h100").with_size(nodes=1000, days=1)
    even = regime.frailty.model_copy(
        update={"node_shape": 1e6}
    )  # its own tail would drown the rest
    regime = regime.model_copy(update={"frailty": even})
    of_gpus = sum(f.per_gpu_year for f in regime.faults if f.entity_kind == "gpu")
    share = of_gpus / sum(f.per_gpu_year for f in regime.faults)
    rates = np.array(
        [
            node.position_factor
            * (share * np.mean([gpu.hazard_factor for gpu in node.gpus]) + 1 - share)
            for node in build_nodes(regime, seed=1)
        ]
    )
    assert rates.var() / rates.mean() ** 2 == pytest.approx(unevenness(regime), rel=0.12)


@pytest.mark.slow
def test_an_even_fleet_has_nothing_to_capture() -> None:
    regime = load_regime("h100")
    even = regime.frailty.model_dump() | {
        "node_shape": 1e6,
        "gpu_shape": 1e6,
        "slot_factors": [1.0] * 8,
        "top_of_rack_factor": 1.0,
    }
    batches = [batch.model_dump() | {"factor": 1.0} for batch in regime.batches]
    curve = capture_curve(_fleet("h100", days=365.25, frailty=even, batches=batches))
    top = curve.row(by_predicate=pl.col("share_of_nodes") == 0.05, named=True)
    assert top["law"] == pytest.approx(0.05, abs=0.001)
    assert top["captured_second_half"] == pytest.approx(0.05, abs=0.025)


@pytest.fixture(scope="module")
def lemons() -> Fleet:
    return _fleet("lemon-heavy", days=365.25)


def test_a_bad_batch_has_the_stated_factor(lemons: Fleet) -> None:
    factors = pl.DataFrame(
        [
            (gpu.batch.name == "2508", gpu.hazard_factor / lemons.regime.frailty.slot_factors[i])
            for truth in lemons.nodes
            for i, gpu in enumerate(truth.node.gpus)
        ],
        schema=["is_bad", "factor"],
        orient="row",
    )
    bad, good = (factors.filter(is_bad=flag)["factor"] for flag in (True, False))
    assert _is_likely(len(bad), 20_000, 0.05)
    spread = sqrt(1 / len(bad) + 1 / len(good))  # of the mean of the GPUs' own frailty, k = 1
    assert abs(log(bad.mean() / good.mean() / 15)) < 4 * spread


def _failures_by(fleet: Fleet, group: Callable[[NodeTruth, Gpu], int]) -> dict[int, list[float]]:
    """Group -> failures of its GPUs, and those to be expected given who was in service when."""
    per_s = sum(f.per_gpu_year for f in fleet.regime.faults if f.entity_kind == "gpu")
    per_s /= DAYS_PER_YEAR * 86400
    found: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for truth in fleet.nodes:
        by_uuid = {stay.gpu.gpu_uuid: stay.gpu for stay in truth.stays}
        for incident in truth.incidents:
            if incident.gpu_uuid:
                found[group(truth, by_uuid[incident.gpu_uuid])][0] += 1
        for service in truth.services:
            rate = per_s * truth.hazard_factor * (service.to_s - service.from_s)
            for stay in truth.stays:
                if stay.holds_at(service.from_s):
                    found[group(truth, stay.gpu)][1] += rate * stay.gpu.hazard_factor
    return dict(found)


@pytest.mark.parametrize(
    ("group", "least_ratio"),
    [
        (lambda _, gpu: int(gpu.batch.name == "2508"), 5.0),
        (lambda _, gpu: gpu.slot, 2.0),
        (lambda truth, _: truth.node.index % 4 == 3, 2.0),
    ],
    ids=["batch", "slot", "top of rack"],
)
def test_batches_slots_and_places_fail_as_often_as_their_factors_say(
    lemons: Fleet, group: Callable[[NodeTruth, Gpu], int], least_ratio: float
) -> None:
    found = _failures_by(lemons, group)
    for count, expected in found.values():
        assert abs(count - expected) < 4 * sqrt(expected)
    units: dict[int, int] = defaultdict(int)
    for truth in lemons.nodes:
        for gpu in truth.node.gpus:
            units[group(truth, gpu)] += 1
    rates = [count / units[key] for key, (count, _) in sorted(found.items())]
    assert rates[-1] / rates[0] > least_ratio


def test_heat_raises_thermal_and_power_failures_and_no_others(summer: Fleet) -> None:
    hazards = Hazards(summer.regime, seed=summer.seed)
    hours = np.arange(120 * 24) * 3600.0 + 1800
    heat = hazards.heat(hours)
    for index, fault in enumerate(summer.regime.faults):
        thermal = heat[[f.fault_type for f in summer.regime.faults].index("thermal")]
        is_hot = thermal > np.quantile(thermal, 0.8)
        found = [i for i in summer.incidents if i.fault.fault_type == fault.fault_type]
        n_hot = sum(is_hot[i.onset_s // 3600] for i in found)
        share = heat[index][is_hot].sum() / heat[index].sum()
        assert _is_likely(n_hot, len(found), float(share)), fault.fault_type
        assert (share > 0.25) == (fault.fault_type in ("thermal", "power"))


def test_the_hottest_week_has_several_times_the_thermal_failures_of_the_coolest(
    summer: Fleet,
) -> None:
    thermal = hazards_over_time(summer, bins=17).filter(pl.col("fault_type") == "thermal")
    assert thermal["expected"].max() / thermal["expected"].min() > 3
    by_heat = thermal.sort("expected")["observed"]
    assert by_heat[-4:].sum() > 1.5 * by_heat[:4].sum()


def test_a_new_driver_changes_the_rates_as_stated() -> None:
    fleet = _fleet("old-driver", days=60, nodes=1250)
    exposure = dict.fromkeys((False, True), 0.0)
    for truth in fleet.nodes:
        for service in truth.services:
            exposure[service.has_new_driver] += service.to_s - service.from_s
    gsp = [i for i in fleet.incidents if i.fault.fault_type == "gsp"]
    new = sum(i.onset_s >= fleet.nodes[i.node].new_driver_s for i in gsp)
    share = 0.12 * exposure[True] / (0.12 * exposure[True] + exposure[False])
    assert min(exposure.values()) > 0.1 * sum(exposure.values())
    assert _is_likely(new, len(gsp), share)
    assert not _is_likely(new, len(gsp), exposure[True] / sum(exposure.values()))


def test_noticed_failures_jump_on_the_day_of_a_new_health_check() -> None:
    faults = [fault.model_dump() for fault in load_regime("a100").faults]
    for fault in faults:
        if fault["health_check"]:
            fault["health_check"]["day"] = 180.0  # later than in the regime: more to count
    fleet = _fleet("a100", days=360, nodes=1250, faults=faults)
    for fault in fleet.regime.faults:
        found = [i for i in fleet.incidents if i.fault.fault_type == fault.fault_type]
        check = fault.health_check
        before = [i for i in found if check and i.onset_s < 180 * 86400]
        if check:
            missed = sum(not i.is_noticed for i in before)
            assert _is_likely(missed, len(before), check.missed_before)
        assert all(i.is_noticed for i in found if i not in before)
    checked = hazards_over_time(fleet, bins=12).filter(pl.col("fault_type") == "other_gpu")
    shares = (checked["noticed"] / checked["observed"]).to_list()
    assert max(shares[:6]) < 0.8
    assert set(shares[6:]) == {1.0}


def test_expected_failures_over_time_add_up_to_the_nodes_exact_ones(summer: Fleet) -> None:
    by_class = (
        hazards_over_time(summer, bins=120).group_by("fault_type").agg(pl.col("expected").sum())
    )
    expected = dict(by_class.iter_rows())
    for index, fault in enumerate(summer.regime.faults):
        exact = sum(truth.expected_by_fault[index] for truth in summer.nodes)
        assert expected[fault.fault_type] == pytest.approx(exact, rel=0.002)


def test_calibration_of_a_fleet_without_failures_has_no_shares() -> None:
    regime = load_regime("quiet").with_size(nodes=4, days=2)
    fleet = simulate_failures(regime.model_copy(update={"hazard_multiplier": 0.0}), seed=1)
    tables = calibrate(fleet)
    assert tables.summit is None
    assert tables.rates["observed"].sum() == 0
    assert tables.leads.is_empty()
    assert tables.downtimes.is_empty()
    assert tables.capture["captured_second_half"].null_count() == tables.capture.height
