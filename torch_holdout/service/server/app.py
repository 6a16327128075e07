"""The routes of a board, and nothing else: HTTP in, one call of the board, HTTP out."""

from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import torch_holdout
from torch_holdout.errors import LedgerError
from torch_holdout.service.server import messages, page_routes
from torch_holdout.service.server.board import Board
from torch_holdout.service.server.bodies import (
    announced_length,
    json_object,
    media_type,
    read_body,
)
from torch_holdout.service.server.callers import HERE, DeskOf, Holder, Reader, Team
from torch_holdout.service.server.desk import Desk
from torch_holdout.service.server.edge import Edge
from torch_holdout.service.server.messages import Responses, refusals
from torch_holdout.service.server.metrics import Counters
from torch_holdout.service.server.page_routes import conditional
from torch_holdout.service.server.problems import Problem, RefusedError

_MOST_JSON = 16_384  # bytes
_MOST_POSITION = 2**53

Sha = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The SHA-256 of the upload.")]

router = APIRouter(prefix="/v1")
_NOT_NEWER: Responses = {304: {"description": "Not newer than If-None-Match"}}
_ANSWERED: Responses = {201: {"model": messages.AnswerMessage, "description": "Answered"}}
_binary = {"schema": {"type": "string", "format": "binary"}}
_UPLOAD = {"requestBody": {"required": True, "content": {"application/x-npy": _binary,
                                                         "text/csv": _binary}}}  # fmt: skip
_FINALISTS = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["submissions"],
                    "properties": {"submissions": {"type": "array", "items": {"type": "string"}}},
                }
            }
        },
    }
}


def create_app(board: Board, counters: Counters, *, parent: int | None = None) -> ASGIApp:
    """Return the application of one worker, which stops without its ``parent`` process."""
    desk = Desk(board, counters, parent)
    app = FastAPI(
        title=f"torch_holdout: {board.config.board.name}",
        version=torch_holdout.__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # these pages load from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would quote the request's Host
        lifespan=desk.running,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.desk = desk
    app.include_router(router)
    app.include_router(page_routes.router)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(LedgerError, _no_ledger)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _failed)
    return Edge(app, counters)


@router.get(
    "/boards/{board}",
    dependencies=[HERE],
    response_model=messages.BoardMessage,
    responses=refusals(401, 404, 429),
)
async def board_facts(desk: DeskOf, _: Reader) -> Response:
    """Return the board's public facts: layout, statistics, mode, state, certificate."""
    return JSONResponse(await desk.read(desk.board.facts))


@router.get(
    "/boards/{board}/leaderboard",
    dependencies=[HERE],
    response_model=messages.LeaderboardMessage,
    responses=_NOT_NEWER | refusals(401, 404, 429),
)
async def leaderboard(request: Request, desk: DeskOf, _: Reader) -> Response:
    """Return the leaderboard; its ETag changes with the ledger's position."""
    rendered = await desk.read(lambda: desk.rendered.leaderboard(desk.board.view()))
    return conditional(request, desk, rendered)


@router.put(
    "/boards/{board}/submissions/{sha256}",
    dependencies=[HERE],
    response_model=messages.AnswerMessage,
    responses=_ANSWERED | refusals(401, 403, 404, 408, 409, 411, 413, 415, 429),
    openapi_extra=_UPLOAD,
)
async def submit(
    request: Request, desk: DeskOf, caller: Team, sha256: Sha, final: bool = False
) -> Response:
    """Answer predictions under their own SHA-256; the same again is a repeat, and free."""
    size = 0
    try:
        desk.board.require_open(caller)
        size = announced_length(request, most=desk.board.layout.largest)
        kind = media_type(request, desk.board.layout.media_types)
        with desk.room.reading(caller.token or "", size):
            body = await read_body(request, size)
            new, answer = await desk.evaluate(
                desk.board.submit, caller, sha256, body, kind, final=final
            )
    except RefusedError as error:
        desk.note("submit", error.problem.status, caller, size)
        raise
    desk.note("submit", 201 if new else 200, caller, size, answer["position"])
    return JSONResponse(answer, 201 if new else 200)


@router.get(
    "/boards/{board}/submissions/{sha256}",
    dependencies=[HERE],
    response_model=messages.AnswerMessage,
    responses=refusals(401, 403, 404, 429),
)
async def submission(desk: DeskOf, caller: Team, sha256: Sha) -> Response:
    """Return the answer to one of the team's own submissions; others' are unknown."""
    return JSONResponse(await desk.read(desk.board.submission, caller, sha256))


@router.get(
    "/boards/{board}/submissions",
    dependencies=[HERE],
    response_model=messages.AnswersMessage,
    responses=refusals(401, 403, 404, 429),
)
async def submissions(
    desk: DeskOf,
    caller: Team,
    after: Annotated[int, Query(ge=0, le=_MOST_POSITION)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Return the team's own answers after a position, oldest first."""
    return JSONResponse(await desk.read(desk.board.submissions, caller, after, limit))


@router.put(
    "/boards/{board}/finalists",
    dependencies=[HERE],
    response_model=messages.FinalistsMessage,
    responses=refusals(401, 403, 404, 408, 409, 411, 413, 415, 429),
    openapi_extra=_FINALISTS,
)
async def finalists(request: Request, desk: DeskOf, caller: Team) -> Response:
    """Replace the team's finalists: what the vault is asked about at closing."""
    desk.board.require_open(caller)
    size = announced_length(request, most=_MOST_JSON)
    media_type(request, ("application/json",))
    named = json_object(await read_body(request, size)).get("submissions")
    if not isinstance(named, list) or not all(isinstance(sha, str) for sha in named):
        raise RefusedError(Problem.REQUEST, 'Expected {"submissions": [SHA-256, ...]}.')
    kept = await desk.read(desk.board.finalists, caller, named)
    desk.note("finalists", 200, caller, size)
    return JSONResponse(kept)


@router.get("/me", response_model=messages.CallerMessage, responses=refusals(401, 429))
async def me(desk: DeskOf, caller: Holder) -> Response:
    """Return what a token may do: scope, team, quota, expiry."""
    return JSONResponse(await desk.read(desk.board.me, caller))


@router.post(
    "/token",
    status_code=201,
    response_model=messages.TokenMessage,
    responses=refusals(401, 403, 409, 429),
)
async def token(desk: DeskOf, caller: Holder, now: bool = False) -> Response:
    """Return a new token; the old one ends after 24 hours, or now."""
    made = await desk.read(desk.board.rotate, caller, now=now)
    desk.note("rotate", 201, caller)
    return JSONResponse(made, 201)


def problem(request: Request, refused: RefusedError, **headers: str) -> Response:
    """Return a refusal as RFC 9457 has it."""
    if refused.retry_after is not None:
        headers["Retry-After"] = str(refused.retry_after)
    if refused.problem is Problem.UNAUTHORISED:
        page = request.url.path.startswith("/boards/")
        headers["WWW-Authenticate"] = 'Basic realm="board"' if page else "Bearer"
    content = refused.as_json()
    return JSONResponse(content, content["status"], headers, messages.PROBLEM)


async def _refused(request: Request, error: Any) -> Response:
    return problem(request, error)


async def _no_ledger(request: Request, error: Any) -> Response:
    text = "The ledger cannot be reached. Nothing was lost: send the same request again."
    return problem(request, RefusedError(Problem.LEDGER, text, retry_after=2))


async def _invalid(request: Request, error: Any) -> Response:
    """Replace FastAPI's own answer, which quotes the request."""
    if any(place["loc"][0] == "path" for place in error.errors()):
        return problem(request, RefusedError(Problem.UNKNOWN, "There is nothing at this address."))
    text = "Expected query parameters as /v1/openapi.json describes them."
    return problem(request, RefusedError(Problem.REQUEST, text))


async def _no_route(request: Request, error: Any) -> Response:
    if error.status_code == 405:
        text = "Expected one of the methods in Allow."
        headers = {"Allow": (error.headers or {}).get("Allow", "GET")}
        return problem(request, RefusedError(Problem.METHOD, text), **headers)
    return problem(request, RefusedError(Problem.UNKNOWN, "There is nothing at this address."))


async def _failed(request: Request, error: Any) -> Response:
    text = "The server failed. If this was a submission, send it again: it is answered once."
    return problem(request, RefusedError(Problem.INTERNAL, text))
