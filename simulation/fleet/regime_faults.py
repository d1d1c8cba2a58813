"""What breaks in a fleet, how often, and how it announces itself: the parameters.

How failures are drawn from them is in `.incidents`.
"""

import math
from typing import Final, Literal

from pydantic import Field, model_validator

from features.vocabulary import FAULT_TYPES
from simulation.fleet.regime_sections import HourRange, Positive, Section, Share, UtcMoment, Word

PrecursorKind = Literal[
    "hbm_errors",
    "remap_growth",
    "pcie_replays",
    "nvlink_errors",
    "hot",
    "power_swings",
    "repeated_xids",
    "link_flaps",
]
"""How trouble shows before a failure; decoys show the same way and lead to none."""

NODE_PRECURSORS: Final = ("link_flaps",)
"""Kinds that belong to a node, not to one of its GPUs."""


class Precursor(Section):
    """How a class of faults announces itself.

    Attributes:
        kind: What is seen.
        lead_h: Shortest and longest time from the first sign to the onset; log-uniform between.
        share_without: Share of failures with no sign at all; sets the ceiling of recall.
    """

    kind: PrecursorKind
    lead_h: HourRange
    share_without: Share


class Downtime(Section):
    """Hours from onset to return to service.

    Attributes:
        range_h: Log-uniform between these.
        replaced_range_h: The same where the GPU is replaced; null: as `range_h`.
        tail_share: Share that takes from the range's upper end up to `tail_h`.
        tail_h: Longest downtime of the tail.
    """

    range_h: HourRange
    replaced_range_h: HourRange | None = None
    tail_share: Share = 0.0
    tail_h: float | None = None


class HealthCheck(Section):
    """A check that the site brings in, which finds what went unnoticed before.

    Attributes:
        day: From when failures of the class are all noticed.
        missed_before: Share of failures that nobody noticed until then.
    """

    day: float
    missed_before: Share


class FaultClass(Section):
    """One row of the fault table.

    Attributes:
        fault_type: A word of `features.vocabulary.FAULT_TYPES`.
        entity_kind: What fails: one GPU or the node.
        per_gpu_year: Failures per GPU and year of operation, before the hazard multiplier.
        precursor: How it announces itself; null: never.
        downtime: How long the node is out.
        replaced_share: Share of failures after which the slot holds another GPU.
        node_state: State the scheduler gives the node: DOWN ends all its jobs at once, DRAIN
            only those on the failed GPU.
        detection_min: Minutes from onset until the node's state changes.
        telemetry: What the failed GPU's telemetry does until the repair.
        new_driver_factor: Factor on the rate of a node that runs the new driver.
        heat_doubling_c: The rate doubles for so many degC of inlet air above the climate's mean;
            null: air does not matter.
        health_check: A check that starts to find these failures; null: all are noticed.
        silent_share: Share of failures that nothing shows until a check finds them: no log line,
            no crash, telemetry as of a healthy GPU.
    """

    fault_type: str
    entity_kind: Literal["gpu", "node"] = "gpu"
    per_gpu_year: float = Field(ge=0)
    precursor: Precursor | None = None
    downtime: Downtime
    replaced_share: Share = 0.0
    node_state: Literal["DOWN", "DRAIN"]
    detection_min: HourRange
    telemetry: Literal["idle", "blank", "gone"] = "idle"
    new_driver_factor: float = Field(default=1.0, ge=0)
    heat_doubling_c: float | None = Field(default=None, ge=1)
    health_check: HealthCheck | None = None
    silent_share: Share = 0.0

    @model_validator(mode="after")
    def _is_known(self) -> "FaultClass":
        if self.fault_type not in FAULT_TYPES:
            raise ValueError(f"{self.fault_type!r} is not one of {', '.join(FAULT_TYPES)}")
        kind = self.precursor.kind if self.precursor else None
        if kind is not None and (kind in NODE_PRECURSORS) != (self.entity_kind == "node"):
            raise ValueError(f"precursor {kind} does not belong to a {self.entity_kind}")
        if self.health_check and self.entity_kind == "node":
            raise ValueError("health_check: a node's own failure cannot go unnoticed")
        if self.silent_share and (self.entity_kind == "node" or self.telemetry != "idle"):
            raise ValueError("silent_share: a node's own failure and a dark GPU cannot be silent")
        return self

    def announced_share(self, *, least_lead_h: float) -> float:
        """Expected share of failures whose first sign comes at least so early.

        It bounds what signs can give; units that fail often can be guessed beyond it.

        Args:
            least_lead_h: Minimum lead, hours, above zero.
        """
        if self.precursor is None:
            return 0.0
        low, high = self.precursor.lead_h
        if least_lead_h >= high:
            return 0.0
        in_time = math.log(high / max(low, least_lead_h)) / math.log(high / low)
        return (1.0 - self.precursor.share_without) * in_time


class Decoy(Section):
    """Signs that look like a precursor and lead to no failure.

    Attributes:
        kind: What is seen.
        per_precursor: Decoys for every expected true precursor of this kind; no failure of the
            unit follows them.
        per_gpu_year: Decoys besides, whatever fails: failures follow them as often as anything.
        duration_h: Log-uniform between these.
        strength: Median strength against a true precursor's 1.
    """

    kind: PrecursorKind
    per_precursor: float = Field(default=0.0, ge=0)
    per_gpu_year: float = Field(default=0.0, ge=0)
    duration_h: HourRange
    strength: float = Field(gt=0)


class Batch(Section):
    """A hardware batch: its share of GPUs, hazard factor and month of installation."""

    name: Word
    share: Share
    factor: float = Field(gt=0)
    installed: UtcMoment


class Frailty(Section):
    """Why some units fail again and again.

    Attributes:
        node_shape: Shape k of the node's gamma frailty (mean 1); smaller is more uneven.
        gpu_shape: The same for the GPU itself; a replacement draws a new one.
        is_fleet_mean_one: Divide node frailties by the fleet's mean. A fleet of 16 nodes with
            k = 0.5 would else be off by a third from the stated rate by chance alone.
        slot_factors: Hazard factor by slot.
        top_of_rack_factor: Hazard factor of the rack's uppermost node.
    """

    node_shape: float = Field(ge=0.05)
    gpu_shape: float = Field(ge=0.05)
    is_fleet_mean_one: bool
    slot_factors: tuple[Positive, ...]
    top_of_rack_factor: float = Field(gt=0)
