"""Members that look at one row: logistic regression and a multilayer perceptron.

scikit-learn fits them; what is kept, and what scores, are plain arrays. Networks that look at
several rows are in `sequence_networks`.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from models.calibration import FloatArray
from models.ensembles.preparation import Preparation, fit_preparation, training_sample
from models.specs import COLD_START_INCIDENTS, Task

MAX_NEGATIVES: Final = 20_000
"""Negatives a network learns from; bounds memory and time, whatever the size of the fleet."""

_BLOCK: Final = 65_536  # rows scored at once


@dataclass(frozen=True)
class NetworkMember:
    """Layers of weights with rectifiers between them; one layer is logistic regression.

    Attributes:
        preparation: From features to inputs.
        weights: One matrix per layer, shape (inputs, outputs).
        biases: One vector per layer.
    """

    preparation: Preparation
    weights: tuple[npt.NDArray[np.float64], ...]
    biases: tuple[npt.NDArray[np.float64], ...]

    def raw_scores(self, rows: pl.DataFrame, *, earlier: pl.DataFrame | None = None) -> FloatArray:  # noqa: ARG002 - looks at one row at a time
        """See `Member.raw_scores`."""
        scores = np.empty(rows.height)
        for start in range(0, rows.height, _BLOCK):
            block = self.preparation.apply(rows[start : start + _BLOCK]).astype(np.float64)
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                block = np.maximum(block @ weight + bias, 0.0)
            scores[start : start + _BLOCK] = (block @ self.weights[-1] + self.biases[-1])[:, 0]
        return scores

    def to_dict(self) -> dict[str, Any]:
        """See `Member.to_dict`."""
        return {
            "kind": "network",
            "preparation": self.preparation.to_dict(),
            "weights": [weight.tolist() for weight in self.weights],
            "biases": [bias.tolist() for bias in self.biases],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "NetworkMember":
        """The member from what `to_dict` gave."""
        return cls(
            Preparation.from_dict(values["preparation"]),
            tuple(np.asarray(weight, dtype=np.float64) for weight in values["weights"]),
            tuple(np.asarray(bias, dtype=np.float64) for bias in values["biases"]),
        )


@dataclass(frozen=True, kw_only=True)
class LogisticSpec:
    """Logistic regression on all features.

    Attributes:
        inverse_penalty: C of scikit-learn.
        max_iterations: Steps of the solver, at most.
        max_negatives: Negatives learned from, about.
        seed: Seed of the negatives.
        min_incidents: Fewer incidents than this is a cold start.
    """

    inverse_penalty: float = 0.01
    max_iterations: int = 200
    max_negatives: int = MAX_NEGATIVES
    seed: int = 1
    min_incidents: int = COLD_START_INCIDENTS

    @property
    def name(self) -> str:
        """Name in tables."""
        return "logistic"

    def fit(
        self,
        rows: pl.DataFrame,
        *,
        feature_names: Sequence[str],
        task: Task,  # noqa: ARG002 - the same for every task
    ) -> NetworkMember:
        """See `MemberSpec.fit`."""
        fitted = LogisticRegression(C=self.inverse_penalty, max_iter=self.max_iterations)
        return _fit(rows, feature_names, fitted, spec=self)


@dataclass(frozen=True, kw_only=True)
class MlpSpec:
    """A multilayer perceptron on all features.

    Attributes:
        layers: Width of each hidden layer.
        penalty: alpha of scikit-learn.
        epochs: Passes over the sample.
        max_negatives: Negatives learned from, about.
        seed: Seed of the negatives, of the first weights and of the order of rows.
        min_incidents: Fewer incidents than this is a cold start.
    """

    layers: tuple[int, ...] = (32, 16)
    penalty: float = 3.0
    epochs: int = 15
    max_negatives: int = MAX_NEGATIVES
    seed: int = 1
    min_incidents: int = COLD_START_INCIDENTS

    @property
    def name(self) -> str:
        """Name in tables."""
        return "MLP"

    def fit(
        self,
        rows: pl.DataFrame,
        *,
        feature_names: Sequence[str],
        task: Task,  # noqa: ARG002 - the same for every task
    ) -> NetworkMember:
        """See `MemberSpec.fit`."""
        fitted = MLPClassifier(
            hidden_layer_sizes=self.layers,
            alpha=self.penalty,
            max_iter=self.epochs,
            random_state=self.seed,
        )
        return _fit(rows, feature_names, fitted, spec=self)


def _fit(
    rows: pl.DataFrame,
    feature_names: Sequence[str],
    classifier: LogisticRegression | MLPClassifier,
    *,
    spec: LogisticSpec | MlpSpec,
) -> NetworkMember:
    sample = training_sample(
        rows,
        max_negatives=spec.max_negatives,
        seed=spec.seed,
        min_incidents=spec.min_incidents,
    )
    preparation = fit_preparation(sample, feature_names)
    with warnings.catch_warnings():
        # The number of passes is the regularisation that was asked for.
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(preparation.apply(sample.rows[sample.at]), sample.label)
    weights, biases = _layers(classifier)
    biases[-1] = biases[-1] + sample.log_share
    return NetworkMember(preparation, tuple(weights), tuple(biases))


def _layers(
    classifier: LogisticRegression | MLPClassifier,
) -> tuple[list[npt.NDArray[np.float64]], list[npt.NDArray[np.float64]]]:
    if isinstance(classifier, LogisticRegression):
        return [classifier.coef_.T.astype(np.float64)], [classifier.intercept_.astype(np.float64)]
    weights = [np.asarray(weight, dtype=np.float64) for weight in classifier.coefs_]
    biases = [np.asarray(bias, dtype=np.float64) for bias in classifier.intercepts_]
    return weights, biases
