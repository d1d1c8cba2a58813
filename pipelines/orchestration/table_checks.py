"""Whether a table looks as it should: counts of its newest part against those of days before. Pure.

What breaks a table's contract is refused when it is written; here is what holds the contract and
is odd all the same. Counts come from `pipelines.orchestration.table_stats`, Dagster is told in
`defs.checks`.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import polars as pl

LEAST_TRAILING: Final = 3
"""Fewer parts of days before are no usual day to compare with."""
VOLUME_BAND: Final = (0.5, 2.0)
"""Rows of an hour, of its usual number: half a fleet silent, or each sample twice."""
FEW_ROWS: Final = 20
"""Below it counts scatter beyond the band by themselves."""
NULL_RISE: Final = 0.2
"""A column that is null in a fifth more of the rows than usual: its exporter changed."""
MAX_POSITIVE_SHARE: Final = 0.2
"""Above it "a failure" is not what the labels mean."""
MAX_NULL_LABELS: Final = 0.5
MAX_REJECTED_SHARE: Final = 0.01
"""Above this share of refused records an input has changed its format, not lost a line."""


@dataclass(frozen=True, kw_only=True)
class PartStats:
    """What a part of a table holds, by its metadata.

    Attributes:
        start: Start of the hour or day that is meant.
        rows: Rows; of a file of many hours, its mean hour.
        null_shares: Share of nulls by column, those known.
    """

    start: datetime
    rows: float
    null_shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a check found.

    Attributes:
        is_passed: Whether all is as it should be.
        words: In one sentence.
        values: The numbers behind it.
    """

    is_passed: bool
    words: str
    values: Mapping[str, float | int | str] = field(default_factory=dict)


NOTHING_YET: Final = Verdict(is_passed=True, words="nothing is stored yet")
"""For what looks into a table that a young installation has not made: not a fault of anyone."""


def freshness(covered_until: datetime | None, *, end: datetime, limit: timedelta) -> Verdict:
    """Whether the newest data is young: by its own time, not by when it was written.

    Args:
        covered_until: End of the newest stored part with rows; None: there is none that is young.
        end: Now, or the end of the record.
        limit: Oldest age that is fine.
    """
    if covered_until is None:
        return Verdict(is_passed=False, words=f"no row of the last {_hours(limit)} is stored")
    age = max(timedelta(0), end - covered_until)
    return Verdict(
        is_passed=age <= limit,
        words=f"data reaches to {covered_until:%Y-%m-%d %H:%M} UTC, {_hours(age)} ago; "
        f"at most {_hours(limit)}",
        values={"age h": round(age / timedelta(hours=1), 2)},
    )


def volume(
    newest: PartStats | None, trailing: Sequence[PartStats], *, comes_in_bursts: bool = False
) -> Verdict:
    """Whether the newest part has about as many rows as the same hour of days before.

    Args:
        newest: The newest part; None: nothing is stored.
        trailing: The same hour of the days before, those stored.
        comes_in_bursts: Whether a broken GPU fills an hour with events, and a quiet hour is no
            fault: only none at all, where many are usual, is odd.
    """
    if newest is None:
        return Verdict(is_passed=False, words="nothing is stored")
    if len(trailing) < LEAST_TRAILING:
        return Verdict(
            is_passed=True,
            words=f"{newest.rows:,.0f} rows; no {LEAST_TRAILING} days before to compare with",
            values={"rows": newest.rows},
        )
    usual = statistics.median(part.rows for part in trailing)
    low, high = (edge * usual for edge in VOLUME_BAND)
    is_few = max(usual, newest.rows) < FEW_ROWS
    is_usual = newest.rows > 0 if comes_in_bursts else low <= newest.rows <= high
    return Verdict(
        is_passed=is_few or is_usual,
        words=f"{newest.rows:,.0f} rows, usual at this hour {usual:,.0f}",
        values={"rows": newest.rows, "usual rows": usual},
    )


def null_shares(newest: PartStats | None, trailing: Sequence[PartStats]) -> Verdict:
    """Whether any column is null more often than in days before.

    Args:
        newest: The newest part; None: nothing is stored.
        trailing: As in `volume`.
    """
    parts = [part for part in trailing if part.rows]
    if newest is None or newest.rows < FEW_ROWS or len(parts) < LEAST_TRAILING:
        return Verdict(is_passed=True, words="not enough rows to compare")
    risen = {}
    for column, share in newest.null_shares.items():
        usual = statistics.median(part.null_shares.get(column, 1.0) for part in parts)
        if share - usual > NULL_RISE:
            risen[column] = (share, usual)
    worst = sorted(risen, key=lambda name: risen[name][1] - risen[name][0])
    named = ", ".join(f"{n} {risen[n][0]:.0%} (usual {risen[n][1]:.0%})" for n in worst[:3])
    return Verdict(
        is_passed=not risen,
        words=f"{len(risen)} columns are null more often: {named}" if risen else "as usual",
        values={"columns": len(risen)},
    )


def filled(rows: int | None) -> Verdict:
    """Whether a table that is kept whole has any row.

    Args:
        rows: Rows; None: it was never stored.
    """
    if rows is None:
        return Verdict(is_passed=False, words="nothing is stored")
    return Verdict(is_passed=rows > 0, words=f"{rows:,} rows", values={"rows": rows})


def unique_keys(frame: pl.DataFrame, key: Sequence[str]) -> Verdict:
    """Whether no two rows have the same key, also in different parts.

    Args:
        frame: Rows, at least with the columns of the key.
        key: The key.
    """
    repeats = frame.height - frame.select(key).n_unique() if frame.height else 0
    example = ""
    if repeats:
        first = frame.select(key).filter(pl.struct(key).is_duplicated()).row(0, named=True)
        example = f", for example {first}"
    return Verdict(
        is_passed=not repeats,
        words=f"{repeats} of {frame.height:,} rows repeat a key{example}",
        values={"repeats": repeats},
    )


def label_balance(labels: pl.DataFrame) -> Verdict:
    """Whether a day's labels are such as a model can learn from.

    Args:
        labels: features/labels of a day: `horizon_h`, `label`, at least.
    """
    if labels.is_empty():
        return Verdict(is_passed=False, words="the day has no rows")
    shares = (
        labels.group_by("horizon_h")
        .agg(
            unknown=pl.col("label").is_null().mean(),
            positive=pl.col("label").mean().fill_null(0.0),
        )
        .sort("horizon_h")
    )
    odd = shares.filter(
        (pl.col("unknown") > MAX_NULL_LABELS) | (pl.col("positive") > MAX_POSITIVE_SHARE)
    )
    told = [f"{h} h: {p:.2%} positive, {u:.0%} unknown" for h, u, p in shares.iter_rows()]
    return Verdict(
        is_passed=odd.is_empty(),
        words="; ".join(told),
        values={f"positive {h} h": round(p, 6) for h, _, p in shares.iter_rows()},
    )


def unknown_share(scores: pl.DataFrame, *, most: float) -> Verdict:
    """Whether most entities of a moment have a score.

    Args:
        scores: scores/gpu_scores or scores/node_scores of one moment: `status`, at least.
        most: Largest share without a score that is fine.
    """
    if scores.is_empty():
        return Verdict(is_passed=False, words="nothing is scored")
    share = scores.filter(pl.col("status") == "unknown").height / scores.height
    return Verdict(
        is_passed=share <= most,
        words=f"{share:.1%} of rows have no score, at most {most:.0%}",
        values={"unknown share": round(share, 4)},
    )


def no_drift(drift: pl.DataFrame) -> Verdict:
    """Whether inputs and scores of the newest week are as in training.

    Args:
        drift: monitoring/drift.
    """
    if drift.is_empty():
        return Verdict(is_passed=True, words="no champion has a whole week behind it")
    alarms = drift.filter(pl.col("week") == pl.col("week").max(), pl.col("is_alarm"))
    named = "; ".join(alarms["sentence"].head(2))
    return Verdict(
        is_passed=alarms.is_empty(),
        words=f"{alarms.height} alarms: {named}" if alarms.height else "as in training",
        values={"alarms": alarms.height},
    )


def few_rejected(quarantine: pl.DataFrame, *, n_read: int) -> Verdict:
    """Whether few records break a table's contract, or cannot be built from.

    Args:
        quarantine: monitoring/quarantine.
        n_read: Records read in all.
    """
    of_tables = quarantine.filter(pl.col("source").is_in(["contract", "core_build"]))
    rejected = int(of_tables["count"].sum())
    share = rejected / max(1, n_read)
    worst = of_tables.sort("count", descending=True).head(2)
    named = "; ".join(f"{t}: {r} ({n})" for t, r, n in worst["table", "rule", "count"].iter_rows())
    return Verdict(
        is_passed=share <= MAX_REJECTED_SHARE,
        words=f"{rejected:,} rows refused, {share:.2%} of records{': ' + named if named else ''}",
        values={"refused": rejected, "share": round(share, 6)},
    )


def nothing_lost(reads: pl.DataFrame) -> Verdict:
    """Whether every record read was parsed, skipped or refused, and few were refused.

    Args:
        reads: monitoring/reads.
    """
    kept = pl.col("n_parsed") + pl.col("n_skipped") + pl.col("n_quarantined")
    lost = reads.filter(pl.col("n_read") != kept)
    share = int(reads["n_quarantined"].sum()) / max(1, int(reads["n_read"].sum()))
    return Verdict(
        is_passed=lost.is_empty() and share <= MAX_REJECTED_SHARE,
        words=f"{lost.height} files lost records; {share:.2%} of all were refused",
        values={"files that lost records": lost.height, "quarantined share": share},
    )


def none_set_aside(hours: Mapping[datetime, int]) -> Verdict:
    """Whether every hour that is due could be made.

    Args:
        hours: Hours that were set aside, with the number of their failures.
    """
    named = ", ".join(f"{hour:%Y-%m-%d %H:%M} ({n})" for hour, n in sorted(hours.items())[:5])
    return Verdict(
        is_passed=not hours,
        words=f"{len(hours)} hours failed again and again: {named}" if hours else "none",
        values={"hours": len(hours)},
    )


def _hours(length: timedelta) -> str:
    return f"{length / timedelta(hours=1):.1f} h"
