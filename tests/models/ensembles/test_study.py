"""Rules of the comparing study: same rows for all, equal counts where it says so."""

from dataclasses import dataclass, field, replace

import polars as pl
import pytest

from models.ensembles.cascade import CascadeSpec
from models.ensembles.sliding import SlidingSpec
from models.ensembles.study import NEVER, SLIDING, StudyPlan, run_study
from tests.models.ensembles.made_up import BOOSTED, DAY, LOGISTIC, NAMES, START, TASK

PLAN = StudyPlan(
    task=TASK,
    origins=(START + 20 * DAY, START + 25 * DAY),
    test=5 * DAY,
    valid=6 * DAY,
    shares=(0.1,),
    members={"LightGBM": BOOSTED, "logistic": LOGISTIC},
    parallels={"both": (("LightGBM", "logistic"), "worst")},
    cascades={"cascade": CascadeSpec(first=LOGISTIC, second=BOOSTED)},
    sliding=SlidingSpec(lengths=(8 * DAY,), n_origins=2, window=3 * DAY),
    chooser="logistic",
)


@pytest.fixture(scope="module")
def found(rows) -> pl.DataFrame:
    return run_study(rows, feature_names=NAMES, plan=PLAN)


def test_every_model_is_judged_on_the_same_positives(found) -> None:
    per_origin = found.group_by("origin").agg(pl.col("n_positive").n_unique())
    assert per_origin["n_positive"].to_list() == [1, 1]
    assert set(found["model"]) == {"LightGBM", "logistic", "both", "cascade"}


def test_single_models_raise_k_alerts_and_the_intersection_no_more(found) -> None:
    plain = found.filter(pl.col("matched_to").is_null())
    singles = plain.filter(pl.col("model") != "both")
    # 6 of 60 GPUs on each of 5 days.
    assert set(singles["n_alerts"]) == {30}
    assert plain.filter(pl.col("model") == "both")["n_alerts"].max() <= 30


def test_matched_models_raise_as_many_alerts_as_the_intersection(found) -> None:
    keys = ["retraining", "origin", "share"]
    of_both = found.filter(pl.col("matched_to").is_null(), pl.col("model") == "both")
    matched = found.filter(pl.col("matched_to") == "both").join(
        of_both.select(*keys, wanted="n_alerts"), on=keys
    )
    assert matched.height == 4 * 6
    assert (matched["n_alerts"] == matched["wanted"]).all()


def test_at_the_first_origin_nothing_was_retrained_yet(found) -> None:
    first = found.filter(pl.col("origin") == PLAN.origins[0], pl.col("train_days").is_null())
    kept = first.filter(pl.col("retraining") == NEVER).drop("retraining")
    others = first.filter(pl.col("retraining") != NEVER)
    for _, part in others.group_by("retraining"):
        assert part.drop("retraining").equals(kept)
    assert SLIDING in set(found["retraining"])


def test_labels_of_the_tested_time_change_no_alert(rows, found) -> None:
    last = PLAN.origins[-1]
    flipped = pl.when(pl.col("as_of") >= last).then(1 - pl.col("label")).otherwise("label")
    again = run_study(
        rows.with_columns(flipped.cast(pl.Int8).alias("label")), feature_names=NAMES, plan=PLAN
    )
    columns = ["retraining", "origin", "model", "matched_to", "n_alerts", "train_days"]
    assert again.select(columns).equals(found.select(columns))
    # The same rows were alerted on: what was true is false now, and the other way round.
    at_last = found["origin"] == last
    true_now, true_then = again.filter(at_last)["n_true"], found.filter(at_last)["n_true"]
    assert (true_now + true_then == found.filter(at_last)["n_alerts"]).all()


@dataclass(frozen=True)
class Watched:
    """Logistic regression that writes down the newest row it was shown."""

    newest: list = field(default_factory=list)
    name: str = "logistic"

    def fit(self, rows, *, feature_names, task):
        self.newest.append(rows["as_of"].max())
        return LOGISTIC.fit(rows, feature_names=feature_names, task=task)


def test_nothing_is_fitted_on_rows_after_the_training_moment(rows) -> None:
    watched = Watched()
    members = {"LightGBM": BOOSTED, "logistic": watched}
    plan = replace(PLAN, origins=PLAN.origins[:1], members=members, cascades={})
    run_study(rows, feature_names=NAMES, plan=plan)
    # For the comparison once, to choose a length for each length and origin.
    assert len(watched.newest) >= 5
    assert max(watched.newest) + TASK.embargo <= PLAN.origins[0] - PLAN.valid
