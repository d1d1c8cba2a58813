"""Hours whose features were computed before older hours were made, and when to make them anew.

After time off the newest hour is scored first, so that nobody waits for a warning; the past that
its features lacked is kept here until it has been made up. What is launched is decided in
`pipelines.orchestration.hour_plan`.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pipelines.storage.atomic_files import replace_file
from pipelines.storage.store import Span

FILE: Final = "early_hours.json"
_FORM: Final = "%Y-%m-%dT%H"

Lacked = Mapping[datetime, AbstractSet[datetime]]
"""Start of each early partition to the starts of older ones that were missing when it was made."""


def read_early(folder: Path, *, step: timedelta) -> Lacked:
    """The partitions that were made early.

    Args:
        folder: Where the file is; without it there are none. One that cannot be read counts as
            empty: then features stay as they were first made.
        step: Length of a partition.
    """
    try:
        kept = json.loads((folder / FILE).read_bytes())
        return {
            _moment(hour): {
                part.start
                for start, end in stretches
                for part in Span(_moment(start), _moment(end)).steps(step)
            }
            for hour, stretches in kept.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def note_made(folder: Path, made: Span, *, lacked: AbstractSet[datetime], step: timedelta) -> None:
    """Notes what a run of features lacked; partitions that lacked nothing are forgotten.

    Args:
        folder: Where the file is kept.
        made: The partitions whose features were made.
        lacked: Starts of partitions that were due before the run and not stored.
        step: Length of a partition.
    """
    before = read_early(folder, step=step)
    hours = {part.start for part in made.steps(step)}
    after = {hour: older for hour, older in before.items() if hour not in hours}
    for hour in hours:
        if older := {start for start in lacked if start < hour and start not in hours}:
            after[hour] = older
    if after != before:
        kept = {f"{hour:{_FORM}}": _stretches(after[hour], step) for hour in sorted(after)}
        replace_file(folder / FILE, json.dumps(kept, indent=1).encode())


def to_make_anew(
    early: Lacked, *, missing: AbstractSet[datetime], aside: AbstractSet[datetime]
) -> set[datetime]:
    """Early partitions whose past has been made up, as far as it can be.

    One that they lacked must be there, and none still to come but those that were set aside: so a
    past that is made up in parts, or never whole, makes them anew once.

    Args:
        early: What was noted.
        missing: Starts of partitions without core tables.
        aside: Those of them that failed too often.

    Returns:
        Starts of the partitions.
    """
    return {
        hour
        for hour, older in early.items()
        if (still := older & missing) < older and still <= aside
    }


def _stretches(hours: Iterable[datetime], step: timedelta) -> list[tuple[str, str]]:
    ordered = sorted(hours)
    cuts = [i + 1 for i, (a, b) in enumerate(itertools.pairwise(ordered)) if b - a > step]
    edges = itertools.pairwise([0, *cuts, len(ordered)])
    return [(f"{ordered[a]:{_FORM}}", f"{ordered[b - 1] + step:{_FORM}}") for a, b in edges]


def _moment(text: str) -> datetime:
    return datetime.strptime(text, _FORM).replace(tzinfo=UTC)
