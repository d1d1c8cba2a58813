"""The quarantine as people read it: what was refused, where, by which rule, with an example.

Refusals are made where records are read, landed and built; here they are gathered and worded.
"""

import json
from typing import Any, Final

import polars as pl

from features.monitoring_tables import QUARANTINE
from pipelines.landing.ingest import landing_of
from pipelines.settings import Settings
from pipelines.storage.store import TableStore
from remediation.plan import plain

_EXAMPLE: Final = 160


def all_refusals(settings: Settings) -> pl.DataFrame:
    """Everything that sources, landing, builders and contracts have refused.

    Args:
        settings: The installation.

    Returns:
        `monitoring/quarantine`, in order of its key.
    """
    landed = landing_of(settings).journal.refusals()
    parts = TableStore(settings.store_root).gather_parts(QUARANTINE)
    return pl.concat([landed, parts]).unique(QUARANTINE.key, maintain_order=True)


def render_quarantine(
    settings: Settings,
    *,
    source: str | None = None,
    rule: str | None = None,
    origin: str | None = None,
    limit: int = 20,
    as_json: bool = False,
) -> str:
    """Words the quarantine.

    Args:
        settings: The installation.
        source: Only this kind of source.
        rule: Only rules that hold this text, in any case.
        origin: Only files or addresses that hold this text.
        limit: Most entries shown; what is left out is counted.
        as_json: One JSON object per entry instead of words, without a limit.

    Returns:
        Text for a terminal; control characters of the examples are made visible.
    """
    frame = all_refusals(settings)
    if source:
        frame = frame.filter(pl.col("source") == source)
    if rule:
        frame = frame.filter(_holds("rule", rule))
    if origin:
        frame = frame.filter(_holds("origin", origin))
    if as_json:
        return "\n".join(json.dumps(row, ensure_ascii=True) for row in frame.to_dicts())
    if frame.is_empty():
        return "Nothing is in quarantine" + (" that fits." if source or rule or origin else ".")
    return "\n".join(refusal_lines(frame, limit=limit))


def refusal_lines(refusals: pl.DataFrame, *, limit: int) -> list[str]:
    """Words refusals, the most frequent first.

    Args:
        refusals: `monitoring/quarantine`, not empty.
        limit: Most entries shown; what is left out is counted.
    """
    ranked = refusals.sort("count", *QUARANTINE.key, descending=[True] + [False] * 4)
    total, n_rules = int(ranked["count"].sum()), ranked["rule"].n_unique()
    lines = [f"{total:,} refused, by {n_rules} rule{'s' if n_rules > 1 else ''}:"]
    lines += [_entry(row) for row in ranked.head(limit).iter_rows(named=True)]
    if ranked.height > limit:
        lines.append(f"... and {ranked.height - limit} more entries; --limit shows more.")
    return lines


def _entry(row: dict[str, Any]) -> str:
    example = plain(row["example"]).removeprefix(f"{plain(row['origin'])}: ")
    shown = example if len(example) <= _EXAMPLE else example[: _EXAMPLE - 1] + "…"
    return (
        f"{row['count']:>9,}  {row['source']} to {row['table']}: {plain(row['rule'])}\n"
        f"           in {plain(row['origin'])}\n"
        f"           for example {shown}"
    )


def _holds(column: str, text: str) -> pl.Expr:
    return pl.col(column).str.to_lowercase().str.contains(text.lower(), literal=True)
