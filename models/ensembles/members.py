"""LightGBM as a member of an ensemble.

What a member is, is in `protocols`; others are in `networks` and `sequence_networks`; how members
join is in `parallel` and `cascade`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import lightgbm as lgb
import numpy as np
import polars as pl

from models.calibration import FloatArray
from models.failure_model import check_feature_order, feature_values
from models.forest.scorer import RawScorer
from models.specs import Task, TrainSpec
from models.training.boosters import train


@dataclass(frozen=True, kw_only=True)
class BoostedMember:
    """The boosters of the failure score.

    Attributes:
        boosters: One per seed; raw log-odds are averaged.
        feature_names: Columns, in the boosters' order.
    """

    boosters: tuple[lgb.Booster, ...]
    feature_names: tuple[str, ...]

    @cached_property
    def _scorers(self) -> tuple[RawScorer, ...]:
        for booster in self.boosters:
            check_feature_order(booster, self.feature_names)
        return tuple(RawScorer(booster=one, num_threads=1) for one in self.boosters)

    def raw_scores(self, rows: pl.DataFrame, *, earlier: pl.DataFrame | None = None) -> FloatArray:  # noqa: ARG002 - looks at one row at a time
        """See `Member.raw_scores`."""
        total = np.zeros(rows.height)
        if not rows.height:
            return total
        values = feature_values(rows, self.feature_names)
        for scorer in self._scorers:
            total += scorer.raw_scores(values)
        return total / len(self.boosters)

    def to_dict(self) -> dict[str, Any]:
        """See `Member.to_dict`."""
        return {
            "kind": "lightgbm",
            "feature_names": list(self.feature_names),
            "boosters": [booster.model_to_string() for booster in self.boosters],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "BoostedMember":
        """The member from what `to_dict` gave."""
        return cls(
            boosters=tuple(lgb.Booster(model_str=text) for text in values["boosters"]),
            feature_names=tuple(values["feature_names"]),
        )


@dataclass(frozen=True, kw_only=True)
class BoostedSpec:
    """LightGBM, by the product's own trainer.

    Attributes:
        spec: How boosters are trained.
    """

    spec: TrainSpec = field(default_factory=TrainSpec)

    @property
    def name(self) -> str:
        """Name in tables."""
        return "LightGBM"

    def fit(self, rows: pl.DataFrame, *, feature_names: Sequence[str], task: Task) -> BoostedMember:
        """See `MemberSpec.fit`."""
        model = train(rows, feature_names=feature_names, task=task, spec=self.spec)
        return BoostedMember(boosters=model.boosters, feature_names=model.feature_names)
