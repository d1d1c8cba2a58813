"""The replay decides as the hook itself would: `run_once` at every tick on the same world."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from features.tables import GPU_SCORES
from remediation.actuators.protocol import FakeActuator
from remediation.cluster.frames import FrameClusterReader
from remediation.cluster.state import FakeCluster
from remediation.hook import run_once
from remediation.ledger.entries import MemoryLedger
from remediation.score_source import FakeScoreSource, PublishedScores
from remediation.site import Burst, Caps, LevelRule, Site
from remediation.site import Warning as WarningSettings
from simulation.replay.engine import replay
from simulation.replay.history import History, micros, moment_of
from simulation.replay.holds import outcome_of_hold
from simulation.replay.signals import model
from simulation.replay.tables import Record
from tests.simulation.replay.replay_world import COSTS, FREE, H, T, history, incident, job, record
from tests.simulation.replay.replay_world import score as row_of
from tests.simulation.replay.replay_world import state as state_of

NODES = ("a", "b", "c", "d", "e", "f")
RACKS = {node: f"r{place // 3}" for place, node in enumerate(NODES)}
Acts = list[tuple[str, datetime, str]]


def hook_by_hand(given: Record, site: Site, found: History) -> Acts:
    """Runs the hook at each tick; a node returns when the replay's rules say it does."""
    ledger, acts = MemoryLedger(), []
    releases: dict[str, int] = {}
    for tick in found.ticks.tolist():
        now = moment_of(tick)
        reader = FrameClusterReader(
            as_of=now, node_states=given.node_states, jobs=given.jobs, topology=given.topology,
            inventory=given.inventory, state_without_record="up",
        )  # fmt: skip
        cluster = FakeCluster(reader.read())
        for name, until in list(releases.items()):
            if until <= tick:
                del releases[name]
            else:
                cluster.set_node(name, state="drain", reason="forewarn:v1 x", actor="forewarn")
        scores = given.node_scores.filter(pl.col("as_of") == now)  # type: ignore[union-attr]
        published = PublishedScores(
            as_of=now, expires_at=now + H, model_versions={24: "m/1"}, trained_on="real",
            node_scores=scores, gpu_scores=GPU_SCORES.empty(),
        )  # fmt: skip
        actuator = FakeActuator(cluster)
        run_once(
            scores=FakeScoreSource(published), cluster=cluster, actuator=actuator, ledger=ledger,
            site=site, clock=lambda now=now: now, is_simulation=True,
        )  # fmt: skip
        for order in actuator.orders:
            name = order.expected.name
            made = outcome_of_hold(
                found, site, node=found.code_of[name], action=order.action, since=tick
            )
            releases[name] = made.release
            acts.append((name, now, order.action))
    return acts


def replayed(site: Site, found: History) -> Acts:
    run = replay(found, site, model(found, site))
    return [(found.names[one.node], moment_of(one.since), one.action) for one in run.holds]


SITES = {
    "free": FREE,
    "defaults": Site(
        costs=COSTS,
        levels=(LevelRule(level="notify_then_drain"),),
        warning=WarningSettings(threshold=0.9, n=2, k=3, tick_minutes=60),
    ),
    "tight": FREE.model_copy(
        update={
            "caps": Caps(held_percent=20, partition_percent=50, actions_per_hour=1),
            "warning": WarningSettings(threshold=0.4, n=2, k=3, tick_minutes=60),
            "burst": Burst(fleet_nodes=3, component_nodes=2, hold_hours=5, quiet_hours=6),
            "undrain_cooldown_hours": 6.0,
            "interruptible_partitions": ("batch",),
        }
    ),
    "standby": FREE.model_copy(
        update={"standby": ("f",), "interruptible_partitions": ("batch",)}
    ),
    "levels": FREE.model_copy(
        update={
            "groups": {"some": ("a", "b")},
            "levels": (
                LevelRule(group="some", level="cordon"),
                LevelRule(level="drain_after_jobs"),
            ),
            "deny": ("c",),
        }
    ),
}  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Six nodes in two racks over 11 hours, every one scored at every tick."""
    # A failure of a held node is prevented or ends its hold; a second look at it would differ.
    values = st.sampled_from([None, 0.1, 0.45, 0.6, 0.99])
    rows = [
        row_of(at, draw(values), node, fault_type=draw(st.sampled_from([None, "thermal"])))
        for at in range(11)
        for node in NODES
    ]
    jobs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 6))):
        start = draw(st.integers(-8, 20)) / 2
        end = start + draw(st.integers(1, 20)) / 2
        nodes = draw(st.lists(st.sampled_from(NODES[:5]), min_size=1, max_size=2, unique=True))
        jobs.append(job(f"j{number}", start, end, nodes=nodes))
    states = [
        state_of(draw(st.sampled_from(NODES)), low / 2, low / 2 + 2, draw(st.sampled_from(WHAT)))
        for low in draw(st.lists(st.integers(0, 20), max_size=2))
    ]
    return record(
        nodes=NODES, jobs=jobs, scores=rows, states=states,
        racks=RACKS,
    )  # fmt: skip


WHAT: Sequence[str] = ("down", "drain", "up")


# Without shrinking, which would run the hook for minutes on what already shows the difference.
@pytest.mark.parametrize("name", SITES)
@settings(max_examples=6, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(given=records())
def test_each_action_is_the_hooks_own(name: str, given: Record) -> None:
    site = SITES[name]
    found = history(given, hours=11, site=site)
    is_same = replayed(site, found) == hook_by_hand(given, site, found)
    assert is_same  # the lists say enough, and the frames too much


@settings(max_examples=20)
@given(given=records(), at=st.integers(0, 28))
def test_views_are_those_of_the_reader_of_core_tables(given: Record, at: int) -> None:
    now = T + at / 2 * H
    found = history(given, hours=11)
    shown: dict[int, Any] = {}
    for change in found.changes:
        if change.at <= micros(now):
            shown[change.node] = change.view
    reader = FrameClusterReader(
        as_of=now, node_states=given.node_states, jobs=given.jobs, topology=given.topology,
        inventory=given.inventory, state_without_record="up",
    )  # fmt: skip
    state = reader.read()
    assert tuple(view for _, view in sorted(shown.items()) if view) == state.nodes
    running = {
        one.key[0]
        for node in range(len(NODES))
        for one in found.attempts[node].running(micros(now))
    }
    assert running == {one.job_id for one in state.jobs}


def test_nodes_that_cannot_be_taken_still_take_part_in_the_order() -> None:
    # At 8:00 node b is no alert yet, but c shares its job and is ranked anew behind b.
    above = {
        0: "bcdef", 1: "bcdef", 2: "d", 3: "abcef", 4: "bd", 5: "bef", 6: "cdf", 7: "acdf",
        8: "abcdef", 9: "bdef", 10: "acef",
    }  # fmt: skip
    jobs = [
        job("j0", 4.5, 14.5, nodes=["b", "c"]),
        job("j1", 0.5, 8, nodes=["b", "c"]),
        job("j2", 8, 13.5, nodes=["e"]),
    ]
    thermal = {"b": {0, 4, 5}, "c": {1, 3, 7}, "d": {0, 2, 6, 7, 8}, "f": {3, 5, 6, 7, 9, 10},
               "e": {0, 8}, "a": {7, 10}}  # fmt: skip
    strong = {("c", 0), ("b", 1), ("f", 1), ("c", 3), ("d", 4), ("b", 5), ("d", 6), ("b", 8),
              ("d", 8), ("f", 8), ("d", 9), ("a", 10), ("e", 10), ("f", 10)}  # fmt: skip
    middling = {("b", 0), ("e", 0), ("f", 0), ("c", 1), ("e", 1), ("d", 2), ("b", 3), ("e", 3),
                ("f", 3), ("e", 5), ("f", 5), ("f", 6), ("a", 7), ("c", 8), ("b", 9),
                ("f", 9)}  # fmt: skip
    rows = [
        row_of(at, 0.99 if (node, at) in strong else 0.6 if (node, at) in middling else 0.45, node,
               fault_type="thermal" if at in thermal[node] else None)
        for at, nodes in above.items() for node in nodes
    ]  # fmt: skip
    states = [state_of("d", 7.5, 9.5, "drain"), state_of("d", 1, 3, "drain")]
    given = record(nodes=NODES, jobs=jobs, scores=rows, states=states, racks=RACKS)
    found = history(given, hours=11, site=SITES["tight"])
    done = replayed(SITES["tight"], found)
    assert done == hook_by_hand(given, SITES["tight"], found)
    assert ("c", T + 8 * H, "checkpoint_then_drain") in done


def test_a_node_that_is_down_when_its_hold_is_over_still_counts_as_held() -> None:
    site = FREE.model_copy(update={"caps": Caps(held_percent=20, partition_percent=100)})
    rows = [row_of(2, 0.9, "e"), *(row_of(at, 0.9, "c") for at in (3, 4, 5))]
    rows += [row_of(at, 0.1) for at in range(8)]
    given = record(nodes=NODES, scores=rows, states=[state_of("e", 2, 4.5)])
    found = history(given, hours=8, site=site)
    done = replayed(site, found)
    assert done == hook_by_hand(given, site, found)
    assert [(name, (at - T) / H) for name, at, _ in done] == [("e", 2), ("c", 5)]


def test_a_failure_in_a_hold_does_not_change_what_the_hook_decides() -> None:
    rows = [row_of(at, 0.9, node) for at in range(8) for node in "ab"]
    given = record(scores=rows, incidents=[incident(3, node="a")])
    site = FREE.model_copy(update={"undrain_cooldown_hours": 100.0})
    found = history(given, hours=8, site=site)
    assert replayed(site, found) == hook_by_hand(given, site, found)
    assert len(replayed(site, replace(found, scores=found.scores))) == 2
