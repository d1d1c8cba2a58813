"""Puts the fleet page together: the tick, the hook, the states, and the filters of the address.

What each part says is in `pipelines.board.fleet_page`, `fleet_map` and `health`.
"""

import hashlib
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

import polars as pl

from features.vocabulary import FAULT_TYPES
from pipelines.api.fleet_view import Snapshot
from pipelines.board.desk import Desk
from pipelines.board.fleet_map import legend, rack_tiles
from pipelines.board.fleet_page import (
    MOST_FIRST,
    ONLY,
    PAGE_ROWS,
    Wanted,
    at_risk,
    fleet_frame,
    headline,
    list_rows,
    nobody,
    select,
    title,
)
from pipelines.board.health import is_in_time, signals
from pipelines.board.hook_view import HookView
from pipelines.board.page import pages
from pipelines.board.words import scores_age
from pipelines.board.zone import Zone
from pipelines.report.words import fault_words, hours
from pipelines.serving.score_database import Tick
from pipelines.serving.scorer_status import read_status

_MAP_KEPT_S: Final = 3600.0


def fleet_values(desk: Desk, *, wanted: Wanted, zone: Zone, now: datetime) -> dict[str, Any]:
    """What the page shows, with or without any scores.

    Args:
        desk: What pages are made from.
        wanted: Filters of the ranked list.
        zone: Whose clocks times are shown on.
        now: The present.
    """
    sources = desk.sources
    snapshot, hook, states = sources.fleet.current(), desk.hook(now), desk.states(now)
    tick = None if snapshot is None else snapshot.tick
    parts = signals(
        tick=tick,
        problem=sources.fleet.problem,
        scorer=read_status(sources.settings.scores_dir),
        hook=hook,
        n_silent=0 if snapshot is None else len(snapshot.silent_nodes),
        min_coverage=sources.settings.serving.min_coverage,
        now=now,
    )
    values: dict[str, Any] = {
        "signals": parts,
        "is_valid": tick is not None and is_in_time(tick, now),
        "warning": "" if tick is None else scores_age(tick.as_of, tick.expires_at, now)[2],
        "snapshot": snapshot,
        "problems": [one for one in (hook.problem, states.words(zone)) if one],
        "asked": hook.asked,
        "pending": desk.asked.follow(hook.outcomes, now=now, zone=zone),
        "trained_on": "" if tick is None else tick.trained_on,
    }
    if snapshot is None or not snapshot.horizons_h:
        return {**values, "snapshot": None, "headline": "No scores yet.", "title": "No scores"}
    return {**values, **_scored(desk, snapshot, hook, states.frame, wanted=wanted, now=now)}


def _scored(
    desk: Desk,
    snapshot: Snapshot,
    hook: HookView,
    states: pl.DataFrame,
    *,
    wanted: Wanted,
    now: datetime,
) -> dict[str, Any]:
    usual = desk.sources.usual_horizon_h(snapshot)
    horizon_h = wanted.horizon_h if wanted.horizon_h in snapshot.horizons_h else usual
    as_of = snapshot.tick.as_of
    fleet = fleet_frame(snapshot, horizon_h=horizon_h, states=states, hook=hook)
    risky, found = at_risk(fleet), select(fleet, wanted)
    n_pages = pages(found.height, PAGE_ROWS)
    page = min(wanted.page, n_pages)
    shown = found.slice((page - 1) * PAGE_ROWS, PAGE_ROWS)
    is_valid = is_in_time(snapshot.tick, now)
    keep = "" if horizon_h == usual else f"&horizon={horizon_h}"
    return {
        **_map(desk, snapshot, fleet, horizon_h),
        **_said(snapshot.tick, fleet, hook, horizon_h=horizon_h, is_valid=is_valid),
        "n_nodes": fleet.height,
        "n_unknown": fleet["score"].null_count(),
        "n_risk": risky.height,
        "n_found": found.height,
        "n_pages": n_pages,
        "first": list_rows(risky.head(MOST_FIRST), hook, tick=snapshot.tick, now=now),
        "rows": list_rows(shown, hook, tick=snapshot.tick, now=now),
        "as_of": as_of,
        "why_no_racks": snapshot.why_no_racks,
        "horizon": hours(horizon_h),
        "horizon_h": horizon_h,
        "horizons": [(h, hours(h)) for h in snapshot.horizons_h],
        "fault_types": [(one, fault_words(one)) for one in FAULT_TYPES],
        "only": ONLY,
        "wanted": wanted,
        "keep": keep,
        "page_link": _page_link(wanted, horizon_h),
    }


def _said(
    tick: Tick, fleet: pl.DataFrame, hook: HookView, *, horizon_h: int, is_valid: bool
) -> dict[str, str]:
    """The fleet in one line, in a tab's few words, and what it means that nobody is at risk."""
    known = {"is_valid": is_valid, "has_threshold": horizon_h in tick.policies}
    return {
        "headline": headline(fleet, hook, as_of=tick.as_of, **known),
        "title": title(fleet, **known),
        "nobody": nobody(hook, **known),
    }


def _map(desk: Desk, snapshot: Snapshot, fleet: pl.DataFrame, horizon_h: int) -> dict[str, Any]:
    """The map, drawn anew only where something on it changed."""
    columns = ["node", "rack", "score", "is_alert", "is_held", "state"]
    shown = fleet.select(columns)
    marks = shown.select("node", "is_held", "state").hash_rows(seed=1).to_numpy().tobytes()
    key = ("map", snapshot.etag, horizon_h, hashlib.sha256(marks).hexdigest())
    return desk.kept.get(
        key,
        _MAP_KEPT_S,
        lambda: {"tiles": rack_tiles(shown, horizon_h=horizon_h), "legend": legend(shown)},
    )


def _page_link(wanted: Wanted, horizon_h: int) -> str:
    given = {
        "q": wanted.text,
        "rack": wanted.rack,
        "type": wanted.fault_type,
        "only": wanted.only,
        "horizon": str(horizon_h),
    }
    return "/?" + urlencode({name: value for name, value in given.items() if value}) + "&page="
