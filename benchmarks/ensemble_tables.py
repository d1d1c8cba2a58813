"""The tables of `benchmarks.ensembles`, from its counts: mean and spread over seeds.

Nothing is fitted here. Run as `python -m benchmarks.ensemble_tables DIR`.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from models.ensembles.study import ALL, NEVER, SLIDING


def pooled(counts: pl.DataFrame, *, by: Sequence[str]) -> pl.DataFrame:
    """Precision, recall and F1 of all windows together per seed, then mean and spread.

    Args:
        counts: Rows of `models.ensembles.study.run_study`, with `seed`.
        by: Columns that are kept apart.

    Returns:
        One row each, in the order they came in, with the mean and the standard deviation over
        seeds of `alerts`, `precision`, `recall`, `f1` and `ap`.
    """
    per_seed = counts.group_by(*by, "seed", maintain_order=True).agg(
        alerts=pl.col("n_alerts").sum(),
        precision=pl.col("n_true").sum() / pl.col("n_alerts").sum(),
        recall=pl.col("n_true").sum() / pl.col("n_positive").sum(),
        f1=2 * pl.col("n_true").sum() / (pl.col("n_alerts").sum() + pl.col("n_positive").sum()),
        ap=pl.col("average_precision").mean(),
    )
    measures = ["alerts", "precision", "recall", "f1", "ap"]
    return per_seed.group_by(by, maintain_order=True).agg(
        *(pl.col(name).mean() for name in measures),
        *(pl.col(name).std().alias(f"{name}_sd") for name in measures),
    )


def tables(counts: pl.DataFrame) -> list[str]:
    """All tables of one data set as lines of Markdown.

    Args:
        counts: Counts of all seeds, with `seed`.
    """
    lines = [f"{counts['seed'].n_unique()} seeds, {counts['origin'].n_unique()} windows"]
    for share in sorted(set(counts["share"])):
        part = counts.filter(pl.col("share") == share)
        lines += ["", f"K = {share:.2%}, {ALL}", "", *_by_model(part)]
        lines += ["", f"Precision % by window, K = {share:.2%}", "", *_by_window(part)]
    return [*lines, "", *_lengths(counts)]


def _by_model(counts: pl.DataFrame) -> list[str]:
    """Each model at K alerts, and at as many alerts as each intersection has."""
    now = counts.filter(pl.col("retraining") == ALL)
    matched = pooled(now.filter(pl.col("matched_to").is_not_null()), by=["model", "matched_to"])
    ensembles = list(dict.fromkeys(matched["matched_to"]))
    heads = ["model", "alerts", "precision %", "recall %", "F1 %", "AP"]
    heads += [f"precision % at the alerts of {ensemble}" for ensemble in ensembles]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in pooled(now.filter(pl.col("matched_to").is_null()), by=["model"]).to_dicts():
        cells = [row["model"], f"{row['alerts']:.0f}"]
        cells += [_percent(row, name) for name in ("precision", "recall", "f1")]
        cells.append(f"{row['ap']:.3f} ± {row['ap_sd'] or 0:.3f}")
        for ensemble in ensembles:
            is_this = (pl.col("model") == row["model"]) & (pl.col("matched_to") == ensemble)
            cells.append(_percent(matched.row(by_predicate=is_this, named=True), "precision"))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _by_window(counts: pl.DataFrame) -> list[str]:
    free = counts.filter(pl.col("matched_to").is_null())
    found = pooled(free, by=["model", "retraining", "origin"])
    overall = pooled(free, by=["model", "retraining"])
    origins = sorted(set(free["origin"]))
    heads = ["model", "retraining", *(f"{origin:%Y-%m-%d}" for origin in origins), "all"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for model in dict.fromkeys(free["model"]):
        for retraining in (NEVER, ALL, SLIDING):
            is_this = (pl.col("model") == model) & (pl.col("retraining") == retraining)
            cells = [model, retraining]
            of_windows = found.filter(is_this).sort("origin").to_dicts()
            cells += [_percent(row, "precision") for row in of_windows]
            cells.append(_percent(overall.row(by_predicate=is_this, named=True), "precision"))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _lengths(counts: pl.DataFrame) -> list[str]:
    chosen = counts.filter(pl.col("retraining") == SLIDING).select("seed", "origin", "train_days")
    lines = ["Chosen lengths, days (null: all):"]
    return lines + [
        f"seed {seed}, {origin:%Y-%m-%d}: {days}"
        for seed, origin, days in chosen.unique().sort("seed", "origin").iter_rows()
    ]


def _percent(row: dict[str, float | None], name: str) -> str:
    mean, spread = row[name], row[f"{name}_sd"]
    # Without any alert precision is not a number.
    if mean is None or math.isnan(mean):
        return "-"
    return f"{100 * mean:.1f} ± {100 * (spread or 0.0):.1f}"


def main(folder: Path) -> None:
    """Prints the tables of every data set in the folder."""
    for kind in ("grid5000", "titan", "fleet"):
        parts = [
            pl.read_parquet(path).with_columns(seed=pl.lit(int(path.stem.split("-")[1])))
            for path in sorted(folder.glob(f"{kind}-*.parquet"))
        ]
        if parts:
            counts = pl.concat(parts, how="vertical_relaxed")
            print("\n".join([f"## {kind}", *tables(counts), ""]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
