"""`forewarn config check` names every mistake at once: file, line, key, what to do."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from features.errors import SettingsError
from pipelines.cli import app
from pipelines.config.check import ConfigReport, check_config
from pipelines.config.show import settings_in_force
from pipelines.settings import load_settings
from pipelines.sources.site.listing import load_inputs

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SETTINGS = """\
site: lab
inputs: inputs.yaml
data_root: data
start: 2026-01-01T00:00:00Z
"""
INPUTS = """\
site: lab
inputs:
  - {kind: kernel_log, path: "*.log", time_zone: UTC, may_be_absent: true}
"""


def check(
    folder: Path,
    settings: str = SETTINGS,
    *,
    inputs: str = INPUTS,
    hook: str | None = None,
    environment: dict[str, str] | None = None,
) -> ConfigReport:
    (folder / "forewarn.yaml").write_text(settings)
    (folder / "inputs.yaml").write_text(inputs)
    if hook is not None:
        (folder / "hook.yaml").write_text(hook)
    return check_config(
        folder / "forewarn.yaml",
        hook=None if hook is None else folder / "hook.yaml",
        environment=environment or {},
        now=NOW,
    )


def said(report: ConfigReport) -> list[tuple[str, int | None, str]]:
    return [(Path(one.file).name, one.line, one.key) for one in report.problems]


def test_a_site_without_mistakes_has_no_problem(tmp_path: Path) -> None:
    report = check(tmp_path)
    assert (report.problems, report.exit_code) == ((), 0)
    assert [Path(one).name for one in report.files] == ["forewarn.yaml", "inputs.yaml"]


def test_every_mistake_of_every_file_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    settings = SETTINGS + "lead_minuts: 3\nfeature_set: ful\nhorizons_h: [24, 0]\nsite: again\n"
    inputs = "site: lab\ninputs:\n  - {kind: kernel_logs, path: x}\n  - {kind: sacct, paht: x}\n"
    report = check(tmp_path, settings, inputs=inputs)
    assert said(report) == [
        ("forewarn.yaml", 5, "lead_minuts"),
        ("forewarn.yaml", 6, "feature_set"),
        ("forewarn.yaml", 7, "horizons_h[1]"),
        ("forewarn.yaml", 8, "site"),
        ("inputs.yaml", 3, "inputs[0]"),
        ("inputs.yaml", 4, "inputs[1].path"),
        ("inputs.yaml", 4, "inputs[1].paht"),
    ]
    words = report.words()
    for near in ("lead_minutes?", "mean full?", "mean kernel_log?", "mean path?", "in lines 1 and"):
        assert near in words
    assert words.endswith("7 errors, 0 warnings in 2 files")
    assert report.exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("site: [", 1, "no YAML"),
        ("- a", None, "expected keys and values, got list"),
        ("", None, "an empty file"),
        ("site: lab\nstart: 2026-02-30\n", 2, "cannot be read"),
        (SETTINGS + "1: x\n", 5, "1: expected a name as a key"),
        (SETTINGS + "2026-01-01: x\n", 5, "2026-01-01: expected a name as a key"),
        (SETTINGS + "api:\n  true: x\n", 6, "api.true: expected a name as a key"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_problem(
    tmp_path: Path, text: str, line: int | None, words: str
) -> None:
    (problem,) = check(tmp_path, text).problems
    assert words in problem.words()
    assert problem.line == line or line is None


def test_aliases_of_aliases_end(tmp_path: Path) -> None:
    lines = ["x0: &x0 [1]"] + [
        f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30)
    ]
    report = check(tmp_path, SETTINGS + "\n".join(lines))
    assert len(report.problems) == 30
    assert check(tmp_path, SETTINGS + "a: &a [*a]").exit_code == 2


@pytest.mark.parametrize(
    "more",
    [
        "score_database: {password: hunter2}",
        "score_database: {passwort: hunter2}",
        "score_database: hunter2",
        'score_database: {url: "postgresql://me:p@hunter2@db/x"}',
        'score_database: {url: "postgresql://me@db/x?password=hunter2"}',
        'serving: {alertmanager: {url: "http://hunter2@host"}}',
        "serving: {webhook: {url: 'https://me:hunter2@host', key: [hunter2]}}",
        "api: {tokens: {ops: hunter2}}",
        "api: {tokens: [hunter2]}",
        "password: hunter2",
        "score_database: {password: hunter2",
        "score_database: {password: %hunter2}",
    ],
)
def test_a_secret_in_the_place_of_its_reference_is_never_shown(tmp_path: Path, more: str) -> None:
    report = check(tmp_path, f"{SETTINGS}{more}\n")
    assert report.exit_code == 2
    with pytest.raises(SettingsError) as error:
        load_settings(tmp_path / "forewarn.yaml")
    for said in (report.words(), report.json(), str(error.value)):
        assert "hunter2" not in said


@pytest.mark.parametrize(
    "entry",
    [
        "{kind: prometheus, url: 'http://p:9090', auth: hunter2}",
        "{kind: prometheus, url: 'http://p:9090', auth: {token: hunter2}}",
        "{kind: prometheus, url: 'http://me:hunter2@p:9090'}",
        "{kind: prometheus, url: 'http://p:9090/?token=hunter2'}",
    ],
)
def test_a_secret_in_the_list_of_inputs_is_never_shown(tmp_path: Path, entry: str) -> None:
    report = check(tmp_path, inputs=f"site: lab\ninputs: [{entry}]\n")
    assert report.exit_code == 2
    with pytest.raises(SettingsError) as error:
        load_inputs(tmp_path / "inputs.yaml")
    assert "hunter2" not in report.words() + str(error.value)


@pytest.mark.parametrize("name", ['"a\\0b"', '"\\ud800"'])
def test_what_no_file_can_be_called_is_told_with_its_line(tmp_path: Path, name: str) -> None:
    report = check(tmp_path, SETTINGS.replace("inputs.yaml", name))
    assert said(report)[0] == ("forewarn.yaml", 2, "inputs")
    assert report.words().isascii()


def test_a_part_of_a_secret_given_by_the_environment_names_its_variable(tmp_path: Path) -> None:
    name = "FOREWARN__SCORE_DATABASE__PASSWORD__FILE"
    (problem,) = check(tmp_path, environment={name: "relative"}).problems
    assert (problem.file, problem.key) == ("environment", name)


def test_an_absent_list_of_inputs_is_told(tmp_path: Path) -> None:
    report = check(tmp_path, SETTINGS.replace("inputs.yaml", "none.yaml"))
    assert said(report) == [("none.yaml", None, "")]


@pytest.mark.parametrize(
    ("more", "key", "level", "words"),
    [
        ("start: 2027-01-01T00:00:00Z", "start", "error", "future"),
        ("end: 2026-02-01T00:00:00Z", "end", "warning", "has ended"),
        ("score_ttl_minutes: 60", "score_ttl_minutes", "warning", "expire before the next tick"),
        (
            "split: {train_until: 2026-02-01T00:00:00Z, valid_until: 2026-02-06T00:00:00Z}",
            "split.valid_until",
            "error",
            "horizon 168 h",
        ),
        ("split: {valid_days: 7, test_days: 30}", "split.valid_days", "error", "horizon 168 h"),
        ("split: {valid_days: 30, test_days: 7}", "split.test_days", "warning", "horizon 168 h"),
        ("alert_budget_per_1000_node_days: 5000", "alert_budget_per_1000_node_days", "warning", ""),
        ("data_root: forewarn.yaml", "data_root", "error", "no folder"),
        ("fault_overrides: none.csv", "fault_overrides", "error", "cannot be read"),
        ("retention: {telemetry_days: 1}", "retention.telemetry_days", "warning", "at least"),
        ('api: {listen: "0.0.0.0:80"}', "api.listen", "error", "others can reach it"),
    ],
)
def test_what_must_hold_between_values_is_checked(
    tmp_path: Path, more: str, key: str, level: str, words: str
) -> None:
    name = more.split(":", maxsplit=1)[0]
    settings = "\n".join(
        [*(line for line in SETTINGS.splitlines() if not line.startswith(f"{name}:")), more]
    )
    (problem,) = check(tmp_path, settings).problems
    assert (problem.key, problem.level, words in problem.words()) == (key, level, True)
    assert problem.line is not None


def test_a_split_longer_than_every_embargo_is_fine(tmp_path: Path) -> None:
    assert check(tmp_path, SETTINGS + "split: {valid_days: 8, test_days: 8}").problems == ()


def test_a_folder_that_others_own_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    (problem,) = check(tmp_path).problems
    assert (problem.key, "cannot be written" in problem.words()) == ("data_root", True)


def test_secrets_are_looked_for_and_never_shown(tmp_path: Path) -> None:
    secret, empty = tmp_path / "secret", tmp_path / "empty"
    secret.write_text("s3cret-s3cret")
    secret.chmod(0o644)
    empty.touch(mode=0o600)
    settings = SETTINGS + (
        "api:\n"
        "  tokens:\n"
        f"    open: {{file: {secret}}}\n"
        f"    none: {{file: {empty}}}\n"
        f"    gone: {{file: {tmp_path / 'gone'}}}\n"
        "    unset: {variable: NOT_SET}\n"
        "    fine: {variable: IS_SET}\n"
    )
    report = check(tmp_path, settings, environment={"IS_SET": "x"})
    assert [(one.line, one.level) for one in report.problems] == [
        (7, "warning"),
        (8, "error"),
        (9, "error"),
        (10, "warning"),
    ]
    assert "chmod 0600" in report.words()
    assert "s3cret" not in report.words() + report.json()


def test_a_password_in_an_address_is_not_shown(tmp_path: Path) -> None:
    settings = SETTINGS + 'serving: {alertmanager: {url: "http://me:s3cret@x"}}'
    report = check(tmp_path, settings)
    assert report.exit_code == 2
    assert "s3cret" not in report.words()


def test_what_stands_under_an_unknown_key_is_not_shown(tmp_path: Path) -> None:
    report = check(tmp_path, SETTINGS + "api_token: s3cret")
    assert "s3cret" not in report.words()


def test_variables_are_checked_with_the_file(tmp_path: Path) -> None:
    environment = {"FOREWARN__API__BURST": "x", "FOREWARN__SIT": "a", "FOREWARN__SEED": "3"}
    report = check(tmp_path, environment=environment)
    assert said(report) == [
        ("environment", None, "FOREWARN__SIT"),
        ("environment", None, "FOREWARN__API__BURST"),
    ]


def test_mappings_and_rules_of_inputs_are_checked_though_other_inputs_are_wrong(
    tmp_path: Path,
) -> None:
    (tmp_path / "m.yaml").write_text("file: {format: cvs}\ntables: {}\n")
    inputs = (
        "site: lab\ninputs:\n"
        "  - {kind: nonsense}\n"
        "  - {kind: history, path: none.csv, mapping: m.yaml}\n"
        "  - {kind: job_output, path: '*', rules: r.yaml, time_zone: UTC, may_be_absent: true}\n"
    )
    report = check(tmp_path, inputs=inputs)
    assert said(report) == [
        ("inputs.yaml", 3, "inputs[0]"),
        ("m.yaml", 1, "file.format"),
        ("m.yaml", 2, "tables"),
        ("inputs.yaml", 4, "inputs[1]"),
        ("inputs.yaml", 5, "inputs[2]"),
    ]


HOOK = """\
state: hook
scores: {folder: data/scores}
cluster: {kind: slurm}
site: remediation.yaml
"""


def test_the_hooks_files_are_checked_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "remediation.yaml").write_text("horizon_h: 12\nlevels: []\n")
    (tmp_path / "hook").mkdir()
    report = check(tmp_path, SETTINGS + "remediation: remediation.yaml", hook=HOOK)
    # Named by both files, and told once.
    assert said(report) == [("remediation.yaml", 1, "horizon_h")]
    (tmp_path / "remediation.yaml").write_text("levels: []\n")
    assert check(tmp_path, hook=HOOK).problems == ()


def test_a_hook_that_reads_elsewhere_or_acts_on_synthetic_scores_is_told(tmp_path: Path) -> None:
    hook = HOOK.replace("data/scores", "/srv/scores") + "actuator: {kind: slurm}\n"
    (tmp_path / "remediation.yaml").write_text("levels: []\n")
    report = check(tmp_path, SETTINGS + "trained_on: synthetic", hook=hook)
    assert [one.key for one in report.problems] == [
        "scores.folder",
        "actuator.kind",
        "site.kill_switch",
    ]
    assert report.exit_code == 2


def test_the_commands_say_it_and_end_with_its_code(tmp_path: Path) -> None:
    check(tmp_path, SETTINGS + "seed: 5\n")
    run = CliRunner()
    file = str(tmp_path / "forewarn.yaml")
    fine = run.invoke(app, ["config", "check", "--settings", file, "--json"])
    assert (fine.exit_code, json.loads(fine.output)["problems"]) == (0, [])
    shown = run.invoke(app, ["config", "show", "--settings", file])
    assert "seed: 5" in shown.output
    check(tmp_path, SETTINGS + "sede: 5\n")
    wrong = run.invoke(app, ["config", "check", "--settings", file])
    assert (wrong.exit_code, "did you mean seed" in wrong.output.lower()) == (2, True)


def test_what_is_in_force_says_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, SETTINGS + "api: {burst: 3, tokens: {ops: {variable: OPS}}}\n")
    monkeypatch.setenv("FOREWARN__BOARD__TIME_ZONE", "Europe/Berlin")
    monkeypatch.setenv("FOREWARN__API__BURST", "4")
    found = {one.key: one for one in settings_in_force(tmp_path / "forewarn.yaml")}
    assert (found["site"].value, found["site"].origin) == ("lab", "line 1")
    assert (found["api.burst"].value, found["api.burst"].origin) == (4, "FOREWARN__API__BURST")
    assert found["board.time_zone"].origin == "FOREWARN__BOARD__TIME_ZONE"
    assert found["seed"].origin == "default"
    assert found["api.tokens"].value["ops"]["variable"] == "OPS"


def test_the_length_of_a_part_is_compared_with_the_embargo_exactly(tmp_path: Path) -> None:
    lead = timedelta(minutes=30)
    edge = datetime(2026, 2, 1, tzinfo=UTC) + lead + timedelta(hours=24)
    for moment, is_told in ((edge, True), (edge + timedelta(seconds=1), False)):
        settings = SETTINGS + (
            "horizons_h: [24]\nsplit: {train_until: 2026-02-01T00:00:00Z, "
            f"valid_until: '{moment.isoformat()}'}}\n"
        )
        assert bool(check(tmp_path, settings).problems) is is_told


def test_a_value_that_a_merge_brings_is_no_default(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.yaml"
    path.write_text(SETTINGS + "api: {tokens: &t {}, <<: {burst: 3}}\n")
    origins = {one.key: one.origin for one in settings_in_force(path, {})}
    assert (origins["api.burst"], origins["api.rate_per_s"]) == ("line 5", "default")


def test_a_secret_that_is_read_once_is_left_to_its_service(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    secret = f"score_database: {{password: {{file: {tmp_path / 'pipe'}}}}}\n"
    assert check(tmp_path, SETTINGS + secret).problems == ()


def test_secrets_of_the_hook_are_looked_at_beside_settings_with_mistakes(tmp_path: Path) -> None:
    hook = (
        "state: s\nscores: {folder: data/scores}\ncluster: {kind: slurm}\n"
        "actuator: {kind: webhook, url: 'https://host', key_file: none}\n"
    )
    report = check(tmp_path, SETTINGS + "lead_minuts: 3\n", hook=hook)
    assert ("hook.yaml", 4, "actuator.key_file") in said(report)


def test_what_a_terminal_cannot_show_is_written_out(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.yaml"
    path.write_text(SETTINGS + 'note: "\\ud800\\u009b2J"\n')
    made = CliRunner().invoke(app, ["config", "show", "--settings", str(path)])
    assert made.exit_code == 0, made.output
    assert r"\ud800\x9b2J" in made.output
