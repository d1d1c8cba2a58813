"""Rules of sliding training: the past decides, and longer where it is close."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from models.ensembles.sliding import (
    EVERYTHING,
    SlidingSpec,
    choose_training_length,
    longest_near_best,
    recent_rows,
    with_multiplied_positives,
)
from tests.models.ensembles.made_up import DAY, LOGISTIC, NAMES, START, TASK

SPEC = SlidingSpec(lengths=(5 * DAY, 10 * DAY), n_origins=3, window=4 * DAY)
# Between two rows: what the newest row's label says is known a day after it only.
UNTIL = START + 27.75 * DAY


def choose(rows):
    return choose_training_length(
        rows, until=UNTIL, spec=SPEC, member=LOGISTIC, feature_names=NAMES, task=TASK
    )


@pytest.mark.parametrize(
    ("precision", "days"),
    [
        ({5: (0.3, 0.3), 10: (0.3, 0.3)}, 10),  # equal: the longer
        ({5: (0.3, 0.5), 10: (0.4, 0.3)}, 10),  # within two standard errors
        ({5: (0.4, 0.4), 10: (0.3, 0.31)}, 5),  # surely worse
        ({5: (0.4,), 10: (0.39,)}, 5),  # one origin says nothing of chance
        ({5: (0.4, 0.4), 10: (0.5, float("nan"))}, 5),  # could not be trained everywhere
    ],
)
def test_the_longer_one_wins_where_it_is_close(precision, days) -> None:
    given = {timedelta(days=d): values for d, values in precision.items()}
    assert longest_near_best(given) == timedelta(days=days)


def test_with_nothing_to_judge_by_everything_is_used() -> None:
    assert longest_near_best({5 * DAY: ()}) == EVERYTHING


def test_a_steady_record_is_used_whole(rows) -> None:
    assert choose(rows).length == EVERYTHING


def test_after_a_change_of_sign_the_old_rows_are_left_out(rows) -> None:
    is_old = pl.col("as_of") < START + 9 * DAY
    turned = rows.with_columns(heat=pl.when(is_old).then(-pl.col("heat") * 3).otherwise("heat"))
    assert choose(turned).length < EVERYTHING


def test_what_becomes_known_at_or_after_the_moment_changes_nothing(rows) -> None:
    is_late = pl.col("as_of") + TASK.embargo > UNTIL
    rng = np.random.default_rng(1)
    noise = pl.Series(rng.normal(size=rows.height), dtype=pl.Float32)
    poisoned = rows.with_columns(
        heat=pl.when(is_late).then(noise).otherwise("heat"),
        label=pl.when(is_late).then(1 - pl.col("label")).otherwise("label"),
    )
    assert choose(poisoned) == choose(rows)


def test_recent_rows_are_the_last_stretch(rows) -> None:
    until = START + 28 * DAY
    kept = recent_rows(rows, until=until, length=2 * DAY)
    assert set(kept["as_of"]) == {until - 2 * DAY, until - DAY}
    assert recent_rows(rows, until=until, length=EVERYTHING).height == 28 * 60


def test_positives_are_multiplied_and_negatives_are_not(rows) -> None:
    often = with_multiplied_positives(rows, every=2 * DAY)
    assert often["label"].sum() == rows["label"].sum()
    # Days since 1970 at the steps are even.
    is_step = pl.col("as_of").dt.epoch("d") % 2 == 0
    between = often.filter(~is_step)
    assert between["label"].drop_nulls().min() == 1
    assert often.filter(is_step).equals(rows.filter(is_step))
    assert often.drop("label").equals(rows.drop("label"))
