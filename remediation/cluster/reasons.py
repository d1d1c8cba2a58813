"""The reason string the hook stamps on a node: stable, versioned, and read back by ourselves.

What is stamped where belongs to the actuators.
"""

import re
from dataclasses import dataclass
from typing import Final

from features.errors import DataError
from features.vocabulary import FAULT_TYPES

PREFIX: Final = "forewarn:"
UNKNOWN_FAULT: Final = "unknown"
_MODEL = re.compile(r"[A-Za-z0-9._:/+-]{1,64}")
_ID = re.compile(r"[0-9a-f]{16}")
# Slurm shows a reason with who set it and when: `... [root@2026-01-05T10:00:00]`.
_REASON = re.compile(
    r"forewarn:v1 score=(?P<score>[01]\.\d\d) horizon=(?P<horizon_h>[1-9]\d*)h "
    r"fault=(?P<fault>[a-z_]+) model=(?P<model>\S+) id=(?P<id>[0-9a-f]{16})"
    r"(?: \[[^\]]*\])?"
)


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why the hook took a node.

    Attributes:
        score: Calibrated probability, to two decimals.
        horizon_h: Its horizon in hours.
        fault_type: Most probable fault type; None: unknown.
        model_version: Model that gave the score.
        decision_id: The decision it rests on.
    """

    score: float
    horizon_h: int
    fault_type: str | None
    model_version: str
    decision_id: str

    def __post_init__(self) -> None:
        """Refuses what could not be read back.

        Raises:
            DataError: A part is out of range or holds other than plain characters.
        """
        problems = []
        if not 0.0 <= self.score <= 1.0:
            problems.append(f"score must be 0 to 1, got {self.score}")
        if self.horizon_h < 1:
            problems.append(f"horizon must be at least 1 h, got {self.horizon_h}")
        if self.fault_type is not None and self.fault_type not in FAULT_TYPES:
            problems.append(f"fault type must be one of the vocabulary, got {self.fault_type!r}")
        if not _MODEL.fullmatch(self.model_version):
            problems.append(f"model version must be one plain word, got {self.model_version!r}")
        if not _ID.fullmatch(self.decision_id):
            problems.append(f"decision id must be 16 hex digits, got {self.decision_id!r}")
        if problems:
            raise DataError(f"reason string: {'; '.join(problems)}. Nothing was stamped.")

    def __str__(self) -> str:
        """The string as it is stamped."""
        return (
            f"{PREFIX}v1 score={self.score:.2f} horizon={self.horizon_h}h "
            f"fault={self.fault_type or UNKNOWN_FAULT} model={self.model_version} "
            f"id={self.decision_id}"
        )


def is_ours(reason: str | None) -> bool:
    """Whether a node's reason was stamped by the hook, in this or another version.

    >>> is_ours("forewarn:v9 anything"), is_ours("disk replaced, see forewarn: ticket")
    (True, False)
    """
    return reason is not None and reason.startswith(PREFIX)


def parse_reason(text: str | None) -> Reason | None:
    """Reads a reason string back, with or without the `[user@time]` that Slurm appends.

    Returns:
        The reason, or None where the text is not one of version 1.

    >>> parse_reason("forewarn:v1 score=0.81 horizon=24h fault=nvlink model=17 "
    ...              "id=00112233445566ff [root@2026-01-05T10:00:00]").horizon_h
    24
    """
    found = _REASON.fullmatch(text) if text else None
    if not found:
        return None
    fault = found["fault"]
    try:
        return Reason(
            score=float(found["score"]),
            horizon_h=int(found["horizon_h"]),
            fault_type=None if fault == UNKNOWN_FAULT else fault,
            model_version=found["model"],
            decision_id=found["id"],
        )
    except DataError:
        return None
