import base64
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from features.tables import CORE_GPU_TELEMETRY, CORE_INCIDENTS
from features.telemetry_metrics import METRIC_BY_COLUMN
from models.evaluation.row_metrics import ReliabilityBin
from pipelines.report.evidence import heat_map
from pipelines.report.figure import INK, draw
from pipelines.report.model_plots import in_markdown
from pipelines.report.plots import lead_time_plot, precision_recall_plot, reliability_plot
from pipelines.report.timeline import gaps, moving_metrics, series
from tests.pipelines.report.report_fixture import ONSET, evaluation, events, table, telemetry

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
LEAD = timedelta(minutes=30)


def scores(rows: list[tuple[str, int, float | None]]) -> pl.DataFrame:
    return pl.DataFrame(
        [{"entity_id": node, "as_of": START + hour * HOUR, "score": s} for node, hour, s in rows],
        schema={"entity_id": pl.String, "as_of": pl.Datetime("us", "UTC"), "score": pl.Float64},
    )


def heat(rows: list[tuple[str, int, float | None]], nodes: list[str]) -> str:
    found = heat_map(scores(rows), nodes=nodes, incidents=CORE_INCIDENTS.empty())
    assert found is not None
    return str(found.plot.svg)


def test_a_figure_has_no_colour_outside_the_page_and_no_date() -> None:
    def paint(figure: Figure) -> None:
        figure.subplots().plot([0, 1], [0, 1], color=INK.light)

    svg = str(draw("a", size_in=(2, 2), alt='say "a" & <b>', paint=paint))
    assert svg.startswith('<svg role="img" aria-label="say &#34;a&#34; &amp; &lt;b&gt;"')
    assert not re.findall(r"#[0-9a-f]{6}", svg)
    assert "metadata" not in svg
    assert "DejaVu" not in svg


def test_drawing_leaves_no_setting_and_no_open_figure_behind() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw("a", size_in=(2, 2), alt="", paint=lambda figure: figure.text(0, 0, "$\\frac"))
    assert dict(mpl.rcParams) == before


def test_equal_neighbours_are_one_polygon() -> None:
    flat = heat([("a", hour, 0.5) for hour in range(100)], ["a"])
    rough = heat([("a", hour, 0.5 * (hour % 2)) for hour in range(100)], ["a"])
    assert len(flat) < len(rough) / 3


def test_an_unknown_score_is_hatched_and_a_missing_row_is_a_gap() -> None:
    known = heat([("a", 0, 0.1), ("a", 1, 0.1), ("a", 2, 0.1)], ["a"])
    unknown = heat([("a", 0, 0.1), ("a", 1, None), ("a", 2, 0.1)], ["a"])
    absent = heat([("a", 0, 0.1), ("a", 2, 0.1), ("b", 1, None)], ["a"])
    assert "pattern" not in known
    assert "pattern" in unknown
    assert "pattern" not in absent


def test_the_latest_score_is_written_beside_its_row() -> None:
    svg = heat([("a", 0, 0.1), ("a", 1, 0.42), ("b", 0, 0.1), ("b", 1, None)], ["a", "b"])
    assert "42\xa0%" in svg
    assert ">unknown<" in svg


def test_many_moments_share_a_cell_that_shows_the_highest() -> None:
    rows = [("a", hour, 0.9 if hour == 500 else 0.001) for hour in range(720)]
    found = heat_map(scores(rows), nodes=["a"], incidents=CORE_INCIDENTS.empty())
    assert found is not None
    assert "A cell is 3\xa0h wide" in found.plot.caption
    assert str(found.plot.svg).count("var(--heat-6)") == 1


def test_the_score_beside_a_row_is_the_latest_not_the_highest_of_its_cell() -> None:
    rows = [("a", hour, 0.42 if hour == 719 else 0.77) for hour in range(720)]
    svg = heat(rows, ["a"])
    assert "42\xa0%" in svg
    assert "77\xa0%" not in svg


@pytest.mark.parametrize(("hour", "is_marked"), [(-1, False), (0, False), (5, True), (99, False)])
def test_where_the_test_time_begins_is_marked_inside_the_map_only(
    hour: int, is_marked: bool
) -> None:
    rows = scores([("a", h, 0.1) for h in range(10)])
    at = START + hour * HOUR
    found = heat_map(rows, nodes=["a"], incidents=CORE_INCIDENTS.empty(), test_start=at)
    assert found is not None
    assert ("test time" in str(found.plot.svg)) == is_marked
    assert ("had seen in training" in found.plot.caption) == is_marked


def test_one_moment_is_no_heat_map() -> None:
    rows = scores([("a", 0, 0.1)])
    assert heat_map(rows, nodes=["a"], incidents=CORE_INCIDENTS.empty()) is None


def test_the_edges_of_colours_rise() -> None:
    rng = np.random.default_rng(1)
    rows = scores([("a", hour, float(s)) for hour, s in enumerate(rng.random(200) ** 4)])
    found = heat_map(rows, nodes=["a"], incidents=CORE_INCIDENTS.empty())
    assert found is not None
    assert list(found.edges) == sorted(set(found.edges))
    assert len(found.edges) >= 5


def test_the_description_of_curves_names_every_method() -> None:
    found = precision_recall_plot(evaluation().methods, threshold=0.18)
    assert found is not None
    for name in ("Forewarn", "History count", "Static DCGM and Xid rules"):
        assert name in str(found.svg)


def test_a_threshold_above_every_score_is_not_marked() -> None:
    methods = evaluation().methods
    marked = precision_recall_plot(methods, threshold=0.18)
    unmarked = precision_recall_plot(methods, threshold=2.0)
    assert marked is not None
    assert unmarked is not None
    assert "alert threshold" in str(marked.svg)
    assert "alert threshold" not in str(unmarked.svg)


@pytest.mark.parametrize(
    "bins",
    [
        [ReliabilityBin(100, 0.0, 0.0)],
        [ReliabilityBin(100, 0.0001, 0.0), ReliabilityBin(100, 0.5, 0.4)],
        [ReliabilityBin(1, 0.0, 1.0), ReliabilityBin(1, 1.0, 0.0)],
        [ReliabilityBin(10**6, 1e-12, 0.0), ReliabilityBin(10**6, 1e-7, 1e-6)],
        [ReliabilityBin(50, 0.2, 0.2), ReliabilityBin(50, 0.3, 0.3)],
    ],
)
def test_reliability_is_drawn_for_any_bins(bins: list[ReliabilityBin]) -> None:
    found = reliability_plot(bins)
    assert found is not None
    assert "nan" not in str(found.svg).lower()


def test_the_largest_gap_of_reliability_is_described() -> None:
    found = reliability_plot([ReliabilityBin(9, 0.1, 0.1), ReliabilityBin(9, 0.6, 0.2)])
    assert found is not None
    assert "a mean score of 60\xa0% where 20\xa0% came" in str(found.svg)


def test_a_plot_in_markdown_is_one_line_that_holds_a_whole_picture() -> None:
    found = reliability_plot([ReliabilityBin(9, 0.1, 0.1), ReliabilityBin(9, 0.6, 0.2)])
    assert found is not None
    (line,) = in_markdown(found).splitlines()
    content = line.removesuffix(")").partition("data:image/svg+xml;base64,")[2]
    picture = base64.b64decode(content, validate=True).decode()
    assert ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - ours
    assert "var(" not in picture  # a picture by itself has no page to take colours from


def test_lead_times_need_a_caught_incident() -> None:
    assert lead_time_plot(replace(events(), lead_h=()), lead=LEAD) is None


def test_lead_times_without_a_minimum_lead_shade_nothing() -> None:
    found = lead_time_plot(events(), lead=timedelta(0))
    assert found is not None
    assert "too short" not in found.caption


def test_what_moved_is_picked_from_the_time_before_the_onset_only() -> None:
    seen = telemetry()
    later = seen.with_columns(
        pl.when(pl.col("ts") >= ONSET).then(9999.0).otherwise("power_w").cast(pl.Float32)
        .alias("power_w")
    )  # fmt: skip
    picked = [metric.column for metric in moving_metrics(seen, before=ONSET)]
    assert "ecc_sbe_volatile" in picked
    assert [m.column for m in moving_metrics(later, before=ONSET)] == picked


def test_a_lifetime_count_is_not_picked_beside_its_count_since_reset() -> None:
    rows = [
        {"gpu_uuid": "g", "ts": START + i * HOUR, "ecc_sbe_volatile": n, "ecc_sbe_aggregate": n + 9}
        for i, n in enumerate([0, 0, 0, 0, 0, 0, 5, 9])
    ]
    seen = table(CORE_GPU_TELEMETRY, rows)
    end = START + 8 * HOUR
    assert [m.column for m in moving_metrics(seen, before=end)] == ["ecc_sbe_volatile"]
    lifetime_only = seen.with_columns(ecc_sbe_volatile=pl.lit(None, pl.Int64))
    assert [m.column for m in moving_metrics(lifetime_only, before=end)] == ["ecc_sbe_aggregate"]


def test_a_metric_that_is_never_known_is_not_picked() -> None:
    seen = table(CORE_GPU_TELEMETRY, [{"gpu_uuid": "g", "ts": START + i * HOUR} for i in range(8)])
    assert moving_metrics(seen, before=START + 8 * HOUR) == ()


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ([5, 6, 9], [0, 1, 4]),
        ([5, 6, 2, 3], [0, 1, 3, 4]),
        ([5, None, 7], [0, None, 2]),
        ([None, 4, None], [None, 0, None]),
        ([None, None], [None, None]),
    ],
)
def test_a_counter_is_its_increase_and_survives_a_reset(
    values: list[int | None], grown: list[float | None]
) -> None:
    drawn = series(pl.Series(values, dtype=pl.Int64), METRIC_BY_COLUMN["ecc_sbe_volatile"])
    assert [None if np.isnan(v) else v for v in drawn] == grown


def test_a_gap_is_more_than_three_usual_steps() -> None:
    times = pl.Series([START + hour * HOUR for hour in (0, 1, 2, 5, 6, 10)])
    assert gaps(times) == ((START + 6 * HOUR, START + 10 * HOUR),)
    assert gaps(times[:1]) == ()
