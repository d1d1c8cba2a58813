"""Routes of the pages that only show: fleet, node, GPU, quality, data, models, audit, and assets.

What changes anything is in `pipelines.board.form_routes`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from polars.exceptions import PolarsError

from features.errors import ForewarnError
from features.vocabulary import FAULT_TYPES
from pipelines.api.answers import ApiError
from pipelines.api.fleet_view import Snapshot
from pipelines.board.audit_page import audit_values
from pipelines.board.data_page import data_values
from pipelines.board.desk import Desk
from pipelines.board.entity_page import SPANS, entity_values
from pipelines.board.fleet_page import ONLY, Wanted
from pipelines.board.fleet_values import fleet_values
from pipelines.board.look import script, style_sheet
from pipelines.board.models_page import models_values
from pipelines.board.page import SECURITY, frame_of, problem_page, respond
from pipelines.board.quality_page import quality_values
from pipelines.serving.score_reader import EntityKind

FOR_GOOD: Final = "public, max-age=31536000, immutable"
Short = Annotated[str, Query(max_length=300)]
Number = Annotated[int, Query(ge=1, le=10**9)]
Horizon = Annotated[int | None, Query(ge=1, le=8784)]


def page_router(desk: Desk) -> APIRouter:
    """The routes.

    Args:
        desk: What pages are made from.
    """
    router = APIRouter(include_in_schema=False)
    _add_fleet(router, desk)
    _add_entities(router, desk)
    _add_records(router, desk)
    _add_assets(router)
    return router


def _add_fleet(router: APIRouter, desk: Desk) -> None:
    @router.get("/")
    def fleet(
        request: Request,
        q: Short = "",
        rack: Short = "",
        type: Short = "",  # noqa: A002 - the parameter's name in the address
        only: Short = "",
        horizon: Horizon = None,
        page: Number = 1,
    ) -> Response:
        """Who is at risk, and what happens next."""
        wanted = Wanted(
            horizon_h=horizon,
            text=q.strip(),
            rack=rack,
            fault_type=type if type in FAULT_TYPES else "",
            only=only if only in ONLY else "",
            page=page,
        )
        frame = frame_of(desk, request)
        make = partial(fleet_values, desk, wanted=wanted, zone=frame.zone, now=frame.now)
        return shown(desk, request, "fleet.html.j2", make)


def _add_entities(router: APIRouter, desk: Desk) -> None:
    def entity(
        request: Request, kind: EntityKind, name: str, span: str, horizon_h: int | None
    ) -> Response:
        frame = frame_of(desk, request)
        snapshot = desk.sources.fleet.current()
        values = entity_values(
            desk,
            kind=kind,
            name=name,
            snapshot=snapshot,
            horizon_h=_horizon(desk, snapshot, horizon_h),
            span_name=span if span in SPANS else "7d",
            zone=frame.zone,
            now=frame.now,
        )
        if values is None:
            what = "node" if kind == "node" else "GPU"
            raise ApiError(404, f"Neither scores nor the inventory know a {what} of this name.")
        return respond(desk, request, "entity.html.j2", values, refresh_s=120)

    @router.get("/node")
    def node(
        request: Request, name: Short, span: Short = "7d", horizon: Horizon = None
    ) -> Response:
        """All about a node."""
        return guarded(desk, request, partial(entity, request, "node", name, span, horizon))

    @router.get("/gpu")
    def gpu(request: Request, id: Short, span: Short = "7d", horizon: Horizon = None) -> Response:  # noqa: A002
        """All about a GPU."""
        return guarded(desk, request, partial(entity, request, "gpu", id, span, horizon))


def _add_records(router: APIRouter, desk: Desk) -> None:
    @router.get("/quality")
    def quality(request: Request) -> Response:
        """Did the alerts come true?"""
        make = partial(quality_values, desk, now=desk.sources.now())
        return shown(desk, request, "quality.html.j2", make)

    @router.get("/data")
    def data(request: Request) -> Response:
        """Who went silent, since when."""
        make = partial(data_values, desk, now=desk.sources.now())
        return shown(desk, request, "data.html.j2", make)

    @router.get("/models")
    def models(request: Request, card: Short = "") -> Response:
        """Models and their cards."""
        return shown(desk, request, "models.html.j2", partial(models_values, desk, label=card))

    @router.get("/audit")
    def audit(
        request: Request,
        node: Short = "",
        actor: Short = "",
        kind: Short = "",
        before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
        verify: Literal["", "1"] = "",
    ) -> Response:
        """Who did what."""
        make = partial(
            audit_values,
            desk,
            node=node.strip(),
            actor=actor.strip(),
            kind=kind,
            before=before,
            is_verifying=verify == "1",
            now=desk.sources.now(),
        )
        return shown(desk, request, "audit.html.j2", make)


def _add_assets(router: APIRouter) -> None:
    @router.get("/static/board.css")
    def css() -> Response:
        """The style sheet."""
        headers = {**SECURITY, "cache-control": FOR_GOOD}
        return Response(style_sheet(), media_type="text/css", headers=headers)

    @router.get("/static/board.js")
    def js() -> Response:
        """The script."""
        headers = {**SECURITY, "cache-control": FOR_GOOD}
        return Response(script(), media_type="text/javascript", headers=headers)

    @router.get("/favicon.ico")
    def icon() -> Response:
        """None, without an error in every browser's log."""
        return Response(status_code=204, headers={"cache-control": FOR_GOOD})


def shown(
    desk: Desk, request: Request, template: str, make: Callable[[], Mapping[str, Any]]
) -> Response:
    """A page of what is made, or one that says why it cannot be."""
    return guarded(desk, request, lambda: respond(desk, request, template, make()))


def guarded(desk: Desk, request: Request, make: Callable[[], Response]) -> Response:
    """An answer, or a page that says what is wrong: a browser shows no problem documents."""
    try:
        return make()
    except ApiError as error:
        title = "Not found" if error.status == 404 else "This cannot be done"
        return problem_page(desk, request, status=error.status, title=title, words=str(error))
    except (ForewarnError, OSError, PolarsError) as error:
        title = "This part cannot be read at present"
        return problem_page(desk, request, status=503, title=title, words=str(error))


def _horizon(desk: Desk, snapshot: Snapshot | None, asked: int | None) -> int:
    known = desk.sources.settings.horizons_h if snapshot is None else snapshot.horizons_h
    if asked in known and asked is not None:
        return asked
    return known[0] if snapshot is None else desk.sources.usual_horizon_h(snapshot)
