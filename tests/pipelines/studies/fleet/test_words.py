"""Rules of how results of the study are told."""

import pytest

from models.evaluation.event_metrics import EventMetrics
from models.evaluation.row_metrics import NOT_DEFINED
from models.policies.thresholds import ThresholdChoice
from pipelines.studies.fleet.plan import Judged, StudyPlan
from pipelines.studies.fleet.words import study_in_words


@pytest.mark.parametrize(
    ("clustering", "said"),
    [
        (1.0, "10.00 [8.14, 12.16] per 1,000 nodes and day (by node they vary 1.0 times"),
        (6.0, "10.00 [5.79, 16.08] per 1,000 nodes and day (by node they vary 6.0 times"),
    ],
)
def test_alerts_of_few_nodes_say_less_of_their_rate(clustering: float, said: str) -> None:
    events = EventMetrics(
        n_alerts=100,
        n_true=0,
        n_false=100,
        n_unjudged=0,
        precision=NOT_DEFINED,
        n_incidents=0,
        n_caught=0,
        recall=NOT_DEFINED,
        lead_h=(),
        lead_quantiles_h=(),
        alerts_per_1000_nodes_per_day=10.0,
        node_days=10_000.0,
    )
    choice = ThresholdChoice(0.5, "So chosen.", 1)
    judged = Judged("h100", 24, "budget", choice, events, (), None, clustering)
    assert said in study_in_words(StudyPlan(), [judged])
