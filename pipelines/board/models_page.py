"""The page of models: versions, aliases, drift, and the card of each.

The registry is read in `pipelines.api.model_view`, what a card says is in
`models.candidate.card_sections`.
"""

from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from features.errors import ForewarnError
from features.monitoring_tables import DRIFT
from models.candidate.card_sections import card_sections
from models.registry.version_page import Standing
from pipelines.board.desk import Desk
from pipelines.flow.drift import drift_in_words
from pipelines.storage.store import TableStore

_STANDING: Final = tuple(Standing.__dataclass_fields__)


def models_values(desk: Desk, *, label: str) -> dict[str, Any]:
    """What the page shows; a registry that cannot be read is named.

    Args:
        desk: What pages are made from.
        label: Version whose card is shown, such as `gpu-failure-24h/3`; empty: none.

    Raises:
        ApiError: There is no such version.
    """
    problems: list[str] = []
    versions: list[dict[str, Any]] = []
    try:
        versions = desk.sources.models.versions()
    except (ForewarnError, OSError) as error:
        problems.append(f"The registry cannot be read: {error}")
    return {
        "versions": versions,
        "drift": _drift(desk, problems),
        "label": label,
        "sections": _sections(desk, label) if label and not problems else (),
        "problems": problems,
    }


def _sections(desk: Desk, label: str) -> Any:
    name, _, number = label.rpartition("/")
    found = desk.sources.models.card(name, int(number) if number.isdecimal() else -1)
    standing = Standing(**{one: found["standing"][one] for one in _STANDING})
    return card_sections(found["card"], standing)


def _drift(desk: Desk, problems: list[str]) -> dict[str, Any]:
    """What drifted in the newest week that was looked at."""
    try:
        found = desk.reads.read("drift", lambda: _stored_drift(desk.store))
    except (ForewarnError, OSError, PolarsError) as error:
        problems.append(f"Drift cannot be read: {error}")
        return {"text": "", "is_alarm": None}
    if found is None:
        return {"text": "", "is_alarm": None}
    text, code = drift_in_words(found.sort("model_version", "week", pl.col("kind")))
    return {"text": text, "is_alarm": bool(code)}


def _stored_drift(store: TableStore) -> pl.DataFrame | None:
    return store.read(DRIFT) if store.has(DRIFT) else None
