"""`forewarn hazard`: how long each GPU may last, from the record of failures and stays alone.

For sites without telemetry. The model is `models.hazard`, its features `features.history_features`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from features.core_tables import CoreTables
from features.errors import SettingsError
from features.grid import as_of_times, watched_grid
from features.labels import LabelSpec, build_labels
from features.matrix import MatrixSpec, build_gpu_matrix, matrix_features
from features.registry import feature_names
from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_NODE_STATES,
    CORE_TOPOLOGY,
)
from models.hazard import HazardModel, HazardSpec, train_hazard
from pipelines.flow.split_cuts import split_of
from pipelines.flow.steps import planned_work
from pipelines.serving.stored_tables import tables_for_labels
from pipelines.settings import Settings, SplitSettings
from pipelines.sources.catalogue import load_catalogue
from pipelines.storage.atomic_files import replace_file
from pipelines.storage.store import TableStore

MATRIX: Final = MatrixSpec(parts=("history",))

MOMENTS: Final = 60
"""Rows of a GPU, about: a day apart or, on a long record, further."""

SHOWN: Final = 10


@dataclass(frozen=True, kw_only=True)
class _Record:
    """What is known of a site.

    Attributes:
        matrix: History features of every GPU each day, and at `end`.
        labels: features/labels at the horizons of the spec.
        end: Where the record ends.
    """

    matrix: pl.DataFrame
    labels: pl.DataFrame
    end: datetime


def days_of(text: str) -> tuple[int, ...]:
    """Horizons as a person writes them.

    Raises:
        SettingsError: They are not whole numbers of days.

    >>> days_of("7, 30")
    (7, 30)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= 36_500 for part in parts):
        raise SettingsError(f"hazard: days must be whole numbers such as 7,30,90, got {text!r}")
    return tuple(sorted({int(part) for part in parts}))


def hazard_site(
    settings: Settings,
    *,
    days: Sequence[int],
    out: Path,
    now: datetime,
    say: Callable[[str], None],
) -> str:
    """Learns hazards before `split.train_until`, calibrates them, and writes each GPU's survival.

    Args:
        settings: The installation.
        days: Horizons, in days; those longer than the training record are left out.
        out: CSV file to write: one row per GPU now in place.
        now: The time of day, for records that go on.
        say: Told what is going on.

    Returns:
        The riskiest, and how expected and observed failures compare after `split.valid_until`.

    Raises:
        SettingsError: The settings name no split, or the record is shorter than every horizon.
        TooFewIncidentsError: Too few failures to learn from.
    """
    split = split_of(settings)
    if split is None:
        raise SettingsError(
            f"site {settings.site}: hazards need split.train_until and split.valid_until"
        )
    spec = _spec(settings, days, longest=split.train_until - settings.start)
    left_out = sorted(set(days) - set(spec.edges_d))
    if left_out:
        say(f"left out, the record before split.train_until is shorter: {_days(left_out)}")
    store = TableStore(settings.store_root)
    topology = store.read(CORE_TOPOLOGY) if store.has(CORE_TOPOLOGY) else CORE_TOPOLOGY.empty()
    tables = replace(tables_for_labels(store), topology=topology)
    record = _record(tables, settings, spec=spec, end=_end(store, settings, now=now))
    names = feature_names(matrix_features(MATRIX, topology))
    say(f"{record.matrix.height:,} rows, {len(names)} features")
    model = _learned(record, spec=spec, names=names, split=split)
    now_in_place = record.matrix.filter(pl.col("as_of") == record.end)
    risks = risk_table(model, now_in_place)
    replace_file(out, risks.write_csv().encode())
    return "\n".join(
        [
            *_riskiest(risks, end=record.end),
            "",
            *_judged(model, record, split=split),
            "",
            f"Survival of {risks.height:,} GPUs written to {out}.",
        ]
    )


def _end(store: TableStore, settings: Settings, *, now: datetime) -> datetime:
    """Outcomes are known as far as events were ingested, not as far as the clock has run."""
    seen = store.covered_until(CORE_HEALTH_EVENTS) or store.covered_until(CORE_NODE_STATES)
    end = settings.data_end(now)
    return min(end, seen) if seen else end


def risk_table(model: HazardModel, matrix: pl.DataFrame) -> pl.DataFrame:
    """Survival of each row at the end of each period, least at the longest first.

    Args:
        model: The hazards.
        matrix: Rows with `entity_id`, `node`, `as_of` and the features.

    Returns:
        `entity_id`, `node`, `as_of` and `survival_7d`, ... in the order of the periods.
    """
    survival = model.survival(matrix)
    columns = [
        pl.Series(f"survival_{edge}d", survival[:, at].round(6))
        for at, edge in enumerate(model.spec.edges_d)
    ]
    found = matrix.select("entity_id", "node", "as_of").with_columns(columns)
    return found.sort(columns[-1].name, "entity_id")


def _spec(settings: Settings, days: Sequence[int], *, longest: timedelta) -> HazardSpec:
    within = [day for day in sorted(set(days)) if timedelta(days=day) + settings.lead <= longest]
    if not within:
        raise SettingsError(
            f"site {settings.site}: the record before split.train_until lasts "
            f"{longest / timedelta(days=1):.0f} d, less than {_days(sorted(days))}. Ask for fewer "
            f"days."
        )
    return HazardSpec(
        edges_d=tuple(within),
        lead=settings.lead,
        trained_on=settings.trained_on,
        train=settings.training.spec(settings.seed),
    )


def _record(tables: CoreTables, settings: Settings, *, spec: HazardSpec, end: datetime) -> _Record:
    step = max(timedelta(days=1), timedelta(days=(end - settings.start).days // MOMENTS))
    moments = (*as_of_times(settings.start + step, end, every=step), end)
    grid = watched_grid(tables.inventory, moments, unknown_start="watched")
    catalogue = load_catalogue(settings.fault_catalogue, overrides=settings.fault_overrides)
    labels = build_labels(
        grid,
        incidents=tables.incidents,
        inventory=tables.inventory,
        maintenance=planned_work(tables.maintenance, tables.node_states, catalogue=catalogue),
        data_end=end,
        spec=LabelSpec(lead=settings.lead, horizons_h=spec.horizons_h),
        catalogue_version=catalogue.version,
    )
    return _Record(matrix=build_gpu_matrix(tables, grid, spec=MATRIX), labels=labels, end=end)


def _learned(
    record: _Record, *, spec: HazardSpec, names: Sequence[str], split: SplitSettings
) -> HazardModel:
    as_of = pl.col("as_of")
    raw = train_hazard(
        record.matrix.filter(as_of < split.train_until),
        record.labels,
        feature_names=names,
        spec=spec,
        until=split.train_until,
    )
    valid = record.matrix.filter(
        as_of.is_between(split.train_until, split.valid_until, closed="left")
    )
    return raw.calibrated_on(valid, record.labels, until=split.valid_until)


def _riskiest(risks: pl.DataFrame, *, end: datetime) -> Iterator[str]:
    names = risks.columns[3:]
    yield f"Least likely to last, as of {end:%Y-%m-%d %H:%M} UTC (probability of no failure):"
    for row in risks.head(SHOWN).iter_rows(named=True):
        shown = ", ".join(
            f"{name.removeprefix('survival_').removesuffix('d')} d {row[name]:.3f}"
            for name in names
        )
        yield f"  {row['entity_id']} on {row['node']}: {shown}"


def _judged(model: HazardModel, record: _Record, *, split: SplitSettings) -> Iterator[str]:
    """Expected and observed failures of rows that nothing was learned or calibrated on."""
    yield f"After {split.valid_until:%Y-%m-%d}, rows of GPUs whose outcome is known:"
    for number, (edge, period) in enumerate(zip(model.spec.edges_d, model.periods, strict=True)):
        known = record.matrix.join(
            record.labels.filter(
                pl.col("horizon_h") == 24 * edge,
                pl.col("label").is_not_null(),
                pl.col("as_of") >= split.valid_until,
            ).select("entity_id", "as_of", "label"),
            on=["entity_id", "as_of"],
        )
        expected = 1.0 - model.survival(known)[:, number]
        doubt = "" if period.model.calibration.n_rows else "; period not calibrated"
        found = (
            f"{known.height:,} rows, {expected.sum():.1f} expected to fail, "
            f"{int(known['label'].sum())} did"
            if known.height
            else "no row's outcome is known yet"
        )
        yield f"  within {edge} d: {found}{doubt}"


def _days(days: Sequence[int]) -> str:
    return ", ".join(f"{day} d" for day in days)
