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
from pipelines.board.zone import Zone
from pipelines.storage.in_time import InTime
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

    def last(self, key: Hashable) -> Any:
        """The value made last under a key, however old; None: there is none."""
        with self._lock:
            found = self._values.get(key)
        return None if found is None else found[1]


@dataclass(frozen=True)
class States:
    """What the scheduler says of the nodes, as far as it can be read.

    Attributes:
        frame: `node`, `state`, `reason`, `actor` at present; a node that is not in it is unknown.
        problem: Why nothing could be read; empty: it was read.
        silent_since: First look that failed; None: none did. Between looks nobody knows.
    """

    frame: pl.DataFrame
    problem: str = ""
    silent_since: datetime | None = None

    def words(self, zone: Zone) -> str:
        """What is unknown, and since which look; empty: nothing is.

        Args:
            zone: Whose clocks times are shown on.
        """
        if self.silent_since is None:
            return ""
        return (
            "Which nodes are drained or down is unknown: the tables could not be read at "
            f"{zone.text(self.silent_since)}, nor at any look since. {self.problem}"
        )


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

    @property
    def reads(self) -> InTime:
        """How the core tables are read, lest a page wait for a bucket that does not answer."""
        return self.sources.reads

    def hook(self, now: datetime) -> HookView:
        """How the hook stands; a ledger that cannot be read is said, not raised."""

        def read() -> HookView:
            try:
                return hook_view(self.sources.ledger, now=now)
            except (ForewarnError, OSError, KeyError, ValueError) as error:
                return HookView(problem=str(error))

        return self.kept.get("hook", HOOK_KEPT_S, read)

    def states(self, now: datetime) -> States:
        """The nodes' states; tables that cannot be read are said, not raised."""

        def read() -> States:
            try:
                frame = self.reads.read("states", lambda: states_now(self.store, now))
                return States(frame)
            except (ForewarnError, OSError, PolarsError) as error:
                before: States | None = self.kept.last("states")
                silent = before.silent_since if before is not None else None
                empty = CORE_NODE_STATES.empty().select("node", "state", "reason", "actor")
                return States(empty, str(error), silent or now)

        return self.kept.get("states", STATES_KEPT_S, read)
