"""A forest as arrays, as the compiled loops take it.

Which boosters can be packed is in `models.forest.scorer`, the loops are in `models.forest.kernel`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Masks = npt.NDArray[np.int32] | npt.NDArray[np.int64]


class PackedForest(NamedTuple):
    """Trees as arrays; a tuple, for compiled loops take no dataclass.

    A set of a tree's leaves is an integer with one bit per leaf, the lowest for the leftmost. A
    row starts with all; each node at which it goes right takes away the leaves to the left of it,
    in any order of the nodes; the leftmost that remains is the row's (QuickScorer: Lucchese et
    al., SIGIR 2015; over many rows at once: Lucchese et al., SIGIR 2016).

    Attributes:
        features: Feature read by each column, shape (columns,); columns are features as nodes
            see them, for nodes may differ in what they make of a missing value.
        zeros: What a column makes of zero, shape (columns,): zero, or as `missing`.
        missing: What a column makes of NaN, shape (columns,): minus infinity where it goes left,
            NaN where it goes right, zero where NaN is not foreseen.
        columns: Column of each node, shape (groups, 6).
        thresholds: What is no greater goes left, shape (groups, 6).
        masks: Leaves that going right leaves, shape (groups, 6), of 32 or 64 bits.
        starts: First group of each tree and the end of the last, shape (trees + 1,).
        leaves: Leaf values by slot, shape (trees, bits); trees of several outputs take turns.
        multiplier: Of the slots.
        shift: Of the slots.
    """

    features: Ints
    zeros: Floats
    missing: Floats
    columns: Ints
    thresholds: Floats
    masks: Masks
    starts: npt.NDArray[np.int64]
    leaves: npt.NDArray[np.float64]
    multiplier: int
    shift: int
