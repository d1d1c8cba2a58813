"""The command as operators run it: one tick, then the loop, ended by SIGTERM."""

import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from tests.pipelines.serving.serving_world import HOUR, T0, World

COMMAND = (sys.executable, "-c", "from pipelines.cli import main; main()")


@pytest.mark.slow
def test_a_tick_by_hand_then_the_loop_until_sigterm(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    world = World(tmp_path, {"start": now.replace(minute=0, second=0, microsecond=0) - 30 * HOUR})
    hour = (now - T0) // HOUR - 1
    world.land(hour)
    world.land(hour + 1)  # the hour may turn before the command runs
    file = tmp_path / "forewarn.yaml"
    plain = {
        "site": "lab", "inputs": "inputs.yaml", "data_root": "data",
        "start": world.settings.start.isoformat(), "horizons_h": [24], "trained_on": "synthetic",
        "serving": {"every_s": 0.2},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(plain))
    words = (*COMMAND, "score", "--settings", str(file))
    once = subprocess.run(words, capture_output=True, text=True, check=False)
    assert once.returncode == 0, once.stderr
    assert "published: 8 GPUs, 4 nodes" in once.stdout
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    latest = json.loads((world.settings.scores_dir / "LATEST.json").read_bytes())
    assert latest["model_versions"] == {"24": "gpu-failure-24h/prior"}
    loop = subprocess.Popen((*words, "--loop"), stderr=subprocess.PIPE, text=True)
    status = world.settings.scores_dir / "scorer_status.json"
    until = time.monotonic() + 120
    while json.loads(status.read_bytes())["pid"] != loop.pid:
        assert time.monotonic() < until
        assert loop.poll() is None
        time.sleep(0.1)
    loop.send_signal(signal.SIGTERM)
    _, said = loop.communicate(timeout=120)
    assert loop.returncode == 0, said
    assert json.loads(status.read_bytes())["phase"] == "stopped"
