"""The audit trail: entries of the ledger by node, person and kind, and whether its chain holds.

The ledger is read in `pipelines.api.ledger_reader`; verifying is
`remediation.ledger.entries.verify_chain`.
"""

from datetime import datetime
from typing import Any, Final

from pipelines.api.ledger_reader import LedgerReader
from pipelines.board.desk import Desk
from pipelines.board.words import KIND_WORDS, told
from pipelines.report.words import plain
from remediation.ledger.entries import KINDS, Entry, verify_chain

PAGE_ROWS: Final = 100
MOST_VERIFIED: Final = 200_000
"""Entries verified by a page; a longer ledger takes minutes and is verified at a terminal."""

_LOOKED_AT: Final = 5000
_STEP: Final = 10_000
_VERIFIED_KEPT_S: Final = 600.0


def audit_values(
    desk: Desk,
    *,
    node: str,
    actor: str,
    kind: str,
    before: int | None,
    is_verifying: bool,
    now: datetime,
) -> dict[str, Any]:
    """What the page shows.

    Args:
        desk: What pages are made from.
        node: Only entries about this node; empty: any.
        actor: Only entries of this person or program; empty: any.
        kind: Only entries of this kind; empty: any.
        before: Only entries before this place.
        is_verifying: Whether the chain is to be verified.
        now: The present.

    Raises:
        LedgerError: It cannot be read.
    """
    ledger = desk.sources.ledger
    kinds = (kind,) if kind in KINDS else KINDS
    # The reader cannot filter by person: entries are looked through until a page is full.
    found: list[Entry] = []
    at, looked = before, 0
    while len(found) < PAGE_ROWS and looked < _LOOKED_AT:
        part = ledger.entries(kinds=kinds, node=node or None, before=at, limit=500)
        if not part:
            at = None
            break
        kept = [one for one in part if not actor or one.actor == actor]
        room = PAGE_ROWS - len(found)
        found += kept[:room]
        looked += len(part)
        at = found[-1].seq if len(kept) > room else part[-1].seq
    verified = None
    if is_verifying:
        verified = desk.kept.get("verified", _VERIFIED_KEPT_S, lambda: verify(ledger, now=now))
    return {
        "is_there": ledger.is_there,
        "rows": [_row(one) for one in found],
        "kinds": [(one, KIND_WORDS[one]) for one in KINDS],
        "node": node,
        "actor": actor,
        "kind": kind if kind in KINDS else "",
        "before": at if len(found) == PAGE_ROWS or looked >= _LOOKED_AT else None,
        "verified": verified,
    }


def _row(one: Entry) -> dict[str, Any]:
    return {
        "seq": one.seq,
        "at": one.recorded_at,
        "kind": KIND_WORDS.get(one.kind, one.kind),
        "node": one.node,
        "actor": one.actor,
        "actuator": one.actuator,
        "words": plain(told(one.body, one.kind)),
        "hash": one.hash[:12],
    }


def verify(ledger: LedgerReader, *, now: datetime) -> dict[str, Any]:
    """Recomputes the chain from the first entry.

    Args:
        ledger: The ledger.
        now: The present.

    Returns:
        `is_whole` (None: too long to be verified here), `words`, `at`.

    Raises:
        LedgerError: It cannot be read.
    """
    entries: list[Entry] = []
    before = None
    while part := ledger.entries(before=before, limit=_STEP):
        entries += part
        before = part[-1].seq
        if len(entries) > MOST_VERIFIED:
            words = (
                f"It has more than {MOST_VERIFIED:,} entries. Verify it at a terminal: "
                f"forewarn remediate ledger verify"
            )
            return {"is_whole": None, "words": words, "at": now}
    found = verify_chain(reversed(entries))
    if found.is_whole:
        words = (
            f"All {found.n_entries:,} entries hold; the head is {found.head[:16]}. Compare it with "
            f"a head noted elsewhere: a cut-off end shows only there."
        )
        return {"is_whole": True, "words": words, "at": now}
    return {"is_whole": False, "words": f"The chain is broken: {found.problem}.", "at": now}
