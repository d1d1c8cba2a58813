"""Rules of YAML files: a key counts once, and a time of day is text."""

from pathlib import Path

import pytest
import yaml

from features.errors import SettingsError
from remediation.site import site_from
from remediation.strict_yaml import parse_yaml


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3", "x:\n  - {k: 1, k: 2}"])
def test_a_key_given_twice_is_an_error_that_names_both_lines(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="is given twice, in lines 1|in lines 2"):
        parse_yaml(text)


def test_the_same_key_in_different_places_is_fine() -> None:
    assert parse_yaml("a: {k: 1}\nb: {k: 2}") == {"a": {"k": 1}, "b": {"k": 2}}


def test_an_unquoted_time_of_day_is_refused_and_not_misread() -> None:
    hours = parse_yaml("working_hours: [{start: 10:00, end: 17:00, time_zone: UTC}]")
    with pytest.raises(SettingsError, match='in quotes, such as "17:00"'):
        site_from(hours, origin=Path("site.yaml"))
    quoted = parse_yaml('working_hours: [{start: "10:00", end: "17:00", time_zone: UTC}]')
    assert site_from(quoted, origin=Path("site.yaml")).working_hours[0].end.hour == 17


def test_a_mistake_is_one_line_without_the_text_that_it_stands_in() -> None:
    with pytest.raises(yaml.YAMLError) as error:
        parse_yaml("a: 1\nkey: %hunter2\n")
    assert "in line 2" in str(error.value)
    assert "hunter2" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", ["2026-02-30", "9" * 5000])
def test_a_value_that_cannot_be_is_told_with_its_line(value: str) -> None:
    with pytest.raises(yaml.YAMLError, match="cannot be read: .*, in line 2"):
        parse_yaml(f"a: 1\nb: {value}\n")


def test_aliases_of_aliases_are_told_in_few_words() -> None:
    lines = ["x0: &x0 [1]"] + [
        f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30)
    ]
    with pytest.raises(SettingsError) as error:
        site_from(parse_yaml("\n".join([*lines, "levels: *x29"])), origin=Path("site.yaml"))
    assert len(str(error.value)) < 10_000
