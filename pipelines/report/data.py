"""What a report says on its data: what became of every record, and what was refused.

Coverage comes with the scores; text is not escaped here.
"""

import polars as pl

from pipelines.report.plan import Listing, Row
from pipelines.report.words import plain, short

MAX_REFUSED = 40
EXAMPLE_SIGNS = 160


def read_rows(reads: pl.DataFrame) -> tuple[Row, ...]:
    """What became of the records of each kind of source, and whether the sum is right."""
    counts = ("n_read", "n_parsed", "n_skipped", "n_quarantined")
    sums = (
        reads.group_by("source")
        .agg(pl.len().alias("n_inputs"), *(pl.col(name).sum() for name in counts))
        .sort("source")
    )
    rows = []
    for row in sums.iter_rows(named=True):
        lost = row["n_read"] - row["n_parsed"] - row["n_skipped"] - row["n_quarantined"]
        rows.append(
            {
                "source": plain(row["source"]),
                "cells": [f"{row[name]:,}" for name in ("n_inputs", *counts)],
                "is_whole": lost == 0,
                "check": "all accounted for" if lost == 0 else f"{lost:+,} unaccounted for",
            }
        )
    return tuple(rows)


def refused_rows(quarantine: pl.DataFrame) -> Listing:
    """Rules broken, the most frequent first, with one example each."""
    ordered = quarantine.sort(
        ["count", "table", "source", "origin", "rule"], descending=[True, *[False] * 4]
    )
    rows = tuple(
        {
            "table": plain(row["table"]),
            "origin": short(row["origin"], 48),
            "rule": plain(row["rule"]),
            "count": f"{row['count']:,}",
            "example": short(row["example"], EXAMPLE_SIGNS),
        }
        for row in ordered.head(MAX_REFUSED).iter_rows(named=True)
    )
    return Listing(rows, ordered.height - len(rows))
