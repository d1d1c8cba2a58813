"""Everything one model version needs to score, as one value and as texts to store.

Texts are made and read here; where they are kept is known to `models.registry.model_registry`
alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import lightgbm as lgb
import polars as pl

from features.errors import DataError
from features.registry import Feature, matrix_columns
from models.calibration import Calibration
from models.drift.inputs import DriftReference
from models.failure_model import FailureModel, check_feature_order
from models.faults.types import FaultTypeModel
from models.node_scores import NodeCombination
from models.policies.warnings import WarningPolicy
from models.reasons import UsualValues
from models.specs import Task, TrainSpec

if TYPE_CHECKING:
    from models.member_protocol import Member

SCHEMA = 2


@dataclass(frozen=True, kw_only=True)
class ModelBundle:
    """One model version with its company.

    Attributes:
        model: The failure score, calibrated.
        features: Registered features of its columns, in their order.
        usual: What the features usually are.
        fault_types: Forecast of the fault type.
        nodes: How GPU scores become node scores.
        policies: Warning policy by entity kind, threshold included.
        drift: Distributions that later weeks are held against; None: not fixed.
        card: Model card; see `models.candidate.card`.
    """

    model: FailureModel
    features: tuple[Feature, ...]
    usual: UsualValues
    fault_types: FaultTypeModel | None = None
    nodes: NodeCombination | None = None
    policies: Mapping[str, WarningPolicy] = field(default_factory=dict)
    drift: DriftReference | None = None
    card: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses a company that does not belong to the model.

        Raises:
            DataError: The features are not those of the model, in order.
        """
        names = tuple(feature.name for feature in self.features)
        if names != self.model.feature_names:
            raise DataError(
                f"model bundle: the {len(names)} registered features are not the model's "
                f"{len(self.model.feature_names)} columns in order. Pick the features by the "
                f"model's feature_names."
            )

    @property
    def name(self) -> str:
        """Name of the registered model.

        One per entity kind and horizon, such as `gpu-failure-24h`.
        """
        return model_name(self.model.task)

    @property
    def input_columns(self) -> dict[str, pl.DataType]:
        """What the model takes, in order, as the feature registry says: its signature."""
        return matrix_columns(self.features)

    def to_documents(self) -> dict[str, str]:
        """File names with their text: booster texts and JSON, equal for equal bundles."""
        model = self.model
        facts = {
            "schema": SCHEMA,
            "task": {**asdict(model.task), "lead": model.task.lead.total_seconds()},
            "spec": asdict(model.spec),
            "n_boosters": len(model.boosters),
            "data_span": [moment.isoformat() for moment in model.data_span],
            "contract_version": model.contract_version,
            "data_hash": model.data_hash,
            "n_rows": model.n_rows,
            "n_positive": model.n_positive,
            "n_incidents": model.n_incidents,
        }
        documents = {
            "model.json": _json(facts),
            "calibration.json": _json(model.calibration.to_dict()),
            "features.json": _json([_feature_to_dict(feature) for feature in self.features]),
            "usual.json": _json(asdict(self.usual)),
            "policies.json": _json({kind: p.to_dict() for kind, p in self.policies.items()}),
            "card.json": _json(dict(self.card)),
        }
        for position, booster in enumerate(model.boosters):
            documents[f"booster_{position}.txt"] = booster.model_to_string()
        if model.member is not None:
            documents["member.json"] = _json(model.member.to_dict())
        if self.drift is not None:
            documents["drift.json"] = _json(self.drift.to_dict())
        if self.nodes is not None:
            documents["nodes.json"] = _json(self.nodes.to_dict())
        if self.fault_types is not None:
            documents["fault_types.json"] = _json(self.fault_types.to_dict())
            if self.fault_types.booster is not None:
                text = self.fault_types.booster.model_to_string()
                documents["fault_types_booster.txt"] = text
        return documents

    @property
    def fingerprint(self) -> str:
        """Hash of all documents: two bundles that score and read alike share it."""
        return fingerprint_of(self.to_documents())


def fingerprint_of(documents: Mapping[str, str]) -> str:
    """Hash of documents as they are: a later release that writes more still knows old ones."""
    digest = sha256()
    for name, text in sorted(documents.items()):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()


def model_name(task: Task) -> str:
    """Registered name of a task.

    >>> model_name(Task(horizon_h=24, lead=timedelta(minutes=30), trained_on="real"))
    'gpu-failure-24h'
    """
    return f"{task.entity_kind}-failure-{task.horizon_h}h"


def bundle_from_documents(documents: Mapping[str, str]) -> ModelBundle:
    """The bundle from what `ModelBundle.to_documents` gave.

    Args:
        documents: File names with their text.

    Returns:
        A bundle that scores the same to the last bit.

    Raises:
        DataError: A document is missing or of an unknown schema, or boosters and features do
            not belong together.
    """
    facts = _load(documents, "model.json")
    if facts.get("schema") != SCHEMA:
        raise DataError(
            f"model bundle: model.json has schema {facts.get('schema')!r}, this program reads "
            f"{SCHEMA}. Use the release that wrote it, or train again."
        )
    features = tuple(_feature_from_dict(values) for values in _load(documents, "features.json"))
    names = tuple(feature.name for feature in features)
    boosters = tuple(
        lgb.Booster(model_str=_text(documents, f"booster_{position}.txt"))
        for position in range(facts["n_boosters"])
    )
    for booster in boosters:
        check_feature_order(booster, names)
    nodes = _load(documents, "nodes.json") if "nodes.json" in documents else None
    drift = _load(documents, "drift.json") if "drift.json" in documents else None
    return ModelBundle(
        model=_model(facts, documents, names=names, boosters=boosters),
        features=features,
        usual=UsualValues(**_load(documents, "usual.json")),
        fault_types=_fault_types(documents),
        nodes=NodeCombination.from_dict(nodes) if nodes is not None else None,
        policies={
            kind: WarningPolicy.from_dict(values)
            for kind, values in _load(documents, "policies.json").items()
        },
        drift=DriftReference.from_dict(drift) if drift is not None else None,
        card=_load(documents, "card.json"),
    )


def _model(
    facts: dict[str, Any],
    documents: Mapping[str, str],
    *,
    names: tuple[str, ...],
    boosters: tuple[lgb.Booster, ...],
) -> FailureModel:
    task, spec = facts["task"], facts["spec"]
    first, last = (datetime.fromisoformat(moment) for moment in facts["data_span"])
    monotone = tuple((name, direction) for name, direction in spec["monotone"])
    return FailureModel(
        boosters=boosters,
        feature_names=names,
        task=Task(**{**task, "lead": timedelta(seconds=task["lead"])}),
        spec=TrainSpec(**{**spec, "seeds": tuple(spec["seeds"]), "monotone": monotone}),
        calibration=Calibration.from_dict(_load(documents, "calibration.json")),
        member=_member(documents),
        data_span=(first, last),
        contract_version=facts["contract_version"],
        data_hash=facts["data_hash"],
        n_rows=facts["n_rows"],
        n_positive=facts["n_positive"],
        n_incidents=facts["n_incidents"],
    )


def _member(documents: Mapping[str, str]) -> "Member | None":
    if "member.json" not in documents:
        return None
    # Here, so that a site without an ensemble does not wait for scikit-learn's networks.
    from models.ensembles.stored import member_from_dict

    return member_from_dict(_load(documents, "member.json"))


def _fault_types(documents: Mapping[str, str]) -> FaultTypeModel | None:
    if "fault_types.json" not in documents:
        return None
    return FaultTypeModel.from_dict(
        _load(documents, "fault_types.json"), documents.get("fault_types_booster.txt")
    )


def _feature_to_dict(feature: Feature) -> dict[str, Any]:
    window = feature.window
    return {
        **asdict(feature),
        "window": window.total_seconds() if window is not None else None,
        "inputs": list(feature.inputs),
    }


def _feature_from_dict(values: dict[str, Any]) -> Feature:
    window = timedelta(seconds=values["window"]) if values["window"] is not None else None
    return Feature(**{**values, "window": window, "inputs": tuple(values["inputs"])})


def _json(values: dict[str, Any] | Sequence[Any]) -> str:
    return json.dumps(values, indent=1, sort_keys=True, allow_nan=False)


def _load(documents: Mapping[str, str], name: str) -> Any:
    return json.loads(_text(documents, name))


def _text(documents: Mapping[str, str], name: str) -> str:
    if name not in documents:
        raise DataError(
            f"model bundle: {name} is missing, found {', '.join(sorted(documents)) or 'nothing'}. "
            f"The version is incomplete; register the model again."
        )
    return documents[name]
