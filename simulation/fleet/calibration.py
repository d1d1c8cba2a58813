"""A simulated fleet held against its own parameters and published laws, as tables to plot or test.

The laws of jobs and the mix of Xids are computed in `simulation.fleet.reliability`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from models.evaluation.intervals import poisson_interval
from simulation.fleet.generate import Fleet
from simulation.fleet.hazards import Hazards
from simulation.fleet.incidents import Incident
from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import DAYS_PER_YEAR
from simulation.fleet.reliability import compare_with_summit, count_xids, mttf_by_size

CAPTURE_SHARES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Calibration:
    """Tables behind a page of plots; the columns are those of the functions named.

    Attributes:
        rates: `rate_table`.
        signs: `sign_table`.
        leads: `lead_table`.
        downtimes: `downtime_table`.
        capture: `capture_curve`.
        mttf: `simulation.fleet.reliability.mttf_by_size`.
        over_time: `hazards_over_time`.
        summit: `simulation.fleet.reliability.compare_with_summit`; null without its counts.
    """

    rates: pl.DataFrame
    signs: pl.DataFrame
    leads: pl.DataFrame
    downtimes: pl.DataFrame
    capture: pl.DataFrame
    mttf: pl.DataFrame
    over_time: pl.DataFrame
    summit: pl.DataFrame | None


def calibrate(fleet: Fleet, *, summit: Mapping[str, int] | None = None) -> Calibration:
    """All tables that hold a fleet against its parameters and published laws.

    Args:
        fleet: A fleet; failures alone suffice, but for the mix of Xids, which needs jobs.
        summit: Events by Summit's name of the failure; null: no comparison.

    Returns:
        The tables.
    """
    gpu_years = len(fleet.nodes) * fleet.regime.gpus_per_node * fleet.regime.days / DAYS_PER_YEAR
    mix = None
    if summit is not None:
        mix = compare_with_summit(count_xids(fleet), summit, gpu_years=gpu_years)
    return Calibration(
        rates=rate_table(fleet),
        signs=sign_table(fleet),
        leads=lead_table(fleet),
        downtimes=downtime_table(fleet),
        capture=capture_curve(fleet),
        mttf=mttf_by_size(fleet),
        over_time=hazards_over_time(fleet),
        summit=mix,
    )


def rate_table(fleet: Fleet) -> pl.DataFrame:
    """Failures per class against the fault table.

    Args:
        fleet: The fleet.

    Returns:
        One row per class: `fault_type`, `observed` failures, `expected` ones given the frailties
        drawn and the time in service, `stated_per_gpu_year` times the multiplier,
        `observed_per_gpu_year` in service, and `low_per_gpu_year` and `high_per_gpu_year`, its
        exact 95 % interval.
    """
    regime = fleet.regime
    expected = np.sum([truth.expected_by_fault for truth in fleet.nodes], axis=0)
    exposure_s = sum(truth.exposure_s for truth in fleet.nodes)
    years = exposure_s * regime.gpus_per_node / 86400 / DAYS_PER_YEAR
    rows = []
    for index, fault in enumerate(regime.faults):
        count = sum(i.fault.fault_type == fault.fault_type for i in fleet.incidents)
        low, high = poisson_interval(count)
        rows.append(
            {
                "fault_type": fault.fault_type,
                "observed": count,
                "expected": float(expected[index]),
                "stated_per_gpu_year": fault.per_gpu_year * regime.hazard_multiplier,
                "observed_per_gpu_year": count / years,
                "low_per_gpu_year": low / years,
                "high_per_gpu_year": high / years,
            }
        )
    return pl.DataFrame(rows)


def sign_table(fleet: Fleet) -> pl.DataFrame:
    """How many failures announced themselves, and how many decoys there were.

    Returns:
        One row per class: `fault_type`, `kind` of its signs (null: none), `failures`, `silent`
        ones, `stated_share_without`, and `decoys` of that kind, which classes may share.
    """
    decoys = [decoy.kind for truth in fleet.nodes for decoy in truth.decoys]
    rows = []
    for fault in fleet.regime.faults:
        found = [i for i in fleet.incidents if i.fault.fault_type == fault.fault_type]
        signs = fault.precursor
        rows.append(
            {
                "fault_type": fault.fault_type,
                "kind": signs.kind if signs else None,
                "failures": len(found),
                "silent": sum(i.precursor is None for i in found),
                "stated_share_without": signs.share_without if signs else 1.0,
                "decoys": decoys.count(signs.kind) if signs else 0,
            }
        )
    return pl.DataFrame(rows)


def lead_table(fleet: Fleet) -> pl.DataFrame:
    """Times from the first sign to the onset, where the longest lead would have had room.

    Signs do not begin before their GPU was there, or the record; failures that soon after it
    would bias the leads and are left out.

    Returns:
        One row per announced failure: `fault_type`, `lead_h`, and `low_h`, `high_h` as stated.
    """
    rows = []
    for incident in fleet.incidents:
        stated, signs = incident.fault.precursor, incident.precursor
        if stated is None or signs is None:
            continue
        since_s = incident.onset_s - _arrival_s(fleet, incident)
        if since_s >= stated.lead_h[1] * 3600:
            lead_h = (incident.onset_s - signs.start_s) / 3600
            rows.append((incident.fault.fault_type, lead_h, *stated.lead_h))
    numbers = dict.fromkeys(("lead_h", "low_h", "high_h"), pl.Float64())
    return pl.DataFrame(
        rows, schema=pl.Schema({"fault_type": pl.String(), **numbers}), orient="row"
    )


def _arrival_s(fleet: Fleet, incident: Incident) -> int:
    """When the failed GPU came; 0 where it was there from the start, or a node failed."""
    stays = fleet.nodes[incident.node].stays
    return next((stay.from_s or 0 for stay in stays if stay.gpu.gpu_uuid == incident.gpu_uuid), 0)


def downtime_table(fleet: Fleet) -> pl.DataFrame:
    """Hours out of service of each noticed failure.

    Returns:
        `fault_type`, `is_replaced`, `downtime_h`, and `low_h`, `high_h`, `tail_h` as stated for
        such a failure (`tail_h` null: no tail).
    """
    rows = []
    for incident in fleet.incidents:
        stated = incident.fault.downtime
        bounds = stated.range_h
        if incident.is_replaced and stated.replaced_range_h:
            bounds = stated.replaced_range_h
        if incident.is_noticed:
            hours = (incident.end_s - incident.onset_s) / 3600
            rows.append(
                (incident.fault.fault_type, incident.is_replaced, hours, *bounds, stated.tail_h)
            )
    numbers = dict.fromkeys(("downtime_h", "low_h", "high_h", "tail_h"), pl.Float64())
    schema = pl.Schema({"fault_type": pl.String(), "is_replaced": pl.Boolean(), **numbers})
    return pl.DataFrame(rows, schema=schema, orient="row")


def capture_curve(fleet: Fleet, *, shares: Sequence[float] = CAPTURE_SHARES) -> pl.DataFrame:
    """What share of failures falls on the nodes that failed most in the first half of the record.

    Args:
        fleet: The fleet.
        shares: Shares of nodes.

    Returns:
        One row per share: `share_of_nodes`, `captured_first_half` (of the failures by which nodes
        are ranked), `captured_second_half` (of those that came after), and `law`: what a gamma
        frailty of the regime's unevenness leads to expect of the second half. Nodes with equal
        counts share what they hold.
    """
    half_s = fleet.end_s / 2
    before, after = np.zeros(len(fleet.nodes)), np.zeros(len(fleet.nodes))
    for incident in fleet.incidents:
        (before if incident.onset_s < half_s else after)[incident.node] += 1
    law = _NegativeBinomial(unevenness(fleet.regime), mean=float(before.mean()))
    return pl.DataFrame(
        {
            "share_of_nodes": list(shares),
            "captured_first_half": [_captured(before, before, share=s) for s in shares],
            "captured_second_half": [_captured(before, after, share=s) for s in shares],
            "law": [law.captured(share=s) for s in shares],
        }
    )


def _captured(rank_by: np.ndarray, counts: np.ndarray, *, share: float) -> float | None:
    """Share of counts on the highest-ranked nodes; a class of equals is taken in part."""
    if counts.sum() == 0:
        return None
    left, total = share * rank_by.size, 0.0
    for value in np.unique(rank_by)[::-1]:
        alike = rank_by == value
        part = min(1.0, left / alike.sum())
        total += part * float(counts[alike].sum())
        left -= part * float(alike.sum())
    return total / float(counts.sum())


def unevenness(regime: Regime) -> float:
    """Squared coefficient of variation of nodes' failure rates: frailty, place, GPUs, batches."""
    frailty, rack = regime.frailty, regime.hardware.nodes_per_rack
    places = np.array([1.0] * (rack - 1) + [frailty.top_of_rack_factor])
    batches = regime.batches
    mean = sum(b.share * b.factor for b in batches)
    square = sum(b.share * b.factor**2 for b in batches) / mean**2
    slots = np.array(frailty.slot_factors)
    of_gpu = (1 + 1 / frailty.gpu_shape) * square - 1
    of_gpus = of_gpu * float((slots**2).sum() / slots.sum() ** 2)
    rates = {"gpu": 0.0, "node": 0.0}
    for fault in regime.faults:
        rates[fault.entity_kind] += fault.per_gpu_year
    share = rates["gpu"] / sum(rates.values())
    by_place = float((places**2).mean() / places.mean() ** 2)
    return (1 + 1 / frailty.node_shape) * by_place * (1 + of_gpus * share**2) - 1


class _NegativeBinomial:
    """Counts of nodes whose rate is gamma distributed: what the past says of the future.

    Args:
        unevenness: Squared coefficient of variation of the rate.
        mean: Mean count of the past.
    """

    def __init__(self, unevenness: float, *, mean: float) -> None:
        k = 1 / unevenness
        counts = np.arange(int(mean * 60 * (1 + unevenness)) + 60)
        ratio = (k + counts[:-1]) / (counts[:-1] + 1) * mean / (k + mean)
        start = -k * np.log1p(mean / k)
        with np.errstate(divide="ignore"):
            self._share = np.exp(start + np.concatenate([[0.0], np.cumsum(np.log(ratio))]))
        # Given n failures, the rate is gamma with mean (k + n) / (k + mean) of the fleet's.
        self._future = (k + counts) / (k + mean)

    def captured(self, *, share: float) -> float:
        """Expected share of future failures on the nodes with most past ones."""
        from_top = self._share[::-1]
        room = np.clip(share - np.concatenate([[0.0], np.cumsum(from_top)[:-1]]), 0, None)
        return float(np.minimum(from_top, room) @ self._future[::-1])


def hazards_over_time(fleet: Fleet, *, bins: int = 60) -> pl.DataFrame:
    """Failures over time against what the air, the driver and the nodes in service lead to expect.

    Args:
        fleet: The fleet.
        bins: Equal parts of the record.

    Returns:
        One row per class and bin: `fault_type`, `day` (middle of the bin), `expected` failures,
        `observed` ones, `noticed` ones, and `share_on_new_driver` of the time in service.
    """
    edges = np.linspace(0, fleet.end_s, bins + 1)
    expected, on_new = _expected_by_bin(fleet, edges)
    rows = []
    for index, fault in enumerate(fleet.regime.faults):
        found = [i for i in fleet.incidents if i.fault.fault_type == fault.fault_type]
        observed = np.histogram([i.onset_s for i in found], edges)[0]
        noticed = np.histogram([i.onset_s for i in found if i.is_noticed], edges)[0]
        rows.append(
            pl.DataFrame(
                {
                    "fault_type": [fault.fault_type] * bins,
                    "day": (edges[1:] + edges[:-1]) / 2 / 86400,
                    "expected": expected[index],
                    "observed": observed,
                    "noticed": noticed,
                    "share_on_new_driver": on_new,
                }
            )
        )
    return pl.concat(rows)


def _expected_by_bin(fleet: Fleet, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected failures of (classes, bins), and the share of service time on the new driver.

    Within a bin, the air of the whole bin stands for that of the part in service.
    """
    hazards = Hazards(fleet.regime, seed=fleet.seed)
    heat = np.stack(
        [hazards.heat_seconds(a, b) / (b - a) for a, b in pairwise(edges.tolist())], axis=1
    )
    expected = np.zeros((len(fleet.regime.faults), edges.size - 1))
    time_s = np.zeros((2, edges.size - 1))
    for truth in fleet.nodes:
        for service in truth.services:
            gpus = [s.gpu.hazard_factor for s in truth.stays if s.holds_at(service.from_s)]
            by_class = hazards.unit_rates(truth.node, np.array(gpus)).sum(axis=1)
            if service.has_new_driver:
                by_class = by_class * hazards.driver_factor
            part = np.clip(
                np.minimum(edges[1:], service.to_s) - np.maximum(edges[:-1], service.from_s),
                0,
                None,
            )
            expected += truth.hazard_factor * by_class[:, None] * part
            time_s[int(service.has_new_driver)] += part
    total = time_s.sum(axis=0)
    return expected * heat, np.divide(time_s[1], total, out=np.zeros_like(total), where=total > 0)
