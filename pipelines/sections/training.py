"""The `training` section of the settings: how a site's models are trained.

What the values mean to the trainer is in `models.specs`; searching them is `forewarn tune`.
"""

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field

from models.specs import MAX_LEAVES, Ensemble, SiteChoice, TrainSpec
from pipelines.sections.section import Section


class TrainingSettings(Section):
    """How models are trained; what is left out is the trainer's default.

    Attributes:
        num_leaves: Leaves per tree.
        learning_rate: Shrinkage per tree.
        rounds: Trees per booster.
        min_data_in_leaf: Rows per leaf, at least.
        lambda_l2: Ridge on leaf values.
        feature_fraction: Share of features each tree sees.
        bagging_fraction: Share of rows each tree sees.
        extra_trees: Whether each feature is tried at one random threshold.
        path_smooth: How much a leaf's value is drawn towards its parent's.
        negative_share: Share of rows without an incident that are trained on.
        n_seeds: Boosters whose scores are averaged.
        ensemble: Whether LightGBM scores alone; see `models.specs.SiteChoice`.
        span: How far back training reaches: all, auto, or days.
        tuned: What `forewarn tune` found when it chose these values; goes into model cards.
    """

    num_leaves: int | None = Field(default=None, ge=2, le=MAX_LEAVES)
    learning_rate: float | None = Field(default=None, gt=0, le=1)
    rounds: int | None = Field(default=None, ge=1, le=10_000)
    min_data_in_leaf: int | None = Field(default=None, ge=1)
    lambda_l2: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    feature_fraction: float | None = Field(default=None, gt=0, le=1)
    bagging_fraction: float | None = Field(default=None, gt=0, le=1)
    extra_trees: bool | None = None
    path_smooth: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    negative_share: float | None = Field(default=None, gt=0, le=1)
    n_seeds: int = Field(default=1, ge=1, le=50)
    ensemble: Ensemble = "none"
    span: Literal["all", "auto"] | Annotated[int, Field(ge=1)] = "all"
    tuned: dict[str, Any] | None = None

    def spec(self, seed: int) -> TrainSpec:
        """The spec of these values; its seeds count up from the given one."""
        names = {field.name for field in fields(TrainSpec)} & set(type(self).model_fields)
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return TrainSpec(seeds=tuple(range(seed, seed + self.n_seeds)), **given)

    @property
    def choice(self) -> SiteChoice:
        """The stretch learned from, and the ensemble."""
        return SiteChoice(ensemble=self.ensemble, span=self.span)
