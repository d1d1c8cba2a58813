"""Writes what really happened, for judging models only; nothing that trains or scores reads it.

The raw formats are written elsewhere in `simulation.writers`.
"""

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Final

import polars as pl

from features.contracts import UTC_TIME
from simulation.fleet.generate import Fleet
from simulation.fleet.incidents import Episode

LEAD: Final = timedelta(minutes=30)

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
        "precursor_kind": pl.String(),
        "precursor_start": UTC_TIME,
        "precursor_strength": pl.Float64(),
    }
)

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
                fleet.moment(incident.detected_s),
                fleet.moment(incident.end_s),
                incident.is_replaced,
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


def recall_ceiling(fleet: Fleet) -> dict[str, dict[str, float | int | None]]:
    """What a perfect reader of precursors could catch, per fault type and in all.

    An incident is within reach when its first sign comes at least the lead and one sample
    before the onset. Units that fail often can be guessed beyond this; single failures cannot.

    Args:
        fleet: The fleet.

    Returns:
        Fault type, or `all` -> `incidents`, `with_precursor`, `within_reach`, and `ceiling`: the
        share within reach, null where nothing failed.
    """
    needed_s = LEAD.total_seconds() + fleet.regime.scrape_s
    n_all: Counter[str] = Counter({"all": 0})
    n_signs: Counter[str] = Counter()
    n_reach: Counter[str] = Counter()
    for incident in fleet.incidents:
        for key in (incident.fault.fault_type, "all"):
            n_all[key] += 1
            if incident.precursor:
                n_signs[key] += 1
                n_reach[key] += incident.onset_s - incident.precursor.start_s >= needed_s
    return {
        key: {
            "incidents": n_all[key],
            "with_precursor": n_signs[key],
            "within_reach": n_reach[key],
            "ceiling": round(n_reach[key] / n_all[key], 4) if n_all[key] else None,
        }
        for key in sorted(n_all)
    }


def write_truth(fleet: Fleet, folder: Path) -> list[Path]:
    """Writes incidents.csv, decoys.csv and ceiling.json.

    Args:
        fleet: The fleet.
        folder: Folder to write to.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in ("incidents.csv", "decoys.csv", "ceiling.json")]
    form = "%Y-%m-%dT%H:%M:%SZ"
    incident_table(fleet).write_csv(paths[0], datetime_format=form)
    decoy_table(fleet).write_csv(paths[1], datetime_format=form)
    ceiling = {
        "lead_min": int(LEAD.total_seconds() // 60),
        "note": "Share of incidents whose first sign comes early enough; the same for every "
        "horizon, as later moments of the same signs count too.",
        "fault_types": recall_ceiling(fleet),
    }
    paths[2].write_text(json.dumps(ceiling, indent=2) + "\n", encoding="utf-8", newline="\n")
    return paths
