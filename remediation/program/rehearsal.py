"""A round that changes nothing, not even the ledger: what a plan, and `why`, rest on.

It decides and is guarded as a real round would be, under the same actuator's name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from remediation.hook import HookRun, run_once
from remediation.ledger.entries import (
    KINDS,
    Entry,
    Ledger,
    MemoryLedger,
    NewEntry,
    Verification,
)
from remediation.program.asked import asked_of, guards_with
from remediation.program.round import Hook, read_tick, site_on
from remediation.site import Site


class Overlay:
    """A ledger over another that is only read: what is written is kept in memory.

    Args:
        below: The other ledger.
    """

    def __init__(self, below: Ledger) -> None:
        self._below = below
        self._known = {one.key: one for one in below.entries()}
        self._above = MemoryLedger()

    def append(self, new: NewEntry) -> bool:
        """As in `Ledger`."""
        return self.append_all((new,))[0]

    def append_all(self, new: Sequence[NewEntry]) -> tuple[bool, ...]:
        """As in `Ledger`."""
        return tuple([self._append(one) for one in new])

    def entries(
        self, *, kinds: tuple[str, ...] = KINDS, since: datetime | None = None
    ) -> tuple[Entry, ...]:
        """As in `Ledger`; what is below comes first."""
        above = self._above.entries(kinds=kinds, since=since)
        own = tuple(one for one in above if one.key not in self._known)
        return (*self._below.entries(kinds=kinds, since=since), *own)

    def verify(self, *, expected_head: str | None = None) -> Verification:
        """As in `Ledger`; only what is below can have been tampered with."""
        return self._below.verify(expected_head=expected_head)

    def _append(self, new: NewEntry) -> bool:
        if new.key in self._known:
            return False
        answered = self._known.get(new.refers_to or "")
        if answered is not None:
            self._above.append(_copied(answered))
        return self._above.append(new)


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """What a round would do now.

    Attributes:
        run: The round.
        site: The site's settings that it was decided by.
        messages: What a person must know.
    """

    run: HookRun
    site: Site
    messages: tuple[str, ...]


def rehearse(hook: Hook) -> Rehearsed:
    """Runs a round without changing anything.

    Args:
        hook: The hook.

    Raises:
        ForewarnError: A part cannot be read.
    """
    tick = read_tick(hook.scores, hook.clock())
    site, unsaid = site_on(hook.settings.site, tick)
    requested = asked_of(hook.ledger, actuator=hook.name)
    if requested.stopped_by is not None:
        site = site.model_copy(update={"is_stopped": True})
    run = run_once(
        scores=tick,
        cluster=hook.ports.cluster,
        actuator=hook.ports.rehearsal,
        ledger=Overlay(hook.ledger),
        site=site,
        clock=hook.clock,
        guards=guards_with(requested),
    )
    messages = (*([] if unsaid is None else [unsaid]), *run.messages)
    return Rehearsed(run=run, site=site, messages=messages)


def _copied(entry: Entry) -> NewEntry:
    """An entry from below, so that one above may answer it."""
    return NewEntry(
        key=entry.key,
        kind=entry.kind,
        recorded_at=entry.recorded_at,
        actuator=entry.actuator,
        actor=entry.actor,
        node=entry.node,
        decision_id=entry.decision_id,
        refers_to=None,
        body=entry.body,
    )
