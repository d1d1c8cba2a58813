"""Says status and reasons in words: a screenful that a person woken at night understands.

What is said is gathered in `remediation.program.status` and `remediation.program.why`; whatever
came from outside is shown without control characters.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from remediation.plan import plain
from remediation.program.status import HeldNode, Question, Status
from remediation.program.why import Told, Why

_MOST: Final = 12
_INDENT: Final = "  "


def render_status(status: Status) -> str:
    """The status as lines.

    Args:
        status: How the hook stands.
    """
    acts = "dry run: acts on nothing" if status.actuator == "dry_run" else status.actuator
    lines = [
        f"Forewarn hook at {_time(status.now)}, by {acts}",
        f"Stopped      {plain(status.stopped_by) if status.stopped_by else 'no'}",
        f"Last round   {_last_round(status)}",
        f"Scores       {_scores(status)}",
        f"Held         {_caps(status)}",
        *_limited([_held(one) for one in status.held]),
        f"For a person {len(status.questions) or 'nothing'}",
        *_limited([line for one in status.questions for line in _question(one, now=status.now)]),
    ]
    if status.recommended:
        lines += [f"To approve   {len(status.recommended)}", *_limited(_to_approve(status))]
    if status.cannot_read:
        lines += ["Cannot be read", *(f"{_INDENT}! {plain(one)}" for one in status.cannot_read)]
    return "\n".join(lines)


def render_why(why: Why) -> str:
    """Why a node is as it is, as lines.

    Args:
        why: What was found.
    """
    lines = [f"{plain(why.node)}  {plain(why.present)}"]
    if why.held is not None:
        lines.append(f"{_INDENT}{plain(why.held)}")
    if why.last is not None:
        lines += ["", *_told("Last in the ledger", why.last)]
    if why.now is not None and _is_same(why):
        lines += ["", f"Now, {_time(why.now.at)}: the same decision, the same verdicts"]
    elif why.now is not None:
        lines += ["", *_told("Now", why.now)]
    if why.last is None:
        lines += ["", "Last in the ledger: nothing was ever wanted for it"]
    if why.cannot_read:
        lines += ["", *(f"! {plain(one)}" for one in why.cannot_read)]
    return "\n".join(lines)


def _is_same(why: Why) -> bool:
    """Whether a round would decide now as the last did, so that one of both is enough to read."""
    then, now = why.last, why.now
    if then is None or now is None or then.decision_id != now.decision_id:
        return False
    return (then.action, then.verdicts) == (now.action, now.verdicts)


def age(since: datetime, now: datetime) -> str:
    """How long ago, in one unit.

    >>> from datetime import UTC
    >>> at = datetime(2026, 1, 5, tzinfo=UTC)
    >>> [age(at, at + timedelta(minutes=m)) for m in (0, 59, 150, 6000)]
    ['0 min', '59 min', '2.5 h', '4.2 days']
    """
    passed = now - since
    if passed < timedelta(hours=2):
        return f"{passed / timedelta(minutes=1):.0f} min"
    if passed < timedelta(days=2):
        return f"{passed / timedelta(hours=1):.1f} h"
    return f"{passed / timedelta(days=1):.1f} days"


def _last_round(status: Status) -> str:
    note = status.last_round
    if note is None:
        return "none is noted: is the hook running?"
    failed = f"FAILED, {note.failed_in_row} in a row: " if note.is_failed else ""
    said, *for_a_person = note.text.split("; for a person: ")
    more = f"; {len(for_a_person)} for a person" if for_a_person else ""
    return f"{age(note.ended_at, status.now)} ago: {failed}{plain(said)}{more}"


def _scores(status: Status) -> str:
    scores = status.scores
    if scores is None:
        return "cannot be read: nothing new is begun"
    held = f"hold until {_time(scores.expires_at)}"
    if scores.is_expired:
        held = f"EXPIRED at {_time(scores.expires_at)}: nothing new is begun"
    model = f"model {plain(scores.model)}, trained on {scores.trained_on} data"
    return (
        f"{age(scores.as_of, status.now)} old, {held}\n{' ' * 13}{model}\n{' ' * 13}"
        f"alerts: {scores.alerts}"
    )


def _caps(status: Status) -> str:
    most = "an unknown number" if status.most_held is None else status.most_held
    recent = "?" if status.actions_last_hour is None else status.actions_last_hour
    return (
        f"{len(status.held)} of {most} allowed; {recent} of {status.actions_per_hour} actions "
        f"within the last hour"
    )


def _held(one: HeldNode) -> str:
    action = f"{one.action.replace('_', ' ')}, " if one.action else ""
    since = f", since {_time(one.since)}" if one.since else ""
    jobs = f", jobs {', '.join(map(plain, one.jobs[:5]))}" if one.jobs else ""
    return f"{_INDENT}{plain(one.node)}  {action}{plain(one.text)}{since}{jobs}{_next(one)}"


def _next(one: HeldNode) -> str:
    """What a drained node waits for; no score brings it back."""
    if one.stage != "drained" or one.action is None:
        return ""
    return f"\n{_INDENT * 2}waits for: forewarn remediate repaired, false-alarm or undrain"


def _question(one: Question, *, now: datetime) -> list[str]:
    return [
        f"{_INDENT}! {one.id}  {plain(one.text)} ({age(one.asked_at, now)} ago)",
        f"{_INDENT * 2}once looked at: forewarn remediate acknowledge {one.id}",
    ]


def _to_approve(status: Status) -> list[str]:
    return [
        f"{_INDENT}{plain(one.node)}  {one.wanted.replace('_', ' ')}: forewarn remediate approve "
        f"{one.decision_id}"
        for one in status.recommended
    ]


def _limited(lines: Sequence[str]) -> list[str]:
    more = len(lines) - 2 * _MOST
    shown = list(lines[: 2 * _MOST])
    return [*shown, f"{_INDENT}and {more} more lines, with --json"] if more > 0 else shown


def _told(title: str, told: Told) -> list[str]:
    lines = [
        f"{title}, {_time(told.at)}, decision {told.decision_id}",
        f"{_INDENT}{plain(told.sentence)}",
    ]
    came = f": {plain(told.came_of_it)}" if told.came_of_it else ""
    lines.append(f"{_INDENT}Wanted {told.wanted}, allowed {told.action}{came}")
    for one in sorted(told.verdicts, key=lambda one: one.is_allowed):
        mark = "ok" if one.is_allowed else "NO"
        lines.append(f"{_INDENT * 2}{mark}  {one.guard.replace('_', ' ')}: {plain(one.reason)}")
        if one.would_change is not None:
            lines.append(f"{_INDENT * 4}-> {one.would_change}")
    return lines


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
