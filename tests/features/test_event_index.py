"""Rules of counting past events, against a plain loop and against Polars' as-of join."""

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from features.event_index import NO_GROUP, EventIndex

group = st.integers(NO_GROUP, 4)
moment = st.integers(0, 12)
pairs = st.lists(st.tuples(group, moment), max_size=30)


def arrays(given_pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(given_pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


@settings(max_examples=200, deadline=None)
@given(pairs, pairs)
def test_counts_times_and_sums_are_those_of_a_plain_loop(
    events: list[tuple[int, int]], questions: list[tuple[int, int]]
) -> None:
    index = EventIndex(*arrays(events))
    groups, before = arrays(questions)
    count, last, elapsed = (
        ask(groups, before) for ask in (index.count, index.last_time, index.elapsed)
    )
    for i, (of_group, until) in enumerate(questions):
        own = [t for g, t in events if g == of_group and g != NO_GROUP and t < until]
        assert count[i] == len(own)
        assert last[i] == max(own) if own else np.isnan(last[i])
        assert elapsed[i] == sum(until - t for t in own)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_last_event_is_that_of_an_as_of_join(seed: int, is_sorted: bool) -> None:
    rng = np.random.default_rng(seed)
    groups, times = rng.integers(0, 3, 200), rng.integers(0, 500, 200)
    asked = np.sort(rng.integers(0, 500, 90)) if is_sorted else rng.integers(0, 500, 90)
    of_group = rng.integers(0, 4, 90)
    questions = pl.DataFrame({"g": of_group, "at": asked}).with_row_index()
    events = pl.DataFrame({"g": groups, "ts": times}).sort("ts")
    joined = questions.sort("at").join_asof(
        events, left_on="at", right_on="ts", by="g", allow_exact_matches=False,
        check_sortedness=False, coalesce=False,
    )  # fmt: skip
    expected = joined.sort("index")["ts"].cast(pl.Float64)
    got = pl.Series("ts", EventIndex(groups, times).last_time(of_group, asked), nan_to_null=True)
    assert got.equals(expected)


def test_the_sum_of_a_group_does_not_depend_on_how_much_there_is_of_others() -> None:
    now = 1_500_000_000_000_000  # microseconds: some thousands of such pass 2**63
    own = np.array([now - 7, now - 3])
    times = np.concatenate((np.full(20_000, now - 1), own))
    groups = np.concatenate((np.zeros(20_000, np.int64), [1, 1]))
    asked, moment = np.array([0, 1]), np.array([now, now])
    assert EventIndex(groups, times).elapsed(asked, moment).tolist() == [20_000, 10]


def test_no_events_and_no_questions_are_answered() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert EventIndex(nothing, nothing).count(np.array([0, NO_GROUP]), np.array([5, 5])).sum() == 0
    assert EventIndex(np.array([0]), np.array([1])).last_time(nothing, nothing).size == 0
