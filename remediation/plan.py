"""Renders a run of the hook as text for someone woken at night: risks, actions, what was held back.

Nothing is decided here. Whatever came from logs is shown without control characters.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import polars as pl

from remediation.actuators.protocol import Outcome
from remediation.decision import Judged, touches_node
from remediation.hook import HookRun
from remediation.policy.choice import NodeScore, node_scores_of

_RANKED: Final = 10
_HELD_BACK: Final = 20
_WIDEST: Final = 76
_INDENT: Final = "  "


def render_plan(run: HookRun) -> str:
    """The run as text.

    Args:
        run: The run.

    Returns:
        Lines, without a newline at the end.
    """
    scores = node_scores_of(run.published, run.horizon_h)
    sections = (
        _head(run, scores),
        _ranking(run, scores),
        _done(run),
        _held_back(run),
        _messages(run),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def plain(text: str) -> str:
    r"""Text with every control or unprintable character written out.

    >>> plain("gpu-1\x1b[2J\nup")
    'gpu-1\\x1b[2J\\nup'
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def error_line(error: Exception) -> str:
    r"""An error in one line; a file that the system refused is named before what it said.

    >>> error_line(ValueError("two\nlines")), error_line(FileNotFoundError(2, "No such file", "a"))
    ('two; lines', 'a: No such file')
    """
    said = str(error)
    if isinstance(error, OSError) and error.filename:
        said = f"{error.filename2 or error.filename}: {error.strerror}"
    return plain("; ".join(line.strip() for line in said.splitlines() if line.strip()))


def _head(run: HookRun, scores: Sequence[NodeScore]) -> list[str]:
    tick = run.published
    first = "DRY RUN: nothing was done" if run.is_dry_run else f"RUN of {_time(run.now)}"
    until = _time(tick.expires_at) + (": EXPIRED" if tick.is_expired(run.now) else "")
    n_known = sum(score.score is not None and score.status == "ok" for score in scores)
    n_prior = sum(score.score is not None and score.status == "prior" for score in scores)
    n_unknown = len(run.judged) - n_known - n_prior
    model = tick.model_versions.get(run.horizon_h, "none")
    states = [node.state for node in run.cluster.nodes]
    by_state = ", ".join(
        f"{states.count(state)} {state}" for state in ("up", "drain", "down", "unknown")
    )
    return [
        first,
        f"Scores   {_time(tick.as_of)}, next {run.horizon_h} h, hold until {until}",
        f"Model    {plain(model)}, trained on {tick.trained_on} data",
        f"Cluster  {len(states)} nodes ({by_state}), {run.n_manageable} manageable",
        f"Known    {n_known} scored, {n_prior} by prior, {n_unknown} unknown",
    ]


def _ranking(run: HookRun, scores: Sequence[NodeScore]) -> list[str]:
    known = [score for score in scores if score.score is not None]
    ranked = sorted(known, key=lambda score: (-(score.score or 0.0), score.node))[:_RANKED]
    if not ranked:
        return ["No node has a known score"]
    rows = run.published.node_scores.filter(pl.col("horizon_h") == run.horizon_h)
    reasons = dict(rows.select("entity_id", "reasons").iter_rows())
    table = [
        (
            f"{place}",
            plain(score.node),
            f"{score.score:.1%}" + (" prior" if score.status == "prior" else ""),
            (score.fault_type or "unknown").replace("_", " "),
            _short(_top_reason(reasons.get(score.node) or ())),
        )
        for place, score in enumerate(ranked, start=1)
    ]
    title = f"Highest risk, {len(ranked)} of {len(known)}"
    return [title, *_aligned([("#", "node", "score", "fault", "top reason"), *table])]


def _top_reason(reasons: Sequence[str]) -> str:
    """What raised the score most, without its share; the leading GPU where nothing else is said."""
    said = [reason for reason in reasons if not reason.startswith("leading GPU:")]
    first = next(iter((*said, *reasons)), "no reason given")
    return first.partition("): ")[2] or first


def _done(run: HookRun) -> list[str]:
    acting = [one for one in run.judged if touches_node(one.action)]
    title = "Would do" if run.is_dry_run else "Done"
    if not acting:
        return [f"{title}: nothing"]
    lines = [title]
    for one in acting:
        outcome = run.outcomes.get(one.decision.decision_id)
        lines.append(f"{_INDENT}{plain(one.decision.node)}  {one.action}{_status(one, outcome)}")
        lines.append(f"{_INDENT * 3}{plain(one.decision.sentence)}")
        commands = outcome.commands if outcome else ()
        lines += [f"{_INDENT * 3}$ {plain(' '.join(_quoted(command)))}" for command in commands]
    return lines


def _status(one: Judged, outcome: Outcome | None) -> str:
    wanted = "" if one.action == one.decision.wanted else f" (wanted {one.decision.wanted})"
    if one.is_settled:
        return f"{wanted}: carried out in an earlier run, not again"
    if outcome is None or outcome.status in ("done", "would_do"):
        return wanted
    said = "NOT DONE" if outcome.status == "not_done" else "UNCLEAR, look at the node"
    return f"{wanted}: {said}: {plain(outcome.detail)}"


def _held_back(run: HookRun) -> list[str]:
    held = [one for one in run.judged if one.blocked_by and not touches_node(one.action)]
    if not held:
        return []
    lines = [f"Held back, {len(held)}"]
    for one in held[:_HELD_BACK]:
        named = f"{plain(one.decision.node)}  {one.decision.wanted} is not done"
        lines.append(f"{_INDENT}{named}, decision {one.decision.decision_id}")
        lines += [f"{_INDENT * 3}{plain(reason)}" for reason in one.blocked_by]
    if len(held) > _HELD_BACK:
        lines.append(f"{_INDENT}and {len(held) - _HELD_BACK} more, in remediation/decisions")
    return lines


def _messages(run: HookRun) -> list[str]:
    if not run.messages:
        return []
    return ["For a person", *(f"{_INDENT}! {plain(text)}" for text in run.messages)]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        _INDENT + _INDENT.join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _quoted(command: Iterable[str]) -> list[str]:
    """Arguments for the eye; the argument list itself never passes through a shell."""
    return [repr(part) if " " in part else part for part in command]


def _short(text: str) -> str:
    shown = plain(text)
    return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 3] + "..."


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
