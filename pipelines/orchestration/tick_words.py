"""What the scores of a moment look like, as a small table of bars for the pages of Dagster.

Scores are made in `models.scoring`.
"""

from typing import Final

import numpy as np
import polars as pl

_EDGES: Final = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Each about three times the one before: most scores are small, and those that matter are not."""
_WIDTH: Final = 24


def score_bars(scores: pl.DataFrame) -> str:
    """Counts of scores by their size, as markdown; unknown ones are not in it.

    Args:
        scores: scores/gpu_scores or scores/node_scores.

    >>> print(score_bars(pl.DataFrame({"horizon_h": [24, 24], "score": [0.0005, 0.2]})))
    | horizon | score | rows | |
    |---|---|---|---|
    | 24 h | from 0 | 1 | ████████████████████████ |
    | 24 h | from 0.1 | 1 | ████████████████████████ |
    """
    lines = ["| horizon | score | rows | |", "|---|---|---|---|"]
    for horizon_h in sorted(scores["horizon_h"].unique()):
        known = scores.filter(pl.col("horizon_h") == horizon_h)["score"].drop_nulls().to_numpy()
        counts = np.histogram(known, bins=(*_EDGES, np.inf))[0]
        for edge, n in zip(_EDGES, counts, strict=True):
            if n:
                bar = "█" * max(1, round(_WIDTH * n / counts.max()))
                lines.append(f"| {horizon_h} h | from {edge:g} | {n} | {bar} |")
    return "\n".join(lines)
