"""A whole synthetic fleet in parameters, read from a file and checked.

The parts are in the other `regime_` modules; the numbers with their sources are in
simulation/regimes/*.yaml.
"""

from collections.abc import Mapping
from typing import Any, Final

import yaml
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from features.errors import SettingsError
from remediation.strict_yaml import parse_yaml
from simulation.fleet.regime_faults import Batch, Decoy, FaultClass, Frailty
from simulation.fleet.regime_sections import Section, UtcMoment, Word
from simulation.fleet.regime_site import Climate, Disturbances, Hardware, Logs
from simulation.fleet.regime_workload import Workload

_KEYS: Final = {"faults": "fault_type", "decoys": "kind", "batches": "name"}
"""Sections of a file that map a name to a part -> the field that holds the name in code."""


def _named(section: Any, *, field: str, name: Any) -> Any:
    if not isinstance(section, Mapping):
        return section
    if field in section:
        raise ValueError(f"{name}: its {field} is the key above it; remove {field}")
    return {field: name, **section}


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

    name: Word
    note: str
    seed: int = Field(ge=0)
    start: UtcMoment
    nodes: int = Field(ge=1, le=100_000)
    gpus_per_node: int = Field(ge=1)
    days: float = Field(ge=1 / 86400, le=3660)
    scrape_s: int = Field(ge=1)
    hazard_multiplier: float = Field(ge=0, le=1_000_000)
    faults: tuple[FaultClass, ...]
    decoys: tuple[Decoy, ...]
    batches: tuple[Batch, ...]
    frailty: Frailty
    climate: Climate
    hardware: Hardware
    workload: Workload
    logs: Logs
    disturbances: Disturbances

    @field_validator("faults", "decoys", "batches", mode="before")
    @classmethod
    def _name_by_key(cls, value: Any, info: ValidationInfo) -> Any:
        """Files map names to sections, so that another regime can change one of them."""
        if not isinstance(value, Mapping):
            return value
        field = _KEYS[str(info.field_name)]
        return [_named(section, field=field, name=name) for name, section in value.items()]

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
        if not self.hardware.idle_w < self.hardware.max_w <= 3000:
            raise ValueError("expected hardware.idle_w < hardware.max_w <= 3000 W")
        return self

    @property
    def start_of_day_s(self) -> int:
        """Seconds from midnight UTC to the fleet's first second."""
        start = self.start
        return start.hour * 3600 + start.minute * 60 + start.second

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
            origin = f"{self.name} with {given}"
            raise _as_settings_error(error, origin=origin, document=given) from error


def _as_settings_error(
    error: ValidationError, *, origin: str, document: Mapping[str, Any]
) -> SettingsError:
    found = "; ".join(f"{_place(part['loc'], document)}: {part['msg']}" for part in error.errors())
    return SettingsError(
        f"regime {origin} has {error.error_count()} mistake(s): {found}. "
        f"Correct them there; the parameters are described in simulation/fleet/regime.py."
    )


def _place(parts: tuple[int | str, ...], document: Mapping[str, Any]) -> str:
    """Where in the document a mistake is, by names as the file gives them."""
    names = list(parts)
    section = document.get(str(names[0])) if names else None
    if isinstance(section, Mapping) and len(names) > 1 and isinstance(names[1], int):
        names[1] = str(list(section)[names[1]])
    return ".".join(map(str, names)) or "document"


def read_regime_document(text: str, *, origin: str) -> dict[str, Any]:
    """The mapping of a regime file, its values unchecked.

    Args:
        text: The YAML document.
        origin: File name for messages.

    Returns:
        The mapping.

    Raises:
        SettingsError: It is no YAML, or no mapping.
    """
    try:
        document: Any = parse_yaml(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"regime {origin} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise SettingsError(
            f"regime {origin}: expected a mapping of parameters, got {type(document).__name__}. "
            f"See simulation/regimes/demo.yaml."
        )
    return document


def build_regime(document: Mapping[str, Any], *, origin: str) -> Regime:
    """Checks a regime's parameters.

    Args:
        document: The parameters by name.
        origin: File name for messages.

    Returns:
        The regime.

    Raises:
        SettingsError: They say something that cannot be simulated.
    """
    try:
        return Regime.model_validate(dict(document))
    except ValidationError as error:
        raise _as_settings_error(error, origin=origin, document=document) from error
