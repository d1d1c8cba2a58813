"""What each strategy goes by: at which tick it points at which node, and how strongly.

No strategy but the oracle sees anything at or after its tick. Decisions and guards are the hook's
own, in `simulation.replay.engine`.
"""

from dataclasses import dataclass
from math import exp
from typing import Final

import numpy as np

from remediation.site import Site
from simulation.replay.history import HOUR, BoolArray, FloatArray, History, IntArray

RULE_WINDOW: Final = 24 * HOUR
"""How long an event of a static rule counts."""
ANY_SCORE: Final = 1e-9
"""A threshold that every score reaches: the strategy has chosen already."""
_SHARE_WITHOUT_SCORES: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Signals:
    """The rows of a strategy, sorted by tick and node; each is at or above its threshold.

    Attributes:
        name: The strategy.
        tick: Index into the history's ticks, shape (rows,).
        node: Node code, shape (rows,).
        score: Score as the policy weighs it, shape (rows,).
        threshold: Alert threshold.
        is_weighed: Whether the hook's policy weighs each; otherwise the strategy is a rule, and
            wants the node out.
        fault: Index into `faults`; -1: unknown, shape (rows,).
        faults: Fault types.
        is_application_only: Whether only signals of applications raised it, shape (rows,).
        action: What a rule wants: index into `features.vocabulary.ACTIONS`; -1: the strongest
            adequate action, shape (rows,).
        about: Outage that a row is about, after a hold for which it is done with; -1: none, shape
            (rows,).
        trained_on: synthetic or real.
    """

    name: str
    tick: IntArray
    node: IntArray
    score: FloatArray
    threshold: float
    is_weighed: bool
    fault: IntArray
    faults: tuple[str, ...] = ()
    is_application_only: BoolArray
    action: IntArray
    about: IntArray
    trained_on: str = "real"


def signals_of(
    name: str,
    *,
    tick: IntArray,
    node: IntArray,
    score: FloatArray | None = None,
    is_weighed: bool = False,
    action: IntArray | None = None,
    about: IntArray | None = None,
) -> Signals:
    """Signals from columns; what is not given is unknown.

    Args:
        name: The strategy.
        tick: Tick of each row.
        node: Node of each row.
        score: Score of each row; None: sure.
        is_weighed: As in `Signals`.
        action: As in `Signals`.
        about: As in `Signals`.
    """
    order = np.lexsort((node, tick))
    size = order.size
    unknown = np.full(size, -1, dtype=np.int64)
    return Signals(
        name=name,
        tick=tick[order].astype(np.int64),
        node=node[order].astype(np.int64),
        score=np.ones(size) if score is None else score[order].astype(np.float64),
        threshold=ANY_SCORE,
        is_weighed=is_weighed,
        fault=unknown,
        is_application_only=np.zeros(size, dtype=bool),
        action=unknown if action is None else action[order],
        about=unknown if about is None else about[order],
    )


_NONE: Final = np.zeros(0, dtype=np.int64)


def never() -> Signals:
    """No node, ever."""
    return signals_of("never", tick=_NONE, node=_NONE)


def always(history: History) -> Signals:
    """Every node scored above 0 at every tick, the highest first; without scores every node."""
    scores = history.scores
    if scores is None:
        n_nodes, n_ticks = len(history.names), history.ticks.size
        tick = np.repeat(np.arange(n_ticks), n_nodes)
        return signals_of("always", tick=tick, node=np.tile(np.arange(n_nodes), n_ticks))
    above = np.nan_to_num(scores.score) > 0
    return signals_of(
        "always", tick=scores.tick[above], node=scores.node[above], score=scores.score[above]
    )


def static_rules(history: History) -> Signals:
    """A node with an event of the static rules in the 24 h before a tick."""
    pairs: set[tuple[int, int]] = set()
    for at, node in history.events:
        # An event is seen at the ticks after it.
        first = int(np.searchsorted(history.ticks, at, side="right"))
        last = int(np.searchsorted(history.ticks, at + RULE_WINDOW, side="right"))
        pairs.update((tick, node) for tick in range(first, last))
    found = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    return signals_of("static rules", tick=found[:, 0], node=found[:, 1])


def model(history: History, site: Site) -> Signals:
    """The stored scores at or above the site's threshold."""
    scores = history.scores
    if scores is None:
        return signals_of("model", tick=_NONE, node=_NONE, is_weighed=True)
    above = np.nan_to_num(scores.score, nan=-1.0) >= site.warning.threshold
    return Signals(
        name="model",
        tick=scores.tick[above],
        node=scores.node[above],
        score=scores.score[above],
        threshold=site.warning.threshold,
        is_weighed=True,
        fault=scores.fault[above],
        faults=scores.faults,
        is_application_only=scores.is_application_only[above],
        action=np.full(int(above.sum()), -1, dtype=np.int64),
        about=np.full(int(above.sum()), -1, dtype=np.int64),
        trained_on=scores.trained_on,
    )


def history_rank(history: History, site: Site) -> Signals:
    """The nodes with the most incidents so far, as many at a tick as the model points at.

    The share of nodes is the model's over all ticks so far, at least one node. The score is the
    chance of an incident within the horizon at the node's own rate, drawn towards the fleet's by
    as much as one incident weighs.
    """
    starts = sorted((at, node) for node, own in enumerate(history.past) for at in own)
    shares = _shares_so_far(history, site)
    counts = np.zeros(len(history.names), dtype=np.int64)
    latest = np.zeros(len(history.names), dtype=np.int64)
    seen = 0
    ticks, nodes, scores = [], [], []
    for tick, at in enumerate(history.ticks.tolist()):
        while seen < len(starts) and starts[seen][0] < at:
            counts[starts[seen][1]] += 1
            latest[starts[seen][1]] = starts[seen][0]
            seen += 1
        ranked = np.flatnonzero(counts)
        most = max(1, round(shares[tick] * counts.size))
        if seen < 2 or not shares[tick]:
            continue
        top = ranked[np.lexsort((ranked, -latest[ranked], -counts[ranked]))][:most]
        watched_h = (at - starts[0][0]) / HOUR
        fleet = seen / (watched_h * counts.size)
        for node in top.tolist():
            rate = (1.0 + counts[node]) / (1.0 / fleet + watched_h)
            ticks.append(tick)
            nodes.append(node)
            scores.append(1.0 - exp(-rate * site.horizon_h))
    return signals_of(
        "history rank",
        tick=np.array(ticks, dtype=np.int64),
        node=np.array(nodes, dtype=np.int64),
        score=np.array(scores, dtype=np.float64),
        is_weighed=True,
    )


def _shares_so_far(history: History, site: Site) -> FloatArray:
    """Share of scored nodes at or above the threshold, over all ticks up to each."""
    scores = history.scores
    if scores is None:
        return np.full(history.ticks.size, _SHARE_WITHOUT_SCORES)
    known = ~np.isnan(scores.score)
    above = np.nan_to_num(scores.score, nan=-1.0) >= site.warning.threshold
    n_ticks = history.ticks.size
    n_known = np.cumsum(np.bincount(scores.tick[known], minlength=n_ticks))
    n_above = np.cumsum(np.bincount(scores.tick[above], minlength=n_ticks))
    return n_above / np.maximum(1, n_known)
