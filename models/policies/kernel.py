"""The compiled loop that raises alerts for the tuning of policies; importing it loads the compiler.

The definition of an alert is in `models.policies.warnings`, this loop's slow oracle.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from features.compiled import jit


@jit
def alert_positions(
    entity: Any,
    time_us: Any,
    score: Any,
    threshold: float,
    n: int,
    window_us: int,
    cooldown_us: int,
) -> npt.NDArray[np.int64]:
    """Positions of the rows that become alerts, rising.

    Args:
        entity: Entity codes, rising, shape (rows,).
        time_us: Microseconds, rising within an entity, shape (rows,).
        score: Scores, shape (rows,).
        threshold: Score from which on a row is above.
        n: Rows above that are needed.
        window_us: `k` ticks, in which they are needed.
        cooldown_us: Time in which an entity raises no second alert.
    """
    kept = np.empty(entity.size, dtype=np.int64)
    recent = np.empty(n, dtype=np.int64)  # times of the last n rows above, in a ring
    n_kept, n_recent, of, last = 0, 0, -1, 0
    has_alert = False
    for row in range(entity.size):
        if score[row] < threshold:
            continue
        if entity[row] != of:
            of, n_recent, has_alert = entity[row], 0, False
        now = time_us[row]
        recent[n_recent % n] = now
        n_recent += 1
        # The ring's next place holds the n-th last row above: is it still in the window?
        if n_recent < n or recent[n_recent % n] <= now - window_us:
            continue
        if has_alert and last > now - cooldown_us:
            continue
        kept[n_kept] = row
        n_kept += 1
        last, has_alert = now, True
    return kept[:n_kept]
