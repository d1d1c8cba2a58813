"""Rules of the registry in words and of the commands that move aliases."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from features.errors import DataError
from features.registry import Feature
from models.bundle import ModelBundle
from models.candidate.card import build_card
from models.evaluation.row_metrics import Bootstrap, evaluate
from models.failure_model import FailureModel
from models.reasons import UsualValues
from models.registry.alias_log import begin_move
from models.registry.registered import RegisteredVersion, RegistryError
from models.registry.version_page import Standing
from models.specs import Task, TrainSpec
from pipelines import settings
from pipelines.commands import models as cli_models
from pipelines.flow import steps as flow
from pipelines.report.model_words import compare_versions, list_models, version_named

AT = datetime(2026, 2, 1, tzinfo=UTC)
POWER = Feature("power_w", "telemetry_gauge", "W", None, "Power", (), "")


@pytest.fixture(scope="module")
def bundle() -> ModelBundle:
    model = FailureModel(
        boosters=(),
        feature_names=(POWER.name,),
        task=Task(horizon_h=6, lead=timedelta(minutes=30), trained_on="real"),
        spec=TrainSpec(rounds=30),
        data_span=(AT - timedelta(days=9), AT),
        contract_version="c",
        data_hash="d",
        n_rows=4,
        n_positive=2,
        n_incidents=2,
    )
    rows = pl.DataFrame({"entity_id": list("abcd"), "label": [1, 0, 1, 0], "score": [0.9, 0.1] * 2})
    found = evaluate(rows, bootstrap=Bootstrap(resamples=5))
    card = build_card(model, evaluation=found, baselines={})
    return ModelBundle(model=model, features=(POWER,), usual=UsualValues({}, {}, {}), card=card)


class TwoVersions:
    """A registry of one model with two versions, the first champion."""

    def __init__(self, bundle: ModelBundle, tmp_path: Any) -> None:
        other = replace(bundle.model, spec=replace(bundle.model.spec, rounds=99))
        self.bundles = {1: bundle, 2: replace(bundle, model=other)}
        self.log = tmp_path / "log"
        self.calls: list[Any] = []
        self.stopped: Any = None
        self.broken: dict[int, Exception] = {}

    def names(self) -> tuple[str, ...]:
        return ("gpu-failure-6h",)

    def versions(self, name: str) -> tuple[RegisteredVersion, ...]:
        return tuple(RegisteredVersion(name, number) for number in self.bundles)

    def version_of(self, name: str, alias: str) -> RegisteredVersion | None:
        return RegisteredVersion(name, 1) if alias == "champion" else None

    def load(self, version: RegisteredVersion) -> ModelBundle:
        if version.version in self.broken:
            raise self.broken[version.version]
        return self.bundles[version.version]

    def standing(self, version: RegisteredVersion) -> Standing:
        return Standing(label=version.label, registered_at=AT, aliases=("champion",))

    def interrupted(self, name: str) -> Any:
        return self.stopped

    def moves(self, name: str) -> tuple[Any, ...]:
        return ()

    def promote_by_hand(self, version: RegisteredVersion, **how: Any) -> None:
        self.calls.append((version.label, how))

    def rollback(self, name: str, **how: Any) -> RegisteredVersion:
        self.calls.append((name, how))
        return RegisteredVersion(name, 1)


@pytest.fixture
def registry(bundle, tmp_path) -> TwoVersions:
    return TwoVersions(bundle, tmp_path)


@pytest.mark.parametrize(
    ("text", "version"),
    [("gpu-failure-6h", 1), ("gpu-failure-6h/2", 2), ("gpu-failure-6h@champion", 1)],
)
def test_a_version_is_named_by_number_by_alias_or_as_the_champion(registry, text, version) -> None:
    assert version_named(registry, text).version == version


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu-failure-6h/9", "no version 9; registered: 1, 2"),
        ("gpu-failure-6h@previous", "has no previous; registered versions: 1, 2"),
        ("gpu", "names no model.*Registered: gpu-failure-6h"),
        ("../x", "names no model"),
    ],
)
def test_a_version_that_is_not_there_is_an_error_that_names_those_that_are(
    registry, text, words
) -> None:
    with pytest.raises(RegistryError, match=words):
        version_named(registry, text)


def test_the_list_names_champion_gate_and_a_move_that_stopped(registry) -> None:
    registry.stopped = begin_move(
        registry.log, "promote", "m", version=2, earlier=1, by="ann", reason="better"
    )
    said = list_models(registry)
    assert "not asked" in said
    assert "STOPPED HALF WAY" in said
    assert "by ann: better. Nothing is lost: run the same command again." in said


@pytest.mark.parametrize(
    "error", [RegistryError("its files are gone"), DataError("has schema 1, this reads 2")]
)
def test_a_version_that_cannot_be_read_does_not_hide_the_others(registry, error) -> None:
    registry.broken = {1: error}
    lines = list_models(registry).split("\n")
    assert [line.split()[0] for line in lines[2:4]] == ["2", "1"]
    assert lines[2].endswith("2026-02-01")
    assert lines[3].endswith("cannot be read")
    assert lines[4] == f"  CANNOT BE READ: {error}"


def test_versions_without_a_card_are_not_said_to_share_their_rows(registry) -> None:
    registry.bundles = {n: replace(one, card={}) for n, one in registry.bundles.items()}
    said = compare_versions(registry, *registry.versions("gpu-failure-6h"))
    assert "A version without a card cannot be compared" in said


def test_a_comparison_shows_only_the_settings_that_differ(registry) -> None:
    said = compare_versions(registry, *registry.versions("gpu-failure-6h"))
    assert "train.rounds" in said
    assert "train.num_leaves" not in said
    assert "the gate compares on the same rows" in said


def test_promoting_and_rolling_back_want_a_name_and_a_reason(registry, monkeypatch) -> None:
    monkeypatch.setattr(settings, "load_settings", lambda _: None)
    monkeypatch.setattr(flow, "registry_of", lambda _: registry)
    run = CliRunner().invoke
    assert run(cli_models.app, ["promote", "gpu-failure-6h/2"]).exit_code == 2
    assert run(cli_models.app, ["rollback", "gpu-failure-6h", "--by", "ann"]).exit_code == 2
    assert registry.calls == []
    who = ["--by", "ann", "--reason", "better"]
    told = run(cli_models.app, ["promote", "gpu-failure-6h/2", *who])
    assert "gpu-failure-6h/2 is champion" in told.output
    run(cli_models.app, ["rollback", "gpu-failure-6h", *who])
    noted = {"by": "ann", "reason": "better"}
    assert registry.calls == [
        ("gpu-failure-6h/2", {**noted, "overrules_gate": False}),
        ("gpu-failure-6h", noted),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["promote", "gpu-failure-6h/2", "--by", " ", "--reason", "better"],
        ["rollback", "gpu-failure-6h", "--by", "ann", "--reason", "\n"],
        ["rollback", "gpu'; --", "--by", "ann", "--reason", "better"],
        ["rollback", "gpu-failure-6h/1", "--by", "ann", "--reason", "better"],
    ],
)
def test_a_move_without_words_or_model_moves_nothing(registry, monkeypatch, arguments) -> None:
    monkeypatch.setattr(settings, "load_settings", lambda _: None)
    monkeypatch.setattr(flow, "registry_of", lambda _: registry)
    assert CliRunner().invoke(cli_models.app, arguments).exit_code != 0
    assert registry.calls == []
