"""Serve a board: sockets, workers, logs, and a stop that answers what was begun."""

import copy
import logging.config
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, final

from torch_holdout._shared.files import why_unreadable
from torch_holdout.errors import HoldoutError
from torch_holdout.service.server.config import (
    BoardConfig,
    ServerSection,
    address_of,
    is_loopback,
    read_config,
)

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

_BACKLOG = 2048
_CONNECTIONS = 200  # at once in a worker; more are answered 503
_KEEP_ALIVE, _GRACE = 5, 30  # seconds
_WORKER_ANSWERS = 60  # seconds in which a worker must answer its parent, also on a busy machine
_FAILED_TO_START = 3  # the exit code that tells uvicorn's parent not to try again
_LOG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "stream": "ext://sys.stderr",
        }
    },
    "loggers": {
        "torch_holdout.service": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}


@final
@dataclass(frozen=True)
class Worker:
    """Makes the application in the process that serves it; sent to workers, so plain values."""

    config: Path
    counters: Path
    server: int  # the process that started the workers, or serves itself

    def __call__(self) -> "ASGIApp":
        """Open the board, and return its application; end the process where that fails."""
        try:
            return self.app()
        except HoldoutError as error:
            print(f"torch-holdout: {error}", file=sys.stderr)
            sys.exit(_FAILED_TO_START)

    def app(self) -> "ASGIApp":
        """Open the board, and return its application."""
        import torch

        from torch_holdout.service.server.app import create_app
        from torch_holdout.service.server.board import Board
        from torch_holdout.service.server.metrics import Counters

        torch.set_num_threads(1)  # uploads are evaluated side by side
        parent = None if os.getpid() == self.server else self.server
        board = Board.open(read_config(self.config))
        return create_app(board, Counters(self.counters), parent=parent)


def serve(path: Path, *, announce: Callable[[str, str], None] = print) -> None:
    """Serve a board until SIGTERM or SIGINT; answer what was begun, for at most 30 seconds.

    The board is opened once before anything listens, so that what is wrong with it is said at
    once. Workers share one socket and open the board themselves. ``announce`` is told the page's
    address and that of the admin port.
    """
    config = read_config(path)
    require_transport(config.server)
    require_certificate(config)
    _require_packages()
    _check(config)
    with TemporaryDirectory(prefix="torch_holdout_") as folder, _Stopping():
        listening, admin = _bound(config.server.listen), _bound(config.server.admin)
        from torch_holdout.service.server.admin import serve_admin

        logging.config.dictConfig(_LOG)
        serve_admin(Path(folder), admin)
        scheme = "https" if config.server.certfile else "http"
        page = f"{scheme}://{_address(listening)}/boards/{config.board.name}"
        announce(page, f"http://{_address(admin)}")
        worker = Worker(path.absolute(), Path(folder), os.getpid())
        _run(_uvicorn(worker, config), listening)


def require_transport(server: ServerSection) -> None:
    """Raise unless tokens are safe on their way: TLS, a proxy in front, or the loopback."""
    host, _ = address_of(server.listen)
    if not (is_loopback(host) or server.behind_proxy or server.certfile):
        raise HoldoutError(
            "Expected certfile and keyfile, or behind_proxy = true, for anything but loopback. "
            "Tokens would travel in the open. Nothing was started."
        )


def require_certificate(config: BoardConfig) -> None:
    """Raise unless certificate and key, where there are any, can be served: workers would fail."""
    own = config.server
    if own.certfile is None or own.keyfile is None:
        return
    places = config.path(own.certfile), config.path(own.keyfile)
    problem = next(
        (f"{path.name} cannot be read: {why}" for path in places if (why := why_unreadable(path))),
        "",
    )
    if not problem:
        try:  # with no pass phrase, or a key that has one would ask for it here
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*places, password="")
        except (OSError, ValueError) as error:
            problem = f"they are not ({getattr(error, 'reason', None) or error})"
        else:
            return
    raise HoldoutError(
        f"Expected certfile and keyfile in [server] to be a certificate and its own key as PEM "
        f"files, without a pass phrase, but {problem}. Nothing was started."
    )


def _require_packages() -> None:
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise HoldoutError(
            "Expected FastAPI and uvicorn, but they are not installed. "
            'Run `pip install "torch-holdout[service]"`.'
        ) from None


def _check(config: BoardConfig) -> None:
    """Open the board and let it go: what is wrong is raised here, as a sentence."""
    from torch_holdout.service.server.board import Board

    Board.open(config).close_connections()


def _bound(address: str) -> socket.socket:
    """Return a socket that listens: a client that connects now is served once a worker is there."""
    host, port = address_of(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends each answer at once; else its end waits 40 ms for the
    # client's acknowledgement of its beginning.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise HoldoutError(
            f"Expected a free address to listen on, but {address} is not: {error.strerror}. "
            f"Nothing was started. Change [server] in board.toml, or stop what listens there."
        ) from None
    bound.set_inheritable(True)
    return bound


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _uvicorn(worker: Worker, config: BoardConfig) -> "uvicorn.Config":
    import uvicorn

    own = config.server
    return uvicorn.Config(
        worker,
        factory=True,
        workers=own.workers,
        ssl_certfile=None if own.certfile is None else config.path(own.certfile),
        ssl_keyfile=None if own.keyfile is None else config.path(own.keyfile),
        log_config=copy.deepcopy(_LOG),
        access_log=False,  # it would log addresses with their queries; edge.py logs routes
        proxy_headers=False,  # nothing here depends on who a proxy says the client is
        server_header=False,
        http="h11",  # bounds what it keeps of a header; httptools, where installed, does not
        ws="none",
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        timeout_worker_healthcheck=_WORKER_ANSWERS,
    )


def _run(config: "uvicorn.Config", listening: socket.socket) -> None:
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    if config.workers > 1:
        Multiprocess(config, [listening]).run()
    else:
        uvicorn.Server(config).run([listening])


@final
class _Stopping:
    """End the process in order on SIGTERM and SIGINT, also where uvicorn does not wait for them."""

    def __enter__(self) -> None:
        signals = (signal.SIGTERM, signal.SIGINT)
        self._before = {number: signal.signal(number, _stop) for number in signals}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _stop(*_: object) -> NoReturn:
    raise SystemExit(0)
