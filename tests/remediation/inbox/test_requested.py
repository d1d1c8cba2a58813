"""What people asked for counts as they meant it, in whatever order it came."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediation.cluster.state import ClusterState, NodeView
from remediation.inbox.requested import (
    LeftAlone,
    Requested,
    Wish,
    present_of,
    request_entry,
    requested_of,
)
from remediation.ledger.entries import Entry, MemoryLedger, NewEntry
from remediation.signed_requests import (
    LONGEST_LIFE,
    Open,
    Present,
    RefusedError,
    Request,
    RequestKey,
    decode,
    encode,
)
from remediation.site import LevelRule, Site

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DECISION = Open(
    node="a", boot_id="boot-1", wanted="cordon", expires_at=NOW + 30 * MINUTE, level="recommend"
)


class People:
    """Asks for things and reads what counts."""

    def __init__(self, actuator: str = "fake") -> None:
        self.ledger = MemoryLedger()
        self.actuator = actuator
        self.n = 0

    def ask(self, what: str, *, at: datetime = NOW, taken: datetime = NOW, **more: object) -> None:
        self.n += 1
        about: dict[str, object] = {"node": "a", "boot_id": "boot-1"}
        about = {} if what in ("kill", "unkill") else about
        about |= {"decision_id": "0" * 16} if what == "approve" else {}
        values = {"actor": "alice", "key_id": "k", "nonce": f"{self.n:032x}"} | about | more
        asked = Request(what=what, created=at, expires=at + LONGEST_LIFE, **values)  # type: ignore[arg-type]
        present = Present(
            now=taken,
            actors={},
            boots={},
            open_decision=lambda _: DECISION,
            escalations=frozenset(),
        )
        signed = decode(encode(asked, RequestKey(b"k" * 32)))
        refused = RefusedError("expired", "late") if more.get("actor") == "refused" else None
        entry = request_entry(signed, actuator=self.actuator, present=present, refused=refused)
        self.ledger.append(entry)

    def act(self, status: str | None, *, at: datetime = NOW) -> None:
        self.n += 1
        about = {"recorded_at": at, "actuator": self.actuator, "node": "a"}
        self.ledger.append(NewEntry(key=f"i{self.n}", kind="intent", **about))
        if status is not None:
            body = {"status": status}
            self.ledger.append(
                NewEntry(
                    key=f"r{self.n}", kind="result", refers_to=f"i{self.n}", body=body, **about
                )
            )

    def counts(self) -> Requested:
        return requested_of(self.ledger.entries(), actuator="fake")


@pytest.fixture
def people():
    return People()


def test_g26_an_approval_holds_for_its_boot_until_the_scores_expire(people):
    people.ask("approve")
    counts = people.counts()
    found = counts.approval("a", "boot-1", NOW + 29 * MINUTE)
    assert found is not None
    assert (found.wanted, found.actor, found.decision_id) == ("cordon", "alice", "0" * 16)
    assert counts.approval("a", "boot-1", NOW + 30 * MINUTE) is None
    assert counts.approval("a", "boot-2", NOW) is None
    assert counts.approval("a", None, NOW) is None
    assert counts.approval("b", "boot-1", NOW) is None


@pytest.mark.parametrize(
    ("status", "is_left"),
    [("done", False), ("would_do", False), ("ambiguous", False), (None, False), ("not_done", True)],
)
def test_g26_an_approval_is_spent_by_whatever_may_have_been_done(people, status, is_left):
    people.ask("approve", taken=NOW)
    people.act(status, at=NOW + MINUTE)
    assert ("a" in people.counts().approvals) == is_left


def test_g26_a_clock_that_went_back_lets_no_approval_count_twice(people):
    people.ask("approve", taken=NOW)
    people.act("done", at=NOW - 60 * MINUTE)
    assert "a" not in people.counts().approvals


def test_g26_a_new_approval_after_an_act_counts(people):
    people.act("done", at=NOW)
    people.ask("approve", at=NOW + MINUTE, taken=NOW + MINUTE)
    assert "a" in people.counts().approvals


def test_g26_what_was_refused_does_not_count(people):
    for what in ("approve", "undrain", "repaired", "kill"):
        people.ask(what, actor="refused")
    people.ask("hold", actor="refused", until=NOW + MINUTE)
    assert people.counts() == Requested()


def test_g26_requests_to_another_hook_do_not_count_but_its_stop_does():
    people = People(actuator="other")
    people.ask("approve")
    people.ask("kill")
    counts = people.counts()
    assert counts.approvals == {}
    assert counts.stopped_by == "stopped by alice at 2026-01-05 10:00 UTC"


def test_g22_a_node_is_left_alone_as_last_asked(people):
    people.ask("hold", at=NOW, until=NOW + 60 * MINUTE)
    assert people.counts().held_back("a", NOW) == LeftAlone(actor="alice", until=NOW + 60 * MINUTE)
    people.ask("hold", at=NOW + MINUTE, taken=NOW + MINUTE, until=NOW + 2 * MINUTE)
    assert people.counts().held_back("a", NOW + 3 * MINUTE) is None


@pytest.mark.parametrize("last", ["repaired", "false_alarm"])
def test_g24_the_last_finding_and_the_last_wish_count(people, last):
    people.ask("undrain")
    for minute, what in enumerate(["repaired", "false_alarm", last]):
        at = NOW + minute * MINUTE
        people.ask(what, at=at, taken=NOW + 9 * MINUTE, boot_id=f"boot-{minute}")
    counts = people.counts()
    found = counts.causes["a"]
    assert (found.verdict, found.at, found.boot_id) == (last, NOW + 2 * MINUTE, "boot-2")
    assert counts.undrains["a"] == Wish(actor="alice", at=NOW, boot_id="boot-1")


asked = st.lists(
    st.tuples(
        st.sampled_from(["kill", "unkill", "repaired", "false_alarm", "undrain"]),
        st.integers(0, 20),
    ),
    max_size=6,
    unique_by=lambda one: one[1],
)


@given(asked, st.randoms(use_true_random=False))
def test_g26_the_order_in_which_requests_come_does_not_matter(requests, random):
    found = []
    for _ in range(2):
        people = People()
        for what, minute in requests:
            people.ask(what, at=NOW + minute * MINUTE, taken=NOW + 60 * MINUTE)
        found.append(people.counts())
        random.shuffle(requests)
    assert found[0] == found[1]


@given(asked)
def test_g22_automation_is_stopped_exactly_while_the_last_word_is_a_stop(requests):
    people = People()
    for what, minute in requests:
        people.ask(what, at=NOW + minute * MINUTE, taken=NOW + 60 * MINUTE)
    words = sorted(((m, w) for w, m in requests if w in ("kill", "unkill")))
    assert (people.counts().stopped_by is not None) == (bool(words) and words[-1][1] == "kill")


def test_g22_a_stop_wins_a_tie_and_a_clock_ahead_does_not_outlast(people):
    people.ask("unkill")
    people.ask("kill")
    people.ask("unkill")
    assert people.counts().stopped_by is not None
    people.ask("kill", at=NOW + timedelta(days=400), taken=NOW + MINUTE)
    people.ask("unkill", at=NOW + 2 * MINUTE, taken=NOW + 2 * MINUTE)
    assert people.counts().stopped_by is None


def decided(
    ledger: MemoryLedger,
    key: str,
    *,
    actuator: str = "fake",
    decision_id: str = "0" * 16,
    **changes: object,
) -> None:
    body = {"wanted": "cordon", "fault_type": "nvlink", "boot_id": "boot-1"}
    body["expires_at"] = (NOW + 30 * MINUTE).isoformat()
    values = {"recorded_at": NOW, "actuator": actuator, "node": "a", "decision_id": decision_id}
    ledger.append(NewEntry(key=key, kind="decision", **(values | {"body": body | changes})))


def present(ledger: MemoryLedger, site: Site) -> Present:
    state = ClusterState(as_of=NOW, nodes=(NodeView(name="a", state="up", boot_id="boot-1"),))
    actors = {"alice": ("*",)}
    return present_of(ledger, state, actuator="fake", actors=actors, site=site, now=NOW)


def test_g26_a_decision_is_found_as_last_written_with_the_level_of_now():
    ledger = MemoryLedger()
    decided(ledger, "d1", wanted="watch")
    decided(ledger, "d2")
    site = Site(levels=(LevelRule(fault_type="nvlink", level="recommend"),))
    assert present(ledger, site).open_decision("0" * 16) == DECISION
    assert present(ledger, Site()).open_decision("0" * 16).level == "observe"
    assert present(ledger, site).open_decision("1" * 16) is None
    decided(ledger, "d0", actuator="other", decision_id="3" * 16)
    assert present(ledger, site).open_decision("3" * 16) is None
    without_end = {"recorded_at": NOW, "actuator": "fake", "node": "a", "decision_id": "2" * 16}
    ledger.append(NewEntry(key="d3", kind="decision", body={"wanted": "cordon"}, **without_end))
    assert present(ledger, site).open_decision("2" * 16) is None
    assert present(ledger, site).boots == {"a": "boot-1"}


def test_g26_a_requests_entry_keeps_who_asked_what_and_the_signature(people):
    people.ask("repaired")
    (kept,) = people.ledger.entries()
    assert isinstance(kept, Entry)
    assert (kept.kind, kept.actor, kept.node) == ("request", "alice", "a")
    assert {"signature", "digest", "key_id", "created", "expires"} <= set(kept.body)
