"""The hook's commands, through the shipped wrapper, on a real Slurm: hold, status, give back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remediation.program_world import ProgramWorld
from tests.remediation.slurm_world import FakeSlurm

sys.path.insert(0, str(Path(__file__).parent))

import slurm_cluster
from slurm_cluster import why_not

pytestmark = [pytest.mark.real, pytest.mark.slow]

WRAPPER = Path(__file__).parents[2] / "deploy" / "slurm" / "forewarn-slurm"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory):
    if reason := why_not():
        pytest.skip(reason)
    with slurm_cluster.SlurmCluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def world(box: slurm_cluster.SlurmCluster, tmp_path: Path) -> ProgramWorld:
    """A hook whose wrapper is the shipped one, but for where this Slurm's configuration is."""
    wrapper = tmp_path / "forewarn-slurm"
    shipped = WRAPPER.read_text()
    conf = box.environment["SLURM_CONF"]
    wrapper.write_text(shipped.replace('"LANG": "C"', f'"LANG": "C", "SLURM_CONF": {conf!r}'))
    wrapper.chmod(0o755)
    (tmp_path / "key").write_text("k" * 40)
    (tmp_path / "key").chmod(0o600)
    found = ProgramWorld(tmp_path, FakeSlurm({}))
    found.write(actuator={"kind": "slurm", "prefix": [sys.executable, "-I", str(wrapper)]})
    return found


def test_a_node_is_held_shown_and_given_back(
    box: slurm_cluster.SlurmCluster, world: ProgramWorld
) -> None:
    node, other = box.nodes[:2]

    def run(*words: str) -> tuple[int, str]:
        ran = subprocess.run(
            [sys.executable, "-c", "from pipelines.cli import main; main()", "remediate", *words],
            env={**os.environ, **box.environment, "FOREWARN_HOOK": str(world.file)},
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout + ran.stderr

    world.publish({node: 0.9, other: 0.1})
    code, text = run("run")
    assert code == 0, text
    code, text = run("status", "--json")
    assert [(one["node"], one["stage"]) for one in json.loads(text)["held"]] == [(node, "drained")]
    shown = box.tell("scontrol", "show", "node", node)
    assert "Reason=forewarn:v1 score=0.90" in str(shown)
    assert run("undrain", node, "--as", "ada")[0] == 0
    code, text = run("run")
    assert f"Back in service: {node}" in text
    assert json.loads(run("status", "--json")[1])["held"] == []
    assert run("undrain", other, "--as", "ada")[0] == 2
