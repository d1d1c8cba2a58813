"""Probes of `forewarn doctor` for the hook: each tells what stands, and leaves it so."""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from features.errors import SettingsError
from pipelines.doctor import hook as doctor_hook
from pipelines.doctor.probe import Finding
from remediation.actuators.slurm_run import Ran
from remediation.hook_settings import HookSettings
from remediation.ledger.entries import LedgerError
from remediation.ledger.sqlite import SqliteLedger
from remediation.program.loop import RoundNote

NOW = datetime(2026, 3, 1, 12, 5, tzinfo=UTC)


def hook_of(folder: Path, **more: Any) -> HookSettings:
    content = {
        "state": folder / "hook",
        "scores": {"folder": folder / "scores"},
        "cluster": {"kind": "slurm"},
        "site": {"kill_switch": folder / "STOP"},
        **more,
    }
    return HookSettings.model_validate(content)


class Scripted:
    """Answers commands as it was told; the fake of the hook's command runner."""

    def __init__(self, **answers: Ran) -> None:
        self.answers = answers

    def run(self, command: Any, **_: Any) -> Ran:
        return self.answers[
            command[2] if command[0] == "scontrol" and len(command) > 2 else command[0]
        ]


def ran(code: int, out: str = "", err: str = "") -> Ran:
    return Ran(command=("c",), code=code, out=out, err=err)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (ran(126, err="forewarn-slurm: not allowed to execute 'scontrol'"), "ok"),
        (ran(0, out="Slurmctld(primary) at x is UP"), "warn"),
        (ran(1, err="sudo: a password is required"), "FAIL"),
        (ran(127, err="No such file"), "FAIL"),
    ],
)
def test_the_wrapper_of_slurm_is_known_by_what_it_refuses(answer: Ran, state: str) -> None:
    found = doctor_hook.slurm_rights(Scripted(scontrol=answer), ("sudo", "-n"))
    assert found.state == state


@pytest.mark.parametrize(
    ("user", "level", "state"),
    [("slurm", "None", "ok"), ("root", "None", "ok"), ("me", "Operator", "ok"), ("me", "", "FAIL")],
)
def test_only_slurms_own_people_may_update_nodes(
    monkeypatch: pytest.MonkeyPatch, user: str, level: str, state: str
) -> None:
    monkeypatch.setattr(doctor_hook.getpass, "getuser", lambda: user)
    runner = Scripted(config=ran(0, out="SlurmUser = slurm(64030)"), sacctmgr=ran(0, out=level))
    assert doctor_hook.slurm_rights(runner, ()).state == state


def test_a_ledger_is_verified_and_one_of_another_release_left_alone(tmp_path: Path) -> None:
    hook = hook_of(tmp_path)
    assert "not there yet" in doctor_hook.probe_ledger(hook, now=NOW).what
    assert not hook.ledger_file.exists()
    SqliteLedger(hook.ledger_file).close()
    assert doctor_hook.probe_ledger(hook, now=NOW) == Finding("ok", "whole, 0 entries")
    with closing(sqlite3.connect(hook.ledger_file)) as ledger:
        ledger.execute("PRAGMA user_version = 1")
    with pytest.raises(LedgerError, match=r"docs/upgrade\.md"):
        doctor_hook.probe_ledger(hook, now=NOW)
    with closing(sqlite3.connect(hook.ledger_file)) as ledger:
        assert ledger.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_kill_switch_that_is_set_or_cannot_be_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = hook_of(tmp_path)
    assert doctor_hook.probe_kill_switch(hook).state == "ok"
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda *_: False)
        assert "cannot be set" in doctor_hook.probe_kill_switch(hook).what
    (tmp_path / "STOP").touch()
    assert doctor_hook.probe_kill_switch(hook).state == "warn"


def test_rounds_that_fail_or_stop_are_told(tmp_path: Path) -> None:
    hook = hook_of(tmp_path)
    assert doctor_hook.probe_round(hook, now=NOW).state == "warn"

    def note(at: datetime, *, is_failed: bool) -> Finding:
        RoundNote(
            ended_at=at, text="t", is_failed=is_failed, failed_in_row=2, rounds=9, failed=2
        ).write(hook.state)
        return doctor_hook.probe_round(hook, now=NOW)

    assert note(NOW - timedelta(minutes=1), is_failed=False).state == "ok"
    assert note(NOW - timedelta(hours=3), is_failed=False).state == "warn"
    assert note(NOW, is_failed=True).state == "FAIL"


def test_scores_that_are_not_there_are_no_failure_of_the_hook(tmp_path: Path) -> None:
    assert doctor_hook.probe_scores(hook_of(tmp_path), now=NOW).state == "warn"


@pytest.mark.parametrize("conninfo", ["postgresql://me:hun@ter2@db/x", "ter2 and more"])
def test_a_connection_string_that_is_misread_shows_nothing_of_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conninfo: str
) -> None:
    monkeypatch.setenv("PG", conninfo)
    with pytest.raises(SettingsError, match="cannot be read") as error:
        doctor_hook.probe_ledger(hook_of(tmp_path, ledger={"postgres_variable": "PG"}), now=NOW)
    assert "ter2" not in str(error.value)
