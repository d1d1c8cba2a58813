"""What a regime may say: every parameter of a synthetic fleet, typed and checked.

The numbers themselves, with their sources, are in simulation/regimes/*.yaml.
"""

import math
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from features.errors import SettingsError
from features.vocabulary import FAULT_TYPES
from remediation.strict_yaml import parse_yaml

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

HOURS_PER_YEAR: Final = 365.25 * 24


def _as_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("give the start with its offset, for instance 2026-01-01T00:00:00Z")
    return moment.astimezone(UTC)


def _as_range(bounds: tuple[float, float]) -> tuple[float, float]:
    if not 0 < bounds[0] <= bounds[1]:
        raise ValueError(f"expected 0 < low <= high, got {bounds[0]:g} and {bounds[1]:g}")
    return bounds


UtcMoment = Annotated[datetime, AfterValidator(_as_utc)]
HourRange = Annotated[tuple[float, float], AfterValidator(_as_range)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Section(BaseModel):
    """A part of a regime: unknown keys are errors, and nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Precursor(_Section):
    """How a class of faults announces itself.

    Attributes:
        kind: What is seen.
        lead_h: Shortest and longest time from the first sign to the onset; log-uniform between.
        share_without: Share of failures with no sign at all; sets the ceiling of recall.
    """

    kind: PrecursorKind
    lead_h: HourRange
    share_without: Share


class Downtime(_Section):
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


class FaultClass(_Section):
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

    @model_validator(mode="after")
    def _is_known(self) -> "FaultClass":
        if self.fault_type not in FAULT_TYPES:
            raise ValueError(f"{self.fault_type!r} is not one of {', '.join(FAULT_TYPES)}")
        kind = self.precursor.kind if self.precursor else None
        if kind is not None and (kind in NODE_PRECURSORS) != (self.entity_kind == "node"):
            raise ValueError(f"precursor {kind} does not belong to a {self.entity_kind}")
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


class Decoy(_Section):
    """Signs that look like a precursor and lead to no failure.

    Attributes:
        kind: What is seen.
        per_precursor: Decoys for every expected true precursor of this kind.
        duration_h: Log-uniform between these.
        strength: Median strength against a true precursor's 1.
    """

    kind: PrecursorKind
    per_precursor: float = Field(ge=0)
    duration_h: HourRange
    strength: float = Field(gt=0)


class Batch(_Section):
    """A hardware batch: its share of GPUs, hazard factor and month of installation."""

    name: str
    share: Share
    factor: float = Field(gt=0)
    installed: UtcMoment


class Frailty(_Section):
    """Why some units fail again and again.

    Attributes:
        node_shape: Shape k of the node's gamma frailty (mean 1); smaller is more uneven.
        gpu_shape: The same for the GPU itself; a replacement draws a new one.
        is_fleet_mean_one: Divide node frailties by the fleet's mean. A fleet of 16 nodes with
            k = 0.5 would else be off by a third from the stated rate by chance alone.
        slot_factors: Hazard factor by slot.
        top_of_rack_factor: Hazard factor of the rack's uppermost node.
    """

    node_shape: float = Field(gt=0)
    gpu_shape: float = Field(gt=0)
    is_fleet_mean_one: bool
    slot_factors: tuple[float, ...]
    top_of_rack_factor: float = Field(gt=0)


class Climate(_Section):
    """Inlet air: mean, daily swing, a warm spell, and slow fleet-wide wander, in degC."""

    inlet_c: float
    daily_swing_c: float
    warm_spell_day: float
    warm_spell_days: float
    warm_spell_c: float
    wander_c: float


class Hardware(_Section):
    """The GPU product and the node around it."""

    model: str
    idle_w: float
    max_w: float
    frame_buffer_mib: int
    idle_clock_mhz: int
    max_clock_mhz: int
    memory_clock_mhz: int
    pci_buses: tuple[str, ...]
    nodes_per_rack: int = Field(ge=1)
    leaky_share: Share
    leaky_sbe_per_day: float


class Workload(_Section):
    """Jobs.

    Attributes:
        gpu_hours_share: Offered load as a share of the fleet's GPU hours.
        size_weights: GPUs -> weight among jobs; sizes above the fleet are left out.
        median_h: Median duration of a one-GPU job; grows with size.
        sigma: Spread of the log-normal duration.
        cap_h: Longest duration.
        size_exponent: Duration grows with GPUs to this power.
        crash_share: Share of jobs that die by their own Xid 13, 31 or 43.
        fail_share: Share that ends FAILED, OUT_OF_MEMORY, TIMEOUT or CANCELLED without an Xid.
        crash_all_share: Of crashes, the share seen on all the job's GPUs of a node.
        checkpoint_min: Work lost at an interruption is at most this much.
        restart_min: Minutes until an interrupted job is submitted again.
        users: Number of users.
    """

    gpu_hours_share: Share
    size_weights: dict[int, float]
    median_h: float
    sigma: float
    cap_h: float
    size_exponent: float
    crash_share: Share
    fail_share: Share
    crash_all_share: Share
    checkpoint_min: float
    restart_min: HourRange
    users: int = Field(ge=1)


class Disturbances(_Section):
    """Things that happen to monitoring and to the fleet, not to one GPU's health."""

    missed_scrape_share: Share
    blank_share: Share
    outage_day: float
    outage_min: float
    driver_day: float
    driver_stagger_h: float
    driver_drain_h: float
    driver_work_min: float
    driver_before: str
    driver_after: str
    chatter_per_day: float
    reboot_min: float


class Regime(_Section):
    """A whole synthetic fleet in parameters.

    Attributes:
        name: Name of the regime.
        note: Said at the top of every report on its data.
        seed: Seed, unless told otherwise.
        start: First moment, UTC.
        nodes: Number of nodes, unless told otherwise.
        gpus_per_node: GPUs in a node.
        days: Length, unless told otherwise.
        scrape_s: Seconds between telemetry samples.
        hazard_multiplier: Factor on every failure rate.
    """

    name: str
    note: str
    seed: int = Field(ge=0)
    start: UtcMoment
    nodes: int = Field(ge=1)
    gpus_per_node: int = Field(ge=1)
    days: float = Field(gt=0)
    scrape_s: int = Field(ge=1)
    hazard_multiplier: float = Field(ge=0)
    faults: tuple[FaultClass, ...]
    decoys: tuple[Decoy, ...]
    batches: tuple[Batch, ...]
    frailty: Frailty
    climate: Climate
    hardware: Hardware
    workload: Workload
    disturbances: Disturbances

    @model_validator(mode="after")
    def _fits_together(self) -> "Regime":
        if abs(sum(batch.share for batch in self.batches) - 1) > 1e-9:
            raise ValueError("shares of batches must add up to 1")
        for name, values in (
            ("frailty.slot_factors", self.frailty.slot_factors),
            ("hardware.pci_buses", self.hardware.pci_buses),
        ):
            if len(values) != self.gpus_per_node:
                raise ValueError(f"{name} needs {self.gpus_per_node} values, got {len(values)}")
        if max(self.hardware.max_w, self.hardware.idle_w) > 3000:
            raise ValueError("hardware.max_w must be below 3000 W, the range of the tables")
        return self

    def with_size(self, *, nodes: int | None, days: float | None) -> "Regime":
        """The same regime with another number of nodes or days.

        Args:
            nodes: Number of nodes; null: as it is.
            days: Length; null: as it is.

        Returns:
            The regime.

        Raises:
            SettingsError: There would be no node or no time.
        """
        changes = {"nodes": nodes, "days": days}
        given = {name: value for name, value in changes.items() if value is not None}
        try:
            return self.model_validate({**self.model_dump(), **given})
        except ValidationError as error:
            raise _as_settings_error(error, origin=f"{self.name} with {given}") from error


def _as_settings_error(error: ValidationError, *, origin: str) -> SettingsError:
    found = "; ".join(
        f"{'.'.join(map(str, part['loc'])) or 'document'}: {part['msg']}" for part in error.errors()
    )
    return SettingsError(
        f"regime {origin} has {error.error_count()} mistake(s): {found}. "
        f"Correct them there; the parameters are described in simulation/fleet/regime.py."
    )


def parse_regime(text: str, *, origin: str) -> Regime:
    """Understands a regime's YAML text.

    Args:
        text: The YAML document.
        origin: File name for messages.

    Returns:
        The regime.

    Raises:
        SettingsError: It is no YAML, or says something that cannot be simulated.
    """
    try:
        document: Any = parse_yaml(text)
        return Regime.model_validate(document)
    except yaml.YAMLError as error:
        raise SettingsError(f"regime {origin} is no YAML: {error}") from error
    except ValidationError as error:
        raise _as_settings_error(error, origin=origin) from error
