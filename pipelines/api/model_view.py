"""The registry as the API shows it: versions, aliases, cards; kept for a minute.

The registry itself is `models.registry.model_registry`; it is not made here where there is none.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from models.registry.model_registry import ModelRegistry
from models.registry.registered import RegisteredVersion
from pipelines.api.answers import ApiError
from pipelines.flow.registry_storage import registry_place
from pipelines.settings import Settings

KEPT_S: Final = 60.0
MOST_VERSIONS: Final = 50
"""Versions shown of each model, newest first."""
_MOST_CARDS: Final = 64
_LABEL: Final = re.compile(r"[\w.-]{1,100}", re.ASCII)


class ModelView:
    """Versions and cards of an installation.

    Args:
        settings: The installation.
        clock: Seconds that only go forward.
    """

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = ModelRegistry(registry_place(settings))
        self._clock = clock
        self._lock = threading.Lock()
        self._listed: list[dict[str, Any]] = []
        self._listed_at = float("-inf")
        self._cards: dict[str, dict[str, Any]] = {}

    def versions(self) -> list[dict[str, Any]]:
        """Versions of every model, newest first, with where each stands; none without a registry.

        Raises:
            ForewarnError: The registry cannot be read.
        """
        with self._lock:
            if self._clock() - self._listed_at >= KEPT_S:
                self._listed = self._list() if self._registry.place.is_there else []
                self._listed_at = self._clock()
            return self._listed

    def _list(self) -> list[dict[str, Any]]:
        return [
            asdict(self._registry.standing(version)) | {"name": name, "version": version.version}
            for name in self._registry.names()
            for version in self._registry.versions(name)[: -MOST_VERSIONS - 1 : -1]
        ]

    def card(self, name: str, version: int) -> dict[str, Any]:
        """The card of a version.

        Raises:
            ApiError: There is none.
            ForewarnError: Its files cannot be read.
        """
        label = f"{name}/{version}"
        listed = next((one for one in self.versions() if one["label"] == label), None)
        if listed is None or not _LABEL.fullmatch(name):
            raise ApiError(404, "no model has this name and version")
        with self._lock:
            if label not in self._cards:
                bundle = self._registry.load(RegisteredVersion(name, version))
                while len(self._cards) >= _MOST_CARDS:
                    del self._cards[next(iter(self._cards))]
                self._cards[label] = dict(bundle.card)
            return {"standing": listed, "card": self._cards[label]}
