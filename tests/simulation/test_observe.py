import numpy as np
import pytest

from simulation.fleet.fields import BLANK_INT
from simulation.fleet.generate import Fleet, simulate_fleet
from simulation.fleet.observe import NodeObservation, observe_fleet, observe_node
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import attempts_by_node

SBE = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"
LIFETIME = (
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
)


@pytest.fixture(scope="module")
def month(demo: Regime) -> Fleet:
    return simulate_fleet(demo, seed=30, nodes=4)


@pytest.fixture(scope="module")
def seen(month: Fleet) -> list[NodeObservation]:
    return list(observe_fleet(month))


def _same(a: NodeObservation, b: NodeObservation) -> bool:
    left, right = a.telemetry, b.telemetry
    return (
        a.events == b.events
        and np.array_equal(left.gpu_uuid, right.gpu_uuid)
        and np.array_equal(left.at_s, right.at_s)
        and all(np.array_equal(left.fields[name], right.fields[name]) for name in left.fields)
    )


def test_what_is_seen_of_a_node_depends_on_no_other_observation(
    month: Fleet, seen: list[NodeObservation]
) -> None:
    attempts = attempts_by_node(month.attempts, 4)
    again = [
        observe_node(month.regime, month.nodes[index], attempts[index], seed=month.seed)
        for index in (3, 1, 0, 2)
    ]
    by_index = {part.truth.node.index: part for part in again}
    assert all(_same(seen[index], by_index[index]) for index in range(4))


def test_a_gpu_off_the_bus_sends_nothing_until_it_is_repaired(
    month: Fleet, seen: list[NodeObservation]
) -> None:
    gone = [i for i in month.incidents if i.fault.telemetry == "gone"]
    assert gone
    for incident in gone:
        telemetry = seen[incident.node].telemetry
        is_in = (telemetry.at_s >= incident.onset_s) & (telemetry.at_s < incident.end_s)
        assert not (is_in & (telemetry.slot == incident.slot)).any()


def test_a_gpu_with_a_hung_gsp_sends_blanks(month: Fleet, seen: list[NodeObservation]) -> None:
    hung = [i for i in month.incidents if i.fault.telemetry == "blank"]
    assert hung
    for incident in hung:
        telemetry = seen[incident.node].telemetry
        is_in = (telemetry.at_s >= incident.onset_s) & (telemetry.at_s < incident.end_s)
        values = telemetry.fields[SBE][is_in & (telemetry.slot == incident.slot)]
        assert (values == BLANK_INT).all()


def test_volatile_counters_fall_only_at_a_boot(seen: list[NodeObservation]) -> None:
    falls = 0
    for part in seen:
        telemetry = part.telemetry
        for slot in range(8):
            rows = (telemetry.slot == slot) & (telemetry.fields[SBE] != BLANK_INT)
            at_s, counts = telemetry.at_s[rows], telemetry.fields[SBE][rows]
            for i in np.flatnonzero(np.diff(counts) < 0):
                falls += 1
                assert any(at_s[i] <= boot.up_s <= at_s[i + 1] for boot in part.events.boots)
    assert falls > 0


@pytest.mark.parametrize("name", LIFETIME)
def test_lifetime_counters_of_a_gpu_never_fall(seen: list[NodeObservation], name: str) -> None:
    for part in seen:
        telemetry = part.telemetry
        known = telemetry.fields[name] != BLANK_INT
        for uuid in np.unique(telemetry.gpu_uuid[known].astype(str)):
            rows = known & (telemetry.gpu_uuid == uuid)
            assert (np.diff(telemetry.fields[name][rows]) >= 0).all()


def test_samples_carry_the_gpu_that_sits_in_the_slot(seen: list[NodeObservation]) -> None:
    for part in seen:
        for stay in part.truth.stays:
            rows = part.telemetry.gpu_uuid == stay.gpu.gpu_uuid
            assert all(stay.holds_at(at) for at in part.telemetry.at_s[rows])


def test_signs_of_memory_trouble_show_before_the_onset(demo: Regime) -> None:
    fleet = simulate_fleet(demo, seed=253)
    loud = [
        i
        for i in fleet.incidents
        if i.precursor and i.precursor.kind == "hbm_errors" and i.precursor.strength > 1
    ]
    shown = 0
    attempts = attempts_by_node(fleet.attempts, len(fleet.nodes))
    for incident in loud:
        assert incident.precursor is not None
        node = incident.node
        telemetry = observe_node(
            fleet.regime, fleet.nodes[node], attempts[node], seed=fleet.seed
        ).telemetry
        rows = (telemetry.gpu_uuid == incident.gpu_uuid) & (
            telemetry.fields["DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"] != BLANK_INT
        )
        counts = telemetry.fields["DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"][rows]
        before = telemetry.at_s[rows] < incident.precursor.start_s
        during = ~before & (telemetry.at_s[rows] < incident.onset_s)
        shown += before.any() and counts[during].max() > counts[before].max() + 3
    assert len(loud) > 2
    assert shown >= len(loud) / 2


def test_the_whole_fleet_is_unseen_during_the_scrape_outage(
    month: Fleet, seen: list[NodeObservation]
) -> None:
    (outage,) = month.regime.disturbances.outages
    start = outage.day * 86400
    for part in seen:
        at_s = part.telemetry.at_s
        assert not ((at_s >= start) & (at_s < start + outage.minutes * 60)).any()


def test_a_chain_of_xids_takes_seconds(month: Fleet, seen: list[NodeObservation]) -> None:
    memory = [i for i in month.incidents if i.fault.fault_type == "hbm_uncorrectable"]
    assert memory
    for incident in memory:
        lines = [
            line
            for line in seen[incident.node].events.lines
            if line.slot == incident.slot
            and line.code in (48, 63, 94, 95)
            and incident.onset_s <= line.at_s < incident.onset_s + 60
        ]
        assert lines
        assert lines[-1].at_s - lines[0].at_s < 10


def test_nothing_is_logged_while_a_node_is_off(seen: list[NodeObservation]) -> None:
    boots = [(part, boot) for part in seen for boot in part.events.boots]
    assert boots
    for part, boot in boots:
        at = [line.at_s for line in part.events.lines]
        assert not any(boot.down_s <= second < boot.up_s - 60 for second in at)
