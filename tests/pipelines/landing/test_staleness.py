"""Rules of staleness: whatever comes late, and in whatever order, what is built anew is the same.

Clocks that are wrong by any amount hold up nothing.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.core_build import build_health_events
from features.incidents import build_incidents
from features.raw_tables import RAW_KERNEL_LOG
from features.tables import CORE_HEALTH_EVENTS, CORE_INVENTORY, CORE_JOBS, CORE_NODE_STATES
from pipelines.landing.journal import Reading
from pipelines.landing.landed import Landing
from pipelines.landing.staleness import find_stale
from pipelines.sources.catalogue import load_catalogue
from pipelines.sources.result import SourceResult, as_table
from pipelines.storage.store import Span, TableStore

HOUR = timedelta(hours=1)
CATALOGUE = load_catalogue(None)
T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOURS = 2
WHOLE = Span(T0, T0 + HOURS * HOUR)
STAYS = as_table(CORE_INVENTORY, [{"gpu_uuid": "g0", "node": "n0", "pci_bus_id": "0"}])

# Around a full hour, where events of two hours lie within 5 s of each other, or anywhere.
CLOSE = st.integers(-8, 8).map(lambda half: T0 + HOUR + timedelta(seconds=half / 2))
ANYWHERE = st.integers(0, HOURS * 3600 - 1).map(lambda second: T0 + timedelta(seconds=second))
LINES = st.lists(
    st.tuples(
        st.one_of(CLOSE, CLOSE, CLOSE, ANYWHERE),
        st.sampled_from([79, 79, 79, 48]),
        st.sampled_from(["x", "y"]),
    ),
    unique=True,  # what is written twice in one log counts twice, in two logs once
    min_size=4,
    max_size=14,
)
RUNS = st.lists(st.tuples(st.integers(0, HOURS - 1), st.integers(1, HOURS)), max_size=1)
"""First hour and number of hours of a run by hand between two deliveries."""

Line = tuple[datetime, int, str]


class Site:
    """A landing and the health events built from it, as the asset builds them."""

    def __init__(self, root: Path) -> None:
        self.landing, self.store = Landing(root / "landing"), TableStore(root / "tables")
        self.n_landed = 0

    def land(self, lines: Iterable[Line]) -> None:
        self.n_landed += 1
        landed_at = T0 + self.n_landed * HOUR
        said = {"node": "n0", "pci_bus_id": "0", "kind": "xid", "source": "s"}
        rows: list[dict[str, Any]] = [
            said | {"ts": ts, "code": code, "line": text, "ingested_at": landed_at}
            for ts, code, text in lines
        ]
        name = f"{self.n_landed}"
        result = SourceResult({RAW_KERNEL_LOG.asset_key: as_table(RAW_KERNEL_LOG, rows)})
        with self.landing.writer() as writer:
            writer.add(Reading(name, "logs", "s", name), [result], landed_at=landed_at)

    def build(self, span: Span) -> None:
        generation = self.landing.journal.generation()
        events = build_health_events(self.landing.read(RAW_KERNEL_LOG, span=span), STAYS).frame
        self.store.write(CORE_HEALTH_EVENTS, events, span=span, generation=generation)

    def build_stale(self) -> None:
        for one in find_stale(self.landing, self.store):
            if one.table == CORE_HEALTH_EVENTS.asset_key and one.span:
                self.build(one.span)

    def build_missing(self, n_hours: int) -> None:
        there = self.store.generations(CORE_HEALTH_EVENTS)
        for hour in list(WHOLE.steps(HOUR))[:n_hours]:
            if hour.start not in there:
                self.build(hour)

    def tables(self) -> list[pl.DataFrame]:
        events = self.store.read(CORE_HEALTH_EVENTS)
        incidents = build_incidents(
            events,
            CORE_NODE_STATES.empty(),
            CORE_JOBS.empty(),
            STAYS,
            catalogue=CATALOGUE,
        )
        return [events, incidents]


@pytest.mark.slow
@given(lines=LINES, data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_order_of_arrival_with_runs_between_gives_the_tables_of_one_delivery(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Line], data: st.DataObject
) -> None:
    at_once = Site(tmp_path_factory.mktemp("at_once"))
    at_once.land(lines)
    at_once.build(WHOLE)
    late = Site(tmp_path_factory.mktemp("late"))
    for delivery in _deliveries(lines, data):
        late.land(delivery)
        for first, n_hours in data.draw(RUNS):
            start = T0 + first * HOUR
            late.build(Span(start, min(WHOLE.end, start + n_hours * HOUR)))
        late.build_stale()
        late.build_missing(data.draw(st.integers(0, HOURS)))
    late.build_stale()
    late.build_missing(HOURS)
    for was_late, was_whole in zip(late.tables(), at_once.tables(), strict=True):
        assert was_late.equals(was_whole)
    assert late.tables()[0]["count"].sum() == len(lines)


def _deliveries(lines: Sequence[Line], data: st.DataObject) -> list[list[Line]]:
    """The lines, each in one of three deliveries, none of which need be in order."""
    numbers = data.draw(st.lists(st.integers(0, 2), min_size=len(lines), max_size=len(lines)))
    return [
        [line for line, number in zip(lines, numbers, strict=True) if number == wanted]
        for wanted in range(3)
    ]


def test_a_late_line_just_past_the_hour_makes_that_hour_stale_and_changes_no_other(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    site.land([(T0 + HOUR - timedelta(seconds=1), 79, "x")])
    site.build(WHOLE)
    site.land([(T0 + HOUR + timedelta(seconds=1), 79, "x")])
    stale = [one.span for one in find_stale(site.landing, site.store)]
    assert stale == [Span(T0 + HOUR, T0 + 2 * HOUR)]
    site.build_stale()
    assert site.tables()[0]["count"].to_list() == [1, 1]
    assert site.tables()[1].height == 1  # one incident all the same


def test_a_line_of_the_last_hour_there_is_makes_no_hour_stale(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.land([(T0, 79, "x")])
    site.build(WHOLE)
    site.land([(datetime(9999, 12, 31, 23, tzinfo=UTC), 79, "x")])
    assert find_stale(site.landing, site.store) == []
