"""The bill of materials names all that the image holds, and is valid by the rules of CycloneDX."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.dockerfile import ROOT

SCRIPT = ROOT / "deploy" / "sbom.py"


def write(path: Path) -> dict[str, Any]:
    subprocess.run([sys.executable, SCRIPT, path], check=True)
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write(tmp_path_factory.mktemp("sbom") / "sbom.json")


def test_what_the_format_requires_is_there(bill: dict[str, Any]) -> None:
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    for one in [bill["metadata"]["component"], *bill["components"]]:
        assert {"type", "name", "version", "bom-ref", "purl"} <= set(one)
        assert one["purl"] == one["bom-ref"]
        assert re.fullmatch(r"pkg:pypi/[a-z0-9-]+@[A-Za-z0-9.+!-]+", one["purl"])
    for one in bill["components"]:
        (distribution,) = one["externalReferences"]
        assert distribution["type"] == "distribution"
        for value in distribution["hashes"]:
            assert value["alg"] == "SHA-256"
            assert re.fullmatch(r"[0-9a-f]{64}", value["content"])


def test_every_locked_package_is_in_it_once_with_its_hashes(bill: dict[str, Any]) -> None:
    lock = (ROOT / "deploy" / "docker" / "requirements.lock").read_text()
    locked = re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", lock, re.MULTILINE)
    assert [(one["name"], one["version"]) for one in bill["components"]] == locked
    n_hashes = sum(len(one["externalReferences"][0]["hashes"]) for one in bill["components"])
    assert n_hashes == lock.count("--hash=sha256:")


def test_it_says_who_needs_whom_and_leaves_nothing_unreached(bill: dict[str, Any]) -> None:
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert set(needs) == {
        bill["metadata"]["component"]["purl"],
        *(one["purl"] for one in bill["components"]),
    }
    reached: set[str] = set()
    waiting = [bill["metadata"]["component"]["purl"]]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += needs[ref]
    assert reached == set(needs)


def test_nearly_every_licence_is_known(bill: dict[str, Any]) -> None:
    unknown = [one["name"] for one in bill["components"] if "licenses" not in one]
    assert len(unknown) <= 15, unknown  # those for other systems are not installed here


def test_the_same_lock_gives_the_same_bytes(tmp_path: Path, bill: dict[str, Any]) -> None:
    assert write(tmp_path / "again.json") == bill
