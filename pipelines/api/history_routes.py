"""Routes of what the score database keeps: histories, alerts, outcomes, live quality.

While the database is gone they answer 503, and every other route goes on.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final

import polars as pl
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from pipelines.api.answers import json_answer
from pipelines.api.asked import NO_QUERY, AskedAlerts, AskedHistory, GpuName, NodeName
from pipelines.api.fleet_view import Kind
from pipelines.api.shapes import AlertPage, HistoryPage, OpenAlerts, OutcomePage, Quality
from pipelines.api.sources import Sources
from pipelines.serving import score_reader
from pipelines.serving.delivery import read_book

MOST_OPEN: Final = 1000
_OPEN: Final = (
    "node", "horizon_h", "as_of", "last_above", "ends_at", "score", "threshold", "fault_type",
    "reasons", "model_version",
)  # fmt: skip


def history_router(sources: Sources) -> APIRouter:
    """The routes.

    Args:
        sources: What they read.
    """
    router = APIRouter(tags=["history"])

    def history(request: Request, kind: Kind, entity_id: str, asked: AskedHistory) -> Response:
        read = partial(
            score_reader.score_history,
            sources.engine,
            kind=kind,
            entity_id=entity_id,
            horizon_h=asked.horizon_h or sources.settings.horizons_h[0],
            since=asked.since,
        )
        return json_answer(request, whole_ticks(read, before=asked.before, limit=asked.limit))

    @router.get("/nodes/{node}/history", response_model=HistoryPage, summary="Of a node's score")
    def node_history(
        request: Request, node: NodeName, asked: Annotated[AskedHistory, Query()]
    ) -> Response:
        """The ticks at which the score of a node changed, newest first."""
        return history(request, "node", node, asked)

    @router.get("/gpus/{gpu_uuid}/history", response_model=HistoryPage, summary="Of a GPU's score")
    def gpu_history(
        request: Request, gpu_uuid: GpuName, asked: Annotated[AskedHistory, Query()]
    ) -> Response:
        """The ticks at which the score of a GPU changed; none for one that was always quiet."""
        return history(request, "gpu", gpu_uuid, asked)

    _alert_routes(router, sources)
    return router


def _alert_routes(router: APIRouter, sources: Sources) -> None:
    @router.get("/alerts", response_model=AlertPage, summary="Alerts that were raised")
    def alerts(request: Request, asked: Annotated[AskedAlerts, Query()]) -> Response:
        """Newest first."""
        read = partial(score_reader.alerts, sources.engine, since=asked.since, node=asked.node)
        return json_answer(request, whole_ticks(read, before=asked.before, limit=asked.limit))

    @router.get(
        "/alerts/open",
        response_model=OpenAlerts,
        summary="Alerts that are open",
        dependencies=NO_QUERY,
    )
    def open_alerts(request: Request) -> Response:
        """Highest score first; they stand in the published folder, so no database is needed."""
        found = sorted(
            read_book(sources.settings.scores_dir).open, key=lambda one: (-one.score, one.node)
        )
        rows = [{name: getattr(one, name) for name in _OPEN} for one in found[:MOST_OPEN]]
        return json_answer(request, {"n_total": len(found), "rows": rows})

    @router.get("/outcomes", response_model=OutcomePage, summary="Did alerts come true?")
    def outcomes(request: Request, asked: Annotated[AskedAlerts, Query()]) -> Response:
        """What became of each alert, and incidents without one; newest first."""
        read = partial(score_reader.outcomes, sources.engine, since=asked.since, node=asked.node)
        return json_answer(request, whole_ticks(read, before=asked.before, limit=asked.limit))

    @router.get(
        "/quality",
        response_model=Quality,
        summary="Quality of the live system",
        dependencies=NO_QUERY,
    )
    def quality(request: Request) -> Response:
        """By week, horizon and model version, newest week first."""
        return json_answer(
            request, {"rows": score_reader.live_quality(sources.engine).head(2000).to_dicts()}
        )


def whole_ticks(
    read: Callable[..., pl.DataFrame], *, before: datetime | None, limit: int
) -> dict[str, Any]:
    """A page that never cuts a tick in two, for the next one begins before the last `as_of`.

    Args:
        read: Gives rows by falling `as_of`, by `before` and `limit`.
        before: Only earlier ones.
        limit: Rows of a page; more only where a single tick has more.

    Returns:
        `before` of the next page (null: there is none) and `rows`.
    """
    rows = read(before=before, limit=limit + 1)
    if rows.height <= limit:
        return {"before": None, "rows": rows.to_dicts()}
    whole = rows.filter(pl.col("as_of") > rows["as_of"][-1])
    if whole.is_empty():
        rows = read(before=before, limit=score_reader.MOST)
        whole = rows.filter(pl.col("as_of") == rows["as_of"][0])
    return {"before": whole["as_of"][-1], "rows": whole.to_dicts()}
