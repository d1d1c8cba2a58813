"""Rules of removing versions: what is named, pinned, new or young stays; the rest goes whole."""

import shutil
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from models.bundle import ModelBundle
from models.evaluation.gate import GateDecision
from models.evaluation.row_metrics import Estimate
from models.registry.alias_log import AliasMove
from models.registry.model_registry import CANDIDATE, CHAMPION
from models.registry.place import RegistryPlace
from models.registry.registered import RegisteredVersion, RegistryError
from models.registry.version_removal import PINNED_TAG, VersionRemover

pytestmark = pytest.mark.slow  # a new database takes MLflow seconds of migrations

ACCEPTED = GateDecision(
    is_accepted=True, difference=Estimate(0.1, 0.05, 0.15), reason="Better than the base rate."
)
LATER = datetime.now(UTC) + timedelta(days=1)
SEPARATELY = timedelta(days=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("removal")


@pytest.fixture(scope="module")
def registry(folder: Path) -> VersionRemover:
    database = folder / "models.db"
    return VersionRemover(RegistryPlace.embedded(database=database, artifacts=folder / "artifacts"))


@pytest.fixture(scope="module")
def versions(registry: VersionRemover, bundle: ModelBundle) -> list[RegisteredVersion]:
    """Five versions: 1 was champion and is previous, 2 pinned, 3 champion, 5 the candidate."""
    made = [registry.register(replace(bundle, card={"text": str(n)})) for n in range(5)]
    first, second, third = made[:3]
    registry.promote(first, decision=ACCEPTED)
    registry.promote(third, decision=ACCEPTED, against=first)
    registry._tag(second, {PINNED_TAG: "the paper's"})
    return made


def surplus(registry: VersionRemover, name: str, *, before: datetime, keep: int) -> list[int]:
    return [one.version for one in registry.surplus(name, before=before, keep=keep)]


def test_only_what_nothing_needs_is_surplus(
    registry: VersionRemover, versions: list[RegisteredVersion]
) -> None:
    name = versions[0].name
    assert surplus(registry, name, before=LATER, keep=1) == [4]
    assert surplus(registry, name, before=LATER, keep=2) == []
    assert surplus(registry, name, before=LATER - SEPARATELY, keep=1) == []


def test_a_version_that_was_champion_until_lately_stays(
    registry: VersionRemover,
    versions: list[RegisteredVersion],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, old = versions[0].name, versions[3].version
    assert surplus(registry, name, before=LATER, keep=1) == [old]
    left = AliasMove(
        at=LATER + timedelta(hours=1), name=name, move="promote", version=5, earlier=old,
        by="a", reason="b", is_done=False,
    )  # fmt: skip
    monkeypatch.setattr(registry, "moves", lambda _: (left,))
    assert surplus(registry, name, before=LATER, keep=1) == []


def test_a_version_that_is_pinned_meanwhile_is_not_forgotten(
    registry: VersionRemover, versions: list[RegisteredVersion]
) -> None:
    with pytest.raises(RegistryError, match="was not removed: it is pinned"):
        registry.forget(versions[1])


def test_a_version_with_an_alias_is_not_forgotten(
    registry: VersionRemover, versions: list[RegisteredVersion]
) -> None:
    with pytest.raises(RegistryError, match="was not removed: it is champion"):
        registry.forget(versions[2])
    assert registry.version_of(versions[0].name, CHAMPION) == versions[2]


def test_a_forgotten_version_leaves_no_row_and_no_file(
    registry: VersionRemover, versions: list[RegisteredVersion], folder: Path
) -> None:
    def there() -> tuple[int, int, int]:
        files = [path for path in (folder / "artifacts").rglob("*") if path.is_file()]
        with sqlite3.connect(folder / "models.db") as sql:
            runs = sql.execute("SELECT COUNT(*) FROM runs").fetchone()[0]
            models = sql.execute("SELECT COUNT(*) FROM logged_models").fetchone()[0]
        return len(files), runs, models

    files, runs, models = there()
    registry.forget(versions[3])
    files_left, runs_left, models_left = there()
    assert (runs_left, models_left) == (runs - 1, models - 1)
    assert files_left < files
    assert [one.version for one in registry.versions(versions[0].name)] == [1, 2, 3, 5]
    assert registry.load(versions[2]).card == {"text": "2"}


def files_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_a_copied_registry_reads_and_removes_its_own_files_alone(
    registry: VersionRemover, versions: list[RegisteredVersion], folder: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "copy"
    shutil.copytree(folder, whole)
    copy = VersionRemover(
        RegistryPlace.embedded(database=whole / "models.db", artifacts=whole / "artifacts")
    )
    files, copied = files_in(folder / "artifacts"), files_in(whole / "artifacts")
    copy._client.delete_registered_model_alias(versions[4].name, CANDIDATE)
    copy.forget(versions[4])
    assert files_in(folder / "artifacts") == files
    assert files_in(whole / "artifacts") < copied
    shutil.move(folder / "artifacts", tmp_path / "gone")
    try:
        assert copy.load(versions[2]).card == {"text": "2"}
    finally:
        shutil.move(tmp_path / "gone", folder / "artifacts")


def test_a_removal_that_was_broken_off_goes_on_and_leaves_the_other_registry_alone(
    registry: VersionRemover,
    versions: list[RegisteredVersion],
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = tmp_path / "copy"
    shutil.copytree(folder, whole)
    copy = VersionRemover(
        RegistryPlace.embedded(database=whole / "models.db", artifacts=whole / "artifacts")
    )
    copy._client.delete_registered_model_alias(versions[4].name, CANDIDATE)
    files = files_in(folder / "artifacts")

    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(copy._client), "delete_model_version", fails, raising=False)
        with pytest.raises(KeyboardInterrupt):
            copy.forget(versions[4])
    copy.forget(versions[4])
    assert 5 not in [one.version for one in copy.versions(versions[0].name)]
    assert files_in(folder / "artifacts") == files
