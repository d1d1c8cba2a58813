"""All that pages are made from, opened once: the sources of the API, logins, and short memories.

Routes are in `pipelines.board.routes`; what a page says is in the modules of the pages.
"""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar, cast

import polars as pl
from polars.exceptions import PolarsError

from features.errors import ForewarnError
from features.tables import CORE_NODE_STATES
from pipelines.api.access import Access
from pipelines.api.sources import Sources
from pipelines.board.asked import AskedHere
from pipelines.board.hook_view import HookView, hook_view
from pipelines.board.session import Sessions
from pipelines.board.stored import states_now
from pipelines.storage.store import TableStore

STATES_KEPT_S: Final = 15.0
HOOK_KEPT_S: Final = 3.0
_MOST_KEPT: Final = 32

_Value = TypeVar("_Value")


class Kept:
    """Values that are dear to make, kept for some seconds; the oldest make room.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: dict[Hashable, tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, seconds: float, make: Callable[[], _Value]) -> _Value:
        """The value kept under a key, made anew where it is older than some seconds."""
        with self._lock:
            found = self._values.get(key)
            if found is not None and self._clock() - found[0] < seconds:
                return cast("_Value", found[1])
        made = make()
        with self._lock:
            self._values.pop(key, None)
            while len(self._values) >= _MOST_KEPT:
                self._values.pop(next(iter(self._values)))
            self._values[key] = (self._clock(), made)
        return made


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What pages are made from.

    Attributes:
        sources: What the API reads too.
        access: Who may do what.
        sessions: Logins.
        asked: Requests made here.
        kept: What is dear to make.
    """

    sources: Sources
    access: Access
    sessions: Sessions
    asked: AskedHere = field(default_factory=AskedHere)
    kept: Kept = field(default_factory=Kept)

    @property
    def store(self) -> TableStore:
        """The core tables."""
        return TableStore(self.sources.settings.store_root)

    def hook(self, now: datetime) -> HookView:
        """How the hook stands; a ledger that cannot be read is said, not raised."""

        def read() -> HookView:
            try:
                return hook_view(self.sources.ledger, now=now)
            except (ForewarnError, OSError, KeyError, ValueError) as error:
                return HookView(problem=str(error))

        return self.kept.get("hook", HOOK_KEPT_S, read)

    def states(self, now: datetime) -> pl.DataFrame:
        """`node`, `state`, `reason`, `actor` at present; empty where nobody says."""

        def read() -> pl.DataFrame:
            try:
                return states_now(self.store, now)
            except (ForewarnError, OSError, PolarsError):
                return CORE_NODE_STATES.empty().select("node", "state", "reason", "actor")

        return self.kept.get("states", STATES_KEPT_S, read)
