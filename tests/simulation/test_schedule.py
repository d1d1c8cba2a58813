from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.fleet.cluster import PATIENCE_S, Cluster
from simulation.fleet.generate import Fleet, simulate_failures, simulate_fleet
from simulation.fleet.incidents import NodeTruth
from simulation.fleet.jobs import FIRST_JOB_ID
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import Attempt, attempts_by_node, schedule_jobs
from tests.simulation.plain_schedule import schedule_plainly


def changed(regime: Regime, **sections: dict[str, object]) -> Regime:
    """The regime with other values in some of its sections."""
    document = regime.model_dump()
    for section, values in sections.items():
        document[section].update(values)
    return Regime.model_validate(document)


@pytest.fixture(scope="module")
def eventful(demo: Regime) -> Fleet:
    """Nodes with whole and partitioned GPUs, with reboots and holds."""
    busy = changed(
        demo,
        hardware={"mig": {"node_share": 0.25, "profile": "1g.10gb", "instances": 7}},
        disturbances={
            "driver_day": 3.0, "reboots_per_node_year": 40, "holds_per_node_year": 60,
        },
    )  # fmt: skip
    return simulate_fleet(busy, seed=3, nodes=12, days=12)


def _end(fleet: Fleet, attempt: Attempt) -> int:
    return fleet.end_s if attempt.end_s is None else attempt.end_s


@given(
    seed=st.integers(0, 10_000),
    nodes=st.integers(1, 9),
    mig_share=st.sampled_from([0.0, 0.3, 1.0]),
    load=st.sampled_from([0.3, 0.8, 1.0]),
)
@settings(max_examples=25, deadline=None)
def test_the_indexed_scheduler_decides_as_one_that_scans_everything(
    demo: Regime, seed: int, nodes: int, mig_share: float, load: float
) -> None:
    regime = changed(
        demo,
        hardware={"mig": {"node_share": mig_share, "instances": 3}},
        workload={"gpu_hours_share": load},
        disturbances={"reboots_per_node_year": 60, "holds_per_node_year": 60},
    ).with_size(nodes=nodes, days=1.5)
    regime = regime.model_copy(update={"hazard_multiplier": 300.0})
    truths = simulate_failures(regime, seed=seed).nodes
    assert schedule_jobs(regime, truths, seed=seed) == schedule_plainly(regime, truths, seed=seed)


def test_no_place_runs_two_jobs_at_a_time(eventful: Fleet) -> None:
    spans: dict[tuple[int, int, int | None], list[tuple[int, int]]] = defaultdict(list)
    for attempt in eventful.attempts:
        if attempt.start_s is not None:
            for node, slots in attempt.placement:
                for slot in slots:
                    span = (attempt.start_s, _end(eventful, attempt))
                    spans[node, slot, attempt.instance].append(span)
    assert len(spans) == 9 * 8 + 3 * 8 * 7
    for used in spans.values():
        used.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(used))


def test_only_jobs_of_one_instance_run_on_partitioned_gpus(eventful: Fleet) -> None:
    is_mig = [truth.node.is_mig for truth in eventful.nodes]
    assert sum(is_mig) == 3
    for attempt in eventful.attempts:
        assert all(is_mig[node] == attempt.job.is_instance for node, _ in attempt.placement)
        if attempt.start_s is not None and attempt.job.is_instance:
            ((_, slots),) = attempt.placement
            assert len(slots) == 1
            assert attempt.instance in range(7)
        else:
            assert attempt.instance is None


def test_no_job_starts_or_stays_on_a_node_under_repair(demo: Regime) -> None:
    fleet = simulate_fleet(demo, seed=5)
    noticed = [incident for incident in fleet.incidents if incident.is_noticed]
    assert len(noticed) > 40
    by_node = attempts_by_node(fleet.attempts, len(fleet.nodes))
    for incident in noticed:
        for attempt in by_node[incident.node]:
            assert attempt.start_s is not None
            assert not incident.detected_s <= attempt.start_s < incident.end_s
            assert not (attempt.start_s < incident.grace_s < _end(fleet, attempt))


@pytest.mark.parametrize("what", ["driver", "reboot", "hold"])
def test_a_drained_node_takes_no_job_and_only_a_hold_lets_them_finish(
    eventful: Fleet, what: str
) -> None:
    by_node = attempts_by_node(eventful.attempts, len(eventful.nodes))
    planned = [
        (truth, work) for truth in eventful.nodes for work in truth.planned if work.what == what
    ]
    stayed = 0
    for truth, work in planned:
        for attempt in by_node[truth.node.index]:
            assert attempt.start_s is not None
            assert not work.drain_s <= attempt.start_s < work.end_s
            if attempt.start_s < work.work_s <= _end(eventful, attempt):
                stayed += _end(eventful, attempt) > work.work_s
                assert what == "hold" or attempt.state == "CANCELLED"
    assert planned
    assert (stayed > 0) == (what == "hold")


def test_a_failure_that_nobody_notices_ends_a_job_but_takes_no_node_out(demo: Regime) -> None:
    fleet = simulate_failures(demo, seed=5)
    truths = [_unnoticed(truth) for truth in fleet.nodes]
    by_node = attempts_by_node(schedule_jobs(demo, truths, seed=5), len(truths))
    assert any(
        incident.onset_s < (attempt.start_s or 0) < incident.end_s
        for incident in fleet.incidents
        for attempt in by_node[incident.node]
    )
    states = {attempt.state for runs in by_node for attempt in runs}
    assert "FAILED" in states
    assert "NODE_FAIL" not in states


def _unnoticed(truth: NodeTruth) -> NodeTruth:
    incidents = tuple(
        replace(i, detected_s=i.onset_s, grace_s=i.onset_s, end_s=i.onset_s, is_noticed=False)
        for i in truth.incidents
    )
    return replace(truth, incidents=incidents)


def test_a_job_takes_exactly_the_gpus_it_asked_for(eventful: Fleet) -> None:
    for attempt in eventful.attempts:
        placed = sum(len(slots) for _, slots in attempt.placement)
        assert placed == (0 if attempt.start_s is None else attempt.job.n_gpus)
        if attempt.job.n_gpus > 8:
            assert all(len(slots) == 8 for _, slots in attempt.placement)


def test_nodes_of_a_big_job_are_the_closest_that_are_free(demo: Regime) -> None:
    calm = demo.model_copy(update={"hazard_multiplier": 0.0})
    fleet = simulate_fleet(calm, seed=1, nodes=64, days=3)
    spans = [
        attempt.placement[-1][0] - attempt.placement[0][0] + 1
        for attempt in fleet.attempts
        if len(attempt.placement) == 2
    ]
    assert len(spans) > 20
    assert sum(span == 2 for span in spans) > 0.8 * len(spans)


def test_a_failed_node_requeues_its_jobs_under_their_id(demo: Regime) -> None:
    fleet = simulate_fleet(demo, seed=5, nodes=6, days=15)
    runs: dict[int, list[str]] = defaultdict(list)
    for attempt in fleet.attempts:
        runs[attempt.job.job_id].append(attempt.state)
    requeued = [states for states in runs.values() if "NODE_FAIL" in states]
    assert requeued
    assert any(len(states) > 1 for states in requeued)
    only_once = [states for states in runs.values() if "NODE_FAIL" not in states]
    assert all(len(states) == 1 for states in only_once)


def test_jobs_are_numbered_as_they_were_submitted_first(eventful: Fleet) -> None:
    first: dict[int, int] = {}
    for attempt in eventful.attempts:
        first.setdefault(attempt.job.job_id, attempt.submit_s)
    assert list(first) == list(range(FIRST_JOB_ID, FIRST_JOB_ID + len(first)))
    assert list(first.values()) == sorted(first.values())
    assert len(first) < len(eventful.attempts)


def test_parts_of_nodes_pass_a_big_job_that_waits_and_whole_nodes_do_not(
    demo: Regime, small: Fleet
) -> None:
    cluster = Cluster(demo.with_size(nodes=2, days=1), np.zeros(2, dtype=bool))
    for number, n_gpus in enumerate((1, 16, 8, 4)):
        job = replace(small.attempts[0].job, job_id=number, submit_s=0, n_gpus=n_gpus)
        cluster.queue.add(job)
    started = [run.job.job_id for _, run in cluster.start_waiting(PATIENCE_S + 1)]
    assert started == [0, 3]
    assert [job.job_id for job in cluster.queue] == [1, 2]


def test_some_jobs_crash_by_themselves(small: Fleet) -> None:
    crashed = [a for a in small.attempts if a.is_own_crash]
    assert 0.05 < len(crashed) / len(small.attempts) < 0.2
    assert all(attempt.state == "FAILED" for attempt in crashed)


def test_the_index_by_node_holds_what_ran_there_by_start(eventful: Fleet) -> None:
    by_node = attempts_by_node(eventful.attempts, len(eventful.nodes))
    for node, runs in enumerate(by_node):
        slow = [a for a in eventful.attempts if any(place == node for place, _ in a.placement)]
        assert list(runs) == sorted(slow, key=lambda a: a.start_s or 0)
