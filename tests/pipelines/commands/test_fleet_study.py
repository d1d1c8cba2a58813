"""The command, from its options to the plan that is run; the study itself takes hours."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.studies.fleet import study, words
from pipelines.studies.fleet.plan import StudyPlan


@pytest.fixture
def plans(monkeypatch):
    """What the command asked to be run, with the folder of features; nothing is run."""
    asked = []

    def run_study(plan, *, say, cache=None):
        say("a fleet")
        asked.append((plan, cache))
        return ()

    monkeypatch.setattr(study, "run_study", run_study)
    monkeypatch.setattr(words, "study_in_words", lambda plan, judged: f"{plan.regime} {judged}")
    return asked


def invoke(*arguments):
    asked = ["simulate", "study", *map(str, arguments)]
    return CliRunner().invoke(app, asked, catch_exceptions=False)


def test_without_options_the_plan_is_the_usual_one_and_progress_stays_off_the_output(plans):
    result = invoke()
    assert (result.exit_code, result.stdout, result.stderr) == (0, "h100 ()\n", "a fleet\n")
    assert plans == [(StudyPlan(), None)]


def test_each_option_enters_the_plan_at_its_place(plans, tmp_path):
    out, cache = tmp_path / "study.json", tmp_path / "features"
    seeds = ("--train-seed", 2, "--valid-seed", 3, "--valid-seed", 4, "--test-seed", 5)
    regimes = ("--regime", "a100", "--test-regime", "h100", "--test-regime", "a100")
    sizes = ("--nodes", 8, "--days", 9, "--density", 2, "--hazards", 3)
    goals = ("--horizon-h", 6, "--budget", 7, "--precision", 0.9, "--feature-set", "full")
    result = invoke(*seeds, *regimes, *sizes, *goals, "--cache", cache, "--json", out)
    assert result.exit_code == 0
    plan = StudyPlan(
        regime="a100", train_seeds=(2,), valid_seeds=(3, 4), test=(("h100", (5,)), ("a100", (5,))),
        nodes=8, days=9, density=2.0, hazards=3.0, horizons_h=(6,), budget=7.0, precision=0.9,
        feature_set="full",
    )  # fmt: skip
    assert plans == [(plan, Path(cache))]
    written = json.loads(out.read_text())
    assert written == {"plan": json.loads(json.dumps(plan.to_dict())), "results": []}


def test_one_regime_is_judged_where_none_is_named(plans):
    assert invoke("--regime", "a100").exit_code == 0
    assert plans[0][0].test == (("a100", (21, 22)),)
