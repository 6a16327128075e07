"""The admin port: three constant addresses on the loopback, and no board behind them."""

import threading
from pathlib import Path
from socket import socket

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from torch_holdout.service.server.metrics import exposition, ready

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def admin_app(counters: Path) -> Starlette:
    """Return the application of the admin port; it reads the workers' counters, nothing else.

    ``/healthz`` says that the server runs, ``/readyz`` that a worker has reached the ledger
    within the last seconds, ``/metrics`` what Prometheus reads.
    """

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readiness(_: Request) -> Response:
        found = ready(counters)
        return PlainTextResponse("ready\n" if found else "not ready\n", 200 if found else 503)

    async def metrics(_: Request) -> Response:
        return Response(exposition(counters), media_type=_PROMETHEUS)

    paths = {"/healthz": health, "/readyz": readiness, "/metrics": metrics}
    return Starlette(routes=[Route(path, endpoint) for path, endpoint in paths.items()])


def serve_admin(counters: Path, listening: socket) -> None:
    """Serve the admin port in a thread that ends with the process."""
    import uvicorn

    app = admin_app(counters)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False, http="h11",
        ws="none",
    )  # fmt: skip
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, args=([listening],), daemon=True, name="admin").start()
