"""A mistake in the hook's settings is one error that names file, key, expected and found."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from features.errors import SettingsError
from remediation.hook_settings import load_hook_settings
from remediation.program.kill_switch import find_kill_switch

LEAST: dict[str, Any] = {
    "state": "state",
    "scores": {"folder": "scores"},
    "cluster": {"kind": "slurm"},
}
KEYS = {"desk": {"variable": "FOREWARN_KEY"}}


def write(folder: Path, content: object) -> Path:
    path = folder / "hook.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_the_least_settings_act_on_nothing(tmp_path: Path) -> None:
    found = load_hook_settings(write(tmp_path, LEAST))
    assert found.actuator.kind == "dry_run"
    assert found.site.levels == ()
    assert found.inbox is None


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    content = {
        **LEAST,
        "cluster": {"kind": "slurm", "racks": "racks.csv"},
        "inbox": {"folder": "inbox", "keys": {"a": {"file": "key"}}, "actors": {"ada": ["*"]}},
        "ledger": {"head": "/elsewhere/head"},
    }
    found = load_hook_settings(write(tmp_path, content))
    assert found.state == tmp_path / "state"
    assert found.scores.folder == tmp_path / "scores"
    assert found.cluster.racks == tmp_path / "racks.csv"  # type: ignore[union-attr]
    assert found.inbox is not None
    assert found.inbox.keys["a"].file == tmp_path / "key"
    assert found.ledger.head == Path("/elsewhere/head")
    assert found.ledger_file == tmp_path / "state" / "ledger.sqlite"


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        (None, "state/STOP"),
        ({"kill_switch": "off/SWITCH"}, "off/SWITCH"),
        ("sites/lab.yaml", "sites/HALT"),
    ],
)
def test_there_is_always_a_kill_switch_and_its_command_finds_the_same(
    tmp_path: Path, site: object, expected: str
) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "lab.yaml").write_text("kill_switch: HALT\n")
    path = write(tmp_path, LEAST if site is None else {**LEAST, "site": site})
    assert load_hook_settings(path).site.kill_switch == tmp_path / expected
    assert find_kill_switch(path) == tmp_path / expected


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cluster": {"kind": "slrum"}}, ("cluster", "'slurm'", "slrum")),
        ({"cluster": {"kind": "slurm", "timeout_s": 0}}, ("cluster.timeout_s", "greater than 0")),
        ({"cluster": {"kind": "slurm", "rack": "x"}}, ("cluster.rack", "no key of this name")),
        ({"cluster": {"kind": "core_tables"}}, ("cluster.installation", "required")),
        ({"actuator": {"kind": "kubernetes"}}, ("acts on kubernetes, but cluster is slurm",)),
        (
            {
                "cluster": {"kind": "core_tables", "installation": "f.yaml"},
                "actuator": {"kind": "slurm"},
            },
            ("actuator slurm acts on slurm, but cluster is core_tables",),
        ),
        (
            {"actuator": {"kind": "webhook", "url": "https://a/b"}},
            ("actuator", "exactly one of key_variable and key_file"),
        ),
        ({"actuator": {"kind": "slurm", "key": "secret"}}, ("actuator.key", "no key of this name")),
        ({"scores": {}}, ("scores.folder", "required")),
        ({"state": None}, ("state", "got None")),
        ({"ledger": {"sqlite": "a", "postgres_variable": "B"}}, ("ledger", "either sqlite or")),
        ({"ledger": {"postgres": "host=a password=b"}}, ("ledger.postgres", "no key of this name")),
        (
            {"inbox": {"folder": "i", "keys": KEYS, "actors": {"ada": ["drain"]}}},
            ("inbox.actors", "drain"),
        ),
        ({"inbox": {"folder": "i", "keys": {}, "actors": {"a": ["*"]}}}, ("inbox.keys",)),
        ({"lease": {"seconds": 100, "act_seconds": 90}}, ("lease", "twice")),
        ({"loop": {"interval_s": 0}}, ("loop.interval_s", "got 0")),
        ({"returns": {"check": {"name": "a", "command": ["b"]}}}, ("returns.check", "under_load")),
        ({"site": {"levels": [{"level": "drain"}]}}, ("levels.0.level", "observe, recommend")),
        ({"site": {"caps": {"per_rak": 1}}}, ("caps.per_rak",)),
        ({"site": "none.yaml"}, ("none.yaml", "No such file")),
        ({"site": 7}, ("expected keys and values, got int",)),
        ({"sites": {}}, ("sites", "no key of this name")),
    ],
)
def test_each_mistake_is_one_error_that_names_file_and_key(
    tmp_path: Path, changes: dict[str, Any], told: tuple[str, ...]
) -> None:
    path = write(tmp_path, {**LEAST, **changes})
    with pytest.raises(SettingsError) as caught:
        load_hook_settings(path)
    assert all(word in str(caught.value) for word in (str(tmp_path), *told)), caught.value
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [("a: [", "not YAML"), ("- a\n", "got list"), ("state: a\nstate: b\n", "given twice")],
)
def test_a_file_that_holds_no_settings_is_one_error(
    tmp_path: Path, content: str, told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        load_hook_settings(write(tmp_path, content))


def test_an_absent_file_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--hook FILE or in .FOREWARN_HOOK"):
        load_hook_settings(tmp_path / "none.yaml")


@pytest.mark.parametrize("keys", ["hunter2", "{k1: hunter2}", "[hunter2]"])
def test_a_key_in_the_place_of_its_reference_is_never_shown(tmp_path: Path, keys: str) -> None:
    path = tmp_path / "hook.yaml"
    path.write_text(
        f"state: s\nscores: {{folder: f}}\ncluster: {{kind: slurm}}\n"
        f"inbox: {{folder: i, keys: {keys}, actors: {{}}}}\n"
    )
    with pytest.raises(SettingsError) as error:
        load_hook_settings(path)
    assert "hunter2" not in str(error.value)
