"""The replay report: what a drain policy would have saved on a recorded history, as page and JSON.

Input, words and plots are in the other modules of this package; the replay itself in
`simulation.replay`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pipelines.report import words as report_words
from pipelines.report.figure import TONES
from pipelines.report.page import page_environment
from pipelines.storage.atomic_files import replace_file
from pipelines.studies.replay import words as replay_words
from pipelines.studies.replay.input import ReplayInput
from pipelines.studies.replay.plots import losses_plot, savings_plot, sweep_plot
from simulation.replay.comparison import STRATEGIES, Comparison, break_even, compare
from simulation.replay.history import moment_of
from simulation.replay.sweeps import Sweep, all_sweeps

MOST_ROWS: Final = 300
"""Rows of the table of drains; the page says how many it leaves out."""


@dataclass(frozen=True, kw_only=True)
class ReplayFigures:
    """All that a replay found.

    Attributes:
        found: The comparison in which checks find failures to come.
        kept: The one in which they find nothing, and nodes are kept out for the horizon.
        sweeps: What-if sweeps; empty: not asked for.
    """

    found: Comparison
    kept: Comparison
    sweeps: tuple[Sweep, ...]


def replay_figures(given: ReplayInput, *, has_sweeps: bool) -> ReplayFigures:
    """Replays every strategy under both findings, and the sweeps.

    Args:
        given: What is replayed.
        has_sweeps: Whether to make the sweeps; they replay some 70 times.
    """
    has_scores = given.history.scores is not None
    lacking = {"model": not has_scores, "static rules": not given.history.events}
    names = [name for name in STRATEGIES if not lacking.get(name)]
    return ReplayFigures(
        found=compare(given.history, given.site, strategies=names),
        kept=compare(given.history, given.site, strategies=names, finding="kept"),
        sweeps=all_sweeps(given.history, given.site) if has_sweeps and has_scores else (),
    )


def write_replay(
    given: ReplayInput, *, out: Path | None, json_out: Path | None, has_sweeps: bool
) -> str:
    """Replays, writes what is asked for, and says what was found.

    Args:
        given: What is replayed.
        out: HTML file; None: none.
        json_out: JSON file; None: none.
        has_sweeps: Whether to make the sweeps.

    Returns:
        The summary, to print.
    """
    figures = replay_figures(given, has_sweeps=has_sweeps)
    said = replay_words.summary(given, figures.found, figures.kept)
    if out is not None:
        replace_file(out, render_replay(given, figures).encode())
        said.append(f"Wrote {out}.")
    if json_out is not None:
        text = json.dumps(as_values(given, figures), indent=1, sort_keys=True)
        replace_file(json_out, f"{text}\n".encode())
        said.append(f"Wrote {json_out}.")
    return "\n".join(said)


def render_replay(given: ReplayInput, figures: ReplayFigures) -> str:
    """Renders the page, which needs nothing else.

    Args:
        given: What was replayed.
        figures: What was found.

    Returns:
        The page: the same text for the same arguments. Every name from outside is escaped.
    """
    subject = replay_words.subject(figures.found)
    holds = figures.found.runs[subject.name].holds
    return page_environment().get_template("replay.html.j2").render(
        given=given,
        figures=figures,
        subject=subject,
        since=moment_of(given.history.start),
        until=moment_of(given.history.end),
        verdict=replay_words.verdict(given, figures.found, figures.kept),
        savings=savings_plot(figures.found, figures.kept),
        losses=losses_plot(figures.found),
        sweeps=[sweep_plot(one) for one in figures.sweeps],
        drains=replay_words.drain_rows(given.history, holds),
        words=report_words,
        said=replay_words,
        tones=TONES,
        most_rows=MOST_ROWS,
    )  # fmt: skip


def as_values(given: ReplayInput, figures: ReplayFigures) -> dict[str, Any]:
    """All figures as plain values, for JSON."""
    history = given.history
    return {
        "name": given.name,
        "since": moment_of(history.start).isoformat(),
        "until": moment_of(history.end).isoformat(),
        "nodes": len(history.names),
        "gpus": sum(history.sizes),
        "ticks": int(history.ticks.size),
        "outages": len(history.outages),
        "is_synthetic": history.is_synthetic,
        "cautions": list(given.cautions),
        "verdict": replay_words.verdict(given, figures.found, figures.kept),
        "strategies": {"check": _values(figures.found), "kept": _values(figures.kept)},
        "drains": _drains(given, figures.found),
        "sweeps": [asdict(one) for one in figures.sweeps],
    }


def _values(found: Comparison) -> dict[str, Any]:
    bound = found.figures.get("oracle")
    return {
        name: {
            **asdict(one),
            "precision": one.precision,
            "break_even": asdict(break_even(one, bound)),
        }
        for name, one in found.figures.items()
    }


def _drains(given: ReplayInput, found: Comparison) -> list[dict[str, Any]]:
    holds: Sequence[Any] = found.runs[replay_words.subject(found).name].holds
    return [
        {
            "node": given.history.names[one.node],
            "action": one.action,
            "since": moment_of(one.since).isoformat(),
            "release": moment_of(one.release).isoformat(),
            "verdict": one.verdict,
        }
        for one in holds
    ]
