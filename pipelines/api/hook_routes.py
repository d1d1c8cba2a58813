"""Routes of the hook: decisions, ledger, how things stand, and what operators ask for.

The ledger is only read; requests are signed in `hook_requests`, and judged by the hook alone.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from pipelines.api.answers import json_answer
from pipelines.api.asked import (
    NO_QUERY,
    AskedDecisions,
    AskedLedger,
    AskedStanding,
    Moment,
    one_of,
)
from pipelines.api.gate import CALLER
from pipelines.api.hook_requests import Asked, Wish
from pipelines.api.ledger_reader import LedgerReader
from pipelines.api.site_shapes import (
    Accepted,
    DecisionPage,
    LedgerPage,
    RequestBody,
    Standing,
)
from pipelines.api.sources import Sources
from remediation.ledger.entries import KINDS, Entry

MOST_LISTED: Final = 1000
NO_LEDGER: Final = (
    "there is no ledger: the hook has not run here, or api.ledger names another place"
)
_OF_BODY: Final = (
    "wanted", "action", "score", "status", "horizon_h", "fault_type", "as_of", "expires_at",
    "boot_id", "cost_of_acting", "cost_of_waiting", "jobs", "sentence", "model_version",
)  # fmt: skip


class PostedRequest(RequestBody):
    """As `RequestBody`, with a time that must have a zone."""

    until: Moment | None = None


def hook_router(sources: Sources) -> APIRouter:
    """The routes.

    Args:
        sources: What they read.
    """
    router = APIRouter(tags=["hook"])
    _ledger_routes(router, sources.ledger)

    @router.get("/ledger/state", response_model=Standing, summary="What is held, what waits")
    def state(request: Request, asked: Annotated[AskedStanding, Query()]) -> Response:
        """By the ledger; the cluster is not asked."""
        return json_answer(request, standing_values(sources, asked.actuator))

    @router.post(
        "/requests",
        response_model=Accepted,
        status_code=202,
        summary="Ask the hook for something",
        dependencies=NO_QUERY,
    )
    def ask(request: Request, body: PostedRequest) -> Response:
        """Needs a token of the role operator. Nothing is done here: the hook judges it."""
        done = sources.desk.ask(Wish(**body.model_dump()), getattr(request.state, CALLER))
        answer = json_answer(request, _accepted_values(done))
        answer.status_code = 202
        return answer

    return router


def _ledger_routes(router: APIRouter, ledger: LedgerReader) -> None:
    @router.get("/decisions", response_model=DecisionPage, summary="Decisions of the hook")
    def decisions(request: Request, asked: Annotated[AskedDecisions, Query()]) -> Response:
        """What the hook decided, with what every guard said; newest first."""
        found = ledger.entries(
            kinds=("decision",), node=asked.node, before=asked.before, limit=asked.limit
        )
        rows = [decision_row(one) for one in found]
        return json_answer(request, _page(ledger, found, rows, asked.limit))

    @router.get("/ledger", response_model=LedgerPage, summary="Entries of the ledger")
    def entries(request: Request, asked: Annotated[AskedLedger, Query()]) -> Response:
        """All that the hook and people did, newest first; each entry holds the hash of the last."""
        one_of("kind", asked.kind, KINDS)
        kinds = KINDS if asked.kind is None else (asked.kind,)
        found = ledger.entries(kinds=kinds, node=asked.node, before=asked.before, limit=asked.limit)
        rows = [ledger_row(one) for one in found]
        return json_answer(request, _page(ledger, found, rows, asked.limit))


def _accepted_values(done: Asked) -> dict[str, Any]:
    """A request that was handed to the hook, as `site_shapes.Accepted` says."""
    made = done.request
    return {
        "nonce": made.nonce,
        "what": made.what,
        "node": made.node,
        "actor": made.actor,
        "boot_id": made.boot_id,
        "boot_from": done.boot_from,
        "expires": made.expires,
        "ledger_key": made.ledger_key,
    }


def _page(
    ledger: LedgerReader, found: tuple[Entry, ...], rows: list[dict[str, Any]], limit: int
) -> dict[str, Any]:
    return {
        "before": found[-1].seq if len(found) == limit else None,
        "why_none": None if ledger.is_there else NO_LEDGER,
        "rows": rows,
    }


def decision_row(entry: Entry) -> dict[str, Any]:
    """A decision as `site_shapes.DecisionRow` says; what an old entry lacks is null."""
    body = entry.body
    verdicts = [
        {"guard": guard, "is_allowed": is_allowed, "reason": reason}
        for guard, is_allowed, reason, *_ in body.get("verdicts", ())
    ]
    return {
        "seq": entry.seq,
        "decided_at": entry.recorded_at,
        "actuator": entry.actuator,
        "decision_id": entry.decision_id,
        "node": entry.node,
        "verdicts": verdicts,
        **{name: body.get(name) for name in _OF_BODY},
    }


def ledger_row(entry: Entry) -> dict[str, Any]:
    """An entry as `site_shapes.LedgerRow` says."""
    names = [name for name in Entry.__dataclass_fields__ if name != "body_json"]
    return {name: getattr(entry, name) for name in names} | {"body": entry.body}


def standing_values(sources: Sources, actuator: str | None) -> dict[str, Any]:
    """How things stand, as `site_shapes.Standing` says."""
    standing = sources.ledger.standing(sources.now(), actuator=actuator)
    if standing is None:
        why = "the ledger is empty" if sources.ledger.is_there else NO_LEDGER
        nothing = {"n_held": 0, "held": [], "n_waiting": 0, "waiting": [], "n_open_intents": 0}
        return {"why_none": why, "actuator": None, "last_seq": None, **nothing}
    view = standing.view
    held = [
        {
            "node": node,
            "action": one.action,
            "since": one.since,
            "boot_id": one.boot_id,
            "is_seen": one.is_seen,
            "intent_key": one.intent_key,
        }
        for node, one in sorted(view.held.items())
    ]
    waiting = [
        {
            "key": one.key,
            "why": one.body["why"],
            "node": one.node,
            "asked_at": one.recorded_at,
            "text": one.body["text"],
        }
        for one in reversed(standing.waiting)
    ]
    return {
        "why_none": None,
        "actuator": standing.actuator,
        "last_seq": standing.last_seq,
        "n_held": len(held),
        "held": held[:MOST_LISTED],
        "n_waiting": len(waiting),
        "waiting": waiting[:MOST_LISTED],
        "n_open_intents": len(view.open_intents),
    }
