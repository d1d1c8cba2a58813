"""The FastAPI application: routes behind the gate, one shape of errors, its own description.

What is read is in `sources`, who may is in `access`; the board mounts its pages on the same one.
"""

import logging
from collections import Counter
from typing import Any, Final

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from features.errors import ForewarnError
from pipelines.api.access import OPEN_PATHS, Access
from pipelines.api.answers import PROBLEM, ApiError, problem
from pipelines.api.gate import ANSWER_HEADERS, Gate
from pipelines.api.history_routes import history_router
from pipelines.api.hook_routes import hook_router
from pipelines.api.score_routes import score_router
from pipelines.api.shapes import Problem
from pipelines.api.site_routes import site_router
from pipelines.api.sources import Sources
from pipelines.serving.score_reader import PageError
from pipelines.serving.score_schema import ScoreDatabaseError
from remediation.ledger.entries import LedgerError

PREFIX: Final = "/api/v1"
VERSION: Final = "1.0.0"
_LOG: Final = logging.getLogger(__name__)
_NO_DATABASE: Final = "the score database cannot be read at present; scores themselves still can"
_NO_LEDGER: Final = "the hook's ledger cannot be read at present"
_OURS: Final = "this failed on our side; the server's log says why"
_ERRORS: Final = {
    "400": "A cursor that was not given",
    "401": "No valid token",
    "403": "The token's role does not allow it",
    "404": "There is none",
    "409": "It cannot be asked for as things stand",
    "410": "The cursor is of an earlier tick: begin again",
    "413": "The request is too large",
    "421": "A Host that this server does not answer to",
    "422": "A parameter has another form",
    "429": "Too many requests; Retry-After says when to ask again",
    "503": "What it is read from is not available",
}


def build_application(sources: Sources, access: Access) -> FastAPI:
    """The application, ready to be served.

    Args:
        sources: What it reads.
        access: Who may ask for what.
    """
    app = FastAPI(
        title="Forewarn",
        version=VERSION,
        description="Failure scores of GPUs and nodes, and what the hook makes of them.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in (score_router, history_router, hook_router, site_router):
        app.include_router(router(sources), prefix=PREFIX, dependencies=[Depends(_each_once)])
    app.add_middleware(Gate, access=access)
    _handle_errors(app)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def _each_once(request: Request) -> None:
    """Refuses a parameter given twice: only one of its values would count, and silently."""
    times = Counter(name for name, _ in request.query_params.multi_items())
    repeated = sorted(name for name, count in times.items() if count > 1)
    if repeated:
        name = repeated[0][:40]
        raise ApiError(422, f"query.{name}: given {times[repeated[0]]} times; give it once")


def _handle_errors(app: FastAPI) -> None:
    """One shape of errors; what names files of this machine stays in the log."""

    async def own(_: Request, error: Exception) -> Response:
        if isinstance(error, ApiError):
            return problem(error.status, error.detail)
        _LOG.error("%s: %s", type(error).__name__, error)
        if isinstance(error, PageError):
            return problem(410, "the page is not there any more; begin again with the first page")
        if isinstance(error, ScoreDatabaseError):
            return problem(503, _NO_DATABASE, headers={"retry-after": "10"})
        if isinstance(error, LedgerError):
            return problem(503, _NO_LEDGER, headers={"retry-after": "10"})
        return problem(503, _OURS)

    async def invalid(_: Request, error: Exception) -> Response:
        found = error.errors() if isinstance(error, RequestValidationError) else []
        errors = [
            {"where": ".".join(map(str, one["loc"])), "problem": one["msg"].removeprefix(_VALUE)}
            for one in found[:20]
        ]
        said = "; ".join(f"{one['where']}: {one['problem']}" for one in errors)
        return problem(422, said[:1000], errors=errors)

    async def http(_: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            return problem(500, _OURS)
        return problem(error.status_code, str(error.detail), headers=error.headers)

    async def unforeseen(_request: Request, _error: Exception) -> Response:
        # Made outside the gate; the server writes the error to its log.
        return problem(500, _OURS, headers=ANSWER_HEADERS)

    app.add_exception_handler(ForewarnError, own)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, unforeseen)


_VALUE: Final = "Value error, "


def _described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI, with our errors in the place of FastAPI's, and tokens."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    made = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    shapes = made["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        shapes.pop(name, None)
    shapes["Problem"] = Problem.model_json_schema()
    made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            for status, words in _ERRORS.items():
                responses[status] = {"description": words, "content": content}
            if path not in OPEN_PATHS:
                # Reading needs none on loopback.
                operation["security"] = [{"token": []}, *([{}] if method == "get" else [])]
            if method == "get" and path.startswith(f"{PREFIX}/metrics"):
                responses["200"]["content"] = {"text/plain": {}, "application/openmetrics-text": {}}
    app.openapi_schema = made
    return made
