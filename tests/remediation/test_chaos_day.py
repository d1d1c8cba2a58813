"""A day of 25,000 nodes on which everything goes wrong: the state machine's invariants hold.

What happens is in `machine_day`.
"""

import pytest

from tests.remediation.machine_day import ROLLBACK_AT, ROLLOUT_AT, TICKS, live, make_day, summary


def check_day(day) -> None:
    said = summary(day)
    caps = day.machine.site.caps
    assert max(day.held) <= caps.held_most, said
    assert not day.rolled_out & {
        one.node
        for one in day.machine.watcher.orders
        if ROLLOUT_AT <= (one.true_time - day.start).total_seconds() / 900 - 1 < ROLLBACK_AT
    }, said
    assert day.told["common cause"] > 0, said
    scopes = {
        one.body["scope"] for one in day.machine.book(("escalation",)) if one.body["why"] == "burst"
    }
    assert "driver 560" in scopes, said
    assert "fleet" not in scopes, said
    handled = set(day.acted_on) & set(day.true_failures)
    assert len(handled) >= min(caps.held_most, len(day.true_failures)) // 2, said


def test_a_small_cluster_lives_through_a_bad_morning():
    day = make_day(800, n_rollout=96, seed=3)
    live(day, ticks=ROLLOUT_AT + 6, seed=3)
    check_day(day)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3])
def test_25_000_nodes_live_through_a_bad_day(seed):
    day = make_day(25_000, n_rollout=3_000, seed=seed)
    live(day, ticks=TICKS, seed=seed)
    check_day(day)
