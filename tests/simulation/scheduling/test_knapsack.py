"""The knapsack, against trying every choice and against the textbook's table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.scheduling.knapsack import extra_workers
from tests.simulation.scheduling.plain_allocator import (
    as_columns,
    best_saving_by_brute_force,
    best_saving_by_table,
    saving,
)

SIZES = (1, 2, 3, 4)


def elastic_jobs(*, most_jobs, most_extra, sizes=SIZES):
    job = st.tuples(
        st.floats(0, 1e6), st.integers(1, 6), st.integers(0, most_extra), st.sampled_from(sizes)
    )
    return st.lists(job, min_size=1, max_size=most_jobs)


def saved(jobs, extra):
    return sum(saving(job[0], job[1], count) for job, count in zip(jobs, extra, strict=True))


def is_allowed(jobs, extra, capacity):
    fits = sum(count * job[3] for job, count in zip(jobs, extra, strict=True)) <= capacity
    return fits and all(0 <= n <= job[2] for job, n in zip(jobs, extra, strict=True))


@given(jobs=elastic_jobs(most_jobs=5, most_extra=3), capacity=st.integers(0, 20))
def test_the_knapsack_saves_as_much_as_the_best_of_all_choices(jobs, capacity):
    extra = extra_workers(**as_columns(jobs), capacity=capacity)
    assert is_allowed(jobs, extra, capacity)
    assert saved(jobs, extra) == pytest.approx(best_saving_by_brute_force(jobs, capacity))


@given(jobs=elastic_jobs(most_jobs=25, most_extra=9), capacity=st.integers(0, 200))
def test_the_knapsack_saves_as_much_as_the_textbooks_table(jobs, capacity):
    extra = extra_workers(**as_columns(jobs), capacity=capacity)
    assert is_allowed(jobs, extra, capacity)
    assert saved(jobs, extra) == pytest.approx(best_saving_by_table(jobs, capacity))


def test_a_large_worker_is_passed_over_where_two_small_ones_save_more():
    # Per GPU the large worker saves most, but the two small ones beside it fill the capacity.
    jobs = [(120.0, 1, 1, 3), (70.0, 1, 1, 2), (70.0, 1, 1, 2)]
    assert list(extra_workers(**as_columns(jobs), capacity=4)) == [0, 1, 1]


def test_no_jobs_get_no_workers():
    assert len(extra_workers(**as_columns([]), capacity=8)) == 0


def test_everybody_gets_all_where_there_is_room_for_all():
    jobs = [(10.0, 1, 2, 1), (0.0, 2, 3, 2)]
    assert list(extra_workers(**as_columns(jobs), capacity=8)) == [2, 3]
    assert np.array_equal(extra_workers(**as_columns(jobs), capacity=0), [0, 0])
