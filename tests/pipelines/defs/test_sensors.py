"""Rules of the other sensors: files that stopped growing, and what somebody is told."""

from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from pipelines.defs import sensors
from pipelines.defs.hourly import CHAIN, CHAIN_TAG, SPAN_TAG
from pipelines.orchestration.troubles import SEEN, book_from_text
from tests.pipelines.defs.site_world import HOUR, T0, world

MINUTE = timedelta(minutes=1)
LOGGED = "warning job:daily: the last run of daily failed: run "


def test_a_file_is_read_once_it_has_stopped_growing(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        found = site.sensor("drop_folder", now=T0)
        assert found.skip_message == "no file has come or changed"
        (tmp_path / "drop" / "a.txt").write_text("half")
        found = site.sensor("drop_folder", now=T0, cursor=found.cursor)
        assert found.skip_message == "files have changed; they may still grow"
        (tmp_path / "drop" / "a.txt").write_text("half and half")
        found = site.sensor("drop_folder", now=T0, cursor=found.cursor)
        assert found.skip_message == "files have changed; they may still grow"
        found = site.sensor("drop_folder", now=T0, cursor=found.cursor)
        assert len(found.run_requests) == 1
        found = site.sensor("drop_folder", now=T0, cursor=found.cursor)
        assert found.skip_message == "no file has come or changed"
        assert len(found.cursor) < 100


def open_troubles(cursor: str | None) -> set[str]:
    return set(book_from_text(cursor)[SEEN].open)


def test_a_failed_check_and_a_failed_job_are_told_until_they_are_well(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        key = dg.AssetKey(["core", "gpu_telemetry"])

        def verdict(passed: bool) -> None:
            site.instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=key,
                    check_name="fresh",
                    passed=passed,
                    metadata={},
                    severity=dg.AssetCheckSeverity.ERROR,
                    description="data is 9 h old",
                )
            )

        verdict(passed=False)
        site.run("daily", dg.DagsterRunStatus.FAILURE, {})
        found = site.sensor("operations_alerts", now=T0)
        assert open_troubles(found.cursor) == {
            "check:core/gpu_telemetry fresh",
            "job:daily",
        }
        told = book_from_text(found.cursor)[SEEN].open["check:core/gpu_telemetry fresh"]
        assert (told.severity, told.words) == (
            "critical",
            "core/gpu_telemetry fresh: data is 9 h old",
        )
        verdict(passed=True)
        site.run("daily", dg.DagsterRunStatus.SUCCESS, {})
        found = site.sensor("operations_alerts", now=T0 + HOUR, cursor=found.cursor)
        assert open_troubles(found.cursor) == set()


def test_an_hour_that_was_set_aside_is_told(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        site.records()
        site.core(1, 3)
        tags = {CHAIN_TAG: CHAIN, SPAN_TAG: "core/2026-03-01T00/2026-03-01T01"}
        for _ in range(3):
            site.run("hourly", dg.DagsterRunStatus.FAILURE, tags)
        found = site.sensor("operations_alerts", now=T0 + 3 * HOUR)
        assert open_troubles(found.cursor) == {"hours:set_aside", "job:hourly"}
        assert (
            "2026-03-01 00:00" in book_from_text(found.cursor)[SEEN].open["hours:set_aside"].words
        )


def test_a_trouble_that_lasts_is_logged_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with world(tmp_path) as site:
        site.run("daily", dg.DagsterRunStatus.FAILURE, {})
        cursor = None
        for minute in range(3):
            found = site.sensor("operations_alerts", now=T0 + minute * MINUTE, cursor=cursor)
            cursor = found.cursor
            assert "1 open: job:daily" in (found.skip_message or "")
    assert capfd.readouterr().err.count(LOGGED) == 1


def test_a_champion_that_goes_and_comes_back_within_an_hour_scores_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as site:
        site.scored(0, 3)
        cursor, keys = "{}", []
        for minute, champion in enumerate(("m/2", "m/1", "m/2")):
            monkeypatch.setattr(sensors, "_champions", lambda _, one=champion: {"m": one})
            now = T0 + 3 * HOUR + minute * MINUTE
            found = site.sensor("champion_moved", now=now, cursor=cursor)
            cursor = found.cursor
            keys += [one.run_key for one in found.run_requests]
        assert len(set(keys)) == 3


@pytest.mark.slow  # MLflow makes a database
def test_a_champion_that_has_not_moved_starts_nothing(tmp_path: Path) -> None:
    with world(tmp_path) as site:
        found = site.sensor("champion_moved", now=T0)
        assert found.skip_message == "champions: none"
        found = site.sensor("champion_moved", now=T0, cursor='{"gpu-failure-24h": "other/1"}')
        assert not found.run_requests  # no hour is stored yet
        assert len(found.asset_events) == 1
