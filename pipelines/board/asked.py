"""Requests that were made at this board, until the hook's ledger tells what became of them.

They are signed and put into the inbox in `pipelines.api.hook_requests`; only the hook acts.
"""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from pipelines.board.zone import Zone
from remediation.ledger.entries import Entry
from remediation.signed_requests import Request

MOST_KEPT: Final = 200
SHOWN: Final = 10

Outcome = Literal["waiting for the hook", "taken by the hook", "refused by the hook", "never taken"]


@dataclass(frozen=True)
class Followed:
    """A request and how far it has come.

    Attributes:
        request: The request.
        state: How far.
        words: What was asked, by whom, and why it was refused.
        at: When it was asked.
    """

    request: Request
    state: Outcome
    words: str
    at: datetime


class AskedHere:
    """What was asked at this board since it started; the newest are kept."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque(maxlen=MOST_KEPT)
        self._lock = threading.Lock()

    def add(self, request: Request) -> None:
        """Notes a request that lies in the inbox."""
        with self._lock:
            self._requests.append(request)

    def follow(
        self, outcomes: Mapping[str, Entry], *, now: datetime, zone: Zone, node: str | None = None
    ) -> tuple[Followed, ...]:
        """What became of them, the newest first.

        Args:
            outcomes: Entries of requests in the ledger, by nonce.
            now: The present.
            zone: Whose clocks times are shown on.
            node: Only about this node.
        """
        with self._lock:
            requests = [one for one in self._requests if node is None or one.node == node]
        return tuple(
            _followed(one, outcomes.get(one.nonce), now=now, zone=zone)
            for one in requests[: -SHOWN - 1 : -1]
        )


def _followed(request: Request, entry: Entry | None, *, now: datetime, zone: Zone) -> Followed:
    asked = f"{said_of(request, zone)}, asked by {request.actor}"
    if entry is None:
        if now < request.expires:
            return Followed(request, "waiting for the hook", asked, request.created)
        words = f"{asked}: the hook did not read it before it expired. Is the hook running?"
        return Followed(request, "never taken", words, request.created)
    body = entry.body
    if body.get("status") == "accepted":
        return Followed(request, "taken by the hook", asked, request.created)
    words = f"{asked}: {body.get('reason') or body.get('rule') or 'no reason was given'}"
    return Followed(request, "refused by the hook", words, request.created)


def said_of(request: Request, zone: Zone) -> str:
    """What a request asks for, in words."""
    if request.what == "hold" and request.until is not None:
        return f"leave {request.node} alone until {zone.text(request.until)}"
    return f"{request.what} {request.node}"
