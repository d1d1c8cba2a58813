"""People's requests by command: finds what they are about, signs them, puts them into the inbox.

The hook alone judges and carries them out, in its next round; nothing is acted on here.
"""

import getpass
import hashlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from features.errors import DataError, SettingsError
from remediation.actuators.protocol import Actuator, read_state
from remediation.cluster.state import NodeView
from remediation.hook_settings import HookSettings
from remediation.inbox.files import submit
from remediation.inbox.site import prepare_inbox
from remediation.ledger.entries import Entry, Ledger
from remediation.ledger.view import LedgerView
from remediation.plan import plain
from remediation.program.parts import signing_key
from remediation.signed_requests import Request

LIFE: Final = timedelta(hours=1)
"""How long a request waits for a round at most."""

SHORT: Final = 8


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Who asks, and when.

    Attributes:
        actor: Name of the person, as the settings list it.
        now: The present.
    """

    actor: str
    now: datetime


def person() -> str:
    """The person at the keyboard: also behind sudo, and where the account has no name."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container's number; the kill switch must not fail for that
        return f"uid-{os.getuid()}"


def short_id(key: str) -> str:
    """A name of an escalation that can be typed at night.

    >>> short_id("escalation:burst:slurm:fleet")
    'f61de0b3'
    """
    return hashlib.sha256(key.encode()).hexdigest()[:SHORT]


def ask(
    settings: HookSettings,
    what: str,
    asking: Asking,
    *,
    view: NodeView | None = None,
    decision_id: str | None = None,
    escalation: str | None = None,
    until: datetime | None = None,
) -> Path:
    """Signs a request and puts it into the inbox.

    Args:
        settings: The hook's settings.
        what: What is asked for.
        asking: By whom, when.
        view: The node as it is now, where it is about one.
        decision_id: The decision, for an approval.
        escalation: Key of the escalation, for an acknowledgement.
        until: When a hold ends.

    Returns:
        The request's file.

    Raises:
        SettingsError: There is no inbox, the person may not ask, or no key can be had.
        RefusedError: No request may say this.
        OSError: The inbox cannot be written to.
    """
    inbox = settings.inbox
    if inbox is None:
        raise SettingsError(
            "inbox: not set, so nobody can ask the hook for anything. Add inbox with folder, keys "
            "and actors; docs/remediation.md shows how"
        )
    may = inbox.actors.get(asking.actor)
    if may is None or not {"*", what} & set(may):
        listed = ", ".join(may) if may else "nothing"
        raise SettingsError(f"inbox.actors: {asking.actor!r} may ask for {listed}, not {what}")
    key_id, key = signing_key(inbox, asking.actor)
    request = Request(
        what=what,
        actor=asking.actor,
        created=asking.now,
        expires=asking.now + LIFE,
        nonce=secrets.token_hex(16),
        key_id=key_id,
        node=view.name if view else None,
        boot_id=view.boot_id if view else None,
        decision_id=decision_id,
        escalation=escalation,
        until=until,
    )
    prepare_inbox(inbox.folder)
    return submit(inbox.folder, request, key)


def node_now(actuator: Actuator, name: str) -> NodeView:
    """The node as it is now.

    Raises:
        DataError: The cluster does not know it, or cannot be asked.
    """
    found = read_state(actuator, name)
    if found is None:
        raise DataError(
            f"node {plain(name)}: the cluster does not know it, or cannot be asked. Nothing was "
            f"asked for."
        )
    return found


def check_held(view: LedgerView, name: str) -> None:
    """Refuses what counts only for a node that we hold, whatever state it is in meanwhile.

    Raises:
        DataError: The ledger does not say that we hold it.
    """
    if name not in view.held:
        raise DataError(
            f"node {plain(name)}: not held by forewarn, so there is nothing to return. Nothing "
            f"was asked for; `forewarn remediate status` lists what is held."
        )


def held_node_now(actuator: Actuator, view: LedgerView, name: str) -> NodeView:
    """The node as it is now, if it is held by us, by node and ledger alike.

    Args:
        actuator: Reads the node.
        view: How things stand by the ledger.
        name: Node.

    Raises:
        DataError: It is not, or cannot be told.
    """
    found = node_now(actuator, name)
    if found.owner != "forewarn":
        holder = (
            f"it is {found.state}"
            if found.owner == "none"
            else f"it is held by {found.actor or 'someone else'} ({found.reason or 'no reason'})"
        )
        raise DataError(
            f"node {plain(name)}: {plain(holder)}, not held by forewarn. The hook returns only "
            f"what it took itself."
        )
    if name not in view.held:
        raise DataError(
            f"node {plain(name)}: it carries forewarn's reason, but this ledger does not know of "
            f"it, so the hook does not return it. Look at the node, and return it by hand."
        )
    return found


def decision_of(ledger: Ledger, decision_id: str, *, actuator: str) -> Entry:
    """The last entry of a decision.

    Raises:
        DataError: The ledger has none.
    """
    for one in reversed(ledger.entries(kinds=("decision",))):
        if one.decision_id == decision_id and one.actuator == actuator:
            return one
    raise DataError(
        f"decision {plain(decision_id)}: the ledger has none of {actuator}. `forewarn remediate "
        f"why NODE` names the last one of a node."
    )


def escalation_of(open_ones: Sequence[Entry], named: str) -> Entry:
    """The escalation that is meant, by its key or short id.

    Args:
        open_ones: Escalations that nobody has acknowledged.
        named: Key, or the short id that `status` shows.

    Raises:
        DataError: There is none, or more than one.
    """
    found = [one for one in open_ones if named in (one.key, short_id(one.key))]
    if len(found) != 1:
        listed = ", ".join(short_id(one.key) for one in open_ones[:10]) or "none"
        raise DataError(f"question {plain(named)}: not one that is open; open are {listed}")
    return found[0]
