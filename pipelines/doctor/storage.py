"""Probes of `forewarn doctor` for what lies on disk: folder, tables, scores, models, versions.

Servers are in `servers`, the hook in `hook`. Nothing is made that stays.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_JOBS,
    CORE_NODE_STATES,
)
from models.registry.model_registry import CHAMPION
from pipelines.doctor.probe import Finding, NamedProbe, Probe, State
from pipelines.doctor.schema_versions import stored_versions
from pipelines.flow.registry_storage import registry_place
from pipelines.flow.steps import registered_name, registry_of
from pipelines.serving.scorer_status import read_status
from pipelines.settings import Settings
from pipelines.storage.file_lock import held
from pipelines.storage.store import TableStore
from remediation.score_source import LATEST, FolderScoreSource

_GB: Final = 1_000_000_000
_LOW_GB: Final = 20
_LEAST_GB: Final = 2
_LOW_INODES: Final = 0.05
_NETWORK: Final = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre", "gpfs")
_STALE: Final = timedelta(hours=2)
_WATCHED: Final = (CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS, CORE_JOBS, CORE_NODE_STATES)
_INGEST: Final = "Run `forewarn ingest`, and see what it says of this source."


def storage_probes(settings: Settings, *, now: datetime) -> Iterator[Probe]:
    """Probes of everything under `data_root`.

    Args:
        settings: The installation.
        now: The present.
    """
    yield NamedProbe("data_root", lambda: probe_folder(settings.data_root))
    yield NamedProbe("versions", lambda: probe_versions(settings))
    yield NamedProbe("newest data", lambda: probe_data(settings, now=now))
    yield NamedProbe("newest scores", lambda: probe_scores(settings, now=now))
    yield NamedProbe("scorer", lambda: probe_scorer(settings, now=now))
    for horizon_h in settings.horizons_h:
        yield _Champion(settings, horizon_h)


@dataclass(frozen=True)
class _Champion:
    """Whether a horizon has a model that scores."""

    settings: Settings
    horizon_h: int

    @property
    def name(self) -> str:
        return f"champion {self.horizon_h} h"

    def look(self) -> Finding:
        return probe_champion(self.settings, self.horizon_h)


def probe_folder(folder: Path) -> Finding:
    """Whether a folder can be written, renames in one step, waits for the disk, and has room.

    Args:
        folder: `data_root`; made by the first command that writes.
    """
    if not folder.is_dir():
        return Finding(
            "warn", f"{folder} is not there yet", "The first `forewarn ingest` makes it."
        )
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=folder) as made:
            _try_out(Path(made))
    except OSError as error:
        return Finding(
            "FAIL",
            f"{folder} cannot be written: {error.strerror or error}",
            f"Give user {os.geteuid()} the folder and all in it, or free space.",
        )
    return _room(folder)


def _room(folder: Path) -> Finding:
    """How much room there is, and on what."""
    disk, status = shutil.disk_usage(folder), os.statvfs(folder)
    kind, free_gb = _file_system(folder), disk.free / _GB
    what = f"{folder} on {kind}: {free_gb:,.0f} GB of {disk.total / _GB:,.0f} GB free"
    if free_gb < _LEAST_GB:
        return Finding("FAIL", what, "Free space: the next hour may not be stored.")
    if status.f_files and status.f_favail / status.f_files < _LOW_INODES:
        return Finding("warn", f"{what}, {status.f_favail:,} inodes", "Free inodes: few are left.")
    if free_gb < _LOW_GB:
        return Finding("warn", what, "Free space, or shorten what is kept.")
    if kind in _NETWORK:
        return Finding(
            "warn",
            what,
            "SQLite's locks hold on local disks only: keep scores and ledger in PostgreSQL, or one "
            "machine at this folder.",
        )
    return Finding("ok", what)


def probe_versions(settings: Settings) -> Finding:
    """Whether this release can use what is stored."""
    found = stored_versions(settings)
    newer = [one for one in found if one.state == "newer"]
    older = [one for one in found if one.state in ("older", "unreadable")]
    if newer:
        return Finding(
            "FAIL",
            "; ".join(one.words() for one in newer),
            "Use the release that wrote it, or go back as docs/upgrade.md says.",
        )
    if older:
        return Finding("warn", "; ".join(one.words() for one in older), "See docs/upgrade.md.")
    n_same = sum(one.state == "same" for one in found)
    return Finding("ok", f"{n_same} stores, each of this release's version")


def probe_data(settings: Settings, *, now: datetime) -> Finding:
    """How old the newest hour of each watched table is."""
    store, end = TableStore(settings.store_root), settings.data_end(now)
    until = {table.asset_key: store.covered_until(table) for table in _WATCHED}
    known = {key: at for key, at in until.items() if at is not None}
    if not known:
        return Finding("warn", "no table is stored yet", f"{_INGEST} Then materialise the tables.")
    what = ", ".join(f"{key} until {at:%Y-%m-%d %H:%M}Z" for key, at in known.items())
    missing = [key for key in until if key not in known]
    late = [key for key, at in known.items() if at < end - _STALE]
    if CORE_GPU_TELEMETRY.asset_key in late:
        return Finding("FAIL", what, f"Telemetry is late: GPUs get no score. {_INGEST}")
    if late or missing:
        named = ", ".join([*late, *missing])
        return Finding("warn", what, f"Late or absent: {named}. {_INGEST}")
    return Finding("ok", what)


def probe_scores(settings: Settings, *, now: datetime) -> Finding:
    """Whether the hook could act on what is published: checksums, contracts, age."""
    if not (settings.scores_dir / LATEST).exists():
        return Finding("warn", "no scores are published", "Start `forewarn score --loop`.")
    tick = FolderScoreSource(settings.scores_dir).latest(now)
    models = ", ".join(f"{h} h by {name}" for h, name in sorted(tick.model_versions.items()))
    what = f"of {tick.as_of:%Y-%m-%d %H:%M}Z, {models}"
    if tick.is_expired(now):
        state: State = "warn" if settings.data_end(now) < now else "FAIL"
        return Finding(
            state, f"{what}, expired", "Start `forewarn score --loop`, or see why it fails."
        )
    return Finding("ok", what)


def probe_scorer(settings: Settings, *, now: datetime) -> Finding:
    """What the scorer said last."""
    status = read_status(settings.scores_dir)
    if status is None:
        return Finding("warn", "no `forewarn score` has run here", "Start it: docs/scores.md.")
    age = now - datetime.fromisoformat(status.updated_at)
    what = f"{status.phase} {age.total_seconds() / 60:.0f} minutes ago"
    if status.last_error:
        return Finding("FAIL", f"{what}: {status.last_error}", "See its log.")
    if status.problems:
        said = "; ".join(f"{part}: {words}" for part, words in sorted(status.problems.items()))
        return Finding("warn", f"{what}: {said}", "See those parts below.")
    return Finding("ok", what)


def probe_champion(settings: Settings, horizon_h: int) -> Finding:
    """Whether the model of a horizon is there, whole, and readable by this release.

    Args:
        settings: The installation.
        horizon_h: The horizon, hours.
    """
    name = registered_name(settings, horizon_h)
    train = "Scores are prior until then: train, and promote (docs/models.md)."
    if not registry_place(settings).is_there:
        return Finding("warn", f"{name}: there is no registry yet", train)
    registry = registry_of(settings)
    champion = registry.version_of(name, CHAMPION)
    if champion is None:
        return Finding("warn", f"{name} has no champion", train)
    bundle = registry.load(champion)
    trained = f"trained on {bundle.model.trained_on} data to {bundle.model.data_span[1]:%Y-%m-%d}"
    if registry.interrupted(name) is not None:
        return Finding(
            "warn",
            f"{champion.label}, {trained}; a promotion or rollback stopped half way",
            "Promote or roll back once more: `forewarn models`.",
        )
    return Finding("ok", f"{champion.label}, {trained}")


def _try_out(folder: Path) -> None:
    """Does what our writers do.

    Raises:
        OSError: The disk refuses one of it.
    """
    first, last = folder / "first", folder / "last"
    last.write_bytes(b"old")
    with first.open("wb") as file:
        file.write(b"new")
        file.flush()
        os.fsync(file.fileno())
    first.replace(last)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    with held(folder / "lock"):
        pass


def _file_system(folder: Path) -> str:
    """The kind of file system that a folder lies on."""
    best, kind, path = -1, "an unknown file system", str(folder.resolve())
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            fields = line.split()
            place = fields[1].replace("\\040", " ")
            is_in = path == place or path.startswith(place.rstrip("/") + "/")
            if is_in and len(place) > best:
                best, kind = len(place), fields[2]
    return kind
