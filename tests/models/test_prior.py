"""Rules of the score of a site in cold start."""

from datetime import timedelta

import polars as pl
import pytest

from features.errors import DataError
from models.prior import PUBLISHED_INCIDENTS_PER_GPU_YEAR, fit_prior, longest_history
from models.specs import Task

TASK = Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="real")
DAY = timedelta(days=1)


def rate_per_year(n_incidents: int, gpu_years: float) -> float:
    rows = pl.DataFrame({"entity_id": ["g"] * round(365.25 * gpu_years / 10)})
    fitted = fit_prior(rows, n_incidents=n_incidents, tick=10 * DAY, task=TASK)
    return fitted.rate_per_hour * 24 * 365.25


def test_without_a_record_the_rate_is_the_published_one() -> None:
    assert rate_per_year(0, 0) == pytest.approx(PUBLISHED_INCIDENTS_PER_GPU_YEAR)


def test_a_long_record_outweighs_the_published_rate() -> None:
    assert rate_per_year(20_000, 10_000) == pytest.approx(2.0, rel=0.02)


def test_the_rate_lies_between_the_published_and_the_sites_own() -> None:
    assert PUBLISHED_INCIDENTS_PER_GPU_YEAR < rate_per_year(25, 50) < 0.5
    assert 0.0 < rate_per_year(0, 50) < PUBLISHED_INCIDENTS_PER_GPU_YEAR


def test_an_earlier_incident_raises_the_score_and_an_unknown_history_does_not() -> None:
    matrix = pl.DataFrame({"own_incident_count_30d": [0.0, None, 1.0]})
    fitted = fit_prior(matrix, n_incidents=0, tick=DAY, task=TASK)
    none, unknown, failed = fitted.scores(matrix)
    assert none == unknown == pytest.approx(PUBLISHED_INCIDENTS_PER_GPU_YEAR / 365.25, rel=0.01)
    assert failed == pytest.approx(10 * none, rel=0.01)


def test_without_a_history_all_score_alike() -> None:
    matrix = pl.DataFrame({"power_w": [1.0, 2.0]})
    fitted = fit_prior(matrix, n_incidents=0, tick=DAY, task=TASK)
    assert fitted.feature_names == ()
    assert len(set(fitted.scores(matrix).tolist())) == 1


def test_a_missing_history_column_is_an_error() -> None:
    matrix = pl.DataFrame({"own_incident_count_30d": [0.0]})
    fitted = fit_prior(matrix, n_incidents=0, tick=DAY, task=TASK)
    with pytest.raises(DataError, match="own_incident_count_30d"):
        fitted.scores(matrix.rename({"own_incident_count_30d": "other"}))


@pytest.mark.parametrize(
    ("names", "longest"),
    [
        (["own_incident_count_7d", "own_incident_count_180d"], "own_incident_count_180d"),
        (["own_incident_count", "own_incident_count_180d"], "own_incident_count"),
        (["own_incident_count_in_stay", "node_incident_count_7d"], None),
    ],
)
def test_the_count_that_looks_back_furthest_is_taken(names, longest) -> None:
    assert longest_history(names) == longest
