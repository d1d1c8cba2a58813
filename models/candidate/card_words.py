"""Renders a model card: text for the terminal, markdown and HTML for the MLflow UI.

What it says is in `models.candidate.card_sections`; nothing is stored here.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from models.candidate.card_sections import Section, Table, card_sections
from models.registry.version_page import Standing

_STYLE: Final = """\
body{font:15px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fefefe;max-width:62rem;
margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:1.8rem 0 .4rem;border-bottom:1px solid #d5dae0}
table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .8rem .2rem 0;text-align:right;border-bottom:1px solid #eceff2}
th:first-child,td:first-child{text-align:left}th{color:#555e69;font-weight:600}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:1.5rem}
figure{margin:0}figcaption{color:#555e69;font-size:.9rem}svg{max-width:100%;height:auto}
"""


def card_text(card: Mapping[str, Any], standing: Standing | None = None) -> str:
    """The card for a terminal."""
    parts = []
    for section in card_sections(card, standing):
        lines = [section.title.upper(), *(f"  {line}" for line in section.lines)]
        if section.table:
            lines += [f"  {line}" for line in text_table(section.table)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def card_markdown(card: Mapping[str, Any], standing: Standing | None = None) -> str:
    """The card as markdown."""
    parts = []
    for section in card_sections(card, standing):
        parts.append(f"## {section.title}")
        parts += [f"- {_inert(line)}" for line in section.lines]
        if section.table:
            parts += ["", *_markdown_table(section.table)]
        parts.append("")
    return "\n".join(parts).strip() + "\n"


def card_html(
    card: Mapping[str, Any],
    standing: Standing | None = None,
    *,
    title: str,
    figures: Sequence[tuple[str, str]] = (),
) -> str:
    """The card as a page that needs nothing beside it.

    Args:
        card: The card.
        standing: Where the version stands.
        title: Heading.
        figures: SVG elements with their captions.

    Returns:
        The page.
    """
    body = "\n".join(_html_section(one) for one in card_sections(card, standing))
    plots = "\n".join(
        f"<figure>{svg}<figcaption>{escape(words)}</figcaption></figure>" for svg, words in figures
    )
    shown = f'<h2>Plots</h2>\n<div class="plots">\n{plots}\n</div>' if plots else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title>\n<style>\n{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n"
        f"{shown}\n</body></html>\n"
    )


def text_table(table: Table) -> list[str]:
    """A table with columns as wide as they need.

    >>> text_table(Table(("method", "AUC"), (("base rate", "0.5"), ("model", "0.81"))))
    ['method      AUC', 'base rate   0.5', 'model      0.81']
    """
    rows = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.header))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _markdown_table(table: Table) -> list[str]:
    rule = ["---", *["---:"] * (len(table.header) - 1)]
    return ["| " + " | ".join(map(_inert, row)) + " |" for row in (table.header, rule, *table.rows)]


def _inert(text: str) -> str:
    """Text that markdown shows as it is: names of entities and people come from outside."""
    return "".join("\\" + sign if sign in "\\`*_<>|" else sign for sign in text)


def _html_section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"]
    parts += [f"<p>{escape(line)}</p>" for line in section.lines]
    if section.table:
        cells = "".join(f"<th>{escape(cell)}</th>" for cell in section.table.header)
        parts.append(f"<table><tr>{cells}</tr>")
        for row in section.table.rows:
            parts.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
        parts.append("</table>")
    return "\n".join(parts)
