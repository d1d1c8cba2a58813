"""Writes and reads what really happened, for judging models only; no pipeline reads it.

The raw formats are written elsewhere in `simulation.writers`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from polars import selectors

from features.contracts import UTC_TIME
from features.errors import SourceError
from simulation.fleet.ceiling import Reader, TruthTables, recall_ceiling
from simulation.fleet.climate import inlet_temperature
from simulation.fleet.generate import Fleet
from simulation.fleet.incidents import Episode

_CSV_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_DIGITS: Final = 9  # of shares
_LINE: Final = "{:<20}{:>8}{:>10}{:>11}{:>22}{:>22}"

INCIDENT_SCHEMA: Final = pl.Schema(
    {
        "incident_id": pl.String(),
        "fault_type": pl.String(),
        "entity_kind": pl.String(),
        "entity_id": pl.String(),
        "node": pl.String(),
        "slot": pl.Int32(),
        "onset": UTC_TIME,
        "detected": UTC_TIME,
        "end": UTC_TIME,
        "is_replaced": pl.Boolean(),
        "is_noticed": pl.Boolean(),
        "is_silent": pl.Boolean(),
        "precursor_kind": pl.String(),
        "precursor_start": UTC_TIME,
        "precursor_strength": pl.Float64(),
    }
)

HAZARD_SCHEMA: Final = pl.Schema(
    {
        "entity_kind": pl.String(),
        "entity_id": pl.String(),
        "node": pl.String(),
        "slot": pl.Int32(),
        "start": UTC_TIME,
        "end": UTC_TIME,
        "hazard_factor": pl.Float64(),
        "has_new_driver": pl.Boolean(),
        "air_offset_c": pl.Float64(),
    }
)

CLASS_SCHEMA: Final = pl.Schema(
    {
        "fault_type": pl.String(),
        "entity_kind": pl.String(),
        "per_gpu_year": pl.Float64(),
        "new_driver_factor": pl.Float64(),
        "heat_doubling_c": pl.Float64(),
    }
)

AIR_SCHEMA: Final = pl.Schema({"at": UTC_TIME, "above_c": pl.Float64()})

DECOY_SCHEMA: Final = pl.Schema(
    {
        "kind": pl.String(),
        "entity_kind": pl.String(),
        "entity_id": pl.String(),
        "node": pl.String(),
        "slot": pl.Int32(),
        "start": UTC_TIME,
        "end": UTC_TIME,
        "strength": pl.Float64(),
    }
)


def incident_table(fleet: Fleet) -> pl.DataFrame:
    """All incidents by onset, with the signs each gave.

    Args:
        fleet: The fleet.

    Returns:
        One row per incident, columns of `INCIDENT_SCHEMA`.
    """
    rows = []
    for number, incident in enumerate(fleet.incidents):
        name = fleet.nodes[incident.node].node.name
        signs = incident.precursor
        rows.append(
            (
                f"truth-{number:05d}",
                incident.fault.fault_type,
                incident.fault.entity_kind,
                incident.gpu_uuid or name,
                name,
                incident.slot,
                fleet.moment(incident.onset_s),
                fleet.moment(incident.detected_s) if incident.is_noticed else None,
                fleet.moment(incident.end_s) if incident.is_noticed else None,
                incident.is_replaced,
                incident.is_noticed,
                incident.is_silent,
                signs.kind if signs else None,
                fleet.moment(signs.start_s) if signs else None,
                round(signs.strength, 4) if signs else None,
            )
        )
    return pl.DataFrame(rows, schema=INCIDENT_SCHEMA, orient="row")


def decoy_table(fleet: Fleet) -> pl.DataFrame:
    """All signs that led to nothing, by node and start; columns of `DECOY_SCHEMA`."""
    rows = [
        (
            decoy.kind,
            "node" if decoy.slot is None else "gpu",
            _unit(fleet, decoy),
            truth.node.name,
            decoy.slot,
            fleet.moment(decoy.start_s),
            fleet.moment(decoy.end_s),
            round(decoy.strength, 4),
        )
        for truth in fleet.nodes
        for decoy in truth.decoys
    ]
    return pl.DataFrame(rows, schema=DECOY_SCHEMA, orient="row")


def _unit(fleet: Fleet, episode: Episode) -> str:
    """The GPU in the episode's slot when it began, or the node."""
    truth = fleet.nodes[episode.node]
    for stay in truth.stays:
        if stay.gpu.slot == episode.slot and stay.holds_at(episode.start_s):
            return stay.gpu.gpu_uuid
    return truth.node.name


def hazard_table(fleet: Fleet) -> pl.DataFrame:
    """Every unit's factor on its failure rates, for each stretch in which it was in service.

    The rate of a unit is the sum over its classes of `class_table`: per_gpu_year x hazard_factor,
    x new_driver_factor with the new driver, x 2 to the power of (above_c of `air_table` +
    air_offset_c) / heat_doubling_c where there is one.

    Args:
        fleet: The fleet.

    Returns:
        One row per unit and stretch, by node and time, columns of `HAZARD_SCHEMA`.
    """
    rows: list[tuple[object, ...]] = []
    for truth in fleet.nodes:
        node, factor = truth.node, truth.hazard_factor
        for service in truth.services:
            stretch = (fleet.moment(service.from_s), fleet.moment(service.to_s))
            rest = (service.has_new_driver, node.inlet_offset_c)
            # Each slot carries an equal part of the rate of a node's own faults.
            whole = factor * fleet.regime.gpus_per_node
            rows.append(("node", node.name, node.name, None, *stretch, whole, *rest))
            for gpu in (stay.gpu for stay in truth.stays if stay.holds_at(service.from_s)):
                own = factor * gpu.hazard_factor
                rows.append(("gpu", gpu.gpu_uuid, node.name, gpu.slot, *stretch, own, *rest))
    return pl.DataFrame(rows, schema=HAZARD_SCHEMA, orient="row")


def class_table(fleet: Fleet) -> pl.DataFrame:
    """The fault classes' rates and what changes them; columns of `CLASS_SCHEMA`."""
    rows = [
        (
            fault.fault_type,
            fault.entity_kind,
            fault.per_gpu_year,
            fault.new_driver_factor,
            fault.heat_doubling_c,
        )
        for fault in fleet.regime.faults
    ]
    return pl.DataFrame(rows, schema=CLASS_SCHEMA, orient="row")


def air_table(fleet: Fleet) -> pl.DataFrame:
    """The fleet's inlet air above the climate's mean, in the middle of each hour."""
    hours = np.arange(math.ceil(fleet.regime.days * 24))
    inlet = inlet_temperature(fleet.regime, (hours + 0.5) * 3600, seed=fleet.seed)
    start = pl.lit(fleet.regime.start, dtype=UTC_TIME)
    return pl.DataFrame({"above_c": inlet - fleet.regime.climate.inlet_c}).select(
        (start + pl.duration(hours=pl.int_range(pl.len()))).cast(UTC_TIME).alias("at"), "above_c"
    )


def truth_tables(fleet: Fleet) -> TruthTables:
    """What ceilings are computed from."""
    return TruthTables(
        incidents=incident_table(fleet),
        hazards=hazard_table(fleet),
        classes=class_table(fleet),
        air=air_table(fleet),
    )


def write_truth(fleet: Fleet, folder: Path) -> list[Path]:
    """Writes what happened, the rates behind it, and the recall ceilings.

    Args:
        fleet: The fleet.
        folder: Folder to write to.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    truth = truth_tables(fleet)
    tables = {
        "incidents.csv": truth.incidents,
        "decoys.csv": decoy_table(fleet),
        "classes.csv": truth.classes,
        # The last digits of the intervals are the processor's.
        "ceiling.csv": recall_ceiling(truth).with_columns(selectors.float().round(_DIGITS)),
        "hazards.parquet": truth.hazards,
        "air.parquet": truth.air,
    }
    for name, table in tables.items():
        if name.endswith(".csv"):
            table.write_csv(folder / name, datetime_format=_CSV_TIME)
        else:
            table.write_parquet(folder / name)
    return [folder / name for name in tables]


def read_truth(folder: Path) -> TruthTables:
    """Reads what `write_truth` wrote, for judging models; no pipeline calls this.

    Args:
        folder: The truth folder.

    Returns:
        The tables.

    Raises:
        SourceError: The folder holds no truth, or that of an earlier release.
    """
    try:
        return TruthTables(
            incidents=pl.read_csv(folder / "incidents.csv", schema=INCIDENT_SCHEMA),
            hazards=pl.read_parquet(folder / "hazards.parquet").match_to_schema(HAZARD_SCHEMA),
            classes=pl.read_csv(folder / "classes.csv", schema=CLASS_SCHEMA),
            air=pl.read_parquet(folder / "air.parquet").match_to_schema(AIR_SCHEMA),
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SourceError(
            f"{folder} holds no truth of a simulated fleet as this release writes it: {error}. "
            f"Give the folder that `forewarn simulate fleet --truth` wrote."
        ) from error


def describe_ceiling(folder: Path, *, reader: Reader | None = None) -> str:
    """The recall ceilings of a written truth, as a text to print.

    Args:
        folder: The truth folder.
        reader: Lead, ticks and budget; null: the defaults.

    Returns:
        One line per class and horizon, with what the numbers mean above them.

    Raises:
        SourceError: The folder holds no truth.
    """
    by = reader or Reader()
    table = recall_ceiling(read_truth(folder), reader=by)
    per_day = by.budget * 24 / by.tick_h * 1000
    lines = [
        f"The most any model can catch, by looks every {by.tick_h:g} h, {by.lead_h:g} h ahead.",
        f"At the budget: {per_day:.3g} alerts a day per 1,000 GPUs; as many per 1,000 nodes.",
        "",
        _LINE.format("fault type", "horizon", "failures", "announced", "by signs", "at the budget"),
    ]
    lines += [_ceiling_line(row) for row in table.iter_rows(named=True)]
    if table.is_empty():
        lines.append("Nothing failed.")
    return "\n".join(lines)


def _ceiling_line(row: Mapping[str, Any]) -> str:
    shares = [
        f"{row[f'ceiling_{name}']:>7.1%} ({row[f'{name}_low']:.0%} to {row[f'{name}_high']:.0%})"
        for name in ("by_signs", "at_budget")
    ]
    horizon = f"{row['horizon_h']:g} h"
    return _LINE.format(row["fault_type"], horizon, row["incidents"], row["announced"], *shares)
