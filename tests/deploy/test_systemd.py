"""The units are valid, closed, and start what there is; accounts are apart."""

import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from pipelines.cli import app
from pipelines.site_init.files import SETTINGS
from remediation.inbox.files import DONE, NEW, REFUSED
from remediation.inbox.site import prepare_inbox
from tests.deploy.manifests import FOLDER
from tests.deploy.test_kubernetes import PROGRAMS, commands_of

SYSTEMD = FOLDER.parent / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
SITE = "/etc/forewarn"
INSTALLED = "/opt/forewarn/.venv/bin"
HOOK = {
    "forewarn-remediate.service",
    "forewarn-remediate-once.service",
    "forewarn-hook-metrics.service",
}

each = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)


def settings_of(path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        key, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def state_of(path: Path) -> list[str]:
    return settings_of(path)["StateDirectory"]


def hardening(path: Path) -> dict[str, list[str]]:
    found = settings_of(path)
    first = list(found).index("NoNewPrivileges")
    return {key: value for key, value in list(found.items())[first:] if key != "WantedBy"}


@each
def test_every_unit_is_as_closed_as_the_hook(path: Path) -> None:
    assert hardening(path) == hardening(SYSTEMD / "forewarn-remediate.service")
    assert settings_of(path)["UMask"] == ["0027"]


@each
def test_what_makes_scores_never_runs_as_the_hook(path: Path) -> None:
    found = settings_of(path)
    account = "forewarn" if path.name in HOOK else "forewarn-score"
    assert (found["User"], found["Group"]) == ([account], [account])
    secrets = (
        "/etc/forewarn/secrets.env" if path.name in HOOK else "/etc/forewarn/score-secrets.env"
    )
    assert found["EnvironmentFile"] == [f"-{secrets}"]


@each
def test_every_unit_starts_a_command_that_there_is(path: Path) -> None:
    known = set(commands_of(typer.main.get_command(app)))
    found = settings_of(path)
    for line in found["ExecStart"] + found.get("ExecStartPre", []):
        program, *words = line.split()
        folder, _, name = program.rpartition("/")
        assert folder == INSTALLED
        assert name in PROGRAMS
        if name == "forewarn":
            assert tuple(word for word in words if word[0].isalpha()) in known


@each
def test_pages_without_a_password_listen_on_loopback(path: Path) -> None:
    (line,) = settings_of(path)["ExecStart"]
    assert "0.0.0.0" not in line  # noqa: S104
    if "webserver" in line or "mlflow" in line:
        assert "127.0.0.1" in line


@each
def test_long_lived_parts_come_and_go_with_the_target(path: Path) -> None:
    found = settings_of(path)
    if found["Type"] == ["oneshot"]:
        assert "WantedBy" not in found
        return
    assert found["PartOf"] == found["WantedBy"] == ["forewarn.target"]
    assert found["Restart"][0] in ("always", "on-failure")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_finds_nothing_to_say(tmp_path: Path) -> None:
    here = str(Path(sys.executable).parent)
    for path in (*UNITS, SYSTEMD / "forewarn.target", SYSTEMD / "forewarn-remediate.timer"):
        text = path.read_text().replace(INSTALLED, here)
        # What it names as documentation is only there once it is installed.
        lines = [line for line in text.splitlines() if not line.startswith("Documentation=")]
        (tmp_path / path.name).write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:/lib/systemd/system", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if "forewarn" in line]
    assert (done.returncode, said) == (0, [])


LIBRARIES = "import grpc, lightgbm, numba, pandas, polars, pyarrow.compute, sklearn.linear_model"


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is written for x86-64")
def test_libraries_that_try_what_is_refused_go_on_without_it() -> None:
    def run(action: str) -> int:
        filtered = [sys.executable, "-m", "tests.deploy.under_filter", action]
        words = [*filtered, sys.executable, "-c", LIBRARIES]
        return subprocess.run(words, cwd=FOLDER.parents[1], check=False).returncode

    for path in UNITS:
        assert settings_of(path)["SystemCallErrorNumber"] == ["EPERM"]
    assert run("refuse") == 0
    assert run("kill") == -signal.SIGSYS  # what systemd does to a unit that does not say so


def test_the_guide_puts_files_where_units_and_hook_look_for_them() -> None:
    guide = (FOLDER.parents[1] / "docs" / "deployment.md").read_text()
    hook = yaml.safe_load((FOLDER.parent / "slurm" / "hook.yaml").read_text())
    (root,) = re.findall(r"`data_root: (/\S+)`", guide)
    assert hook["scores"]["folder"] == f"{root}/scores"
    (settings,) = {
        one.removeprefix("FOREWARN_SETTINGS=")
        for path in UNITS
        for one in settings_of(path)["Environment"]
        if one.startswith("FOREWARN_SETTINGS=")
    }
    assert f"forewarn init --slurm --prometheus http://prometheus:9090 --out {SITE}" in guide
    assert f"mv {SITE}/{SETTINGS} {settings} " in guide
    assert hook["state"] in {f"/var/lib/{one}" for path in UNITS for one in state_of(path)}


def test_the_accounts_are_those_of_the_units_and_only_the_hook_joins_the_other() -> None:
    lines = [
        line.split()
        for line in (SYSTEMD / "sysusers.conf").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert {words[1] for words in lines if words[0] == "u"} == {"forewarn", "forewarn-score"}
    assert [words for words in lines if words[0] == "m"] == [["m", "forewarn", "forewarn-score"]]
    joins = {
        path.name for path in UNITS if settings_of(path).get("SupplementaryGroups") == ["forewarn"]
    }
    assert joins == {"forewarn-api.service", "forewarn-board.service"}


def test_what_takes_requests_may_put_them_into_the_inbox_and_nowhere_else_of_the_hooks(
    tmp_path: Path,
) -> None:
    made = {
        words[1]: words[2:5]
        for line in (SYSTEMD / "tmpfiles.conf").read_text().splitlines()
        if (words := line.split()) and words[0] == "d"
    }
    new = f"/var/lib/forewarn/inbox/{NEW}"
    # The unit of the hook may not make them: it could not set the set-group bit.
    prepare_inbox(tmp_path)
    for name in (NEW, DONE, REFUSED):
        mode = stat.S_IMODE((tmp_path / name).stat().st_mode)
        assert made[f"/var/lib/forewarn/inbox/{name}"] == [f"{mode:04o}", "forewarn", "forewarn"]
    for path in UNITS:
        is_asked = path.name in ("forewarn-api.service", "forewarn-board.service")
        expected = [f"-{new}"] if is_asked else []
        assert settings_of(path).get("ReadWritePaths", []) == expected


@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None or shutil.which("systemd-tmpfiles") is None,
    reason="systemd is not here",
)
def test_systemd_makes_accounts_and_folders_from_the_files(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for program, name in (("sysusers", "sysusers.conf"), ("tmpfiles", "tmpfiles.conf")):
        words = [f"systemd-{program}", f"--root={tmp_path}", SYSTEMD / name]
        words += ["--create"] if program == "tmpfiles" else []
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    accounts = (tmp_path / "etc" / "passwd").read_text()
    assert "forewarn-score:x:" in accounts
    assert (tmp_path / "etc" / "forewarn").is_dir()
