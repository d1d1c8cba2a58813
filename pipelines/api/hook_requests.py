"""What operators ask of the hook: signed, and put into its inbox. Nothing is acted on here.

The hook alone judges requests (`remediation.signed_requests`); routes are in `hook_routes`, pages
in `pipelines.board`.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from features.clock import Clock
from pipelines.api.access import Caller
from pipelines.api.answers import ApiError
from pipelines.api.ledger_reader import LedgerReader
from pipelines.settings import Settings
from remediation.inbox.files import submit
from remediation.inbox.site import load_key
from remediation.ledger.entries import Entry
from remediation.signed_requests import RefusedError, Request, RequestKey

What = Literal["approve", "hold", "undrain"]
LIFE: Final = timedelta(hours=1)
"""How long a request waits for the hook at most."""
_NOTHING: Final = "Nothing was asked for."


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What an operator wants.

    Attributes:
        what: approve, hold or undrain.
        node: About which node.
        confirm: The node again, as typed by the person.
        decision_id: For an approval: which decision.
        until: For a hold: until when the node is left alone.
        boot_id: Boot that the person saw; None: the last one that the ledger has.
    """

    what: What
    node: str
    confirm: str
    decision_id: str | None = None
    until: datetime | None = None
    boot_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request that now lies in the inbox.

    Attributes:
        request: The request.
        boot_from: Where its boot comes from: request, decision, hold or ledger.
    """

    request: Request
    boot_from: str


@dataclass(frozen=True)
class HookDesk:
    """Where requests are signed.

    Attributes:
        settings: The installation.
        ledger: Says what there is to approve or to return.
        now: Clock.
    """

    settings: Settings
    ledger: LedgerReader
    now: Clock

    @property
    def is_open(self) -> bool:
        """Whether anything can be asked for at all."""
        return self.settings.api.inbox is not None

    def ask(self, wish: Wish, caller: Caller) -> Asked:
        """Signs a wish and puts it into the inbox.

        Args:
            wish: What is wanted.
            caller: By whom; its name is the actor that the hook's settings must list.

        Raises:
            ApiError: The caller may not, the node is not confirmed, there is no inbox, or the
                ledger knows of nothing that the wish could mean.
            LedgerError: The ledger cannot be read.
            SettingsError: The key cannot be read.
        """
        if not caller.is_operator:
            raise ApiError(403, f"this needs a token of the role operator. {_NOTHING}")
        if wish.confirm != wish.node:
            raise ApiError(422, f"confirm: must be the name of the node, typed again. {_NOTHING}")
        inbox = self.settings.api.inbox
        if inbox is None:
            raise ApiError(409, f"api.inbox is not set, so the hook takes no requests. {_NOTHING}")
        boot_id, boot_from = self._boot(wish)
        now = self.now()
        if wish.until is not None and wish.until <= now:
            raise ApiError(422, f"until: must be yet to come. {_NOTHING}")
        try:
            request = Request(
                what=wish.what, actor=caller.name, created=now, expires=now + LIFE,
                nonce=secrets.token_hex(16), key_id=inbox.key_id, node=wish.node, boot_id=boot_id,
                decision_id=wish.decision_id, until=wish.until,
            )  # fmt: skip
        except RefusedError as error:
            raise ApiError(422, f"{error.reason}. {_NOTHING}") from error
        key = RequestKey(load_key(file=inbox.key.file, variable=inbox.key.variable))
        try:
            submit(inbox.folder, request, key)
        except OSError as error:
            raise ApiError(503, f"the inbox cannot be written to. {_NOTHING}") from error
        return Asked(request=request, boot_from=boot_from)

    def _boot(self, wish: Wish) -> tuple[str | None, str]:
        """The boot that a wish is about: the hook refuses it if the node has another by then."""
        if wish.what == "approve":
            return self._decision(wish).body["boot_id"], "decision"
        if wish.what == "undrain":
            standing = self.ledger.standing(self.now())
            held = None if standing is None else standing.view.held.get(wish.node)
            if held is None:
                raise ApiError(409, f"the ledger does not say that we hold this node. {_NOTHING}")
            return wish.boot_id or held.boot_id, "request" if wish.boot_id else "hold"
        if wish.boot_id is not None:
            return wish.boot_id, "request"
        for entry in self.ledger.entries(kinds=("decision", "intent"), node=wish.node, limit=1):
            body = entry.body
            return body.get("boot_id", body.get("before", {}).get("boot_id")), "ledger"
        raise ApiError(
            409,
            f"the ledger has nothing about this node, so its boot is unknown: give boot_id, or run "
            f"`forewarn remediate hold` where the hook runs. {_NOTHING}",
        )

    def _decision(self, wish: Wish) -> Entry:
        found = self.ledger.entries(
            kinds=("decision",), node=wish.node, decision_id=wish.decision_id or "", limit=1
        )
        if not found:
            raise ApiError(409, f"the ledger has no such decision for this node. {_NOTHING}")
        newest = self.ledger.entries(
            kinds=("decision",), node=wish.node, actuator=found[0].actuator, limit=1
        )
        if newest[0].decision_id != wish.decision_id:
            raise ApiError(409, f"a newer decision about this node was made. {_NOTHING}")
        if self.now() >= datetime.fromisoformat(found[0].body["expires_at"]):
            raise ApiError(409, f"the scores of this decision have expired. {_NOTHING}")
        return found[0]
