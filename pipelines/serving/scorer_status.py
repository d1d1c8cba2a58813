"""What the scorer is at, as a file that others may read: metrics, health checks, people.

The file is written often and never waited for; nothing depends on it.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from pipelines.storage.atomic_files import replace_file

FILE: Final = "scorer_status.json"


@dataclass
class ScorerStatus:
    """State of the scorer; times are ISO texts, UTC.

    Attributes:
        pid: Process.
        started_at: When it started.
        updated_at: When this was written.
        phase: What it is at: idle, features, scores, history, publishing, delivery, stopped.
        why: In words, such as what it waits for.
        as_of: The newest tick it scored.
        tick_seconds: Wall time of that tick by phase.
        n_ticks: Ticks scored since it started.
        n_failures: Ticks that failed since it started.
        last_error: The last failure, cleared by the next tick that is scored.
        unknown: Rows without a score in that tick, by cause.
        n_database_errors: Times that the score database could not be used since it started.
        problems: What of the delivery failed the last time, by part.
        n_open_alerts: Open alerts.
    """

    pid: int = field(default_factory=os.getpid)
    started_at: str = ""
    updated_at: str = ""
    phase: str = "idle"
    why: str = ""
    as_of: str = ""
    tick_seconds: dict[str, float] = field(default_factory=dict)
    n_ticks: int = 0
    n_failures: int = 0
    last_error: str = ""
    unknown: dict[str, int] = field(default_factory=dict)
    n_database_errors: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    n_open_alerts: int = 0

    def write(self, folder: Path) -> None:
        """Puts the file into the published folder."""
        replace_file(folder / FILE, (json.dumps(asdict(self), indent=2) + "\n").encode())


_STATUS: Final = TypeAdapter(ScorerStatus)


def read_status(folder: Path) -> ScorerStatus | None:
    """The scorer's state; None: no scorer ever ran here, or its file cannot be read."""
    try:
        found = _STATUS.validate_json((folder / FILE).read_bytes())
        return found if datetime.fromisoformat(found.updated_at).tzinfo else None
    except (OSError, ValueError):
        return None
