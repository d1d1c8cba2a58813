"""Laws of the replay: no look ahead, nothing from nothing, a bound, and the same for the same."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from features.vocabulary import ACTIONS
from remediation.site import Site
from simulation.replay.comparison import STRATEGIES, compare, signals_for
from simulation.replay.engine import replay
from simulation.replay.history import History, micros, moment_of
from simulation.replay.intervals import sum_of_blocks
from simulation.replay.oracle import oracle
from simulation.replay.signals import history_rank, signals_of, static_rules
from simulation.replay.sweeps import noisy
from simulation.replay.tables import Record
from tests.simulation.replay.replay_world import FREE, H, T, event, history, incident, job, record
from tests.simulation.replay.replay_world import score as row_of
from tests.simulation.replay.replay_world import state as state_of

NODES = ("a", "b", "c", "d")
MOVING = FREE.model_copy(update={"interruptible_partitions": ("batch",)})
N_HOURS = 48
ACTING = ("cordon", "drain_after_jobs", "checkpoint_then_drain")


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Four nodes; each fails at most once, and jobs run on one or two of them."""
    incidents = [
        incident(at, node=node, end=at + draw(st.integers(1, 8)))
        for node in NODES
        for at in draw(st.lists(st.integers(2, 80).map(lambda half: half / 2), max_size=1))
    ]
    jobs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 8))):
        start = draw(st.integers(-20, 80)) / 2
        end = start + draw(st.integers(1, 60)) / 2
        nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=2, unique=True))
        fatal = [one for one in incidents if one["node"] in nodes and one["start"] > T + start * H]
        if fatal and draw(st.booleans()):
            first = min(fatal, key=lambda one: one["start"])
            end = (first["start"] - T) / H + draw(st.sampled_from([0.0, 0.2, 0.9]))
        cause = draw(st.sampled_from([None, "hardware"]))
        jobs.append(job(f"j{number}", start, end, cause, nodes=nodes, n_gpus=4 * len(nodes)))
    rows = [
        row_of(at, draw(st.sampled_from([0.0, 0.2, 0.6, 0.99])), node)
        for at in range(0, N_HOURS, 5)
        for node in NODES
    ]
    events = [
        event(at, draw(st.sampled_from(NODES)))
        for at in draw(st.lists(st.floats(0, 40), max_size=3))
    ]
    states = [
        state_of(draw(st.sampled_from(NODES)), at, at + 1, "drain")
        for at in draw(st.lists(st.integers(0, 40), max_size=1))
    ]
    return record(
        nodes=NODES, jobs=jobs, incidents=incidents, scores=rows, events=events, states=states
    )


@settings(max_examples=25)
@given(given=records(), is_moving=st.booleans(), finding=st.sampled_from(["check", "kept"]))
def test_the_oracle_is_never_worse_where_nothing_is_capped(
    given: Record, is_moving: bool, finding: Any
) -> None:
    site = MOVING if is_moving else FREE
    # Drained by somebody else, a node cannot be taken at the best moment: that is a guard too.
    found = compare(history(replace(given, node_states=given.node_states.clear()), hours=N_HOURS),
                    site, finding=finding).figures  # fmt: skip
    assert set(found) == set(STRATEGIES)
    for name, one in found.items():
        assert found["oracle"].lost <= one.lost + 1e-9, name


@settings(max_examples=10)
@given(given=records(), finding=st.sampled_from(["check", "kept"]))
def test_the_oracle_is_as_good_as_the_best_of_all_single_holds(given: Record, finding: Any) -> None:
    clean = replace(given, node_states=given.node_states.clear(),
                    incidents=given.incidents.filter(pl.col("node") == "a"))  # fmt: skip
    found = history(clean, hours=N_HOURS, site=MOVING, every_h=2)

    def lost(signals: Any) -> float:
        return sum(replay(found, MOVING, signals, finding=finding).books.by_kind().values())

    tried = [
        signals_of("one", tick=np.array([tick]), node=np.array([0]), action=np.array([action]))
        for tick in range(found.ticks.size)
        for action in (ACTIONS.index(name) for name in ACTING)
    ]
    best = min(lost(one) for one in (*tried, signals_for("never", found, MOVING, finding=finding)))
    assert lost(oracle(found, MOVING, finding=finding)) == pytest.approx(best)


def test_the_oracle_moves_a_job_that_nothing_else_would_spare() -> None:
    # 8 GPUs would lose 2.5 h; moved at 9:30 they lose 1 h of restart, and the check takes 4.
    doomed = job("j", -5, 10.2, "hardware", n_gpus=8)
    found = history(record(jobs=[doomed], incidents=[incident(10)], scores=None), hours=24)
    one = compare(found, MOVING).figures["oracle"]
    assert one.actions == {"checkpoint_then_drain": 1}
    assert one.saved.value == pytest.approx(8 * (1 + 0.2 + 1) - 8 * 1 - 8 * 0.5)
    assert compare(found, FREE).figures["oracle"].n_drains == 0


@settings(max_examples=25)
@given(given=records())
def test_never_changes_nothing_and_what_is_saved_is_avoided_less_spent(given: Record) -> None:
    found = compare(history(given, hours=N_HOURS), MOVING).figures
    never = found["never"]
    assert (never.saved.value, never.n_drains, never.spent, never.avoided) == (0.0, 0, 0.0, 0.0)
    for one in found.values():
        assert one.saved.value == pytest.approx(one.avoided - one.spent, abs=1e-6)
        assert one.saved.value == pytest.approx(never.lost - one.lost, abs=1e-6)
        assert min(one.by_kind.values()) >= 0
        assert one.unused <= one.by_kind["idle"] + 1e-6


def poisoned(given: Record, at: datetime) -> Record:
    """The same up to `at`; after it everything is otherwise."""
    closed = pl.lit(at + 500 * H).cast(pl.Datetime("us", "UTC"))

    def future(column: str, otherwise: pl.Expr) -> pl.Expr:
        return pl.when(pl.col(column) >= at).then(otherwise).otherwise(pl.col(column))

    jobs = given.jobs.filter(pl.col("start") < at).with_columns(
        end=future("end", closed), cause=pl.lit("hardware")
    )
    incidents = given.incidents.filter(pl.col("start") < at).with_columns(end=future("end", closed))
    more = [incident(((at - T) / H) + 0.1, node=node) for node in NODES]
    wild = [row_of(hour, 0.99, node) for hour in range(N_HOURS) for node in NODES
            if T + hour * H >= at]  # fmt: skip
    assert given.node_scores is not None
    return replace(
        given,
        jobs=jobs,
        incidents=pl.concat([incidents, pl.DataFrame(more, schema=incidents.schema)]),
        node_scores=pl.concat(
            [
                given.node_scores.filter(pl.col("as_of") < at),
                pl.DataFrame(wild, schema=given.node_scores.schema),
            ]
        ),
        events=pl.concat(
            [
                given.events.filter(pl.col("ts") < at),
                pl.DataFrame(
                    [event((at - T) / H + 0.01, node) for node in NODES], schema=given.events.schema
                ),
            ]
        ),
        node_states=given.node_states.filter(pl.col("valid_from") < at).with_columns(
            valid_to=future("valid_to", closed)
        ),
    )


@settings(max_examples=12, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(given=records(), hour=st.integers(1, N_HOURS - 2), site=st.sampled_from([FREE, MOVING]))
def test_what_is_done_before_a_moment_does_not_change_with_what_comes_at_or_after_it(
    given: Record, hour: int, site: Site
) -> None:
    at = T + hour * H
    # A check that finds a failure to come is the world's doing, and keeps the node for its repair;
    # where none does, nothing but the strategy and the past decides.
    one, other = (
        done_before(at, history(given, hours=N_HOURS, site=site), site)
        for given in (given, poisoned(given, at))
    )
    for name, done in one.items():
        assert done == other[name], name


def done_before(at: datetime, found: History, site: Site) -> dict[str, tuple[Any, ...]]:
    """By strategy, all it pointed at and all it did before a moment."""
    result = {}
    for name in STRATEGIES:
        if name == "oracle":
            continue
        signals = signals_for(name, found, site, finding="kept")
        pointed = [
            (int(found.ticks[tick]), node, round(score, 12))
            for (tick, node), score in zip(rows_of(signals), signals.score.tolist(), strict=True)
            if found.ticks[tick] < micros(at)
        ]
        holds = replay(found, site, signals, finding="kept").holds
        done = [(one.node, one.since, one.action) for one in holds if one.since < micros(at)]
        result[name] = (pointed, done)
    return result


@settings(max_examples=5)
@given(given=records())
def test_the_same_record_gives_the_same_comparison(given: Record) -> None:
    one, two = (compare(history(given, hours=N_HOURS), MOVING) for _ in range(2))
    assert one.figures == two.figures
    assert {name: run.holds for name, run in one.runs.items()} == {
        name: run.holds for name, run in two.runs.items()
    }


def rows_of(signals: Any) -> list[tuple[int, int]]:
    return list(zip(signals.tick.tolist(), signals.node.tolist(), strict=True))


def test_a_static_rule_points_at_a_node_at_the_ticks_of_the_day_after_an_event() -> None:
    found = history(record(events=[event(2, "b"), event(2, "c", code=31)]), hours=40)
    assert rows_of(static_rules(found)) == [(tick, 1) for tick in range(3, 27)]


def test_history_rank_points_at_those_that_failed_most_and_only_afterwards() -> None:
    incidents = [incident(at, node=node) for at, node in ((2, "b"), (5, "c"), (8, "b"))]
    rows = [row_of(0, 0.9), row_of(0, 0.1, "b"), row_of(0, 0.1, "c")]
    found = history(record(incidents=incidents, scores=rows), hours=12)
    # Nobody before two failures are known; then the later of the two, then the one with two.
    ranked = history_rank(found, FREE)
    assert rows_of(ranked) == [*((tick, 2) for tick in (6, 7, 8)), (9, 1), (10, 1), (11, 1)]
    assert 0 < ranked.score[2] < ranked.score[3] < 1


def test_made_up_alarms_have_the_quality_they_are_asked_for() -> None:
    incidents = [incident(24 * day, node=f"n{day}", end=24 * day + 1) for day in range(1, 13)]
    names = [f"n{place}" for place in range(40)]
    found = history(record(nodes=names, incidents=incidents, scores=None), hours=24 * 14)
    right = {one.node for one in found.outages}

    def nodes(precision: float) -> set[int]:
        return set(noisy(found, FREE, precision=precision, recall=1.0, seed=1).node.tolist())

    assert nodes(1.0) == right
    assert nodes(0.2) > right
    assert len(noisy(found, FREE, precision=0.2, recall=1.0, seed=1).tick) > 0


@pytest.mark.parametrize("filled", [0, 1, 30])
def test_empty_blocks_drawn_as_one_give_the_interval_of_all(filled: int) -> None:
    blocks = np.zeros(60)
    blocks[:filled] = np.random.default_rng(3).normal(1, 2, filled)
    fast = sum_of_blocks(blocks)
    counts = np.random.default_rng(5).multinomial(60, np.full(60, 1 / 60), size=20_000)
    low, high = np.quantile(counts @ blocks, [0.025, 0.975])
    assert fast.value == pytest.approx(blocks.sum())
    assert (fast.low, fast.high) == pytest.approx((low, high), abs=1.5)


def test_without_scores_the_model_does_nothing_and_the_others_still_speak() -> None:
    found = compare(history(record(incidents=[incident(10)], scores=None), hours=24), FREE).figures
    drains: Mapping[str, int] = {name: one.n_drains for name, one in found.items()}
    assert drains["model"] == 0
    assert drains["always"] > 0
    assert moment_of(micros(T)) == T
