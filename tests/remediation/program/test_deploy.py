"""The shipped files let the hook do what it does and nothing else."""

import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from features.vocabulary import ACTIONS, FAULT_TYPES
from remediation.actuators.protocol import Order
from remediation.actuators.slurm_commands import (
    hold_commands,
    interrupt_commands,
    restore_command,
    undrain_commands,
)
from remediation.cluster.reasons import Reason
from remediation.cluster.state import JobView, NodeView
from remediation.hook_settings import load_hook_settings

DEPLOY = Path(__file__).parents[3] / "deploy"
WRAPPER = DEPLOY / "slurm" / "forewarn-slurm"
# Each of these switches NoNewPrivileges on by itself for a service that has a user.
IMPLY_NO_NEW_PRIVILEGES = {
    "SystemCallFilter", "SystemCallArchitectures", "RestrictAddressFamilies", "RestrictNamespaces",
    "PrivateDevices", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
    "ProtectClock", "ProtectHostname", "MemoryDenyWriteExecute", "RestrictRealtime",
    "RestrictSUIDSGID", "DynamicUser", "LockPersonality",
}  # fmt: skip


def load_wrapper() -> ModuleType:
    loader = SourceFileLoader("forewarn_slurm", str(WRAPPER))
    spec = spec_from_loader("forewarn_slurm", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


WRAP = load_wrapper()

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", fullmatch=True).filter(
    lambda name: name.lower() != "all"
)
jobs = st.builds(
    JobView,
    job_id=st.from_regex(r"[0-9]{1,9}((_|\+)[0-9]{1,4})?", fullmatch=True),
    nodes=st.just(("n",)),
    partition=st.sampled_from(["batch", "listed", None]),
    is_requeue_allowed=st.sampled_from([True, False, None]),
)
reasons = st.builds(
    Reason,
    score=st.floats(0, 1),
    horizon_h=st.integers(1, 8784),
    fault_type=st.sampled_from([*FAULT_TYPES, None]),
    model_version=st.from_regex(r"[A-Za-z0-9._:/+-]{1,64}", fullmatch=True),
    decision_id=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
)
orders = st.builds(
    Order,
    action=st.sampled_from(ACTIONS[2:]),
    expected=st.builds(NodeView, name=names, state=st.just("up")),
    reason=reasons,
    jobs=st.lists(jobs, max_size=3).map(tuple),
    notice_minutes=st.floats(0, 10_000),
)
theirs = st.text(st.characters(exclude_categories=["C"]).filter(str.isprintable), max_size=100)


@given(order=orders, their=theirs, is_drain=st.booleans())
def test_g23_the_wrapper_lets_through_every_command_that_the_hook_can_make(
    order: Order, their: str, is_drain: bool
) -> None:
    commands = [
        *hold_commands(order, interruptible=("listed",)),
        *undrain_commands(order),
        *interrupt_commands(order.jobs, interruptible=("listed",)),
        restore_command(order.expected.name, their, is_drain=is_drain),
    ]
    assert [command for command in commands if not WRAP.is_allowed(list(command))] == []


def test_g23_the_wrapper_has_no_form_that_the_hook_does_not_use() -> None:
    reason = Reason(
        score=0.9, horizon_h=24, fault_type=None, model_version="1", decision_id="0" * 16
    )
    loads = (
        JobView(job_id="7", nodes=("n",), is_requeue_allowed=True),
        JobView(job_id="8", nodes=("n",), partition="listed"),
    )
    order = Order(
        action="drain_now", expected=NodeView(name="n", state="up"), reason=reason, jobs=loads
    )
    commands = [
        *hold_commands(order, interruptible=("listed",)),
        *undrain_commands(order),
        restore_command("n", "disk", is_drain=True),
        restore_command("n", "disk", is_drain=False),
    ]
    unused = [
        form
        for form in WRAP.FORMS
        if not any(
            len(form) == len(command)
            and all(re.fullmatch(part, word) for part, word in zip(form, command, strict=True))
            for command in commands
        )
    ]
    assert unused == []
    assert {form[0] for form in WRAP.FORMS} == set(WRAP.PROGRAMS)


OURS = "Reason=forewarn:v1 score=0.90 horizon=24h fault=nvlink model=1 id=" + "0" * 16


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["scontrol"],
        ["scontrol", "shutdown"],
        ["scontrol", "reboot", "n1"],
        ["scontrol", "update", "NodeName=ALL", "State=DRAIN", OURS],
        ["scontrol", "update", "NodeName=all", "State=UNDRAIN"],
        ["scontrol", "update", "NodeName=n[1-99]", "State=UNDRAIN"],
        ["scontrol", "update", "NodeName=n1,n2", "State=UNDRAIN"],
        ["scontrol", "update", "NodeName=n1 State=DOWN", "State=UNDRAIN"],
        ["scontrol", "update", "NodeName=n1\n", "State=UNDRAIN"],
        ["scontrol", "update", "NodeName=-n1", "State=UNDRAIN"],
        ["scontrol", "update", "NodeName=n1", "State=RESUME"],
        ["scontrol", "update", "NodeName=n1", "State=DOWN", OURS],
        ["scontrol", "update", "NodeName=n1", "State=DRAIN"],
        ["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=disk"],
        ["scontrol", "update", "NodeName=n1", "State=DRAIN", OURS + " Weight=1"],
        ["scontrol", "update", "NodeName=n1", "State=DRAIN", OURS, "Weight=1"],
        ["scontrol", "update", "NodeName=n1", 'Reason="a\nb"'],
        ["scontrol", "update", "JobId=7", "Priority=1"],
        ["scontrol", "update", "PartitionName=batch", "State=UNDRAIN"],
        ["scontrol", "notify", "7", "rm -rf"],
        ["scontrol", "requeue", "7", "8"],
        ["scontrol", "requeue", "7,8"],
        ["scontrol", "requeuehold", "7"],
        ["scancel", "--user=root"],
        ["scancel", "-u"],
        ["scancel", "7", "--batch"],
        ["/bin/sh", "-c", "id"],
        ["sinfo"],
    ],
)
def test_g23_the_wrapper_refuses_everything_else(words: list[str]) -> None:
    assert not WRAP.is_allowed(words)


def test_the_wrapper_refuses_by_a_code_that_means_nothing_was_run() -> None:
    ran = subprocess.run(
        [sys.executable, "-I", WRAPPER, "scontrol", "update", "NodeName=a\x1b[2J"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 126
    assert "not allowed to execute" in ran.stderr
    assert "\x1b" not in ran.stderr


def test_g23_sudoers_names_the_wrapper_alone_without_patterns() -> None:
    lines = [
        line
        for line in (DEPLOY / "slurm" / "sudoers").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    rights = [line for line in lines if not line.startswith("Defaults")]
    path = "/usr/local/libexec/forewarn-slurm"
    assert rights == [f"forewarn ALL=(slurm) NOPASSWD: {path}"]
    assert all(path in line for line in lines)
    assert "*" not in "".join(lines)
    assert path in (DEPLOY / "slurm" / "hook.yaml").read_text()


def settings_of(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd" / name).read_text().splitlines():
        key, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("unit", ["forewarn-remediate.service", "forewarn-remediate-once.service"])
def test_g23_units_give_no_privileges_and_the_drop_in_takes_back_only_what_sudo_needs(
    unit: str,
) -> None:
    shipped, acting = settings_of(unit), settings_of("slurm-act.conf")
    assert shipped["NoNewPrivileges"] == ["yes"]
    assert shipped["CapabilityBoundingSet"] == [""]
    assert shipped["ProtectSystem"] == ["strict"]
    implying = set(shipped) & IMPLY_NO_NEW_PRIVILEGES
    assert set(acting) == implying | {"NoNewPrivileges", "CapabilityBoundingSet"}
    assert all(acting[key] in (["no"], [""]) for key in implying)
    assert acting["CapabilityBoundingSet"] == [
        "",
        "CAP_SETUID CAP_SETGID CAP_AUDIT_WRITE CAP_DAC_READ_SEARCH",
    ]


def test_the_scorers_unit_gives_no_privileges_either_and_shares_no_account_with_the_hook() -> None:
    scorer, hook = settings_of("forewarn-score.service"), settings_of("forewarn-remediate.service")
    assert scorer["User"] != hook["User"]
    first = list(hook).index("NoNewPrivileges")
    hardening = {key: value for key, value in list(hook.items())[first:] if key != "WantedBy"}
    assert {key: scorer.get(key) for key in hardening} == hardening
    assert scorer["UMask"] == hook["UMask"]
    assert scorer["ExecStart"][0].endswith("/forewarn score --loop")


def test_shipped_settings_act_on_nothing(tmp_path: Path) -> None:
    deployment = DEPLOY / "kubernetes" / "hook" / "hook-deployment.yaml"
    (config,) = [
        one for one in yaml.safe_load_all(deployment.read_text()) if one["kind"] == "ConfigMap"
    ]
    (tmp_path / "hook.yaml").write_text(config["data"]["hook.yaml"])
    for path in (tmp_path / "hook.yaml", DEPLOY / "slurm" / "hook.yaml"):
        settings = load_hook_settings(path)
        assert settings.actuator.kind == "dry_run"
        assert settings.site.levels == ()


def test_the_settings_that_the_guide_shows_are_valid(tmp_path: Path) -> None:
    guide = (DEPLOY.parent / "docs" / "remediation.md").read_text()
    (tmp_path / "hook.yaml").write_text(guide.split("```yaml\n")[1].split("```")[0])
    settings = load_hook_settings(tmp_path / "hook.yaml")
    assert settings.site.level_of("gpu-007", "nvlink")[0] == "notify_then_drain"
    assert settings.site.level_of("gpu-107", "nvlink")[0] == "observe"


def sh(script: str, folder: Path, told: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a script with a scontrol that answers `told`, and notes what it was asked."""
    bin_dir = folder / "bin"
    bin_dir.mkdir(exist_ok=True)
    (folder / "answer").write_text(told)
    fake = f'#!/bin/sh\necho "$@" >>{folder}/asked\ncat {folder}/answer\nexit {code}\n'
    (bin_dir / "scontrol").write_text(fake)
    (bin_dir / "logger").write_text(f'#!/bin/sh\necho "$@" >>{folder}/logged\n')
    for name in ("scontrol", "logger"):
        (bin_dir / name).chmod(0o755)
    return subprocess.run(
        ["/bin/sh", DEPLOY / "slurm" / script],
        env={
            "PATH": f"{bin_dir}:/usr/bin:/bin",
            "FOREWARN_RUN": str(folder / "run"),
            "SLURMD_NODENAME": "n1",
            "SLURM_JOB_ID": "7",
        },
        capture_output=True,
        text=True,
        check=False,
    )


HELD = f"NodeName=n1 State=IDLE+DRAIN {OURS} [root@2026-01-05T10:00:00]\n"


def test_the_health_check_only_reads_slurm_and_never_fails(tmp_path: Path) -> None:
    held = tmp_path / "run" / "held"
    assert sh("health_check.sh", tmp_path, HELD).returncode == 0
    assert held.read_text().startswith("forewarn:v1 score=0.90")
    assert sh("health_check.sh", tmp_path, "", code=1).returncode == 0
    assert held.exists()  # unknown is not "no longer held"
    assert sh("health_check.sh", tmp_path, "NodeName=n1 State=IDLE\n").returncode == 0
    assert not held.exists()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert set(asked) == {"--oneliner show node n1"}


def test_the_prolog_asks_slurm_nothing_and_never_refuses_a_job(tmp_path: Path) -> None:
    assert sh("prolog.sh", tmp_path, "").returncode == 0
    assert not (tmp_path / "logged").exists()
    sh("health_check.sh", tmp_path, HELD)
    (tmp_path / "asked").unlink()
    assert sh("prolog.sh", tmp_path, "", code=1).returncode == 0
    assert "job 7 begins on a held node" in (tmp_path / "logged").read_text()
    assert not (tmp_path / "asked").exists()
