"""How many failures of a synthetic fleet announce themselves in time: what recall can reach.

The fleet's own numbers are in `simulation`; a record of real machines has no known ceiling.
"""

from collections.abc import Sequence
from datetime import timedelta

from pipelines.settings import Settings
from simulation.fleet.regime_faults import FaultClass
from simulation.regimes.load import load_regime


def recall_ceilings(settings: Settings) -> dict[str, float]:
    """Share of a synthetic fleet's failures that announce themselves in time.

    Args:
        settings: Regime and lead.

    Returns:
        By fault type, and `all` for those of GPUs, each weighing as often as it happens; empty
        for a real site.
    """
    if settings.regime is None:
        return {}
    least = settings.lead / timedelta(hours=1)
    faults = load_regime(settings.regime).faults
    gpu = [fault for fault in faults if fault.entity_kind == "gpu"]
    by_type = {
        name: _share([fault for fault in faults if fault.fault_type == name], least_lead_h=least)
        for name in dict.fromkeys(fault.fault_type for fault in faults)
    }
    return {**by_type, "all": _share(gpu, least_lead_h=least)}


def _share(faults: Sequence[FaultClass], *, least_lead_h: float) -> float:
    rate = sum(fault.per_gpu_year for fault in faults)
    if not rate:
        return 0.0
    told = sum(
        fault.per_gpu_year * fault.announced_share(least_lead_h=least_lead_h) for fault in faults
    )
    return told / rate
