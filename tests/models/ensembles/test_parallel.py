"""Rules of the parallel ensemble: its score is the intersection of the top-K sets, for every K."""

import json
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import DataError
from models.ensembles.parallel import MAX_KNOTS, fit_parallel, fit_places
from models.ensembles.stored import CalibratedMember, member_from_dict
from models.ensembles.top_k import (
    alert_metrics,
    intersection,
    rank_of_moment,
    share_of_moment,
    top_k,
)
from models.policies.warnings import WarningPolicy, raise_alerts
from tests.models.ensembles.made_up import BOOSTED, DAY, LOGISTIC, MLP, NAMES, START, TASK


class Column:
    """A member that reads its score from a column."""

    def __init__(self, name: str) -> None:
        self.name = name

    def raw_scores(self, rows, *, earlier=None):
        return rows[self.name].to_numpy()


def moment(*scores) -> pl.DataFrame:
    size = len(scores[0])
    return pl.DataFrame(
        {f"s{i}": np.asarray(one, dtype=float) for i, one in enumerate(scores)}
    ).with_columns(entity_id=pl.Series([f"gpu-{i}" for i in range(size)]), as_of=pl.lit(START))


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(*[st.permutations(range(n))] * 3)))
def test_the_worst_place_holds_the_intersection_of_all_top_k_sets(orders) -> None:
    rows = moment(*orders)
    names = ["s0", "s1", "s2"]
    ensemble = fit_parallel([Column(name) for name in names], rows)
    score = ensemble.raw_scores(rows)
    for k in range(1, rows.height + 1):
        # Within the top k of n: at most k of n score as high.
        threshold = np.log(rows.height) - np.log(k)
        chosen = intersection([rank_of_moment(rows, score=name) for name in names], k)
        assert (score >= threshold - 1e-12).tolist() == chosen.to_list()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 9))
def test_top_k_is_that_of_a_sorted_list(scores, k) -> None:
    rows = moment(scores)
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], f"gpu-{i}"))[:k]
    chosen = top_k(rank_of_moment(rows, score="s0"), k)
    assert sorted(expected) == [i for i, is_in in enumerate(chosen) if is_in]


def test_each_moment_has_its_own_k() -> None:
    rows = pl.concat([moment([3, 2, 1, 0]), moment([9, 8]).with_columns(as_of=START + DAY)])
    k = share_of_moment(rows, share=0.5)
    assert k.to_list() == [2, 2, 2, 2, 1, 1]
    assert top_k(rank_of_moment(rows, score="s0"), k).to_list() == [
        True,
        True,
        False,
        False,
        True,
        False,
    ]


def test_an_unknown_score_is_never_among_the_highest() -> None:
    rows = moment([1, 2]).with_columns(s0=pl.Series([None, 0.5]))
    assert top_k(rank_of_moment(rows, score="s0"), 2).to_list() == [False, True]


def test_a_score_does_not_depend_on_the_rows_scored_with_it(early, late) -> None:
    members = [spec.fit(early, feature_names=NAMES, task=TASK) for spec in (BOOSTED, LOGISTIC)]
    ensemble = fit_parallel(members, late)
    whole = ensemble.raw_scores(late)
    alone = np.concatenate([ensemble.raw_scores(late[i : i + 1]) for i in range(9)])
    np.testing.assert_allclose(alone, whole[:9], rtol=1e-9)


@pytest.mark.parametrize("rule", ["worst", "mean"])
def test_an_ensemble_reads_back_and_takes_calibration_and_warning_policy(rule, early, late) -> None:
    specs = (BOOSTED, LOGISTIC, MLP)
    members = [spec.fit(early, feature_names=NAMES, task=TASK) for spec in specs]
    ensemble = fit_parallel(members, late, rule=rule)
    again = member_from_dict(json.loads(json.dumps(ensemble.to_dict(), allow_nan=False)))
    assert (again.raw_scores(late) == ensemble.raw_scores(late)).all()
    model = CalibratedMember(ensemble).calibrated_on(late)
    scored = late.with_columns(score=pl.Series(model.scores(late)))
    threshold = float(scored["score"].quantile(0.97))
    policy = WarningPolicy(threshold=threshold, tick=DAY, cooldown=timedelta(0))
    alerts = raise_alerts(scored, policy).join(late, on=["entity_id", "as_of"])
    assert alerts.height == (scored["score"] >= threshold).sum()
    assert alerts["label"].mean() > 5 * late["label"].mean()


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9))
def test_places_rise_with_the_score(raw) -> None:
    places = fit_places(np.asarray(raw))
    probes = np.linspace(-60, 60, 41)
    levels = places.apply(probes)
    assert (np.diff(levels) >= 0).all()
    # Above everything seen the order of scores must survive.
    assert levels[-1] > levels[-2]


def test_places_of_many_scores_stay_near_the_exact_ones() -> None:
    raw = np.random.default_rng(1).normal(size=20_000)
    places = fit_places(raw)
    assert places.knots.size <= MAX_KNOTS
    share = (raw[None, :] >= np.asarray([[-1.0], [0.0], [2.0], [3.0]])).mean(axis=1)
    np.testing.assert_allclose(
        places.apply(np.asarray([-1.0, 0.0, 2.0, 3.0])), -np.log(share), atol=0.04
    )


@pytest.mark.parametrize("raw", [[], [1.0, np.nan]])
def test_a_reference_must_be_finite(raw) -> None:
    with pytest.raises(DataError, match="finite reference"):
        fit_places(np.asarray(raw))


def test_one_member_is_no_ensemble(late) -> None:
    with pytest.raises(DataError, match="at least 2"):
        fit_parallel([Column("heat")], late)


def test_alerts_without_a_label_count_neither_way() -> None:
    chosen = pl.Series([True, True, True, False])
    found = alert_metrics(chosen, pl.Series([1, 0, None, 1]))
    assert (found.n_alerts, found.n_true, found.n_positive) == (2, 1, 2)
    assert (found.precision, found.recall, found.f1) == (0.5, 0.5, 0.5)
    nothing = alert_metrics(pl.Series([False]), pl.Series([0]))
    assert (nothing.precision, nothing.recall, nothing.f1) == (None, None, None)
