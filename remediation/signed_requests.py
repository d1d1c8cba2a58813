"""Signed requests of people: what they hold, how they are written and signed, what refuses one.

Pure; files and keys are read in `remediation.inbox.files`, what accepted requests mean is in
`remediation.inbox.requested`.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from features.errors import DataError, SettingsError
from remediation.actuators.slurm_commands import is_plain_node_name
from remediation.ledger.entries import time_text

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "approve": ("node", "decision_id"),  # carry out once what the policy only recommends
    "hold": ("node", "until"),  # leave the node alone until then
    "undrain": ("node",),  # return a node that we hold
    "repaired": ("node",),  # the cause was repaired
    "false_alarm": ("node",),  # there was no cause
    "acknowledge": ("escalation",),  # a person has looked
    "kill": (),  # stop all automation
    "unkill": (),  # let it go on
}
"""What can be asked for, and which fields say what about."""

ANY: Final = "*"
MOST_BYTES: Final = 8192
LONGEST_LIFE: Final = timedelta(hours=24)
CLOCK_SKEW: Final = timedelta(minutes=5)

_SIGNED_AS: Final = b"forewarn-request-v1\n"
_SHORTEST_KEY: Final = 32
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
_FORMS: Final[Mapping[str, re.Pattern[str]]] = {
    "actor": re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"),
    "decision_id": re.compile(r"[0-9a-f]{16}"),
    "escalation": re.compile(r"escalation:[^\x00-\x1f\x7f\ud800-\udfff]{1,480}"),
    "boot_id": re.compile(r"[ -~]{1,200}"),
    "nonce": re.compile(r"[0-9a-f]{32}"),
    "key_id": re.compile(r"[A-Za-z0-9._-]{1,32}"),
}


class RefusedError(DataError):
    """A request that must not be acted on.

    Args:
        rule: Short name of the rule that it breaks.
        reason: Why, in words.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}")
        self.rule = rule
        self.reason = reason


@dataclass(frozen=True)
class RequestKey:
    """A key that signs requests; it is shown nowhere.

    Attributes:
        secret: The key.
        actors: Whose requests it may sign; `*`: anybody's. A key of one service then cannot
            speak for the people of another.

    Raises:
        SettingsError: It is shorter than 32 bytes.
    """

    secret: bytes = field(repr=False)
    actors: tuple[str, ...] = (ANY,)

    def __post_init__(self) -> None:
        """Refuses keys that can be guessed."""
        if len(self.secret) < _SHORTEST_KEY:
            raise SettingsError(
                f"request key: {len(self.secret)} bytes, expected at least {_SHORTEST_KEY}; make "
                f"one with: openssl rand -hex 32"
            )


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks of the hook.

    Attributes:
        what: One of `NEEDS`.
        actor: Who asks.
        created: When it was signed.
        expires: From when on it must not be acted on.
        nonce: 32 hex digits, drawn anew for each request.
        key_id: Which key signed it.
        node: Node, where it is about one.
        boot_id: Instance and boot that the person saw; None: unknown.
        decision_id: Decision, for an approval.
        escalation: Key of an escalation, for an acknowledgement.
        until: When a hold ends.

    Raises:
        RefusedError: A field has another form, or is there without need or absent.
    """

    what: str
    actor: str
    created: datetime
    expires: datetime
    nonce: str
    key_id: str
    node: str | None = None
    boot_id: str | None = None
    decision_id: str | None = None
    escalation: str | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        """Refuses what no request may hold."""
        if self.what not in NEEDS:
            raise RefusedError("unknown_type", f"{self.what!r} is none of {', '.join(NEEDS)}")
        for name in ("node", "decision_id", "escalation", "until"):
            if (getattr(self, name) is not None) != (name in NEEDS[self.what]):
                is_needed = name in NEEDS[self.what]
                said = "is absent" if is_needed else "says nothing here and must be null"
                raise RefusedError("fields", f"{self.what}: {name} {said}")
        if self.boot_id is not None and self.node is None:
            raise RefusedError("fields", f"{self.what}: boot_id without a node")
        for name, form in _FORMS.items():
            value = getattr(self, name)
            if value is not None and not form.fullmatch(value):
                raise RefusedError("form", f"{name} is not of the form {form.pattern}")
        for name in ("created", "expires", "until"):
            at = getattr(self, name)
            if at is not None and at.utcoffset() is None:
                raise RefusedError("form", f"{name} has no time zone")
        if self.node is not None and not is_plain_node_name(self.node):
            raise RefusedError("form", "node is not the plain name of one node")

    @property
    def ledger_key(self) -> str:
        """Its key in the ledger, so that a nonce counts once and for good."""
        return f"request:{self.nonce}"


@dataclass(frozen=True)
class SignedRequest:
    """A request as it was read, its signature not yet checked.

    Attributes:
        request: The request.
        signature: What it claims to be signed with, 64 hex digits.
    """

    request: Request
    signature: str

    @property
    def digest(self) -> str:
        """SHA-256 of the request without its signature: one nonce must mean one request."""
        return hashlib.sha256(_signed_bytes(self.request)).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Open:
    """A decision that a person may approve.

    Attributes:
        node: Its node.
        boot_id: The boot it was decided for.
        wanted: The action it wants.
        expires_at: When its score expires.
        level: The policy level that its node and fault have at present.
    """

    node: str
    boot_id: str | None
    wanted: str
    expires_at: datetime
    level: str


@dataclass(frozen=True, kw_only=True)
class Present:
    """What a request is judged by.

    Attributes:
        now: The present.
        actors: What each known actor may ask for; `*`: anything.
        boots: Present instance and boot of every node; None: unknown.
        open_decision: Finds a decision by its id; None: the ledger has none.
        escalations: Keys of the escalations in the ledger.
    """

    now: datetime
    actors: Mapping[str, tuple[str, ...]]
    boots: Mapping[str, str | None]
    open_decision: Callable[[str], Open | None]
    escalations: frozenset[str]


def encode(request: Request, key: RequestKey) -> bytes:
    """A request with its signature, as it is put into the inbox.

    Args:
        request: The request; its `key_id` names the key for the hook.
        key: The key.
    """
    signature = hmac.new(key.secret, _signed_bytes(request), hashlib.sha256).hexdigest()
    return _canonical({**_values(request), "signature": signature})


def decode(content: bytes) -> SignedRequest:
    """Reads a request, and takes it only byte for byte as `encode` writes it.

    One request has one form, so nothing can be signed that is read as something else.

    Raises:
        RefusedError: The content is no request.
    """
    if len(content) > MOST_BYTES:
        raise RefusedError("too_large", f"more than {MOST_BYTES:,} bytes")
    try:
        values = json.loads(content.decode("ascii"))
    except (ValueError, RecursionError):
        raise RefusedError("not_json", f"{len(content):,} bytes that are no JSON") from None
    expected = {*Request.__dataclass_fields__, "signature"}
    if not isinstance(values, dict) or set(values) != expected:
        raise RefusedError("fields", f"expected exactly the fields {', '.join(sorted(expected))}")
    if _canonical(values) != content:
        raise RefusedError("not_canonical", "not in the one form that requests are written in")
    signature = values.pop("signature")
    if not isinstance(signature, str) or not re.fullmatch(r"[0-9a-f]{64}", signature):
        raise RefusedError("signature", "the signature is no 64 hex digits")
    return SignedRequest(_request(values), signature)


def check_signature(signed: SignedRequest, keys: Mapping[str, RequestKey]) -> None:
    """Checks that a key that is valid here signed a request.

    Args:
        signed: The request.
        keys: The valid keys by id; two at a time let a key be exchanged without a gap.

    Raises:
        RefusedError: None did.
    """
    request = signed.request
    key = keys.get(request.key_id)
    if key is None:
        raise RefusedError("signature", "it names no key that is valid here")
    found = hmac.new(key.secret, _signed_bytes(request), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(found, signed.signature):
        raise RefusedError("signature", "the signature does not fit")
    if ANY not in key.actors and request.actor not in key.actors:
        raise RefusedError("actor", f"key {request.key_id} does not sign for {request.actor}")


def check_request(request: Request, present: Present) -> None:
    """Checks that a request, whose signature is checked, holds at present.

    A `kill` neither expires nor waits for a clock: a stop that comes late is still a stop.

    Raises:
        RefusedError: It does not hold.
    """
    may = present.actors.get(request.actor)
    if may is None:
        raise RefusedError("actor", f"{request.actor} is not listed under actors")
    if ANY not in may and request.what not in may:
        raise RefusedError("actor", f"{request.actor} may ask for {', '.join(may) or 'nothing'}")
    if request.what == "kill":
        return
    _check_times(request, present.now)
    _check_node(request, present)
    if request.what == "approve":
        _check_decision(request, present)
    if request.escalation is not None and request.escalation not in present.escalations:
        raise RefusedError("escalation", f"the ledger has no {request.escalation}")


def _check_times(request: Request, now: datetime) -> None:
    if request.created > now + CLOCK_SKEW:
        raise RefusedError("not_yet", f"signed at {request.created}, which is yet to come")
    if not request.created < request.expires <= request.created + LONGEST_LIFE:
        hours = LONGEST_LIFE / timedelta(hours=1)
        raise RefusedError("expiry", f"must expire within {hours:g} h after it was signed")
    if now >= request.expires:
        raise RefusedError("expired", f"expired at {request.expires}")


def _check_node(request: Request, present: Present) -> None:
    if request.node is None:
        return
    if request.node not in present.boots:
        raise RefusedError("node", "the cluster does not know this node")
    found = present.boots[request.node]
    if found != request.boot_id:
        raise RefusedError("boot", f"asked for boot {request.boot_id}, found {found}")


def _check_decision(request: Request, present: Present) -> None:
    found = present.open_decision(str(request.decision_id))
    if found is None or (found.node, found.boot_id) != (request.node, request.boot_id):
        raise RefusedError("decision", "the ledger has no such decision for this node and boot")
    if present.now >= found.expires_at:
        raise RefusedError("scores_expired", f"its score expired at {found.expires_at}")
    if found.level != "recommend":
        raise RefusedError("level", f"the node's policy level is {found.level}, not recommend")


def _request(values: Mapping[str, Any]) -> Request:
    for name, value in values.items():
        is_optional = Request.__dataclass_fields__[name].default is None
        if not isinstance(value, str) and not (value is None and is_optional):
            raise RefusedError("form", f"{name} must be text{' or null' if is_optional else ''}")
    times = {
        name: _time(name, values[name])
        for name in ("created", "expires", "until")
        if values[name] is not None
    }
    return Request(**{**values, **times})


def _time(name: str, text: str) -> datetime:
    try:
        if _TIME.fullmatch(text):
            return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        pass
    raise RefusedError("form", f"{name} is no time such as 2026-01-05T10:00:00.000000+00:00")


def _values(request: Request) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in Request.__dataclass_fields__}
    return {
        name: time_text(value) if isinstance(value, datetime) else value
        for name, value in values.items()
    }


def _signed_bytes(request: Request) -> bytes:
    return _SIGNED_AS + _canonical(_values(request))


def _canonical(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")
