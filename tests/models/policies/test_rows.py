"""Rules of the fast reading of policies, against the frames that define it."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.evaluation.event_metrics import caught_pairs, judge_alerts
from models.policies.kernel import alert_positions
from models.policies.rows import PolicyRows, dispersion, policy_rows
from models.policies.warnings import WarningPolicy, raise_alerts
from models.specs import Task

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def scored(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with a made-up score, some unknown, and some labels censored."""
    rng = np.random.default_rng(3)
    score = rng.random(rows.height) + 0.5 * rows["label"].to_numpy()
    is_scored, is_labelled = (pl.Series(rng.random(rows.height) > 0.1) for _ in range(2))
    return rows.with_columns(
        score=pl.when(is_scored).then(pl.Series(score)), label=pl.when(is_labelled).then("label")
    )


@pytest.fixture(scope="module", params=["gpu", "node"])
def task(request: pytest.FixtureRequest) -> Task:
    return Task(
        horizon_h=6,
        lead=timedelta(minutes=30),
        trained_on="synthetic",
        entity_kind=request.param,
    )


@pytest.fixture(scope="module")
def frame(scored: pl.DataFrame, task: Task) -> pl.DataFrame:
    if task.entity_kind == "gpu":
        return scored
    highest = scored.sort("label", "score", descending=True, nulls_last=True)
    return highest.unique(["node", "as_of"], keep="first", maintain_order=True).with_columns(
        entity_id=pl.col("node")
    )


@pytest.fixture(scope="module")
def prepared(frame: pl.DataFrame, incidents: pl.DataFrame, task: Task) -> PolicyRows:
    return policy_rows(frame, incidents=incidents, task=task, tick=HOUR)


POLICIES = st.builds(
    lambda threshold, n, more, cooldown: WarningPolicy(
        threshold=threshold, n=n, k=n + more, tick=HOUR, cooldown=cooldown * HOUR
    ),
    st.floats(0.6, 1.4),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 30),
)


def test_some_scores_are_known_and_some_are_not(prepared, frame) -> None:
    assert 0.8 * frame.height < prepared.score.size < frame.height
    assert frame["label"].null_count() > 0


@given(policy=POLICIES)
def test_alerts_and_outcomes_are_those_of_the_frames(
    policy, prepared, frame, incidents, task
) -> None:
    slow = raise_alerts(frame, policy)
    fast = prepared.alerts(policy)
    ranked = frame.drop_nulls("score").sort("entity_id", "as_of")
    assert ranked[fast].select("entity_id", "as_of").equals(slow.select("entity_id", "as_of"))
    judged = judge_alerts(slow, frame, incidents=incidents, task=task)
    known = frame.drop_nulls("label").select("entity_id", "as_of")
    caught = caught_pairs(
        slow.join(known, on=["entity_id", "as_of"], how="semi"), incidents, task=task
    )
    found = prepared.outcome(policy)
    assert found.n_true == caught["incident_id"].n_unique() == prepared.caught_by(fast).size
    assert found.n_false == (judged["outcome"] == "false").sum()
    assert (prepared.n_caught(fast) > 0).sum() == (judged["outcome"] == "true").sum()
    assert found.n_effective <= found.size


def test_incidents_and_time_are_counted_whether_scored_or_not(
    prepared, frame, incidents, task
) -> None:
    known = frame.drop_nulls("label")
    catchable = caught_pairs(known, incidents, task=task)["incident_id"].n_unique()
    assert prepared.n_incidents == catchable
    assert prepared.node_days == pytest.approx(10 * 150 / 24)
    assert prepared.n_places == 10


def test_the_order_of_rows_does_not_matter(prepared, frame, incidents, task) -> None:
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=2)
    again = policy_rows(shuffled, incidents=incidents, task=task, tick=HOUR)
    policy = WarningPolicy(threshold=1.0, n=2, k=3, tick=HOUR, cooldown=6 * HOUR)
    assert again.outcome(policy) == prepared.outcome(policy)


@pytest.mark.parametrize(("n_causes", "worth"), [(200, 1.0), (20, 0.1)])
def test_copies_of_one_cause_are_worth_one_episode(prepared, n_causes, worth) -> None:
    # Twenty thousand nodes and a thousand days: what coincides does so for a reason.
    rng = np.random.default_rng(1)
    day = np.repeat(rng.choice(1000, n_causes, replace=False), 200 // n_causes)
    size = day.size
    made = replace(
        prepared,
        entity=np.arange(size),
        time_us=np.linspace(0, 999 * 86_400e6, size).astype(np.int64),
        score=np.ones(size),
        is_false=np.zeros(size, dtype=np.bool_),
        caught=np.arange(size),
        caught_from=np.arange(size + 1),
        incident_us=(day * 86_400e6).astype(np.int64),
        incident_place=np.arange(size),
        place=np.arange(size),
        n_places=20_000,
    )
    found = made.episodes(np.arange(size))
    assert found.n_true == 200
    assert found.n_effective / found.size == pytest.approx(worth, rel=0.25)


@given(st.lists(st.integers(0, 9), max_size=40))
def test_the_dispersion_is_variance_over_mean_and_never_below_one(units) -> None:
    counts = np.bincount(np.asarray(units, dtype=np.int64), minlength=10)
    expected = counts.var(ddof=1) / counts.mean() if len(units) > 1 else 1.0
    found = dispersion(np.asarray(units, dtype=np.int64), n_units=10)
    assert found == pytest.approx(max(1.0, expected))


def test_more_of_the_same_never_makes_a_fleet_worth_less(prepared) -> None:
    # Independent episodes that crowd, as in large fleets, stay independent.
    rng = np.random.default_rng(4)
    worth = []
    for size in (100, 1000, 10_000):
        day = rng.integers(0, 60, size)
        worth.append(size / dispersion(day, n_units=60))
    assert worth == sorted(worth)
    assert worth[-1] > 6000


@given(ranks=st.tuples(st.integers(0, 1200), st.integers(0, 60)))
def test_thresholds_between_two_are_falling_scores_strictly_between(ranks, prepared) -> None:
    ranked = np.sort(prepared.score)[::-1]
    high, low = ranked[ranks[0]], ranked[sum(ranks)]
    between = prepared.thresholds_between(high, low)
    there = set(prepared.score[(prepared.score > low) & (prepared.score < high)].tolist())
    assert list(between) == sorted(set(between), reverse=True)
    assert set(between) <= there
    assert len(between) == min(len(there), 16)
    assert not there or between[0] == max(there)


@pytest.mark.parametrize(
    ("n", "window", "cooldown", "expected"),
    [
        (1, 1, 2, [0, 2]),  # a cooldown that has just ended does not hold back
        (1, 1, 3, [0, 3]),
        (2, 1, 0, []),  # a row a whole window ago is out of it
        (2, 2, 0, [1, 2, 3]),
    ],
)
def test_windows_and_cooldowns_are_half_open(n, window, cooldown, expected) -> None:
    entity, time = np.zeros(4, dtype=np.int64), np.arange(4)
    assert alert_positions(entity, time, np.ones(4), 0.5, n, window, cooldown).tolist() == expected
