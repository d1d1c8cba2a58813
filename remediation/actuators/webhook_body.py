"""Bodies of webhook orders: templates as data, filled with the values of an order.

A template is JSON; a text `${name}` in it becomes the value, and within other text its words.
Nothing in a template is ever executed. How bodies are sent is in `webhook`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from string import Template
from typing import Any, Final

import orjson

from features.errors import SettingsError
from remediation.actuators.protocol import Order

_OWN_ID: Final = "id"

ORDER: Final[Mapping[str, Any]] = {
    "version": 1,
    "id": "${id}",
    "sent_at": "${sent_at}",
    "order": "${order}",
    "action": "${action}",
    "node": "${node}",
    "boot_id": "${boot_id}",
    "rack": "${rack}",
    "reason": "${reason}",
    "decision_id": "${decision_id}",
    "score": "${score}",
    "horizon_h": "${horizon_h}",
    "fault_type": "${fault_type}",
    "model_version": "${model_version}",
    "jobs": "${jobs}",
    "notice_minutes": "${notice_minutes}",
}
"""Our own schema, version 1. `order` is cordon, drain or undrain; `id` must be echoed."""

HEALTH_EVENT: Final[Mapping[str, Any]] = {
    "version": 1,
    "events": [
        {
            "version": 1,
            "agent": "forewarn",
            "componentClass": "Node",
            "checkName": "ForewarnFailureForecast",
            "isFatal": "${is_hold}",
            "isHealthy": "${is_return}",
            "message": "${reason}",
            "recommendedAction": "${recommended_action}",
            "errorCode": ["${fault_type}"],
            "entitiesImpacted": [{"entityType": "NODE", "entityValue": "${node}"}],
            "metadata": {
                "id": "${id}",
                "order": "${order}",
                "action": "${action}",
                "boot_id": "${boot_id}",
            },
            "generatedTimestamp": "${sent_at}",
            "nodeName": "${node}",
            "drainOverrides": {"force": False, "skip": "${is_cordon}"},
        }
    ],
}
"""A health event in the shape of NVSentinel's `HealthEvents` as JSON, for a bridge to its gRPC."""

TEMPLATES: Final[Mapping[str, Mapping[str, Any]]] = {
    "order": ORDER,
    "health_event": HEALTH_EVENT,
}


def values_of(order: Order, *, verb: str, key: str, at: datetime) -> dict[str, Any]:
    """What templates may name.

    Args:
        order: The order.
        verb: cordon, drain or undrain.
        key: Idempotency key.
        at: The present.
    """
    node, reason = order.expected, order.reason
    return {
        _OWN_ID: key,
        "sent_at": at.astimezone(UTC).isoformat(timespec="seconds"),
        "order": verb,
        "action": order.action if verb != "undrain" else verb,
        "node": node.name,
        "boot_id": node.boot_id,
        "rack": node.rack,
        "reason": str(reason),
        "decision_id": reason.decision_id,
        "score": round(reason.score, 4),
        "horizon_h": reason.horizon_h,
        "fault_type": reason.fault_type or "unknown",
        "model_version": reason.model_version,
        "jobs": [job.job_id for job in order.jobs],
        "notice_minutes": order.notice_minutes,
        "is_hold": verb != "undrain",
        "is_return": verb == "undrain",
        "is_cordon": verb == "cordon",
        "recommended_action": "NONE" if verb == "undrain" else "CONTACT_SUPPORT",
    }


_NAMES: Final = frozenset(
    {
        "id", "sent_at", "order", "action", "node", "boot_id", "rack", "reason", "decision_id",
        "score", "horizon_h", "fault_type", "model_version", "jobs", "notice_minutes", "is_hold",
        "is_return", "is_cordon", "recommended_action",
    }
)  # fmt: skip


def check_template(template: Mapping[str, Any]) -> None:
    """Refuses a template before anything is sent with it.

    Args:
        template: JSON.

    Raises:
        SettingsError: It names what no order has, leaves out the node or the id, or is no JSON.
    """
    named: set[str] = set()
    _collect(template, named)
    unknown = sorted(named - _NAMES)
    if unknown:
        raise SettingsError(
            f"webhook template: no order has {', '.join(unknown)}; known: "
            f"{', '.join(sorted(_NAMES))}"
        )
    missing = sorted({_OWN_ID, "node", "order"} - named)
    if missing:
        raise SettingsError(
            f"webhook template: {', '.join(missing)} must be in it: without them the receiver "
            f"cannot tell what to do, or that it has done it"
        )


def fill(template: Mapping[str, Any], values: Mapping[str, Any]) -> bytes:
    """The body of a request.

    Args:
        template: JSON that `check_template` let pass.
        values: As given by `values_of`.

    >>> fill({"n": "${node}", "t": "on ${node}", "s": "${score}"}, {"node": "a", "score": 0.5})
    b'{"n":"a","t":"on a","s":0.5}'
    """
    return orjson.dumps(_filled(template, values))


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, Mapping):
        return {name: _filled(value, values) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [_filled(value, values) for value in part]
    if not isinstance(part, str):
        return part
    names = Template(part).get_identifiers()
    if len(names) == 1 and part == f"${{{names[0]}}}":
        return values[names[0]]
    words = {name: "" if values[name] is None else values[name] for name in names}
    return Template(part).substitute(words)


def _collect(part: Any, named: set[str]) -> None:
    """Adds the names in a template."""
    if isinstance(part, Mapping):
        for name, value in part.items():
            if not isinstance(name, str):
                raise SettingsError(f"webhook template: the key {name!r} is no text")
            _collect(value, named)
    elif isinstance(part, list | tuple):
        for value in part:
            _collect(value, named)
    elif isinstance(part, str):
        if not Template(part).is_valid():
            raise SettingsError(
                f"webhook template: {part!r} is no text that can be filled; write $$ for a dollar"
            )
        named.update(Template(part).get_identifiers())
    elif part is not None and not isinstance(part, bool | int | float):
        raise SettingsError(f"webhook template: {part!r} is no JSON")
