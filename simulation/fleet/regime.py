"""A whole synthetic fleet in parameters, read from a file and checked.

The parts are in the other `regime_` modules; the numbers with their sources are in
simulation/regimes/*.yaml.
"""

from typing import Any

import yaml
from pydantic import Field, ValidationError, model_validator

from features.errors import SettingsError
from remediation.strict_yaml import parse_yaml
from simulation.fleet.regime_faults import Batch, Decoy, FaultClass, Frailty
from simulation.fleet.regime_sections import Section, UtcMoment
from simulation.fleet.regime_site import Climate, Disturbances, Hardware, Logs
from simulation.fleet.regime_workload import Workload


class Regime(Section):
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
    logs: Logs
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
