"""What a drift is called: sentences with values and units that name the feature.

Whether something has drifted is decided in `models.drift.inputs` and `models.drift.calibration`.
"""

from typing import Final

from features.registry import Feature
from models.drift.calibration import CalibrationWeek
from models.drift.inputs import SCORE, FeatureDrift
from models.reasons import describe_value, describe_window

NULLS_ROSE: Final = 0.2
"""Rise of the null share from which the nulls are the news, not the values."""

_FACTORS: Final = (1000.0, 1e6, 1e9, 1024.0, 1024.0**2, 100.0, 60.0, 3600.0)
_FACTOR_TOLERANCE: Final = 0.03
_WIDER: Final = 1.5


def describe_feature_drift(found: FeatureDrift, feature: Feature | None) -> str:
    """One drifted feature in a sentence.

    Args:
        found: The drift.
        feature: Its registration; None for the score.

    Returns:
        What it was in training, what it is now, and what may be the cause where the numbers say.
    """
    before, unit = found.training, feature.unit if feature else "1"
    name = _name(found.name, feature)
    start = name[0].upper() + name[1:]
    if found.null_share - before.null_share >= NULLS_ROSE:
        return (
            f"{start} is unknown for {found.null_share:.0%} of GPUs last week, "
            f"{before.null_share:.0%} in training: look for a source that stopped."
        )
    if found.median is None or before.median is None:
        return (
            f"{name} is known for {1 - found.null_share:.0%} of GPUs last week, none in training."
        )
    now, then = describe_value(found.median, unit), describe_value(before.median, unit)
    usual = f"usually {_short(before.low)} to {_short(before.high)}"
    said = f"median of {name} last week is {now}, {then} in training ({usual})"
    if _is_spread(found):
        said = (
            f"{name}: median {now}, {then} in training, but 80 % of GPUs lie between "
            f"{_short(found.low)} and {_short(found.high)} last week ({usual})"
        )
    said = said[0].upper() + said[1:]
    return said + _suspected_unit(found) + "."


def describe_calibration(week: CalibrationWeek) -> str:
    """One week's calibration in a sentence.

    >>> from datetime import datetime
    >>> print(describe_calibration(CalibrationWeek(datetime(2026, 1, 5), 900, 10.0, 21, 1.1, 3.5)))
    Week from 2026-01-05: 21 incidents came, the scores expected 10.0 (2.1 times, 99 % interval \
1.1 to 3.5).
    """
    return (
        f"Week from {week.start:%Y-%m-%d}: {week.observed} incidents came, the scores expected "
        f"{week.expected:.1f} ({week.ratio:.2g} times, 99 % interval {week.low:.2g} to "
        f"{week.high:.2g})."
    )


def group_of(feature: Feature | None) -> str:
    """What features that fail together have in common: the inputs they are made from."""
    return ", ".join(feature.inputs) if feature else SCORE


def _name(name: str, feature: Feature | None) -> str:
    if feature is None:
        return "the score"
    meaning = feature.meaning.rstrip(".")
    meaning = meaning if meaning[:2].isupper() else meaning[0].lower() + meaning[1:]
    window = "" if feature.window is None else describe_window(feature.window)
    is_named = not window or window.replace(" ", "") in meaning.replace(" ", "")
    return f"{meaning}{'' if is_named else f' over {window}'} [{name}]"


def _short(value: float | None) -> str:
    return "unknown" if value is None else describe_value(value, "1")


def _is_spread(found: FeatureDrift) -> bool:
    """Whether the values lie wider or closer than before, rather than elsewhere."""
    then = found.training
    now_low, now_middle, now_high = found.low, found.median, found.high
    if now_low is None or now_middle is None or now_high is None:
        return False
    if then.low is None or then.median is None or then.high is None:
        return False
    span, before = now_high - now_low, then.high - then.low
    shift = abs(now_middle - then.median)
    is_wider = max(span, before) >= _WIDER * min(span, before)
    return shift == 0.0 or (is_wider and shift < 0.5 * before)


def _suspected_unit(found: FeatureDrift) -> str:
    """A hint where the new median is the old one times a factor that units differ by."""
    now, then = found.median, found.training.median
    if not now or not then or now * then < 0:
        return ""
    ratio = max(now / then, then / now)
    for factor in _FACTORS:
        if abs(ratio / factor - 1.0) < _FACTOR_TOLERANCE:
            return f": a factor of {factor:,.0f}, as if its unit had changed"
    if abs(now - (1.8 * then + 32.0)) < _FACTOR_TOLERANCE * abs(now):
        return ": what degrees Celsius are in Fahrenheit"
    return ""
