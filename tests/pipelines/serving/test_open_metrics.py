"""Rules of the metrics: valid for two judges, bounded in number, honest about age."""

import shutil
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from models.doubts import CAUSES
from pipelines.serving.metrics_server import start_metrics
from pipelines.serving.open_metrics import metrics_registry, render
from tests.pipelines.serving.serving_world import GPUS, HOUR, MINUTE, T0, World

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def samples(world: World) -> dict[tuple[str, ...], float]:
    registry = metrics_registry(world.settings, now=lambda: world.now)
    body, content_type = render(registry, accept=OPEN_METRICS)
    assert content_type.startswith("application/openmetrics-text")
    return {
        (one.name, *sorted(one.labels.values())): one.value
        for family in text_string_to_metric_families(body.decode())
        for one in family.samples
    }


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, {"serving": {"top_nodes": 2}})


def test_before_anything_is_published_there_are_metrics_and_they_say_so(world: World) -> None:
    found = samples(world)
    assert found[("forewarn_scores_readable",)] == 1
    assert ("forewarn_scores_age_seconds",) not in found


def test_scores_and_health_are_shown(world: World) -> None:
    world.tick(0, hot=["GPU-5"], silent=["GPU-0"])
    world.now += HOUR
    found = samples(world)
    assert found[("forewarn_node_failure_probability", "24h", "n2")] > 0.15
    assert found[("forewarn_scores_age_seconds",)] == 62 * 60
    assert found[("forewarn_scores_expired",)] == 0
    assert found[("forewarn_scores_coverage_ratio",)] == 7 / 8
    assert found[("forewarn_gpu_scores_unknown", "no_samples")] == 1
    assert found[("forewarn_alerts_open", "24h")] == 1
    assert found[("forewarn_ticks_total",)] == 1
    watermark = found[("forewarn_ingest_watermark_timestamp_seconds", "core/gpu_telemetry")]
    assert watermark == (T0 + HOUR).timestamp()
    assert ("forewarn_tick_duration_seconds", "features") in found
    world.now += HOUR
    assert samples(world)[("forewarn_scores_expired",)] == 1


def test_only_the_highest_nodes_are_named_and_the_rest_is_counted(world: World) -> None:
    world.tick(0, hot=["GPU-5"])
    found = samples(world)
    named = [key for key in found if key[0] == "forewarn_node_failure_probability"]
    assert len(named) == 2
    assert found[("forewarn_nodes_not_listed", "24h")] == 2
    causes = [key for key in found if key[0] == "forewarn_gpu_scores_unknown"]
    assert len(causes) == len(CAUSES)


def test_a_published_file_that_is_damaged_leaves_the_rest_standing(world: World) -> None:
    world.tick(0)
    for path in (world.settings.scores_dir / "node_scores").iterdir():
        path.write_bytes(b"no scores")
    found = samples(world)
    assert ("forewarn_scores_age_seconds",) in found
    assert found[("forewarn_scores_readable",)] == 0
    (world.settings.scores_dir / "LATEST.json").write_text("no tick")
    assert samples(world)[("forewarn_scores_readable",)] == 0


def test_scores_that_can_be_read_again_are_shown_again(world: World) -> None:
    world.tick(0)
    (path,) = (world.settings.scores_dir / "node_scores").iterdir()
    whole = path.read_bytes()
    registry = metrics_registry(world.settings, now=lambda: world.now)
    path.write_bytes(b"no scores")
    assert b"forewarn_node_failure_probability{" not in render(registry)[0]
    path.write_bytes(whole)
    assert b"forewarn_node_failure_probability{" in render(registry)[0]


@pytest.mark.parametrize(
    "content", ["{}", "[]", "\xff", '{"tick_seconds": 5}', '{"updated_at": ""}']
)
def test_a_status_file_that_is_none_takes_nothing_else_with_it(world: World, content: str) -> None:
    folder = world.settings.scores_dir
    folder.mkdir(parents=True)
    (folder / "scorer_status.json").write_bytes(content.encode("latin-1"))
    found = samples(world)
    assert ("forewarn_scores_readable",) in found
    assert ("forewarn_ticks_total",) not in found


def test_scores_of_the_future_are_as_good_as_expired(world: World) -> None:
    world.tick(0)
    world.now -= HOUR
    assert samples(world)[("forewarn_scores_expired",)] == 1


def test_hostile_names_are_escaped(world: World) -> None:
    from pipelines.serving.open_metrics import _node_metrics
    from tests.pipelines.serving.score_rows import rows_of

    name = 'n"1\\\n# TYPE evil counter\n'
    (named, *_) = _node_metrics(rows_of("node", 0, {name: 0.5}), top=5)
    assert named.samples[0].labels["node"] == name
    from prometheus_client import CollectorRegistry

    class One:
        def collect(self):
            return [named]

    registry = CollectorRegistry()
    registry.register(One())
    body, _ = render(registry, accept=OPEN_METRICS)
    (family,) = text_string_to_metric_families(body.decode())
    assert family.samples[0].labels["node"] == name


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say(world: World) -> None:
    world.tick(0, hot=["GPU-5"], silent=GPUS[:1])
    body, _ = render(metrics_registry(world.settings, now=lambda: world.now))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=body, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.decode(), done.stderr.decode()) == (0, "", "")


def test_they_are_served_on_loopback(world: World) -> None:
    world.tick(0)
    world.now += MINUTE
    server, thread = start_metrics(metrics_registry(world.settings), listen="127.0.0.1:0")
    try:
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            assert b"forewarn_scores_coverage_ratio 1.0" in answer.read()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
