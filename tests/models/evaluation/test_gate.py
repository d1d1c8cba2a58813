"""Rules of the gate between candidate and champion."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from models.evaluation.gate import decide, features_not_built, without_champion
from models.evaluation.row_metrics import Bootstrap

FAST = Bootstrap(resamples=60)


@pytest.fixture(scope="module")
def judged(rows, model) -> pl.DataFrame:
    scores = model.scores(rows)
    rng = np.random.default_rng(1)
    return rows.select("entity_id", "label", "incident_id").with_columns(
        score=pl.Series(scores),
        twin=pl.Series(scores) * 0.5,
        noise=pl.Series(rng.random(rows.height)),
    )


def test_a_first_candidate_is_held_against_the_base_rate(judged) -> None:
    good = decide(judged, candidate="score", bootstrap=FAST)
    bad = decide(judged, candidate="noise", bootstrap=FAST)
    assert good.is_accepted
    assert good.difference.low > 0
    assert not bad.is_accepted
    assert "not better beyond chance than the base rate" in bad.reason


def test_a_candidate_must_beat_the_champion_on_the_same_rows(judged) -> None:
    better = decide(judged, candidate="score", champion="noise", bootstrap=FAST)
    worse = decide(judged, candidate="noise", champion="score", bootstrap=FAST)
    assert better.is_accepted
    assert not worse.is_accepted


def test_an_equal_candidate_does_not_replace_the_champion(judged) -> None:
    found = decide(judged, candidate="twin", champion="score", bootstrap=FAST)
    assert found.difference.value == 0.0
    assert not found.is_accepted


def test_a_candidate_carried_by_one_incident_is_not_accepted() -> None:
    rows = pl.DataFrame(
        {
            "entity_id": ["lemon"] * 20 + [f"gpu-{i}" for i in range(40)],
            "incident_id": ["one"] * 20 + ["two", "three"] + [None] * 38,
            "label": [1] * 22 + [0] * 38,
            "score": [0.9] * 20 + [0.1, 0.1] + [0.2] * 38,
        }
    )
    found = decide(rows, candidate="score", bootstrap=Bootstrap(resamples=300))
    assert found.difference.value > 0.3
    assert not found.is_accepted


def test_rows_without_a_positive_decide_nothing(judged) -> None:
    negative = judged.filter(pl.col("label") == 0)
    found = decide(negative, candidate="score", bootstrap=FAST)
    assert not found.is_accepted
    assert "rows with 0 incidents of 0 entities" in found.reason


@pytest.mark.parametrize(
    ("entities", "incidents", "is_accepted"),
    [
        (["a"], ["1"], False),
        (["a", "b", "c", "d", "e"], ["1", "2", "3", "4", "5"], False),
        (["lemon"] * 6, ["1", "2", "3", "4", "5", "6"], False),  # one bad unit is one witness
        (["a", "b", "c", "d", "e", "f"], ["1"] * 6, False),  # and so is one event
        (["a", "b", "c", "d", "e", "f"], ["1", "2", "3", "4", "5", "6"], True),
    ],
)
def test_fewer_than_six_failed_entities_decide_nothing(entities, incidents, is_accepted) -> None:
    rows = pl.DataFrame(
        {
            "entity_id": [*entities, *(f"gpu-{i}" for i in range(60))],
            "incident_id": [*incidents, *[None] * 60],
            "label": [1] * len(entities) + [0] * 60,
            "score": [0.9] * len(entities) + [0.01] * 60,
        }
    )
    found = decide(rows, candidate="score", bootstrap=Bootstrap(resamples=100))
    assert found.is_accepted == is_accepted
    assert ("needed 6 of each" in found.reason) != is_accepted


def test_a_first_candidate_of_chance_is_seldom_accepted() -> None:
    accepted = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        entity = np.repeat(np.arange(120), 50)
        label = np.zeros(entity.size, dtype=np.int8)
        label[np.arange(15) * 50 + rng.integers(0, 50, 15)] = 1  # fifteen incidents of one row
        rows = pl.DataFrame(
            {
                "entity_id": [f"gpu-{e}" for e in entity],
                "label": label,
                "incident_id": [
                    f"inc-{e}" if y else None for e, y in zip(entity, label, strict=True)
                ],
                # All but constant at the base rate: only the ranking is left to refuse it by.
                "score": label.mean() + 1e-6 * rng.random(entity.size),
            }
        )
        accepted += decide(rows, candidate="score", bootstrap=FAST).is_accepted
    assert accepted <= 2


def test_a_better_ranking_with_wrong_probabilities_is_refused(judged) -> None:
    rows = judged.with_columns(
        sharp=pl.col("score"), loud=(pl.col("score") * 4).clip(0, 0.99) * 0.5 + 0.4
    )
    good = decide(rows, candidate="sharp", champion="noise", bootstrap=FAST)
    loud = decide(
        rows.with_columns(fair=pl.lit(rows["label"].mean())),
        candidate="loud",
        champion="fair",
        bootstrap=FAST,
    )
    assert good.is_accepted
    assert loud.difference.low > 0
    assert not loud.is_accepted
    assert "probabilities are worse than the champion's: log-loss +" in loud.reason


def test_rows_that_the_champion_has_seen_are_left_out_and_counted(rows, judged) -> None:
    timed = judged.with_columns(rows["as_of"])
    middle = rows["as_of"].median()
    decided = decide(
        timed,
        candidate="score",
        champion="noise",
        champion_seen_until=middle,
        bootstrap=FAST,
    )
    later = timed.filter(pl.col("as_of") >= middle)
    alone = decide(later, candidate="score", champion="noise", bootstrap=FAST)
    assert (decided.difference, decided.log_loss) == (alone.difference, alone.log_loss)
    assert f"Left out: {rows.height - later.height} of {rows.height} rows before" in decided.reason


def test_a_champion_that_has_seen_every_row_cannot_be_compared(rows, judged) -> None:
    found = decide(
        judged.with_columns(rows["as_of"]),
        candidate="score",
        champion="noise",
        champion_seen_until=rows["as_of"].max() + timedelta(hours=1),
        bootstrap=FAST,
    )
    assert not found.is_accepted
    assert "Cannot be held against the champion: 0 rows" in found.reason


def test_a_champion_whose_features_are_built_no_more_is_not_compared_and_it_is_said(judged) -> None:
    first = decide(judged, candidate="score", bootstrap=FAST)
    absent = features_not_built(("fan_pct", "score"), judged.columns)
    said = without_champion(first, absent)
    assert said.is_accepted == first.is_accepted
    assert "1 of its features are not built (fan_pct)" in said.reason
