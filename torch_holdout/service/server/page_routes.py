"""The routes of the pages and of the two files that they load."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from torch_holdout.service.server import pages
from torch_holdout.service.server.callers import HERE, DeskOf, PageHost, PageReader, PageTeam
from torch_holdout.service.server.desk import Desk
from torch_holdout.service.server.problems import Problem, RefusedError
from torch_holdout.service.server.rendered import Rendered

_HTML = "text/html; charset=utf-8"
_FOREVER = "public, max-age=31536000, immutable"  # their addresses change with their content

router = APIRouter(include_in_schema=False)


def conditional(request: Request, desk: Desk, rendered: Rendered) -> Response:
    """Send a view, or 304 to a client that has it; only what is public may be kept by caches."""
    public = desk.board.config.board.visibility == "public"
    headers = {"ETag": rendered.tag, "Cache-Control": "no-cache" if public else "no-store"}
    if rendered.is_known(request.headers.get("if-none-match")):
        return Response(None, 304, headers)
    return Response(rendered.body, 200, headers, rendered.media_type)


def _own(request: Request, position: int, text: str) -> Response:
    """Send a page that is one caller's; no cache keeps it."""
    rendered = Rendered.of(_HTML, position, text.encode())
    headers = {"ETag": rendered.tag, "Cache-Control": "no-store"}
    if rendered.is_known(request.headers.get("if-none-match")):
        return Response(None, 304, headers)
    return Response(rendered.body, 200, headers, rendered.media_type)


@router.get("/boards/{board}", dependencies=[HERE])
async def board_page(request: Request, desk: DeskOf, _: PageReader) -> Response:
    """Return the public page."""
    rendered = await desk.read(lambda: desk.rendered.page(desk.board.view()))
    return conditional(request, desk, rendered)


@router.get("/boards/{board}/team", dependencies=[HERE])
async def team_page(request: Request, desk: DeskOf, caller: PageTeam) -> Response:
    """Return a team's own page."""
    view = await desk.read(desk.board.view)
    team = await desk.read(desk.board.team_view, caller)
    return _own(request, view.position, await desk.read(pages.team_page, view, team))


@router.get("/boards/{board}/host", dependencies=[HERE])
async def host_page(request: Request, desk: DeskOf, caller: PageHost) -> Response:
    """Return the host's page."""
    view = await desk.read(desk.board.view)
    host = await desk.read(desk.board.host_view, caller)
    return _own(request, view.position, await desk.read(pages.host_page, view, host))


@router.get("/assets/{name}")
async def asset(name: Annotated[str, Path(pattern=r"^[a-z]{1,20}\.(css|js)$")]) -> Response:
    """Return a file that pages load; the same for everybody."""
    if name not in pages.assets():
        raise RefusedError(Problem.UNKNOWN, "There is nothing at this address.")
    kind, content = pages.assets()[name]
    return Response(content, 200, {"Cache-Control": _FOREVER}, kind)
