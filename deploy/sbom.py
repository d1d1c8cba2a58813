"""Writes the bill of materials of the image: CycloneDX 1.5, from its lock and installed metadata.

Nothing is fetched. Names, versions, hashes and who needs whom are the lock's; licences are those
that the packages installed beside this Python state. The same lock gives the same bytes.

Run as `python deploy/sbom.py FILE`.
"""
# ruff: noqa: INP001 - a script that builds, no module of a package

import json
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

LOCK: Final = Path(__file__).parent / "docker" / "requirements.lock"
ROOT: Final = "forewarn"
_PINNED: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CLASSIFIER: Final = re.compile(r"^License :: (?:OSI Approved :: )?(.+)$")
_LONGEST: Final = 200
"""Some packages put the whole text of a licence where its name belongs."""


@dataclass(frozen=True)
class Locked:
    """A package of the lock.

    Attributes:
        name: Its name.
        version: Its version.
        hashes: SHA-256 of each of its files.
        needed_by: Packages that asked for it; the project itself by its name.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    needed_by: tuple[str, ...]

    @property
    def purl(self) -> str:
        """Its package URL."""
        name = re.sub(r"[-_.]+", "-", self.name).lower()
        return f"pkg:pypi/{name}@{self.version}"


def read_lock(path: Path) -> tuple[Locked, ...]:
    """The packages of a lock, in its order.

    Args:
        path: As `uv pip compile --generate-hashes` writes it.
    """
    blocks: list[list[str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if _PINNED.match(line):
            blocks.append([])
        if blocks:
            blocks[-1].append(line)
    return tuple(_locked(block) for block in blocks)


def _locked(block: list[str]) -> Locked:
    found = _PINNED.match(block[0])
    if found is None:
        raise ValueError(f"not a pinned package: {block[0]}")
    said = [line.strip().removeprefix("#").strip() for line in block if line.strip()[:1] == "#"]
    asked = [line.removeprefix("via").strip() for line in said]
    needed_by = (ROOT if one.startswith(("forewarn", "pyproject.toml")) else one for one in asked)
    return Locked(
        name=found[1],
        version=found[2],
        hashes=tuple(_HASH.findall("\n".join(block))),
        needed_by=tuple(one for one in needed_by if one and not one.startswith("-")),
    )


def licence_of(name: str) -> str | None:
    """What an installed package says its licence is; None: it says nothing, or is not here."""
    try:
        told = metadata.metadata(name).json
    except metadata.PackageNotFoundError:
        return None
    for key in ("license_expression", "license"):
        value = " ".join(str(told.get(key, "")).split())
        if value and len(value) <= _LONGEST and value.upper() != "UNKNOWN":
            return value
    matches = (_CLASSIFIER.match(one) for one in told.get("classifier", ()))
    named = [match[1] for match in matches if match]
    return " and ".join(named) or None


def bill_of(packages: tuple[Locked, ...], *, version: str, lock: bytes) -> dict[str, Any]:
    """The bill of materials, as plain values.

    Args:
        packages: Packages of the lock.
        version: Version of the project.
        lock: Content of the lock, which names the document.
    """
    root = f"pkg:pypi/{ROOT}@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + lock.hex())}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": ROOT,
                "version": version,
                "purl": root,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [_component(one) for one in packages],
        "dependencies": list(_dependencies(packages, root)),
    }


def _component(one: Locked) -> dict[str, Any]:
    licence = licence_of(one.name)
    return {
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        **({"licenses": [{"license": {"name": licence}}]} if licence else {}),
        "externalReferences": [
            {
                "type": "distribution",
                "url": one.purl,  # an address would depend on where it was fetched from
                "hashes": [{"alg": "SHA-256", "content": value} for value in one.hashes],
            }
        ],
    }


def _dependencies(packages: tuple[Locked, ...], root: str) -> Iterator[dict[str, Any]]:
    refs = {ROOT: root} | {one.name: one.purl for one in packages}
    for name, ref in refs.items():
        needs = sorted(one.purl for one in packages if name in one.needed_by)
        yield {"ref": ref, "dependsOn": needs}


def main(words: list[str]) -> None:
    """Writes the file.

    Args:
        words: The file's path.
    """
    packages, lock = read_lock(LOCK), LOCK.read_bytes()
    bill = bill_of(packages, version=metadata.version(ROOT), lock=lock)
    Path(words[0]).write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
