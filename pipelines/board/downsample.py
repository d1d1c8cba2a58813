"""A long series as a line of few points: the lowest and highest of each stretch, gaps left open.

Nothing is drawn here. A mean would hide the one minute that mattered; minimum and maximum do not.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
TimeArray = npt.NDArray[np.int64]

_GAP_STEPS: Final = 3.0


@dataclass(frozen=True)
class Stretch:
    """A piece of a line without a gap in it.

    Attributes:
        at_us: Times, microseconds since 1970, never falling, shape (n,).
        values: Values, shape (n,).
    """

    at_us: TimeArray
    values: FloatArray


def stretches(
    at_us: TimeArray,
    values: FloatArray,
    *,
    n_bins: int,
    longest_step_us: int | None = None,
) -> tuple[Stretch, ...]:
    """Cuts a series at its gaps and thins out each piece.

    Args:
        at_us: Times, microseconds since 1970, rising, shape (n,).
        values: Values; NaN is unknown and no point, shape (n,).
        n_bins: Into how many parts of equal time the whole is cut; of each part the first, the
            lowest, the highest and the last value are kept.
        longest_step_us: Longer steps between known values are gaps; None: three times the median
            step.

    Returns:
        Pieces in time order, none empty.
    """
    known = np.isfinite(values)
    at, kept = at_us[known], values[known]
    if not at.size:
        return ()
    steps = np.diff(at)
    longest = _GAP_STEPS * float(np.median(steps)) if steps.size else 0.0
    if longest_step_us is not None:
        longest = float(longest_step_us)
    cuts = np.flatnonzero(steps > longest) + 1
    width = max(1, -(-int(at_us[-1] - at_us[0] + 1) // n_bins))
    parts = zip(np.split(at, cuts), np.split(kept, cuts), strict=True)
    return tuple(_thinned(a, v, origin=int(at_us[0]), width=width) for a, v in parts)


def _thinned(at: TimeArray, values: FloatArray, *, origin: int, width: int) -> Stretch:
    bins = (at - origin) // width
    firsts = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
    lasts = np.append(firsts[1:], at.size) - 1
    # Within a bin by value: its first is the lowest, its last the highest.
    order = np.lexsort((values, bins))
    kept = np.unique(np.concatenate([firsts, order[firsts], order[lasts], lasts]))
    return Stretch(at[kept], values[kept])
