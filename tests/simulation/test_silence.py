"""A silent failure shows nowhere before it is detected: the same fleet with and without it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from simulation.fleet.events import tell_node
from simulation.fleet.fields import FIELDS
from simulation.fleet.generate import Fleet, simulate_failures, simulate_fleet
from simulation.fleet.incidents import Incident
from simulation.fleet.observe import NodeObservation, observe_node
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt, attempts_by_node, schedule_jobs
from simulation.writers.node_log import list_outages

LOGGED_BEFORE_S = 20
"""The log tells a crash up to so long before the accounting has its end."""


def _with_sdc(demo: Regime, *, share: float | None = None) -> Regime:
    """The demo with more silent corruption than anything else."""
    document = demo.model_dump()
    for fault in document["faults"]:
        if fault["fault_type"] == "sdc":
            fault["per_gpu_year"] = 0.25
        if share is not None and fault["fault_type"] in {"sdc", "other_gpu"}:
            fault["silent_share"] = share
    return Regime.model_validate(document)


@pytest.fixture(scope="module")
def fleet(demo: Regime) -> Fleet:
    return simulate_fleet(_with_sdc(demo), seed=4, nodes=8, days=14)


def _silent(fleet: Fleet) -> list[Incident]:
    noticed = [i for i in fleet.incidents if i.is_silent and i.is_noticed]
    return [i for i in noticed if i.detected_s < fleet.end_s]


def _without(fleet: Fleet, incident: Incident) -> Fleet:
    """The fleet in which one failure is put off until after the record; its signs stay."""
    truth = fleet.nodes[incident.node]
    at_s = fleet.end_s + 1
    later = replace(incident, onset_s=at_s, detected_s=at_s, grace_s=at_s, end_s=at_s)
    left = tuple(later if i == incident else i for i in truth.incidents)
    nodes = list(fleet.nodes)
    nodes[incident.node] = replace(truth, incidents=left)
    attempts = schedule_jobs(fleet.regime, nodes, seed=fleet.seed)
    return replace(fleet, nodes=tuple(nodes), attempts=attempts)


def _runs_until(attempts: tuple[Attempt, ...], second: int) -> Iterator[tuple[object, ...]]:
    """What accounting knew of each job at a moment."""
    for attempt in attempts:
        if attempt.submit_s < second:
            has_started = attempt.start_s is not None and attempt.start_s < second
            has_ended = attempt.end_s is not None and attempt.end_s < second
            start = (attempt.start_s, attempt.placement) if has_started else None
            end = (attempt.end_s, attempt.state) if has_ended else None
            yield attempt.job.job_id, attempt.submit_s, attempt.job.n_gpus, start, end


def _observed(fleet: Fleet, node: int) -> NodeObservation:
    attempts = attempts_by_node(fleet.attempts, len(fleet.nodes))[node]
    return observe_node(fleet.regime, fleet.nodes[node], attempts, seed=fleet.seed)


def _assert_same_until(fleet: Fleet, other: Fleet, *, node: int, second: int) -> None:
    assert list(_runs_until(fleet.attempts, second)) == list(_runs_until(other.attempts, second))
    outages = [[o for o in list_outages(f) if o.from_s < second] for f in (fleet, other)]
    assert outages[0] == outages[1]
    seen, unseen = (_observed(f, node) for f in (fleet, other))
    lines = [
        [line for line in part.events.lines if line.at_s < second - LOGGED_BEFORE_S]
        for part in (seen, unseen)
    ]
    assert lines[0] == lines[1]
    tables = [part.telemetry.rows(part.telemetry.at_s < second) for part in (seen, unseen)]
    for name in FIELDS:
        assert np.array_equal(tables[0].fields[name], tables[1].fields[name]), name
    assert np.array_equal(tables[0].gpu_uuid, tables[1].gpu_uuid)


@pytest.mark.parametrize("fault_type", ["sdc", "other_gpu"])
def test_nothing_tells_of_a_silent_failure_before_it_is_detected(
    fleet: Fleet, fault_type: str
) -> None:
    found = [i for i in _silent(fleet) if i.fault.fault_type == fault_type]
    assert len(found) > 2
    for incident in found:
        without = _without(fleet, incident)
        _assert_same_until(fleet, without, node=incident.node, second=incident.detected_s)


def test_its_jobs_run_on_until_the_node_is_given_up(fleet: Fleet) -> None:
    by_node = attempts_by_node(fleet.attempts, len(fleet.nodes))
    outlived = 0
    for incident in _silent(fleet):
        for attempt in by_node[incident.node]:
            assert attempt.start_s is not None
            assert not incident.detected_s <= attempt.start_s < incident.end_s
            if attempt.start_s < incident.onset_s:
                outlived += attempt.end_s == incident.grace_s
    assert outlived > 0


def test_jobs_still_start_on_a_node_that_nobody_knows_to_have_failed(fleet: Fleet) -> None:
    by_node = attempts_by_node(fleet.attempts, len(fleet.nodes))
    assert any(
        i.onset_s < (attempt.start_s or 0) < i.detected_s
        for i in _silent(fleet)
        for attempt in by_node[i.node]
    )


def test_what_is_logged_of_a_crash_depends_on_nothing_that_ends_later(fleet: Fleet) -> None:
    runs = attempts_by_node(fleet.attempts, len(fleet.nodes))[0]
    crash, long = [a for a in runs if a.is_own_crash and a.placement[0][0] == 0][:2]
    assert crash.end_s is not None
    logs = []
    for end_s in (fleet.end_s - 100, None):
        earlier = replace(long, start_s=0, end_s=end_s)
        events = tell_node(fleet.regime, fleet.nodes[0], [earlier, crash], seed=fleet.seed)
        logs.append([line for line in events.lines if line.at_s <= crash.end_s + 1])
    assert logs[0] == logs[1]
    assert any(line.code for line in logs[0])


def test_what_is_silent_changes_nothing_else_of_the_truth(demo: Regime) -> None:
    loud, silent = (
        simulate_failures(_with_sdc(demo, share=share), seed=2).incidents for share in (0.0, 1.0)
    )
    assert not any(incident.is_silent for incident in loud)
    assert {i.fault.fault_type for i in silent if i.is_silent} == {"sdc", "other_gpu"}
    facts = [
        [(i.fault.fault_type, i.gpu_uuid, i.onset_s, i.end_s, i.precursor) for i in incidents]
        for incidents in (loud, silent)
    ]
    assert facts[0] == facts[1]


def test_as_many_are_silent_as_the_regime_says(h100_year: Fleet) -> None:
    for fault in h100_year.regime.faults:
        found = [i for i in h100_year.incidents if i.fault.fault_type == fault.fault_type]
        expected, share = len(found) * fault.silent_share, fault.silent_share
        silent = sum(incident.is_silent for incident in found)
        assert abs(silent - expected) <= 4 * (expected * (1 - share)) ** 0.5, fault.fault_type
