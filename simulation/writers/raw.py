"""Writes a whole fleet as a site's raw files, with provenance beside them and truth elsewhere.

Each format has its own module; this one decides which samples go where.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from features.errors import DataError
from simulation.fleet.generate import GENERATOR_VERSION, Fleet, simulate_fleet
from simulation.fleet.observe import NodeObservation, observe_fleet
from simulation.fleet.telemetry import NodeTelemetry
from simulation.regimes.load import load_regime
from simulation.writers.kernel_text import write_kernel_log
from simulation.writers.sacct_text import write_sacct
from simulation.writers.site_tables import write_site_tables
from simulation.writers.telemetry_parquet import write_days
from simulation.writers.telemetry_text import Host, write_query_csv, write_scrapes
from simulation.writers.truth_tables import write_truth

QUERY_CSV_S: Final = 24 * 3600
"""One node's last day comes as nvidia-smi CSV only."""
SCRAPES_S: Final = 2 * 3600
"""One node's last two hours come as saved scrapes; the first of them is in the Parquet too."""
OVERLAP_S: Final = 3600
BAD_ROWS: Final = 3
PROVENANCE: Final = "provenance.json"

_SITE: Final = Path(__file__).parent / "site"


def write_fleet(fleet: Fleet, out_dir: Path, truth_dir: Path) -> None:
    """Writes a fleet's raw files, and its truth to another folder.

    Both folders are put in place whole. A folder that holds an earlier fleet is replaced.

    Args:
        fleet: The fleet.
        out_dir: Folder for what a site would deliver, with inputs.yaml and provenance.json.
        truth_dir: Folder for what really happened; no pipeline reads it.

    Raises:
        DataError: A folder exists and is not an earlier fleet's, or one lies in the other; nothing
            is changed.
    """
    out, truth = out_dir.resolve(), truth_dir.resolve()
    if out == truth or out in truth.parents or truth in out.parents:
        raise DataError(
            f"{out_dir} and {truth_dir} lie in one another: the truth must be out of reach of "
            f"whoever reads the raw files. Give two folders side by side."
        )
    for folder in (out_dir, truth_dir):
        if folder.exists() and not (folder / PROVENANCE).is_file() and any(folder.iterdir()):
            raise DataError(
                f"{folder} exists, is not empty and has no {PROVENANCE}: it is not a simulated "
                f"fleet's folder. Give another one, or empty it."
            )
    partial, partial_truth = (
        folder.with_name(f"{folder.name}.partial") for folder in (out_dir, truth_dir)
    )
    for folder in (partial, partial_truth):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    counts, bad_lines = _write_raw(fleet, partial)
    write_truth(fleet, partial_truth)
    _write_provenance(fleet, partial, counts=counts, bad_lines=bad_lines)
    _write_provenance(fleet, partial_truth, counts={}, bad_lines={})
    for done, folder in ((partial, out_dir), (partial_truth, truth_dir)):
        shutil.rmtree(folder, ignore_errors=True)
        done.rename(folder)


def simulate_to(
    out_dir: Path,
    *,
    truth_dir: Path,
    regime: str,
    nodes: int | None = None,
    days: float | None = None,
    seed: int | None = None,
) -> str:
    """Simulates a fleet and writes it.

    Args:
        out_dir: Folder for what a site would deliver.
        truth_dir: Folder for what really happened.
        regime: Name of a regime, or path of a regime file.
        nodes: Number of nodes; null: the regime's.
        days: Length in days; null: the regime's.
        seed: Seed; null: the regime's.

    Returns:
        What was written, in words.

    Raises:
        SettingsError: There is no such regime, or none of that size.
        DataError: A folder holds something else.
    """
    chosen = load_regime(regime)
    fleet = simulate_fleet(
        chosen, seed=chosen.seed if seed is None else seed, nodes=nodes, days=days
    )
    write_fleet(fleet, out_dir, truth_dir)
    return (
        f"{len(fleet.incidents)} failures and {len(fleet.attempts)} runs of jobs on "
        f"{len(fleet.nodes)} nodes in {fleet.regime.days:g} days (regime {chosen.name}, seed "
        f"{fleet.seed}) written to {out_dir}; the truth about them is in {truth_dir}."
    )


def _write_raw(fleet: Fleet, folder: Path) -> tuple[Counter[str], dict[Path, int]]:
    """Writes all raw files; gives counts, and the bad lines of each file."""
    shutil.copytree(_SITE, folder, dirs_exist_ok=True)
    written = write_site_tables(fleet, folder)
    written |= write_sacct(fleet, folder / "sacct" / "jobs.txt", n_bad=BAD_ROWS)
    csv_node, scrape_node = text_nodes(fleet)
    parts: list[tuple[str, NodeTelemetry]] = []
    counts: Counter[str] = Counter()
    for seen in observe_fleet(fleet):
        node = seen.truth.node
        log = folder / "kernel" / f"{node.name}.log"
        n_bad = BAD_ROWS if node.index % 4 == 0 else 0
        written |= write_kernel_log(
            seen.events, log, regime=fleet.regime, index=node.index, n_bad=n_bad
        )
        counts["kernel_lines"] += len(seen.events.lines)
        counts["gpu_samples"] += int(seen.telemetry.at_s.size)
        counts.update(f"xid_{line.code}" for line in seen.events.lines if line.code is not None)
        is_text, is_parquet = _split(fleet, seen, csv_node=csv_node, scrape_node=scrape_node)
        parts.append((node.name, seen.telemetry.rows(is_parquet)))
        if is_text.any():
            host = Host(node.name, fleet.regime, _driver_at_end(fleet, seen))
            rows = seen.telemetry.rows(is_text)
            if node.index == csv_node:
                written |= write_query_csv(host, rows, folder / "nvidia_smi", n_bad=BAD_ROWS)
            else:
                written |= write_scrapes(host, rows, folder / "dcgm", n_bad=BAD_ROWS)
    start = fleet.regime.start
    written |= write_days(parts, folder / "telemetry", start=start, bad_rows=BAD_ROWS)
    return counts, written


def text_nodes(fleet: Fleet) -> tuple[int, int]:
    """The nodes whose last hours come as text: the last two that are up to the end.

    Args:
        fleet: The fleet.

    Returns:
        Index of the node with nvidia-smi CSV, and of the one with saved scrapes.
    """
    quiet = [
        truth.node.index
        for truth in fleet.nodes
        if all(incident.end_s < fleet.end_s - QUERY_CSV_S for incident in truth.incidents)
    ]
    chosen = quiet if len(quiet) > 1 else [truth.node.index for truth in fleet.nodes]
    return chosen[-1], chosen[-2] if len(chosen) > 1 else -1


def _split(
    fleet: Fleet, seen: NodeObservation, *, csv_node: int, scrape_node: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which of a node's samples go into text files, and which into Parquet."""
    at_s = seen.telemetry.at_s
    if seen.truth.node.index == csv_node:
        is_text = at_s >= fleet.end_s - QUERY_CSV_S
        return is_text, ~is_text
    if seen.truth.node.index == scrape_node:
        is_text = at_s >= fleet.end_s - SCRAPES_S
        return is_text, at_s < fleet.end_s - SCRAPES_S + OVERLAP_S
    return np.zeros(at_s.size, dtype=bool), np.ones(at_s.size, dtype=bool)


def _driver_at_end(fleet: Fleet, seen: NodeObservation) -> str:
    plan = fleet.regime.disturbances
    is_new = seen.truth.new_driver_s < fleet.end_s
    return plan.driver_after if is_new else plan.driver_before


def _write_provenance(
    fleet: Fleet, folder: Path, *, counts: Mapping[str, int], bad_lines: Mapping[Path, int]
) -> None:
    """Writes where a folder's files come from, and a checksum of each."""
    regime = fleet.regime
    gpu_years = len(fleet.nodes) * regime.gpus_per_node * regime.days / 365.25
    n_crashes = sum(attempt.is_own_crash for attempt in fleet.attempts)
    document: dict[str, Any] = {
        "regime": regime.name,
        "note": regime.note,
        "seed": fleet.seed,
        "generator_version": GENERATOR_VERSION,
        "forewarn_version": version("forewarn"),
        "libraries": {name: version(name) for name in ("numpy", "polars", "pyarrow")},
        "start": regime.start.isoformat(),
        "end": fleet.moment(fleet.end_s).isoformat(),
        "nodes": len(fleet.nodes),
        "gpus_per_node": regime.gpus_per_node,
        "days": regime.days,
        "hazard_multiplier": regime.hazard_multiplier,
        "hazards": f"x{regime.hazard_multiplier:g}",
        "application_crashes_per_gpu_year": round(n_crashes / gpu_years, 1),
        "attempts": len(fleet.attempts),
        "counts": dict(sorted(counts.items())),
        "bad_lines": {
            path.relative_to(folder).as_posix(): count
            for path, count in sorted(bad_lines.items())
            if count
        },
        "files": {
            path.relative_to(folder).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    }
    text = json.dumps(document, indent=2) + "\n"
    (folder / PROVENANCE).write_text(text, encoding="utf-8", newline="\n")
