"""The last rows of an entity as a sequence, never one after the row itself.

Frames in, positions out; networks that read sequences are in `sequence_networks`.
"""

import numpy as np
import numpy.typing as npt
import polars as pl

from features.errors import DataError

ABSENT = -1


def last_rows(rows: pl.DataFrame, *, length: int) -> npt.NDArray[np.intp]:
    """Positions of the last rows of each row's entity, oldest first, the row itself last.

    Args:
        rows: Rows with `entity_id` and `as_of`, in any order.
        length: Rows per sequence.

    Returns:
        Positions in `rows`, shape (n, length); `ABSENT` where the entity has no row so early.

    Raises:
        DataError: The length is not positive, or an entity has two rows of one moment.

    >>> from datetime import datetime
    >>> moments = [datetime(2026, 1, day) for day in (2, 1, 1)]
    >>> rows = pl.DataFrame({"entity_id": ["a", "a", "b"], "as_of": moments})
    >>> last_rows(rows, length=2).tolist()
    [[1, 0], [-1, 1], [-1, 2]]
    """
    if length < 1:
        raise DataError(f"sequences: length must be at least 1 row, got {length}.")
    keyed = rows.select("entity_id", "as_of").with_row_index("row").sort("entity_id", "as_of")
    starts = (keyed["entity_id"] != keyed["entity_id"].shift(1)).fill_null(value=True)
    is_twice = ~starts & (keyed["as_of"] == keyed["as_of"].shift(1)).fill_null(value=False)
    if is_twice.any():
        entity, as_of = keyed.filter(is_twice).select("entity_id", "as_of").row(0)
        raise DataError(
            f"sequences: {int(is_twice.sum())} rows share entity and moment with another, such as "
            f"{entity} at {as_of}. Give each row once, and `earlier` without the rows themselves."
        )
    order = keyed["row"].to_numpy().astype(np.intp)
    place = np.arange(order.size)
    first = np.maximum.accumulate(np.where(starts.to_numpy(), place, 0))
    back = place[:, None] + np.arange(1 - length, 1)
    found = np.full((order.size, length), ABSENT, dtype=np.intp)
    found[order] = np.where(back >= first[:, None], order[np.maximum(back, 0)], ABSENT)
    return found
