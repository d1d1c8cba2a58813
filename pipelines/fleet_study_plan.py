"""What the study of synthetic fleets is asked and what it gives: values only.

The steps are in `pipelines.fleet_study`.
"""

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Final

from features.errors import DataError
from models.evaluation import Bootstrap
from models.event_metrics import EventMetrics
from models.failure_model import FailureModel
from models.fleet_judgement import ClassRecall, ScoreTruth
from models.node_scores import NodeCombination
from models.specs import Task, TrainSpec
from models.thresholds import ThresholdChoice
from pipelines.fleet_shards import TICK

LEAD: Final = timedelta(minutes=30)


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What is simulated, learned and judged.

    Attributes:
        regime: Regime of the fleets that are learned from.
        train_seeds: Fleets that boosters learn from.
        valid_seeds: Fleets that calibration and policies are chosen on.
        test: Fleets that are judged: regime and seeds.
        nodes: Nodes of each fleet.
        days: Days of each.
        hazards: Factor on the regime's failure rates, signs and decoys: more of them in less time.
        horizons_h: Horizons.
        budget: Alerts per 1,000 nodes per day.
        precision: Precision the strict policy is to have, with 95 % confidence.
        negative_share: Share of the negatives that is kept to learn from; calibration on every
            row of the validation fleets restores the base rate.
        feature_set: standard or full.
        spec: How boosters are trained.
        bootstrap: How intervals are made.
    """

    regime: str = "h100"
    train_seeds: tuple[int, ...] = (1, 2)
    valid_seeds: tuple[int, ...] = (3,)
    test: tuple[tuple[str, tuple[int, ...]], ...] = (("h100", (11, 12)),)
    nodes: int = 512
    days: int = 180
    hazards: float = 1.0
    horizons_h: tuple[int, ...] = (24, 1, 168)
    budget: float = 10.0
    precision: float = 0.85
    negative_share: float = 0.02
    feature_set: str = "standard"
    spec: TrainSpec = field(default_factory=TrainSpec)
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
    def reader_budget(self) -> float:
        """The budget as a share of ticks, for the ceiling.

        An alert on a node covers all of its units. A reader that may alert on the same share of
        every unit's ticks can do all that a reader of nodes can, and more: its ceiling holds.
        """
        return self.budget / (1000.0 * (timedelta(days=1) / TICK))


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
    """

    regime: str
    horizon_h: int
    policy: str
    choice: ThresholdChoice
    events: EventMetrics | None
    classes: tuple[ClassRecall, ...]
    truth: ScoreTruth | None

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
        }
