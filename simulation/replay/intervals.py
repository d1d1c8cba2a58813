"""How sure a saving is: a block bootstrap over node-weeks, exact where most of them are empty.

What is saved is counted in `simulation.replay.books`.
"""

from typing import Final

import numpy as np

from models.evaluation.row_metrics import Bootstrap, Estimate, estimate
from simulation.replay.history import FloatArray

RESAMPLES: Final = Bootstrap(resamples=2000, seed=1, group="node-week")
_AT_ONCE: Final = 250


def sum_of_blocks(blocks: FloatArray, bootstrap: Bootstrap = RESAMPLES) -> Estimate:
    """The sum over blocks, with the middle 95 % of sums of as many blocks drawn with replacement.

    Blocks are taken as independent. Caps and jobs over several nodes tie them together a little,
    a common cause a lot, and then the interval is too narrow.

    Args:
        blocks: One value per node-week, shape (blocks,).
        bootstrap: Number of draws and seed.

    >>> sum_of_blocks(np.zeros(8)).low
    0.0
    """
    rng = np.random.default_rng(bootstrap.seed)
    filled = blocks[blocks != 0]
    # The empty ones add nothing however often they are drawn, so they are drawn as one.
    share = np.full(filled.size + 1, 1.0 / max(1, blocks.size))
    share[-1] = max(0.0, 1.0 - filled.size / max(1, blocks.size))
    # In parts, for a large fleet's draws at once would not fit in memory.
    drawn = [
        rng.multinomial(blocks.size, share, size=min(_AT_ONCE, bootstrap.resamples - done))[:, :-1]
        @ filled
        for done in range(0, bootstrap.resamples, _AT_ONCE)
    ]
    return estimate(float(blocks.sum()), np.concatenate(drawn))
