"""Whether a node that we hold may return to service: a cause, a check under load, its record.

Pure; checks are run in `remediation.checks`, nodes are returned by the hook. No score is asked
for here: a drained node is idle, so its score says nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from remediation.checks import CheckResult
from remediation.inbox.requested import Cause
from remediation.ledger.entries import Entry, time_text
from remediation.ledger.view import Held
from remediation.process_settings import ReturnRules

Way = Literal["return", "wait", "repair"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is known of one node at present.

    Attributes:
        now: The present.
        boot_id: Its present instance and boot; None: unknown.
        offences: When it was taken, drains whose alarm was judged false left out.
        rules: The site's rules.
    """

    now: datetime
    boot_id: str | None
    offences: tuple[datetime, ...] = ()
    rules: ReturnRules = field(default_factory=ReturnRules)


@dataclass(frozen=True)
class Return:
    """What is to become of a node.

    Attributes:
        way: return to service; wait for a cause or a check; repair: not back by itself.
        reason: Why, in words.
        needs_check: Whether a check under load is what it waits for.
    """

    way: Way
    reason: str
    needs_check: bool = False


def may_return(
    held: Held, cause: Cause | None, check: CheckResult | None, record: Record
) -> Return:
    """Whether a node that we hold may return.

    Its cause must have been repaired, or its alarm judged false, after it was taken, and a check
    under load must have passed since then (after the repair), on the boot that it now has.
    Unknown is never passed, and a failed check sends the node to repair whatever a person thought.
    A node that keeps coming is not returned by automation at all; a person may still do so.

    Args:
        held: How we hold it.
        cause: The last finding of a person; None: there is none.
        check: The last check; None: there is none.
        record: What is known of the node.
    """
    rules = record.rules
    since = record.now - timedelta(days=rules.within_days)
    n_recent = sum(since < at <= record.now for at in record.offences)
    if n_recent >= rules.offences:
        said = f"taken {n_recent} times within {rules.within_days:g} days"
        return Return("repair", f"{said}, at most {rules.offences - 1} are allowed: to repair")
    if cause is None or cause.at <= held.since:
        return Return("wait", "nobody has said that the cause was repaired or the alarm false")
    said = "repaired" if cause.verdict == "repaired" else "judged a false alarm"
    settled = f"{said} by {cause.actor}"
    # What was found before a repair says nothing of the node after it.
    begin = cause.at if cause.verdict == "repaired" else held.since
    if check is None or check.started_at < begin:
        return Return("wait", f"{settled}; a check under load is due", needs_check=True)
    if check.status == "failed":
        return Return("repair", f"{settled}, but {check.check} failed: {check.detail}")
    stale = _why_stale(check, record)
    if stale is not None:
        return Return("wait", f"{settled}; {stale}: a check is due", needs_check=True)
    return Return("return", f"{settled}, and {check.check} passed")


def _why_stale(check: CheckResult, record: Record) -> str | None:
    """Why a check that did not fail brings no node back; None: it does."""
    holds = timedelta(hours=record.rules.check_holds_hours)
    if check.status != "passed":
        return f"{check.check} is unknown: {check.detail}"
    if not check.is_under_load:
        return f"{check.check} passed, but without load"
    if check.boot_id != record.boot_id:
        return f"{check.check} passed on boot {check.boot_id}, found {record.boot_id}"
    if record.now >= check.ended_at + holds:
        return f"{check.check} passed at {check.ended_at:%Y-%m-%d %H:%M} UTC, too long ago"
    return None


def offences_of(entries: Iterable[Entry], *, actuator: str) -> Mapping[str, tuple[datetime, ...]]:
    """When each node was taken by us, without the drains whose alarm a person judged false.

    Args:
        entries: Entries of the kinds intent, result and request, in order.
        actuator: Only its entries count.

    Returns:
        Times in order, by node.
    """
    own = [one for one in entries if one.actuator == actuator]
    done = {one.refers_to for one in own if one.kind == "result" and one.body["status"] == "done"}
    found: dict[str, list[datetime]] = {}
    judged_false: set[tuple[str, datetime]] = set()
    for one in own:
        node = str(one.node)
        if one.kind == "intent" and one.key in done and "step" not in one.body:
            found.setdefault(node, []).append(one.recorded_at)
        elif node in found and _judges_false(one, since=found[node][-1]):
            judged_false.add((node, found[node][-1]))
    counted = {
        node: tuple(at for at in times if (node, at) not in judged_false)
        for node, times in found.items()
    }
    return {node: times for node, times in counted.items() if times}


def check_body(result: CheckResult, *, intent_key: str) -> dict[str, Any]:
    """The body of a `checked` entry; `last_checks` reads it back.

    Args:
        result: What the check found.
        intent_key: The intent that the node is held by.
    """
    return {
        "intent": intent_key,
        "boot_id": result.boot_id,
        "check": result.check,
        "status": result.status,
        "is_under_load": result.is_under_load,
        "started_at": time_text(result.started_at),
        "ended_at": time_text(result.ended_at),
        "exit_code": result.exit_code,
        "detail": result.detail,
        "output": result.output,
    }


def last_checks(entries: Iterable[Entry], *, actuator: str) -> Mapping[str, CheckResult]:
    """The last check of each node.

    Args:
        entries: Entries of the kind checked, in order.
        actuator: Only its entries count.
    """
    return {
        str(one.node): _check(str(one.node), one.body)
        for one in entries
        if one.kind == "checked" and one.actuator == actuator
    }


def _check(node: str, body: Mapping[str, Any]) -> CheckResult:
    names = ("boot_id", "check", "status", "is_under_load", "exit_code", "detail", "output")
    return CheckResult(
        node=node,
        started_at=datetime.fromisoformat(body["started_at"]),
        ended_at=datetime.fromisoformat(body["ended_at"]),
        **{name: body[name] for name in names},
    )


def _judges_false(entry: Entry, *, since: datetime) -> bool:
    if entry.kind != "request":
        return False
    body = entry.body
    return (
        body["what"] == "false_alarm"
        and body["status"] == "accepted"
        and datetime.fromisoformat(body["created"]) > since
    )
