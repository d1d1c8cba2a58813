"""Rules of judging scores row by row."""

import json

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import brier_score_loss, log_loss, precision_recall_curve

from features.errors import DataError
from models.evaluation.row_metrics import (
    Bootstrap,
    compare,
    estimate,
    evaluate,
    group_codes,
    resample_groups,
    row_metrics,
    top_unit,
)
from models.evaluation.row_metrics import precision_recall_curve as our_curve

FAST = Bootstrap(resamples=40)


def frame(score, label, entity=None) -> pl.DataFrame:
    size = len(score)
    return pl.DataFrame(
        {
            "entity_id": entity or [f"gpu-{i}" for i in range(size)],
            "label": label,
            "score": score,
        },
        schema_overrides={"label": pl.Int8, "score": pl.Float64},
    )


@pytest.fixture(scope="module")
def many() -> pl.DataFrame:
    rng = np.random.default_rng(3)
    score = rng.random(3000)
    label = (rng.random(3000) < score**3).astype(np.int8)
    return frame(score, label, [f"gpu-{i % 100:02d}" for i in range(3000)])


def test_rows_without_label_or_score_are_left_out_and_counted() -> None:
    found = row_metrics(frame([0.9, 0.1, None, 0.5], [1, 0, 1, None]), bootstrap=FAST)
    assert (found.n_rows, found.n_unlabelled, found.n_unscored) == (2, 1, 1)
    assert found.auc.value == 1.0


def test_probabilities_are_judged_as_scikit_learn_judges_them(many) -> None:
    found = row_metrics(many, bootstrap=FAST)
    label, score = many["label"].to_numpy(), many["score"].to_numpy()
    assert found.brier == pytest.approx(brier_score_loss(label, score))
    assert found.log_loss == pytest.approx(log_loss(label, score))


def test_a_rank_has_no_log_loss(many) -> None:
    found = row_metrics(many.with_columns(score=100 * pl.col("score")), kind="rank", bootstrap=FAST)
    assert (found.brier, found.log_loss, found.reliability) == (None, None, ())


def test_every_point_of_the_curve_is_on_scikit_learns(many) -> None:
    label, score = many["label"].to_numpy(), many["score"].to_numpy()
    precision, recall, threshold = precision_recall_curve(label, score)
    on_theirs = {t: (p, r) for t, p, r in zip(threshold, precision, recall, strict=False)}
    points = our_curve(score, label)
    assert points[-1].recall == 1.0
    assert 100 < len(points) <= 200
    for point in points:
        assert (point.precision, point.recall) == pytest.approx(on_theirs[point.threshold])


def test_reliability_bins_hold_all_rows(many) -> None:
    bins = row_metrics(many, bootstrap=FAST).reliability
    assert sum(b.n_rows for b in bins) == many.height
    assert [b.mean_score for b in bins] == sorted(b.mean_score for b in bins)
    assert bins[-1].rate == pytest.approx(0.85, abs=0.1)


def test_the_interval_holds_the_value_and_narrows_with_entities(many) -> None:
    wide = row_metrics(many.filter(pl.col("entity_id") < "gpu-10"), bootstrap=FAST).auc
    narrow = row_metrics(many, bootstrap=FAST).auc
    assert wide.low < wide.value < wide.high
    assert narrow.high - narrow.low < wide.high - wide.low


def test_groups_are_numbered_by_name_whatever_the_order_of_rows() -> None:
    codes, n_groups = group_codes(pl.Series(["b", "c", "b", "a"]))
    assert (codes.tolist(), n_groups) == ([1, 2, 1, 0], 3)


def test_a_resample_draws_as_many_groups_as_there_are_with_replacement() -> None:
    drawn = resample_groups(4, Bootstrap(resamples=50))
    assert drawn.shape == (50, 4)
    assert (drawn.sum(axis=1) == 4).all()
    assert drawn.max() > 1


def test_the_order_of_rows_changes_no_interval(many) -> None:
    shuffled = many.sample(fraction=1.0, shuffle=True, seed=3)
    first, second = (row_metrics(rows, bootstrap=FAST).auc for rows in (many, shuffled))
    assert (second.low, second.high) == pytest.approx((first.low, first.high))


def test_the_same_seed_gives_the_same_interval(many) -> None:
    assert row_metrics(many, bootstrap=FAST) == row_metrics(many, bootstrap=FAST)
    other = row_metrics(many, bootstrap=Bootstrap(resamples=40, seed=2))
    assert row_metrics(many, bootstrap=FAST).auc != other.auc


def test_a_result_carried_by_one_unit_shows_without_it() -> None:
    bad = frame([0.9] * 30, [1] * 30, ["lemon"] * 30)
    rng = np.random.default_rng(1)
    rest = frame(rng.random(200), rng.integers(0, 2, 200), [f"gpu-{i % 50}" for i in range(200)])
    found = evaluate(pl.concat([bad, rest]), bootstrap=FAST)
    assert found.top_unit == "lemon"
    assert found.all_rows.auc.value > found.without_top_unit.auc.value
    assert found.without_top_unit.n_rows == 200


def test_equal_units_are_told_apart_by_name() -> None:
    assert top_unit(frame([0.1, 0.2], [1, 1], ["b", "a"])) == "a"
    assert top_unit(frame([0.1], [0])) is None


def test_comparing_a_score_with_itself_gives_exactly_nothing(many) -> None:
    same = compare(many.with_columns(twin=2 * pl.col("score")), score="score", other="twin")
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)


def test_a_better_score_is_better_beyond_chance_and_the_other_way_round(many) -> None:
    rng = np.random.default_rng(4)
    noisy = many.with_columns(noise=pl.Series(rng.random(many.height)))
    better = compare(noisy, score="score", other="noise", bootstrap=FAST)
    worse = compare(noisy, score="noise", other="score", bootstrap=FAST)
    assert better.low > 0
    assert worse.high == pytest.approx(-better.low)


def test_a_score_that_is_not_finite_is_refused() -> None:
    with pytest.raises(DataError, match="1 of 2 values of 'score'"):
        row_metrics(frame([float("nan"), 0.2], [0, 1]))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(DataError, match="'label' is missing"):
        row_metrics(frame([0.1], [0]).drop("label"))


def test_no_row_gives_no_number() -> None:
    found = evaluate(frame([], []))
    assert found.all_rows.auc.value is None
    assert found.all_rows.prevalence is None


def test_an_undefined_resample_is_left_out_of_the_interval() -> None:
    found = estimate(0.5, np.asarray([0.4, np.nan, 0.6]))
    assert (found.low, found.high) == pytest.approx((0.405, 0.595))
    assert str(found) == "0.500 [0.405, 0.595]"


def test_an_evaluation_is_plain_values(many) -> None:
    json.dumps(evaluate(many, bootstrap=FAST).to_dict(), allow_nan=False)
