from dataclasses import replace

import pytest

from models.evaluation.row_metrics import Estimate
from pipelines.report.input import EvaluationResult, FaultClass
from pipelines.report.trust import cautions, class_rows, metric_rows, verdict
from tests.pipelines.report.report_fixture import evaluation, report_input


@pytest.fixture(scope="module")
def judged() -> EvaluationResult:
    return evaluation()


def with_gain(judged: EvaluationResult, gain: Estimate | None) -> EvaluationResult:
    model, *baselines = judged.methods
    return replace(judged, methods=(model, *(replace(b, gain=gain) for b in baselines)))


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (Estimate(0.1, 0.02, 0.2), "better beyond chance"),
        (Estimate(-0.1, -0.2, -0.02), "worse beyond chance"),
        (Estimate(0.1, -0.02, 0.2), "not to be told apart from chance"),
        (Estimate(0.1, None, None), "was not tested"),
        (None, "was not tested"),
    ],
)
def test_better_is_only_said_beyond_chance(
    judged: EvaluationResult, gain: Estimate | None, said: str
) -> None:
    words = verdict(with_gain(judged, gain))
    assert said in words
    assert "best baseline, History count" in words


@pytest.mark.parametrize(
    ("n_incidents", "said"), [(0, "too few"), (49, "too few"), (50, "20\xa0%")]
)
def test_a_class_of_fewer_than_50_incidents_has_no_rate(n_incidents: int, said: str) -> None:
    found = FaultClass(fault_type="gsp", n_incidents=n_incidents, n_caught=n_incidents // 5)
    assert class_rows((found,))[0]["recall"] == said


def test_the_row_without_the_top_unit_follows_the_model(judged: EvaluationResult) -> None:
    names = [row["name"] for row in metric_rows(judged)]
    assert names[:2] == ["Forewarn", "Forewarn, top unit left out"]


def test_alerts_that_were_not_judged_are_not_zero(judged: EvaluationResult) -> None:
    baseline = metric_rows(judged)[2]
    assert baseline["cells"][-1] == ("not judged", "")


def test_cautions_name_synthetic_data_few_incidents_and_the_ceiling(
    judged: EvaluationResult,
) -> None:
    said = " ".join(cautions(report_input(), judged))
    assert "learned from synthetic data" in said
    assert "only 31 incidents" in said
    assert "more than 46\xa0%" in said
    real = tuple(replace(card, trained_on="real") for card in report_input().models)
    assert "synthetic" not in " ".join(cautions(replace(report_input(), models=real), judged))
