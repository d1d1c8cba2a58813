"""Rules of holding probabilities against what came."""

import itertools
import math

import numpy as np
import polars as pl
import pytest

from models.calibration import sigmoid
from models.evaluation.calibration_metrics import calibration_slope, check_calibration, log_loss
from models.evaluation.row_metrics import Bootstrap

FEW = Bootstrap(resamples=100)


def rows_of(*, slope: float = 1.0, shift: float = 0.0, n: int = 20_000) -> pl.DataFrame:
    """Rows whose true log-odds are `slope` x those of the score + `shift`."""
    rng = np.random.default_rng(1)
    raw = rng.normal(-2.0, 1.5, n)
    label = (rng.random(n) < sigmoid(slope * raw + shift)).astype(np.int8)
    names = [f"gpu-{i % 200}" for i in range(n)]
    return pl.DataFrame({"entity_id": names, "score": sigmoid(raw), "label": label})


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.5, 0.0), (1.5, 1.0)])
def test_the_slope_of_the_log_odds_is_found_with_its_interval(slope, shift) -> None:
    found = check_calibration(
        rows_of(slope=slope, shift=shift), threshold=0.3, base_rate=0.1, bootstrap=FEW
    ).slope
    assert found.low < slope < found.high
    assert found.high - found.low < 0.15


def test_right_probabilities_are_found_right() -> None:
    found = check_calibration(rows_of(), threshold=0.3, base_rate=0.2, bootstrap=FEW)
    assert found.observed_by_expected.low < 1.0 < found.observed_by_expected.high
    assert len(found.bands) == 5
    assert all(band.ratio.value == pytest.approx(1.0, abs=0.15) for band in found.bands)
    assert found.log_loss < found.base_rate_log_loss


def test_twice_as_many_as_said_are_found_twice_as_many() -> None:
    rows = rows_of()
    halved = rows.with_columns(score=pl.col("score") / 2.0)
    found = check_calibration(halved, threshold=0.2, base_rate=0.2, bootstrap=FEW)
    assert found.observed_by_expected.value == pytest.approx(2.0, rel=0.05)
    assert all(band.ratio.low > 1.3 for band in found.bands)


def test_bands_expect_equally_many_and_hold_every_row_above_the_threshold() -> None:
    rows = rows_of()
    bands = check_calibration(rows, threshold=0.3, base_rate=0.2, bootstrap=FEW).bands
    above = rows.filter(pl.col("score") >= 0.3)
    assert sum(band.n_rows for band in bands) == above.height
    assert sum(band.observed for band in bands) == above["label"].sum()
    expected = [band.expected for band in bands]
    assert max(expected) - min(expected) < 2.0
    assert all(low.high <= high.low for low, high in itertools.pairwise(bands))


def test_rows_of_one_entity_are_one_witness() -> None:
    rows = rows_of(n=2000)
    tenfold = pl.concat([rows] * 10)
    once, ten = (
        check_calibration(one, threshold=0.3, base_rate=0.2, bootstrap=FEW)
        for one in (rows, tenfold)
    )
    for first, second in (
        (once.slope, ten.slope),
        (once.observed_by_expected, ten.observed_by_expected),
    ):
        assert second.low == pytest.approx(first.low)
        assert second.high == pytest.approx(first.high)


def test_prevalences_of_both_times_are_told() -> None:
    rows = rows_of()
    found = check_calibration(rows, threshold=2.0, base_rate=0.2, fitted_prevalence=0.4)
    assert (found.bands, found.fitted_prevalence) == ((), 0.4)
    assert found.test_prevalence == rows["label"].mean()


def test_unknown_rows_are_left_out_and_none_gives_nothing() -> None:
    rows = rows_of(n=400)
    more = pl.concat([rows, rows.with_columns(label=pl.lit(None, dtype=pl.Int8))])
    first, second = (
        check_calibration(one, threshold=0.3, base_rate=0.2, bootstrap=FEW) for one in (rows, more)
    )
    assert first == second
    assert check_calibration(rows.clear(), threshold=0.3, base_rate=0.2).log_loss is None


@pytest.mark.parametrize(
    ("score", "label"),
    [([0.1, 0.2], [0, 0]), ([0.1, 0.1], [0, 1]), ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])],
)
def test_a_slope_that_no_data_can_tell_is_not_defined(score, label) -> None:
    group = np.arange(len(score), dtype=np.intp)
    assert calibration_slope(np.asarray(score), np.asarray(label, float), group=group).value is None


def test_the_log_loss_of_a_coin_is_that_of_a_coin() -> None:
    assert log_loss(np.full(4, 0.5), np.asarray([0.0, 1, 1, 0])) == pytest.approx(math.log(2))
    assert math.isfinite(log_loss(np.asarray([0.0, 1.0]), np.asarray([1.0, 0.0])))
