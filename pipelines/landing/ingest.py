"""Landing what a site's inputs give: new content is read, known content is left, failures are kept.

How a format is parsed is in `pipelines.sources`, how rows are kept in `pipelines.landing.landed`.
The command, the schedule and the assets call the same function.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from features.coverage import build_coverage, presence_of, telemetry_records
from features.errors import SettingsError, SourceError
from features.inventory import build_stays
from features.monitoring_tables import QUARANTINE, READS
from features.raw_tables import RAW_COVERAGE, RAW_GPU_TELEMETRY, RAW_INVENTORY, RAW_KERNEL_LOG
from features.tables import CORE_COVERAGE, TABLE_BY_KEY
from pipelines.landing.ingest_run import (
    OWN_RECORDS,
    STATIC_TABLES,
    InputOutcome,
    Progress,
    Run,
    SilentProgress,
)
from pipelines.landing.landed import LANDED_TABLES, Landing
from pipelines.settings import Settings
from pipelines.sources.result import SourceResult, merge
from pipelines.sources.site.input_base import FileInput, Input, PresentInput, WindowInput
from pipelines.sources.site.listing import SiteInputs, load_inputs
from pipelines.sources.site.places import places_by_name
from pipelines.sources.site.readers import read_inputs, tables_of
from pipelines.sources.site.reading_names import way_of_reading
from pipelines.storage.store import Span, TableStore

_DAY: Final = timedelta(days=1)
_REMEMBERED: Final = timedelta(days=7)
"""How long a source that fell silent about an entity is still expected to speak of it."""
_FOREVER: Final = datetime(9999, 1, 1, tzinfo=UTC)


def landing_of(settings: Settings) -> Landing:
    """Where the inputs of an installation land."""
    return Landing(settings.landing_root)


def ingest(
    settings: Settings,
    *,
    now: datetime,
    tables: Collection[str] | None = None,
    only: Collection[str] = (),
    progress: Progress | None = None,
) -> list[InputOutcome]:
    """Lands what is new in the inputs of an installation.

    Args:
        settings: The installation.
        now: When it is read.
        tables: Asset keys wanted; inputs that give none of them are left. None: all.
        only: Names or kinds of inputs; empty: all.
        progress: Where progress is shown.

    Returns:
        One outcome per input, in the order of the list. An input that cannot be read is a
        failure in its outcome and in the quarantine, and holds up no other.

    Raises:
        SettingsError: The list cannot be read, or `only` names no input.
    """
    inputs = load_inputs(settings.inputs)
    chosen = [spec for spec in _chosen(inputs, only) if _is_wanted(inputs, spec, tables)]
    for spec in chosen:
        way_of_reading(inputs, spec)  # a mistake in the list is found before anything lands
    landing, outcomes = landing_of(settings), []
    run = Run(settings, inputs, landing, now, progress or SilentProgress())
    with landing.writer() as writer:
        for spec in chosen:
            outcome = InputOutcome(spec.label, spec.kind)
            outcomes.append(outcome)
            if isinstance(spec, FileInput):
                run.land_files(spec, writer, outcome)
            elif isinstance(spec, WindowInput):
                run.land_windows(spec, writer, outcome)
            elif isinstance(spec, PresentInput):
                run.land_present(spec, writer, outcome)
    return outcomes


def raise_for_dead(outcomes: Collection[InputOutcome]) -> None:
    """Stops where an input gave nothing but failures: a mistake in the list, not in a file.

    Raises:
        SourceError: Such an input, with its first failure.
    """
    for outcome in outcomes:
        if outcome.failures and not outcome.n_landed and not outcome.n_known:
            raise SourceError(outcome.failures[0])


def read_static(settings: Settings, store: TableStore, *, now: datetime) -> dict[str, pl.DataFrame]:
    """Stays, places, planned work and incidents, as the records have them now; keeps the account.

    Args:
        settings: The installation.
        store: Where the account goes.
        now: Recorded as the time of reading.

    Returns:
        Frames by asset key of `STATIC_TABLES`. What a site's own records say goes before what
        servers told and before what node names tell.
    """
    inputs, landing = load_inputs(settings.inputs), landing_of(settings)
    own = read_inputs(inputs, ingested_at=now, tables=STATIC_TABLES, kinds={OWN_RECORDS})
    told = {key: landing.read(LANDED_TABLES[key]) for key in ("core/topology", "core/maintenance")}
    stays = build_stays(landing.read(RAW_INVENTORY), own.table("core/inventory"))
    names = _node_names(stays.frame, landing)
    placed = places_by_name(names, inputs.spec.places) if inputs.spec.places else SourceResult()
    told["core/topology"] = pl.concat([told["core/topology"], placed.table("core/topology")])
    result = merge([own, placed])
    rejects = stays.rejects.with_columns(
        table=pl.lit("core/inventory"), source=pl.lit("core_build"), origin=pl.lit("sights")
    )
    quarantine = pl.concat([result.quarantine, QUARANTINE.conform(rejects)])
    store.keep_part(QUARANTINE, "raw_static", quarantine)
    store.keep_part(READS, "raw_static", _unlanded(result.reads, landing))
    frames = {key: TABLE_BY_KEY[key].conform(own.table(key)) for key in STATIC_TABLES}
    frames |= {key: _first_word(key, frames[key], frame) for key, frame in told.items()}
    return frames | {"core/inventory": stays.frame}


def _node_names(stays: pl.DataFrame, landing: Landing) -> list[str]:
    states = landing.read(LANDED_TABLES["raw/node_states"])
    return sorted(set(stays["node"]) | set(states["node"]))


def _first_word(key: str, own: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Own rows, and of the told ones those about nodes and levels that no own row is about."""
    about = ["node", "level"] if key == "core/topology" else list(TABLE_BY_KEY[key].key)
    others = told.join(own, on=about, how="anti", nulls_equal=True)
    return pl.concat([own, others]).unique(TABLE_BY_KEY[key].key, keep="first", maintain_order=True)


def _unlanded(reads: pl.DataFrame, landing: Landing) -> pl.DataFrame:
    """Accounts of files that have not landed too: those that have are counted there."""
    return reads.join(landing.journal.reads(), on=["source", "origin"], how="anti")


def keep_outside(settings: Settings, store: TableStore) -> None:
    """Keeps how many landed rows lie before or after the record, for they are in no partition."""
    record = Span(settings.start, settings.end or _FOREVER)
    rows = []
    for key in ("raw/gpu_telemetry", "raw/kernel_log"):
        before, after = landing_of(settings).outside(LANDED_TABLES[key], record)
        rules = {
            f"before the start of the record, {settings.start}": before,
            f"at or after the end of the record, {settings.end}": after,
        }
        origin = {"table": key, "source": "settings", "origin": str(settings.inputs)}
        rows += [
            {**origin, "rule": rule, "count": n_rows, "example": example}
            for rule, (n_rows, example) in rules.items()
            if n_rows
        ]
    store.keep_part(QUARANTINE, "outside-record", pl.DataFrame(rows, schema=QUARANTINE.schema))


def coverage_of(settings: Settings, inventory: pl.DataFrame, span: Span) -> pl.DataFrame:
    """What came, and what did not, in the hours of a span.

    Args:
        settings: The installation.
        inventory: core/inventory: what is there is expected to be heard of.
        span: Whole days.

    Returns:
        core/coverage of the span.
    """
    stretches = landing_of(settings).read(
        RAW_COVERAGE, span=Span(span.start - _REMEMBERED, span.end)
    )
    # Each day by itself, as a run of that day alone has it: what is usual, and who is known, is a
    # matter of the stretch that is looked at. Nor do weeks of telemetry fit in memory.
    days = [_coverage_of_day(settings, inventory, day, stretches) for day in span.steps(_DAY)]
    return pl.concat(days).sort(CORE_COVERAGE.key)


def _coverage_of_day(
    settings: Settings, inventory: pl.DataFrame, day: Span, stretches: pl.DataFrame
) -> pl.DataFrame:
    """Coverage of a day; of the stretches only those that had begun and are remembered count."""
    landing, start = landing_of(settings), pl.col("start")
    said = stretches.filter(start >= day.start - _REMEMBERED, start < day.end)
    lines = landing.read(RAW_KERNEL_LOG, span=day).filter(pl.col("node").is_not_null())
    return build_coverage(
        said,
        telemetry_records(landing.read(RAW_GPU_TELEMETRY, span=day)),
        start=day.start,
        end=min(day.end, settings.data_end(day.end)),
        events=lines.select(
            "source", entity_kind=pl.lit("node"), entity_id=pl.col("node"), ts=pl.col("ts")
        ),
        known=said.select("source", "entity_kind", "entity_id").unique(),
        presence=presence_of(inventory),
    )


def _chosen(inputs: SiteInputs, only: Collection[str]) -> list[Input]:
    specs = list(inputs.spec.inputs)
    known = {word for spec in specs for word in (spec.kind, spec.label)}
    if unknown := sorted(set(only) - known):
        raise SettingsError(
            f"{inputs.path}: no input is called {unknown[0]!r}. Its inputs are: "
            f"{', '.join(sorted(spec.label for spec in specs))}."
        )
    return [spec for spec in specs if not only or {spec.kind, spec.label} & set(only)]


def _is_wanted(inputs: SiteInputs, spec: Input, tables: Collection[str] | None) -> bool:
    given = set(tables_of(inputs, spec)) & set(LANDED_TABLES)
    return bool(given if tables is None else given & set(tables))
