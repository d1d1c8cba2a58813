"""Rules of the page on a synthetic fleet."""

import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from features.errors import SourceError
from models.evaluation.intervals import exact_share
from pipelines.studies.fleet_report.checks import (
    Check,
    all_checks,
    beyond_chance,
    capture_check,
    distribution_checks,
    job_checks,
    rate_checks,
    sign_checks,
    slope_check,
    tail_checks,
    verdict,
)
from pipelines.studies.fleet_report.evidence import (
    Evidence,
    enough_nodes,
    gather_evidence,
    job_mix,
    read_summit_counts,
)
from pipelines.studies.fleet_report.look import binned, increase, look_at
from pipelines.studies.fleet_report.report import render_fleet_report, write_fleet_report
from simulation.fleet.calibration import calibrate
from simulation.fleet.generate import simulate_failures
from simulation.fleet.jobs import Job, Kind, Load
from simulation.fleet.reliability import SUMMIT_XIDS
from simulation.fleet.schedule import Attempt
from simulation.regimes.load import load_regime

HOSTILE = "</style><script>alert(1)</script>\x1b[31m & \"quoted\" 'fleet'"
PLOTS = 10
"""Parts with a picture; the ceilings are a table."""


def check(p: float | None, *, is_met: bool, what: str = "rate of x") -> Check:
    against: Any = "published" if p is None else "own"
    return Check("rates", what, against, "1", "2", is_met, p)


def test_the_verdict_counts_and_names_what_lies_outside() -> None:
    checks = [check(0.5, is_met=True)] * 18 + [check(0.03, is_met=False, what="rate of y")] * 2
    said = verdict([*checks, check(None, is_met=True), check(None, is_met=False, what="capture")])
    assert said.startswith("18 of 20 checks against")
    assert "about 1.0 outside" in said
    assert "Outside: rate of y (p = 0.03), rate of y (p = 0.03); none beyond chance." in said
    assert said.endswith("1 of 2 published figures met; not met: capture.")


def test_the_verdict_of_a_fleet_without_misses_names_nothing() -> None:
    said = verdict([check(0.5, is_met=True)])
    assert "Outside" not in said
    assert "published" not in said


def test_the_verdict_of_a_fleet_without_failures_is_no_praise() -> None:
    assert verdict([]) == "Too few failures to check the regime's own parameters."


@pytest.mark.parametrize(("p", "n", "is_beyond"), [(0.003, 2, True), (0.003, 20, False)])
def test_a_miss_is_beyond_chance_only_for_the_number_of_checks(
    p: float, n: int, is_beyond: bool
) -> None:
    checks = [check(p, is_met=False)] + [check(0.5, is_met=True)] * (n - 1)
    assert bool(beyond_chance(checks)) == is_beyond
    assert ("beyond chance: rate of x" in verdict(checks)) == is_beyond


def test_many_misses_are_counted_after_the_first_six() -> None:
    assert "and 4 more" in verdict([check(0.01, is_met=False)] * 10)


@given(st.integers(1, 200), st.data())
def test_the_exact_interval_of_a_share_holds_the_share_and_leaves_small_tails(
    n: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, n))
    low, high = exact_share(count, n)
    assert 0 <= low <= count / n <= high <= 1
    # At the ends, so extreme a count has a chance of 2.5 %: what the interval is defined by.
    if count:
        assert binom.sf(count - 1, n, low) == pytest.approx(0.025, rel=1e-6)
    if count < n:
        assert binom.cdf(count, n, high) == pytest.approx(0.025, rel=1e-6)


@pytest.mark.parametrize(("observed", "is_met"), [(100, True), (85, True), (70, False)])
def test_a_rate_is_met_when_the_count_is_likely(observed: int, is_met: bool) -> None:
    rates = pl.DataFrame({"fault_type": ["gsp"], "observed": [observed], "expected": [100.0]})
    assert [found.is_met for found in rate_checks(rates)] == [is_met]


def test_classes_too_rare_to_judge_are_not_judged() -> None:
    rates = pl.DataFrame({"fault_type": ["gsp"], "observed": [1], "expected": [0.001]})
    assert rate_checks(rates) == []


def signs(silent: int, failures: int, *, kind: str | None = "hot") -> pl.DataFrame:
    row = (("gsp", kind, failures, silent, 0.5),)
    names = ["fault_type", "kind", "failures", "silent", "stated_share_without"]
    return pl.DataFrame(row, schema=names, orient="row")


@pytest.mark.parametrize(("silent", "is_met"), [(50, True), (30, False), (70, False)])
def test_a_share_without_signs_is_met_when_the_count_is_likely(silent: int, is_met: bool) -> None:
    assert [found.is_met for found in sign_checks(signs(silent, 100))] == [is_met]


def test_shares_of_few_failures_or_of_classes_without_signs_are_not_judged() -> None:
    assert sign_checks(signs(4, 4)) == []
    assert sign_checks(signs(100, 100, kind=None)) == []


def downtimes(hours: list[float], *, tail_h: float | None = None) -> pl.DataFrame:
    columns = {"low_h": 1.0, "high_h": 4.0, "is_replaced": False}
    frame = pl.DataFrame({"fault_type": ["gsp"] * len(hours), "downtime_h": hours})
    constants = [pl.lit(value).alias(name) for name, value in columns.items()]
    return frame.with_columns(*constants, pl.lit(tail_h, pl.Float64).alias("tail_h"))


def test_log_uniform_times_are_met_and_uniform_ones_are_not() -> None:
    place = (np.arange(500) + 0.5) / 500
    log_uniform, uniform = (4.0**place).tolist(), (1 + 3 * place).tolist()
    assert distribution_checks(downtimes(log_uniform), "downtimes")[0].is_met
    assert not distribution_checks(downtimes(uniform), "downtimes")[0].is_met


def test_the_tail_is_a_check_of_its_own() -> None:
    place = (np.arange(90) + 0.5) / 90
    hours = [*(4.0**place).tolist(), *[10.0] * 10]
    table = downtimes(hours, tail_h=23.0)
    assert distribution_checks(table, "downtimes")[0].is_met
    assert tail_checks(table, {"gsp": 0.1})[0].is_met
    assert not tail_checks(table, {"gsp": 0.4})[0].is_met


@pytest.mark.parametrize(("exponent", "is_met"), [(-1.0, True), (-0.9, False)])
def test_the_law_of_one_over_n_is_judged_by_its_exponent(exponent: float, is_met: bool) -> None:
    sizes = [8, 64, 512]
    hours = [8000 * (size / 8) ** exponent for size in sizes]
    mttf = pl.DataFrame({"n_gpus": sizes, "mttf_h": hours, "failures": [100] * 3})
    assert [found.is_met for found in slope_check(mttf)] == [is_met]
    assert slope_check(mttf.with_columns(failures=pl.lit(3))) == []


@pytest.mark.parametrize(("captured", "found"), [(0.3, [True]), (0.05, [False]), (None, [])])
def test_capture_is_judged_by_the_published_range(
    captured: float | None, found: list[bool]
) -> None:
    curve = pl.DataFrame({"share_of_nodes": [0.05], "captured_second_half": [captured]})
    assert [one.is_met for one in capture_check(curve)] == found


def test_the_job_mix_is_judged_by_jobs_and_by_gpu_time() -> None:
    jobs = pl.DataFrame(
        {
            "n_gpus": [1, 8, 256],
            "jobs": [60, 35, 5],
            "gpu_h": [1.0, 2.0, 97.0],
            "job_share": [0.6, 0.35, 0.05],
            "time_share": [0.01, 0.02, 0.97],
        }
    )
    assert [found.is_met for found in job_checks(jobs)] == [True] * 4
    flat = jobs.with_columns(job_share=pl.lit(1 / 3), time_share=pl.lit(1 / 3))
    assert [found.is_met for found in job_checks(flat)] == [False] * 4


@pytest.mark.parametrize(("name", "least", "most"), [("h100", 2500, 2500), ("demo", 30, 60)])
def test_a_fleet_that_fails_often_is_made_smaller(name: str, least: int, most: int) -> None:
    assert least <= enough_nodes(load_regime(name), days=365) <= most


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_a_counters_increase_never_falls_and_is_the_plain_sum_of_its_steps(
    steps: list[int],
) -> None:
    counter = np.cumsum(np.array(steps, dtype=float))
    assert increase(counter).tolist() == (counter - counter[0]).tolist()
    reset = np.concatenate([counter, counter - counter[0]])  # starts again from zero
    assert (np.diff(increase(reset)) >= 0).all()


def test_bins_without_samples_are_unknown_not_zero() -> None:
    found = binned(np.array([2.0]), np.array([1]), bins=3)
    assert np.isnan(found[[0, 2]]).all()
    assert found[1] == 2.0


def test_counts_of_summit_are_read_past_comments(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("# from a table\nfailure,events\nDouble-bit error,179\n", encoding="utf-8")
    assert read_summit_counts(path) == {"Double-bit error": 179}


@pytest.mark.parametrize(
    "text", ["", "failure,events\nsomething,1\n", "failure,events\nDouble-bit error,many\n"]
)
def test_a_file_that_is_no_count_of_summit_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=r"other\.csv"):
        read_summit_counts(path)
    with pytest.raises(SourceError, match="none"):
        read_summit_counts(tmp_path / "none")


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """A small fleet that fails often, with jobs and Xids; no telemetry."""
    counts = dict.fromkeys(SUMMIT_XIDS, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.studies.fleet_report.evidence.look_at", lambda *_, **__: None)
        return gather_evidence(load_regime("demo"), nodes=24, days=60, seed=3, summit=counts)


@pytest.fixture(scope="module")
def page(evidence: Evidence) -> str:
    return render_fleet_report(evidence, all_checks(evidence))


def test_every_picture_is_described_and_captioned(page: str) -> None:
    pictures = re.findall(r"<svg [^>]*>", page)
    assert len(pictures) == PLOTS - 1  # telemetry is left out
    for picture in pictures:
        alt = re.search(r'role="img" aria-label="([^"]{40,})"', picture)
        assert alt, picture
        assert "nan" not in alt[1].split()
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page)
    assert len(captions) == len(pictures)
    assert all(caption.startswith("Look ") for caption in captions)


def test_the_page_fetches_nothing_and_runs_nothing(page: str) -> None:
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert "//" not in without_names.replace("</", "")
    assert "<script" not in page
    assert "@import" not in page
    targets = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert targets
    assert all(target.startswith("#") for target in targets)


def test_places_on_the_page_are_unique_and_links_lead_to_one(page: str) -> None:
    places = re.findall(r'\bid="([^"]*)"', page)
    assert len(places) == len(set(places))
    assert set(re.findall(r'<a[^>]* href="#([^"]*)"', page)) <= set(places)


def test_the_page_says_first_that_it_is_synthetic_and_of_what(
    page: str, evidence: Evidence
) -> None:
    top = page[page.index("<h1>") : page.index("<nav")]
    assert "SYNTHETIC" in top
    assert "24 nodes, 192 GPUs, 60 days: 31.5 GPU-years. Seed 3." in top
    assert escape(evidence.fleet.regime.note)[:40] in top
    assert "60 times as frequent" in top
    assert str(escape(verdict(all_checks(evidence)))).replace("&#x27;", "&#39;") in page


@pytest.mark.slow
def test_the_same_evidence_gives_the_same_page(page: str, evidence: Evidence) -> None:
    assert render_fleet_report(evidence, all_checks(evidence)) == page


def test_a_hostile_name_and_note_stay_text(evidence: Evidence) -> None:
    regime = evidence.fleet.regime.model_copy(update={"name": HOSTILE, "note": HOSTILE})
    hostile = replace(evidence, fleet=replace(evidence.fleet, regime=regime), summit=None)
    found = render_fleet_report(hostile, ())
    assert "<script" not in found
    assert "\x1b" not in found
    assert found.count("</style>") == 1
    assert found.count("&lt;script&gt;alert(1)") >= 4  # title, heading, note, command


@pytest.mark.slow
def test_without_summits_counts_the_page_says_how_to_give_them(evidence: Evidence) -> None:
    found = render_fleet_report(replace(evidence, summit=None), ())
    assert "forewarn simulate report --regime demo --summit FILE" in found


def test_a_fleet_without_failures_has_a_page() -> None:
    regime = load_regime("quiet").with_size(nodes=4, days=2)
    fleet = simulate_failures(regime.model_copy(update={"hazard_multiplier": 0.0}), seed=1)
    ceiling = pl.DataFrame(schema={"fault_type": pl.String, "horizon_h": pl.Float64})
    nothing = Evidence(fleet, calibrate(fleet), ceiling, job_mix(fleet), 2.0, None, None)
    found = render_fleet_report(nothing, all_checks(nothing))
    assert "Too few failures" in found
    assert found.count("Not available") == 9


def run(
    job_id: int, n_gpus: int, *, from_h: float, to_h: float | None, kind: Kind = "training"
) -> Attempt:
    load = Load(kind, 95.0, 0.8, 0.4, 60_000, 5.0)
    start_s, end_s = int(from_h * 3600), None if to_h is None else int(to_h * 3600)
    end: Any = "COMPLETED"
    job = Job(job_id, "train", "u1", start_s, n_gpus, 3600, end, False, False, load)
    return Attempt(job, start_s, start_s, end_s, end, ())


def test_jobs_count_once_and_gpu_time_only_within_the_record() -> None:
    fleet = simulate_failures(load_regime("h100").with_size(nodes=4, days=1), seed=1)
    runs = (
        run(1, 8, from_h=-5, to_h=2),  # ran before: 2 h count, the job does not
        run(2, 8, from_h=3, to_h=4),
        run(2, 8, from_h=5, to_h=6),  # requeued: the same job
        run(3, 1, from_h=20, to_h=None),  # still runs at the end: 4 h
        run(4, 1, from_h=2, to_h=3, kind="inference"),  # a service is no batch job
    )
    mix = job_mix(replace(fleet, attempts=runs))
    assert mix["n_gpus"].to_list() == [1, 2, 4, 8, 16]  # at most half of the fleet
    assert mix["jobs"].to_list() == [1, 0, 0, 1, 0]
    assert mix["gpu_h"].to_list() == [4.0, 0.0, 0.0, 8.0 * 4, 0.0]
    assert mix["time_share"].to_list() == pytest.approx([4 / 36, 0, 0, 32 / 36, 0])
    assert mix["stated_job_share"].sum() == pytest.approx(1)


@pytest.mark.slow
def test_the_look_shows_signs_before_a_failure_and_in_a_decoy() -> None:
    look = look_at(load_regime("h100"), seed=8001)
    assert look is not None
    assert look.decoy is not None
    assert look.failure.signs[1] == 0
    for strip in (look.failure, look.decoy):
        counter = list(strip.panels.values())[-1]
        is_in = (strip.day >= strip.signs[0]) & (strip.day <= strip.signs[1])
        before = counter[strip.day < strip.signs[0]]
        assert np.nanmax(counter[is_in]) > np.nanmax(before) + 3


@pytest.mark.slow
def test_a_page_is_written_and_the_sentence_names_it(tmp_path: Path) -> None:
    out = tmp_path / "new" / "page.html"
    said = write_fleet_report(out, regime="h100", nodes=64, days=90, seed=7, summit=None)
    page = out.read_text(encoding="utf-8")
    assert said.startswith(f"Wrote {out}. ")
    assert len(re.findall(r'<svg role="img"', page)) == PLOTS - 1  # no counts of Summit
    assert "64 nodes, 512 GPUs, 90 days" in page
    assert "decoy: signs, no failure" in page
