"""Rules of the settings file: right values are taken, wrong ones are named with what to do."""

from pathlib import Path

import pytest

from features.errors import SettingsError
from pipelines.settings import ENVIRONMENT_VARIABLE, load_settings

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


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, GOOD))
    assert settings.inputs == tmp_path / "inputs.yaml"
    assert settings.store_root == tmp_path / "data" / "tables"


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
