"""What a perfect reader could catch of a fleet's failures, and whether a model caught more.

The truth it is computed from is written and read by `simulation.writers.truth_tables`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from scipy.stats import binom

from features.errors import DataError, StructureError

LEAD_H: Final = 0.5
TICK_H: Final = 1.0
HORIZONS_H: Final = (1.0, 6.0, 24.0, 72.0)
ALERT_BUDGET: Final = 0.0005
"""Share of the ticks of units in service on which an alert may be raised, unless told otherwise:
hourly, 12 alerts a day per 1,000 GPUs. Enough for all signs, and for the riskiest 1 % of GPUs."""
LEAK_P: Final = 0.001
_Z: Final = 1.959964
"""Normal quantile of 95 % intervals."""
_SAMPLED_TICKS: Final = 96
"""Ticks, spread over the record, at which all units' rates are taken to find who is at risk."""
_GOLDEN: Final = 0.6180339887

CEILING_SCHEMA: Final = pl.Schema(
    {
        "fault_type": pl.String(),
        "horizon_h": pl.Float64(),
        "incidents": pl.UInt32(),
        "announced": pl.UInt32(),
        "ceiling_by_signs": pl.Float64(),
        "by_signs_low": pl.Float64(),
        "by_signs_high": pl.Float64(),
        "ceiling_at_budget": pl.Float64(),
        "at_budget_low": pl.Float64(),
        "at_budget_high": pl.Float64(),
    }
)


@dataclass(frozen=True)
class TruthTables:
    """What really happened, as tables; columns as in `simulation.writers.truth_tables`.

    Attributes:
        incidents: One row per failure.
        hazards: One row per unit and stretch in service: factor on its rates, driver, own air.
        classes: One row per fault class: its rate, and what changes it.
        air: One row per hour: the fleet's inlet air above the climate's mean.
    """

    incidents: pl.DataFrame
    hazards: pl.DataFrame
    classes: pl.DataFrame
    air: pl.DataFrame


@dataclass(frozen=True)
class Reader:
    """How a reader may raise alerts.

    An alert catches a failure that comes at least the lead and less than lead + horizon later.

    Attributes:
        lead_h: Minimum lead, hours.
        tick_h: From one look to the next, hours.
        budget: Share of unit-ticks with an alert, for GPUs and for nodes each.
    """

    lead_h: float = LEAD_H
    tick_h: float = TICK_H
    budget: float = ALERT_BUDGET

    def __post_init__(self) -> None:
        """Refuses what no reader can do."""
        is_sound = 0 <= self.lead_h < math.inf and 0 < self.tick_h < math.inf
        if not (is_sound and 0 <= self.budget <= 1):
            raise DataError(
                f"expected a finite lead from 0 h, a finite tick above 0 h and a budget from 0 to "
                f"1, got {self.lead_h:g} h, {self.tick_h:g} h and {self.budget:g}. Change these."
            )


def recall_ceiling(
    truth: TruthTables,
    *,
    horizons_h: Sequence[float] = HORIZONS_H,
    reader: Reader | None = None,
) -> pl.DataFrame:
    """The largest recall that any reader of the raw data could reach, by class and horizon.

    By signs alone: failures whose signs are there at a tick from which an alert catches them. At
    the budget: signs first, then the units of the highest true rates, which catch by chance, in
    proportion to the hazard they carry. An alert covers a whole horizon, so that such a reader
    alerts once per horizon, not at every tick: with a day's horizon, alerts on 1 % of hourly
    ticks cover 24 % of the time. Failures that nobody noticed are left out.

    Args:
        truth: What really happened.
        horizons_h: Horizons, hours.
        reader: Lead, ticks and budget; null: the defaults above.

    Returns:
        Columns of `CEILING_SCHEMA`, sorted by class and horizon; class `all` counts them all.
        Intervals are Wilson's, 95 %; a class without failures has no row.
    """
    by = reader or Reader()
    incidents = _seen(truth, by)
    if incidents.is_empty():
        return pl.DataFrame(schema=CEILING_SCHEMA)
    rates = {
        kind: _Rates(truth, kind=kind, reader=by) for kind in incidents["entity_kind"].unique()
    }
    parts = []
    for horizon_h in horizons_h:
        caught = pl.concat(
            _caught(part, rates[str(kind)], by, horizon_h=horizon_h)
            for (kind,), part in incidents.group_by("entity_kind", maintain_order=True)
        )
        parts.append(_counted(caught, horizon_h=horizon_h))
    table = pl.concat(parts).with_columns(
        *_wilson("by_signs", "ceiling_by_signs"), *_wilson("at_budget", "ceiling_at_budget")
    )
    return (
        table.select(CEILING_SCHEMA.names())
        .cast(dict(CEILING_SCHEMA))  # type: ignore[arg-type]
        .sort("fault_type", "horizon_h")
    )


def _counted(caught: pl.DataFrame, *, horizon_h: float) -> pl.DataFrame:
    """Failures by class, and in all, with how many of them can be caught."""
    everything = caught.with_columns(pl.lit("all").alias("fault_type"))
    return (
        pl.concat([caught, everything])
        .group_by("fault_type")
        .agg(
            pl.len().alias("incidents"),
            pl.col("precursor_start").is_not_null().sum().alias("announced"),
            pl.col("by_signs").sum(),
            pl.col("at_budget").sum(),
        )
        .with_columns(pl.lit(float(horizon_h)).alias("horizon_h"))
    )


def _wilson(caught: str, share: str) -> list[pl.Expr]:
    """A share of incidents with the ends of its interval."""
    n = pl.col("incidents").cast(pl.Float64)
    p = pl.col(caught) / n
    middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * (p * (1 - p) / n + _Z**2 / (4 * n**2)).sqrt()
    return [
        p.alias(share),
        pl.min_horizontal((middle - half).clip(0), p).alias(f"{caught}_low"),
        pl.max_horizontal((middle + half).clip(0, 1), p).alias(f"{caught}_high"),
    ]


def _hours(column: str, air: pl.DataFrame) -> pl.Expr:
    """Hours since the record's start, as a float."""
    since = pl.lit(air["at"].min(), dtype=air["at"].dtype)
    return ((pl.col(column) - since) / pl.duration(hours=1)).cast(pl.Float64)


def _seen(truth: TruthTables, reader: Reader) -> pl.DataFrame:
    """Noticed failures with the ticks at which they could be foretold.

    Adds `last_tick`, the last tick early enough, and `sign_tick`, the first that sees signs, in
    ticks since the record's start; and `slack_h`, the horizon needed to reach the failure from
    the last tick.
    """
    return (
        truth.incidents.filter("is_noticed")
        .with_columns(
            (_hours("onset", truth.air) - reader.lead_h).alias("latest_h"),
            ((_hours("precursor_start", truth.air) / reader.tick_h).floor() + 1).alias("sign_tick"),
        )
        .with_columns((pl.col("latest_h") / reader.tick_h).floor().alias("last_tick"))
        .with_columns(
            (pl.col("latest_h") - pl.col("last_tick") * reader.tick_h).alias("slack_h"),
        )
    )


def _caught(
    incidents: pl.DataFrame, rates: "_Rates", reader: Reader, *, horizon_h: float
) -> pl.DataFrame:
    """Adds `by_signs`, and `at_budget`: the chance that the best reader catches a failure.

    The failures are of one kind of unit. Beyond signs, a failure falls under an alert with the
    share of its class's hazard that alerts cover. Whether this one did is chance, which a ceiling
    must not hold against a model.
    """
    per_alert = max(1, int(horizon_h / reader.tick_h))
    ticks = (incidents["last_tick"] - incidents["sign_tick"]).fill_null(-1).to_numpy()
    is_in_reach = (incidents["slack_h"] < horizon_h).to_numpy()
    is_in_reach &= (incidents["last_tick"] >= 0).to_numpy()
    by_signs = is_in_reach & (ticks >= 0)
    cost = np.where(by_signs, np.floor(ticks / per_alert) + 1, np.inf)
    order = np.argsort(cost, kind="stable")
    spent = np.cumsum(cost[order])
    alerts = reader.budget * rates.unit_ticks
    is_caught = np.zeros(len(incidents))
    is_caught[order] = spent <= alerts
    left = alerts - float(spent[spent <= alerts].max(initial=0.0))
    covered = rates.covered(left * per_alert / rates.unit_ticks)
    chance = np.array([covered[name] for name in incidents["fault_type"]]) * is_in_reach
    return incidents.with_columns(by_signs=by_signs, at_budget=np.maximum(is_caught, chance))


class _Rates:
    """True rates of all units of one kind, and who is most at risk.

    Args:
        truth: What really happened.
        kind: `gpu` or `node`.
        reader: Ticks.
    """

    def __init__(self, truth: TruthTables, *, kind: str, reader: Reader) -> None:
        self._classes = truth.classes.filter(pl.col("entity_kind") == kind)
        units = truth.hazards.filter(pl.col("entity_kind") == kind)
        ends = units.select(_hours("start", truth.air), _hours("end", truth.air)).to_numpy()
        self.unit_ticks = float((ends[:, 1] - ends[:, 0]).sum() / reader.tick_h)
        last = max(1, int(ends[:, 1].max() / reader.tick_h))
        # Even in the whole, uneven in the hours of the day.
        spread = (np.arange(_SAMPLED_TICKS) + np.arange(_SAMPLED_TICKS) * _GOLDEN % 1) * last
        above_c = truth.air["above_c"].to_numpy()
        samples = []
        for tick in np.unique((spread / _SAMPLED_TICKS).astype(int)):
            at_h = tick * reader.tick_h
            there = units.filter((ends[:, 0] <= at_h) & (at_h < ends[:, 1]))
            air = pl.col("air_offset_c") + float(above_c[min(int(at_h), above_c.size - 1)])
            samples.append(there.select("hazard_factor", "has_new_driver", air))
        self._units = pl.concat(samples)
        total = sum(self._of(row) for row in self._classes.iter_rows(named=True))
        alike = np.round(total, 12)  # what rounding alone tells apart is alike
        _, self._rank, self._counts = np.unique(alike, return_inverse=True, return_counts=True)

    def _of(self, row: Mapping[str, Any]) -> np.ndarray:
        """Rates of one class at all sampled units and times, per year."""
        factor = self._units["hazard_factor"].to_numpy()
        is_new = self._units["has_new_driver"].to_numpy()
        rates = row["per_gpu_year"] * factor * np.where(is_new, row["new_driver_factor"], 1.0)
        if row["heat_doubling_c"]:
            rates = rates * np.exp2(self._units["air_offset_c"].to_numpy() / row["heat_doubling_c"])
        return np.asarray(rates)

    def covered(self, share: float) -> dict[str, float]:
        """Share of each class's hazard that falls on the riskiest units and times.

        Args:
            share: Share of unit-time. Of units that are alike at its edge, a part is taken.
        """
        above = self._rank.size - np.cumsum(self._counts)
        part = np.clip((share * self._rank.size - above) / self._counts, 0, 1)[self._rank]
        covered = {}
        for row in self._classes.iter_rows(named=True):
            rates = self._of(row)
            covered[row["fault_type"]] = float(rates @ part / rates.sum()) if rates.any() else 0.0
        return covered


def check_for_leak(
    caught: pl.DataFrame, ceiling: pl.DataFrame, *, bound: str = "ceiling_at_budget"
) -> None:
    """Raises where a model caught more than can be known, beyond chance.

    Args:
        caught: Columns `fault_type`, `horizon_h`, `is_caught`; one row per failure and horizon.
            The model's budget must not be above the ceiling's.
        ceiling: Of `recall_ceiling`.
        bound: Column with the ceiling.

    Raises:
        StructureError: A class or horizon has no ceiling.
        DataError: Recall is above its ceiling: a one-sided exact binomial test gives less than
            `LEAK_P`. Something that only the truth knows has leaked into the model.
    """
    counts = (
        caught.group_by("fault_type", "horizon_h")
        .agg(pl.len().alias("n"), pl.col("is_caught").sum().alias("k"))
        .join(ceiling, on=["fault_type", "horizon_h"], how="left")
        .sort("fault_type", "horizon_h")
    )
    unknown = counts.filter(pl.col(bound).is_null())
    if not unknown.is_empty():
        row = unknown.row(0, named=True)
        raise StructureError(
            f"{row['fault_type']} at {row['horizon_h']:g} h has no {bound}: {row['n']} failures "
            f"cannot be judged. Compute the ceiling on the same truth and horizons."
        )
    leaks = [
        f"{row['fault_type']} at {row['horizon_h']:g} h: recall {row['k'] / row['n']:.3f} of "
        f"n = {row['n']} against a ceiling of {row[bound]:.3f} (p = {p:.1e})"
        for row in counts.iter_rows(named=True)
        if (p := float(binom.sf(row["k"] - 1, row["n"], row[bound]))) < LEAK_P
    ]
    if leaks:
        raise DataError(
            f"a model beats what can be known in {len(leaks)} case(s): {'; '.join(leaks)}. "
            f"Look for features that hold the outcome, or data from after as_of."
        )
