import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from features.errors import DataError, StructureError
from features.monitoring_tables import QUARANTINE
from features.tables import DECISIONS, NODE_SCORES
from pipelines.report.figure import (
    ALARM,
    BASELINES,
    HEAT,
    INK,
    MODEL,
    MUTED,
    PAGE,
    SHADE,
    SURFACE,
    Tone,
)
from pipelines.report.input import EvaluationResult, GpuTimeline, Missing
from pipelines.report.page import render_report
from tests.pipelines.report.report_fixture import (
    AS_OF,
    START,
    bare_input,
    decision,
    quarantine,
    report_input,
    score_rows,
    table,
    telemetry,
)

VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})
EVIL = "<script>alert('x')</script>&\"$\\frac$\x1b"


class Page(HTMLParser):
    """Elements, ids, links, headings and text of a page; faults where tags do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.faults: list[str] = []
        self.feed(html)
        self.faults += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def values(self, attribute: str) -> Iterator[str]:
        for _, attributes in self.elements:
            if attributes.get(attribute):
                yield str(attributes[attribute])

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).replace("\xa0", " ").split())


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(report_input())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


@pytest.fixture(scope="module")
def bare() -> Page:
    return Page(render_report(bare_input()))


def test_tags_nest_and_ids_are_unique(page: Page, bare: Page) -> None:
    for each in (page, bare):
        assert each.faults == []
        ids = list(each.values("id"))
        assert len(ids) == len(set(ids))


def test_every_inner_link_has_its_target(page: Page) -> None:
    ids = set(page.values("id"))
    links = [*page.values("href"), *page.values("xlink:href")]
    assert links
    assert {link.removeprefix("#") for link in links} <= ids


def test_the_page_needs_nothing_from_outside(html: str, page: Page) -> None:
    assert not page.tags("script")
    assert not list(page.values("src"))
    assert "@import" not in html
    urls = html.replace("http://www.w3.org/1999/xlink", "").replace(
        "http://www.w3.org/2000/svg", ""
    )
    assert "http:" not in urls
    assert "https:" not in urls


def test_headings_never_skip_a_level(page: Page, bare: Page) -> None:
    for each in (page, bare):
        levels = [int(tag[1]) for tag, _ in each.elements if tag in {"h1", "h2", "h3", "h4"}]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_pictures_are_described_and_header_cells_have_a_scope(page: Page) -> None:
    pictures = page.tags("svg")
    assert len(pictures) == 5
    assert all(p["role"] == "img" and len(p["aria-label"] or "") > 40 for p in pictures)
    assert all("scope" in cell for cell in page.tags("th"))
    assert page.tags("html") == [{"lang": "en"}]
    scrolled = [a for a in page.tags("div") if a.get("class") in {"scroll", "pan"}]
    assert scrolled
    assert all(a.get("tabindex") == "0" and a.get("aria-label") for a in scrolled)


def test_what_to_do_comes_first_then_trust_evidence_and_data(page: Page) -> None:
    headings = ["What to do now", "How far to trust it", "Evidence", "Data health", "Terms"]
    places = [page.words.rindex(heading) for heading in headings]
    assert places == sorted(places)
    assert page.words.index("DRY RUN.") < page.words.index("Drain plan")
    assert page.words.index("failure rates 60 times") < page.words.index("Drain plan")


def test_the_headline_counts_the_plan(page: Page) -> None:
    assert (
        "Of 12 nodes: 1 node to take out of service, 1 node held back by guards, 2 to watch, "
        "1 above the alert threshold of 25 %, 1 without a score." in page.words
    )


def test_a_card_says_action_guard_reasons_and_costs(page: Page) -> None:
    assert "gpu-02 Drain after its jobs end" in page.words
    assert (
        "Held back by guards. The policy wants: Drain after its jobs end. rack cap:" in page.words
    )
    assert "What raised the score error counters: ecc_sbe_volatile grew by 412" in page.words
    assert "Cost of waiting 88.0 GPU-hours" in page.words


def test_a_plan_that_may_have_acted_is_not_called_a_dry_run() -> None:
    acted = table(DECISIONS, [decision("gpu-02", "cordon", "cordon", 0.7, is_dry_run=False)])
    words = Page(render_report(replace(bare_input(), decisions=acted))).words
    assert "LIVE. 1 decision of this plan may have been carried out" in words
    assert "DRY RUN" not in words


def test_missing_parts_say_why(bare: Page) -> None:
    assert "Not available: the hook did not run." in bare.words
    assert "Not available: fewer than 50 incidents." in bare.words
    assert "Not available: no incident with telemetry before it." in bare.words
    assert "Not available: node scores of one moment only." in bare.words
    assert "DRY RUN" not in bare.words
    assert "Nothing was refused" not in bare.words
    assert bare.tags("svg") == []


def test_an_unknown_score_is_said_and_never_zero(bare: Page) -> None:
    assert "gpu-01 unknown" in bare.words
    assert "unknown: no telemetry for 2 h" in bare.words
    assert "0 %" not in bare.words.replace("100 %", "")


def test_an_evaluation_without_incidents_draws_no_curve() -> None:
    full = report_input().evaluation
    assert isinstance(full, EvaluationResult)
    model = full.methods[0]
    empty = replace(
        full, methods=(replace(model, events=None, rows=replace(model.rows, curve=())),), classes=()
    )
    words = Page(render_report(replace(bare_input(), evaluation=empty))).words
    assert "Not available: no incident in the test time, so there is no curve." in words
    assert "Not available: no incident was caught in the test time." in words
    assert "No baseline to hold the model against." in words


def test_names_from_outside_are_escaped_everywhere() -> None:
    full = report_input()
    assert isinstance(full.timeline, GpuTimeline)
    scores = full.node_scores.with_columns(
        pl.col("entity_id").replace({"gpu-02": EVIL}),
        pl.col("node").replace({"gpu-02": EVIL}),
        pl.lit([EVIL]).alias("reasons"),
    )
    plan = [decision(EVIL, "cordon", "watch", 0.7, sentence=EVIL, blocked_by=[EVIL])]
    events = full.timeline.health_events.with_columns(
        pl.lit(EVIL).alias("kind"), pl.lit(None, pl.Int32).alias("code")
    )
    changed = replace(
        full,
        site=EVIL,
        note=EVIL,
        node_scores=scores,
        decisions=table(DECISIONS, plan),
        timeline=replace(
            full.timeline, node=EVIL, gpu_uuid=EVIL, chosen_because=EVIL, health_events=events
        ),
        reads=full.reads.with_columns(pl.lit(EVIL).alias("source")),
        quarantine=full.quarantine.with_columns(pl.lit(EVIL).alias("example")),
        evaluation=Missing(EVIL),
    )
    html = render_report(changed)
    page = Page(html)
    assert page.faults == []
    assert not page.tags("script")
    assert "\x1b" not in html
    assert page.words.count("<script>alert('x')</script>&\"$\\frac$\ufffd") >= 10


def _backwards(frame: pl.DataFrame) -> pl.DataFrame:
    # Not `reverse`: it turns a list column of nulls alone into a list of no type.
    return frame[list(range(frame.height - 1, -1, -1))]


def test_the_same_input_gives_the_same_page_whatever_the_order_of_rows(html: str) -> None:
    full = report_input()
    assert isinstance(full.timeline, GpuTimeline)
    assert isinstance(full.decisions, pl.DataFrame)

    mixed = replace(
        full,
        node_scores=_backwards(full.node_scores),
        decisions=_backwards(full.decisions),
        incidents=_backwards(full.incidents),
        reads=_backwards(full.reads),
        quarantine=_backwards(full.quarantine),
        timeline=replace(
            full.timeline,
            telemetry=_backwards(full.timeline.telemetry),
            scores=_backwards(full.timeline.scores),
            health_events=_backwards(full.timeline.health_events),
        ),
    )
    assert render_report(mixed) == html


@pytest.mark.slow
def test_two_processes_give_the_same_page() -> None:
    code = (
        "import hashlib; from tests.pipelines.report.report_fixture import report_input; "
        "from pipelines.report.page import render_report; "
        "print(hashlib.sha256(render_report(report_input()).encode()).hexdigest())"
    )
    pages = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(pages) == 1


def test_a_large_fleet_still_gives_a_small_page() -> None:
    rng = np.random.default_rng(0)
    rows = [
        score_rows(f"node-{n:04d}", AS_OF - timedelta(hours=h), float(rng.random()))
        for n in range(60)
        for h in range(200)
    ]
    html = render_report(replace(bare_input(), node_scores=table(NODE_SCORES, rows)))
    assert len(html.encode()) < 3_000_000
    words = Page(html).words
    assert "20 nodes of lower risk left out" in words
    assert "20 more nodes are in the scores table." in words


def test_scores_of_another_moment_are_one_clear_error() -> None:
    with pytest.raises(DataError, match="no row of as_of 2026-01-20.*newest as_of.*horizons"):
        render_report(
            replace(bare_input(), as_of=START - timedelta(hours=1) + timedelta(hours=1, minutes=7))
        )


def test_a_frame_of_another_table_is_refused() -> None:
    with pytest.raises(StructureError, match="monitoring/quarantine.*'rule' .* is missing"):
        render_report(replace(bare_input(), quarantine=quarantine().drop("rule")))


def test_a_record_lost_on_the_way_is_pointed_out() -> None:
    reads = report_input().reads.with_columns(pl.col("n_read") + 1)
    words = Page(render_report(replace(bare_input(), reads=reads))).words
    assert "+2 unaccounted for" in words
    assert "all accounted for" not in words


def test_a_part_of_the_quarantine_is_shown_with_what_is_left_out() -> None:
    one = quarantine().row(0, named=True)
    many = table(QUARANTINE, [{**one, "origin": f"f{i}"} for i in range(45)])
    assert (
        "5 more rules are in monitoring/quarantine."
        in Page(render_report(replace(bare_input(), quarantine=many))).words
    )


def test_other_horizons_are_shown_beside_the_main_one(page: Page) -> None:
    assert "Score, 24 h 1 h Plan" in page.words


def luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("ground", [PAGE, SURFACE, SHADE])
@pytest.mark.parametrize("text", [INK, MUTED, ALARM, MODEL, *BASELINES])
def test_text_and_lines_stand_out_by_at_least_4_5(text: Tone, ground: Tone, mode: str) -> None:
    assert contrast(getattr(text, mode), getattr(ground, mode)) >= 4.5


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_a_riskier_cell_always_stands_out_more(mode: str) -> None:
    ground = getattr(SURFACE, mode)
    steps = [contrast(getattr(tone, mode), ground) for tone in HEAT]
    assert all(after > 1.15 * before for before, after in pairwise(steps))


def test_a_gpu_without_samples_still_shows_its_scores() -> None:
    full = report_input()
    assert isinstance(full.timeline, GpuTimeline)
    lost = replace(full.timeline, telemetry=telemetry().clear())
    page = Page(render_report(replace(bare_input(), timeline=lost)))
    assert "Metrics shown: none." in " ".join(page.values("aria-label"))


def test_a_prior_score_shows_its_status() -> None:
    row = {**score_rows("gpu-01", AS_OF, 0.02), "status": "prior", "status_reason": "12 incidents"}
    words = Page(render_report(replace(bare_input(), node_scores=table(NODE_SCORES, [row])))).words
    assert "prior: 12 incidents" in words
