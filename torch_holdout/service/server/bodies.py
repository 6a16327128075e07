"""Bodies of requests: refused by their headers first, then read up to their own length."""

import json
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request

from torch_holdout.service.server.problems import Problem, RefusedError

BODY_SECONDS = 60.0  # a whole body must have come by then


def announced_length(request: Request, *, most: int) -> int:
    """Return a body's length as its header says; refuse without one, or above ``most``.

    A body of unknown length, or a compressed one, is refused unread: it could be of any size.
    """
    if "transfer-encoding" in request.headers or "content-length" not in request.headers:
        raise RefusedError(
            Problem.LENGTH, "Expected a Content-Length header and a body of that length."
        )
    text = request.headers["content-length"]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise RefusedError(Problem.LENGTH, "Expected a Content-Length header with a number.")
    if int(text) > most:
        raise RefusedError(Problem.SIZE, f"Expected a body of at most {most:,} bytes.")
    return int(text)


def media_type(request: Request, accepted: tuple[str, ...]) -> str:
    """Return the media type without parameters; refuse others, and any content encoding."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RefusedError(
            Problem.MEDIA_TYPE, "Expected a body without Content-Encoding. Send it uncompressed."
        )
    found = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in accepted:
        raise RefusedError(Problem.MEDIA_TYPE, f"Expected Content-Type {' or '.join(accepted)}.")
    return found


async def read_body(request: Request, length: int, *, seconds: float = BODY_SECONDS) -> bytes:
    """Read a body of the announced length, within ``seconds``."""
    chunks, size = [], 0
    try:
        with anyio.fail_after(seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > length:  # the server cuts at the length; other hosts of the app may not
                    break
                chunks.append(chunk)
    except TimeoutError:
        raise RefusedError(
            Problem.TIMEOUT, f"Expected the whole body within {seconds:g} seconds. Send it again."
        ) from None
    except ClientDisconnect:
        size = -1
    if size != length:
        raise RefusedError(Problem.LENGTH, "Expected a body of the length in Content-Length.")
    return b"".join(chunks)


def json_object(body: bytes) -> dict[str, Any]:
    """Return a body as a JSON object; refuse anything else without quoting it."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise RefusedError(Problem.REQUEST, "Expected a JSON object.")
    return content
