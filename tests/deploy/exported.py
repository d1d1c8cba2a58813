"""What the two exporters really print, on a small site where every metric has a value.

No assertion here; rules of single metrics are tested beside their modules.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from features.monitoring_tables import DRIFT, LIVE_OUTCOMES, LIVE_QUALITY
from pipelines.serving.open_metrics import metrics_registry, render
from pipelines.serving.place import score_engine
from pipelines.serving.score_database import write_outcomes
from remediation.program.loop import RoundNote
from remediation.program.metrics import hook_registry
from remediation.program.round import opened, run_round
from tests.pipelines.serving.serving_world import GPUS, T0, World
from tests.remediation.program_world import make_world


def score_registry(folder: Path) -> CollectorRegistry:
    """`forewarn metrics` of a site with a tick, an alert, a judged week, and drift."""
    world = World(folder)
    world.tick(0, hot=["GPU-5"], silent=GPUS[:1])
    zeros = {name: 1 for name in LIVE_QUALITY.schema.names() if name.startswith("n_")}
    quality = dict.fromkeys(LIVE_QUALITY.schema) | zeros
    quality |= {"week": T0, "horizon_h": 24, "model_version": "m/1"}
    engine = score_engine(world.settings)
    write_outcomes(
        engine, LIVE_OUTCOMES.empty(), pl.DataFrame([quality], schema=LIVE_QUALITY.schema)
    )
    drift = dict.fromkeys(DRIFT.schema) | {
        "model_version": "m/1", "horizon_h": 24, "week": T0, "kind": "feature", "name": "power_w",
        "group": "power", "is_alarm": True, "n_rows": 8, "sentence": "it moved",
    }  # fmt: skip
    world.store.write(DRIFT, pl.DataFrame([drift], schema=DRIFT.schema))
    moment = world.now + timedelta(minutes=5)
    return metrics_registry(world.settings, now=lambda: moment)


def standing_hook(folder: Path, patch: pytest.MonkeyPatch) -> CollectorRegistry:
    """`forewarn remediate metrics` of a hook that has made a round and holds a node."""
    folder.mkdir(parents=True)
    world = make_world(folder, patch)
    settings = world.write()
    world.publish({"n1": 0.9})
    with opened(settings) as hook:
        run_round(hook)
    now = datetime.now(UTC)
    note = RoundNote(ended_at=now, text="", is_failed=False, failed_in_row=0, rounds=1, failed=0)
    note.write(settings.state)
    return hook_registry(settings)


def samples(folder: Path) -> Iterator[tuple[str, Sample]]:
    """Job and sample of each line that is printed."""
    with pytest.MonkeyPatch.context() as patch:
        for job, registry in (
            ("forewarn", score_registry(folder / "scores")),
            ("forewarn-hook", standing_hook(folder / "hook", patch)),
        ):
            text = render(registry)[0].decode()
            for family in text_string_to_metric_families(text):
                for one in family.samples:
                    yield job, one
