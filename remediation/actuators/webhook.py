"""The webhook actuator: gives orders to a site's own automation by signed requests.

It changes no node itself; the state is read from wherever the site's nodes are read. Signatures
and what receivers must do are in `webhook_signature`, bodies in `webhook_body`.

A receiver answers 2xx with a JSON object that echoes the order's `id`, and says by `status` what
it did: `done`, `accepted` (it will) or `refused` (it surely did and will do nothing). It must
put the order's `reason` on the node as it stands, so that the hook knows its own hold again, and
return a node only while that reason is still on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from features.errors import SettingsError, SourceError
from remediation.actuators.exchange import Answer, NoAnswerError, Patience, Waits, exchange
from remediation.actuators.protocol import Order, Outcome
from remediation.actuators.webhook_body import ORDER, check_template, fill, values_of
from remediation.actuators.webhook_signature import SigningKey
from remediation.cluster.state import ClusterReader, NodeView

_BUSY: Final = (429, 503)
# Beside server errors: of one that gave up waiting, or is still at it.
_UNCLEAR: Final = frozenset({408, 409, 425})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_WORDS: Final = 200

Post = Callable[[Mapping[str, str], bytes], Answer]
"""Sends one body with headers, once; raises `NoAnswerError`."""


@dataclass(frozen=True, kw_only=True)
class Tries:
    """How often a busy receiver is asked.

    Attributes:
        most: Tries, the first included.
        wait_s: Wait after the first; it doubles.
        longest_wait_s: Longest wait; a receiver that asks for more is not asked again.
    """

    most: int = 3
    wait_s: float = 1.0
    longest_wait_s: float = 15.0


@dataclass(frozen=True, kw_only=True)
class WebhookActuator:
    """Sends orders to one address.

    Attributes:
        post: Sends a request (`poster`).
        key: Signs it.
        cluster: Where nodes are re-read.
        template: What is sent.
        tries: How often a busy receiver is asked.
        waits: Clock and sleep.

    Raises:
        SettingsError: The template cannot be filled.
    """

    post: Post = field(repr=False)
    key: SigningKey
    cluster: ClusterReader
    template: Mapping[str, Any] = field(default_factory=lambda: ORDER)
    tries: Tries = field(default_factory=Tries)
    waits: Waits = field(default_factory=Waits)

    name = "webhook"
    is_dry_run = False

    def __post_init__(self) -> None:
        """Refuses a template that could not be filled at night."""
        check_template(self.template)

    def state(self, node: str) -> NodeView | None:
        """As in `Actuator`."""
        return self.cluster.read().by_name.get(node)

    def cordon(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._send("cordon", order)

    def drain(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._send("drain", order)

    def end_notice(self, order: Order) -> Outcome:
        """Sends nothing: by `notice_minutes` the receiver knows when jobs have to go."""
        del order
        return Outcome(status="done", detail="the receiver ends notices that it was told")

    def undrain(self, order: Order) -> Outcome:
        """As in `Actuator`."""
        return self._send("undrain", order)

    def _send(self, verb: str, order: Order) -> Outcome:
        """Looks once more, then sends one order until it is answered."""
        try:
            found = self.state(order.expected.name)
        except (SourceError, OSError) as error:
            return _nothing(f"the node's present state cannot be told: {error}")
        if found is None or found != order.expected:
            return _nothing("the node changed, or the cluster does not know it")
        if verb == "undrain" and found.owner != "forewarn":
            return _nothing("not ours")
        key = idempotency_key(order, verb)
        body = fill(self.template, values_of(order, verb=verb, key=key, at=self.waits.now()))
        return replace(self._tried(key, body), commands=(("POST", body.decode()),))

    def _tried(self, key: str, body: bytes) -> Outcome:
        """Asks again only where the receiver says that it is busy, and with the same key.

        Once an answer was unclear, only the receiver's own word on this very order settles it.
        """
        unclear = ""
        for attempt in range(1, self.tries.most + 1):
            pause, is_echoed = None, False
            try:
                answer = self.post(self._headers(key, body), body)
            except NoAnswerError as error:
                outcome = _unclear(str(error)) if error.may_have_acted else _nothing(str(error))
            else:
                outcome, is_echoed = outcome_of(answer, key), echoes(answer, key)
                pause = self._pause(attempt, answer)
            if pause is None:
                break
            unclear = outcome.detail if outcome.status == "ambiguous" else unclear
            self.waits.sleep(pause)
        if unclear and not is_echoed:
            return _unclear(f"{unclear}; then {outcome.detail}")
        return outcome

    def _headers(self, key: str, body: bytes) -> dict[str, str]:
        plain = {"Content-Type": "application/json", "User-Agent": "forewarn"}
        return {**plain, **self.key.sign(body, key=key, at=self.waits.now())}

    def _pause(self, attempt: int, answer: Answer) -> float | None:
        """Seconds until the next try; None: there is none."""
        if answer.status not in _BUSY or attempt >= self.tries.most:
            return None
        own = min(self.tries.wait_s * 2.0 ** (attempt - 1), self.tries.longest_wait_s)
        pause = max(own, self.waits.asked(answer) or 0.0)
        return pause if pause <= self.tries.longest_wait_s else None


def idempotency_key(order: Order, verb: str) -> str:
    """Names one order: the same decision, verb and attempt give the same key.

    A later attempt is a new order, for the earlier one surely came to nothing.

    >>> from remediation.cluster.state import NodeView
    >>> from remediation.cluster.reasons import Reason
    >>> reason = Reason(score=0.9, horizon_h=24, fault_type=None, model_version="1",
    ...                 decision_id="00112233445566ff")
    >>> idempotency_key(Order(action="cordon", expected=NodeView(name="a", state="up"),
    ...                       reason=reason, attempt=2), "cordon")
    '00112233445566ff-cordon-2'
    """
    return f"{order.reason.decision_id}-{verb}-{order.attempt}"


def outcome_of(answer: Answer, key: str) -> Outcome:
    """What an answer says of an order.

    Args:
        answer: The answer.
        key: The order's id.

    Returns:
        done: 2xx with the id echoed, and nothing that takes it back. not_done: the receiver
        refused. ambiguous: everything else; also 2xx without the id, which is what a login page
        or a proxy would say.
    """
    if echoes(answer, key):
        found = _object(answer.body)
        status = str(found.get("status", "accepted"))
        if status in ("done", "accepted"):
            return Outcome(status="done", detail=f"the receiver says {status}")
        if status == "refused":
            said = " ".join(str(found.get("detail", "")).split())[:_WORDS]
            return _nothing(f"the receiver refused: {said or 'no reason given'}")
        return _unclear(f"the receiver says {status[:_WORDS]!r}")
    if answer.is_fine:
        return _unclear(f"HTTP {answer.status} without the order's id: is this the receiver?")
    if answer.status in _UNCLEAR or not 300 <= answer.status <= 499:
        return _unclear(f"HTTP {answer.status}")
    return _nothing(f"HTTP {answer.status}")


def echoes(answer: Answer, key: str) -> bool:
    """Whether an answer is the receiver's own, to this very order."""
    return answer.is_fine and _object(answer.body).get("id") == key


def poster(
    url: str,
    *,
    ca_file: str | None = None,
    patience: Patience | None = None,
    is_plain_allowed: bool = False,
) -> Post:
    """What sends requests to an address; redirects are not followed, proxies not used.

    Args:
        url: The address; https, or http to this machine itself.
        ca_file: Certificates of the receiver's authority; None: the system's.
        patience: Time limits of one request.
        is_plain_allowed: Whether http may be used to elsewhere; the orders can then be read on
            the way, but not changed.

    Raises:
        SettingsError: The address cannot be used.
    """
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise SettingsError("webhook url: a user or password in it would be logged; remove it")
    is_local = parts.hostname in _LOOPBACK
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise SettingsError(f"webhook url: expected https://host/path, got {url!r}")
    if parts.scheme == "http" and not (is_local or is_plain_allowed):
        raise SettingsError(f"webhook url: {parts.hostname} is reached by http; use https")
    import urllib3

    pool = urllib3.PoolManager(ca_certs=ca_file) if ca_file else urllib3.PoolManager()
    limits = patience or Patience(total_s=60.0, max_bytes=1 << 20)

    def post(headers: Mapping[str, str], body: bytes) -> Answer:
        return exchange(pool, "POST", url, headers=headers, body=body, patience=limits)

    return post


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _nothing(detail: str) -> Outcome:
    return Outcome(status="not_done", detail=detail)


def _unclear(detail: str) -> Outcome:
    return Outcome(status="ambiguous", detail=detail)
