"""What the hook may mark on nodes: a file of Slurm features and Kubernetes conditions.

Only the file is written here. The hook, which alone holds the credentials, may apply it.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pipelines.serving.alert_book import Alert, AlertBook
from pipelines.serving.score_database import Tick
from pipelines.storage.atomic_files import replace_file

FILE: Final = "node_marks.json"
SLURM_FEATURE: Final = "forewarn_at_risk"
CONDITION: Final = "ForewarnFailureLikely"
_MOST_WORDS: Final = 1000


def marks_of(book: AlertBook, tick: Tick) -> dict[str, Any]:
    """The file's content: a mark for each node with an open alert, the nearest horizon's.

    Every other node is to have none: what is not in the file is to be taken off.

    Args:
        book: The alerts.
        tick: The newest tick; the marks are void when its scores expire.
    """
    nearest: dict[str, Alert] = {}
    for alert in sorted(book.open, key=lambda one: (one.node, one.horizon_h)):
        nearest.setdefault(alert.node, alert)
    return {
        "schema": 1,
        "as_of": tick.as_of.isoformat(),
        "expires_at": tick.expires_at.isoformat(),
        "nodes": {node: _mark(alert, tick.as_of) for node, alert in nearest.items()},
    }


def write_marks(folder: Path, book: AlertBook, tick: Tick) -> None:
    """Puts the file into the published folder, in one step."""
    content = json.dumps(marks_of(book, tick), indent=2, sort_keys=True) + "\n"
    replace_file(folder / FILE, content.encode())


def _mark(alert: Alert, as_of: datetime) -> dict[str, Any]:
    words = f"failure within {alert.horizon_h} h at {alert.score:.0%}"
    message = "; ".join([words, *alert.reasons])[:_MOST_WORDS]
    return {
        "slurm_features": [SLURM_FEATURE],
        "kubernetes_condition": {
            "type": CONDITION,
            "status": "True",
            "reason": "ScoreAboveThreshold",
            "message": message,
            "lastTransitionTime": alert.as_of.isoformat(),
            "lastHeartbeatTime": as_of.isoformat(),
        },
        "kubernetes_annotations": {
            "forewarn/probability": f"{alert.score:.4f}",
            "forewarn/horizon": f"{alert.horizon_h}h",
            "forewarn/fault-type": alert.fault_type or "",
            "forewarn/model-version": alert.model_version,
        },
    }
