"""Routes of the site: models, data health, whether the process lives, metrics.

Who may ask is decided in `gate`; only the two of liveness and readiness need no token.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from pipelines.api.answers import json_answer, problem
from pipelines.api.asked import NO_QUERY
from pipelines.api.site_shapes import Alive, DataHealth, ModelCard, Models, Ready
from pipelines.api.sources import Sources
from pipelines.serving.open_metrics import render

_NO_MODEL = "no model is registered: scores are priors until one is trained and promoted"
ModelName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,100}$", examples=["gpu-failure-24h"])]
ModelNumber = Annotated[int, Path(ge=1, le=2**31 - 1)]


def site_router(sources: Sources) -> APIRouter:
    """The routes.

    Args:
        sources: What they read.
    """
    router = APIRouter(tags=["site"])
    _model_routes(router, sources)
    _health_routes(router, sources)

    @router.get("/metrics", response_class=Response, summary="OpenMetrics", dependencies=NO_QUERY)
    def metrics(request: Request) -> Response:
        """As `forewarn metrics` serves them."""
        accept = request.headers.get("accept", "")
        body, content_type = render(sources.metrics, accept=accept)
        return Response(body, headers={"content-type": content_type})

    return router


def _model_routes(router: APIRouter, sources: Sources) -> None:
    @router.get(
        "/models", response_model=Models, summary="Versions of models", dependencies=NO_QUERY
    )
    def models(request: Request) -> Response:
        """Where each stands: aliases, the gate's word, who promoted it and why."""
        rows = sources.models.versions()
        return json_answer(request, {"why_none": None if rows else _NO_MODEL, "rows": rows})

    @router.get(
        "/models/{name}/{version}",
        response_model=ModelCard,
        summary="A model card",
        dependencies=NO_QUERY,
    )
    def card(request: Request, name: ModelName, version: ModelNumber) -> Response:
        """What a version was trained on, how good it is, what it cannot do."""
        return json_answer(request, sources.models.card(name, version))


def _health_routes(router: APIRouter, sources: Sources) -> None:
    @router.get(
        "/data-health",
        response_model=DataHealth,
        summary="How the data does",
        dependencies=NO_QUERY,
    )
    def data_health(request: Request) -> Response:
        """Which exporters are silent, how much is covered, how old everything is."""
        return json_answer(request, sources.health.data_health(sources.now()))

    @router.get(
        "/health/live", response_model=Alive, summary="The process answers", dependencies=NO_QUERY
    )
    async def live(request: Request) -> Response:
        """Needs no token."""
        return json_answer(request, {"status": "alive"})

    @router.get(
        "/health/ready",
        response_model=Ready,
        summary="There are scores to show",
        dependencies=NO_QUERY,
    )
    async def ready(request: Request) -> Response:
        """Needs no token; 503 until a tick was read. Expired scores are data health's matter."""
        if sources.fleet.current() is None:
            return problem(503, "no scores can be shown yet")
        return json_answer(request, {"status": "ready"})
