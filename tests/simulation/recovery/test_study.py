"""Tables of the recovery study: intervals, sensitivity, when alerts pay."""

from math import isnan

import pytest
from scipy import stats

from features.errors import SettingsError
from simulation.recovery.parameters import BYTEROBUST, REQUEUE
from simulation.recovery.study import estimate, study_regimes, study_sensitivity

SEEDS = range(3)


def test_an_estimate_is_the_mean_with_students_interval():
    values = [0.9, 0.95, 0.97]
    low, high = stats.t.interval(0.95, 2, stats.tmean(values), stats.sem(values))
    found = estimate(values)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert isnan(estimate([0.9]).half)


def test_each_parameter_is_halved_and_doubled_where_it_can_be():
    rows = {row.name: row for row in study_sensitivity(BYTEROBUST, seeds=SEEDS, days=15)}
    assert rows["mtbi_h"].at_half.mean < rows["mtbi_h"].at_twice.mean
    for name in ("diagnose_s", "checkpoint_stall", "detect_hang_s"):
        assert rows[name].at_half.mean > rows[name].at_twice.mean
    assert rows["checkpoint_steps"].at_half is None


def test_alerts_pay_above_the_break_even_precision_and_cost_below():
    [found] = study_regimes(seeds=SEEDS, days=60, regimes={"requeue": REQUEUE})
    assert 0.5 < found.break_even_precision < 0.7
    gains = {(g.foresight.recall, g.foresight.precision): g.points.mean for g in found.gains}
    assert gains[0.5, 0.9] > 0 > gains[0.5, 0.1]


def test_without_seeds_there_is_nothing_to_study():
    with pytest.raises(SettingsError, match="at least one seed"):
        study_regimes(seeds=[], days=1)
