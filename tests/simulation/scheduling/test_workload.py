"""Jobs drawn from a trace: what of it stays, and what is assumed."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from features.errors import DataError
from simulation.scheduling.inference import DAY_S, Traffic, needed_servers
from simulation.scheduling.servers import Shape
from simulation.scheduling.workload import Mix, draw_jobs

PHILLY = Path(__file__).parents[3] / "../shared/data/philly"
START = datetime(2017, 10, 2)  # noqa: DTZ001 - the trace has no zone
SHAPE = Shape(training=4, inference=4)
CAPACITY_S = 4 * 8 * 15 * DAY_S


def trace(rows=400):
    rng = np.random.default_rng(3)
    return pl.DataFrame(
        {
            "timestamp": [START + timedelta(hours=9, seconds=1800 * n) for n in range(rows)],
            "duration": rng.lognormal(8.0, 1.5, rows),
            "num_gpus": rng.choice([1, 2, 4, 8], rows),
        }
    )


def drawn(seed=0, **mix):
    rng = np.random.default_rng(seed)
    return draw_jobs(trace(), Mix(**mix), rng=rng, shape=SHAPE)


def counted(jobs):
    return [job for job in jobs if job.is_counted]


def gpu_s(jobs):
    return sum(job.duration_s * job.n_gpus for job in jobs)


@pytest.mark.parametrize("mapping", ["squeezed", "days"])
@pytest.mark.parametrize("load", [0.7, 1.1])
def test_the_jobs_bring_the_load_asked_for(mapping, load):
    jobs = counted(drawn(mapping=mapping, load=load))
    assert gpu_s(jobs) / CAPACITY_S == pytest.approx(load)
    assert all(0.0 <= job.submit_s <= 15 * DAY_S for job in jobs)


def test_as_many_jobs_are_drawn_as_asked_for_at_the_same_load():
    jobs = counted(drawn(n_jobs=50, load=0.9))
    assert len(jobs) == 50
    assert gpu_s(jobs) / CAPACITY_S == pytest.approx(0.9)


def test_jobs_come_in_order_and_know_their_number():
    jobs = drawn()
    assert [job.number for job in jobs] == list(range(len(jobs)))
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)


def test_the_cluster_starts_as_busy_as_the_load_says():
    there = [
        sum(job.n_gpus for job in drawn(seed, load=0.8, n_jobs=3000) if not job.is_counted)
        for seed in range(30)
    ]
    assert np.mean(there) / (4 * 8) == pytest.approx(0.8, rel=0.1)


def test_squeezed_jobs_keep_their_place_in_the_trace():
    rows = trace().with_columns(duration=pl.Series(np.arange(1.0, 401.0)))
    jobs = counted(draw_jobs(rows, Mix(), rng=np.random.default_rng(1), shape=SHAPE))
    by_place = sorted(jobs, key=lambda job: job.submit_s)
    assert [job.duration_s for job in by_place] == sorted(job.duration_s for job in jobs)


def test_days_laid_over_one_another_keep_the_time_of_day():
    office = trace().filter(pl.col("timestamp").dt.hour().is_between(9, 16))
    mix = Mix(mapping="days")
    jobs = counted(draw_jobs(office, mix, rng=np.random.default_rng(1), shape=SHAPE))
    assert all(9 <= job.submit_s % DAY_S / 3600 < 17 for job in jobs)
    assert len({job.submit_s // DAY_S for job in jobs}) == 15


def test_elastic_jobs_are_long_and_have_the_share_asked_for():
    jobs = counted(drawn(n_jobs=20_000, elastic_share=0.3, elastic_min_s=2000.0, scaling=3))
    elastic = [job for job in jobs if job.max_extra]
    assert all(job.duration_s >= 2000.0 for job in elastic)
    assert all(job.max_workers == 3 * job.min_workers for job in elastic)
    assert all(job.is_fungible for job in elastic)
    assert gpu_s(elastic) / gpu_s(jobs) == pytest.approx(0.3, abs=0.02)


def test_a_share_of_the_other_jobs_may_run_on_inference_gpus():
    jobs = [job for job in drawn(n_jobs=20_000, fungible_share=0.2) if not job.max_extra]
    assert np.mean([job.is_fungible for job in jobs]) == pytest.approx(0.2, abs=0.01)


def test_workers_of_large_jobs_have_two_gpus_and_fit_on_lent_servers():
    jobs = drawn()
    assert {(job.n_gpus, job.worker_gpus) for job in jobs} == {(1, 1), (2, 1), (4, 1), (8, 2)}


def test_rows_without_time_or_gpus_are_left_out_and_a_trace_of_them_is_refused():
    empty = trace(3).with_columns(duration=pl.Series([None, 0.0, -5.0]))
    with pytest.raises(DataError, match="none of 3 rows"):
        draw_jobs(empty, Mix(), rng=np.random.default_rng(0))
    with pytest.raises(DataError, match="missing num_gpus"):
        draw_jobs(trace().drop("num_gpus"), Mix(), rng=np.random.default_rng(0))
    with pytest.raises(DataError, match="times"):
        draw_jobs(
            trace().with_columns(timestamp=pl.lit("soon")), Mix(), rng=np.random.default_rng(0)
        )


def test_inference_needs_follow_the_day_within_their_bounds():
    traffic, shape = Traffic(), Shape()
    rng = np.random.default_rng(2)
    needed = needed_servers(traffic, shape, actions=4320, action_s=300.0, rng=rng)
    spare = traffic.headroom_servers(shape)
    used = (needed - spare) / shape.inference
    assert used.min() == pytest.approx(0.42, abs=0.005)
    assert used.max() == pytest.approx(0.95, abs=0.005)
    by_hour = used.reshape(15, 24, 12).mean(axis=(0, 2))
    assert by_hour.argmax() in {14, 15}
    assert by_hour.argmin() in {2, 3}


@pytest.mark.real
@pytest.mark.skipif(not PHILLY.is_dir(), reason="the Philly jobs (../shared/data) are not here")
def test_elastic_jobs_run_as_long_as_phillys_published_elastic_ones():
    elastic = pl.read_csv(PHILLY / "elastic_jobs.csv")
    assert elastic["duration"].quantile(0.25) == pytest.approx(Mix().elastic_min_s, abs=1.0)
