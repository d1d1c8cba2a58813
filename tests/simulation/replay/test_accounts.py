"""Each rule of the replay's accounts on a record small enough to reckon by hand."""

from dataclasses import replace

import pytest

from remediation.site import Drains
from simulation.replay.engine import Run, replay
from simulation.replay.history import HOUR, History, micros
from simulation.replay.holds import HoldOutcome, outcome_of_hold
from simulation.replay.signals import model, never
from simulation.replay.sweeps import with_standby
from tests.simulation.replay.replay_world import (
    COSTS,
    FREE,
    H,
    T,
    history,
    incident,
    job,
    record,
    score,
)

HURT = job("j", 5, 10.5, "hardware")
FAILURE = incident(10, end=12)
# By hand, at 10:00: 4 GPUs lose 1 h of work, 0.5 h of hanging and 1 h until they compute again.
LOST = {"rework": 4.0, "hung": 2.0, "restart": 4.0}
REPAIR = 8 * 2.0


def books(run: Run) -> dict[str, float]:
    return {kind: value for kind, value in run.books.by_kind().items() if value}


def hold(
    given: History, at: float, action: str = "drain_after_jobs", finding: str = "check"
) -> HoldOutcome:
    return outcome_of_hold(
        given, FREE, node=0, action=action, since=micros(T + at * H), finding=finding
    )  # type: ignore[arg-type]


def spent(made: HoldOutcome) -> float:
    return sum(charge.gpu_hours for charge in made.charges)


def hours(at: int) -> float:
    return (at - micros(T)) / HOUR


def test_without_drains_a_failure_costs_its_jobs_and_its_repair() -> None:
    run = replay(history(record(jobs=[HURT], incidents=[FAILURE])), FREE, never())
    assert books(run) == LOST | {"repair": REPAIR}
    assert (run.n_failure_interruptions, run.n_drain_interruptions, run.holds) == (1, 0, ())


@pytest.mark.parametrize(
    ("one", "lost"),
    [
        (job("j", 9.5, 10.5, "hardware"), {"rework": 2.0, "hung": 2.0, "restart": 4.0}),
        (job("j", 5, 10.1, "hardware"), {"rework": 4.0, "hung": 0.4, "restart": 4.0}),
        (job("j", 5, 12, "unknown", nodes=["a", "b"], n_gpus=16),
         {"rework": 16.0, "hung": 8.0, "restart": 16.0}),
        (job("j", 5, 12.5, "hardware"), {}),
        (job("j", 5, 10.5, "user_code"), {}),
        (job("j", 5, None), {}),
        (job("j", 5, 10.5, "hardware", nodes=["b"]), {}),
        (job("j", 5, 10.5, "hardware", n_gpus=None),
         {"rework": 8.0, "hung": 4.0, "restart": 8.0}),
    ],
    ids=["younger than a checkpoint", "noticed at once", "on all its GPUs", "ended after repair",
         "own fault", "runs on", "elsewhere", "of unknown size"],
)  # fmt: skip
def test_what_a_failure_costs_a_job(one: dict[str, object], lost: dict[str, float]) -> None:
    run = replay(history(record(jobs=[one], incidents=[FAILURE])), FREE, never())
    assert books(run) == pytest.approx(lost | {"repair": REPAIR})


def test_an_attempt_is_lost_once_and_overlapping_incidents_are_one_outage() -> None:
    both = record(
        jobs=[job("j", 5, 11.5, "hardware", nodes=["a", "b"], n_gpus=4)],
        incidents=[FAILURE, incident(11, end=14), incident(10.5, node="b", end=12)],
    )
    run = replay(history(both), FREE, never())
    assert books(run) == {"rework": 4.0, "hung": 2.0, "restart": 4.0, "repair": 8 * 4 + 8 * 1.5}
    assert run.n_failure_interruptions == 1


def test_an_idle_node_is_checked_the_failure_found_and_mended_before_it_comes() -> None:
    given = history(record(jobs=[HURT], incidents=[FAILURE]))
    made = hold(given, 2)
    assert (made.verdict, hours(made.release)) == ("useful", 2 + 0.5 + 2)
    assert spent(made) == 8 * 0.5
    change = made.changed[0]
    assert (change.hurt, change.is_prevented, change.repair.gpu_hours) == (set(), True, REPAIR)
    assert hours(change.repair.at) == 10


def test_planned_repair_counts_at_its_own_length() -> None:
    given = history(record(jobs=[HURT], incidents=[FAILURE]))
    costs = COSTS.model_copy(update={"planned_repair_hours": 4})
    made = outcome_of_hold(
        given, FREE.model_copy(update={"costs": costs}), node=0, action="drain_after_jobs",
        since=micros(T),
    )  # fmt: skip
    assert made.changed[0].repair.gpu_hours == REPAIR / 2
    assert hours(made.release) == 0.5 + 1


def test_a_drain_that_waits_for_a_doomed_job_comes_too_late_for_it() -> None:
    given = history(record(jobs=[HURT], incidents=[FAILURE]))
    made = hold(given, 6)
    # 4 of 8 GPUs are free and idle from 6:00 to the failure; the job is lost as before.
    assert (made.verdict, spent(made)) == ("late", 4 * 4.0)
    assert made.changed[0].hurt == {("j", 0)}
    assert hours(made.release) == 12


def test_a_job_that_the_failure_ends_at_its_onset_was_there_to_be_hurt() -> None:
    given = history(record(jobs=[HURT | {"end": T + 10 * H}], incidents=[FAILURE]))
    made = hold(given, 6)
    assert (made.verdict, made.changed[0].hurt) == ("late", {("j", 0)})
    assert not made.changed[0].is_prevented


def test_a_drain_by_deadline_moves_the_job_and_spares_it() -> None:
    given = history(record(jobs=[HURT], incidents=[FAILURE]))
    made = hold(given, 6, "checkpoint_then_drain")
    # 4 free GPUs idle for the notice, then 8 for the check.
    assert spent(made) == 4 * 0.5 + 8 * 0.5
    assert ([one.key for one in made.moved], hours(made.told)) == ([("j", 0)], 6.5)
    assert (made.verdict, made.changed[0].hurt) == ("useful", set())


def test_a_failure_within_the_notice_still_hurts() -> None:
    made = hold(history(record(jobs=[HURT], incidents=[FAILURE])), 9.75, "checkpoint_then_drain")
    assert (made.verdict, made.changed[0].hurt) == ("late", {("j", 0)})


def test_a_cordon_keeps_new_jobs_away_and_finds_nothing() -> None:
    early, later = job("early", 1, 10.5, "hardware"), job("later", 4, 10.5, "hardware")
    made = hold(history(record(jobs=[early, later], incidents=[FAILURE])), 2, "cordon")
    assert made.changed[0].hurt == {("early", 0)}
    assert spent(made) == 8 * 8.0 - 4 * 8.0
    assert not made.changed[0].is_prevented


def test_a_cordon_without_a_failure_lasts_as_long_as_the_score() -> None:
    made = hold(history(record()), 2, "cordon")
    assert (made.verdict, spent(made), hours(made.release)) == ("wasted", 8 * 24.0, 26)


def test_a_wasted_drain_costs_the_wait_and_the_check_and_saves_nothing_later() -> None:
    # It is checked long before the horizon of the failure begins, and 4 GPUs idle until 3:00.
    given = history(record(jobs=[job("j", 0, 3), HURT | {"start": T + 4 * H, "end": T + 40.5 * H}],
                           incidents=[incident(40)]))  # fmt: skip
    made = hold(given, 1)
    assert (made.verdict, dict(made.changed)) == ("wasted", {})
    assert spent(made) == 4 * 2.0 + 8 * 0.5
    assert hours(made.release) == 3.5


def test_kept_for_its_horizon_the_node_fails_empty_and_idles_until_then() -> None:
    given = history(record(jobs=[HURT], incidents=[FAILURE]))
    made = hold(given, 2, finding="kept")
    assert (made.verdict, spent(made)) == ("useful", 8 * 8.0)
    change = made.changed[0]
    assert (change.hurt, change.is_prevented, change.repair.gpu_hours) == (set(), False, REPAIR)
    assert hours(hold(history(record()), 2, finding="kept").release) == 26


def test_a_stuck_drain_is_given_back() -> None:
    given = history(record(jobs=[job("j", 0, 60)]), hours=96)
    site = FREE.model_copy(update={"drains": Drains(longest_hours=10)})
    made = outcome_of_hold(given, site, node=0, action="drain_after_jobs", since=micros(T + H))
    assert (hours(made.release), spent(made)) == (11, 4 * 10.0)


def test_what_the_record_ends_before_is_open() -> None:
    assert hold(history(record(), hours=20), 2).verdict == "open"


def test_idle_hours_that_jobs_used_in_the_record_are_told_apart() -> None:
    made = hold(history(record(jobs=[job("new", 2.25, 9)])), 2)
    assert (spent(made), made.unused) == (8 * 0.5, 4 * 0.25)


def test_a_standby_node_shortens_the_restart_of_the_first_failure_only() -> None:
    given = history(
        record(
            jobs=[HURT, HURT | {"job_id": "k", "nodes": ["b"]}],
            incidents=[FAILURE, incident(10.25, node="b", end=12)],
        )
    )
    more, site = with_standby(given, FREE, 1)
    run = replay(more, site, never())
    assert run.books.by_kind()["restart"] == pytest.approx(4 * 1 / 60 + 4 * 1.0)
    two, site = with_standby(given, FREE, 2)
    assert replay(two, site, never()).books.by_kind()["restart"] == pytest.approx(8 * 1 / 60)


def test_the_whole_of_one_drain_in_the_books() -> None:
    given = history(record(jobs=[HURT], incidents=[FAILURE], scores=[score(2, 0.9)]))
    run = replay(given, FREE, model(given, FREE))
    assert books(run) == {"idle": 8 * 0.5, "repair": REPAIR}
    assert [one.verdict for one in run.holds] == ["useful"]
    assert run.n_failure_interruptions == 0


def test_a_failure_is_prevented_once() -> None:
    rows = [score(at, 0.9) for at in (0, 4, 8)]
    given = history(record(jobs=[HURT | {"start": T + 9.5 * H}], incidents=[FAILURE], scores=rows))
    run = replay(given, FREE, model(given, FREE))
    assert [one.verdict for one in run.holds] == ["useful", "wasted", "wasted"]
    assert books(run) == {"idle": 3 * 8 * 0.5, "repair": REPAIR}


def test_blocks_are_node_weeks_and_add_up() -> None:
    given = history(
        record(jobs=[HURT], incidents=[FAILURE, incident(180, node="b", end=181)]), hours=336
    )
    run = replay(given, FREE, never())
    blocks = run.books.by_block(given).reshape(3, 2)
    assert blocks.tolist() == [[10 + REPAIR, 0.0], [0.0, 8.0], [0.0, 0.0]]
    assert replace(given, end=given.start).run_gpu_hours == 0
