from pathlib import Path

import pytest

from features.errors import SettingsError
from remediation.site import Site, load_site, site_from


def test_g02_the_default_caps_are_the_promised_ones():
    caps = Site().caps
    assert (caps.held_percent, caps.held_most, caps.per_rack) == (2.0, 10, 1)
    assert (caps.per_job, caps.actions_per_hour) == (1, 2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "expected keys and values, got list"),
        ({"capz": {}}, "capz"),
        ({"caps": {"held_percent": 101}}, "caps.held_percent"),
        ({"caps": {"held_most": -1}}, "caps.held_most"),
        ({"drains": {"longest_hours": float("inf")}}, "longest_hours = inf: expected at most"),
        ({"burst": {"quiet_hours": 1e300}}, r"quiet_hours = 1e\+300: expected at most 1,000,000"),
        ({"horizon_h": 10**12}, r"horizon_h = 1e\+12: expected at most 1,000,000"),
        ({"levels": [{"level": "yolo"}]}, "unknown level"),
        ({"levels": [{"level": "cordon", "fault_type": "x"}]}, "unknown fault type"),
        ({"levels": [{"level": "cordon", "group": "g"}]}, "levels name group 'g'"),
        ({"warning": {"n": 4, "k": 3}}, "n <= k must hold"),
        ({"maintenance": [{"name": "w", "start": "2026-01-05", "end": "2026-01-06"}]}, "start"),
        (
            {
                "maintenance": [
                    {"name": "w", "start": "2026-01-06T00:00Z", "end": "2026-01-06T00:00Z"}
                ]
            },
            "window 'w' is empty",
        ),
        (
            {"working_hours": [{"start": "08:00", "end": "16:00", "time_zone": "Mars/Base"}]},
            "unknown time zone",
        ),
    ],
)
def test_settings_that_cannot_be_carried_out_name_key_and_problem(content, says):
    with pytest.raises(SettingsError, match=says):
        site_from(content, origin=Path("site.yaml"))


def test_a_relative_kill_switch_is_relative_to_the_file(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("kill_switch: stop\nlevels: [{level: cordon}]\n")
    site = load_site(path)
    assert site.kill_switch == tmp_path / "stop"
    assert site.level_of("a", None) == ("cordon", "group *, fault *")


@pytest.mark.parametrize("content", [None, "a: [", "a: b: c"])
def test_a_file_that_is_absent_or_no_yaml_is_one_clear_error(tmp_path, content):
    path = tmp_path / "site.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingsError, match="site.yaml"):
        load_site(path)
