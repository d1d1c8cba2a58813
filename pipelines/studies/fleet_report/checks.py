"""Whether a simulated fleet is what its parameters and published studies say: checks, verdict.

The tables come from `simulation.fleet.calibration`; nothing is simulated or drawn here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from scipy.stats import binomtest, chi2, kstest, norm, poisson

from models.evaluation.intervals import poisson_interval
from pipelines.report.words import counted, fault_words, percent
from pipelines.studies.fleet_report.evidence import Evidence
from pipelines.studies.fleet_report.page import rate
from simulation.fleet.generate import Fleet
from simulation.fleet.hazards import Hazards
from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import DAYS_PER_YEAR
from simulation.fleet.reliability import (
    RSC1_PER_NODE_DAY,
    RSC2_PER_NODE_DAY,
    failure_rate_per_node_day,
)

LEVEL: Final = 0.05
BEYOND_CHANCE: Final = 0.01
"""A miss that fewer than one page in a hundred would have by chance is none of chance's."""
LEAST_FAILURES: Final = 5
"""Shares and distributions of fewer values are not tested, nor courses of fewer in a stretch."""
LEAST_EXPECTED: Final = 1.0
"""Classes of which fewer are expected are not tested: one failure would be one too many."""
LEAST_FOR_LAWS: Final = 30
"""Published figures are not judged by fewer failures."""
BAND: Final = (0.2, 0.6)
"""Share of failures on the worst 5 % of nodes, as published."""
_SLOPE_BAND: Final = 0.05
_NAMED: Final = 6
"""Most misses that the verdict names."""


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes:
        part: Anchor of the part of the page that shows it.
        what: What was compared, in words.
        against: The regime's own parameters, or a published figure.
        stated: What it should be.
        found: What it is.
        is_met: Whether it is so within sampling error, or within the published range.
        p: How often chance alone would lie that far off; null for published ranges.
    """

    part: str
    what: str
    against: Literal["own", "published"]
    stated: str
    found: str
    is_met: bool
    p: float | None = None


def all_checks(evidence: Evidence) -> tuple[Check, ...]:
    """All checks in the order of the page.

    Args:
        evidence: What the page rests on.
    """
    tables = evidence.tables
    return (
        *_units_check(evidence.fleet),
        *rate_checks(tables.rates),
        *sign_checks(tables.signs),
        *distribution_checks(tables.leads, "leads"),
        *distribution_checks(tables.downtimes, "downtimes"),
        *tail_checks(tables.downtimes, tail_shares(evidence.fleet.regime)),
        *_over_time_check(tables.over_time),
        *_published(evidence),
    )


def _own(part: str, what: str, stated: str, found: str, p: float) -> Check:
    return Check(part, what, "own", stated, found, p >= LEVEL, p)


def _units_check(fleet: Fleet) -> list[Check]:
    """Rates of the units as they stand at the start, whose spread frailty sets."""
    hazards, regime = Hazards(fleet.regime, seed=fleet.seed), fleet.regime
    stated = sum(fault.per_gpu_year for fault in regime.faults) * regime.hazard_multiplier
    # Where air matters, that of a node's place raises its rate above the stated one.
    is_scaled = regime.frailty.is_fleet_mean_one or not hazards.is_even
    if stated == 0 or len(fleet.nodes) < 2 or is_scaled:
        return []
    drawn = np.array(
        [
            truth.hazard_factor
            * hazards.unit_rates(
                truth.node, np.array([gpu.hazard_factor for gpu in truth.node.gpus])
            ).sum()
            for truth in fleet.nodes
        ]
    )
    per_s = stated * regime.gpus_per_node / (DAYS_PER_YEAR * 86400)
    relative = drawn / per_s
    z = (relative.mean() - 1) / (relative.std(ddof=1) / sqrt(relative.size))
    found = f"{percent(float(relative.mean()))} of it"
    p = 2 * float(norm.sf(abs(z)))
    return [_own("rates", "failure rate of the units drawn", rate(stated), found, p)]


def rate_checks(rates: pl.DataFrame) -> list[Check]:
    """Failures of each class against those expected: exact, two-sided (Garwood).

    Args:
        rates: `simulation.fleet.calibration.rate_table`; classes of which less than one failure
            is expected are left out.
    """
    checks = []
    for row in rates.filter(pl.col("expected") >= LEAST_EXPECTED).iter_rows(named=True):
        count, expected = row["observed"], row["expected"]
        tails = poisson.cdf(count, expected), poisson.sf(count - 1, expected)
        low, high = poisson_interval(count)
        name = f"rate of {fault_words(row['fault_type'])}"
        found = f"{count:,} ({low:,.0f} to {high:,.0f})"
        p = float(min(1.0, 2 * min(tails)))
        checks.append(_own("rates", name, f"{expected:,.1f}", found, p))
    return checks


def sign_checks(signs: pl.DataFrame) -> list[Check]:
    """Failures without signs against the stated share: exact, two-sided.

    Args:
        signs: `simulation.fleet.calibration.sign_table`; classes that never announce
            themselves, and those with few failures, are left out.
    """
    rows = signs.filter(pl.col("kind").is_not_null(), pl.col("failures") >= LEAST_FAILURES)
    checks = []
    for row in rows.iter_rows(named=True):
        silent, n, stated = row["silent"], row["failures"], row["stated_share_without"]
        p = float(binomtest(silent, n, stated).pvalue)
        name = f"share of {fault_words(row['fault_type'])} without signs"
        checks.append(_own("signs", name, percent(stated), percent(silent / n), p))
    return checks


def distribution_checks(values: pl.DataFrame, part: Literal["leads", "downtimes"]) -> list[Check]:
    """Leads or downtimes against the stated log-uniform, by Kolmogorov and Smirnov.

    Args:
        values: `lead_table` or `downtime_table` of `simulation.fleet.calibration`.
        part: Which of them.
    """
    column = {"leads": "lead_h", "downtimes": "downtime_h"}[part]
    what = {"leads": "lead times", "downtimes": "downtimes"}[part]
    if part == "downtimes":  # the tail is a part of its own and starts at the range's end
        values = values.filter(pl.col("tail_h").is_null() | (pl.col(column) <= pl.col("high_h")))
    checks = []
    for (fault, low, high), group in values.group_by(
        "fault_type", "low_h", "high_h", maintain_order=True
    ):
        if group.height < LEAST_FAILURES or not high > low:
            continue
        place = np.log(group[column].to_numpy() / low) / log(high / low)
        p = float(kstest(place, "uniform").pvalue)
        median = f"median {rate(float(np.median(group[column].to_numpy())))} h"
        stated = f"{low:g} to {high:g} h, median {rate(sqrt(low * high))} h"
        is_one_of_two = values.filter(pl.col("fault_type") == fault)["low_h"].n_unique() > 1
        name = f"{what} of {fault_words(str(fault))}"
        name += f" ({low:g} to {high:g} h)" if is_one_of_two else ""
        checks.append(_own(part, name, stated, median, p))
    return sorted(checks, key=lambda check: check.what)


def tail_shares(regime: Regime) -> dict[str, float]:
    """Fault type -> share of its downtimes beyond the range; those without a tail are left out."""
    return {
        fault.fault_type: fault.downtime.tail_share
        for fault in regime.faults
        if fault.downtime.tail_h and fault.downtime.tail_share
    }


def tail_checks(downtimes: pl.DataFrame, tails: Mapping[str, float]) -> list[Check]:
    """Downtimes in the tail against the stated share: exact, two-sided.

    Args:
        downtimes: `simulation.fleet.calibration.downtime_table`.
        tails: `tail_shares`.
    """
    checks = []
    for fault, stated in tails.items():
        rows = downtimes.filter(pl.col("fault_type") == fault)
        beyond = rows.filter(pl.col("downtime_h") > pl.col("high_h")).height
        if rows.height >= LEAST_FAILURES:
            p = float(binomtest(beyond, rows.height, stated).pvalue)
            name = f"share of long downtimes of {fault_words(fault)}"
            found = percent(beyond / rows.height)
            checks.append(_own("downtimes", name, percent(stated), found, p))
    return checks


def _over_time_check(over_time: pl.DataFrame) -> list[Check]:
    """All failures by time against what air, driver and nodes in service lead to expect."""
    bins = over_time.group_by("day").agg(pl.col("expected", "observed").sum()).sort("day")
    expected, observed = bins["expected"].to_numpy(), bins["observed"].to_numpy()
    if expected.min() < LEAST_FAILURES:
        return []
    distance = float(((observed - expected) ** 2 / expected).sum())
    tails = chi2.cdf(distance, expected.size), chi2.sf(distance, expected.size)
    p = 2 * float(min(tails))
    found = f"chi-squared {distance:.0f} of {expected.size} stretches"
    stated = "the expected course"
    return [_own("time", "failures over time", stated, found, p)]


def _published(evidence: Evidence) -> list[Check]:
    checks = [
        *slope_check(evidence.tables.mttf),
        *job_checks(evidence.jobs),
        *_summit_checks(evidence.summit),
    ]
    if sum(incident.is_noticed for incident in evidence.fleet.incidents) < LEAST_FOR_LAWS:
        return checks
    per_1000 = 1000 * failure_rate_per_node_day(evidence.fleet)
    low, high = 1000 * RSC2_PER_NODE_DAY, 1000 * RSC1_PER_NODE_DAY
    stated = f"{low:.2f} to {high:.2f} (Meta's RSC-2 and RSC-1)"
    is_met = low <= per_1000 <= high
    name = "failures per 1,000 node-days"
    frequency = Check("mttf", name, "published", stated, f"{per_1000:.2f}", is_met)
    return [frequency, *capture_check(evidence.tables.capture), *checks]


def capture_check(capture: pl.DataFrame) -> list[Check]:
    """Later failures on the worst 5 % of nodes against the published range.

    Args:
        capture: `simulation.fleet.calibration.capture_curve`.
    """
    captured = capture.filter(pl.col("share_of_nodes") == 0.05)["captured_second_half"].item()
    if captured is None:
        return []
    name = "share of later failures on the worst 5 % of nodes"
    is_met = BAND[0] <= captured <= BAND[1]
    return [Check("capture", name, "published", "20 to 60 %", percent(captured), is_met)]


def slope_check(mttf: pl.DataFrame) -> list[Check]:
    """The law 1/N: the slope of mean time to failure against GPUs on logarithmic axes.

    Args:
        mttf: `simulation.fleet.reliability.mttf_by_size`.
    """
    rows = mttf.filter(pl.col("failures") >= LEAST_FOR_LAWS)
    if rows.height < 3:
        return []
    slope, _ = np.polyfit(np.log(rows["n_gpus"].to_numpy()), np.log(rows["mttf_h"].to_numpy()), 1)
    name = "mean time to failure against GPUs, exponent"
    is_met = abs(float(slope) + 1) <= _SLOPE_BAND
    stated = f"-1 ± {_SLOPE_BAND:g} (Meta's law 1/N)".replace("-", "\u2212", 1)
    return [Check("mttf", name, "published", stated, f"\u2212{abs(slope):.2f}", is_met)]


def job_checks(jobs: pl.DataFrame) -> list[Check]:
    """The job mix against the shares published for large clusters.

    Args:
        jobs: `pipelines.studies.fleet_report.evidence.job_mix`.
    """
    if jobs["jobs"].sum() == 0 or jobs["gpu_h"].sum() == 0:
        return []
    on_node, big = pl.col("n_gpus") <= 8, pl.col("n_gpus") >= 256
    one = jobs.filter(pl.col("n_gpus") == 1)["job_share"].sum()
    node = jobs.filter(on_node)["job_share"].sum()
    node_time = jobs.filter(on_node)["time_share"].sum()
    big_time = jobs.filter(big)["time_share"].sum()
    rows = [
        ("jobs of one GPU", "more than 40 %", one, one > 0.4),
        ("jobs that fit one node", "more than 90 %", node, node > 0.9),
        ("GPU time of jobs that fit one node", "less than 10 %", node_time, node_time < 0.1),
        ("GPU time of jobs of 256 GPUs and more", "half or more", big_time, big_time >= 0.5),
    ]
    return [
        Check("jobs", name, "published", stated, percent(float(found)), bool(is_met))
        for name, stated, found, is_met in rows
    ]


def _summit_checks(summit: pl.DataFrame | None) -> list[Check]:
    if summit is None:
        return []
    by_xid: dict[int, dict[str, Any]] = {row["xid"]: row for row in summit.iter_rows(named=True)}
    shares = [by_xid[code]["simulated_share"] or 0.0 for code in (31, 13, 43)]
    found = ", ".join(percent(share) for share in shares)
    is_met = shares == sorted(shares, reverse=True) and sum(shares) > 0.9
    name = "Xids 31, 13, 43: most of all, and in this order"
    return [Check("xids", name, "published", "77 %, 13 %, 9 % (Summit)", found, is_met)]


def verdict(checks: Sequence[Check]) -> str:
    """One or two sentences on how far a fleet is what it should be.

    A 95 % interval misses one time in twenty; so many misses are no fault. Those of
    `beyond_chance` are.

    Args:
        checks: All checks.
    """
    own = [check for check in checks if check.against == "own"]
    published = [check for check in checks if check.against == "published"]
    return " ".join(said for said in (_own_verdict(own), _published_verdict(published)) if said)


def _own_verdict(own: Sequence[Check]) -> str:
    if not own:
        return "Too few failures to check the regime's own parameters."
    missed = [check for check in own if not check.is_met]
    said = (
        f"{len(own) - len(missed)} of {counted(len(own), 'check')} against the regime's own "
        f"parameters lie within sampling error (95 %; chance alone puts about "
        f"{len(own) * LEVEL:.1f} outside)."
    )
    if not missed:
        return said
    beyond = beyond_chance(own)
    judged = f"beyond chance: {_named(beyond)}" if beyond else "none beyond chance"
    return f"{said} Outside: {_named(missed)}; {judged}."


def _published_verdict(published: Sequence[Check]) -> str:
    if not published:
        return ""
    off = [check for check in published if not check.is_met]
    said = f"{len(published) - len(off)} of {counted(len(published), 'published figure')} met"
    return f"{said}; not met: {_named(off)}." if off else f"{said}."


def beyond_chance(own: Sequence[Check]) -> list[Check]:
    """Checks so far off that less than one page in a hundred has one by chance (Bonferroni)."""
    return [check for check in own if check.p is not None and check.p < BEYOND_CHANCE / len(own)]


def _named(checks: Sequence[Check]) -> str:
    names = [
        check.what if check.p is None else f"{check.what} (p = {check.p:.2g})"
        for check in checks[:_NAMED]
    ]
    rest = len(checks) - len(names)
    return ", ".join(names) + (f" and {rest} more" if rest else "")
