"""The P99 rule, against its published figures and an exact oracle."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from remediation.policy.standby import standby_pool_size, standby_pool_size_for


@pytest.mark.parametrize(("n_nodes", "size"), [(128, 2), (256, 2), (512, 3), (1024, 4)])
def test_the_pool_is_as_large_as_byterobust_published(n_nodes, size):
    assert standby_pool_size(n_nodes, 0.0012) == size


def quantile_by_definition(n: int, p: float, quantile: float) -> int:
    total = 0.0
    for k in range(n + 1):
        total += comb(n, k) * p**k * (1 - p) ** (n - k)
        if total >= quantile - 1e-12:
            return k
    return n


@given(n=st.integers(0, 60), p=st.floats(0, 1), quantile=st.floats(0.5, 0.999))
def test_the_pool_is_the_quantile_of_the_binomial_distribution(n, p, quantile):
    assert standby_pool_size(n, p, quantile=quantile) == quantile_by_definition(n, p, quantile)


@given(p=st.lists(st.floats(0, 1), max_size=12), more=st.floats(0, 1))
def test_another_node_never_makes_the_pool_smaller_nor_larger_by_two(p, more):
    without, with_it = standby_pool_size_for(p), standby_pool_size_for([*p, more])
    assert without <= with_it <= without + 1


def test_no_nodes_need_no_pool():
    assert standby_pool_size(0, 0.5) == 0


def test_nodes_that_all_fail_are_all_replaced():
    assert standby_pool_size(100, 1.0) == 100


@pytest.mark.parametrize(("n", "p", "quantile"), [(-1, 0.1, 0.9), (1, 1.1, 0.9), (1, 0.1, 1.0)])
def test_what_is_no_probability_is_refused(n, p, quantile):
    with pytest.raises(DataError, match="standby pool: expected"):
        standby_pool_size(n, p, quantile=quantile)
