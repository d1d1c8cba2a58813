"""Rules of the model registry, on one SQLite store for the session (migrations take seconds)."""

import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from models.bundle import ModelBundle
from models.evaluation import Estimate
from models.gate import GateDecision
from models.registry import (
    CANDIDATE,
    CHAMPION,
    PREVIOUS,
    ModelRegistry,
    RegisteredVersion,
    RegistryError,
)

ACCEPTED = GateDecision(
    is_accepted=True, difference=Estimate(0.1, 0.05, 0.15), reason="Better than the base rate."
)
REFUSED = GateDecision(
    is_accepted=False, difference=Estimate(0.0, -0.1, 0.1), reason="Not better beyond chance."
)


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="session")
def registry(store) -> ModelRegistry:
    return ModelRegistry(database=store / "models.db", artifacts=store / "artifacts")


def variant(bundle: ModelBundle, *, horizon_h: int, card: str = "a") -> ModelBundle:
    """The bundle under a name of its own, so that tests share the store but no model."""
    task = replace(bundle.model.task, horizon_h=horizon_h)
    return replace(bundle, model=replace(bundle.model, task=task), card={"text": card})


@pytest.mark.slow
def test_importing_the_registry_does_not_load_mlflow() -> None:
    code = "import sys, models.registry; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_version_read_back_scores_the_same_to_the_last_bit(registry, bundle, rows) -> None:
    ours = variant(bundle, horizon_h=101)
    version = registry.register(ours, metrics={"auc": 0.9})
    again = registry.load(version)
    assert version.is_new
    assert (again.model.scores(rows) == ours.model.scores(rows)).all()
    assert again.fingerprint == ours.fingerprint


@pytest.mark.slow
def test_registering_an_equal_bundle_again_makes_no_version(registry, bundle) -> None:
    first = registry.register(variant(bundle, horizon_h=102))
    again = registry.register(variant(bundle, horizon_h=102))
    other = registry.register(variant(bundle, horizon_h=102, card="b"))
    assert (again.version, again.is_new) == (first.version, False)
    assert (other.version, other.is_new) == (first.version + 1, True)
    assert registry.version_of(first.name, CANDIDATE).version == other.version


@pytest.mark.slow
def test_promotion_keeps_the_last_champion_and_rollback_returns_to_it(registry, bundle) -> None:
    first = registry.register(variant(bundle, horizon_h=103))
    second = registry.register(variant(bundle, horizon_h=103, card="b"))
    name = first.name
    assert registry.version_of(name, CHAMPION) is None
    registry.promote(first, decision=ACCEPTED)
    registry.promote(second, decision=ACCEPTED)
    assert registry.load_champion(name)[0].version == second.version
    assert registry.version_of(name, PREVIOUS).version == first.version
    assert registry.rollback(name).version == first.version
    assert registry.load_champion(name)[0].version == first.version
    with pytest.raises(RegistryError, match="no alias 'previous'"):
        registry.rollback(name)


@pytest.mark.slow
def test_promoting_the_champion_again_changes_nothing(registry, bundle) -> None:
    first = registry.register(variant(bundle, horizon_h=104))
    registry.promote(first, decision=ACCEPTED)
    registry.promote(first, decision=ACCEPTED)
    assert registry.version_of(first.name, CHAMPION).version == first.version
    assert registry.version_of(first.name, PREVIOUS) is None


@pytest.mark.slow
def test_a_candidate_the_gate_refused_is_not_promoted(registry, bundle) -> None:
    first = registry.register(variant(bundle, horizon_h=105))
    with pytest.raises(RegistryError, match="Not better beyond chance"):
        registry.promote(first, decision=REFUSED)
    assert registry.version_of(first.name, CHAMPION) is None
    with pytest.raises(RegistryError, match="no version has the alias 'champion'.*registered: 1"):
        registry.load_champion(first.name)


@pytest.mark.slow
def test_an_alias_left_dangling_is_a_clear_error_and_can_be_moved_on(
    registry, bundle, store
) -> None:
    first = registry.register(variant(bundle, horizon_h=106))
    registry.promote(first, decision=ACCEPTED)
    database = sqlite3.connect(store / "models.db")
    with database:
        database.execute(
            "UPDATE registered_model_aliases SET version = 9 WHERE name = ? AND alias = ?",
            (first.name, CHAMPION),
        )
    database.close()
    with pytest.raises(RegistryError, match="'champion' points at version 9, which was deleted"):
        registry.load_champion(first.name)
    registry.promote(first, decision=ACCEPTED)
    assert registry.load_champion(first.name)[0].version == first.version
    assert registry.version_of(first.name, PREVIOUS) is None


@pytest.mark.slow
def test_a_deleted_champion_is_no_champion(registry, bundle) -> None:
    first = registry.register(variant(bundle, horizon_h=112))
    registry.promote(first, decision=ACCEPTED)
    registry._client.delete_model_version(first.name, str(first.version))
    with pytest.raises(RegistryError, match="champion.*none"):
        registry.load_champion(first.name)


@pytest.mark.slow
def test_a_model_or_version_that_is_not_there_is_named(registry, bundle) -> None:
    assert registry.version_of("absent", CHAMPION) is None
    with pytest.raises(RegistryError, match="absent.*registered: none"):
        registry.load_champion("absent")
    known = registry.register(variant(bundle, horizon_h=107))
    with pytest.raises(RegistryError, match="has no version 99; registered: 1"):
        registry.load(RegisteredVersion(known.name, 99))


@pytest.mark.slow
@pytest.mark.parametrize(("horizon_h", "damage"), [(108, "change"), (109, "remove")])
def test_files_that_are_not_the_registered_ones_are_refused(
    registry, bundle, store, horizon_h, damage
) -> None:
    version = registry.register(variant(bundle, horizon_h=horizon_h, card=damage))
    [path] = [
        path
        for path in (store / "artifacts").rglob("card.json")
        if json.loads(path.read_text()) == {"text": damage}
    ]
    if damage == "change":
        path.write_text(json.dumps({"text": "forged"}))
    else:
        path.unlink()
    with pytest.raises(Exception, match="registered|missing") as caught:
        registry.load(version)
    assert caught.type.__module__ in {"models.registry", "features.errors"}


@pytest.mark.slow
def test_any_mlflow_client_can_load_the_booster_and_its_signature(registry, bundle) -> None:
    import mlflow

    ours = variant(bundle, horizon_h=110)
    version = registry.register(ours)
    info = mlflow.models.get_model_info(f"models:/{version.name}/{version.version}")
    assert [column.name for column in info.signature.inputs] == list(ours.model.feature_names)
    booster = mlflow.lightgbm.load_model(f"models:/{version.name}/{version.version}")
    assert booster.model_to_string() == ours.model.boosters[0].model_to_string()


@pytest.mark.slow
def test_a_fresh_process_loads_the_champion_and_leaves_nothing_behind(
    registry, bundle, store, tmp_path
) -> None:
    version = registry.register(variant(bundle, horizon_h=111))
    registry.promote(version, decision=ACCEPTED)
    code = (
        "import sys; from pathlib import Path; from models.registry import ModelRegistry; "
        f"r = ModelRegistry(database=Path({str(store / 'models.db')!r}), "
        f"artifacts=Path({str(store / 'artifacts')!r})); "
        f"print(r.load_champion({version.name!r})[1].fingerprint)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == variant(bundle, horizon_h=111).fingerprint
    assert list(tmp_path.iterdir()) == []
