"""Whole runs of the hook against a fake cluster."""

import subprocess
import sys
from datetime import timedelta

import pytest

from features.errors import DataError, SourceError
from features.tables import DECISIONS
from remediation.actuators.dry_run import DryRunActuator
from remediation.actuators.protocol import FakeActuator, Outcome
from remediation.cluster.reasons import parse_reason
from remediation.cluster.state import JobView
from remediation.ledger.entries import LedgerError
from remediation.ledger.journal import acknowledge
from remediation.score_source import FakeScoreSource
from remediation.site import Burst, Caps, Drains, LevelRule, Site
from remediation.site import Warning as Alerting


def kinds(world) -> list[str]:
    return [entry.kind for entry in world.ledger.entries()]


def results(world) -> list[str]:
    return [entry.body["status"] for entry in world.ledger.entries(kinds=("result",))]


def test_an_alert_is_drained_and_stamped_with_its_decision(kit):
    world = kit.world({"a": 0.9, "b": 0.1})
    run = world.run()
    node = world.cluster.read().by_name["a"]
    reason = parse_reason(node.reason)
    assert world.acted_on == ["a"]
    assert reason is not None
    assert reason.decision_id == run.judged[0].decision.decision_id
    assert kinds(world) == ["observed", "decision", "intent", "result"]


def test_decisions_hold_their_contract_one_row_per_node_of_the_cluster(kit):
    run = kit.world({"a": 0.9, "b": 0.1, "c": None}).run()
    frame = DECISIONS.conform(run.decisions)
    assert DECISIONS.enforce(frame).rejects.is_empty()
    assert sorted(frame["node"]) == ["a", "b", "c", "idle"]
    assert frame["is_dry_run"].to_list() == [False] * 4


def test_g01_the_default_site_acts_on_nothing(kit):
    world = kit.world({"a": 0.99}, site=Site(warning=Alerting(n=1, k=1)))
    world.run()
    assert world.acted_on == []


def test_a_dry_run_changes_nothing_and_shows_the_commands(kit):
    world = kit.world({"a": 0.9}, trained_on="synthetic")
    before = world.cluster.read()
    run = world.run(actuator=DryRunActuator(world.cluster))
    (outcome,) = run.outcomes.values()
    assert outcome.status == "would_do"
    assert outcome.commands[0][:3] == ("scontrol", "update", "NodeName=a")
    assert world.cluster.read() == before
    assert run.decisions["is_dry_run"].all()


def test_g04_what_a_dry_run_would_hold_counts_until_the_horizon_is_over(kit):
    caps = Caps(held_percent=100, held_most=1, per_rack=None)
    world = kit.world({"a": 0.9, "b": 0.8}, site=kit.site(caps=caps))
    world.actuator = DryRunActuator(world.cluster)
    assert len(world.run().outcomes) == 1
    assert world.next_tick({"a": 0.9, "b": 0.8}).outcomes == {}
    world.now += timedelta(hours=24)
    assert len(world.next_tick({"a": 0.9, "b": 0.8}).outcomes) == 1


def test_dry_runs_and_real_ones_never_mix(kit):
    world = kit.world({"a": 0.9})
    world.run(actuator=DryRunActuator(world.cluster))
    world.run()
    assert world.acted_on == ["a"]


def test_the_same_decision_is_carried_out_once(kit):
    world = kit.world({"a": 0.9})
    first = world.run()
    again = world.run()
    assert world.acted_on == ["a"]
    assert again.outcomes == {}
    assert again.judged[0].is_settled or again.judged[0].decision.wanted == "none"
    assert again.judged[0].decision.decision_id == first.judged[0].decision.decision_id
    assert kinds(world).count("intent") == 1


def test_g05_expired_scores_lead_to_nothing_and_no_backlog_is_replayed(kit):
    world = kit.world({"a": 0.9})
    world.now += timedelta(minutes=30)
    run = world.run()
    assert world.acted_on == []
    assert any(said.startswith("scores_in_time") for said in run.judged[0].blocked_by)
    assert "observed" not in kinds(world)
    assert world.next_tick({"a": 0.1}).outcomes == {}


def test_g05_without_scores_the_run_ends_with_an_error_and_nothing_done(kit):
    world = kit.world({"a": 0.9})
    with pytest.raises(SourceError, match="no scores are published"):
        world.run(scores=FakeScoreSource(None))
    assert world.acted_on == []


def test_g06_unknown_is_neither_sick_nor_healthy(kit):
    world = kit.world({"a": None})
    run = world.run()
    assert run.decisions["action"].to_list() == ["none", "none"]
    assert run.decisions["sentence"].str.starts_with("Score unknown").all()


def test_g07_n_of_k_ticks_are_needed_and_a_changed_reason_does_not_reset_them(kit):
    world = kit.world({"a": 0.9}, site=kit.site(warning=Alerting(n=2, k=3)))
    first = world.run()
    assert first.judged[0].blocked_by == (
        "warned_often_enough: not yet above 50% in 2 of the last 3 ticks",
    )
    world.next_tick({"a": 0.1})
    world.next_tick({"a": 0.9})
    assert world.acted_on == ["a"]


def test_g07_ticks_older_than_k_do_not_count(kit):
    world = kit.world({"a": 0.9}, site=kit.site(warning=Alerting(n=2, k=3)))
    world.run()
    for score in (0.1, 0.1, 0.9):
        world.next_tick({"a": score})
    assert world.acted_on == []


def test_g07_running_twice_on_one_tick_is_one_tick(kit):
    world = kit.world({"a": 0.9}, site=kit.site(warning=Alerting(n=2, k=3)))
    world.run()
    world.run()
    assert world.acted_on == []


def test_g08_a_fleet_wide_burst_goes_to_a_person(kit):
    burst = Burst(fleet_nodes=3, component_nodes=99)
    scores = dict.fromkeys("abc", 0.9)
    world = kit.world(scores, site=kit.site(burst=burst))
    run = world.run()
    assert world.acted_on == []
    assert any("3 nodes of fleet newly above" in text for text in run.messages)
    world.next_tick(scores)
    assert world.acted_on == []
    (escalation,) = world.ledger.entries(kinds=("escalation",))
    acknowledge(world.ledger, escalation.key, actor="eve", at=world.now)
    world.next_tick(scores)
    assert sorted(world.acted_on) == ["a", "b", "c"]


def test_g08_a_burst_of_one_switch_stops_that_switch_only(kit):
    on_switch = [kit.node(name, switch="s1") for name in "abc"]
    nodes = (*on_switch, kit.node("d"), kit.node("x"))
    burst = Burst(fleet_nodes=99, component_nodes=3)
    world = kit.world(dict.fromkeys("abcd", 0.9), nodes=nodes, site=kit.site(burst=burst))
    world.run()
    assert world.acted_on == ["d"]


def test_g08_old_alerts_make_no_burst(kit):
    burst = Burst(fleet_nodes=3, component_nodes=99, within_minutes=30)
    world = kit.world({"a": 0.9, "b": 0.1, "c": 0.1}, site=kit.site(burst=burst, deny=("*",)))
    for names in ("a", "a", "ab", "ab", "ab", "abc"):
        world.next_tick(dict.fromkeys(names, 0.9))
    assert "escalation" not in kinds(world)


@pytest.mark.parametrize("state", ["drain", "down", "unknown"])
def test_g09_nodes_of_others_are_never_touched(kit, state):
    node = kit.node("a", state=state, reason="disk", actor="eve")
    world = kit.world({"a": 0.99}, nodes=(node, kit.node("idle")))
    world.run()
    assert world.acted_on == []
    assert world.cluster.read().by_name["a"] == node


def test_g10_a_persons_undrain_starts_a_cool_down(kit):
    world = kit.world({"a": 0.9})
    world.run()
    world.cluster.set_node("a", state="up", reason=None, actor=None)
    run = world.next_tick({"a": 0.9})
    assert run.judged[0].blocked_by[0].startswith("cooled_down: let go at")
    assert world.acted_on == ["a"]
    world.now += timedelta(hours=24)
    world.next_tick({"a": 0.9})
    assert world.acted_on == ["a", "a"]


def test_g10_a_node_taken_over_by_a_person_is_no_longer_ours(kit):
    world = kit.world({"a": 0.9})
    world.run()
    world.cluster.set_node("a", reason="disk", actor="eve")
    world.next_tick({"a": 0.9})
    (released,) = world.ledger.entries(kinds=("released",))
    assert released.body == {"why": "taken_over"}


@pytest.mark.parametrize(
    "changes", [{"state": "drain", "reason": "disk"}, {"boot_id": "boot-2"}, {"state": "down"}]
)
def test_g11_a_node_that_changed_since_it_was_read_is_not_touched(kit, changes):
    world = kit.world({"a": 0.9})
    seen = world.cluster.read()
    world.cluster.set_node("a", **changes)

    class Stale:
        def read(self):
            return seen

    class Careless(FakeActuator):
        def drain(self, order):
            self.orders.append(order)
            return Outcome(status="done")

    world.actuator = Careless(world.cluster)
    run = world.run(cluster=Stale())
    (outcome,) = run.outcomes.values()
    assert outcome.status == "not_done"
    assert world.acted_on == []


def test_g12_a_replaced_node_starts_clean(kit):
    world = kit.world({"a": 0.9}, site=kit.site(warning=Alerting(n=2, k=3)))
    world.run()
    world.cluster.set_node("a", boot_id="boot-2")
    world.next_tick({"a": 0.9})
    assert world.acted_on == []
    world.next_tick({"a": 0.9})
    assert world.acted_on == ["a"]


def test_g10_a_node_that_came_back_with_another_boot_was_returned_by_somebody(kit):
    world = kit.world({"a": 0.9})
    world.run()
    world.cluster.set_node("a", state="up", reason=None, actor=None, boot_id="boot-2")
    world.next_tick({"a": 0.9})
    assert world.acted_on == ["a"]
    world.now += timedelta(hours=world.site.undrain_cooldown_hours)
    world.next_tick({"a": 0.9})
    assert world.acted_on == ["a", "a"]


class Broken(FakeActuator):
    """Fails on node `a` in the given way, after or before it has acted."""

    error: Exception = RuntimeError("connection lost")

    def drain(self, order):
        if order.expected.name == "a":
            raise self.error
        return super().drain(order)


def test_g13_g15_an_unclear_result_stops_that_node_tells_and_does_not_starve_others(kit):
    world = kit.world({"a": 0.95, "b": 0.9})
    world.actuator = Broken(world.cluster)
    run = world.run()
    assert world.acted_on == ["b"]
    assert results(world) == ["ambiguous", "done"]
    assert run.messages == ("a: the result is unclear: RuntimeError: connection lost",)
    later = world.next_tick({"a": 0.95, "b": 0.9})
    by_node = {one.decision.node: one for one in later.judged}
    assert any(said.startswith("clear_record") for said in by_node["a"].blocked_by)


def test_g13_what_was_done_stays_done_where_nobody_can_look_after_it(kit):
    class Blind(FakeActuator):
        def state(self, node):
            if self.orders:
                raise DataError("a line of a newer release")
            return super().state(node)

    world = kit.world({"a": 0.95})
    world.actuator = Blind(world.cluster)
    world.run()
    assert results(world) == ["done"]


def test_g04_an_order_that_was_only_accepted_counts_as_held_for_an_hour(kit):
    class Accepts(FakeActuator):
        def drain(self, order):
            self.orders.append(order)
            return Outcome(status="done", detail="the receiver says accepted")

    site = kit.site(caps=Caps(held_most=1, held_percent=100, per_rack=None))
    world = kit.world({"a": 0.95, "b": 0.9}, site=site)
    world.actuator = Accepts(world.cluster)
    world.run()
    for _ in range(3):
        world.next_tick({"a": 0.95, "b": 0.9})
    assert (world.acted_on, world.ledger.entries(kinds=("released",))) == (["a"], ())
    world.next_tick({"a": 0.95, "b": 0.9})
    assert world.acted_on == ["a", "b"]


def test_a_second_try_is_numbered_for_who_remembers_orders(kit):
    class Refuses(FakeActuator):
        def drain(self, order):
            self.orders.append(order)
            return Outcome(status="not_done", detail="busy")

    world = kit.world({"a": 0.95})
    world.actuator = Refuses(world.cluster)
    world.run()
    world.run()
    assert [order.attempt for order in world.actuator.orders] == [1, 2]


def test_g13_an_unclear_node_that_is_up_is_not_taken_for_undrained(kit):
    world = kit.world({"a": 0.95})
    world.actuator = Broken(world.cluster)
    world.run()
    world.next_tick({"a": 0.95})
    assert world.ledger.entries(kinds=("released",)) == ()


def test_tries_that_surely_changed_nothing_do_not_use_up_the_rate(kit):
    site = kit.site(caps=Caps(held_percent=100, per_rack=None, actions_per_hour=1))
    world = kit.world({"a": 0.95, "b": 0.9}, site=site)
    world.actuator = Broken(world.cluster)
    world.actuator.error = DataError("refused")
    world.run()
    assert world.acted_on == ["b"]
    world.actuator = Broken(world.cluster)
    world.actuator.error = DataError("refused")
    world.now += timedelta(minutes=50)
    world.next_tick({"a": 0.95})
    world.actuator = FakeActuator(world.cluster)
    world.next_tick({"a": 0.95})
    assert world.acted_on == ["a"]


def test_g13_what_a_person_has_looked_at_may_be_tried_again(kit):
    world = kit.world({"a": 0.95})
    world.actuator = Broken(world.cluster)
    world.run()
    (escalation,) = world.ledger.entries(kinds=("escalation",))
    acknowledge(world.ledger, escalation.key, actor="eve", at=world.now)
    world.actuator = FakeActuator(world.cluster)
    world.next_tick({"a": 0.95})
    assert world.acted_on == ["a"]


def test_a_refused_order_is_surely_not_done(kit):
    world = kit.world({"a": 0.95})
    world.actuator = Broken(world.cluster)
    world.actuator.error = DataError("refused")
    world.run()
    assert results(world) == ["not_done"]


def test_g19_after_its_tries_a_node_goes_to_a_person(kit):
    world = kit.world({"a": 0.95})
    world.actuator = Broken(world.cluster)
    world.actuator.error = DataError("refused")
    for _ in range(5):
        run = world.next_tick({"a": 0.95})
    assert results(world) == ["not_done"] * 3
    assert run.messages == ("attempts_left held back a",)


def test_g13_a_ledger_that_fails_stops_the_run_before_the_act(kit):
    world = kit.world({"a": 0.9})
    append = world.ledger.append

    def full(new):
        if new.kind == "intent":
            raise LedgerError("disk full")
        return append(new)

    world.ledger.append = full
    with pytest.raises(LedgerError, match="disk full"):
        world.run()
    assert world.acted_on == []


def test_g13_an_intent_that_another_run_wrote_is_left_to_that_run(kit):
    world = kit.world({"a": 0.9})
    append = world.ledger.append

    def late(new):
        if new.kind == "intent":
            append(new)
        return append(new)

    world.ledger.append = late
    (outcome,) = world.run().outcomes.values()
    assert (outcome.status, outcome.detail) == ("not_done", "another run is doing it")
    assert world.acted_on == []


def test_g20_the_audit_holds_score_model_verdicts_actor_before_and_after(kit):
    world = kit.world({"a": 0.9})
    world.run()
    entries = {entry.kind: entry for entry in world.ledger.entries()}
    assert entries["decision"].body["score"] == 0.9
    assert entries["decision"].body["model_version"] == "17"
    assert len(entries["decision"].body["verdicts"]) == 24
    assert entries["intent"].actor == "forewarn"
    assert entries["intent"].body["before"]["state"] == "up"
    assert entries["result"].body["after"]["state"] == "drain"


def test_g20_a_ledger_that_was_tampered_with_stops_the_hook(kit):
    world = kit.world({"a": 0.1})
    world.run()
    world.ledger._entries[0] = world.ledger._entries[0].__class__(
        **{**vars(world.ledger._entries[0]), "actor": "nobody"}
    )
    with pytest.raises(LedgerError, match="was altered"):
        world.run()


def test_g22_the_kill_switch_file_stops_every_action(kit, tmp_path):
    stop = tmp_path / "stop"
    world = kit.world({"a": 0.9}, site=kit.site(kill_switch=stop))
    stop.touch()
    assert world.run().outcomes == {}
    stop.unlink()
    assert len(world.run().outcomes) == 1


def test_g22_a_kill_switch_in_an_absent_folder_counts_as_set(kit, tmp_path):
    world = kit.world({"a": 0.9}, site=kit.site(kill_switch=tmp_path / "gone" / "stop"))
    assert world.run().outcomes == {}


def test_g22_the_kill_switch_works_in_the_middle_of_a_run(kit, tmp_path):
    stop = tmp_path / "stop"
    world = kit.world({"a": 0.9, "b": 0.9}, site=kit.site(kill_switch=stop))

    class Pulls(FakeActuator):
        def drain(self, order):
            stop.touch()
            return super().drain(order)

    world.actuator = Pulls(world.cluster)
    world.run()
    assert len(world.acted_on) == 1


def test_g25_jobs_are_interrupted_only_if_they_may_be_requeued(kit):
    site = kit.site(levels=(LevelRule(level="notify_then_drain"),))
    actions = {}
    for may in (True, False, None):
        job = JobView(job_id="7", nodes=("a",), n_gpus=8, remaining_h=20, is_requeue_allowed=may)
        world = kit.world({"a": 0.99}, jobs=(job,), site=site)
        actions[may] = world.run().judged[0].decision.wanted
    assert actions[True] == "checkpoint_then_drain"
    assert actions[False] not in ("checkpoint_then_drain", "drain_now")
    assert actions[None] == actions[False]


def test_g27_the_sentence_names_what_was_assumed(kit):
    job = JobView(job_id="7", nodes=("a",), n_gpus=8)
    sentence = kit.world({"a": 0.9}, jobs=(job,)).run().judged[0].decision.sentence
    assert "assumed: checkpoint 30 min old, 12 h until its jobs end" in sentence


@pytest.mark.parametrize("changes", [{"trained_on": "synthetic"}, {"status": "prior"}])
def test_g28_synthetic_and_prior_scores_act_in_simulation_only(kit, changes):
    world = kit.world({"a": 0.99}, **changes)
    world.run()
    assert world.acted_on == []
    world.run(is_simulation=True)
    assert world.acted_on == ["a"]


def test_ranked_by_expected_saving_not_by_score(kit):
    job = JobView(
        job_id="7", nodes=("b", "idle"), n_gpus=4096, remaining_h=24, is_requeue_allowed=True
    )
    run = kit.world({"a": 0.8, "b": 0.7}, jobs=(job,)).run()
    assert [one.decision.node for one in run.judged][:2] == ["b", "a"]


def test_an_outcome_that_came_to_nothing_does_not_count_as_held(kit):
    world = kit.world({"a": 0.95, "b": 0.9}, site=kit.site(caps=Caps(held_most=1)))

    class Refuses(FakeActuator):
        def drain(self, order):
            if order.expected.name == "a":
                return Outcome(status="not_done", detail="busy")
            return super().drain(order)

    world.actuator = Refuses(world.cluster)
    world.run()
    assert world.acted_on == ["b"]


def test_the_hook_loads_no_model_library_and_no_orchestrator():
    code = (
        "import sys, remediation.hook, remediation.plan, remediation.ledger.sqlite;"
        "print(sorted({'mlflow', 'lightgbm', 'dagster', 'pandas', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_clock_that_was_ahead_stops_nothing_once_a_person_has_said_so(kit):
    world = kit.world({"a": 0.9})
    now = world.now
    world.now = now + timedelta(days=365)
    world.next_tick({"a": 0.1})
    world.now = now
    assert any("the clock shows" in text for text in world.next_tick({"a": 0.9}).messages)
    assert world.acted_on == []
    (key,) = {
        e.key for e in world.ledger.entries(kinds=("escalation",)) if e.body["why"] == "clock"
    }
    acknowledge(world.ledger, key, actor="eve", at=world.now)
    world.next_tick({"a": 0.9})
    assert world.acted_on == ["a"]


def test_a_stuck_drain_is_told_also_while_action_is_stopped(kit):
    job = JobView(job_id="7", nodes=("a",), n_gpus=8, remaining_h=0.2, is_requeue_allowed=False)
    site = kit.site(drains=Drains(longest_hours=1))
    world = kit.world({"a": 0.99}, nodes=(kit.node("a"), kit.node("b")), jobs=(job,), site=site)
    world.run()
    world.site = world.site.model_copy(update={"is_stopped": True})
    world.now += timedelta(hours=2)
    assert any("stuck" in text for text in world.next_tick({"a": 0.1}).messages)
