"""What is asked of a model and of its training: values only.

Training itself, and what it gives, are elsewhere.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from features.errors import DataError

MAX_LEAVES = 64
COLD_START_INCIDENTS = 30
"""Below this many incidents of one's own, a fitted score says less than a prior."""


Ensemble = Literal["none", "parallel", "cascade"]
Span = Literal["all", "auto"] | int


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a model predicts, and for whom.

    Attributes:
        horizon_h: Horizon H, hours.
        lead: Minimum lead L.
        trained_on: synthetic or real; without a default, for what may act depends on it.
        entity_kind: gpu or node.
        catalogue_version: Version of the fault catalogue that typed the incidents.
    """

    horizon_h: int
    lead: timedelta
    trained_on: str
    entity_kind: str = "gpu"
    catalogue_version: str = "none"

    @property
    def embargo(self) -> timedelta:
        """L + H: how far a row's label looks ahead."""
        return self.lead + timedelta(hours=self.horizon_h)


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """How boosters are trained.

    The defaults suit sites with tens of incidents, each seen in some twenty rows that resemble
    each other: small trees, large leaves, few features at a time. Chosen on rolling origins of
    the demo's first 17 days (20 to 34 incidents, 24 h): average precision 0.086, against 0.047
    for 200 trees of 31 leaves.

    Attributes:
        num_leaves: Leaves per tree, at most 64.
        learning_rate: Shrinkage per tree.
        rounds: Trees per booster, at most.
        min_data_in_leaf: Rows per leaf, at least; of the population, whatever share is kept.
        lambda_l2: Ridge on leaf values.
        feature_fraction: Share of features each tree sees.
        bagging_fraction: Share of rows each tree sees.
        extra_trees: Whether each feature is tried at one random threshold instead of all.
        path_smooth: How much a leaf's value is drawn towards its parent's, in rows.
        seeds: One booster each; raw scores are averaged.
        negative_share: Share of negatives kept; each then weighs 1 / share, so that
            probabilities stay those of the population. With two million rows, a tenth trains
            seven times as fast and loses nothing that five simulated fleets could show; a
            twentieth, fourteen times as fast, loses a tenth of the average precision.
        early_stopping: Stop after so many rounds without a better validation loss; needs
            validation rows. None: train all rounds.
        monotone: Direction (+1 or -1) by feature name, where physics says so.
        num_threads: Threads of LightGBM; the result is the same for the same number.
        min_incidents: Fewer incidents than this is a cold start.
    """

    num_leaves: int = 7
    learning_rate: float = 0.05
    rounds: int = 100
    min_data_in_leaf: int = 200
    lambda_l2: float = 20.0
    feature_fraction: float = 0.3
    bagging_fraction: float = 0.8
    extra_trees: bool = False
    path_smooth: float = 0.0
    seeds: tuple[int, ...] = (1,)
    negative_share: float = 1.0
    early_stopping: int | None = None
    monotone: tuple[tuple[str, int], ...] = ()
    num_threads: int = 1
    min_incidents: int = COLD_START_INCIDENTS

    def __post_init__(self) -> None:
        """Refuses what cannot be trained.

        Raises:
            DataError: A value is out of range.
        """
        if not 2 <= self.num_leaves <= MAX_LEAVES:
            raise DataError(
                f"train spec: num_leaves must be 2 to {MAX_LEAVES}, got {self.num_leaves}."
            )
        if not 0.0 < self.negative_share <= 1.0:
            raise DataError(
                f"train spec: negative_share must be in (0, 1], got {self.negative_share}."
            )
        if not self.seeds:
            raise DataError("train spec: seeds must name at least one seed, got none.")


@dataclass(frozen=True, kw_only=True)
class SiteChoice:
    """What a site may choose beside how boosters are trained; see `models.ensembles.site`.

    Attributes:
        ensemble: none: LightGBM alone. parallel: a score is as high as the least convinced of
            LightGBM, logistic regression and a perceptron says. cascade: logistic regression lets
            through what may fail, LightGBM ranks it.
        span: all: everything before the cut is learned from. auto: the last half or quarter of it
            where earlier origins rank better with it, beyond chance. A number: so many days.
    """

    ensemble: Ensemble = "none"
    span: Span = "all"
