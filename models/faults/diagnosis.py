"""Diagnoses the fault type of an incident that has begun, and judges it against the catalogue rule.

What was seen by then is gathered in `features.diagnosis`; the type of a failure still to come is
forecast in `models.faults.types`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import binomtest

from features.diagnosis import RULE_TYPE, SECOND_RULE_TYPE, diagnosis_features
from models.evaluation.intervals import wilson
from models.faults.types import FaultTypeModel, train_fault_types
from models.specs import TrainSpec

FOUND_TYPE = "found_type"
"""Column with what the fault turned out to be: a repair's finding, or a simulation's truth."""

UNEXPLAINED = "host"
"""The rule's type of a node that went down for a reason nobody gave."""

_SPEC = TrainSpec(num_leaves=7, rounds=100, min_data_in_leaf=5, lambda_l2=1.0, feature_fraction=0.5)


@dataclass(frozen=True, kw_only=True)
class ClassResult:
    """How often one fault type was named.

    Attributes:
        n_true: Incidents that were of this type.
        n_named: Incidents it was named for.
        n_right: Both.
        n_right_in_two: Of this type, and it was among the first two named.
    """

    n_true: int
    n_named: int
    n_right: int
    n_right_in_two: int


@dataclass(frozen=True, kw_only=True)
class TypeAccuracy:
    """How often verdicts were what the fault turned out to be.

    Attributes:
        n: Incidents judged.
        top1: Share whose first verdict was right.
        top1_interval: 95 % interval of it (Wilson).
        top2: Share right within the first two.
        top2_interval: 95 % interval of it.
        by_class: Counts by fault type.
        confusion: How many were of the first type and named the second.
    """

    n: int
    top1: float
    top1_interval: tuple[float, float]
    top2: float
    top2_interval: tuple[float, float]
    by_class: Mapping[str, ClassResult]
    confusion: Mapping[tuple[str, str], int] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return {
            "n": self.n,
            "top1": self.top1,
            "top1_interval": list(self.top1_interval),
            "top2": self.top2,
            "top2_interval": list(self.top2_interval),
            "by_class": {
                name: {
                    "n_true": one.n_true,
                    "n_named": one.n_named,
                    "n_right": one.n_right,
                    "n_right_in_two": one.n_right_in_two,
                }
                for name, one in self.by_class.items()
            },
            "confusion": [[*pair, n] for pair, n in sorted(self.confusion.items())],
        }


@dataclass(frozen=True, kw_only=True)
class DiagnosisResult:
    """The model's verdicts beside the rule's, on the same incidents.

    Attributes:
        model: Of the model.
        rule: Of the catalogue rule.
        n_mended: The rule was wrong and the model right.
        n_broken: The rule was right and the model wrong.
    """

    model: TypeAccuracy
    rule: TypeAccuracy
    n_mended: int
    n_broken: int

    @property
    def beats_rule(self) -> bool:
        """Whether the model mends more than it breaks beyond chance (exact sign test, 2.5 %)."""
        n = self.n_mended + self.n_broken
        if n == 0:
            return False
        return bool(binomtest(self.n_mended, n, 0.5, alternative="greater").pvalue < 0.025)


def train_diagnosis(
    cases: pl.DataFrame, *, telemetry: Sequence[str] = (), spec: TrainSpec | None = None
) -> FaultTypeModel:
    """Learns what incidents turn out to be from what is seen ten minutes in.

    Args:
        cases: Rows of `features.diagnosis.build_diagnosis` with `found_type`; those whose finding
            is null teach nothing.
        telemetry: Matrix columns added by `features.diagnosis.with_telemetry`.
        spec: How; defaults suit hundreds of incidents.

    Returns:
        The model; `diagnose` reads it.

    Raises:
        DataError: No incident has a finding.
    """
    names = (*diagnosis_features(), *telemetry)
    return train_fault_types(_as_rows(cases), feature_names=names, spec=spec or _SPEC)


def diagnose(model: FaultTypeModel, cases: pl.DataFrame) -> list[tuple[str, str | None]]:
    """The most and second most probable fault type of each incident.

    A type that training saw too seldom to learn is left to the rule: where the evidence names it,
    it comes first. What nobody explains (`host` by default) is evidence of nothing.

    Args:
        model: From `train_diagnosis`.
        cases: Rows of `features.diagnosis.build_diagnosis`.

    Returns:
        Two types per row; the second is None where the model knows one only.
    """
    order = np.argsort(-model.probabilities(cases), axis=1, kind="stable")[:, :2]
    verdicts = []
    for row, rule in zip(order, cases[RULE_TYPE].to_list(), strict=True):
        named = [model.classes[i] for i in row]
        if rule is not None and rule not in (UNEXPLAINED, *model.learned):
            named = [rule, *(name for name in named if name != rule)]
        verdicts.append((named[0], named[1] if len(named) > 1 else None))
    return verdicts


def rule_verdicts(cases: pl.DataFrame, *, usual: Sequence[str]) -> list[tuple[str, str | None]]:
    """The catalogue rule's verdicts; where it has no second, the most usual other type stands.

    Args:
        cases: Rows of `features.diagnosis.build_diagnosis`.
        usual: Fault types, most frequent first, as training knew them.
    """
    verdicts = []
    for first, second in cases.select(RULE_TYPE, SECOND_RULE_TYPE).iter_rows():
        others = [name for name in usual if name != first]
        named = first if first is not None else (others.pop(0) if others else "host")
        verdicts.append((named, second if second is not None else next(iter(others), None)))
    return verdicts


def compare_verdicts(
    true: Sequence[str],
    by_model: Sequence[tuple[str, str | None]],
    by_rule: Sequence[tuple[str, str | None]],
) -> DiagnosisResult:
    """Judges the verdicts of model and rule on the same incidents.

    Args:
        true: What each fault turned out to be; at least one.
        by_model: First and second verdict of the model on each.
        by_rule: Those of the rule.
    """
    is_right = [
        (mine[0] == found, rule[0] == found)
        for mine, rule, found in zip(by_model, by_rule, true, strict=True)
    ]
    return DiagnosisResult(
        model=judge_verdicts(true, by_model),
        rule=judge_verdicts(true, by_rule),
        n_mended=sum(mine and not rule for mine, rule in is_right),
        n_broken=sum(rule and not mine for mine, rule in is_right),
    )


def judge_verdicts(true: Sequence[str], verdicts: Sequence[tuple[str, str | None]]) -> TypeAccuracy:
    """Counts how often verdicts were right.

    Args:
        true: What each fault turned out to be; at least one.
        verdicts: First and second verdict on each.
    """
    pairs = list(zip(true, verdicts, strict=True))
    first = [found == one for found, (one, _) in pairs]
    in_two = [found in verdict for found, verdict in pairs]
    named = Counter(one for _, (one, _) in pairs)
    by_class = {
        name: ClassResult(
            n_true=count,
            n_named=named[name],
            n_right=sum(ok for ok, found in zip(first, true, strict=True) if found == name),
            n_right_in_two=sum(ok for ok, found in zip(in_two, true, strict=True) if found == name),
        )
        for name, count in sorted(Counter(true).items(), key=lambda item: (-item[1], item[0]))
    }
    return TypeAccuracy(
        n=len(pairs),
        top1=sum(first) / len(pairs),
        top1_interval=wilson(sum(first), len(pairs)),
        top2=sum(in_two) / len(pairs),
        top2_interval=wilson(sum(in_two), len(pairs)),
        by_class=by_class,
        confusion=Counter((found, one) for found, (one, _) in pairs),
    )


def _as_rows(cases: pl.DataFrame) -> pl.DataFrame:
    """Cases in the form that fault types are learned from: each is one positive row."""
    return cases.with_columns(
        pl.lit(1, pl.Int8).alias("label"), pl.col(FOUND_TYPE).alias("fault_type")
    )
