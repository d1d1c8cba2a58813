"""What must hold of an installation at the end of every day, each rule with its own words.

Rules read what the installation has stored, published and written down; none changes anything.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import dagster as dg
import polars as pl

from features.monitoring_tables import LIVE_QUALITY
from features.tables import (
    CORE_GPU_TELEMETRY,
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_TOPOLOGY,
    GPU_SCORES,
    NODE_SCORES,
)
from pipelines.api.access import open_access
from pipelines.api.application import build_application
from pipelines.api.fleet_view import FleetView
from pipelines.api.sources import open_sources
from pipelines.board.serve import build_board
from pipelines.flow.publish import published_as_of, published_ticks
from pipelines.landing.ingest import landing_of
from pipelines.orchestration.hour_plan import due_hours
from pipelines.orchestration.hour_state import stored_starts
from pipelines.serving.place import score_engine
from pipelines.serving.score_reader import alerts_within, outcomes
from pipelines.storage.store import Span, TableStore
from remediation.ledger.entries import Entry
from remediation.ledger.sqlite import SqliteLedger
from remediation.score_source import FolderScoreSource
from tests.end_to_end.life import RUN_KEY, Life
from tests.end_to_end.life_fleet import DAY, HOUR, T0
from tests.pipelines.api.api_world import Client

SCORED: Final = "scores/gpu_scores"
SAMPLE_AGE: Final = timedelta(minutes=30)
"""Age of the newest sample above which a GPU has no score."""
HELD_MOST, RACK_MOST, HOURLY_MOST = 2, 1, 2
"""The site's caps: a fifth of twelve nodes, one per rack, two actions per hour."""


@dataclass
class Watch:
    """What was seen on earlier days.

    Attributes:
        ledger: Hashes of the ledger's entries so far.
        newest: The newest hour that was due at each look, oldest first.
    """

    ledger: list[str] = field(default_factory=list)
    newest: list[datetime] = field(default_factory=list)

    def __call__(self, life: Life) -> None:
        """Asks for everything that must hold now."""
        self.newest.append(due_hours(life.settings, now=life.now)[-1])
        nothing_read_is_lost(life)
        every_due_hour_is_there_once(life)
        ticks_are_of_the_newest_hours(life, self.newest)
        no_key_ran_twice(life)
        partitions_are_noted_once_per_run(life)
        every_score_has_its_samples(life, since=life.now - DAY)
        hook_has_seen_the_newest_tick(life)
        self.ledger = ledger_only_grows(life, self.ledger)
        nothing_is_done_on_unknown_scores(life)
        caps_hold(life)
        board_and_api_say_the_same(life)


def nothing_read_is_lost(life: Life) -> None:
    """Of each input: read = parsed + skipped + quarantined; of telemetry, read = delivered."""
    reads = landing_of(life.settings).journal.reads()
    accounted = pl.col("n_parsed") + pl.col("n_skipped") + pl.col("n_quarantined")
    lost = reads.filter(pl.col("n_read") != accounted)
    assert lost.is_empty(), f"{life.now}: records without an account: {lost.rows(named=True)[:3]}"
    is_sample = pl.col("origin").str.contains("/telemetry")
    n_read = reads.filter(is_sample)["n_read"].sum()
    n_due = life.drop.n_samples - life.drop.n_unreadable
    assert n_read == n_due, f"{life.now}: {n_due} samples were delivered, {n_read} were read"


def every_due_hour_is_there_once(life: Life) -> None:
    """Each due hour has core tables and scores, and in them no entity twice."""
    settings = life.settings
    due = set(due_hours(settings, now=life.now)) - life.excused
    span = Span(min(due), max(due) + HOUR)
    for table in (CORE_GPU_TELEMETRY, CORE_HEALTH_EVENTS, GPU_SCORES, NODE_SCORES):
        missing = sorted(due - stored_starts(settings, table, span, step=HOUR))
        assert not missing, f"{life.now}: {table.asset_key} lacks {missing[:5]}"
        assert_unique(life, table, Span(max(span.start, life.now - 2 * DAY), span.end))


def assert_unique(life: Life, table: Any, span: Span) -> None:
    rows = TableStore(life.settings.store_root).read(table, span=span)
    twice = rows.filter(pl.struct(table.key).is_duplicated())
    assert twice.is_empty(), f"{life.now}: {table.asset_key} has rows twice: {twice.head(2)}"


def ticks_are_of_the_newest_hours(life: Life, newest: Sequence[datetime]) -> None:
    """Published is the newest hour of each look and no other: the rest is made up, not news."""
    ticks = [path.name.split("-")[0] for path in published_ticks(life.settings.scores_dir)]
    as_ofs = [f"{hour + HOUR:%Y%m%dT%H%M%SZ}" for hour in newest]
    strange = sorted(set(ticks) - set(as_ofs))
    assert not strange, f"{life.now}: published although newer hours were due: {strange}"
    named = {f"{hour + HOUR:%Y%m%dT%H%M%SZ}" for hour in life.unpublished}
    unpublished = sorted(set(as_ofs) - set(ticks) - named)
    assert not unpublished, f"{life.now}: never published: {unpublished}"
    as_of = published_as_of(life.settings.scores_dir)
    last = max(hour for hour in newest if hour not in life.unpublished) + HOUR
    assert as_of == last, f"{life.now}: the latest tick is of {as_of}, due is {last}"


def no_key_ran_twice(life: Life) -> None:
    """Dagster has one run per key, and none that nobody asked for."""
    runs = life.instance.get_runs()
    twice = [key for key, n in Counter(run.tags.get(RUN_KEY) for run in runs).items() if n > 1]
    assert not twice, f"{life.now}: ran twice: {twice}"
    assert len(runs) == len(life.runs), f"{len(runs)} runs, {len(life.runs)} were asked for"
    at_work = [run.run_id for run in runs if not run.is_finished]
    assert not at_work, f"{life.now}: never ended: {at_work}"


def partitions_are_noted_once_per_run(life: Life) -> None:
    """Dagster has one materialisation of scores per hour and run that made it."""
    wanted = dg.EventRecordsFilter(
        dg.DagsterEventType.ASSET_MATERIALIZATION, asset_key=dg.AssetKey(SCORED.split("/"))
    )
    records = life.instance.get_event_records(wanted)
    noted = Counter((one.run_id, one.partition_key) for one in records)
    twice = [pair for pair, n in noted.items() if n > 1]
    assert not twice, f"{life.now}: noted twice: {twice[:3]}"
    hours = {partition for _, partition in noted}
    due = {
        f"{hour:%Y-%m-%d-%H:%M}"
        for hour in set(due_hours(life.settings, now=life.now)) - life.excused
    }
    assert due <= hours, f"{life.now}: made but never noted: {sorted(due - hours)[:3]}"


def every_score_has_its_samples(life: Life, *, since: datetime) -> None:
    """A GPU with a score has a sample within half an hour before; by looking at every sample."""
    store = TableStore(life.settings.store_root)
    since = since.replace(minute=0)
    span = Span(since, due_hours(life.settings, now=life.now)[-1] + HOUR)
    scores = store.read(GPU_SCORES, span=span).filter(pl.col("status") == "ok")
    samples = store.read(CORE_GPU_TELEMETRY, span=Span(span.start - HOUR, span.end)).select(
        pl.col("gpu_uuid").alias("entity_id"), "ts"
    )
    aged = (
        scores.select("entity_id", "as_of")
        .sort("as_of")
        .join_asof(
            samples.sort("ts"), left_on="as_of", right_on="ts", by="entity_id", strategy="backward"
        )
    )
    blind = aged.filter(pl.col("ts").is_null() | (pl.col("as_of") - pl.col("ts") > SAMPLE_AGE))
    assert blind.is_empty(), f"{life.now}: scored without samples: {blind.head(3).rows()}"


def ledger_of(life: Life) -> list[Entry]:
    """All entries; none where the hook has not run yet."""
    path = life.settings.ledger_path
    if not path.exists():
        return []
    with SqliteLedger(path) as ledger:
        assert ledger.verify().is_whole, f"{life.now}: the ledger's chain is broken"
        return list(ledger.entries())


def hook_has_seen_the_newest_tick(life: Life) -> None:
    """The hook's last round rested on what is published now."""
    run = life.rounds[-1].run
    assert run is not None, f"{life.now}: {life.rounds[-1].refused_by}"
    as_of = published_as_of(life.settings.scores_dir)
    assert run.published.as_of == as_of, f"{life.now}: the hook has not seen the tick of {as_of}"


def ledger_only_grows(life: Life, before: Sequence[str]) -> list[str]:
    """What was written stays, and each intent has its outcome."""
    entries = ledger_of(life)
    hashes = [entry.hash for entry in entries]
    assert hashes[: len(before)] == list(before), f"{life.now}: entries of the ledger have changed"
    answered = {entry.refers_to for entry in entries if entry.kind == "result"}
    open_ = [entry.key for entry in entries if entry.kind == "intent" and entry.key not in answered]
    assert not open_, f"{life.now}: intents without an outcome: {open_}"
    return hashes


def nothing_is_done_on_unknown_scores(life: Life) -> None:
    """An intent rests on a decision about a score that is known and had not expired."""
    entries = ledger_of(life)
    decided = {entry.decision_id: entry.body for entry in entries if entry.kind == "decision"}
    for entry in entries:
        if entry.kind != "intent":
            continue
        body = decided[entry.decision_id]
        assert body["status"] == "ok", f"{entry.node}: acted on a score that is {body['status']}"
        assert body["score"] is not None, f"{entry.node}: acted without a score"
        expires = datetime.fromisoformat(body["expires_at"])
        assert entry.recorded_at <= expires, f"{entry.node}: acted on scores that had expired"


def caps_hold(life: Life) -> None:
    """Never more nodes held at once, per rack, or begun in an hour than the site allows."""
    acts = [entry for entry in ledger_of(life) if entry.kind == "intent"]
    racks = _racks(life)
    for entry in acts:
        at = entry.recorded_at
        # A dry run counts a node as held for the horizon.
        held = {one.node for one in acts if at - DAY < one.recorded_at <= at}
        assert len(held) <= HELD_MOST, f"{at}: {sorted(map(str, held))} held at once"
        most = max(Counter(racks.get(str(node), str(node)) for node in held).values())
        assert most <= RACK_MOST, f"{at}: {sorted(map(str, held))} held in one rack"
        begun = [one for one in acts if at - HOUR < one.recorded_at <= at]
        assert len(begun) <= HOURLY_MOST, f"{at}: {len(begun)} begun within an hour"


def _racks(life: Life) -> dict[str, str]:
    places = TableStore(life.settings.store_root).read(CORE_TOPOLOGY)
    rows = places.filter(pl.col("level") == life.settings.rack_level)
    return dict(rows.select("node", "place").iter_rows())


def board_and_api_say_the_same(life: Life) -> None:
    """Tick, counts and ledger: as the files have them, in the API, and on the board's pages."""
    settings = life.settings
    latest = FolderScoreSource(settings.scores_dir).latest(life.now)
    entries = ledger_of(life)
    fleet_view = FleetView(settings, clock=lambda: 0.0, run=lambda work: work())
    sources = open_sources(settings, fleet=fleet_view, now=lambda: life.now)
    try:
        api = Client(build_application(sources, open_access(settings)))
        page = api.get("/api/v1/scores?kind=node&horizon_h=24&limit=500").json()
        assert datetime.fromisoformat(page["as_of"]) == latest.as_of, f"{life.now}: API's tick"
        rows = latest.node_scores.filter(pl.col("horizon_h") == 24)
        said = {one["entity_id"]: (one["status"], one["score"]) for one in page["rows"]}
        stored = {
            node: (status, score)
            for node, status, score in rows.select("entity_id", "status", "score").iter_rows()
        }
        assert said == stored, f"{life.now}: the API's scores are not the published ones"
        newest = api.get("/api/v1/ledger?limit=50").json()["rows"]
        assert [one["hash"] for one in newest] == [one.hash for one in entries[::-1][:50]]
        board = Client(build_board(sources, open_access(settings), clock=lambda: 0.0))
        fleet = board.get("/").text
        assert f"{latest.as_of:%Y-%m-%d %H:%M}" in fleet, f"{life.now}: the board's tick"
        for node in stored:
            assert node in fleet, f"{life.now}: {node} is not on the board"
        audit = board.get("/audit?verify=1").text
        for entry in entries[::-1][:10]:
            assert f">{entry.seq}<" in audit, f"{life.now}: entry {entry.seq} is not on the board"
        for path in ("/quality", "/data", "/models"):
            assert board.get(path).status_code == 200, f"{life.now}: {path}"
    finally:
        sources.engine.dispose()


def alerts_are_judged_right(life: Life) -> int:
    """Hits and false alarms are those of a count alert by alert, over all incidents.

    Returns:
        The number of alerts that were judged.
    """
    settings = life.settings
    engine = score_engine(settings)
    raised = alerts_within(engine, start=T0, end=life.now)
    judged = outcomes(engine, limit=2000)
    engine.dispose()
    store = TableStore(settings.store_root)
    incidents = store.read(CORE_INCIDENTS)
    said = {
        (row["node"], row["as_of"]): row["outcome"]
        for row in judged.iter_rows(named=True)
        if row["outcome"] in ("hit", "false_alarm")
    }
    counted = {}
    for row in raised.iter_rows(named=True):
        if (alert := (row["node"], row["as_of"])) in said:  # else open, or censored
            first = row["as_of"] + settings.lead
            came = incidents.filter(
                (pl.col("node") == row["node"])
                & (pl.col("start") >= first)
                & (pl.col("start") < first + timedelta(hours=row["horizon_h"]))
            )
            counted[alert] = "hit" if came.height else "false_alarm"
    assert counted == said, f"{life.now}: judged otherwise than counted"
    quality = store.read(LIVE_QUALITY)
    sums = (quality["n_hits"].sum(), quality["n_false_alarms"].sum())
    values = list(counted.values())
    assert sums == (values.count("hit"), values.count("false_alarm"))
    return len(counted)
