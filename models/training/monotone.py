"""Which features may only raise a failure score: counts of errors, heat beyond power, troubles.

A booster learns from few incidents; what physics says it need not find out by chance. Training is
in `models.training.boosters`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from models.specs import TrainSpec

RISING: Final = re.compile(
    r"(ecc|remapped_rows|pcie_replay|nvlink)_.*_increase_"
    r"|thermal_violation_us_increase_"
    r"|(hbm|precursor|off_bus|nvlink)_event_count_"
    r"|node_link_event_count_"
    r"|excess_heat_"
    r"|thermal_throttle_share_"
    r"|row_remap_(pending|failure)_last_"
    r"|(own|node)_incident_count_"
)
"""Names of such features. Application Xids and out-of-memory kills are the users' doing, and power
is work: they may say anything."""


def with_rising(spec: TrainSpec, names: Sequence[str]) -> TrainSpec:
    """The spec with these constraints; one that has its own keeps them.

    Args:
        spec: How boosters are trained.
        names: Features of the model.
    """
    return spec if spec.monotone else replace(spec, monotone=rising_features(names))


def rising_features(names: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Constraints for `TrainSpec.monotone`: +1 for each feature that may only raise the score.

    Args:
        names: Features of a model.

    >>> rising_features(["power_w_mean_1h", "ecc_sbe_volatile_increase_1h"])
    (('ecc_sbe_volatile_increase_1h', 1),)
    """
    return tuple((name, 1) for name in names if RISING.match(name))
