from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from simulation.fleet.generate import Fleet, build_nodes, simulate_failures
from simulation.fleet.hardware import build_node
from simulation.fleet.hazards import Hazards
from simulation.fleet.incidents import CALM_AFTER_DECOY_S, simulate_node
from simulation.fleet.planned import plan_work
from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import DAYS_PER_YEAR, HOURS_PER_YEAR


def _changed(regime: Regime, **changes: object) -> Regime:
    return Regime.model_validate(regime.model_dump() | changes)


@pytest.fixture(scope="module")
def crowded(demo: Regime) -> Fleet:
    """Sixty nodes for a month: some 250 failures."""
    return simulate_failures(_changed(demo, nodes=60), seed=2)


def test_a_nodes_life_does_not_depend_on_the_size_or_order_of_the_fleet(demo: Regime) -> None:
    lone = simulate_node(
        Hazards(demo, seed=9), build_node(demo, seed=9, index=4), seed=9, fleet_frailty=1.0
    )
    nodes = build_nodes(demo, seed=9)
    in_reverse = [
        simulate_node(Hazards(demo, seed=9), n, seed=9, fleet_frailty=1.0) for n in reversed(nodes)
    ]
    assert in_reverse[demo.nodes - 1 - 4] == lone


def test_the_same_seed_gives_the_same_fleet_and_another_seed_another(demo: Regime) -> None:
    assert simulate_failures(demo, seed=3) == simulate_failures(demo, seed=3)
    assert simulate_failures(demo, seed=3).incidents != simulate_failures(demo, seed=4).incidents


def test_failures_are_as_many_as_their_hazard_says(crowded: Fleet) -> None:
    expected = sum(truth.expected for truth in crowded.nodes)
    # Count minus integrated hazard has mean 0 and variance equal to the latter.
    assert abs(len(crowded.incidents) - expected) < 4 * sqrt(expected)


def test_without_heterogeneity_the_rate_is_the_fault_tables(demo: Regime) -> None:
    even = demo.frailty.model_copy(
        update={"node_shape": 1e6, "gpu_shape": 1e6, "is_fleet_mean_one": False}
    )
    batch = demo.batches[0].model_copy(update={"share": 1.0})
    fleet = simulate_failures(
        _changed(demo, frailty=even.model_dump(), batches=[batch.model_dump()], nodes=64), seed=1
    )
    years = sum(truth.exposure_s for truth in fleet.nodes) / 3600 / HOURS_PER_YEAR
    expected = 0.163 * demo.hazard_multiplier * demo.gpus_per_node * years
    assert abs(len(fleet.incidents) - expected) < 4 * sqrt(expected)


def test_a_node_that_is_out_of_service_does_not_fail(crowded: Fleet) -> None:
    for truth in crowded.nodes:
        spans = [(i.onset_s, i.end_s) for i in truth.incidents]
        spans.extend((work.drain_s, work.end_s) for work in truth.planned)
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_a_node_is_in_service_under_repair_or_in_planned_work_and_nothing_else(
    crowded: Fleet,
) -> None:
    for truth in crowded.nodes:
        out = [(i.onset_s, i.end_s) for i in truth.incidents]
        out.extend((work.drain_s, work.end_s) for work in truth.planned)
        out_s = sum(min(end, crowded.end_s) - start for start, end in out)
        assert abs(truth.exposure_s + out_s - crowded.end_s) <= len(truth.incidents)


def test_an_incidents_times_follow_each_other(crowded: Fleet) -> None:
    for incident in crowded.incidents:
        times = (incident.onset_s, incident.detected_s, incident.grace_s, incident.end_s)
        assert list(times) == sorted(times)
        low, high = incident.fault.downtime.range_h
        if not incident.is_replaced and not incident.fault.downtime.tail_h:
            assert low - 0.01 <= (incident.end_s - incident.onset_s) / 3600 <= high


def test_leads_lie_in_the_fault_tables_range(crowded: Fleet) -> None:
    with_signs = [i for i in crowded.incidents if i.precursor and i.fault.precursor]
    assert len(with_signs) > 40
    for incident in with_signs:
        assert incident.precursor is not None
        assert incident.fault.precursor is not None
        lead_h = (incident.onset_s - incident.precursor.start_s) / 3600
        low, high = incident.fault.precursor.lead_h
        is_cut = incident.precursor.start_s == 0 or lead_h < low  # the record, or a new GPU
        assert lead_h <= high
        assert is_cut or lead_h >= low - 0.01


def test_a_replaced_gpu_gives_way_to_another_in_the_same_slot(crowded: Fleet) -> None:
    replaced = [i for i in crowded.incidents if i.is_replaced]
    assert replaced
    for incident in replaced:
        stays = [s for s in crowded.nodes[incident.node].stays if s.gpu.slot == incident.slot]
        old = next(s for s in stays if s.gpu.gpu_uuid == incident.gpu_uuid)
        new = next(s for s in stays if s.from_s == old.to_s)
        assert old.to_s is not None
        assert incident.onset_s <= old.to_s < incident.end_s
        assert new.gpu.gpu_uuid != old.gpu.gpu_uuid


def test_no_gpu_is_swapped_before_anybody_noticed_its_failure(demo: Regime) -> None:
    quick = {"range_h": [0.5, 0.6]}
    faults = [
        fault.model_dump() | {"replaced_share": 1.0, "downtime": quick}
        for fault in demo.faults
        if fault.entity_kind == "gpu"
    ]
    fleet = simulate_failures(_changed(demo, faults=faults), seed=2)
    assert len(fleet.incidents) > 50
    for incident in fleet.incidents:
        stays = fleet.nodes[incident.node].stays
        (old,) = (stay for stay in stays if stay.gpu.gpu_uuid == incident.gpu_uuid)
        assert old.to_s is not None
        assert incident.detected_s <= old.to_s < incident.end_s


def test_a_decoy_is_followed_by_no_failure_of_its_unit(crowded: Fleet) -> None:
    decoys = [(truth, decoy) for truth in crowded.nodes for decoy in truth.decoys]
    assert len(decoys) > 50
    for truth, decoy in decoys:
        of_unit = [i for i in truth.incidents if i.slot == decoy.slot]
        assert not any(
            decoy.start_s <= i.onset_s < decoy.end_s + CALM_AFTER_DECOY_S for i in of_unit
        )


def test_gpus_without_a_failure_show_signs_too(crowded: Fleet) -> None:
    healthy = [
        decoy
        for truth in crowded.nodes
        for decoy in truth.decoys
        if decoy.slot not in {i.slot for i in truth.incidents}
    ]
    assert len(healthy) > 40


def test_a_failure_nobody_notices_leaves_the_node_in_service(demo: Regime) -> None:
    faults = [
        fault.model_dump()
        | (
            {"health_check": {"day": 15.0, "missed_before": 1.0}}
            if fault.entity_kind == "gpu"
            else {}
        )
        for fault in demo.faults
    ]
    fleet = simulate_failures(_changed(demo, faults=faults), seed=2)
    missed = [incident for incident in fleet.incidents if not incident.is_noticed]
    assert len(missed) > 20
    for incident in missed:
        assert incident.onset_s < 15 * 86400
        assert incident.detected_s == incident.grace_s == incident.end_s == incident.onset_s
        assert not incident.is_replaced
        services = fleet.nodes[incident.node].services
        assert any(s.from_s < incident.onset_s and s.to_s > incident.onset_s + 1 for s in services)
    assert all(i.is_noticed for i in fleet.incidents if i.onset_s >= 15 * 86400)
    expected = sum(truth.expected for truth in fleet.nodes)
    assert abs(len(fleet.incidents) - expected) < 4 * sqrt(expected)


def test_no_planned_drain_is_left_out_before_anybody_knows_why(demo: Regime) -> None:
    plan = demo.disturbances.model_copy(
        update={"driver_day": 99.0, "reboots_per_node_year": 200.0, "holds_per_node_year": 200.0}
    )
    slow = [
        fault.model_copy(update={"detection_min": (120.0, 600.0)}).model_dump()
        for fault in demo.faults
    ]
    regime = _changed(demo, disturbances=plan.model_dump(), faults=slow, nodes=60)
    fleet = simulate_failures(regime, seed=2)
    found_by_drain = 0
    for truth in fleet.nodes:
        drains = {work.drain_s for work in plan_work(regime, seed=2, index=truth.node.index)}
        for incident in truth.incidents:
            assert not any(incident.onset_s < at < incident.detected_s for at in drains)
            assert incident.detected_s <= incident.grace_s <= incident.end_s
            found_by_drain += incident.detected_s in drains
    assert found_by_drain > 3


def test_independent_decoys_are_followed_by_failures_as_often_as_anything(demo: Regime) -> None:
    decoys = [{"kind": "hot", "per_gpu_year": 1.0, "duration_h": [6, 48], "strength": 1.0}]
    fleet = simulate_failures(_changed(demo, decoys=decoys, nodes=40), seed=4)
    found = [decoy for truth in fleet.nodes for decoy in truth.decoys]
    expected = 1.0 * demo.hazard_multiplier * 40 * 8 * demo.days / DAYS_PER_YEAR
    assert abs(len(found) - expected) < 4 * sqrt(expected)
    followed = [
        decoy
        for decoy in found
        for i in fleet.nodes[decoy.node].incidents
        if i.slot == decoy.slot and decoy.start_s <= i.onset_s < decoy.end_s
    ]
    by_gpu = [i for i in fleet.incidents if i.slot is not None]
    hours = sum(decoy.end_s - decoy.start_s for decoy in found) / 3600
    by_chance = len(by_gpu) * hours / (40 * 8 * demo.days * 24)
    assert abs(len(followed) - by_chance) < 4 * sqrt(by_chance)


def test_hazard_factors_of_gpus_have_mean_one(demo: Regime) -> None:
    gpus = [gpu for node in build_nodes(_changed(demo, nodes=1500), seed=8) for gpu in node.gpus]
    factors = np.array([gpu.hazard_factor for gpu in gpus])
    assert abs(factors.mean() - 1) < 4 * factors.std() / sqrt(factors.size)
    assert len({gpu.gpu_uuid for gpu in gpus}) == len(gpus)
