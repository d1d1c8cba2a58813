"""Rules of judging a fleet whose ceiling is known, against sums done by hand and scikit-learn."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from models.evaluation.fleet_judgement import judge_scores, recall_by_class
from models.evaluation.row_metrics import Bootstrap
from models.specs import Task

T0 = datetime(2026, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASK = Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="synthetic", entity_kind="node")
NO_INTERVALS = Bootstrap(resamples=0)


def scored(n: int, *, seed: int, distort: float = 1.0) -> pl.DataFrame:
    """Rows whose outcomes come with the chance that the undistorted score says."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-2.0, 1.5, n)
    label = rng.random(n) < 1 / (1 + np.exp(-odds))
    score = 1 / (1 + np.exp(-distort * odds))
    entity = [f"n{i}" for i in rng.integers(0, 50, n)]
    return pl.DataFrame({"entity_id": entity, "score": score, "label": label.astype(np.int8)})


def test_slope_and_log_loss_are_those_of_scikit_learn() -> None:
    rows = scored(4000, seed=1, distort=2.0)
    label, score = rows["label"].to_numpy(), rows["score"].to_numpy()
    found = judge_scores(rows, threshold=0.3, bootstrap=NO_INTERVALS)
    odds = np.log(score / (1 - score))[:, None]
    slope = LogisticRegression(C=1e9, tol=1e-9).fit(odds, label).coef_[0, 0]
    assert found.check.slope.value == pytest.approx(slope, rel=1e-3)
    base = log_loss(label, np.full(label.size, label.mean()))
    assert found.check.log_loss == pytest.approx(log_loss(label, score))
    assert found.log_loss_gain.value == pytest.approx(base - log_loss(label, score))


def test_honest_scores_have_intervals_around_one() -> None:
    found = judge_scores(scored(20_000, seed=2), threshold=0.2)
    for one in (
        found.check.slope,
        found.check.observed_by_expected,
        *(band.ratio for band in found.check.bands),
    ):
        assert one.low is not None
        assert one.high is not None
        assert one.low < 1.0 < one.high
    assert found.log_loss_gain.low is not None
    assert found.log_loss_gain.low > 0


def test_without_rows_above_the_threshold_there_are_no_bands() -> None:
    assert (
        judge_scores(scored(100, seed=3), threshold=2.0, bootstrap=NO_INTERVALS).check.bands == ()
    )


def test_recall_of_a_class_counts_incidents_once_and_takes_the_first_alert() -> None:
    incidents = pl.DataFrame(
        {
            "incident_id": ["x", "y", "z"],
            "entity_kind": ["gpu", "node", "gpu"],
            "entity_id": ["g", "n", "h"],
            "node": ["n", "n", "m"],
            "start": [T0 + 10 * HOUR, T0 + 40 * HOUR, T0 + 500 * HOUR],
            "fault_type": ["nvlink", "nic_fabric", "nvlink"],
        }
    )
    rows = pl.DataFrame(
        {
            "entity_id": ["n"] * 4 + ["m"],
            "as_of": [T0 + h * HOUR for h in (0, 4, 9, 30)] + [T0],
            "label": [1, 1, 1, 1, 0],
        }
    )
    alerts = rows[[1, 2, 4]]
    found = recall_by_class(
        alerts,
        rows,
        incidents=incidents,
        task=TASK,
        ceilings={"nvlink": 0.5, "all": 1.0},
        by_signs={"nvlink": 0.25},
        by_record={"nvlink": 0.4, "all": 0.8},
    )
    assert [(c.fault_type, c.n_incidents, c.n_caught) for c in found] == [
        ("all", 2, 1),
        ("nic_fabric", 1, 0),
        ("nvlink", 1, 1),
    ]
    assert [c.lead_h for c in found] == [6.0, None, 6.0]
    assert [c.ratio for c in found] == [0.5, None, 2.0]
    assert [c.by_signs for c in found] == [None, None, 0.25]
    assert [c.ratio_by_signs for c in found] == [None, None, 4.0]
    assert [c.ratio_by_record for c in found] == [0.625, None, 2.5]
    assert found[2].to_dict()["ratio_by_record"] == 2.5
    # Exact: of one, caught, the true share may be as low as 2.5 %.
    assert found[2].recall.low == pytest.approx(0.025)
