"""The compiled loops that score rows by a packed forest; importing them loads the compiler.

What a packed forest is, is in `models.forest.packed`; which boosters can be packed in
`models.forest.scorer`.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from features.compiled import jit
from models.forest.packed import Floats, Masks, PackedForest

ROWS: Final = 128
"""Rows scored together: 533 columns of them are 270 kB and stay in a second-level cache."""
ZERO_TO: Final = np.float32(1e-35)
"""LightGBM takes for zero what is no further from it than this."""


@jit
def _load(values: Floats, zero: Any, missing: Any, column: Floats) -> None:
    """One feature of a tile, as one kind of node sees it."""
    for row in range(values.size):
        value = values[row]
        known = zero if abs(value) <= ZERO_TO else value
        column[row] = missing if np.isnan(value) else known


@jit
def _narrow(sets: Masks, tile: Floats, forest: PackedForest, group: int) -> None:
    """Takes from each row's set of leaves what six nodes rule out.

    Six at once save five of six loads and stores of the sets. A value that is NaN is not
    `<=` any threshold, and so goes right everywhere.
    """
    at, of = forest.thresholds[group], forest.masks[group]
    columns = forest.columns[group]
    a, b, c = tile[columns[0]], tile[columns[1]], tile[columns[2]]
    d, e, f = tile[columns[3]], tile[columns[4]], tile[columns[5]]
    # Scalars, for the compiler cannot know that the sets are not stored over the arrays.
    at_a, at_b, at_c, at_d, at_e, at_f = at[0], at[1], at[2], at[3], at[4], at[5]
    of_a, of_b, of_c, of_d, of_e, of_f = of[0], of[1], of[2], of[3], of[4], of[5]
    for row in range(ROWS):
        sets[row] &= (
            (-1 if a[row] <= at_a else of_a)
            & (-1 if b[row] <= at_b else of_b)
            & (-1 if c[row] <= at_c else of_c)
            & (-1 if d[row] <= at_d else of_d)
            & (-1 if e[row] <= at_e else of_e)
            & (-1 if f[row] <= at_f else of_f)
        )


@jit
def _add_leaves(sets: Masks, leaves: Any, sums: Any, multiplier: int, shift: int) -> None:
    """Adds to each row's sum the value of the leftmost leaf that remains."""
    last = leaves.size - 1
    for row in range(ROWS):
        # Storing cuts the product to the width of the set.
        sets[row] = (sets[row] & -sets[row]) * multiplier
        sets[row] = (sets[row] >> shift) & last
    for row in range(ROWS):  # apart, for only the loop above has no scattered reads
        sums[row] += leaves[sets[row]]


@jit
def score_rows(values: Floats, forest: PackedForest, scores: npt.NDArray[np.float64]) -> None:
    """Sums leaf values tree after tree, as LightGBM does, so that the last bit agrees.

    Args:
        values: Features, shape (features, rows), contiguous.
        forest: The trees.
        scores: Is filled; shape (outputs, rows).
    """
    n_outputs, n_rows = scores.shape
    tile = np.zeros((forest.features.size, ROWS), np.float32)
    sets = np.empty(ROWS, forest.masks.dtype)
    sums = np.empty((n_outputs, ROWS))
    for begin in range(0, n_rows, ROWS):
        end = min(begin + ROWS, n_rows)
        for column in range(forest.features.size):
            feature = values[forest.features[column], begin:end]
            _load(feature, forest.zeros[column], forest.missing[column], tile[column])
        sums[:] = 0.0
        for tree in range(forest.leaves.shape[0]):
            sets[:] = -1
            for group in range(forest.starts[tree], forest.starts[tree + 1]):
                _narrow(sets, tile, forest, group)
            _add_leaves(
                sets, forest.leaves[tree], sums[tree % n_outputs], forest.multiplier, forest.shift
            )
        scores[:, begin:end] = sums[:, : end - begin]
