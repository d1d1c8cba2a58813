"""What a reader can catch who sees all signs and the incidents of each node, but no hazard.

The ceiling of a reader who knows every hazard is in `.ceiling`.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from features.errors import DataError
from simulation.fleet.ceiling import Reader
from simulation.fleet.generate import Fleet
from simulation.fleet.incidents import HOUR_S, Incident
from simulation.fleet.regime import Regime
from simulation.fleet.regime_sections import HOURS_PER_YEAR

FloatArray = npt.NDArray[np.float64]

ALL: Final = "all"


def recall_by_record(fleet: Fleet, *, horizon_h: float, reader: Reader) -> dict[str, float]:
    """Recall by class of the best reader of nodes who has what a site has.

    First come alerts on nodes with true signs: which signs are decoys the reader knows, and that
    is more than anybody can. What is left of the budget goes to the nodes with the most incidents
    for the time they were watched; their share of each class's true hazard is caught.

    Args:
        fleet: What really happened; failures alone are enough.
        horizon_h: Horizon, hours; an alert covers it whole.
        reader: Lead, ticks, and the share of *nodes'* ticks with an alert.

    Returns:
        Recall of each class with noticed failures, and of `all`; nothing where there are none.

    Raises:
        DataError: The horizon is shorter than a tick.
    """
    if horizon_h < reader.tick_h:
        raise DataError(
            f"recall by record: expected a horizon of at least a tick, {reader.tick_h:g} h, got "
            f"{horizon_h:g} h. Ask for a longer one."
        )
    seen = [one for one in fleet.incidents if one.is_noticed]
    if not seen:
        return {}
    per_alert = int(horizon_h / reader.tick_h)
    ticks = fleet.end_s / HOUR_S / reader.tick_h
    allowed = reader.budget * ticks * len(fleet.nodes)
    cost = np.array([_alerts_needed(one, reader, per_alert=per_alert) for one in seen])
    order = np.argsort(cost, kind="stable")
    spent = np.cumsum(cost[order])
    chance = np.zeros(cost.size)
    chance[order] = spent <= allowed
    left = allowed - float(spent[spent <= allowed].max(initial=0.0))
    covered = _covered(fleet, n_alerts=left, every_s=per_alert * reader.tick_h * HOUR_S)
    names = np.array([one.fault.fault_type for one in seen])
    chance = np.maximum(chance, [covered[name] for name in names])
    by_class = {str(name): float(chance[names == name].mean()) for name in np.unique(names)}
    return {ALL: float(chance.mean()), **by_class}


def _alerts_needed(incident: Incident, reader: Reader, *, per_alert: int) -> float:
    """Alerts from the first tick that sees signs to the last one early enough; else infinite."""
    if incident.precursor is None:
        return math.inf
    tick_s = reader.tick_h * HOUR_S
    first = incident.precursor.start_s // tick_s + 1
    last = (incident.onset_s - reader.lead_h * HOUR_S) // tick_s
    return (last - first) // per_alert + 1 if last >= first else math.inf


def _covered(fleet: Fleet, *, n_alerts: float, every_s: float) -> dict[str, float]:
    """Share of each class's hazard on the nodes alerted on, over the whole record."""
    starts = np.arange(0.0, fleet.end_s, every_s)
    rank = np.array(
        [
            _rank(fleet.regime, [one for one in truth.incidents if one.is_noticed], starts)
            for truth in fleet.nodes
        ]
    )
    alike = np.round(rank, 12)  # what rounding alone tells apart is alike
    _, group, counts = np.unique(alike, return_inverse=True, return_counts=True)
    above = alike.size - np.cumsum(counts)
    part = np.clip((n_alerts - above) / counts, 0, 1)[group].reshape(alike.shape)
    hazard = np.array([truth.expected_by_fault for truth in fleet.nodes])
    caught, whole = part.mean(axis=1) @ hazard, hazard.sum(axis=0)
    shares = np.divide(caught, whole, out=np.zeros_like(whole), where=whole > 0)
    names = [fault.fault_type for fault in fleet.regime.faults]
    return dict(zip(names, shares.tolist(), strict=True))


def _rank(regime: Regime, seen: list[Incident], starts: FloatArray) -> FloatArray:
    """Expected frailty of a node at some moments, given when it has failed (gamma, Poisson)."""
    per_year = regime.gpus_per_node * sum(fault.per_gpu_year for fault in regime.faults)
    expected = per_year * regime.hazard_multiplier * starts / HOUR_S / HOURS_PER_YEAR
    known = np.searchsorted(sorted(one.detected_s for one in seen), starts, side="right")
    shape = regime.frailty.node_shape
    return np.asarray((shape + known) / (shape + expected), dtype=np.float64)
