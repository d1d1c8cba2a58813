"""What the study of synthetic fleets is asked and what it gives: values only.

The steps are in `pipelines.studies.fleet.study`.
"""

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Final

from features.errors import DataError
from models.evaluation.event_metrics import EventMetrics
from models.evaluation.fleet_judgement import ClassRecall, ScoreTruth
from models.evaluation.row_metrics import Bootstrap
from models.failure_model import FailureModel
from models.node_scores import NodeCombination
from models.policies.thresholds import ThresholdChoice
from models.specs import Task, TrainSpec
from pipelines.studies.fleet.shards import TICK

LEAD: Final = timedelta(minutes=30)
HORIZONS_H: Final = (24, 1, 168)
"""Labels are told for these in any case, so that one folder of kept features serves every run."""
SPEC: Final = TrainSpec(rounds=200, path_smooth=10.0, seeds=(1, 2, 3))
"""More rounds than where incidents are few; of larger trees more gave less."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What is simulated, learned and judged.

    Attributes:
        regime: Regime of the fleets that are learned from.
        density: Factor on the failure rates, signs and decoys of the fleets that boosters learn
            from: more of them in less time. Their quiet hours weigh more, as failures are rarer in
            the others.
        train_seeds: Fleets that boosters learn from.
        valid_seeds: Fleets that calibration and policies are chosen on.
        test: Fleets that are judged: regime and seeds.
        nodes: Nodes of each fleet.
        days: Days of each.
        hazards: Factor on the rates of the others.
        horizons_h: Horizons.
        budget: Alerts per 1,000 nodes per day.
        precision: Precision the strict policy is to have, with 95 % confidence.
        quiet_share: Share of the negatives kept to learn from, of nodes without any sign.
        busy_share: The same of nodes with signs, which lead to nothing as a rule.
        feature_set: standard or full.
        spec: How boosters are trained.
        seed: Of what is drawn.
        bootstrap: How intervals are made.
    """

    regime: str = "h100"
    density: float = 12.0
    train_seeds: tuple[int, ...] = (1,)
    valid_seeds: tuple[int, ...] = (11, 12)
    test: tuple[tuple[str, tuple[int, ...]], ...] = (("h100", (21, 22)),)
    nodes: int = 512
    days: int = 60
    hazards: float = 1.0
    horizons_h: tuple[int, ...] = HORIZONS_H
    budget: float = 10.0
    precision: float = 0.85
    quiet_share: float = 0.02
    busy_share: float = 0.1
    feature_set: str = "standard"
    spec: TrainSpec = SPEC
    seed: int = 1
    bootstrap: Bootstrap = field(default_factory=Bootstrap)

    def task(self, horizon_h: int, kind: str = "node") -> Task:
        """The task of a horizon."""
        return Task(horizon_h=horizon_h, lead=LEAD, trained_on="synthetic", entity_kind=kind)

    def __post_init__(self) -> None:
        """Refuses a fleet that is looked at twice.

        Raises:
            DataError: A seed serves two purposes.
        """
        tested = {seed for _, seeds in self.test for seed in seeds}
        used = [set(self.train_seeds), set(self.valid_seeds), tested]
        twice = (used[0] & used[1]) | (used[0] & used[2]) | (used[1] & used[2])
        if twice or not all(used):
            raise DataError(
                f"fleet study: seeds to learn from, to tune on and to judge must be given and "
                f"differ, got {self.train_seeds}, {self.valid_seeds} and {tuple(sorted(tested))}."
            )

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for JSON."""
        return asdict(self)

    @property
    def dilution(self) -> float:
        """How many times more often the fleets learned from fail than the others."""
        return self.density / self.hazards

    @property
    def reader_budget(self) -> float:
        """The budget as a share of ticks, for the ceiling.

        An alert on a node covers all of its units. A reader that may alert on the same share of
        every unit's ticks can do all that a reader of nodes can, and more: its ceiling holds.
        """
        return self.budget / (1000.0 * (timedelta(days=1) / TICK))


@dataclass(frozen=True)
class Learned:
    """What fleets that fail often have taught.

    Attributes:
        model: GPU scores, not calibrated.
        nodes: Combination to node scores, not calibrated.
    """

    model: FailureModel
    nodes: NodeCombination


@dataclass(frozen=True)
class Trained:
    """A model of one horizon with its policies.

    Attributes:
        model: Calibrated GPU scores.
        nodes: Combination to node scores.
        budget: Policy within the alert budget.
        strict: Policy of high precision; none where none qualifies.
    """

    model: FailureModel
    nodes: NodeCombination
    budget: ThresholdChoice
    strict: ThresholdChoice


@dataclass(frozen=True)
class Judged:
    """What one policy did on the held-out fleets.

    Attributes:
        regime: Their regime.
        horizon_h: Horizon.
        policy: budget or strict.
        choice: The policy in words.
        events: Event metrics; None where there is no policy.
        classes: Recall by class against the ceiling.
        truth: How far scores above the threshold hold; of the budget policy only.
        clustering: How many times more counts of alerts by node vary than independent ones.
    """

    regime: str
    horizon_h: int
    policy: str
    choice: ThresholdChoice
    events: EventMetrics | None
    classes: tuple[ClassRecall, ...]
    truth: ScoreTruth | None
    clustering: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "regime": self.regime,
            "horizon_h": self.horizon_h,
            "policy": self.policy,
            "choice": self.choice.to_dict(),
            "events": self.events.to_dict() if self.events else None,
            "classes": [one.to_dict() for one in self.classes],
            "truth": self.truth.to_dict() if self.truth else None,
            "clustering": self.clustering,
        }
