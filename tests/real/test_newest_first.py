"""Rule: hours that are made up after the newest was scored end up in its features."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from features.tables import GPU_MATRIX
from pipelines.definitions import build_definitions
from pipelines.defs.hourly import CORE_KEYS, SCORE_KEYS, partition_tags, selected
from pipelines.defs.schedules import RECORD_KEYS
from pipelines.end_to_end.backfill import run_backfill
from pipelines.orchestration.hour_plan import Failed, Launch, next_launch, rule_of
from pipelines.orchestration.hour_state import hour_state
from pipelines.storage.store import Span, TableStore

sys.path.insert(0, str(Path(__file__).parent))

from killed_site import HOUR, Site, this_hour, write_fleet

_KEYS = {"hour": (*CORE_KEYS, *SCORE_KEYS), "core": CORE_KEYS, "scores": SCORE_KEYS}


@pytest.mark.slow
def test_an_hour_scored_before_its_past_was_made_up_is_made_anew(tmp_path: Path) -> None:
    last = this_hour()
    inputs = write_fleet(tmp_path, start=last - 24 * HOUR)
    at_once, by_hours = (
        Site(tmp_path / name, inputs, last - 4 * HOUR, last, {}) for name in ("once", "hours")
    )
    for site in (at_once, by_hours):
        site.record_ends(last)
    with dg.DagsterInstance.ephemeral() as instance:
        now = datetime.now(UTC)
        run_backfill(at_once.settings_file, now=now, instance=instance, say=lambda _: None)
    stages = make_up(by_hours, now=datetime.now(UTC), last=last)
    # The newest hour is scored after the first of the past's halves, and again after the others.
    assert stages.count(("scores", last - HOUR)) + stages.count(("hour", last - HOUR)) >= 2
    one, other = (
        TableStore(site.settings.store_root).read(GPU_MATRIX) for site in (at_once, by_hours)
    )
    assert one.equals(other)


def make_up(site: Site, *, now: datetime, last: datetime) -> list[tuple[str, datetime]]:
    """Runs what the planner says, after a stretch of four hours has failed; each stage and hour."""
    failed = [Failed(stage="core", span=Span(last - 4 * HOUR, last), at=now)]
    built, done = build_definitions(site.settings_file), []
    with dg.DagsterInstance.ephemeral() as instance:

        def run(keys: tuple[str, ...], span: Span | None) -> None:
            dg.materialize(
                [*(built.assets or [])],
                selection=selected(keys),
                instance=instance,
                resources=built.resources,
                tags=partition_tags(span, step=HOUR) if span else {},
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            )

        run(RECORD_KEYS, None)
        for _ in range(9):
            state = hour_state(site.settings, now=now, failed=failed)
            launch = next_launch(state, rule_of(site.settings), now=now)
            if not isinstance(launch, Launch):
                return done
            run(_KEYS[launch.stage], launch.span)
            done += [(launch.stage, part.start) for part in launch.span.steps(HOUR)]
    raise AssertionError(f"the hours are never made: {done}")
