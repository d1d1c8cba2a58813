"""Constants of the made-up rows: task, features and quick members."""

from datetime import UTC, datetime, timedelta

from models.ensembles.members import BoostedSpec
from models.ensembles.networks import LogisticSpec, MlpSpec
from models.specs import Task, TrainSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
TASK = Task(horizon_h=24, lead=timedelta(0), trained_on="synthetic")
NAMES = ("heat", "noise", "silent")
BOOSTED = BoostedSpec(
    spec=TrainSpec(rounds=10, min_data_in_leaf=20, min_incidents=5, feature_fraction=1.0)
)
LOGISTIC = LogisticSpec(min_incidents=5)
MLP = MlpSpec(min_incidents=5, epochs=10, layers=(4,))
