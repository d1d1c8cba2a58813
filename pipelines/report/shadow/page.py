"""The shadow report: what a hook that only observed would have done, as one page to be signed.

Figures, words and layout are in the other modules of this package and in
`templates/`.
"""

from datetime import datetime
from pathlib import Path

from pipelines.report import words as report_words
from pipelines.report.figure import TONES
from pipelines.report.page import page_environment
from pipelines.report.shadow import words as shadow_words
from pipelines.report.shadow.figures import FATES, Figures, figures_of
from pipelines.report.shadow.input import ShadowInput, read_input
from pipelines.settings import Settings
from pipelines.storage.atomic_files import replace_file

MOST_ROWS = 500
"""Rows of a table; a longer one nobody reads, and the page says how many it leaves out."""


def write_shadow_report(
    out: Path,
    settings: Settings,
    *,
    hook: Path | None,
    since: datetime | None,
    until: datetime | None,
    level: str,
    now: datetime,
) -> str:
    """Reads ledger and tables, writes the page, and says what it says.

    Args:
        out: HTML file to write.
        settings: The installation whose tables know the incidents.
        hook: The hook's settings; None: ledger and site file of the installation.
        since: Start; None: the ledger's first entry.
        until: End, exclusive; None: where the record ends.
        level: How far automation would have been allowed to go.
        now: The present.

    Returns:
        The summary, to print.

    Raises:
        SettingsError: Settings or times are wrong, or there is no ledger.
        LedgerError: The ledger cannot be read, or was altered.
        DataError: No incidents are stored.
    """
    given = read_input(settings, hook=hook, since=since, until=until, level=level, now=now)
    found = figures_of(given)
    replace_file(out, render_shadow_report(given, found).encode())
    next_step = shadow_words.advice(found, level=given.level)
    said = [
        shadow_words.did_sentence(given, found),
        *_judged_sentences(found),
        f"{next_step.do} {next_step.why}",
        f"Wrote {out}.",
    ]
    return "\n".join(said)


def render_shadow_report(given: ShadowInput, found: Figures) -> str:
    """Renders the page, which needs nothing else.

    Args:
        given: What it rests on.
        found: Its figures.

    Returns:
        The page: the same text for the same arguments. Every name from outside is escaped.
    """
    return page_environment().get_template("shadow.html.j2").render(
        given=given,
        found=found,
        fates=FATES,
        words=report_words,
        said=shadow_words,
        tones=TONES,
        advice=shadow_words.advice(found, level=given.level),
        sentences=_judged_sentences(found),
        most_rows=MOST_ROWS,
    )  # fmt: skip


def _judged_sentences(found: Figures) -> tuple[str, ...]:
    if not found.actions and not found.held_back:
        return (shadow_words.missed_sentence(found),)
    return (
        shadow_words.right_sentence(found),
        shadow_words.missed_sentence(found),
        shadow_words.saved_sentence(found),
    )
