"""Raw scores of a LightGBM booster by a packed forest, bit for bit those of LightGBM.

The compiled loops are in `models.forest.kernel`; averages, links and calibration are elsewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import lightgbm as lgb
import numpy as np
import numpy.typing as npt

from features.errors import DataError
from models.calibration import FloatArray
from models.forest.packed import Floats, PackedForest

FEW_ROWS: Final = 10_000
"""Below this many rows LightGBM has its answer before the compiled loops are loaded."""
GROUP: Final = 6
"""Nodes that the loops take at once; trees of 7 and of 31 leaves fill such groups exactly."""
VERSIONS: Final = ("v3", "v4")
"""Forms of LightGBM's model text whose decisions are as described here."""
_ZERO, _NAN = 1, 2  # LightGBM's codes of what counts as missing; 0: nothing, NaN is read as zero


@dataclass(frozen=True)
class _Slots:
    """Finds the place of the only bit in a number by one multiplication.

    A de Bruijn sequence holds each word of a few bits once: shifted left by the place, its
    highest bits are a word, the slot, of their own for each place (Leiserson, Prokop, Randall:
    Using de Bruijn Sequences to Index a 1 in a Computer Word, 1998).
    """

    bits: int
    multiplier: int
    shift: int

    def slot(self, place: int) -> int:
        return ((self.multiplier << place) % (1 << self.bits)) >> self.shift


_SLOTS_32: Final = _Slots(bits=32, multiplier=0x077CB531, shift=27)
_SLOTS_64: Final = _Slots(bits=64, multiplier=0x03F79D71B4CB0A89, shift=58)


@dataclass(frozen=True, kw_only=True, eq=False)
class Forest:
    """A booster's trees, packed for the compiled loops.

    Attributes:
        n_features: Features the booster was trained on.
        n_outputs: Raw scores per row: 1, or the number of classes.
        packed: The trees.
    """

    n_features: int
    n_outputs: int
    packed: PackedForest

    @classmethod
    def of(cls, booster: lgb.Booster) -> "Forest | None":
        """Packs a booster as it would predict by default, up to its best iteration.

        Args:
            booster: Any booster.

        Returns:
            None where the loops do not cover it: categorical splits, linear trees, trees of more
            than 64 leaves, averaged outputs (random forests), a model text of another version.
        """
        head, *blocks = booster.model_to_string().split("\nTree=")
        facts = dict(_pairs(head))
        trees = [dict(_pairs(block)) for block in blocks]
        # A random forest's head has a line of its own for averaging, without a value.
        if facts.get("version") not in VERSIONS or "\naverage_output\n" in head:
            return None
        if any(tree["num_cat"] != "0" or tree.get("is_linear", "0") != "0" for tree in trees):
            return None
        most = max((int(tree["num_leaves"]) for tree in trees), default=1)
        if most > _SLOTS_64.bits:
            return None
        return cls(
            n_features=int(facts["max_feature_idx"]) + 1,
            n_outputs=int(facts["num_tree_per_iteration"]),
            packed=_pack(trees, _SLOTS_32 if most <= _SLOTS_32.bits else _SLOTS_64),
        )

    def raw_scores(self, values: Floats) -> FloatArray:
        """Sums of leaf values, on one thread.

        Args:
            values: Shape (rows, features); NaN is missing. Column after column in memory is read
                as it is, any other layout is copied first.

        Returns:
            Shape (rows,), or (rows, outputs) for several.

        Raises:
            DataError: Another number of features, or not float32, for which the thresholds are
                rounded.
        """
        if values.shape[1:] != (self.n_features,) or values.dtype != np.float32:
            raise DataError(
                f"forest: values must be float32 of shape (rows, {self.n_features}), got "
                f"{values.dtype} of {values.shape}. Build them with feature_values."
            )
        # Here, because it loads the compiler, which most uses of this module do not need.
        from models.forest.kernel import score_rows

        scores = np.empty((self.n_outputs, values.shape[0]))
        score_rows(np.ascontiguousarray(values.T), self.packed, scores)
        # Row after row as from LightGBM, for sums over outputs follow the order in memory.
        return scores[0] if self.n_outputs == 1 else np.ascontiguousarray(scores.T)


@dataclass(frozen=True, kw_only=True, eq=False)
class RawScorer:
    """Raw scores of a booster that does not change, by the faster of two ways that agree.

    Attributes:
        booster: The booster.
        num_threads: Threads of LightGBM.
    """

    booster: lgb.Booster
    num_threads: int

    @cached_property
    def forest(self) -> Forest | None:
        """The booster packed, once."""
        return Forest.of(self.booster)

    def raw_scores(self, values: Floats) -> FloatArray:
        """Raw scores; see `Forest.raw_scores` for arguments and errors."""
        if values.shape[0] < FEW_ROWS or self.forest is None:
            raw = self.booster.predict(values, raw_score=True, num_threads=self.num_threads)
            return np.asarray(raw, dtype=np.float64)
        return self.forest.raw_scores(values)


def _pairs(block: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a model text up to its first empty line."""
    for line in block.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition("=")
        yield key, value


def _numbers(tree: dict[str, str], key: str) -> npt.NDArray[np.int64]:
    return np.array(tree[key].split(), dtype=np.int64)


def _pack(trees: list[dict[str, str]], slots: _Slots) -> PackedForest:
    """Packs the trees, by the texts of their arrays."""
    seen: dict[tuple[int, int], int] = {}  # feature and kind of decision -> column
    columns: list[int] = []
    masks: list[int] = []
    thresholds: list[Floats] = []
    starts = [0]
    leaves = np.zeros((len(trees), slots.bits))
    for number, tree in enumerate(trees):
        order, of_nodes = _leaves_in_order(tree)
        values = np.array(tree["leaf_value"].split(), dtype=np.float64)
        leaves[number, [slots.slot(place) for place in range(len(order))]] = values[order]
        features, kinds = _numbers(tree, "split_feature"), _numbers(tree, "decision_type")
        reads = zip(features.tolist(), kinds.tolist(), strict=True)
        columns += [seen.setdefault(read, len(seen)) for read in reads]
        masks += of_nodes
        thresholds.append(_rounded_down(np.array(tree["threshold"].split(), dtype=np.float64)))
        padding = -len(of_nodes) % GROUP  # rules out nothing
        columns += [0] * padding
        masks += [-1] * padding
        thresholds.append(np.zeros(padding, dtype=np.float32))
        starts.append(len(columns) // GROUP)
    marks = [_marks(kind) for _, kind in seen]
    return PackedForest(
        features=np.array([feature for feature, _ in seen], dtype=np.int32),
        zeros=np.array([zero for zero, _ in marks], dtype=np.float32),
        missing=np.array([missing for _, missing in marks], dtype=np.float32),
        columns=np.array(columns, dtype=np.int32).reshape(-1, GROUP),
        thresholds=np.concatenate([*thresholds, np.zeros(0, np.float32)]).reshape(-1, GROUP),
        masks=np.array(masks, dtype=f"int{slots.bits}").reshape(-1, GROUP),
        starts=np.array(starts, dtype=np.int64),
        leaves=leaves,
        multiplier=slots.multiplier,
        shift=slots.shift,
    )


def _leaves_in_order(tree: dict[str, str]) -> tuple[list[int], list[int]]:
    """The leaves from left to right, and per node the set of leaves that going right leaves."""
    left, right = _numbers(tree, "left_child").tolist(), _numbers(tree, "right_child").tolist()
    order: list[int] = []
    masks = [0] * len(left)

    def walk(node: int) -> None:
        if node < 0:  # a leaf is written as the complement of its number
            order.append(~node)
            return
        begin = len(order)
        walk(left[node])
        # Negative, as a set with its highest bit is in a signed integer of any width.
        masks[node] = ~((1 << len(order)) - (1 << begin))
        walk(right[node])

    walk(0 if left else ~0)
    return order, masks


def _rounded_down(thresholds: npt.NDArray[np.float64]) -> Floats:
    """The greatest float32 no greater than each: a float32 is no greater than one or both."""
    with np.errstate(over="ignore"):  # beyond the greatest float32 becomes infinity, then that
        near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def _marks(kind: int) -> tuple[float, float]:
    """What zero and NaN become for a kind of decision, so that what is missing goes its way.

    Bit 1 of a kind says that it goes left, the higher ones what counts as missing.
    """
    missing_type, goes_left = kind >> 2, bool(kind & 2)
    missing = -np.inf if goes_left else np.nan
    if missing_type == _ZERO:
        return missing, missing
    return 0.0, missing if missing_type == _NAN else 0.0
