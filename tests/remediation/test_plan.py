from dataclasses import replace

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from remediation.actuators.dry_run import DryRunActuator
from remediation.plan import plain, render_plan
from remediation.site import Burst, Caps


def dry(world):
    return render_plan(world.run(actuator=DryRunActuator(world.cluster)))


def test_a_dry_run_says_first_that_nothing_was_done(kit):
    text = dry(kit.world({"a": 0.9}))
    assert text.splitlines()[0] == "DRY RUN: nothing was done"
    assert "Would do\n  a  drain_after_jobs\n" in text
    assert "$ scontrol update NodeName=a State=DRAIN 'Reason=forewarn:v1 score=0.90" in text


def test_a_real_run_says_what_was_done_and_a_repeat_that_it_was_not_done_again(kit):
    world = kit.world({"a": 0.9, "b": 0.1})
    assert "DRY RUN" not in render_plan(world.run())
    assert "carried out in an earlier run, not again" in render_plan(world.run())


def test_nodes_are_ranked_by_risk_ten_at_most_and_aligned(kit):
    text = dry(kit.world({f"n{i}": i / 100 for i in range(20)}))
    table = text.split("Highest risk, 10 of 20\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[1] for line in table[1:]] == [f"n{i}" for i in range(19, 9, -1)]
    assert {line.index("%") - line.index(".") for line in table[1:]} == {2}
    assert "retries of n19 rise" in table[1]


def test_what_was_held_back_is_shown_with_every_reason(kit):
    site = kit.site(caps=Caps(held_most=0), deny=("a",))
    text = dry(kit.world({"a": 0.9}, site=site))
    assert "Would do: nothing" in text
    assert "Held back, 1\n  a  drain_after_jobs is not done" in text
    assert "listed: on the deny list" in text
    assert "cap_fleet: 0 held of 0 allowed" in text


def test_a_person_is_told_in_the_same_text(kit):
    world = kit.world({"a": 0.9}, site=kit.site(burst=Burst(fleet_nodes=1, component_nodes=9)))
    assert "For a person\n  ! 1 nodes of fleet newly above the threshold" in dry(world)


def test_unknown_nodes_and_expired_scores_are_said(kit):
    world = kit.world({"a": None})
    world.now += 2 * kit.tick
    text = dry(world)
    assert "0 scored, 0 by prior, 2 unknown" in text
    assert "10:30 UTC: EXPIRED" in text
    assert "No node has a known score" in text


@given(st.text())
def test_no_control_character_is_left(text):
    assert plain(text).isprintable()


def test_g23_names_and_reasons_from_logs_cannot_move_the_cursor(kit):
    name = "gpu\x1b[2J\nDone: nothing"
    world = kit.world({name: 0.9})
    frame = world.scores.node_scores.with_columns(reasons=pl.lit(["bad\r\x1b]0;x\x07"]))
    world.scores = replace(world.scores, node_scores=frame)
    text = dry(world)
    assert all(line.isprintable() for line in text.split("\n"))
    assert not any(line.startswith("Done") for line in text.split("\n"))
    assert "the name could mean more than one node" in text
