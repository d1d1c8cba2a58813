"""Rules of the model registry, on one SQLite store for the session (migrations take seconds)."""

import json
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from features.errors import DataError
from models.bundle import ModelBundle
from models.ensembles.site import with_ensemble
from models.evaluation.gate import GateDecision
from models.evaluation.row_metrics import Estimate
from models.registry.model_registry import CANDIDATE, CHAMPION, PREVIOUS, ModelRegistry
from models.registry.place import RegistryPlace
from models.registry.registered import RegisteredVersion, RegistryError
from models.registry.version_page import VersionPage
from models.specs import TrainSpec
from models.training.splits import TimeSplit

ACCEPTED = GateDecision(
    is_accepted=True, difference=Estimate(0.1, 0.05, 0.15), reason="Better than the base rate."
)
WHO = {"by": "ann", "reason": "false alarms since Monday"}
REFUSED = GateDecision(
    is_accepted=False, difference=Estimate(0.0, -0.1, 0.1), reason="Not better beyond chance."
)


def place(database: Path) -> RegistryPlace:
    return RegistryPlace.embedded(database=database, artifacts=database.with_name("artifacts"))


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="session")
def registry(store) -> ModelRegistry:
    return ModelRegistry(place(store / "models.db"))


def variant(bundle: ModelBundle, *, horizon_h: int, card: str = "a") -> ModelBundle:
    """The bundle under a name of its own, so that tests share the store but no model."""
    task = replace(bundle.model.task, horizon_h=horizon_h)
    return replace(bundle, model=replace(bundle.model, task=task), card={"text": card})


@pytest.mark.slow
def test_importing_the_registry_does_not_load_mlflow() -> None:
    code = "import sys, models.registry.model_registry; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_version_read_back_scores_the_same_to_the_last_bit(registry, bundle, rows) -> None:
    ours = variant(bundle, horizon_h=101)
    page = VersionPage(metrics={"auc": 0.9}, artifacts={"card.html": "<p>card</p>"})
    version = registry.register(ours, page=page)
    again = registry.load(version)
    assert version.is_new
    assert (again.model.scores(rows) == ours.model.scores(rows)).all()
    assert again.fingerprint == ours.fingerprint


@pytest.mark.slow
@pytest.mark.parametrize(("horizon_h", "ensemble"), [(129, "parallel"), (130, "cascade")])
def test_an_ensemble_read_back_scores_the_same_to_the_last_bit(
    registry, bundle, rows, horizon_h, ensemble
) -> None:
    ours = variant(bundle, horizon_h=horizon_h)
    split = TimeSplit(rows, rows, rows, {})
    model = with_ensemble(ours.model, split, ensemble=ensemble, spec=ours.model.spec)
    ours = replace(ours, model=model.calibrated_on(rows))
    again = registry.load(registry.register(ours))
    assert (again.model.scores(rows) == ours.model.scores(rows)).all()
    assert (again.model.scores(rows) != bundle.model.scores(rows)).any()


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
    registry.promote(second, decision=ACCEPTED, against=first)
    assert registry.version_of(name, CHAMPION).version == second.version
    assert registry.version_of(name, PREVIOUS).version == first.version
    assert registry.rollback(name, **WHO).version == first.version
    assert registry.version_of(name, CHAMPION).version == first.version
    with pytest.raises(RegistryError, match="no alias 'previous'"):
        registry.rollback(name, **WHO)


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
        registry.version_of(first.name, CHAMPION)
    registry.promote(first, decision=ACCEPTED)
    assert registry.version_of(first.name, CHAMPION).version == first.version
    assert registry.version_of(first.name, PREVIOUS) is None


@pytest.mark.slow
def test_a_deleted_champion_is_no_champion(registry, bundle) -> None:
    first = registry.register(variant(bundle, horizon_h=112))
    registry.promote(first, decision=ACCEPTED)
    registry._client.delete_model_version(first.name, str(first.version))
    assert registry.version_of(first.name, CHAMPION) is None


@pytest.mark.slow
def test_a_model_or_version_that_is_not_there_is_named(registry, bundle) -> None:
    assert registry.version_of("absent", CHAMPION) is None
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
    with pytest.raises(RegistryError, match="registered|missing"):
        registry.load(version)


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
        "import sys; from pathlib import Path; "
        "from models.registry.model_registry import ModelRegistry; "
        "from models.registry.place import RegistryPlace; "
        f"r = ModelRegistry(RegistryPlace.embedded(database=Path({str(store / 'models.db')!r}), "
        f"artifacts=Path({str(store / 'artifacts')!r}))); "
        f"print(r.load(r.version_of({version.name!r}, 'champion')).fingerprint)"
    )
    root = Path(__file__).parents[3]
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


class CrashError(Exception):
    """Stands for the end of the process."""


def crash_at_alias_move(registry: ModelRegistry, monkeypatch, number: int) -> None:
    """The process dies instead of making its n-th change of an alias."""
    calls = iter(range(1, 99))
    client = registry._client
    for method in ("set_registered_model_alias", "delete_registered_model_alias"):
        real = getattr(client, method)

        def dying(*args, real=real):
            if next(calls) == number:
                raise CrashError
            return real(*args)

        monkeypatch.setattr(client, method, dying)


def three(registry: ModelRegistry, bundle: ModelBundle, horizon_h: int) -> list[RegisteredVersion]:
    """Version 1 is previous, 2 is champion, 3 is candidate."""
    made = [
        registry.register(variant(bundle, horizon_h=horizon_h, card=card))
        for card in ("a", "b", "c")
    ]
    registry.promote(made[0], decision=ACCEPTED)
    registry.promote(made[1], decision=ACCEPTED, against=made[0])
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("horizon_h", "number"), [(120, 1), (121, 2)])
def test_a_promotion_that_stops_half_way_leaves_the_old_champion_and_can_be_repeated(
    registry, bundle, monkeypatch, horizon_h, number
) -> None:
    _, second, third = three(registry, bundle, horizon_h)
    name = second.name
    with monkeypatch.context() as patched:
        crash_at_alias_move(registry, patched, number)
        with pytest.raises(CrashError):
            registry.promote(third, decision=ACCEPTED, against=second)
    assert registry.version_of(name, CHAMPION).version == second.version
    assert (registry.interrupted(name).version, registry.interrupted(name).by) == (3, "the gate")
    if number == 2:
        with pytest.raises(RegistryError, match="stopped half way.*promote one of: 1, 2, 3"):
            registry.rollback(name, **WHO)
    registry.promote(third, decision=ACCEPTED, against=second)
    assert registry.version_of(name, CHAMPION).version == third.version
    assert registry.version_of(name, PREVIOUS).version == second.version
    assert registry.interrupted(name) is None


@pytest.mark.slow
@pytest.mark.parametrize(("horizon_h", "number", "champion"), [(122, 1, 2), (123, 2, 1)])
def test_a_rollback_that_stops_half_way_leaves_one_champion_and_can_be_repeated(
    registry, bundle, monkeypatch, horizon_h, number, champion
) -> None:
    first, _, _ = three(registry, bundle, horizon_h)
    name = first.name
    with monkeypatch.context() as patched:
        crash_at_alias_move(registry, patched, number)
        with pytest.raises(CrashError):
            registry.rollback(name, **WHO)
    assert registry.version_of(name, CHAMPION).version == champion
    assert registry.interrupted(name).move == "rollback"
    assert registry.rollback(name, **WHO).version == first.version
    assert registry.version_of(name, PREVIOUS) is None
    assert registry.interrupted(name) is None


@pytest.mark.slow
def test_who_promoted_and_why_is_kept_with_the_version_and_in_the_log(registry, bundle) -> None:
    made = registry.register(variant(bundle, horizon_h=124))
    with pytest.raises(RegistryError, match="never asked.*overrule"):
        registry.promote_by_hand(made, **WHO)
    registry.promote_by_hand(made, **WHO, overrules_gate=True)
    standing = registry.standing(made)
    assert (standing.promoted_by, standing.promoted_reason) == ("ann", "false alarms since Monday")
    assert standing.aliases == ("candidate", "champion")
    begun, done = registry.moves(made.name)
    assert (begun.is_done, done.is_done, done.by, done.earlier) == (False, True, "ann", None)


@pytest.mark.slow
def test_the_gates_word_is_kept_also_when_it_is_no(registry, bundle) -> None:
    made = registry.register(variant(bundle, horizon_h=125))
    registry.note_gate(made, REFUSED)
    standing = registry.standing(made)
    assert (standing.is_gate_passed, standing.gate) == (False, "Not better beyond chance.")
    with pytest.raises(RegistryError, match="Not better beyond chance"):
        registry.promote_by_hand(made, **WHO)
    registry.note_gate(made, ACCEPTED)
    registry.promote_by_hand(made, **WHO)
    assert registry.version_of(made.name, CHAMPION).version == made.version


@pytest.mark.slow
def test_a_gate_that_compared_with_an_earlier_champion_must_be_asked_again(
    registry, bundle
) -> None:
    first, second, third = three(registry, bundle, 126)
    # None: there was no champion when it was judged, and another trainer was faster.
    for against in (first, None):
        with pytest.raises(RegistryError, match=r"against another .*, or none; .* is now .*/2"):
            registry.promote(third, decision=ACCEPTED, against=against)
    assert registry.version_of(first.name, CHAMPION).version == second.version


@pytest.mark.slow
def test_two_trainers_that_register_the_same_bundle_make_one_version(
    registry, bundle, store
) -> None:
    other = ModelRegistry(place(store / "models.db"))
    ours = variant(bundle, horizon_h=127)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda one: one.register(ours), (registry, other)))
    assert [one.version for one in made] == [1, 1]
    assert sorted(one.is_new for one in made) == [False, True]


@pytest.mark.slow
def test_a_version_of_a_release_that_wrote_fewer_facts_is_still_known(
    registry, bundle, monkeypatch
) -> None:
    version = registry.register(variant(bundle, horizon_h=128))
    written = type(bundle).to_documents
    monkeypatch.setattr(
        type(bundle), "to_documents", lambda self: written(self) | {"later.json": "{}"}
    )
    assert registry.load(version).model.n_rows == bundle.model.n_rows


@pytest.mark.slow
def test_a_registry_just_opened_can_roll_back(registry, bundle, store) -> None:
    first, _, _ = three(registry, bundle, 129)
    fresh = ModelRegistry(place(store / "models.db"))
    assert fresh.rollback(first.name, **WHO).version == first.version


@pytest.mark.parametrize(
    ("ask", "is_open"),
    [
        pytest.param(
            lambda one: one.version_of("gpu-failure-6h", CHAMPION), True, marks=pytest.mark.slow
        ),
        (lambda one: one.version_of("gpu-failure-6h", CHAMPION), False),
        (lambda one: one.versions("gpu-failure-6h"), False),
        (lambda one: one.names(), False),
    ],
)
def test_a_database_that_cannot_be_read_is_named(store, tmp_path, registry, ask, is_open) -> None:
    registry.names()  # so that the file is there
    for one in store.glob("mlflow.db*"):
        shutil.copy(one, tmp_path)
    broken = ModelRegistry(place(tmp_path / "mlflow.db"))
    if is_open:
        broken.names()
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 1000)
    with pytest.raises(RegistryError, match=r"mlflow\.db cannot be read.*not a database.*Restore"):
        ask(broken)


def files_of(registry: ModelRegistry, version: RegisteredVersion) -> Path:
    """The folder that holds the files of a version."""
    number = str(version.version)
    source = registry._client.get_model_version_download_uri(version.name, number)
    if source.startswith("models:/"):  # the address of a logged model
        model = registry._client.get_logged_model(source.removeprefix("models:/"))
        source = model.artifact_location
    return Path(source.removeprefix("file://"))


@pytest.mark.slow
def test_a_bundle_whose_files_are_lost_is_stored_again(registry, bundle) -> None:
    ours = variant(bundle, horizon_h=144)
    first = registry.register(ours)
    shutil.rmtree(files_of(registry, first))
    again = registry.register(ours)
    assert (again.version, again.is_new) == (2, True)
    assert registry.load(again).fingerprint == ours.fingerprint
    assert registry.register(ours) == again  # once, and not with every training


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["remove", "garble", "other release"])
def test_a_version_that_cannot_be_read_is_made_champion_by_nobody(
    registry, bundle, store, monkeypatch, damage
) -> None:
    first, second, third = three(registry, bundle, {"r": 141, "g": 142, "o": 143}[damage[0]])
    for version in (first, third):
        folder = files_of(registry, version)
        if damage == "remove":
            shutil.rmtree(folder)
        elif damage == "garble":
            (folder / "extra_files" / "card.json").write_bytes(b"\xff\xfe\x00")
    if damage == "other release":
        monkeypatch.setattr(
            "models.registry.model_registry.bundle_from_documents", lambda _: TrainSpec(seasons=3)
        )
    kinds = DataError if damage == "other release" else RegistryError
    with pytest.raises(kinds, match=r"/1: .*(cannot be read|cannot read)"):
        registry.rollback(first.name, **WHO)
    with pytest.raises(kinds, match=r"/3: .*(cannot be read|cannot read)"):
        registry.promote_by_hand(third, **WHO, overrules_gate=True)
    assert registry.version_of(first.name, CHAMPION) == second
    assert registry.interrupted(first.name) is None
