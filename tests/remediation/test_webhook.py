import http.server
import json
import threading
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError, SourceError
from remediation.actuators.exchange import Answer, NoAnswerError, Patience, Waits
from remediation.actuators.protocol import Actuator, Order, carry_out
from remediation.actuators.webhook import Tries, WebhookActuator, outcome_of, poster
from remediation.actuators.webhook_body import HEALTH_EVENT, ORDER, check_template, values_of
from remediation.actuators.webhook_signature import (
    SignatureError,
    SigningKey,
    key_from,
    verify,
)
from remediation.cluster.state import ClusterState, FakeCluster, JobView, NodeView
from tests.remediation.kubernetes_fake import START, reason

KEY = SigningKey(b"k" * 32)
OTHER = SigningKey(b"o" * 32)
NODE = NodeView(name="n1", state="up", boot_id="b1", rack="r1")
HELD = NodeView(name="n1", state="drain", boot_id="b1", reason=str(reason()))
ID = "aaaaaaaaaaaaaaaa-drain-1"


@dataclass
class Receiver:
    """A site's automation: checks, remembers, acts once per idempotency key."""

    says: list = field(default_factory=list)
    acted: list = field(default_factory=list)
    bodies: list = field(default_factory=list)
    headers: list = field(default_factory=list)
    known: dict = field(default_factory=dict)
    now: object = START

    def sleep(self, seconds):
        self.now += timedelta(seconds=seconds)

    def post(self, headers, body):
        self.headers.append(headers)
        self.bodies.append(body)
        said = self.says.pop(0) if self.says else "act"
        if isinstance(said, NoAnswerError):
            if said.may_have_acted:
                self.act(headers, body)
            raise said
        return said if isinstance(said, Answer) else self.act(headers, body)

    def act(self, headers, body):
        key = verify([KEY], headers, body, now=self.now)
        if key not in self.known:
            self.acted.append(json.loads(body)["order"])
            self.known[key] = {"id": key, "status": "done"}
        return Answer(200, json.dumps(self.known[key]).encode())

    def actuator(self, node=NODE, **changes):
        cluster = FakeCluster(ClusterState(as_of=START, nodes=(node,)))
        waits = Waits(sleep=self.sleep, now=lambda: self.now)
        parts = {"post": self.post, "key": KEY, "cluster": cluster, "waits": waits}
        return WebhookActuator(**(parts | changes))


def order(action="drain_now", node=NODE):
    jobs = (JobView(job_id="7", nodes=("n1",)),)
    return Order(action=action, expected=node, reason=reason(), jobs=jobs, notice_minutes=30)


class TestOrders:
    def test_an_order_is_signed_numbered_and_whole(self):
        receiver = Receiver()
        actuator: Actuator = receiver.actuator()
        outcome = carry_out(actuator, order("checkpoint_then_drain"))
        assert (outcome.status, outcome.detail) == ("done", "the receiver says done")
        body = json.loads(receiver.bodies[0])
        assert body == {
            "version": 1,
            "id": ID,
            "sent_at": "2026-01-05T10:00:00+00:00",
            "order": "drain",
            "action": "checkpoint_then_drain",
            "node": "n1",
            "boot_id": "b1",
            "rack": "r1",
            "reason": str(reason()),
            "decision_id": "a" * 16,
            "score": 0.9,
            "horizon_h": 24,
            "fault_type": "unknown",
            "model_version": "17",
            "jobs": ["7"],
            "notice_minutes": 30,
        }
        assert receiver.headers[0]["Idempotency-Key"] == ID

    def test_g13_the_same_order_again_is_the_same_to_the_receiver(self):
        receiver = Receiver()
        for _ in range(2):
            assert carry_out(receiver.actuator(), order()).status == "done"
        assert receiver.acted == ["drain"]

    def test_a_later_attempt_and_another_verb_are_other_orders(self):
        receiver = Receiver()
        receiver.actuator().drain(replace(order(), attempt=2))
        receiver.actuator().cordon(order("cordon"))
        receiver.actuator(HELD).undrain(order(node=HELD))
        keys = [headers["Idempotency-Key"].removeprefix("a" * 16) for headers in receiver.headers]
        assert keys == ["-drain-2", "-cordon-1", "-undrain-1"]

    @pytest.mark.parametrize("now", [HELD, NodeView(name="other", state="up")])
    def test_g11_a_node_that_changed_since_is_not_ordered(self, now):
        receiver = Receiver()
        assert receiver.actuator(now).drain(order()).status == "not_done"
        assert receiver.bodies == []

    def test_g09_only_our_own_hold_is_returned(self):
        receiver = Receiver()
        theirs = NodeView(name="n1", state="drain", boot_id="b1", reason="disk")
        for node in (theirs, NODE):
            assert receiver.actuator(node).undrain(order(node=node)).status == "not_done"
        assert receiver.bodies == []

    def test_a_state_that_cannot_be_read_orders_nothing(self):
        class Dark:
            def read(self):
                raise SourceError("down")

        receiver = Receiver()
        assert receiver.actuator(cluster=Dark()).drain(order()).status == "not_done"
        assert receiver.bodies == []

    def test_an_address_may_have_its_own_template(self):
        receiver = Receiver()
        receiver.act = lambda headers, body: Answer(200, b"{}")
        receiver.actuator(HELD, template=HEALTH_EVENT).undrain(order(node=HELD))
        (event,) = json.loads(receiver.bodies[0])["events"]
        assert (event["nodeName"], event["isHealthy"], event["isFatal"]) == ("n1", True, False)
        assert event["recommendedAction"] == "NONE"
        assert event["metadata"]["id"] == "aaaaaaaaaaaaaaaa-undrain-1"


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "body", "outcome"),
        [
            (200, {"id": ID}, "done"),
            (202, {"id": ID, "status": "accepted"}, "done"),
            (200, {"id": ID, "status": "done"}, "done"),
            (200, {"id": ID, "status": "refused", "detail": "in use"}, "not_done"),
            (200, {"id": ID, "status": "half"}, "ambiguous"),
            (200, {"id": "another"}, "ambiguous"),
            (200, {}, "ambiguous"),
            (204, None, "ambiguous"),
            (100, None, "ambiguous"),
            (302, None, "not_done"),
            (400, {"id": ID, "status": "done"}, "not_done"),
            (401, None, "not_done"),
            (404, None, "not_done"),
            (408, None, "ambiguous"),
            (409, None, "ambiguous"),
            (429, None, "not_done"),
            (500, None, "ambiguous"),
            (502, None, "ambiguous"),
            (503, None, "ambiguous"),
            (504, None, "ambiguous"),
        ],
    )
    def test_g13_what_an_answer_means(self, status, body, outcome):
        raw = b"<html>" if body is None else json.dumps(body).encode()
        assert outcome_of(Answer(status, raw), ID).status == outcome

    @pytest.mark.parametrize(
        ("says", "outcome", "n_posts"),
        [
            ([Answer(429)], "done", 2),
            ([Answer(503, b"", "2")], "done", 2),
            ([Answer(429)] * 3, "not_done", 3),
            ([Answer(503)] * 3, "ambiguous", 3),
            ([Answer(503), Answer(429), Answer(429)], "ambiguous", 3),
            ([Answer(503), Answer(401)], "ambiguous", 2),
            ([Answer(503), Answer(200, b'{"id":"%b","status":"refused"}' % ID.encode())],
             "not_done", 2),
            ([Answer(429, b"", "3600")], "not_done", 1),
            ([Answer(500)], "ambiguous", 1),
            ([Answer(404)], "not_done", 1),
            ([NoAnswerError("slow", may_have_acted=True)], "ambiguous", 1),
            ([NoAnswerError("refused", may_have_acted=False)], "not_done", 1),
            ([Answer(503), NoAnswerError("refused", may_have_acted=False)], "ambiguous", 2),
        ],
    )  # fmt: skip
    def test_g13_only_a_busy_receiver_is_asked_again(self, says, outcome, n_posts):
        receiver = Receiver(says=list(says))
        assert receiver.actuator().drain(order()).status == outcome
        assert len(receiver.bodies) == n_posts
        receiver.says.clear()
        assert receiver.actuator().drain(order()).status == "done"
        assert receiver.acted == ["drain"]

    def test_each_try_is_signed_anew_so_that_a_wait_does_not_expire_it(self):
        receiver = Receiver(says=[Answer(429, b"", "400")])
        receiver.actuator(tries=Tries(longest_wait_s=500)).drain(order())
        stamps = [int(headers["Forewarn-Timestamp"]) for headers in receiver.headers]
        assert stamps[1] - stamps[0] == 400
        assert receiver.bodies[0] == receiver.bodies[1]


class TestSignature:
    def signed(self, body=b"{}", key=KEY, name="id-1", at=START):
        return key.sign(body, key=name, at=at)

    def test_a_request_is_accepted_by_any_valid_key(self):
        assert verify([OTHER, KEY], self.signed(), b"{}", now=START) == "id-1"

    def test_header_names_have_no_case(self):
        headers = {name.lower(): value for name, value in self.signed().items()}
        assert verify([KEY], headers, b"{}", now=START) == "id-1"

    @pytest.mark.parametrize(
        ("changes", "body"),
        [
            ({}, b"{ }"),
            ({"Forewarn-Timestamp": str(int(START.timestamp()) + 1)}, b"{}"),
            ({"Idempotency-Key": "id-2"}, b"{}"),
            ({"Forewarn-Signature": ""}, b"{}"),
            ({"Forewarn-Signature": "v1=" + "0" * 64}, b"{}"),
            ({"Forewarn-Signature": "v1=\u00e9"}, b"{}"),
            ({"Forewarn-Timestamp": "soon"}, b"{}"),
            ({"Forewarn-Timestamp": "9" * 400}, b"{}"),
            ({"Idempotency-Key": ""}, b"{}"),
        ],
    )
    def test_g23_whatever_is_changed_is_refused(self, changes, body):
        with pytest.raises(SignatureError):
            verify([KEY], self.signed() | changes, body, now=START)

    def test_g23_a_request_without_idempotency_key_is_refused_although_signed(self):
        with pytest.raises(SignatureError):
            verify([KEY], self.signed(name=""), b"{}", now=START)

    def test_g23_another_key_and_no_key_are_refused(self):
        for keys in ([OTHER], []):
            with pytest.raises(SignatureError):
                verify(keys, self.signed(), b"{}", now=START)

    @pytest.mark.parametrize(("seconds", "is_fine"), [(300, True), (301, False), (-301, False)])
    def test_g23_an_old_or_early_request_is_refused(self, seconds, is_fine):
        now = START + timedelta(seconds=seconds)
        if is_fine:
            verify([KEY], self.signed(), b"{}", now=now)
        else:
            with pytest.raises(SignatureError, match="s ago"):
                verify([KEY], self.signed(), b"{}", now=now)

    def test_g23_a_replay_within_the_time_is_answered_without_acting(self):
        receiver = Receiver()
        receiver.actuator().drain(order())
        again = receiver.act(receiver.headers[0], receiver.bodies[0])
        assert json.loads(again.body)["status"] == "done"
        assert receiver.acted == ["drain"]

    @given(body=st.binary(max_size=40), flip=st.integers(0, 39))
    def test_g23_any_flipped_byte_is_seen(self, body, flip):
        headers = self.signed(body)
        assert verify([KEY], headers, body, now=START)
        if body:
            at = flip % len(body)
            changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
            with pytest.raises(SignatureError):
                verify([KEY], headers, changed, now=START)

    def test_g23_a_key_is_shown_nowhere(self):
        receiver = Receiver()
        shown = repr(KEY) + repr(receiver.actuator()) + repr(receiver.actuator().drain(order()))
        assert "kkkk" not in shown

    def test_keys_come_from_a_variable_or_a_file(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HOOK_KEY", "k" * 32)
        file = tmp_path / "key"
        file.write_text("k" * 32 + "\n")
        assert key_from(variable="HOOK_KEY") == key_from(file=file) == KEY

    def test_a_key_that_is_absent_short_or_named_twice_is_refused(self, monkeypatch, tmp_path):
        monkeypatch.delenv("HOOK_KEY", raising=False)
        for names in (
            {},
            {"variable": "HOOK_KEY"},
            {"file": tmp_path / "none"},
            {"variable": "HOOK_KEY", "file": tmp_path / "none"},
        ):
            with pytest.raises(SettingsError, match="webhook key"):
                key_from(**names)


class TestTemplates:
    @pytest.mark.parametrize(
        ("template", "why"),
        [
            ({"a": "${password}"}, "no order has password"),
            ({"a": "${node.__class__}"}, "no text that can be filled"),
            ({"a": "$"}, "no text that can be filled"),
            ({"a": "${node}"}, "id, order must be in it"),
            ({"a": object()}, "is no JSON"),
            ({1: "x"}, "is no text"),
        ],
    )
    def test_g23_a_template_is_checked_before_anything_is_sent(self, template, why):
        with pytest.raises(SettingsError, match=why):
            Receiver().actuator(template=template)

    def test_our_own_templates_pass(self):
        for template in (ORDER, HEALTH_EVENT):
            check_template(template)

    def test_a_template_may_name_exactly_what_an_order_has(self):
        values = values_of(order(), verb="drain", key=ID, at=START)
        check_template({name: f"${{{name}}}" for name in values})
        with pytest.raises(SettingsError) as refused:
            check_template({"x": "${x}"})
        assert str(refused.value).endswith(f"known: {', '.join(sorted(values))}")

    def test_values_are_never_read_as_templates(self):
        receiver = Receiver()
        odd = NodeView(name="${reason}", state="up")
        template = {"id": "${id}", "order": "${order}", "n": "on ${node}", "price": "$$5"}
        receiver.actuator(odd, template=template).drain(order(node=odd))
        body = json.loads(receiver.bodies[0])
        assert (body["n"], body["price"]) == ("on ${reason}", "$5")


class TestPoster:
    @pytest.mark.parametrize(
        "url",
        [
            "http://hook.example.com/orders",
            "https://user:secret@hook.example.com/",
            "ftp://hook.example.com/",
            "hook.example.com/orders",
        ],
    )
    def test_g23_an_address_that_would_tell_or_lose_secrets_is_refused(self, url):
        with pytest.raises(SettingsError) as refused:
            poster(url)
        assert "secret" not in str(refused.value)

    def test_a_real_receiver_acts_once(self, loopback):
        server, receiver = loopback
        post = poster(f"http://127.0.0.1:{server.server_address[1]}/orders")
        for _ in range(2):
            assert receiver.actuator(post=post).drain(order()).status == "done"
        assert receiver.acted == ["drain"]

    def test_nobody_there_is_not_done_and_silence_is_ambiguous(self, loopback):
        server, receiver = loopback
        nobody = poster("http://127.0.0.1:9/")
        assert receiver.actuator(post=nobody).drain(order()).status == "not_done"
        receiver.says = ["drop"]
        post = poster(
            f"http://127.0.0.1:{server.server_address[1]}/orders", patience=Patience(read_s=2)
        )
        assert receiver.actuator(post=post).drain(order()).status == "ambiguous"


@pytest.fixture
def loopback():
    receiver = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.says:
                receiver.says.pop()
                return
            answer = receiver.act(dict(self.headers), body)
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server, receiver
        server.shutdown()
        thread.join()
