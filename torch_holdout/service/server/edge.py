"""What stands around every request: headers, counters, one line of log, a constant 500."""

import json
import logging
import time
import traceback
from typing import Any, final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torch_holdout.service.server.metrics import Counters
from torch_holdout.service.server.problems import Problem, RefusedError

ACCESS = logging.getLogger("torch_holdout.service.access")
ERRORS = logging.getLogger("torch_holdout.service.errors")

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
_INTERNAL = json.dumps(
    RefusedError(
        Problem.INTERNAL,
        "The server failed. If this was a submission, send it again: it is answered once.",
    ).as_json()
).encode()


@final
class Edge:
    """The outermost layer of the app.

    An error that nothing expected becomes a constant 500. Its type and place go to the log, never
    its message, which could quote a value.
    """

    def __init__(self, app: ASGIApp, counters: Counters) -> None:
        self._app = app
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        self._counters.add("started", 1)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception as error:
            ERRORS.error("%s", place_of(error))
            if not exchange.ended:
                await exchange.fail()
        finally:
            self._finish(scope, exchange)

    def _finish(self, scope: Scope, exchange: "_Exchange") -> None:
        route = getattr(scope.get("route"), "path", None)  # set by the router
        name = "other" if route is None else f"{scope['method']} {route}"
        self._counters.count(name, exchange.status)
        self._counters.add("bytes_received", exchange.received)
        self._counters.add("bytes_sent", exchange.sent)
        self._counters.add("finished", 1)
        milliseconds = (time.perf_counter() - exchange.started) * 1000
        ACCESS.info("%s %d %.1f ms", name, exchange.status, milliseconds)


@final
class _Exchange:
    """One request's messages: counted on their way, with the headers that every answer has."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.started = time.perf_counter()
        self.status = self.received = self.sent = 0
        self.ended = False

    async def receive(self) -> Message:
        message = await self._receive()
        self.received += len(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name for name, _ in message["headers"]}
            more = [(name, value) for name, value in _HEADERS.items() if name not in own]
            message = {**message, "headers": [*message["headers"], *more]}
        self.sent += len(message.get("body", b""))
        self.ended = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def fail(self) -> None:
        """Answer with a constant, unless an answer was begun: then the connection is cut."""
        if self.status:
            raise ConnectionAbortedError("an answer was begun and cannot be ended") from None
        headers: list[Any] = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(_INTERNAL)).encode()),
        ]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": _INTERNAL})


def place_of(error: BaseException) -> str:
    """Return an error's type, and the file and line it came from; never its message.

    Example:
        >>> try:
        ...     int("0.8438, a raw value")
        ... except ValueError as error:
        ...     place_of(error)
        'ValueError at <doctest torch_holdout.service.server.edge.place_of[0]>:2 in <module>'
    """
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno} in {last.name}"
