from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import t as student_t

from simulation.fleet.demand import Demand, Stream, draw_demand, gpu_time_shares
from simulation.fleet.generate import simulate_failures
from simulation.fleet.jobs import draw_jobs
from simulation.fleet.regime import Regime
from simulation.fleet.schedule import schedule_jobs
from simulation.fleet.seeds import Layer, random_stream
from simulation.regimes.load import load_regime

NODES, DAYS = 2500, 4


@pytest.fixture(scope="module")
def large() -> Regime:
    """A fleet of 20,000 GPUs for four days."""
    return load_regime("a100").with_size(nodes=NODES, days=DAYS)


@pytest.fixture(scope="module")
def draws(large: Regime) -> list[Demand]:
    """What is asked of twenty such fleets."""
    return [draw_demand(large, random_stream(seed, Layer.JOBS)) for seed in range(20)]


def _running(demand: Demand, at_s: int) -> np.ndarray:
    """Which batch jobs run at a second, were each to start when it is submitted."""
    is_on = (demand.submit_s <= at_s) & (demand.submit_s + demand.duration_s > at_s)
    return is_on & (demand.stream == Stream.BATCH)


def _in_use(demand: Demand, at_s: int, sizes: Sequence[int]) -> np.ndarray:
    """GPUs in use by batch jobs of each size, were each to start when it is submitted."""
    gpus = demand.n_gpus[_running(demand, at_s)]
    return np.array([gpus[gpus == size].sum() for size in sizes])


def test_each_size_uses_at_the_start_the_gpus_that_it_uses_at_that_hour_of_later_days(
    large: Regime, draws: list[Demand]
) -> None:
    sizes = list(gpu_time_shares(large))
    first, *later = (
        np.array([_in_use(demand, day * 86400, sizes) for demand in draws]) for day in range(DAYS)
    )
    expected = np.mean(later, axis=0)
    error = np.std(first - expected, axis=0, ddof=1) / np.sqrt(len(draws))
    off = np.abs((first - expected).mean(axis=0)) / error
    # Big jobs are few and twenty fleets give no normal quantile: Student's, 1 in 10,000 in all.
    assert (off < student_t.ppf(1 - 1e-4 / 2 / len(sizes), len(draws) - 1)).all()


@pytest.mark.parametrize("day", [0, 3])
def test_sizes_share_the_gpus_of_a_day_as_the_parameters_say(
    large: Regime, draws: list[Demand], day: int
) -> None:
    expected = gpu_time_shares(large)
    hours = range(day * 86400, (day + 1) * 86400, 2 * 3600)
    seen = np.array([sum(_in_use(demand, at_s, [*expected]) for at_s in hours) for demand in draws])
    shares = seen / seen.sum(axis=1, keepdims=True)
    error = shares.std(axis=0, ddof=1) / np.sqrt(len(draws))
    off = np.abs(shares.mean(axis=0) - np.array([*expected.values()])) / error
    assert (off < 4).all()


def test_jobs_that_run_at_the_start_have_as_far_to_go_as_those_of_a_later_day(
    draws: list[Demand],
) -> None:
    left = {}
    for at_s in (0, 3 * 86400):
        ends = [(d.submit_s + d.duration_s - at_s)[_running(d, at_s)] for d in draws]
        left[at_s] = np.sort(np.concatenate(ends))
    first, later = left.values()
    both = np.concatenate([first, later])
    gap = np.abs(
        np.searchsorted(first, both, "right") / first.size
        - np.searchsorted(later, both, "right") / later.size
    ).max()
    assert first.size > 3000
    assert gap < 1.63 * np.sqrt(1 / first.size + 1 / later.size)  # Kolmogorov-Smirnov, 1 %


def test_gpus_are_asked_for_as_the_load_says_from_the_first_hour_on(
    large: Regime, draws: list[Demand]
) -> None:
    biggest = max(large.workload.size_weights)
    for at_s in range(0, DAYS * 86400, 4 * 3600):
        asked = np.array(
            [
                d.n_gpus[(d.submit_s <= at_s) & (d.submit_s + d.duration_s > at_s)].sum()
                for d in draws
            ]
        ) / (NODES * 8)
        assert abs(asked.mean() - large.workload.gpu_hours_share) < 0.05
        assert abs(asked - large.workload.gpu_hours_share).max() < biggest / (NODES * 8)


def test_the_mix_of_jobs_is_that_of_a_research_cluster(large: Regime, draws: list[Demand]) -> None:
    new = [d.taken((d.submit_s >= 0) & (d.stream == Stream.BATCH)) for d in draws]
    n_gpus = np.concatenate([d.n_gpus for d in new])
    duration_s = np.concatenate([d.duration_s for d in new])
    assert (n_gpus == 1).mean() > 0.4
    assert (n_gpus <= 8).mean() > 0.9
    gpu_s = n_gpus * duration_s
    assert gpu_s[n_gpus <= 8].sum() < 0.1 * gpu_s.sum()
    assert gpu_s[n_gpus >= 256].sum() > 0.5 * gpu_s.sum()
    weights = large.workload.size_weights
    for size, weight in weights.items():
        share = weight / sum(weights.values())
        error = np.sqrt(share / n_gpus.size)
        assert abs((n_gpus == size).mean() - share) < 4 * error + 0.05 * share
    whole = duration_s[(n_gpus == 1) & (np.concatenate([d.end for d in new]) == 0)]
    assert duration_s.max() <= large.workload.cap_h * 3600
    assert np.median(whole) == pytest.approx(900, rel=0.1)


@pytest.mark.parametrize("nodes", [250, 1000, 2500, 25_000])
def test_big_jobs_take_most_of_any_large_fleet_and_leave_half_of_it(
    large: Regime, nodes: int
) -> None:
    shares = gpu_time_shares(large.with_size(nodes=nodes, days=1))
    assert sum(shares.values()) == pytest.approx(1)
    assert sum(share for size, share in shares.items() if size >= 256) > 0.5
    assert sum(share for size, share in shares.items() if size <= 8) < 0.1
    assert max(shares) <= nodes * 4


def test_services_live_for_days_on_a_few_gpus_and_serve(large: Regime) -> None:
    jobs = draw_jobs(large, seed=1)
    services = [job for job in jobs if job.load.kind == "inference"]
    assert max(job.n_gpus for job in services) <= 8
    assert np.median([job.duration_s for job in services]) > 24 * 3600
    assert all(90 < job.load.util_pct < 100 for job in services)
    running = [job for job in jobs if job.submit_s <= 0]
    gpus = sum(job.n_gpus for job in running if job.load.kind == "inference")
    expected = large.workload.service_share * large.workload.gpu_hours_share * NODES * 8
    assert abs(gpus - expected) < 4 * np.sqrt(expected * 3)  # Poisson, of about three GPUs each


def test_only_jobs_below_a_node_are_for_debugging(large: Regime) -> None:
    jobs = draw_jobs(large, seed=1)
    small = [job for job in jobs if job.n_gpus < 8 and job.load.kind != "inference"]
    idle = [job for job in jobs if job.load.kind == "debug"]
    assert {job.n_gpus for job in idle} == {1, 2, 4}
    assert len(idle) / len(small) == pytest.approx(large.workload.debug_share, abs=0.02)


def test_instances_are_asked_for_as_whole_gpus_are(demo: Regime) -> None:
    document = demo.model_dump()
    document["hardware"]["mig"] = {"node_share": 0.5, "profile": "1g.10gb", "instances": 7}
    document["workload"]["service_share"] = 0.1
    mixed = Regime.model_validate(document).with_size(nodes=400, days=1)
    demand = draw_demand(mixed, random_stream(1, Layer.JOBS))
    is_instance = demand.stream == Stream.INSTANCE
    assert (demand.n_gpus[is_instance] == 1).all()
    is_on = (demand.submit_s <= 0) & (demand.submit_s + demand.duration_s > 0)
    asked = (is_instance & is_on).sum() / (200 * 8 * 7)
    assert asked == pytest.approx(demo.workload.gpu_hours_share, abs=0.03)
    whole = demand.n_gpus[~is_instance & is_on].sum() / (200 * 8)
    assert whole == pytest.approx(demo.workload.gpu_hours_share, abs=0.1)


def test_a_fleet_that_runs_is_as_busy_as_asked_from_the_first_hour_on(large: Regime) -> None:
    truths = simulate_failures(large, seed=2).nodes
    attempts = [a for a in schedule_jobs(large, truths, seed=2) if a.start_s is not None]
    start = np.array([a.start_s for a in attempts])
    end = np.array([DAYS * 86400 if a.end_s is None else a.end_s for a in attempts])
    n_gpus = np.array([a.job.n_gpus for a in attempts])
    from_s = np.arange(0, DAYS * 86400, 3600)[:, None]
    spent = np.clip(np.minimum(end, from_s + 3600) - np.maximum(start, from_s), 0, None)
    by_hour = spent @ n_gpus / (3600 * NODES * 8)
    assert abs(by_hour[0] - large.workload.gpu_hours_share) < 0.05
    assert abs(by_hour.mean() - large.workload.gpu_hours_share) < 0.03
    assert by_hour.std() < 0.06


@pytest.mark.parametrize("hour", [0, 9])
def test_most_jobs_come_in_the_afternoon_whenever_the_record_begins(
    large: Regime, hour: int
) -> None:
    regime = large.model_copy(update={"start": large.start.replace(hour=hour)})
    demand = draw_demand(regime, random_stream(1, Layer.JOBS))
    at_s = demand.submit_s[(demand.submit_s >= 0) & (demand.n_gpus < regime.gpus_per_node)]
    angle = 2 * np.pi * (at_s / 86400 + hour / 24)
    busiest_h = np.angle(np.exp(1j * angle).mean()) * 24 / (2 * np.pi) % 24
    assert busiest_h == pytest.approx(14, abs=1.5)
