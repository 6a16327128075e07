"""Who asks: a token as a bearer's, or as a password on pages; read at every request."""

import base64
import binascii
from typing import Annotated

from fastapi import Depends, Path, Request
from fastapi.security import HTTPBearer

from torch_holdout.service.server.desk import Desk
from torch_holdout.service.server.problems import Problem, RefusedError
from torch_holdout.service.server.tokens import Caller

_BEARER = HTTPBearer(auto_error=False, description="A token of the board.")


async def desk_of(request: Request) -> Desk:
    """Return the worker's desk."""
    desk: Desk = request.app.state.desk
    return desk


DeskOf = Annotated[Desk, Depends(desk_of)]


async def _here(desk: DeskOf, board: Annotated[str, Path(pattern="^[a-z0-9-]{1,60}$")]) -> None:
    if board != desk.board.config.board.name:
        raise RefusedError(Problem.UNKNOWN, "Expected the address of a board of this server.")


HERE = Depends(_here)


async def _reader(request: Request, desk: DeskOf, _: Annotated[object, Depends(_BEARER)]) -> Caller:
    return await desk.admit(_bearer_token(request.headers.get("authorization")))


async def _team(caller: Annotated[Caller, Depends(_reader)]) -> Caller:
    return _require(caller, "team")


async def _holder(caller: Annotated[Caller, Depends(_reader)]) -> Caller:
    if caller.token is None:
        raise RefusedError(Problem.UNAUTHORISED, "Expected a token of this board.")
    return caller


async def _page_reader(request: Request, desk: DeskOf) -> Caller:
    return await desk.admit(_password(request.headers.get("authorization")))


async def _page_team(caller: Annotated[Caller, Depends(_page_reader)]) -> Caller:
    return _require(caller, "team")


async def _page_host(caller: Annotated[Caller, Depends(_page_reader)]) -> Caller:
    return _require(caller, "host")


Reader = Annotated[Caller, Depends(_reader)]
Team = Annotated[Caller, Depends(_team)]
Holder = Annotated[Caller, Depends(_holder)]
PageReader = Annotated[Caller, Depends(_page_reader)]
PageTeam = Annotated[Caller, Depends(_page_team)]
PageHost = Annotated[Caller, Depends(_page_host)]


def _require(caller: Caller, scope: str) -> Caller:
    """Raise unless a token has a scope; without a token, say that one is needed."""
    if caller.token is None:
        raise RefusedError(Problem.UNAUTHORISED, f"Expected a {scope}'s token.")
    if caller.scope != scope:
        raise RefusedError(Problem.FORBIDDEN, f"Expected a {scope}'s token, not another one.")
    return caller


def _bearer_token(header: str | None) -> str | None:
    """Return a bearer's token; "" for any other header, which no board knows."""
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _password(header: str | None) -> str | None:
    """Return the password of HTTP Basic; "" for any other header."""
    if header is None:
        return None
    scheme, _, encoded = header.partition(" ")
    try:
        content = base64.b64decode(encoded, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
    return content.partition(":")[2] if scheme.lower() == "basic" else ""
