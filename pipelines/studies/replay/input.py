"""Reads what a replay rests on: an installation's stored tables and the policy file of its hook.

Nothing is replayed here, and nothing is written.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl

from features.contracts import TableContract
from features.errors import SettingsError
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
    NODE_SCORES,
)
from pipelines.flow.split_cuts import split_of
from pipelines.flow.steps import TICK
from pipelines.settings import Settings, load_settings
from pipelines.storage.store import Span, TableStore
from remediation.decision import touches_node
from remediation.guards.judge import CEILING_OF_LEVEL
from remediation.hook_settings import load_hook_settings, read_hook_file
from remediation.program.round import Tick, site_on
from remediation.score_source import LATEST, FolderScoreSource
from remediation.site import LevelRule, Site, load_site
from simulation.replay.history import HOUR, History, micros, moment_of
from simulation.replay.tables import Record, history_of

SETTINGS_FILE: Final = "forewarn.yaml"
"""The settings of an installation, in its folder."""
DAY: Final = 24 * HOUR


@dataclass(frozen=True, kw_only=True)
class ReplayInput:
    """What a replay rests on.

    Attributes:
        name: The site, or the data set.
        note: A line on the record.
        history: The record.
        site: The hook's site settings that are replayed.
        cautions: What a reader must know of this record.
    """

    name: str
    note: str
    history: History
    site: Site
    cautions: tuple[str, ...] = ()


def read_history(
    folder: Path,
    policy: Path,
    *,
    level: str | None,
    since: datetime | None,
    until: datetime | None,
    now: datetime,
) -> ReplayInput:
    """Reads an installation.

    Args:
        folder: The installation's folder with `forewarn.yaml`, or that file itself.
        policy: The hook's settings file, or a site file alone.
        level: Level taken for every node and fault; None: those of the policy file.
        since: Start; None: the first stored score.
        until: End, exclusive; None: where the record ends.
        now: The present.

    Raises:
        SettingsError: Settings or policy are wrong, the policy acts nowhere, or the time is empty
            or not that of the record.
        DataError: Incidents are not stored.
    """
    named = folder / SETTINGS_FILE if folder.is_dir() else folder
    if not named.is_file():
        raise SettingsError(
            f"--history {folder}: no file {named}. Name the folder of an installation, the one "
            f"with its {SETTINGS_FILE}"
        )
    settings = load_settings(named)
    site = _with_warning(read_policy(policy, level=level), settings, policy=policy, now=now)
    store = TableStore(settings.store_root)
    record = _record(store, settings)
    scored = [] if record.node_scores is None else record.node_scores["as_of"].to_list()
    first = min(scored, default=settings.start)
    known = store.covered_until(CORE_HEALTH_EVENTS)
    data_end = min(settings.data_end(now), known or now)
    start, end = since or first, until or data_end
    if not settings.start <= start < end <= data_end:
        raise SettingsError(
            f"replay: the time from {start} to {end} is empty or not within the record, which is "
            f"from {settings.start} to {data_end}; set --since, --until"
        )
    history = history_of(
        record,
        start=start,
        end=end,
        horizon_h=site.horizon_h,
        repair_hours=site.costs.repair_hours,
        ticks=() if scored else _hourly(start, end),
        is_synthetic=settings.trained_on == "synthetic" or settings.regime is not None,
    )
    return ReplayInput(
        name=settings.site,
        note=settings.note,
        history=history,
        site=site,
        cautions=_cautions(history, settings, has_jobs=not record.jobs.is_empty()),
    )


def read_policy(path: Path, *, level: str | None) -> Site:
    """The site settings of a hook's settings file, or of a site file alone.

    Raises:
        SettingsError: The file cannot be read or is wrong, or lets the hook act nowhere.
    """
    if not path.is_file():
        raise SettingsError(
            f"--policy {path}: no such file. Name the hook's settings file, or a site file alone; "
            "docs/remediation.md shows both"
        )
    is_hook = {"state", "scores", "cluster"} & read_hook_file(path).keys()
    site = load_hook_settings(path).site if is_hook else load_site(path)
    if level is not None:
        site = site.model_copy(update={"levels": (LevelRule(level=level),)})
    if not any(touches_node(CEILING_OF_LEVEL[rule.level]) for rule in site.levels):
        raise SettingsError(
            f"policy {path}: no level lets the hook act, so a replay would do nothing. Say how far "
            "it would be allowed to go with --level drain_after_jobs."
        )
    return site


def _with_warning(site: Site, settings: Settings, *, policy: Path, now: datetime) -> Site:
    """The site with horizon and warning policy that came with the scores, as a live hook has it."""
    if "horizon_h" not in site.model_fields_set:
        site = site.model_copy(update={"horizon_h": settings.horizons_h[0]})
    if "warning" in site.model_fields_set:
        return site
    if not (settings.scores_dir / LATEST).is_file():
        raise SettingsError(
            f"policy {policy} names no warning (threshold, n, k), and no scores are published in "
            f"{settings.scores_dir} that would bring one. Name it in the policy file."
        )
    found, unsaid = site_on(site, Tick(FolderScoreSource(settings.scores_dir).latest(now)))
    if unsaid is not None:
        raise SettingsError(f"policy {policy}: {unsaid}. Name warning in the policy file.")
    return found


def _record(store: TableStore, settings: Settings) -> Record:
    def known(contract: TableContract) -> pl.DataFrame:
        return store.read(contract) if store.has(contract) else contract.empty()

    return Record(
        incidents=store.read(CORE_INCIDENTS),
        jobs=known(CORE_JOBS),
        node_states=known(CORE_NODE_STATES),
        inventory=known(CORE_INVENTORY),
        topology=known(CORE_TOPOLOGY),
        events=known(CORE_HEALTH_EVENTS),
        node_scores=store.read(NODE_SCORES) if store.has(NODE_SCORES) else None,
        switch_level=settings.switch_level,
        state_without_record="up" if settings.node_states_hold_only_trouble else "unknown",
    )


def _hourly(start: datetime, end: datetime) -> list[datetime]:
    return [one.start for one in Span(start, end).steps(TICK)]


def _cautions(history: History, settings: Settings, *, has_jobs: bool) -> tuple[str, ...]:
    scores = history.scores
    said = []
    if not has_jobs:
        said.append(
            "No jobs are stored: what failures cost them is unknown and counts as nothing, so "
            "every drain looks wasted."
        )
    if scores is None:
        return (*said, "No scores are stored, so the model is not replayed.")
    if history.ticks[0] - history.start > DAY:
        said.append(
            f"The first score is of {moment_of(history.ticks[0]):%Y-%m-%d %H:%M} UTC: before it "
            "no strategy acts, and failures of those days count all the same."
        )
    if len(scores.versions) > 1:
        said.append(f"{len(scores.versions)} model versions scored in this time.")
    n_prior = int(scores.is_prior.sum())
    if n_prior:
        said.append(
            f"{n_prior:,} of {scores.score.size:,} scores are priors. Live, the hook only "
            "recommends on them; here they act."
        )
    split = split_of(settings)
    if split is not None and history.start < micros(split.valid_until):
        said.append(
            f"The time begins before {split.valid_until:%Y-%m-%d %H:%M} UTC, up to which the "
            "settings train and calibrate: scores of those days may have seen what they predict."
        )
    return tuple(said)


def in_utc(at: datetime | None) -> datetime | None:
    """A time without zone as UTC."""
    return at and at.replace(tzinfo=UTC)
