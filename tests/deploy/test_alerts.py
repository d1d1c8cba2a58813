"""Every shipped alert fires when it must and is quiet when it must, by promtool."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.serving.open_metrics import metrics_registry, render
from tests.deploy.alert_cases import HOOK_CASES, SCORE_CASES, Case, Series
from tests.pipelines.serving.serving_world import World

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
FILES = {"alerts.yaml": SCORE_CASES, "hook-alerts.yaml": HOOK_CASES}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not here"
)


def rules_of(name: str) -> list[dict[str, Any]]:
    content = yaml.safe_load((DEPLOY / name).read_text())
    return [rule for group in content["groups"] for rule in group["rules"]]


def promtool(*words: str | Path) -> str:
    """What it says of an error; nothing where there is none."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def one_test(case: Case, series: Series, *, is_raised: bool) -> dict[str, Any]:
    expression = f'count(ALERTS{{alertname="{case.alert}", alertstate="firing"}})'
    samples = [{"labels": "{}", "value": 1}] if is_raised else []
    return {
        "name": f"{case.alert} {'raised' if is_raised else 'quiet'}",
        "interval": case.every,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": case.after, "exp_samples": samples}],
    }


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize(
    ("name", "every"), sorted({(name, one.every) for name, cases in FILES.items() for one in cases})
)
def test_alerts_fire_when_they_must_and_only_then(name: str, every: str, tmp_path: Path) -> None:
    tests = [
        one_test(case, series, is_raised=is_raised)
        for case in FILES[name]
        if case.every == every
        for series, is_raised in ((case.raising, True), (case.quiet, False))
    ]
    content = {"rule_files": [str(DEPLOY / name)], "evaluation_interval": every, "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content))
    assert promtool("test", "rules", tmp_path / "tests.yaml") == ""


@pytest.mark.slow
@needs_promtool
def test_an_installation_that_waits_for_its_first_data_raises_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "site")
    text = render(metrics_registry(world.settings, now=lambda: world.now))[0].decode()
    series = {
        sample: f"{value}+0x130"
        for line in text.splitlines()
        if not line.startswith("#")
        for sample, value in [line.split(" ")[:2]]
    }
    assert "forewarn_scores_readable" in series
    quiet = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "2h", "exp_samples": []}
        ],
    }
    content = {"rule_files": [str(DEPLOY / "alerts.yaml")], "tests": [quiet]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(content))
    assert promtool("test", "rules", tmp_path / "tests.yaml") == ""


@pytest.mark.parametrize("name", FILES)
def test_no_alert_is_without_a_case(name: str) -> None:
    shipped = {rule["alert"] for rule in rules_of(name) if "alert" in rule}
    assert shipped == {case.alert for case in FILES[name]}


@needs_promtool
def test_the_scrape_file_loads_both_rule_files() -> None:
    assert promtool("check", "config", DEPLOY / "scrape.yaml") == ""


@pytest.mark.parametrize("name", FILES)
def test_every_alert_says_how_bad_what_and_where_to_read_on(name: str) -> None:
    for rule in rules_of(name):
        if "alert" not in rule:
            continue
        assert rule["labels"]["severity"] in ("critical", "warning")
        said = rule["annotations"]
        assert set(said) == {"summary", "description", "runbook_url"}
        assert said["runbook_url"].endswith(f"/runbook.html#{rule['alert'].lower()}")
