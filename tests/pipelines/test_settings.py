"""Rules of the settings file: right values are taken, wrong ones are named with what to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from features.errors import SettingsError
from pipelines.sections.secret_source import SecretSource
from pipelines.settings import ENVIRONMENT_VARIABLE, Settings, load_settings

GOOD = """
site: lab
inputs: inputs.yaml
data_root: data
start: 2026-01-01T00:00:00Z
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "forewarn.yaml"
    path.write_text(text)
    return path


PATHS = """
remediation: a
fault_catalogue: a
fault_overrides: a
serving:
  alertmanager: {url: "http://a", ca_file: a}
  webhook: {url: "https://a", key: {variable: A}, ca_file: a}
storage:
  object_store: {ca_file: a}
  mlflow: {url: "https://a", ca_file: a}
api:
  ledger: {sqlite: a}
  inbox: {folder: a, key_id: a, key: {variable: A}}
"""


def paths_in(section: BaseModel, key: str = "") -> Iterator[tuple[str, Path]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from paths_in(value, f"{key}{name}.")
        elif isinstance(value, Path):
            yield f"{key}{name}", value


def kinds_in(annotation: object) -> Iterator[object]:
    yield annotation
    for part in get_args(annotation):
        yield from kinds_in(part)


def path_keys(section: type[BaseModel], key: str = "") -> Iterator[str]:
    """Keys of all settings that are paths; those of secrets are whole."""
    for name, field in section.model_fields.items():
        for kind in kinds_in(field.annotation):
            if kind is Path:
                yield f"{key}{name}"
            elif not isinstance(kind, type) or not issubclass(kind, BaseModel):
                continue
            elif not issubclass(kind, SecretSource):
                yield from path_keys(kind, f"{key}{name}.")


def test_every_path_is_relative_to_the_file_wherever_one_is(tmp_path, monkeypatch) -> None:
    write(tmp_path, GOOD + PATHS)
    monkeypatch.chdir(tmp_path.parent)
    found = dict(paths_in(load_settings(Path(tmp_path.name) / "forewarn.yaml")))
    assert set(found) == set(path_keys(Settings))  # a new one belongs into PATHS
    assert set(found.values()) == {tmp_path / n for n in ("inputs.yaml", "data", "a")}


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(write(tmp_path, GOOD)))
    assert load_settings().site == "lab"


def test_no_file_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    with pytest.raises(SettingsError, match="--settings FILE or set FOREWARN_SETTINGS"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "lead_minutes: -1", "lead_minutes.*greater than or equal to 0.*got -1"),
        (GOOD + "lead_minuts: 30", "lead_minuts.*not permitted"),
        (GOOD.replace("Z", ""), "start.*timezone"),
        (GOOD.replace("00:00Z", "07:00Z"), "full hour"),
        (GOOD.replace("site: lab", ""), "site.*required"),
        (GOOD + "end: 2025-01-01T00:00:00Z", "start < split.train_until"),
        (GOOD + "feature_set: all", "feature_set.*'standard' or 'full'.*got 'all'"),
        ("- a\n- b", "expected keys and values, got list"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_value_is_named_with_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(SettingsError, match=message) as caught:
        load_settings(path)
    assert str(path) in str(caught.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="absent.yaml: No such file"):
        load_settings(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("start: 2026-02-30", "is not YAML: a value cannot be read"),
        ("seed: " + "9" * 5000, "is not YAML: a value cannot be read"),
        ("note: " + "[" * 600, "is not YAML: values are nested too deeply"),
        ("start: 0001-01-01T00:00:00+05:00", "years 1 to 9999"),
        ('data_root: "a\\0b"', "NUL"),
        ('inputs: "a\\0b"', "NUL"),
    ],
)
def test_a_value_that_cannot_be_is_one_clear_error(tmp_path: Path, line: str, message: str) -> None:
    lines = {
        "site": "site: lab",
        "inputs": "inputs: inputs.yaml",
        "data_root": "data_root: data",
        "start": "start: 2026-01-01T00:00:00Z",
    } | {line.split(":", maxsplit=1)[0]: line}
    (tmp_path / "forewarn.yaml").write_text("\n".join(lines.values()))
    with pytest.raises(SettingsError, match=message):
        load_settings(tmp_path / "forewarn.yaml")
