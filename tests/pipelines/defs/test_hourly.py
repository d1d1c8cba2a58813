"""Rules of the hourly sensor: what it starts, under which key, and what it takes for dead."""

from datetime import timedelta
from pathlib import Path

import dagster as dg

from pipelines.defs.hourly import CHAIN, CHAIN_TAG, SPAN_TAG
from pipelines.run_marks import mark, state_of
from tests.pipelines.defs.site_world import HOUR, T0, world

SETTLED = timedelta(minutes=10)


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
        assert request.run_key == "hour/2026-03-01T00/2026-03-01T01#1"
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
        assert keys(request) == {"features/gpu_matrix", "scores/gpu_scores", "scores/node_scores"}
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
        assert keys(request) == {"features/gpu_matrix"}
        assert request.tags["dagster/asset_partition_range_end"] == "2026-03-01-23:00"


def test_a_run_at_work_is_waited_for_and_one_that_was_killed_is_not(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.records()
        words = "hour/2026-03-01T00/2026-03-01T01"
        run = site.run("hourly", dg.DagsterRunStatus.STARTED, {CHAIN_TAG: CHAIN, SPAN_TAG: words})
        marks = site.settings.run_marks_dir
        file = mark(marks, run)
        now = T0 + HOUR + SETTLED
        assert site.sensor("hourly", now=now).skip_message == "a run of hours is under way"
        file.close()  # as the end of its process does
        site.sensor("hourly", now=now)
        ended = site.instance.get_run_by_id(run)
        assert ended is not None
        assert ended.status is dg.DagsterRunStatus.FAILURE
        assert state_of(marks, run) == "unknown"


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
