"""Rules of the gate between candidate and champion."""

import numpy as np
import polars as pl
import pytest

from models.evaluation import Bootstrap
from models.gate import decide

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
    assert "none positive" in found.reason


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
                "score": rng.random(entity.size),
            }
        )
        accepted += decide(rows, candidate="score", bootstrap=FAST).is_accepted
    assert accepted <= 2
