"""A benchmark's result as one HTML page that needs no other file.

What the cells say is in `pipelines.studies.benchmark.text`; nothing is computed or written here.
"""

from html import escape
from typing import Final

from models.benchmark.result import MODEL, BenchmarkResult, BenchmarkRow, WindowResult
from pipelines.studies.benchmark.text import (
    LEGEND,
    METRICS,
    POPULATIONS,
    by_population,
    cells,
    counts,
    notes,
    training,
)

_STYLE: Final = (
    ":root{color-scheme:light dark;--line:#d5d9de;--dim:#5c6670;--band:#f2f4f6}"
    "@media(prefers-color-scheme:dark){:root{--line:#3a4046;--dim:#a3acb5;--band:#23282d}}"
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:64em;padding:0 1em}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%}"
    "th,td{padding:.3em .8em;text-align:left;border-bottom:1px solid var(--line)}"
    "td{font-variant-numeric:tabular-nums;white-space:nowrap}"
    "tbody th{background:var(--band);font-weight:600}tr.model td{font-weight:600}"
    "small,p.note,li{color:var(--dim);font-weight:400}td small{margin-left:.6em}"
)


def render_page(result: BenchmarkResult) -> str:
    """The result as a page.

    Args:
        result: See `pipelines.studies.benchmark.run.run_benchmark`.
    """
    name = escape(result.name)
    windows = "".join(_window(window) for window in result.windows)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Benchmark {name}</title><style>{_STYLE}</style></head><body>"
        f"<h1>Benchmark {name}</h1><p>{result.n_features} features, {result.n_incidents:,} "
        f"incidents in labels. The model learns from what was known by S and is tested on what "
        f"came after.</p>{_summary(result)}"
        f'<p class="note">{escape(LEGEND)}</p>{windows}</body></html>\n'
    )


def _summary(result: BenchmarkResult) -> str:
    rows = "".join(
        f"<tr><td>{window.origin:%Y-%m-%d}</td><td>{escape(counts(window.row()))}</td>"
        f"{_figures(window.row())}</tr>"
        for window in result.windows
    )
    return _table(("S", "test", *METRICS), rows)


def _window(window: WindowResult) -> str:
    groups = []
    for population, rows in by_population(window):
        groups.append(
            f'<tr><th colspan="4" scope="rowgroup">{escape(population)} <small>'
            f"{escape(POPULATIONS[population])}: {escape(counts(rows[0]))}</small></th></tr>"
        )
        groups += [_scorer(row) for row in rows]
    said = "".join(f"<li>{escape(note)}</li>" for note in notes(window))
    return (
        f"<h2>S = {window.origin:%Y-%m-%d}</h2><p>{escape(training(window)).capitalize()}.</p>"
        f"{_table(('scorer', *METRICS), ''.join(groups))}<ul>{said}</ul>"
    )


def _scorer(row: BenchmarkRow) -> str:
    kind = ' class="model"' if row.scorer == MODEL else ""
    return f"<tr{kind}><td>{escape(row.scorer)}</td>{_figures(row)}</tr>"


def _figures(row: BenchmarkRow) -> str:
    return "".join(
        f"<td>{escape(value)}<small>{escape(note)}</small></td>" for value, note in cells(row)
    )


def _table(heads: tuple[str, ...], rows: str) -> str:
    named = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    return (
        f'<div class="wide"><table><thead><tr>{named}</tr></thead><tbody>{rows}</tbody>'
        f"</table></div>"
    )
