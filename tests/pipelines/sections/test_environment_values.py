"""The one rule of variables: FOREWARN__SECTION__KEY gives a key, typed, or is an error."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.errors import SettingsError
from pipelines.sections.environment_values import EnvironmentValue, given_by, laid_over
from pipelines.settings import Settings, load_settings

FILE = """
site: lab
inputs: inputs.yaml
data_root: data
start: 2026-01-01T00:00:00Z
end: 2026-06-01T00:00:00Z
api: {burst: 9, rate_per_s: 3}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "forewarn.yaml").write_text(FILE)
    return tmp_path / "forewarn.yaml"


@pytest.mark.parametrize(
    ("variable", "text", "key", "expected"),
    [
        ("FOREWARN__API__BURST", "7", ("api", "burst"), 7),
        ("FOREWARN__SITE", "12", ("site",), "12"),
        ("FOREWARN__NOTE", "", ("note",), ""),
        ("FOREWARN__END", "null", ("end",), None),
        ("FOREWARN__HORIZONS_H", "[24, 1]", ("horizons_h",), (24, 1)),
        ("FOREWARN__ACCEPT_LEAK_SUSPECTS", "true", ("accept_leak_suspects",), True),
        ("FOREWARN__TRAINING__SPAN", "180", ("training", "span"), 180),
        ("FOREWARN__DATA_ROOT", "/srv/forewarn", ("data_root",), Path("/srv/forewarn")),
    ],
)
def test_a_variable_counts_before_the_file_and_has_the_keys_type(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    text: str,
    key: tuple[str, ...],
    expected: object,
) -> None:
    monkeypatch.setenv(variable, text)
    found: object = load_settings(path)
    for step in key:
        found = getattr(found, step)
    assert found == expected


def test_a_section_that_is_left_out_of_the_file_can_be_given(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREWARN__SERVING__ALERTMANAGER__URL", "http://alertmanager:9093")
    monkeypatch.setenv("FOREWARN__API__TOKENS", "{ops: {variable: OPS}}")
    settings = load_settings(path)
    assert settings.serving.alertmanager is not None
    assert settings.api.tokens["ops"].variable == "OPS"
    assert settings.api.burst == 9


def test_paths_from_the_environment_are_relative_to_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREWARN__DATA_ROOT", "elsewhere")
    assert load_settings(path).data_root == path.parent / "elsewhere"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("FOREWARN__API__BURTS", "no such setting; did you mean FOREWARN__API__BURST"),
        ("FOREWARN__QQQQQ", "no such setting"),
        ("FOREWARN__SITE__NAME", "FOREWARN__SITE is no section"),
        ("FOREWARN__API__TOKENS__OPS", "FOREWARN__API__TOKENS is no section; give it whole"),
        ("FOREWARN__", "no such setting"),
    ],
)
def test_a_name_that_gives_no_key_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, message: str
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(SettingsError, match=message):
        load_settings(path)


def test_a_wrong_value_names_the_variable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN__API__BURST", "many")
    with pytest.raises(SettingsError, match="from FOREWARN__API__BURST"):
        load_settings(path)


def test_yaml_that_is_none_is_a_mistake_of_its_variable() -> None:
    found = given_by({"FOREWARN__HORIZONS_H": "[24, {]", "OTHER": "1"}, Settings)
    assert list(found.mistakes) == ["FOREWARN__HORIZONS_H"]
    assert found.values == ()


def test_a_key_given_by_two_variables_is_a_mistake_and_not_the_later_ones() -> None:
    found = given_by({"FOREWARN__API__BURST": "4", "FOREWARN__api__burst": "3"}, Settings)
    assert [one.value for one in found.values] == ["4"]
    assert "also as FOREWARN__API__BURST" in found.mistakes["FOREWARN__api__burst"]


def test_an_empty_variable_does_not_make_the_settings_folder_the_data_root(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREWARN__DATA_ROOT", "")
    with pytest.raises(SettingsError, match="cannot be empty.*from FOREWARN__DATA_ROOT"):
        load_settings(path)


def test_an_address_in_brackets_is_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN__API__LISTEN", "[::1]:8080")
    assert load_settings(path).api.listen == "[::1]:8080"


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers()),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers()), max_size=4),
)
def test_other_keys_and_the_document_itself_stay_as_they_are(
    content: dict[str, int], given_values: list[tuple[str, str, int]]
) -> None:
    before = dict(content)
    values = [EnvironmentValue("V", (a, b), value) for a, b, value in given_values]
    made = laid_over(content, values)
    assert content == before
    touched = {one.key[0] for one in values}
    assert {k: v for k, v in made.items() if k not in touched} == {
        k: v for k, v in content.items() if k not in touched
    }
    for one in values:
        last = [other for other in values if other.key == one.key][-1]
        assert made[one.key[0]][one.key[1]] == last.value
