"""Reading a site's inputs once, to say what became of every record; nothing is stored.

How a format is parsed is in `pipelines.sources`.
"""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from pipelines.sources.readers import read_inputs
from pipelines.sources.site import load_inputs

_SHOWN_EXAMPLE = 100


def check_inputs(path: Path) -> str:
    """Reads every input and words the result.

    Args:
        path: YAML file that lists the inputs.

    Returns:
        One line per kind of source, then what was refused by rule with an example.

    Raises:
        ForewarnError: The list or an input cannot be read at all.
    """
    result = read_inputs(load_inputs(path), ingested_at=datetime.now(UTC))
    counts = ("n_read", "n_parsed", "n_skipped", "n_quarantined")
    totals = (
        result.reads.group_by("source", maintain_order=True)
        .agg(pl.len().alias("files"), pl.col(counts).sum())
        .iter_rows(named=True)
    )
    lines = [f"{'source':<16}{'files':>7}{'read':>12}{'parsed':>12}{'skipped':>12}{'refused':>9}"]
    lines += [
        f"{row['source']:<16}{row['files']:>7}{row['n_read']:>12,}{row['n_parsed']:>12,}"
        f"{row['n_skipped']:>12,}{row['n_quarantined']:>9,}"
        for row in totals
    ]
    lines += ["", "Rows by table:"]
    lines += [f"  {name:<24}{frame.height:>12,}" for name, frame in result.tables.items()]
    if result.quarantine.is_empty():
        return "\n".join([*lines, "", "Nothing was refused."])
    lines += ["", "Refused, by rule:"]
    rules = result.quarantine.group_by("source", "rule", maintain_order=True).agg(
        pl.col("count").sum(), pl.col("origin").first(), pl.col("example").first()
    )
    for row in rules.sort("count", descending=True).iter_rows(named=True):
        lines.append(f"  {row['count']:>6,}  {row['source']}: {row['rule']}")
        lines.append(f"          for example in {row['origin']}: {row['example'][:_SHOWN_EXAMPLE]}")
    return "\n".join(lines)
