"""Rules of the hourly sensor: what it starts, under which key, and what it takes for dead."""

from datetime import datetime, timedelta
from pathlib import Path

import dagster as dg

from features.raw_tables import RAW_KERNEL_LOG
from pipelines.defs.hourly import CHAIN, CHAIN_TAG, SPAN_TAG
from pipelines.landing.ingest import landing_of
from pipelines.landing.journal import Reading
from pipelines.orchestration import run_marks
from pipelines.orchestration.run_marks import mark, state_of
from pipelines.sources.result import SourceResult, as_table
from tests.pipelines.defs.site_world import HOUR, T0, World, world

SETTLED = timedelta(minutes=10)
SCORED = {"features/gpu_matrix", "scores/gpu_scores", "scores/node_scores"}


def land_late(site: World, at: datetime) -> None:
    """Lands a kernel line of an hour."""
    said = {"kind": "xid", "line": "late", "source": "kernel_log", "ingested_at": at}
    rows = as_table(RAW_KERNEL_LOG, [{"node": "n1", "ts": at, **said}])
    reading = Reading(f"{at:%d%H}", "log", "kernel_log", f"{at:%d%H}")
    with landing_of(site.settings).writer() as writer:
        writer.add(reading, [SourceResult({"raw/kernel_log": rows})], landed_at=at)


def keys(request: dg.RunRequest) -> set[str]:
    return {"/".join(key.path) for key in request.asset_selection or ()}


def test_a_new_installation_reads_its_records_first(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        (request,) = site.sensor("hourly", now=T0 + HOUR + SETTLED).run_requests
        assert request.job_name == "records"


def test_the_usual_hour_is_one_run_from_inputs_to_scores(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.records()
        (request,) = site.sensor("hourly", now=T0 + HOUR + SETTLED).run_requests
        assert request.partition_key == "2026-03-01-00:00"
        assert request.run_key == "hour/2026-03-01T00/2026-03-01T01#first"
        assert keys(request) >= {"raw/gpu_telemetry", "core/incidents", "scores/node_scores"}
        again = site.sensor("hourly", now=T0 + HOUR + SETTLED).run_requests
        assert [one.run_key for one in again] == [request.run_key]


def test_two_days_off_are_made_up_in_one_run_then_the_newest_scores(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.records()
        site.core(0, 2)
        site.scored(0, 2)
        now = T0 + 50 * HOUR + SETTLED
        (request,) = site.sensor("hourly", now=now).run_requests
        assert request.partition_key is None
        assert request.tags["dagster/asset_partition_range_start"] == "2026-03-01-02:00"
        assert request.tags["dagster/asset_partition_range_end"] == "2026-03-03-01:00"
        assert not keys(request) & {"features/gpu_matrix", "scores/gpu_scores"}
        site.core(2, 50)
        (request,) = site.sensor("hourly", now=now).run_requests
        assert request.partition_key == "2026-03-03-01:00"
        assert keys(request) == {"core/incidents", *SCORED}
        site.scored(49, 50)
        (request,) = site.sensor("hourly", now=now).run_requests
        assert request.tags["dagster/asset_partition_range_end"] == "2026-03-03-00:00"
        site.scored(2, 49)
        assert site.sensor("hourly", now=now).skip_message == "every hour is made"


def test_beside_a_scorer_of_its_own_only_features_of_past_days_are_made(tmp_path: Path) -> None:
    with world(tmp_path, schedule={"scores": False}) as site:
        site.records()
        site.core(0, 26)
        (request,) = site.sensor("hourly", now=T0 + 26 * HOUR + SETTLED).run_requests
        assert keys(request) == {"core/incidents", "features/gpu_matrix"}
        assert request.tags["dagster/asset_partition_range_end"] == "2026-03-01-23:00"


def kill_marked() -> None:
    """What SIGKILL does to the mark of this process: it stays, unlocked."""
    _, file = run_marks._held.pop()
    file.close()


def test_a_run_at_work_is_waited_for_and_one_that_was_killed_is_not(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.records()
        words = "hour/2026-03-01T00/2026-03-01T01"
        run = site.run("hourly", dg.DagsterRunStatus.STARTED, {CHAIN_TAG: CHAIN, SPAN_TAG: words})
        marks = site.settings.run_marks_dir
        mark(marks, run)
        now = T0 + HOUR + SETTLED
        assert site.sensor("hourly", now=now).skip_message == "a run of hours is under way"
        kill_marked()
        site.sensor("hourly", now=now)
        ended = site.instance.get_run_by_id(run)
        assert ended is not None
        assert ended.status is dg.DagsterRunStatus.FAILURE
        assert state_of(marks, run) == "unmarked"


def test_a_killed_run_of_another_job_does_not_keep_its_pools_from_the_hours(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.records()
        run = site.run("records", dg.DagsterRunStatus.STARTED, {})
        mark(site.settings.run_marks_dir, run)
        kill_marked()
        (request,) = site.sensor("hourly", now=T0 + HOUR + SETTLED).run_requests
        assert request.job_name == "hourly"
        ended = site.instance.get_run_by_id(run)
        assert ended is not None
        assert ended.status is dg.DagsterRunStatus.FAILURE


def test_no_key_comes_back_when_a_run_is_deleted(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.records()
        tags = {SPAN_TAG: "hour/2026-03-01T00/2026-03-01T01"}
        seen, runs = [], []
        for _ in range(3):
            (request,) = site.sensor("hourly", now=T0 + HOUR + SETTLED).run_requests
            seen.append(request.run_key)
            runs.append(site.run("hourly", dg.DagsterRunStatus.SUCCESS, tags))
        site.instance.delete_run(runs[0])
        (request,) = site.sensor("hourly", now=T0 + HOUR + SETTLED).run_requests
        assert len({*seen, request.run_key}) == 4


def test_late_data_of_hours_that_are_never_made_again_is_looked_for_once(tmp_path: Path) -> None:
    with world(tmp_path, schedule={"look_back_days": 1}) as site:
        site.records()
        site.core(0, 72)
        site.scored(0, 72)
        land_late(site, T0 + 5 * HOUR)
        found = site.sensor("hourly", now=T0 + 72 * HOUR + SETTLED)
        assert (found.skip_message, found.cursor) == ("every hour is made", "1")
        land_late(site, T0 + 70 * HOUR)
        found = site.sensor("hourly", now=T0 + 72 * HOUR + SETTLED, cursor=found.cursor)
        span = f"{T0 + 70 * HOUR:%Y-%m-%dT%H}"
        assert found.run_requests[0].tags[SPAN_TAG].startswith(f"core/{span}")


def test_the_cursor_does_not_grow(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.records()
        site.core(0, 1)
        site.scored(0, 1)
        cursor = None
        for _ in range(3):
            found = site.sensor("hourly", now=T0 + HOUR + SETTLED, cursor=cursor)
            cursor = found.cursor or cursor
        assert len(cursor or "") < 20


def test_the_first_look_at_the_records_is_tried_again_after_it_failed(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        now = T0 + HOUR + SETTLED
        (first,) = site.sensor("hourly", now=now).run_requests
        run = site.run("records", dg.DagsterRunStatus.STARTED, {})
        assert "first time" in str(site.sensor("hourly", now=now).skip_message)
        site.instance.report_run_failed(site.instance.get_run_by_id(run))
        (again,) = site.sensor("hourly", now=now + timedelta(minutes=10)).run_requests
        assert first.job_name == again.job_name == "records"
        assert first.run_key != again.run_key
