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
