"""Rules of `forewarn tune` and of the `training` section of the settings."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from features.errors import SettingsError
from models.specs import SiteChoice, TrainSpec
from models.training.splits import Origin
from models.training.tuning import Trial, Tuned
from pipelines.sections.training import TrainingSettings
from pipelines.settings import Settings
from pipelines.studies.tune import in_words, training_section, tune_site
from tests.models.conftest import START

SPEC = TrainSpec(num_leaves=5, rounds=30, extra_trees=True, seeds=(4, 5), negative_share=0.5)
TRIALS = (
    Trial(spec=TrainSpec(), average_precisions=(0.1, 0.2), is_complete=True),
    Trial(spec=SPEC, average_precisions=(0.3, 0.2), is_complete=True),
    Trial(spec=SPEC, average_precisions=(0.01,), is_complete=False),
)
FOUND = Tuned(
    best=TRIALS[1],
    trials=TRIALS,
    origins=(Origin(START, START, START + timedelta(days=1)),) * 2,
    before=START + timedelta(days=2),
    seed=4,
)


def test_the_section_that_is_written_gives_back_the_spec_that_was_found() -> None:
    text = yaml.safe_dump(training_section(FOUND, horizon_h=24))
    section = TrainingSettings.model_validate(yaml.safe_load(text)["training"])
    assert section.spec(4) == SPEC
    assert section.tuned == {"horizon_h": 24, **FOUND.to_dict()}


def test_without_a_section_training_is_as_by_default() -> None:
    assert TrainingSettings().spec(3) == replace(TrainSpec(), seeds=(3,))


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_leaves": 65},
        {"rounds": 0},
        {"negative_share": 0.0},
        {"n_seeds": 0},
        {"leaves": 3},
        {"ensemble": "both"},
        {"span": 0},
        {"span": "most"},
    ],
)
def test_a_value_that_cannot_be_trained_with_is_refused(wrong) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        TrainingSettings.model_validate(wrong)


@pytest.mark.parametrize("span", ["all", "auto", 90])
def test_ensemble_and_span_are_chosen_by_the_section(span) -> None:
    text = f"{{ensemble: cascade, span: {span}}}"
    section = TrainingSettings.model_validate(yaml.safe_load(text))
    assert section.choice == SiteChoice(ensemble="cascade", span=span)
    assert TrainingSettings().choice == SiteChoice(ensemble="none", span="all")


def test_the_report_names_the_chosen_the_start_and_how_many_were_given_up() -> None:
    said = in_words(FOUND)
    assert "3 trials, 1 given up early" in said
    assert "0.2500" in said.splitlines()[2]
    assert said.splitlines()[2].endswith("(chosen)")
    assert said.splitlines()[3].endswith("(as it is)")


def test_without_a_split_there_is_no_moment_to_stop_at() -> None:
    settings = Settings(site="a", inputs=Path("i.yaml"), data_root=Path("d"), start=START)
    with pytest.raises(SettingsError, match="looks at nothing later"):
        tune_site(settings, out=Path("training.yaml"), trials=1, say=print)


@pytest.mark.parametrize(
    ("horizon_h", "out", "words"),
    [
        (48, "new.yaml", "horizon 48 h has no labels; choose one of horizons_h: 24, 1, 168"),
        (24, "site.yaml", "holds something else than a training section"),
        (24, ".", "cannot be written"),
    ],
)
def test_what_cannot_end_well_is_refused_before_the_search(
    tmp_path, monkeypatch, horizon_h, out, words
) -> None:
    (tmp_path / "site.yaml").write_text("site: a\n")
    settings = Settings(
        site="a",
        inputs=Path("i.yaml"),
        data_root=tmp_path / "data",
        start=START,
        end=START + timedelta(days=9),
        split={  # type: ignore[arg-type]  # as a settings file says it
            "train_until": START + timedelta(days=5),
            "valid_until": START + timedelta(days=7),
        },
    )
    with pytest.raises(SettingsError, match=words):
        tune_site(settings, out=tmp_path / out, trials=1, horizon_h=horizon_h, say=print)
    assert [one.name for one in tmp_path.iterdir()] == ["site.yaml"]
    assert (tmp_path / "site.yaml").read_text() == "site: a\n"
