"""Chooses threshold, persistence and cooldown of a warning policy together, as the operator asks.

By alert budget: the most incidents caught within it. By precision: the most incidents caught at a
precision that holds with confidence. Thresholds of one policy are walked in
`models.policies.thresholds`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

import polars as pl

from features.errors import DataError
from models.policies.rows import PolicyRows
from models.policies.thresholds import (
    BUDGET_CONFIDENCE,
    PLAIN_COUNT,
    Spending,
    ThresholdChoice,
    chance_if_lower,
    missing_episodes,
    spend_budget,
    try_in_order,
)
from models.policies.warnings import WarningPolicy
from models.training.splits import entity_fold

PERSISTENCE = ((2, 3), (1, 1), (3, 3), (4, 6))
COOLDOWNS = (timedelta(hours=24), timedelta(hours=6), timedelta(hours=72))

HOPELESS_EPISODES = 30
"""Once so many episodes have less than half the wanted precision, looser thresholds are left."""


@dataclass(frozen=True, kw_only=True)
class PolicyGrid:
    """The policies tried; the first of each is the default, left only for a better one.

    Attributes:
        tick: Time between two rows of an entity.
        persistence: Pairs (n, k): scores above the threshold that an alert needs, of the last k.
        cooldowns: Times in which an entity that raised an alert raises no other.
    """

    tick: timedelta
    persistence: tuple[tuple[int, int], ...] = PERSISTENCE
    cooldowns: tuple[timedelta, ...] = COOLDOWNS

    def policies(self) -> tuple[WarningPolicy, ...]:
        """Every policy, its threshold still to be chosen."""
        return tuple(
            WarningPolicy(threshold=float("inf"), n=n, k=k, tick=self.tick, cooldown=cooldown)
            for n, k in self.persistence
            for cooldown in self.cooldowns
        )


class _Sequence(NamedTuple):
    """Policies of one persistence and cooldown that are worth a test, surest first.

    Attributes:
        policies: In the order of the tests.
        caught: Incidents that the one with the most of them catches on the tuning part.
        chance: Of the surest there.
    """

    policies: tuple[WarningPolicy, ...]
    caught: tuple[int, ...]
    chance: float


def tune_for_budget(
    rows: PolicyRows,
    grid: PolicyGrid,
    *,
    alerts_per_1000_nodes_per_day: float,
    confidence: float = BUDGET_CONFIDENCE,
) -> ThresholdChoice:
    """The policy that catches the most incidents within the budget.

    The budget is a promise about other nodes and the time to come: `spend_budget` leaves a margin.

    Another policy than the default is taken only where the difference is more than its standard
    error: of the incidents that one of the two catches alone, `gained - lost > sqrt(gained +
    lost)`. Otherwise a dozen policies would be told apart by chance.

    Args:
        rows: Validation rows.
        grid: Policies tried.
        alerts_per_1000_nodes_per_day: Alert budget.
        confidence: That as many nodes keep to it for as long again; 0.5 leaves no margin.

    Returns:
        The choice; no threshold when every policy spends more even at the strictest.

    Raises:
        DataError: The budget is not positive, or no row has a score.
    """
    budget = alerts_per_1000_nodes_per_day
    if not budget > 0:
        raise DataError(
            f"alert budget: must be positive, got {budget:g} alerts per "
            f"1,000 nodes per day. To raise no alert, set policy level observe."
        )
    allowed = budget * rows.node_days / 1000.0
    found = [
        spend_budget(rows, policy, allowed=allowed, confidence=confidence)
        for policy in grid.policies()
    ]
    tried = sum(one.n_tried for one in found)
    within = [one for one in found if one.policy is not None]
    wanted = f"{budget:g} alerts per 1,000 nodes per day"
    if not within:
        least = min(one.n_alerts for one in found)
        words = (
            f"No threshold keeps to {wanted}: {allowed:.1f} alerts are allowed in "
            f"{rows.node_days:.0f} node-days, the strictest raises {least}."
        )
        return ThresholdChoice(None, words, tried)
    best = within[0]
    for one in within[1:]:
        if _catches_clearly_more(one.caught, best.caught):
            best = one
    words = (
        f"Lowest threshold within {wanted}: {best.n_alerts} alerts in {rows.node_days:.0f} "
        f"node-days of validation, {allowed:.1f} allowed; {len(best.caught)} of "
        f"{rows.n_incidents} incidents caught. "
        f"{_margin(best, allowed=allowed, confidence=confidence)} {_in_words(best.policy)}"
    )
    return _chosen(best.policy, words, tried)


def tune_for_precision(
    tune: PolicyRows,
    test: PolicyRows,
    grid: PolicyGrid,
    *,
    precision: float,
    confidence: float = 0.95,
) -> ThresholdChoice:
    """The policy that catches the most incidents at a precision that holds with confidence.

    `tune` chooses persistence and cooldown (another than the default only as for a budget), and
    which thresholds are worth a test in which order; `test` then tests the thresholds of this
    one policy (`try_in_order`), so that the choice costs nothing of the confidence. The
    precision is that of episodes in a time as long as the test part's: incidents caught against
    entities falsely alarmed.

    Args:
        tune: Rows to choose on.
        test: Rows of other nodes, or of another time.
        grid: Policies tried.
        precision: Wanted precision, (0, 1).
        confidence: 1 - the chance of being wrong.

    Returns:
        The choice; no threshold when none qualifies, with what is missing.

    Raises:
        DataError: A share is out of range, or no row has a score.
    """
    for name, share in (("precision", precision), ("confidence", confidence)):
        if not 0.0 < share < 1.0:
            raise DataError(f"policy with a guarantee: {name} must be in (0, 1), got {share:g}.")
    wanted = f"precision >= {precision:g} with {100 * confidence:g} % confidence"
    if not tune.score.size or not test.score.size:
        words = f"No threshold qualifies for {wanted}: it takes scored nodes to choose and to test."
        return ThresholdChoice(None, words, 0)
    options = [_worth_testing(tune, policy, precision=precision) for policy in grid.policies()]
    chosen = _most_promising(options, allowed=1.0 - confidence)
    if chosen is None:
        words = (
            f"No threshold qualifies for {wanted}: on the tuning part none reaches it with a "
            f"single true episode."
        )
        return ThresholdChoice(None, words, 0)
    ended = try_in_order(test, chosen.policies, precision=precision, confidence=confidence)
    found = ended.episodes
    if ended.policy is None:
        missing = missing_episodes(found, precision=precision, confidence=confidence)
        words = f"No threshold qualifies for {wanted} on the test part. {missing}"
        return ThresholdChoice(None, words, ended.n_tried)
    words = (
        f"Lowest threshold tested with {wanted}: {found.n_true} of {found.size} episodes were "
        f"true, {found.n_true} of {test.n_incidents} incidents caught. {_in_words(ended.policy)}"
    )
    return _chosen(ended.policy, words, ended.n_tried)


def halves_by_node(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Cuts rows into a tuning and a test part that share no node.

    Args:
        rows: `entity_id`, `node`.

    Returns:
        Both parts; the cut of a node is the same in every run.
    """
    nodes = rows.select(pl.coalesce("node", "entity_id"))["node"]
    fold = pl.Series(entity_fold(nodes.to_list(), n_folds=2, salt="policy"), dtype=pl.Int64)
    return rows.filter(fold == 0), rows.filter(fold == 1)


def _catches_clearly_more(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether the difference of incidents caught is more than its standard error."""
    gained, lost = set(one) - set(other), set(other) - set(one)
    return len(gained) - len(lost) > math.sqrt(len(gained) + len(lost))


def _worth_testing(tune: PolicyRows, policy: WarningPolicy, *, precision: float) -> _Sequence:
    """Thresholds of a policy from the surest on, as far as they have the wanted precision.

    Stricter ones than the surest have too few episodes to pass, and the first that does not
    pass ends the sequence.
    """
    steps = []
    for threshold in tune.thresholds:
        one = replace(policy, threshold=threshold)
        found = tune.outcome(one)
        if found.size >= HOPELESS_EPISODES and found.precision < precision / 2:
            break
        steps.append((one, found, chance_if_lower(found, precision=precision)))
    surest = min(range(len(steps)), key=lambda i: steps[i][2], default=0)
    worth = [step for step in steps[surest:] if step[1].precision >= precision]
    if not worth:
        return _Sequence((), (), 1.0)
    most = max(worth, key=lambda step: step[1].n_true)[0]
    caught = tuple(tune.caught_by(tune.alerts(most)).tolist())
    return _Sequence(tuple(one for one, _, _ in worth), caught, steps[surest][2])


def _most_promising(options: Sequence[_Sequence], *, allowed: float) -> _Sequence | None:
    """Of those sure enough on the tuning part the first, or one that catches clearly more.

    Where none is sure enough, the surest.
    """
    worth = [one for one in options if one.policies]
    sure = [one for one in worth if one.chance <= allowed]
    if not sure:
        return min(worth, key=lambda one: one.chance, default=None)
    best = sure[0]
    for one in sure[1:]:
        if _catches_clearly_more(one.caught, best.caught):
            best = one
    return best


def _chosen(policy: WarningPolicy | None, words: str, tried: int) -> ThresholdChoice:
    return ThresholdChoice(policy.threshold if policy else None, words, tried, policy)


def _margin(spent: Spending, *, allowed: float, confidence: float) -> str:
    """What a budget promises of the time to come."""
    next_ones = (
        f"at most {spent.n_expected} alerts of as many nodes in as long a time are expected with "
        f"{100 * confidence:g} % confidence"
    )
    if spent.n_expected <= allowed:
        return f"{next_ones[0].upper()}{next_ones[1:]}."
    why = "so few prove nothing" if spent.n_alerts <= PLAIN_COUNT else "no threshold is stricter"
    return f"No margin is left, for {why}: {next_ones}."


def _in_words(policy: WarningPolicy | None) -> str:
    if policy is None:
        return ""
    hours = policy.cooldown / timedelta(hours=1)
    return (
        f"An alert needs {policy.n} of the last {policy.k} scores, "
        f"and is not repeated for {hours:g} h."
    )
