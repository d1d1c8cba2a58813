"""Writes a whole fleet as a site's raw files, with provenance beside them and truth elsewhere.

Each format has its own module; groups of nodes are written by `simulation.writers.shards`.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import permutations
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Final

from features.errors import DataError
from simulation.fleet.generate import GENERATOR_VERSION, Fleet, simulate_fleet
from simulation.fleet.schedule import attempts_by_node
from simulation.regimes.load import load_regime
from simulation.writers.forms import Form
from simulation.writers.sacct_text import write_sacct
from simulation.writers.shards import (
    BAD_ROWS,
    QUERY_CSV_S,
    Shard,
    Written,
    shard_nodes,
    write_shard,
)
from simulation.writers.site_tables import write_site_tables
from simulation.writers.truth_tables import write_truth

PROVENANCE: Final = "provenance.json"

_SITE: Final = Path(__file__).parent / "site"


def write_fleet(
    fleet: Fleet,
    out_dir: Path,
    truth_dir: Path,
    *,
    workers: int = 1,
    telemetry: Form = "parquet",
) -> None:
    """Writes a fleet's raw files, and its truth to another folder.

    Both folders are put in place whole. A folder that holds an earlier fleet is replaced.

    Args:
        fleet: The fleet.
        out_dir: Folder for what a site would deliver, with inputs.yaml and provenance.json.
        truth_dir: Folder for what really happened; no pipeline reads it.
        workers: Processes that write; the files are the same for any number.
        telemetry: How telemetry is delivered.

    Raises:
        DataError: As of `check_folders`; nothing is changed.
    """
    out, truth, partial, partial_truth = check_folders(out_dir, truth_dir)
    try:
        for folder in (partial, partial_truth):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / PROVENANCE).touch()  # the mark of what may be removed, should this run die
        written = _write_raw(fleet, partial, workers=workers, telemetry=telemetry)
        write_truth(fleet, partial_truth)
        _write_provenance(fleet, partial, written=written)
        _write_provenance(fleet, partial_truth, written=Written())
        for done, folder in ((partial, out), (partial_truth, truth)):
            shutil.rmtree(folder, ignore_errors=True)
            done.rename(folder)
    except OSError as error:
        raise DataError(
            f"the fleet cannot be written to {out_dir} and {truth_dir}: {error}. Make room there, "
            f"or give folders on another disk."
        ) from error
    finally:  # what is left of a run that failed would fill the disk
        for folder in (partial, partial_truth):
            shutil.rmtree(folder, ignore_errors=True)


def check_folders(out_dir: Path, truth_dir: Path) -> tuple[Path, Path, Path, Path]:
    """Checks that a fleet can be written to two folders without harm to anything else.

    Args:
        out_dir: Folder for the raw files.
        truth_dir: Folder for the truth.

    Returns:
        Both, resolved, and the folders beside them in which they are made.

    Raises:
        DataError: One lies in another, is no folder, is in use, or holds something else.
    """
    out, truth = out_dir.resolve(), truth_dir.resolve()
    partial, partial_truth = (path.parent / f"{path.name}.partial" for path in (out, truth))
    folders = (out, truth, partial, partial_truth)
    if any(one == other or one in other.parents for one, other in permutations(folders, 2)):
        raise DataError(
            f"{out_dir} and {truth_dir} lie in one another: the truth must be out of reach of "
            f"whoever reads the raw files. Give two folders side by side."
        )
    for folder in folders:
        if Path.cwd().is_relative_to(folder):
            raise DataError(f"{folder} holds the current folder. Run this from elsewhere.")
        if folder.exists() and not folder.is_dir():
            raise DataError(f"{folder} is a file, expected a folder. Give another name.")
        if folder.is_mount():
            raise DataError(f"{folder} is a mount, which nothing can replace. Give a folder in it.")
        if folder.exists() and any(folder.iterdir()) and not _is_of_a_fleet(folder):
            raise DataError(
                f"{folder} exists, is not empty and has no {PROVENANCE} of ours: it is not a "
                f"simulated fleet's folder. Give another one, or empty it."
            )
    return folders


def _is_of_a_fleet(folder: Path) -> bool:
    """Whether a fleet was written there, or begun: only such folders may be removed."""
    path = folder / PROVENANCE
    if not path.is_file():
        return False
    content = path.read_bytes()
    return not content or b'"generator_version"' in content


def simulate_to(
    out_dir: Path,
    *,
    truth_dir: Path,
    regime: str,
    nodes: int | None = None,
    days: float | None = None,
    scrape_s: int | None = None,
    seed: int | None = None,
    workers: int = 1,
    telemetry: Form = "parquet",
) -> str:
    """Simulates a fleet and writes it.

    Args:
        out_dir: Folder for what a site would deliver.
        truth_dir: Folder for what really happened.
        regime: Name of a regime, or path of a regime file.
        nodes: Number of nodes; null: the regime's.
        days: Length in days; null: the regime's.
        scrape_s: Seconds between samples; null: the regime's.
        seed: Seed; null: the regime's.
        workers: Processes that write; the files are the same for any number.
        telemetry: How telemetry is delivered.

    Returns:
        What was written, in words.

    Raises:
        SettingsError: There is no such regime, or none of that size.
        DataError: A folder holds something else.
    """
    check_folders(out_dir, truth_dir)  # before minutes of work, not after
    chosen = load_regime(regime)
    if scrape_s is not None:
        chosen = chosen.model_copy(update={"scrape_s": scrape_s})
    fleet = simulate_fleet(
        chosen, seed=chosen.seed if seed is None else seed, nodes=nodes, days=days
    )
    write_fleet(fleet, out_dir, truth_dir, workers=workers, telemetry=telemetry)
    return (
        f"{len(fleet.incidents)} failures and {len(fleet.attempts)} runs of jobs on "
        f"{len(fleet.nodes)} nodes in {fleet.regime.days:g} days (regime {chosen.name}, seed "
        f"{fleet.seed}) written to {out_dir}; the truth about them is in {truth_dir}."
    )


def _write_raw(fleet: Fleet, folder: Path, *, workers: int, telemetry: Form) -> Written:
    """Writes all raw files; what belongs to the whole fleet first, then the groups of nodes."""
    shutil.copytree(_SITE, folder, dirs_exist_ok=True)
    written = Written()
    written.add(write_site_tables(fleet, folder))
    written.add(write_sacct(fleet, folder / "sacct" / "jobs.txt", n_bad=BAD_ROWS))
    for part in _write_shards(fleet, folder, workers=workers, telemetry=telemetry):
        written.add(part.bad_lines)
        written.counts += part.counts
    return written


def _write_shards(
    fleet: Fleet, folder: Path, *, workers: int, telemetry: Form
) -> Iterator[Written]:
    """Writes the groups, one after another or side by side; yields in their order."""
    shards = _shards(fleet, telemetry)
    if workers == 1:
        for shard in shards:
            yield write_shard(shard, folder)
        return
    # A fork would copy the threads of Polars and Arrow in a state that may never end.
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
        pending = []
        for shard in shards:
            pending.append(pool.submit(write_shard, shard, folder))
            if len(pending) > 2 * workers:  # a shard that waits takes memory
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()


def _end_with_parent() -> None:
    """Makes a worker end with its parent, which cannot end it if it is itself killed."""
    Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _shards(fleet: Fleet, telemetry: Form) -> Iterator[Shard]:
    by_node = attempts_by_node(fleet.attempts, len(fleet.nodes))
    csv_node, scrape_node = text_nodes(fleet)
    size = shard_nodes(fleet.regime)
    for number, first in enumerate(range(0, len(fleet.nodes), size)):
        yield Shard(
            number=number,
            regime=fleet.regime,
            seed=fleet.seed,
            truths=fleet.nodes[first : first + size],
            attempts=by_node[first : first + size],
            form=telemetry,
            csv_node=csv_node,
            scrape_node=scrape_node,
        )


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


def _write_provenance(fleet: Fleet, folder: Path, *, written: Written) -> None:
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
        "counts": dict(sorted(written.counts.items())),
        "bad_lines": {
            path.relative_to(folder).as_posix(): count
            for path, count in sorted(written.bad_lines.items())
            if count
        },
        "files": {
            path.relative_to(folder).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": _checksum(path),
            }
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path != folder / PROVENANCE
        },
    }
    text = json.dumps(document, indent=2) + "\n"
    (folder / PROVENANCE).write_text(text, encoding="utf-8", newline="\n")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:  # accounting of a big fleet takes gigabytes
        return hashlib.file_digest(file, "sha256").hexdigest()
