"""Members and ensembles as plain values for JSON, and back, and with a calibration as a score.

What each kind stores is said by itself; files are written by `models.registry.model_registry`
alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from features.errors import DataError
from models.calibration import UNCALIBRATED, Calibration, FloatArray, fit_calibration
from models.ensembles.cascade import Cascade
from models.ensembles.members import BoostedMember
from models.ensembles.networks import NetworkMember
from models.ensembles.parallel import ParallelEnsemble, Places
from models.ensembles.sequence_networks import SequenceMember
from models.member_protocol import Member


def member_from_dict(values: dict[str, Any]) -> Member:
    """The member from what its `to_dict` gave.

    Args:
        values: Plain values.

    Returns:
        A member that scores the same to the last bit.

    Raises:
        DataError: The kind is not known.
    """
    kind = values.get("kind")
    if kind not in _READERS:
        raise DataError(
            f"model member: kind {kind!r} is not known, expected one of "
            f"{', '.join(sorted(_READERS))}. Use the release that wrote it, or train again."
        )
    return _READERS[kind](values)


@dataclass(frozen=True)
class CalibratedMember:
    """A member or ensemble as a score: what calibration, thresholds and warning policy work on.

    Attributes:
        member: The member.
        calibration: From its raw scores to probabilities.
    """

    member: Member
    calibration: Calibration = UNCALIBRATED

    def scores(self, rows: pl.DataFrame, *, earlier: pl.DataFrame | None = None) -> FloatArray:
        """Calibrated probabilities; see `Member.raw_scores` for arguments and errors."""
        return self.calibration.apply(self.member.raw_scores(rows, earlier=earlier))

    def calibrated_on(
        self, rows: pl.DataFrame, *, earlier: pl.DataFrame | None = None
    ) -> "CalibratedMember":
        """The same, calibrated on validation rows; null labels are left out.

        Raises:
            DataError: Too few positives to calibrate on.
        """
        raw = self.member.raw_scores(rows, earlier=earlier)
        is_known = rows["label"].is_not_null().to_numpy()
        label = rows["label"].drop_nulls().to_numpy().astype(np.int8)
        return replace(self, calibration=fit_calibration(raw[is_known], label))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"member": self.member.to_dict(), "calibration": self.calibration.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CalibratedMember":
        """The score from what `to_dict` gave."""
        return cls(member_from_dict(values["member"]), Calibration.from_dict(values["calibration"]))


def _parallel(values: dict[str, Any]) -> ParallelEnsemble:
    places = (
        Places(np.asarray(one["knots"], dtype=float), np.asarray(one["levels"], dtype=float))
        for one in values["places"]
    )
    members = tuple(member_from_dict(one) for one in values["members"])
    return ParallelEnsemble(members, tuple(places), values["rule"])


def _cascade(values: dict[str, Any]) -> Cascade:
    return Cascade(
        member_from_dict(values["first"]),
        member_from_dict(values["second"]),
        values["threshold"],
        values["kept_share"],
    )


_READERS: Final[dict[str, Callable[[dict[str, Any]], Member]]] = {
    "lightgbm": BoostedMember.from_dict,
    "network": NetworkMember.from_dict,
    "sequence": SequenceMember.from_dict,
    "parallel": _parallel,
    "cascade": _cascade,
}
