"""A request counts only if it is exactly what a known person signed, for this boot and moment."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from remediation.signed_requests import (
    MOST_BYTES,
    NEEDS,
    Open,
    Present,
    RefusedError,
    Request,
    RequestKey,
    check_request,
    check_signature,
    decode,
    encode,
)

NOW = datetime(2026, 1, 5, 10, tzinfo=UTC)
KEY = RequestKey(b"k" * 32)
KEYS = {"board": KEY}
ABOUT = {
    "node": "gpu-1",
    "decision_id": "0" * 16,
    "escalation": "escalation:intent:fake:1",
    "until": NOW + timedelta(hours=4),
}


def request(what: str = "hold", **changes: object) -> Request:
    values = {name: ABOUT[name] for name in NEEDS[what]}
    values |= {"boot_id": "boot-1"} if "node" in values else {}
    values |= {"actor": "alice", "nonce": "a" * 32, "key_id": "board"}
    values |= {"created": NOW, "expires": NOW + timedelta(hours=1)}
    return Request(what=what, **(values | changes))  # type: ignore[arg-type]


def present(**changes: object) -> Present:
    decision = Open(
        node="gpu-1",
        boot_id="boot-1",
        wanted="cordon",
        expires_at=NOW + timedelta(minutes=30),
        level="recommend",
    )
    values = {
        "now": NOW,
        "actors": {"alice": ("*",), "bob": ("acknowledge",)},
        "boots": {"gpu-1": "boot-1"},
        "open_decision": {"0" * 16: decision}.get,
        "escalations": frozenset({ABOUT["escalation"]}),
    }
    return Present(**(values | changes))  # type: ignore[arg-type]


def rule_of(content: bytes, keys=KEYS) -> str | None:
    try:
        check_signature(decode(content), keys)
    except RefusedError as refused:
        return refused.rule
    return None


@pytest.mark.parametrize("what", NEEDS)
def test_g26_each_request_reads_back_as_it_was_signed_and_holds(what):
    signed = decode(encode(request(what), KEY))
    assert signed.request == request(what)
    check_signature(signed, KEYS)
    check_request(signed.request, present())


@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_g26_any_changed_byte_is_refused(place, value):
    content = bytearray(encode(request(), KEY))
    place %= len(content)
    is_same = content[place] == value
    content[place] = value
    assert (rule_of(bytes(content)) is None) == is_same


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) |
    st.dictionaries(st.sampled_from([*Request.__dataclass_fields__, "signature"]), inner)
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_g26_whatever_lies_in_the_inbox_is_refused_by_rule_and_nothing_else_happens(content):
    assert rule_of(content) is not None


@given(st.sampled_from([*Request.__dataclass_fields__, "signature"]), st.none() | st.booleans() |
       st.integers() | st.floats() | st.text() | st.lists(st.none(), max_size=2))  # fmt: skip
def test_g26_any_other_value_of_any_field_is_refused(name, value):
    values = json.loads(encode(request(), KEY))
    is_same = values[name] == value and type(values[name]) is type(value)
    content = json.dumps({**values, name: value}, sort_keys=True, separators=(",", ":")).encode()
    assert (rule_of(content) is None) == is_same


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "not_json"),
        (b"\x00\xff" * 50, "not_json"),
        (b"[" * MOST_BYTES, "not_json"),
        (b"9" * 5000, "not_json"),
        (b"{}", "fields"),
        (b"[]", "fields"),
        (b" " * (MOST_BYTES + 1), "too_large"),
        (encode(request(), KEY)[:-5], "not_json"),
        (encode(request(), KEY) + b"\n", "not_canonical"),
        (encode(request(), KEY).replace(b'{"actor"', b'{"actor":"eve","actor"'), "not_canonical"),
        (encode(request(), RequestKey(b"x" * 32)), "signature"),
        (encode(request(key_id="old"), KEY), "signature"),
    ],
)
def test_g26_what_is_no_signed_request_names_the_rule(content, rule):
    assert rule_of(content) == rule


@pytest.mark.parametrize(
    "changes",
    [
        {"node": "gpu[1-99]"},
        {"node": "../gpu-1"},
        {"node": "--all"},
        {"node": None},
        {"actor": "alice\n"},
        {"nonce": "../../../etc/passwd"},
        {"nonce": "A" * 32},
        {"boot_id": ""},
        {"decision_id": "0" * 16},
        {"until": None},
        {"created": datetime(2026, 1, 5)},  # noqa: DTZ001 - the missing zone is the point
        {"what": "reboot"},
    ],
)
def test_g26_no_request_can_be_made_of_other_forms(changes):
    with pytest.raises(RefusedError):
        replace(request(), **changes)


@pytest.mark.parametrize(
    ("asked", "changes", "rule"),
    [
        (request(actor="eve"), {}, "actor"),
        (request(actor="bob"), {}, "actor"),
        (request(), {"now": NOW + timedelta(hours=1)}, "expired"),
        (request(expires=NOW + timedelta(days=2)), {}, "expiry"),
        (request(expires=NOW), {}, "expiry"),
        (request(created=NOW + timedelta(minutes=6)), {}, "not_yet"),
        (request(boot_id=None), {}, "boot"),
        (request(), {"boots": {"gpu-1": "boot-2"}}, "boot"),
        (request(), {"boots": {"gpu-1": None}}, "boot"),
        (request(), {"boots": {}}, "node"),
        (request("approve"), {"open_decision": lambda _: None}, "decision"),
        (request("approve", node="gpu-2"), {"boots": {"gpu-2": "boot-1"}}, "decision"),
        (request("approve"), {"now": NOW + timedelta(minutes=30)}, "scores_expired"),
        (request("acknowledge"), {"escalations": frozenset()}, "escalation"),
    ],
)
def test_g26_what_does_not_hold_at_present_names_the_rule(asked, changes, rule):
    with pytest.raises(RefusedError) as refused:
        check_request(asked, present(**changes))
    assert refused.value.rule == rule


@pytest.mark.parametrize("level", ["observe", "cordon", "drain_after_jobs"])
def test_g26_only_a_recommendation_can_be_approved(level):
    found = replace(present().open_decision("0" * 16), level=level)
    with pytest.raises(RefusedError, match="level"):
        check_request(request("approve"), present(open_decision=lambda _: found))


def test_g22_a_stop_counts_also_late_but_not_by_strangers():
    late = present(now=NOW + timedelta(days=3))
    check_request(request("kill"), late)
    with pytest.raises(RefusedError, match="expired"):
        check_request(request("unkill"), late)
    with pytest.raises(RefusedError, match="actor"):
        check_request(request("kill", actor="eve"), late)


def test_g26_keys_are_exchanged_without_a_gap():
    new = RequestKey(b"n" * 32)
    both = {"board": KEY, "board2": new}
    by_new = encode(request(key_id="board2"), new)
    assert [rule_of(encode(request(), KEY), both), rule_of(by_new, both)] == [None, None]
    assert rule_of(encode(request(), KEY), {"board2": new}) == "signature"


def test_g26_a_key_speaks_only_for_its_people():
    keys = {"board": RequestKey(KEY.secret, actors=("bob",))}
    assert rule_of(encode(request(), KEY), keys) == "actor"
    assert rule_of(encode(request(actor="bob"), KEY), keys) is None


def test_g23_a_key_is_long_and_shown_nowhere():
    with pytest.raises(SettingsError, match="31 bytes"):
        RequestKey(b"k" * 31)
    assert "kkk" not in repr(KEY)
