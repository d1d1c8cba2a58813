"""Rules of the chart: nothing that mattered is thinned away, nothing is drawn across a gap."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.tables import (
    CORE_HEALTH_EVENTS,
    CORE_INCIDENTS,
    CORE_INVENTORY,
    CORE_JOBS,
    CORE_MAINTENANCE,
    CORE_NODE_STATES,
)
from pipelines.board.downsample import stretches
from pipelines.board.entity_chart import entity_chart
from pipelines.board.history import at_every_tick
from pipelines.board.stored import Told
from pipelines.board.time_axis import Axis, Bar, Line, Panel, Row, draw
from pipelines.board.zone import UTC_ZONE, zone_named
from pipelines.storage.store import Span

T0 = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE_US = 60_000_000
SCORES: dict[str, pl.DataType] = {"as_of": pl.Datetime("us", "UTC"), "score": pl.Float64()}

values_st = st.lists(
    st.one_of(st.floats(-1e6, 1e6, width=32), st.just(float("nan"))), min_size=1, max_size=200
)


@given(values_st, st.integers(1, 50))
def test_each_part_keeps_its_lowest_and_highest_value(values: list[float], n_bins: int) -> None:
    at = np.arange(len(values), dtype=np.int64) * MINUTE_US
    found = stretches(at, np.array(values), n_bins=n_bins, longest_step_us=2**62)
    kept = {int(t): float(v) for s in found for t, v in zip(s.at_us, s.values, strict=True)}
    width = max(1, -(-int(at[-1] - at[0] + 1) // n_bins))
    bins: dict[int, list[float]] = {}
    for time, value in zip(at, values, strict=True):
        if np.isfinite(value):
            bins.setdefault(int(time) // width, []).append(value)
    for number, inside in bins.items():
        shown = [v for t, v in kept.items() if t // width == number]
        assert (min(shown), max(shown)) == (min(inside), max(inside))
        assert len(shown) <= 4
    assert all(values[t // MINUTE_US] == v for t, v in kept.items())


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_no_piece_goes_across_a_gap(steps: list[int]) -> None:
    at = np.cumsum([0, *steps]).astype(np.int64) * MINUTE_US
    found = stretches(at, np.ones(at.size), n_bins=10_000)
    longest = 3 * float(np.median(np.diff(at)))
    for piece in found:
        inside = at[(at >= piece.at_us[0]) & (at <= piece.at_us[-1])]
        assert not (np.diff(inside) > longest).any()
    for before, after in pairwise(found):
        assert after.at_us[0] - before.at_us[-1] > longest


def test_unknown_values_are_no_points() -> None:
    at = np.arange(5, dtype=np.int64)
    assert stretches(at, np.full(5, np.nan), n_bins=5) == ()


def chart(*panels: Panel, zone: str = "UTC") -> str:
    axis = Axis(start=T0, end=T0 + 24 * HOUR, zone=zone_named(zone), marks=())
    return str(draw(axis, panels, alt="a <b>"))


def test_texts_of_a_chart_are_escaped() -> None:
    evil = "<script>x</script>"
    row = Row(evil, bars=(Bar(T0, None, evil),), moments=((T0 + HOUR, evil),))
    found = chart(Panel(evil, rows=(row,)))
    assert "<script>" not in found
    assert 'aria-label="a &lt;b&gt;"' in found


def test_no_data_is_said() -> None:
    assert ">no data<" in chart(Panel("Temperature", lines=(Line(()),)))


def test_the_axis_prints_its_zone_and_has_ticks_at_local_midnight() -> None:
    found = chart(Panel("x", lines=(Line(()),)), zone="Asia/Kolkata")
    assert "Times are Asia/Kolkata" in found
    assert ">00:00<" in found


def test_ticks_stay_at_midnight_over_a_change_of_summer_time() -> None:
    zone = zone_named("Europe/Berlin")
    start = datetime(2026, 3, 27, tzinfo=UTC)
    axis = Axis(start=start, end=start + 120 * HOUR, zone=zone, marks=())
    found = str(draw(axis, [Panel("x", lines=(Line(()),))], alt=""))
    assert ">00:00<" in found
    assert ">01:00<" not in found


@pytest.mark.parametrize("name", ["Europe/Berlin", "UTC"])
def test_a_known_zone_is_kept(name: str) -> None:
    assert zone_named(name).name == name


@given(st.lists(st.tuples(st.integers(0, 30), st.none() | st.floats(0, 1)), max_size=12))
def test_a_row_per_tick_holds_the_last_change_before_it(
    changes: list[tuple[int, float | None]],
) -> None:
    by_hour = dict(changes)
    frame = pl.DataFrame(
        [{"as_of": T0 + h * HOUR, "score": s} for h, s in by_hour.items()], schema=SCORES
    )
    moments = [T0 + h * HOUR for h in range(0, 32, 2)]
    found = at_every_tick(frame, moments)
    for at, score in found.iter_rows():
        hours = [h for h in by_hour if T0 + h * HOUR <= at]
        assert score == (by_hour[max(hours)] if hours else None)


def told(**more: pl.DataFrame) -> Told:
    """Nothing stored but what is given."""
    empty = {
        "telemetry": pl.DataFrame(schema={"ts": pl.Datetime("us", "UTC")}),
        "events": CORE_HEALTH_EVENTS.empty(),
        "jobs": CORE_JOBS.empty(),
        "incidents": CORE_INCIDENTS.empty(),
        "states": CORE_NODE_STATES.empty(),
        "maintenance": CORE_MAINTENANCE.empty(),
        "stays": CORE_INVENTORY.empty(),
    }
    return Told(**(empty | more), n_events=0)


def line_of(scores: list[float | None]) -> str:
    """The path of a score's line."""
    rows = [{"as_of": T0 + i * HOUR, "score": s} for i, s in enumerate(scores)]
    frame = pl.DataFrame(rows, schema=SCORES)
    span = Span(T0, T0 + 24 * HOUR)
    svg = entity_chart(told(), frame, span=span, zone=UTC_ZONE, threshold=0.5)
    return svg.partition('class="sc" d="')[2].partition('"')[0]


def test_an_unknown_score_breaks_the_line() -> None:
    assert line_of([0.1, 0.2, 0.3, 0.4]).count("M") == 1
    assert line_of([0.1, 0.2, None, 0.4]).count("M") == 2


def test_a_missing_tick_is_a_gap_and_not_a_level() -> None:
    at = [0, 1, 2, 9, 10, 11]
    frame = pl.DataFrame([{"as_of": T0 + h * HOUR, "score": 0.2} for h in at], schema=SCORES)
    span = Span(T0, T0 + 24 * HOUR)
    svg = entity_chart(told(), frame, span=span, zone=UTC_ZONE, threshold=None)
    assert svg.partition('class="sc" d="')[2].partition('"')[0].count("M") == 2


def test_nothing_stored_still_makes_a_chart() -> None:
    span = Span(T0, T0 + 24 * HOUR)
    empty = pl.DataFrame(schema=SCORES)
    svg = entity_chart(told(), empty, span=span, zone=UTC_ZONE, threshold=None)
    assert ">no data<" in svg
