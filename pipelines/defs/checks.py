"""Asset checks, made by a loop over the tables' contracts.

What is judged is in `pipelines.orchestration.table_checks`. Checks of one layer are one step: a
step costs Dagster more than its checks do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import dagster as dg

from features.contracts import TableContract
from features.monitoring_tables import DRIFT, QUARANTINE, READS
from features.raw_tables import RAW_KERNEL_LOG
from features.tables import (
    CORE_COVERAGE,
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INVENTORY,
    GPU_SCORES,
    LABELS,
    NODE_SCORES,
    TABLE_BY_KEY,
)
from pipelines.defs.hourly import failed_runs
from pipelines.defs.resources import Installation
from pipelines.landing.ingest import landing_of
from pipelines.landing.landed import LANDED_TABLES
from pipelines.orchestration import table_checks as judge
from pipelines.orchestration.hour_plan import rule_of, set_aside
from pipelines.orchestration.hour_state import hour_state
from pipelines.orchestration.table_checks import PartStats, Verdict
from pipelines.orchestration.table_stats import TRAILING_DAYS, filled_until, newest_parts, rows_of
from pipelines.settings import Settings
from pipelines.storage.store import Span, TableStore

_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Look:
    """What checks look at.

    Attributes:
        settings: The installation.
        now: The present.
        instance: Dagster's instance.
    """

    settings: Settings
    now: datetime
    instance: dg.DagsterInstance

    @property
    def store(self) -> TableStore:
        """The tables."""
        return TableStore(self.settings.store_root)


@dataclass(frozen=True)
class Check:
    """One check of one table.

    Attributes:
        table: The table.
        name: Its name.
        meaning: What it asks, in a line.
        run: Gives the verdict.
        is_error: Whether a failure means that predictions cannot be trusted now (ERROR), rather
            than that somebody should look in working hours (WARN).
    """

    table: TableContract
    name: str
    meaning: str
    run: Callable[[Look], Verdict]
    is_error: bool = False

    @property
    def key(self) -> dg.AssetCheckKey:
        """Dagster's name of it."""
        return dg.AssetCheckKey(dg.AssetKey(self.table.asset_key.split("/")), self.name)


def table_check_assets(
    assets: Sequence[dg.AssetsDefinition],
) -> Sequence[dg.AssetChecksDefinition]:
    """The checks of all tables that are assets.

    Args:
        assets: All assets of the installation.
    """
    specs = {"/".join(spec.key.path): spec for asset in assets for spec in asset.specs}
    tables = [TABLE_BY_KEY[key] for key in sorted(specs) if key in TABLE_BY_KEY]
    layers: dict[str, list[Check]] = {}
    for table in tables:
        is_cut = specs[table.asset_key].partitions_def is not None
        layer = f"{table.asset_key.split('/')[0]}_{'parts' if is_cut else 'whole'}"
        layers.setdefault(layer, []).extend(checks_of(table))
    return [_layer(name, checks) for name, checks in layers.items() if checks]


def checks_of(table: TableContract) -> Iterator[Check]:
    """The checks of a table, by what its contract says."""
    key = table.asset_key
    if key in LANDED_TABLES and key.startswith("raw/"):
        if table.partition == "hour":
            yield Check(table, "volume", "About as many rows as usual at this hour", _landed(table))
        return
    if table.partition != "none":
        is_vital = table in (CORE_GPU_TELEMETRY, GPU_SCORES, NODE_SCORES)
        if is_vital or table.partition == "day":  # the other hours are made in the same run
            yield Check(table, "fresh", "Data is young by its own time", _fresh(table), is_vital)
        yield Check(table, "volume", "About as many rows as usual at this hour", _volume(table))
        if not key.startswith("scores/"):  # of scores, `known` says it
            yield Check(table, "nulls", "No column is null more often than usual", _nulls(table))
    elif table is CORE_INVENTORY:  # any other may be empty at a site that is well
        yield Check(table, "filled", "Some GPU is watched", _filled(table), is_error=True)
    if table.partition == "none" or table.time_column not in table.key:
        # Within a part keys are unique as it is written; parts share none where time is in it.
        yield Check(table, "keys", "No two rows have the same key", _keys(table), is_error=True)
    yield from _OWN.get(key, ())


def _layer(name: str, checks: Sequence[Check]) -> dg.AssetChecksDefinition:
    by_key = {check.key: check for check in checks}

    @dg.multi_asset_check(
        name=f"check_{name}",
        specs=[
            dg.AssetCheckSpec(check.name, asset=check.key.asset_key, description=check.meaning)
            for check in checks
        ],
        can_subset=True,
    )
    def run(
        context: dg.AssetCheckExecutionContext, installation: Installation
    ) -> Iterator[dg.AssetCheckResult]:
        look = Look(installation.settings, installation.now, context.instance)
        for key in sorted(context.selected_asset_check_keys, key=str):
            yield _result(by_key[key], by_key[key].run(look))

    return run


def _result(check: Check, verdict: Verdict) -> dg.AssetCheckResult:
    severity = dg.AssetCheckSeverity.ERROR if check.is_error else dg.AssetCheckSeverity.WARN
    values: Mapping[str, float | int | str] = verdict.values
    return dg.AssetCheckResult(
        asset_key=check.key.asset_key,
        check_name=check.name,
        passed=verdict.is_passed,
        severity=severity,
        description=verdict.words,
        metadata=dict(values),
    )


def _fresh(table: TableContract) -> Callable[[Look], Verdict]:
    def run(look: Look) -> Verdict:
        settings = look.settings
        limit = timedelta(minutes=settings.schedule.stale_minutes)
        if table is LABELS:
            limit = settings.lead + timedelta(hours=max(settings.horizons_h)) + 2 * _DAY
        elif table is CORE_COVERAGE:
            limit = 2 * _DAY
        elif settings.data_partition == "day":
            limit += _DAY
        until = filled_until(look.store, table, reach=limit)
        return judge.freshness(until, end=settings.data_end(look.now), limit=limit)

    return run


def _volume(table: TableContract) -> Callable[[Look], Verdict]:
    in_bursts = table in _IN_BURSTS
    return lambda look: judge.volume(*newest_parts(look.store, table), comes_in_bursts=in_bursts)


def _nulls(table: TableContract) -> Callable[[Look], Verdict]:
    return lambda look: judge.null_shares(*newest_parts(look.store, table))


def _filled(table: TableContract) -> Callable[[Look], Verdict]:
    return lambda look: judge.filled(rows_of(look.store, table))


def _landed(table: TableContract) -> Callable[[Look], Verdict]:
    def run(look: Look) -> Verdict:
        landing = landing_of(look.settings)
        end = look.settings.data_end(look.now).replace(minute=0, second=0, microsecond=0)
        counts = [
            PartStats(start=at, rows=landing.count(table, span=Span(at, at + _HOUR)))
            for days in range(TRAILING_DAYS, -1, -1)
            if (at := end - _HOUR - days * _DAY) >= look.settings.start
        ]
        newest = counts[-1] if counts else None
        return judge.volume(newest, counts[:-1], comes_in_bursts=table in _IN_BURSTS)

    return run


def _keys(table: TableContract) -> Callable[[Look], Verdict]:
    def run(look: Look) -> Verdict:
        until = look.store.covered_until(table)
        span = Span(until - _DAY, until) if until else None
        if not look.store.has(table):
            return judge.NOTHING_YET
        return judge.unique_keys(look.store.read(table, span=span), table.key)

    return run


def _labels(look: Look) -> Verdict:
    until = look.store.covered_until(LABELS)
    if until is None:
        return judge.NOTHING_YET
    return judge.label_balance(look.store.read(LABELS, span=Span(until - _DAY, until)))


def _unknown(table: TableContract) -> Callable[[Look], Verdict]:
    def run(look: Look) -> Verdict:
        until = look.store.covered_until(table)
        if until is None:
            return judge.NOTHING_YET
        scores = look.store.read(table, span=Span(until - _HOUR, until))
        return judge.unknown_share(scores, most=1 - look.settings.serving.min_coverage)

    return run


def _aside(look: Look) -> Verdict:
    settings = look.settings
    since = look.now - timedelta(days=settings.schedule.look_back_days)
    failed = failed_runs(look.instance, since=since)
    if not failed:
        return judge.none_set_aside({})
    state = hour_state(settings, now=look.now, failed=failed)
    return judge.none_set_aside(set_aside(state, rule_of(settings)))


def _drift(look: Look) -> Verdict:
    return judge.no_drift(look.store.read(DRIFT)) if look.store.has(DRIFT) else judge.NOTHING_YET


def _reads(look: Look) -> Verdict:
    return (
        judge.nothing_lost(look.store.read(READS)) if look.store.has(READS) else judge.NOTHING_YET
    )


def _rejected(look: Look) -> Verdict:
    if not look.store.has(QUARANTINE):
        return judge.NOTHING_YET
    n_read = int(landing_of(look.settings).journal.reads()["n_read"].sum())
    return judge.few_rejected(look.store.read(QUARANTINE), n_read=n_read)


_IN_BURSTS: Final = (RAW_KERNEL_LOG, CORE_HEALTH_EVENTS)
"""Tables of events: thousands in an hour of one broken GPU, next to none in a good one."""

_OWN: Final[Mapping[str, Sequence[Check]]] = {
    "core/gpu_telemetry": (
        Check(
            CORE_GPU_TELEMETRY,
            "none_set_aside",
            "Every hour that is due could be made",
            _aside,
            is_error=True,
        ),
    ),
    "features/labels": (
        Check(LABELS, "balance", "Positives are rare and most outcomes known", _labels),
    ),
    "scores/gpu_scores": (
        Check(GPU_SCORES, "known", "Most GPUs have a score", _unknown(GPU_SCORES)),
    ),
    "scores/node_scores": (
        Check(NODE_SCORES, "known", "Most nodes have a score", _unknown(NODE_SCORES)),
    ),
    "monitoring/drift": (Check(DRIFT, "no_drift", "Inputs and scores are as in training", _drift),),
    "monitoring/quarantine": (
        Check(QUARANTINE, "few_rejected", "Few rows break a table's contract", _rejected),
    ),
    "monitoring/reads": (
        Check(READS, "nothing_lost", "Read = parsed + skipped + refused, few refused", _reads),
    ),
}
