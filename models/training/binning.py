"""Training rows as LightGBM bins: features are read in batches and kept at a byte a value.

What is learned from the bins is in `models.training.boosters`; which files hold the rows is not
known here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Final, Protocol

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import polars as pl
from polars import selectors
from polars.selectors import Selector

from models.failure_model import Values, feature_values

BATCH_ROWS: Final = 16_384
"""Rows whose features are in memory as numbers at once: 11 MB of 170 features, and what reading
takes beside them. Smaller batches cost more reading of Parquet files."""

EDGE_ROWS: Final = 100_000
"""Rows that the edges of bins are found from, where there are more: LightGBM holds these as
float64, twice, which for its own 200,000 rows is more than a million rows take in bins."""

BIN_PARAMETERS: Final[dict[str, object]] = {
    # With it, bins would depend on min_data_in_leaf and could not be shared by settings.
    "feature_pre_filter": False,
    # Row-wise histograms need all bins a second time; the trees are the same.
    "force_col_wise": True,
    "verbosity": -1,
}

Positions = npt.NDArray[np.intp]


class RowReader(Protocol):
    """Where training rows come from, batch after batch, in one fixed order."""

    def batches(self, used: npt.NDArray[np.bool_]) -> list[Positions]:
        """Positions of the used rows, cut so that each part can be read at once.

        Args:
            used: Whether each row is wanted, shape (rows,).
        """

    def read(self, positions: Positions, names: Sequence[str]) -> Values:
        """The features of one of these parts, shape (positions, names)."""


class FrameReader:
    """Rows of a frame in memory.

    Args:
        rows: The frame.
        order: Its rows in the order they are trained in.
    """

    def __init__(self, rows: pl.DataFrame, order: Positions) -> None:
        self._rows = rows
        self._order = order

    def batches(self, used: npt.NDArray[np.bool_]) -> list[Positions]:
        """See `RowReader.batches`."""
        wanted = np.flatnonzero(used)
        return [wanted[at : at + BATCH_ROWS] for at in range(0, wanted.size, BATCH_ROWS)]

    def read(self, positions: Positions, names: Sequence[str]) -> Values:
        """See `RowReader.read`."""
        return feature_values(self._rows.select(_named(names))[self._order[positions]], names)


class ScanReader:
    """Rows of a lazy frame, such as a scan of Parquet files, in the order it gives them.

    Args:
        rows: The lazy frame.
    """

    def __init__(self, rows: pl.LazyFrame) -> None:
        self._rows = rows

    def batches(self, used: npt.NDArray[np.bool_]) -> list[Positions]:
        """See `RowReader.batches`: a stretch of the scan each, so that no more is read."""
        stretches = (
            start + np.flatnonzero(used[start : start + BATCH_ROWS])
            for start in range(0, used.size, BATCH_ROWS)
        )
        return [wanted for wanted in stretches if wanted.size]

    def read(self, positions: Positions, names: Sequence[str]) -> Values:
        """See `RowReader.read`."""
        first, last = int(positions[0]), int(positions[-1])
        stretch = self._rows.select(_named(names)).slice(first, last - first + 1).collect()
        if positions.size < stretch.height:
            stretch = stretch[positions - first]
        return feature_values(stretch, names)


def _named(names: Sequence[str]) -> Selector:
    """Those of the columns that are there; `feature_values` says which are not."""
    return selectors.by_name(*names, require_all=False)


class _Batch(lgb.Sequence):
    """One batch as LightGBM asks for it: as a whole, once, when it fills the bins."""

    def __init__(self, read: Callable[[], Values], size: int) -> None:
        self._read = read
        self.batch_size = size

    def __len__(self) -> int:
        return self.batch_size

    def __getitem__(self, at: int | slice | list[int]) -> Values:
        return self._read()[at]


def bin_features(
    reader: RowReader,
    used: npt.NDArray[np.bool_],
    *,
    names: Sequence[str],
    label: npt.NDArray[np.float32],
    weight: npt.NDArray[np.float32] | None,
) -> tuple[lgb.Dataset, str]:
    """Bins the used rows; the edges of bins come from these rows alone.

    Args:
        reader: The rows.
        used: Which of them, shape (rows,).
        names: Features.
        label: Labels of the used rows.
        weight: Weights of the used rows; None: all the same.

    Returns:
        The bins, the same as LightGBM makes of the whole array, and a fingerprint of the features.

    Raises:
        DataError: A feature is missing or not numeric.
    """
    digest = sha256()
    parts = reader.batches(used)

    def read(part: Positions) -> Values:
        values = np.ascontiguousarray(reader.read(part, names))
        digest.update(values.reshape(-1).view(np.uint8).data)
        return values

    bins = partial(
        lgb.Dataset,
        label=label,
        weight=weight,
        feature_name=list(names),
        params=dict(BIN_PARAMETERS),
    )
    if label.size <= EDGE_ROWS:
        data = bins(np.concatenate([read(part) for part in parts]))
    else:
        edges = lgb.Dataset(_edge_values(reader, parts, names), params=dict(BIN_PARAMETERS))
        edges.construct()  # lets the values go before there are bins
        batches = [_Batch(partial(read, part), part.size) for part in parts]
        data = bins(batches, reference=edges)
    data.construct()
    data.reference = None  # the bins of the sample are needed no more
    return data, digest.hexdigest()


def edge_sample(n_rows: int) -> Positions:
    """The rows that the edges of bins are found from, in rising order."""
    chosen = np.random.default_rng(0).choice(n_rows, EDGE_ROWS, replace=False, shuffle=False)
    return np.sort(chosen).astype(np.intp)


def _edge_values(reader: RowReader, parts: list[Positions], names: Sequence[str]) -> Values:
    sample = edge_sample(sum(part.size for part in parts))
    values = np.empty((sample.size, len(names)), dtype=np.float32)
    passed = 0
    for part in parts:
        first, last = np.searchsorted(sample, (passed, passed + part.size))
        chosen = sample[first:last] - passed
        values[first:last] = reader.read(part, names)[chosen]
        passed += part.size
    return values
