from collections import Counter, defaultdict
from itertools import pairwise

from simulation.fleet.generate import Fleet, simulate_fleet
from simulation.fleet.jobs import draw_jobs
from simulation.fleet.regime import Regime


def test_no_gpu_runs_two_jobs_at_a_time(small: Fleet) -> None:
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for attempt in small.attempts:
        if attempt.start_s is None:
            continue
        end = small.end_s if attempt.end_s is None else attempt.end_s
        for node, slots in attempt.placement:
            for slot in slots:
                spans[node, slot].append((attempt.start_s, end))
    assert len(spans) == 24
    for used in spans.values():
        used.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(used))


def test_no_job_starts_or_stays_on_a_node_under_repair(demo: Regime) -> None:
    fleet = simulate_fleet(demo, seed=5)
    assert len(fleet.incidents) > 40
    for incident in fleet.incidents:
        for attempt in fleet.attempts:
            on_node = any(node == incident.node for node, _ in attempt.placement)
            if not on_node or attempt.start_s is None:
                continue
            end = fleet.end_s if attempt.end_s is None else attempt.end_s
            assert not incident.onset_s <= attempt.start_s < incident.end_s
            assert not (attempt.start_s < incident.grace_s < end)


def test_a_job_takes_exactly_the_gpus_it_asked_for(small: Fleet) -> None:
    for attempt in small.attempts:
        placed = sum(len(slots) for _, slots in attempt.placement)
        assert placed == (0 if attempt.start_s is None else attempt.job.n_gpus)
        if attempt.job.n_gpus > 8:
            assert all(len(slots) == 8 for _, slots in attempt.placement)


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


def test_jobs_are_mostly_small_but_big_ones_take_the_gpu_time(demo: Regime) -> None:
    jobs = draw_jobs(demo, seed=1)
    sizes = Counter(job.n_gpus for job in jobs)
    assert sizes[1] / len(jobs) > 0.4
    in_one_node = sum(n for size, n in sizes.items() if size <= 8) / len(jobs)
    assert in_one_node > 0.9
    hours = Counter[bool]()
    for job in jobs:
        hours[job.n_gpus > 8] += job.n_gpus * job.duration_s
    assert hours[True] > hours[False]


def test_some_jobs_crash_by_themselves_and_most_of_them_early(small: Fleet) -> None:
    crashed = [a for a in small.attempts if a.is_own_crash]
    assert 0.05 < len(crashed) / len(small.attempts) < 0.2
    assert all(attempt.state == "FAILED" for attempt in crashed)
