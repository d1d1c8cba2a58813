"""Of several hooks one may act, whatever pauses, crashes and clocks do."""

import itertools
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from features.errors import SettingsError
from remediation.lease.leadership import (
    Instant,
    Leadership,
    LeaseError,
    LeaseStore,
    MemoryLease,
    forward_clock,
)
from remediation.lease.sqlite import SqliteLease

SECONDS = 10.0
ACT_SECONDS = 4.0


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Machine:
    """A machine's clock: it starts at any number and runs with true time."""

    boot: str = "boot-1"
    offset: float = 0.0
    true: list[float] = field(default_factory=lambda: [0.0])

    def __call__(self) -> Instant:
        return Instant(self.boot, self.true[0] + self.offset)

    def wait(self, seconds: float) -> None:
        self.true[0] += seconds


def hook(store: LeaseStore, clock: Machine, name: str = "a") -> Leadership:
    return Leadership(store, holder=name, clock=clock, seconds=SECONDS, act_seconds=ACT_SECONDS)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return MemoryLease() if request.param == "memory" else SqliteLease(tmp_path / "new" / "l.db")


def test_one_has_the_lease_and_the_others_wait_until_it_ends(store):
    clock = Machine()
    a, b = hook(store, clock, "a"), hook(store, clock, "b")
    assert (a.take(), b.take()) == (True, False)
    assert a.fence() is None
    assert "another hook has the lease" in str(b.fence())
    clock.wait(SECONDS)
    assert b.take()
    assert "ended" in str(a.fence())
    assert (a.token, b.token) == (None, 2)


def test_who_renews_keeps_it_under_the_same_token(store):
    clock = Machine()
    a, b = hook(store, clock, "a"), hook(store, clock, "b")
    a.take()
    for _ in range(5):
        clock.wait(SECONDS - 1)
        assert (a.take(), b.take(), a.token) == (True, False, 1)


def test_the_fence_renews_so_that_an_act_always_has_its_time(store):
    clock = Machine()
    a, b = hook(store, clock, "a"), hook(store, clock, "b")
    a.take()
    for _ in range(20):
        clock.wait(SECONDS / 3)
        assert a.fence() is None
        clock.wait(ACT_SECONDS)
        assert not b.take()
        clock.wait(-ACT_SECONDS)


def test_who_wakes_after_the_end_may_not_act_even_if_nobody_took_it(store):
    clock = Machine()
    a = hook(store, clock)
    a.take()
    clock.wait(SECONDS)
    assert a.fence() is not None
    assert a.fence() is not None
    assert a.take()
    assert (a.fence(), a.token) == (None, 2)


def test_a_renewal_that_took_too_long_leaves_no_time_to_act(store):
    clock = Machine()

    class Slow(DyingStore):
        def change(self, change):
            new = super().change(change)
            clock.wait(SECONDS - ACT_SECONDS + 1)
            return new

    a = hook(Slow(store), clock)
    assert a.take()
    assert a.fence() is not None


def test_a_lease_given_back_is_free_at_once_also_for_another_machine(store):
    a, b = hook(store, Machine(), "a"), hook(store, Machine(boot="boot-2", offset=-99), "b")
    a.take()
    a.release()
    assert a.fence() is not None
    assert b.take()
    a.release()
    assert b.fence() is None


def test_another_machine_takes_over_only_after_watching_for_the_whole_time(store):
    ours = Machine()
    other = Machine(boot="boot-2", offset=1e6, true=ours.true)
    a, b = hook(store, ours, "a"), hook(store, other, "b")
    a.take()
    assert not b.take()
    ours.wait(SECONDS - 1)
    assert not b.take()
    a.take()
    ours.wait(SECONDS - 1)
    assert not b.take()
    ours.wait(SECONDS - 1)
    assert not b.take()
    ours.wait(1)
    assert b.take()
    assert a.fence() is not None


def test_a_namesake_of_an_earlier_process_does_not_inherit_its_lease(store):
    clock = Machine()
    hook(store, clock).take()
    again = hook(store, clock)
    assert not again.take()
    clock.wait(SECONDS)
    assert again.take()
    assert again.token == 2


def test_of_two_by_one_name_the_later_token_counts(store):
    clock = Machine()
    a, b = hook(store, clock), hook(store, clock)
    a.take()
    clock.wait(SECONDS)
    assert b.take()
    assert "ended" in str(a.fence())
    assert b.fence() is None


@pytest.mark.parametrize("act_seconds", [0.0, SECONDS / 2 + 0.1])
def test_acts_that_could_outlast_the_lease_are_refused(act_seconds):
    with pytest.raises(SettingsError, match="at least twice"):
        Leadership(
            MemoryLease(), holder="a", clock=Machine(), seconds=SECONDS, act_seconds=act_seconds
        )


def test_who_cannot_read_the_lease_may_not_act(tmp_path):
    a = hook(SqliteLease(tmp_path / "l.db"), Machine())
    a.take()
    (tmp_path / "l.db").write_bytes(b"no database " * 100)
    assert "Without its lease the hook does nothing" in str(a.fence())
    with pytest.raises(LeaseError):
        a.take()


def test_a_crash_within_a_change_leaves_the_lease_as_it_was_and_unlocked(tmp_path):
    store = SqliteLease(tmp_path / "l.db")
    a = hook(store, Machine())
    a.take()
    before = store.read()

    def dies(_):
        raise Crash

    with pytest.raises(Crash):
        store.change(dies)
    assert store.read() == before
    assert a.take()


def test_a_change_is_alone(tmp_path, monkeypatch):
    store = SqliteLease(tmp_path / "l.db")
    monkeypatch.setattr("remediation.lease.sqlite._BUSY_SECONDS", 0.05)

    def meddles(old):
        with pytest.raises(LeaseError, match="locked"):
            store.change(lambda found: found)
        return old

    store.change(meddles)


RACER = """
import sys
from pathlib import Path
from remediation.lease.leadership import Leadership, forward_clock
from remediation.lease.sqlite import SqliteLease

store = SqliteLease(Path(sys.argv[1]))
one = Leadership(store, holder=sys.argv[2], clock=forward_clock(), seconds=600, act_seconds=60)
print("ready", flush=True)
sys.stdin.readline()
print("won" if one.take() and one.fence() is None else "lost", flush=True)
"""


def test_of_processes_that_start_at_once_one_gets_it(tmp_path):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, tmp_path / "l.db", f"hook-{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for one in racers:
        assert one.stdout.readline() == "ready\n"
    for one in racers:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [one.communicate()[0] for one in racers]
    assert sorted(said) == ["lost\n"] * 3 + ["won\n"]


def test_the_clock_of_a_machine_runs_forward_and_is_shared():
    one, two = forward_clock(), forward_clock()
    assert one().boot == two().boot
    assert one().seconds <= two().seconds <= one().seconds


def test_tokens_survive_the_file_being_closed(tmp_path):
    hook(SqliteLease(tmp_path / "l.db"), Machine()).take()
    with sqlite3.connect(tmp_path / "l.db") as other:
        assert other.execute("SELECT token FROM lease").fetchone() == (1,)
    other.close()


class DyingStore:
    """A store whose process may die just after it wrote, before it knows."""

    def __init__(self, inner: LeaseStore) -> None:
        self.inner, self.dies = inner, False

    def read(self):
        return self.inner.read()

    def change(self, change):
        new = self.inner.change(change)
        if self.dies:
            self.dies = False
            raise Crash
        return new


@dataclass
class Process:
    """One hook: it is paused whenever the machine chooses others."""

    machine: Machine
    store: DyingStore
    leader: Leadership
    acting_until: float = -1.0
    token: int = 0


TROUBLES = (
    "gives_back",
    "crashes",
    "crashes_as_it_takes",
    "machine_restarts",
    "everybody_looks",
)


class Hooks(RuleBasedStateMachine):
    """Three hooks on two machines; each act takes its whole allowance."""

    def __init__(self) -> None:
        super().__init__()
        self.true = [0.0]
        self.greatest = 0
        self.n_started = 0

    @initialize(offsets=st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)))
    def start_all(self, offsets):
        self.lease = MemoryLease()
        first = Machine("boot-1", offsets[0], self.true)
        second = Machine("boot-2", offsets[1], self.true)
        self.processes = [self.process(one) for one in (first, first, second)]

    def process(self, machine: Machine) -> Process:
        self.n_started += 1
        store = DyingStore(self.lease)
        return Process(machine, store, hook(store, machine, f"hook-{self.n_started}"))

    @rule(seconds=st.sampled_from([0.5, 2.0, 3.0, 8.0, 10.0, 25.0]))
    def time_passes(self, seconds):
        self.true[0] += seconds

    @rule(which=st.integers(0, 2), is_new_round=st.booleans())
    def acts(self, which, is_new_round):
        one = self.processes[which]
        if is_new_round:
            one.leader.take()
        token = one.leader.token
        if one.leader.fence() is not None or one.acting_until > self.true[0]:
            return
        assert token is not None
        assert token >= self.greatest
        assert all(
            other is one or other.acting_until <= self.true[0] for other in self.processes
        ), "two act at once"
        assert token > self.greatest or one.token == token, "two acted with one token"
        self.greatest = one.token = token
        one.acting_until = self.true[0] + ACT_SECONDS

    @rule(what=st.sampled_from(TROUBLES), which=st.integers(0, 2))
    def trouble(self, what, which):
        getattr(self, what)(self.processes[which], which)

    def gives_back(self, one, _):
        if one.acting_until <= self.true[0]:
            one.leader.release()

    def crashes(self, one, which):
        """Its act goes on, for the commands it started may, within the same time."""
        self.processes[which] = self.process(one.machine)
        self.processes[which].acting_until = one.acting_until

    def crashes_as_it_takes(self, one, which):
        one.store.dies = True
        with pytest.raises(Crash):
            one.leader.take()
        self.crashes(one, which)

    def machine_restarts(self, one, _):
        boot = one.machine.boot
        new = Machine(f"{boot}'", 0.0, self.true)
        for place, other in enumerate(self.processes):
            if other.machine.boot == boot:
                self.processes[place] = self.process(new)

    def everybody_looks(self, *_):
        may = [one for one in self.processes if one.leader.fence() is None]
        assert len(may) <= 1

    @invariant()
    def the_token_never_goes_back(self):
        lease = self.lease.read() if hasattr(self, "lease") else None
        assert lease is None or lease.token >= self.greatest


TestHooks = Hooks.TestCase

STEPS = (
    *(("acts", which, is_new) for which in (0, 1) for is_new in (True, False)),
    *(("time_passes", seconds) for seconds in (2.0, 8.0)),
    ("trouble", "gives_back", 0),
    ("trouble", "crashes", 0),
)


@pytest.mark.parametrize("which", [1, 2])
def test_no_history_of_five_steps_lets_two_act_at_once(which):
    """Every one of them, for chance rarely meets the few that lie at the end of a lease."""
    for history in itertools.product(STEPS, repeat=5):
        hooks = Hooks()
        hooks.start_all((0.0, 5.0))
        hooks.processes = [hooks.processes[0], hooks.processes[which]]
        for name, *arguments in history:
            getattr(hooks, name)(*arguments)


def test_someone_always_gets_it_in_the_end(store):
    true = [0.0]
    machines = [Machine("boot-1", 5.0, true), Machine("boot-2", -5.0, true)]
    hook(store, replace(machines[0], boot="boot-0"), "dead").take()
    living = [hook(store, one, one.boot) for one in machines]
    for _ in range(30):
        true[0] += 0.5
        if sum([one.take() for one in living]):
            break
    assert sum(one.fence() is None for one in living) == 1
