"""The page that holds a synthetic fleet against its own parameters and published laws.

Its parts are made in the other modules of this package, the layout is in `templates/`.
"""

from pathlib import Path
from typing import Final

import polars as pl

from pipelines.report import words as report_words
from pipelines.report.figure import TONES
from pipelines.report.page import page_environment
from pipelines.report.words import Tile, counted, percent
from pipelines.studies.fleet_report.checks import Check, all_checks, tail_shares, verdict
from pipelines.studies.fleet_report.evidence import Evidence, gather_evidence, read_summit_counts
from pipelines.studies.fleet_report.faults import downtimes_part, leads_part, rates_part, signs_part
from pipelines.studies.fleet_report.laws import capture_part, mttf_part, summit_part
from pipelines.studies.fleet_report.look import look_part
from pipelines.studies.fleet_report.page import Part, rate
from pipelines.studies.fleet_report.use import ceiling_part, jobs_part, time_part
from simulation.fleet.regime import Regime
from simulation.fleet.reliability import failure_rate_per_node_day
from simulation.regimes.load import load_regime

COMPARED_SIZE: Final = 1024


def write_fleet_report(
    out: Path,
    *,
    regime: str,
    nodes: int | None,
    days: float | None,
    seed: int | None,
    summit: Path | None,
) -> str:
    """Simulates a fleet and writes its page.

    Args:
        out: HTML file to write.
        regime: Named regime, or the path of a regime file.
        nodes: Number of nodes; null: 2,500, or fewer where they fail so often that fewer tell.
        days: Length; null: 365.
        seed: Seed; null: the regime's.
        summit: CSV file with Summit's counts of Xids; null: no comparison with them.

    Returns:
        The sentence to print.

    Raises:
        SettingsError: There is no such regime, or no node or no time.
        SourceError: Summit's counts cannot be read.
    """
    counts = read_summit_counts(summit) if summit else None
    found = load_regime(regime)
    evidence = gather_evidence(
        found,
        nodes=nodes,
        days=days,
        seed=found.seed if seed is None else seed,
        summit=counts,
    )
    checks = all_checks(evidence)
    page = render_fleet_report(evidence, checks)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8", newline="\n")
    return f"Wrote {out}. {verdict(checks)}"


def render_fleet_report(evidence: Evidence, checks: tuple[Check, ...]) -> str:
    """Renders the page, which needs nothing else.

    Args:
        evidence: What it rests on.
        checks: What was checked.

    Returns:
        The page: the same text for the same arguments. The regime's name and note are escaped.
    """
    fleet = evidence.fleet
    return page_environment().get_template("fleet_report.html.j2").render(
        regime=fleet.regime,
        seed=fleet.seed,
        gpus=fleet.regime.nodes * fleet.regime.gpus_per_node,
        gpu_years=rate(evidence.gpu_years),
        words=report_words,
        tones=TONES,
        verdict=verdict(checks),
        checks=checks,
        tiles=_tiles(evidence),
        parts=_parts(evidence),
    )  # fmt: skip


def _parts(evidence: Evidence) -> tuple[Part, ...]:
    fleet, tables = evidence.fleet, evidence.tables
    return (
        rates_part(tables.rates, gpu_years=evidence.gpu_years),
        signs_part(tables.signs),
        leads_part(tables.leads),
        downtimes_part(tables.downtimes, tails=tail_shares(fleet.regime)),
        capture_part(tables.capture),
        mttf_part(tables.mttf, per_node_day=failure_rate_per_node_day(fleet)),
        summit_part(
            evidence.summit, gpu_years=evidence.job_gpu_years, asked=_summit_command(fleet.regime)
        ),
        time_part(tables.over_time, regime=fleet.regime),
        jobs_part(evidence.jobs, days=evidence.job_days),
        ceiling_part(evidence.ceiling),
        look_part(evidence.look),
    )


def _summit_command(regime: Regime) -> str:
    name = report_words.plain(regime.name)
    return f"forewarn simulate report --regime {name} --summit FILE --out PAGE"


def _tiles(evidence: Evidence) -> tuple[Tile, ...]:
    fleet, tables = evidence.fleet, evidence.tables
    signs = tables.signs
    failures = int(signs["failures"].sum())
    announced = 1 - int(signs["silent"].sum()) / failures if failures else None
    top = tables.capture.filter(pl.col("share_of_nodes") == 0.05)["captured_second_half"].item()
    tiles = [
        Tile(
            f"{1000 * failure_rate_per_node_day(fleet):.2f}",
            "failures per 1,000 node-days",
            "Meta's RSC-1 6.50, RSC-2 2.34",
        ),
        Tile(percent(announced), "of failures give signs", counted(failures, "failure")),
        Tile(percent(top), "of later failures on the worst 5 % of nodes", "published 20 to 60 %"),
    ]
    job = tables.mttf.filter(
        pl.col("n_gpus") <= COMPARED_SIZE, pl.col("mttf_h").is_not_null()
    ).tail(1)
    if not job.is_empty():
        row = job.row(0, named=True)
        label = f"mean time to failure of a job of {row['n_gpus']:,} GPUs"
        note = f"RSC-1 {rate(row['rsc1_h'])} h, RSC-2 {rate(row['rsc2_h'])} h"
        tiles.append(Tile(f"{rate(row['mttf_h'])} h", label, note))
    return tuple(tiles)
