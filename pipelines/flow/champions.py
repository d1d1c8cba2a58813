"""The models that score: the champion of each horizon by its alias, loaded again when it changes.

What a registry is, is in `models.registry.model_registry`; training and promotion are elsewhere.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import polars as pl

from features.errors import DataError, ForewarnError
from models.bundle import ModelBundle, model_name
from models.failure_model import contract_version
from models.policies.warnings import WarningPolicy
from models.prior import PriorModel, fit_prior
from models.registry.model_registry import CHAMPION, ModelRegistry
from models.registry.registered import RegisteredVersion
from models.scoring import ScoreLimits, ServedModel, score_gpus, score_nodes, unknown_scores
from models.specs import Task
from pipelines.settings import Settings

_LOG: Final = logging.getLogger(__name__)
_PRIOR: Final = "/prior"


@dataclass(frozen=True, kw_only=True)
class UnreadableModel(ServedModel):
    """A champion that cannot be loaded; in its place stands a prior, which does not score.

    Attributes:
        cause: Why.
    """

    cause: str


class UnreadableModelError(DataError):
    """A champion is registered, but cannot be loaded."""

    def __init__(self, model: UnreadableModel) -> None:
        super().__init__(model.cause)
        self.model = model


class Champions:
    """The champions of one installation; keep it between ticks, as loading takes a second.

    Args:
        registry: Where they are.
        settings: Horizons, lead, and what they are trained on.
    """

    def __init__(self, registry: ModelRegistry, settings: Settings) -> None:
        self._registry = registry
        self._settings = settings
        self._loaded: dict[int, ServedModel] = {}

    def current(self, matrix: pl.DataFrame) -> list[ServedModel]:
        """The champion of each horizon; the prior where there is none.

        Where the registry cannot be read, the champion of the last time stays. A champion that
        cannot be loaded, and has none before it, makes its own horizon unknown.

        Args:
            matrix: features/gpu_matrix; the prior reads its history.

        Raises:
            ForewarnError: The registry cannot be read, and there is no last time; or no champion
                at all can be loaded.
        """
        served: list[ServedModel] = []
        problem: UnreadableModelError | None = None
        for horizon_h in self._settings.horizons_h:
            try:
                served.append(self._of(horizon_h, matrix.columns))
            except UnreadableModelError as error:
                problem = error
                served.append(error.model)
        if problem is not None and all(isinstance(one, UnreadableModel) for one in served):
            raise problem
        return served

    def policies(self, node_scores: pl.DataFrame) -> dict[int, WarningPolicy]:
        """The warning policy for nodes of each model that gave these scores; a prior has none.

        Args:
            node_scores: scores/node_scores of one tick.
        """
        found: dict[int, WarningPolicy] = {}
        versions = node_scores.select("horizon_h", "model_version").unique().sort("horizon_h")
        for horizon_h, version in versions.iter_rows():
            if version.endswith(_PRIOR):
                continue
            one = self._loaded.get(horizon_h)
            if one is None or one.version != version:
                try:
                    one = self._of(horizon_h, ())
                except UnreadableModelError:
                    continue
            # Another champion since then: its threshold means nothing for the older one's scores.
            if one.version != version or isinstance(one.model, PriorModel):
                continue
            policy = one.model.policies.get("node")
            if policy is not None:
                found[horizon_h] = policy
        return found

    def _of(self, horizon_h: int, columns: Sequence[str]) -> ServedModel:
        settings = self._settings
        task = Task(horizon_h=horizon_h, lead=settings.lead, trained_on=settings.trained_on)
        known = self._loaded.get(horizon_h)
        try:
            champion = self._registry.version_of(model_name(task), CHAMPION)
            if champion is None:
                return ServedModel(
                    version=f"{model_name(task)}{_PRIOR}", model=_prior_of(task, columns)
                )
            if known is None or known.version != champion.label:
                model = self._load(champion, is_first=known is None, task=task, columns=columns)
                self._loaded[horizon_h] = ServedModel(version=champion.label, model=model)
        except ForewarnError as error:
            if known is None:
                raise
            _LOG.warning("the registry cannot be read, %s goes on: %s", known.version, error)
        return self._loaded[horizon_h]

    def _load(
        self, champion: RegisteredVersion, *, is_first: bool, task: Task, columns: Sequence[str]
    ) -> ModelBundle:
        try:
            return self._registry.load(champion)
        except ForewarnError as error:
            if not is_first:
                raise
            stand_in = _prior_of(task, columns)
            raise UnreadableModelError(
                UnreadableModel(version=champion.label, model=stand_in, cause=str(error))
            ) from error


def _prior_of(task: Task, columns: Sequence[str]) -> PriorModel:
    """No row and no incident of one's own: the published rate, raised by the entity's history."""
    empty = pl.DataFrame(schema=dict.fromkeys(columns, pl.Float32))
    return fit_prior(empty, n_incidents=0, tick=timedelta(hours=1), task=task)


def scores_of(
    matrix: pl.DataFrame,
    served: Sequence[ServedModel],
    *,
    limits: ScoreLimits,
    failed: Mapping[str, str] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Scores of GPUs and nodes; a model that cannot score makes its own horizon unknown.

    Args:
        matrix: features/gpu_matrix.
        served: The models.
        limits: When a score is unknown.
        failed: GPUs whose inputs could not be read, with the cause.

    Returns:
        scores/gpu_scores and scores/node_scores.
    """
    fit, parts = [], []
    for one in served:
        if problem := _unfit(one, matrix):
            _LOG.error("model %s cannot score: %s", one.version, problem)
            parts.append(unknown_scores(matrix, one, cause=problem))
        else:
            fit.append(one)
    # Together, as models of one training read the same features.
    gpu_scores = pl.concat([score_gpus(matrix, fit, limits=limits, failed=failed), *parts])
    return gpu_scores, score_nodes(gpu_scores, served, matrix=matrix, limits=limits)


def _unfit(one: ServedModel, matrix: pl.DataFrame) -> str | None:
    """Why a model cannot score a matrix; None: it can."""
    if isinstance(one, UnreadableModel):
        return one.cause
    if isinstance(one.model, PriorModel):
        return None
    model = one.model.model
    if model.contract_version != contract_version(model.feature_names):
        return (
            f"it was made for contract {model.contract_version} of features/gpu_matrix, this is "
            f"{contract_version(model.feature_names)}; train again"
        )
    absent = [name for name in model.feature_names if name not in matrix.columns]
    if absent:
        return (
            f"{len(absent)} of its {len(model.feature_names)} features are missing: "
            f"{', '.join(absent[:5])}; build the matrix with the feature_set and topology it was "
            f"trained with, or train again"
        )
    return None
