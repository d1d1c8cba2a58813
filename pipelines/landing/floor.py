"""Since when a landed table is whole: before that, retention has removed rows as received.

What must not be built from such a table is in `pipelines.landing.rebuild_guard`, what is removed,
and when, in `pipelines.retention.landing`.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Final

from features.errors import DataError
from pipelines.storage.atomic_files import replace_file

_FILE: Final = "whole_since.json"


def floors_of(root: Path) -> dict[str, datetime]:
    """By table, the moment since which nothing was removed; tables not named are whole.

    Args:
        root: Folder of the landing.

    Raises:
        DataError: The file that says it is damaged.
    """
    path = root / _FILE
    try:
        read = json.loads(path.read_bytes())
        return {table: datetime.fromisoformat(at) for table, at in read.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read: {error}. It says which hours can be built again: put it back "
            f"from a backup, or write the oldest day of the landing into it, as "
            f'{{"raw/gpu_telemetry": "2026-01-05T00:00:00+00:00"}}.'
        ) from error


def raise_floor(root: Path, table: str, at: datetime) -> None:
    """Notes that rows from before a moment may be gone; to be called before they go.

    Args:
        root: Folder of the landing.
        table: Asset key of the landed table.
        at: The moment, a full hour; one that is earlier than noted changes nothing.
    """
    floors = floors_of(root)
    if table in floors and floors[table] >= at:
        return
    said = {name: when.isoformat() for name, when in sorted({**floors, table: at}.items())}
    replace_file(root / _FILE, json.dumps(said, indent=1).encode(), sync=True)
