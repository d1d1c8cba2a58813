"""Routes of scores: the ranking, nodes, GPUs. Served from memory, without waiting for anything.

Histories and alerts, which a database has, are in `history_routes`.
"""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from features.vocabulary import FAULT_TYPES
from pipelines.api.answers import ApiError, tick_answer
from pipelines.api.asked import NO_QUERY, AskedNodes, AskedScores, GpuName, NodeName, one_of
from pipelines.api.fleet_view import Snapshot
from pipelines.api.score_pages import (
    Wanted,
    gpu_detail,
    node_detail,
    node_page,
    score_page,
)
from pipelines.api.shapes import GpuDetail, NodeDetail, NodePage, ScorePage
from pipelines.api.sources import Sources

_NOT_PUBLISHED = "no scores are published yet"


def score_router(sources: Sources) -> APIRouter:
    """The routes.

    Args:
        sources: What they read.
    """
    router = APIRouter(tags=["scores"])

    def answer(request: Request, make: Callable[[Snapshot], dict[str, Any]]) -> Response:
        return tick_answer(request, snapshot_of(sources), now=sources.now(), make=make)

    @router.get("/scores", response_model=ScorePage, summary="Entities by falling score")
    async def scores(request: Request, asked: Annotated[AskedScores, Query()]) -> Response:
        """The newest tick, highest scores first, unknown ones last."""
        one_of("fault_type", asked.fault_type, FAULT_TYPES)
        wanted = Wanted(**asked.model_dump())

        def make(snapshot: Snapshot) -> dict[str, Any]:
            return score_page(snapshot, wanted, usual_h=sources.usual_horizon_h(snapshot))

        return answer(request, make)

    @router.get("/nodes", response_model=NodePage, summary="Nodes by name")
    async def nodes(request: Request, asked: Annotated[AskedNodes, Query()]) -> Response:
        """Every node of the newest tick."""
        return answer(
            request,
            lambda snapshot: node_page(
                snapshot, rack=asked.rack, after=asked.after, limit=asked.limit
            ),
        )

    @router.get("/nodes/{node}", response_model=NodeDetail, summary="A node", dependencies=NO_QUERY)
    async def node(request: Request, node: NodeName) -> Response:
        """Scores, fault types and reasons of a node and of its GPUs."""
        return answer(request, lambda snapshot: node_detail(snapshot, node))

    @router.get(
        "/gpus/{gpu_uuid}", response_model=GpuDetail, summary="A GPU", dependencies=NO_QUERY
    )
    async def gpu(request: Request, gpu_uuid: GpuName) -> Response:
        """Scores, fault types and reasons of a GPU."""
        return answer(request, lambda snapshot: gpu_detail(snapshot, gpu_uuid))

    return router


def snapshot_of(sources: Sources) -> Snapshot:
    """The newest tick.

    Raises:
        ApiError: Nothing is published, or it cannot be read.
    """
    snapshot = sources.fleet.current()
    if snapshot is None:
        raise ApiError(503, sources.fleet.problem or _NOT_PUBLISHED)
    return snapshot
