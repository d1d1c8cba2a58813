"""ETTR: measured, sliding and expected, against published figures and a plain definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from models.recovery.ettr import Stretch, cumulative_ettr, expected_ettr, sliding_ettr


@pytest.mark.parametrize(
    ("n_nodes", "interval_min", "wait_min", "published"),
    [(2000, 60, 0, 0.684), (2000, 5, 0, 0.932), (1000, 30, 1, 0.906)],
)
def test_the_closed_form_gives_metas_figures(n_nodes, interval_min, wait_min, published):
    value = expected_ettr(
        n_nodes=n_nodes,
        failures_per_node_day=0.0065,
        restart_min=5,
        interval_min=interval_min,
        wait_min=wait_min,
    )
    assert round(value, 3) == published


def test_a_job_that_fails_faster_than_it_recovers_gets_nowhere():
    value = expected_ettr(
        n_nodes=1e6, failures_per_node_day=1, restart_min=5, interval_min=60, wait_min=1
    )
    assert value == 0


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_the_closed_form_refuses_what_is_no_number_of_nodes(wrong):
    with pytest.raises(DataError, match="finite and not negative"):
        expected_ettr(n_nodes=wrong, failures_per_node_day=0.1, restart_min=5, interval_min=60)


def course(spans):
    at, stretches = 0.0, []
    for span, is_productive in spans:
        stretches.append(Stretch(at, at + span, is_productive))
        at += span
    return stretches


SPANS = st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=8)


def productive_second_by_second(spans, start, end):
    flags = [is_productive for span, is_productive in spans for _ in range(span)]
    return sum(flags[start:end])


@given(SPANS)
def test_cumulative_is_productive_by_wall_time(spans):
    total = sum(span for span, _ in spans)
    value = cumulative_ettr(course(spans))
    if total == 0:
        assert value is None
    else:
        assert value == pytest.approx(productive_second_by_second(spans, 0, total) / total)


@given(SPANS, st.integers(1, 30))
def test_sliding_agrees_with_counting_seconds_and_holds_the_least(spans, window):
    total = sum(span for span, _ in spans)
    ends, values = sliding_ettr(course(spans), window_s=window)
    counted = {
        end: productive_second_by_second(spans, end - window, end) / window
        for end in range(window, total + 1)
    }
    assert [counted[int(end)] for end in ends] == pytest.approx(values.tolist())
    assert (min(counted.values()) if counted else 1) == pytest.approx(values.min(initial=1))


def test_nothing_has_an_empty_course():
    assert cumulative_ettr([]) is None
    assert [part.size for part in sliding_ettr([])] == [0, 0]


def test_gaps_overlaps_and_backward_stretches_are_refused():
    for second in (Stretch(2, 3, True), Stretch(0.5, 3, True), Stretch(1, 0, True)):
        with pytest.raises(DataError, match=r"without gap or overlap|before it begins"):
            cumulative_ettr([Stretch(0, 1, True), second])
    with pytest.raises(DataError, match="window above 0"):
        sliding_ettr([Stretch(0, 1, True)], window_s=0)
    assert np.isfinite(cumulative_ettr([Stretch(0, 1, True)]))
