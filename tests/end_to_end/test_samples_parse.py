"""The sample data through the real sources: every record accounted for, every failure found."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from features.core_build import build_health_events, build_jobs, build_node_states
from features.incidents import build_incidents
from pipelines.sources.catalogue import load_catalogue
from pipelines.sources.result import SourceResult
from pipelines.sources.site.listing import load_inputs
from pipelines.sources.site.readers import read_inputs

SAMPLES = Path(__file__).parents[2] / "data_samples"
DEMO = SAMPLES / "demo"


@pytest.fixture(scope="module")
def read() -> SourceResult:
    return read_inputs(
        load_inputs(DEMO / "inputs.yaml"), ingested_at=datetime(2026, 1, 31, tzinfo=UTC)
    )


@pytest.mark.slow
def test_exactly_the_bad_lines_are_refused(read: SourceResult) -> None:
    refused = {
        Path(origin).resolve().relative_to(DEMO).as_posix(): count
        for origin, count in read.reads.filter(pl.col("n_quarantined") > 0)
        .select("origin", "n_quarantined")
        .iter_rows()
    }
    stated = json.loads((DEMO / "provenance.json").read_text(encoding="utf-8"))["bad_lines"]
    assert refused == stated


@pytest.mark.slow
def test_dcgms_blanks_become_null(read: SourceResult) -> None:
    telemetry = read.tables["raw/gpu_telemetry"]
    assert telemetry["nvlink_crc_count"].null_count() > 0
    assert telemetry["nvlink_crc_count"].max() < 1_000_000
    assert telemetry["power_w"].max() < 1000


@pytest.mark.slow
def test_every_failure_that_left_a_trace_becomes_an_incident_of_its_type(
    read: SourceResult,
) -> None:
    inventory = read.tables["core/inventory"]
    found = build_incidents(
        build_health_events(read.tables["raw/kernel_log"], inventory).frame,
        build_node_states(read.tables["raw/node_states"]).frame,
        build_jobs(read.tables["raw/job_log"]).frame,
        inventory,
        catalogue=load_catalogue(),
    )
    truth = pl.read_csv(SAMPLES / "demo_truth" / "incidents.csv", try_parse_dates=True)
    matched = truth.select("entity_id", "onset", "detected", "fault_type").join(
        found.select("entity_id", "start", pl.col("fault_type").alias("found")), on="entity_id"
    )
    is_near = pl.col("start").is_between(
        pl.col("onset") - timedelta(minutes=1), pl.col("detected") + timedelta(minutes=1)
    )
    matched = matched.filter(is_near & (pl.col("fault_type") == pl.col("found")))
    n_found = matched.unique(["entity_id", "onset"]).height
    assert n_found >= 0.95 * truth.height
    assert found.height <= 1.1 * truth.height
