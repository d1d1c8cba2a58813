"""Every command of the hook: what it prints, its exit code, and how it explains what is wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.commands import remediate as cli_remediate
from remediation.ledger.head import verify_export
from tests.remediation.program_world import ProgramWorld, make_world

BOOT = "slurmd-1795993535"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramWorld:
    found = make_world(tmp_path, monkeypatch)
    monkeypatch.setenv("FOREWARN_HOOK", str(found.file))
    return found


def run(*words: str | Path) -> tuple[int, str]:
    found = CliRunner().invoke(cli_remediate.app, [str(word) for word in words])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert "Traceback" not in found.output
    assert "\x1b" not in found.output
    return found.exit_code, found.output


def told(*words: str | Path) -> Any:
    code, text = run(*words)
    return code, json.loads(text)


def test_the_commands_load_neither_models_nor_dagster() -> None:
    code = (
        "import sys, pipelines.commands.remediate, pipelines.cli, remediation.program.loop, "
        "remediation.program.plan, remediation.program.why, remediation.program.words, "
        "remediation.actuators.slurm, remediation.actuators.kubernetes\n"
        "print(sorted({'mlflow', 'lightgbm', 'dagster', 'sklearn', 'pandas', 'kubernetes'}"
        " & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_run_acts_and_has_nothing_left_to_do(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    code, text = run("run")
    assert (code, world.drained) == (0, ["n1"])
    assert "n1  drain_after_jobs" in text
    assert run("run")[0] == 0
    assert world.drained == ["n1"]


def test_run_without_scores_cannot_run(world: ProgramWorld) -> None:
    code, text = run("run")
    assert code == 2
    assert text.startswith("forewarn: ")
    assert "Publish scores first" in text


def test_run_under_the_kill_switch_is_refused(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    assert run("kill-switch", "on")[0] == 0
    code, text = run("run")
    assert (code, world.drained) == (3, [])
    assert "STOP is set" in text


def test_run_with_questions_needs_a_person(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9}, policy=None)
    code, text = run("run")
    assert (code, "For a person" in text) == (1, True)


def test_no_settings_is_one_line(world: ProgramWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREWARN_HOOK")
    monkeypatch.setattr(cli_remediate, "_HOOK", world.root / "absent")
    assert run("status") == (
        2,
        "forewarn: no hook settings: name them with --hook FILE or in $FOREWARN_HOOK\n",
    )


def test_the_settings_where_a_package_puts_them_are_found_behind_sudo(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FOREWARN_HOOK")
    monkeypatch.setattr(cli_remediate, "_HOOK", world.file)
    assert run("kill-switch", "on")[0] == 0
    assert world.write().kill_switch.exists()


def test_g22_an_account_without_a_name_can_stop_the_hook_too(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setattr("getpass.getuser", nameless)
    assert run("kill-switch", "on")[0] == 0
    assert world.write().kill_switch.read_text().startswith("set by uid-")


def test_plan_then_apply(world: ProgramWorld, tmp_path: Path) -> None:
    world.publish({"n1": 0.9, "n2": 0.8})
    code, text = run("plan", "--out", tmp_path / "p.json")
    assert (code, world.drained) == (0, [])
    assert "DRY RUN: nothing was done" in text
    assert "forewarn remediate apply" in text
    assert run("apply", tmp_path / "p.json")[0] == 0
    assert world.drained == ["n1", "n2"]
    code, text = run("apply", tmp_path / "p.json")
    assert code == 1
    assert "changed since it was planned" in text


def test_plan_as_json_has_ids_scores_and_digest(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    code, plan = told("plan", "--json")
    assert code == 0
    latest = json.loads((world.root / "scores" / "LATEST.json").read_text())
    assert plan["digest"] == latest["files"]["node_scores"]["sha256"]
    assert plan["as_of"] == latest["as_of"].replace("+00:00", "Z")
    assert [(one["node"], one["action"]) for one in plan["nodes"]] == [("n1", "drain_after_jobs")]
    assert len(plan["nodes"][0]["decision_id"]) == 16


def test_apply_of_a_file_that_is_no_plan_cannot_run(world: ProgramWorld, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    assert run("apply", tmp_path / "p.json")[0] == 2


def test_status_as_json(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    run("run")
    code, found = told("status", "--json")
    assert code == 0
    assert [one["node"] for one in found["held"]] == ["n1"]
    assert found["last_round"]["is_failed"] is False
    assert set(found) == {
        "now", "actuator", "stopped_by", "last_round", "scores", "held", "most_held",
        "actions_last_hour", "actions_per_hour", "questions", "recommended",
            "cannot_read",
    }  # fmt: skip


def test_status_fits_a_screen(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    run("run")
    code, text = run("status")
    assert code == 0
    assert len(text.splitlines()) < 24
    assert "acted on n1" in text


def test_why_as_json(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    run("run")
    code, found = told("why", "n1", "--json")
    assert code == 0
    assert set(found) == {"node", "present", "held", "last", "now", "cannot_read"}
    assert found["last"]["action"] == "drain_after_jobs"
    assert {"guard", "is_allowed", "reason", "would_change"} == set(found["last"]["verdicts"][0])


def test_why_of_an_unknown_hostile_name_is_printed_safely(world: ProgramWorld) -> None:
    world.publish({"n1": 0.1})
    code, text = run("why", "n\x1b[2J")
    assert code == 2
    assert "n\\x1b[2J" in text


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("hold", "n1", "--hours", "2"), "hold"),
        (("undrain", "n1"), "undrain"),
        (("repaired", "n1"), "repaired"),
        (("false-alarm", "n1"), "false_alarm"),
    ],
)
def test_what_people_ask_reaches_the_ledger_in_the_next_round(
    world: ProgramWorld, words: tuple[str, ...], what: str
) -> None:
    world.publish({"n1": 0.9})
    run("run")
    code, text = run(*words, "--as", "ada")
    assert code == 0
    assert "asked as ada" in text
    run("run")
    run("ledger", "export", world.root / "e.jsonl")
    entries = map(json.loads, (world.root / "e.jsonl").read_text().splitlines())
    requests = [json.loads(one["body_json"]) for one in entries if one["kind"] == "request"]
    assert [(one["what"], one["status"]) for one in requests] == [(what, "accepted")]


def test_resume_ends_a_stop_that_was_asked_for(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    world.ask("kill")
    assert run("run")[0] == 3
    assert run("status")[0] == 3
    assert run("resume", "--as", "ada")[0] == 0
    assert run("run")[0] == 0
    assert world.drained == ["n1"]


def test_undrain_asks_nothing_about_another_owners_node(world: ProgramWorld) -> None:
    code, text = run("undrain", "n1", "--as", "ada")
    assert code == 2
    assert "not held by forewarn" in text
    assert not (world.root / "inbox").exists()


def test_who_is_not_listed_may_not_ask(world: ProgramWorld) -> None:
    code, text = run("hold", "n1", "--as", "eve")
    assert code == 2
    assert "'eve' may ask for acknowledge, not hold" in text


def test_without_an_inbox_asking_says_how_to_set_one_up(world: ProgramWorld) -> None:
    world.write(inbox=None)
    code, text = run("hold", "n1", "--as", "ada")
    assert (code, "docs/remediation.md" in text) == (2, True)


def test_approve_repeats_what_is_approved(world: ProgramWorld) -> None:
    world.write(site={"levels": [{"level": "recommend"}]})
    world.publish({"n1": 0.9})
    run("run")
    _, found = told("why", "n1", "--json")
    code, text = run("approve", found["now"]["decision_id"], "--as", "ada")
    assert code == 0
    assert "n1: Drain, as it is idle" in text
    run("run")
    assert world.drained == ["n1"]
    assert run("approve", "0" * 16, "--as", "ada")[0] == 2


def test_acknowledge_takes_the_id_that_status_shows(
    world: ProgramWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish({"n1": 0.9})
    with monkeypatch.context() as patched:
        patched.setattr(world.slurm, "_update", lambda *_: (1, "", "Socket timed out"))
        assert run("run")[0] == 1
    code, found = told("status", "--json")
    (asked,) = found["questions"]
    assert code == 1
    assert run("acknowledge", "00000000", "--as", "ada")[0] == 2
    assert run("acknowledge", asked["id"], "--as", "ada")[0] == 0
    run("run")
    assert told("status", "--json")[1]["questions"] == []


def test_g22_the_kill_switch_works_when_everything_else_is_down(world: ProgramWorld) -> None:
    world.file.write_text("state: state\nscores: 7\n")
    (world.root / "state").mkdir()
    (world.root / "state" / "ledger.sqlite").write_text("no ledger")
    assert run("status")[0] == 2
    assert run("kill-switch", "status")[0] == 0
    assert run("kill-switch", "on")[0] == 0
    assert (world.root / "state" / "STOP").exists()
    code, text = run("kill-switch", "status")
    assert (code, "set by" in text) == (3, True)
    assert run("kill-switch", "on")[0] == 0
    assert run("kill-switch", "off")[0] == 0
    assert not (world.root / "state" / "STOP").exists()


def test_g22_the_kill_switch_works_without_settings_when_it_is_named(
    world: ProgramWorld, tmp_path: Path
) -> None:
    world.file.write_text("state: [")
    code, text = run("kill-switch", "on")
    assert (code, "--file PATH" in text) == (2, True)
    assert run("kill-switch", "on", "--file", tmp_path / "S")[0] == 0
    assert (tmp_path / "S").exists()


def test_g22_a_kill_switch_where_no_hook_looks_is_not_said_to_stop(tmp_path: Path) -> None:
    code, text = run("kill-switch", "on", "--file", tmp_path / "slip" / "STOP")
    assert code == 2
    assert "NOT STOPPED" in text
    assert not (tmp_path / "slip").exists()


def test_repaired_of_a_node_that_is_not_held_is_not_taken_for_asked(world: ProgramWorld) -> None:
    code, text = run("repaired", "n1", "--as", "ada")
    assert (code, "not held by forewarn" in text) == (2, True)
    assert not (world.root / "inbox").exists()
    world.publish({"n1": 0.9})
    run("run")
    assert run("repaired", "n1", "--as", "ada")[0] == 0


def test_why_says_what_is_the_same_once_and_names_what_to_type(world: ProgramWorld) -> None:
    world.write(site={"levels": [{"level": "recommend"}]})
    world.publish({"n1": 0.9})
    run("run")
    text = run("why", "n1")[1]
    decision = told("why", "n1", "--json")[1]["now"]["decision_id"]
    assert f"forewarn remediate approve {decision}" in text
    assert text.count("policy level") == 1
    assert "the same decision, the same verdicts" in text
    assert f"decision {decision}" in run("plan")[1]
    code, text = run("status")
    assert (code, f"n1  drain after jobs: forewarn remediate approve {decision}" in text) == (
        1,
        True,
    )
    run("approve", decision, "--as", "ada")
    run("run")
    assert "To approve" not in run("status")[1]


def test_status_says_what_a_drained_node_waits_for(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    run("run")
    assert "waits for: forewarn remediate repaired, false-alarm or undrain" in run("status")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ledger", "export", "/nowhere/x"), "/nowhere/.x."),
        (("ledger", "verify", "--export", "/nowhere"), "forewarn: /nowhere: No such file"),
        (("ledger", "verify", "--head", "12ab"), "head '12ab': expected 64 hex digits"),
    ],
)
def test_a_file_or_hash_that_cannot_be_is_one_line(
    world: ProgramWorld, words: tuple[str, ...], said: str
) -> None:
    code, text = run(*words)
    assert (code, said in text, "Errno" in text, text.count("\n")) == (2, True, False, 1)


def test_a_kill_switch_that_cannot_be_set_says_not_stopped(
    world: ProgramWorld, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code, text = run("kill-switch", "on", "--file", tmp_path / "file" / "S")
    assert (code, "NOT STOPPED" in text) == (2, True)


def test_a_ledger_that_was_altered_is_a_persons(world: ProgramWorld) -> None:
    world.publish({"n1": 0.9})
    run("run")
    assert run("ledger", "verify")[0] == 0
    export = world.root / "e.jsonl"
    assert run("ledger", "export", export)[0] == 0
    assert run("ledger", "verify", "--export", export)[0] == 0
    head = verify_export(export).head
    assert run("ledger", "verify", "--head", head)[0] == 0
    assert run("ledger", "verify", "--head", "f" * 64)[0] == 1
    export.write_text(export.read_text().replace('"n1"', '"n2"', 1))
    code, text = run("ledger", "verify", "--export", export)
    assert (code, "NOT WHOLE" in text) == (1, True)


def test_a_ledger_cut_off_stops_the_hook_until_a_person_has_looked(world: ProgramWorld) -> None:
    world.write(ledger={"head": "head.json"})
    world.publish({"n1": 0.9})
    run("run")
    for path in (world.root / "state").glob("ledger.sqlite*"):
        path.unlink()
    code, text = run("run")
    assert (code, "its end was cut off" in text) == (2, True)
    assert run("ledger", "note-head")[0] == 2
    assert run("ledger", "note-head", "--every-held-node-was-looked-at")[0] == 0
    code, text = run("run")
    assert (code, "n1: carries our reason" in text) == (1, True)
    code, found = told("status", "--json")
    assert [(one["why"], one["node"]) for one in found["questions"]] == [("unknown_hold", "n1")]
    code, text = run("undrain", "n1", "--as", "ada")
    assert (code, "return it by hand" in text) == (2, True)
    world.slurm.nodes["n1"].flags = frozenset()
    assert told("status", "--json")[1]["questions"] == []


def test_stored_core_tables_are_read_by_an_installations_settings(world: ProgramWorld) -> None:
    world.write(cluster={"kind": "core_tables", "installation": "f.yaml"}, actuator=None)
    world.publish({"n1": 0.9})
    code, text = run("run")
    assert code == 2
    assert "settings file" in text
