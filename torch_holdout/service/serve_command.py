"""``torch-holdout serve``: a board on the network."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from torch_holdout._shared.terminal import plainly
from torch_holdout.errors import HoldoutError


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Import the server inside the block; a package that is missing is named in a sentence."""
    try:
        yield
    except ImportError as error:
        raise HoldoutError(
            f"Expected {error.name or 'a package'} to be installed for a board: "
            f"pip install 'torch-holdout[service]'"
        ) from None


def serve(
    config: Annotated[
        Path,
        typer.Argument(metavar="BOARD.TOML", help="The board's configuration.", hidden=True),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print where it listens as one JSON object.")
    ] = False,
) -> None:
    """Serve a board until it is told to stop.

    Example: torch-holdout serve board.toml

    BOARD.TOML is the board's configuration; `torch-holdout board init` made the board of it. Its
    first lines are where the page and the metrics are. SIGTERM or Ctrl-C answers what was begun
    and ends; teams send again what was not answered, at no charge.
    """
    with plainly():
        with installed():
            from torch_holdout.service.server.run import serve as run
        run(config, announce=_say_json if as_json else _say)


def _say(page: str, admin: str) -> None:
    """Print at once: the process that started the server waits for these lines."""
    print(f"Serving {page}\nHealth and metrics on {admin}", flush=True)


def _say_json(page: str, admin: str) -> None:
    print(json.dumps({"page": page, "admin": admin}), flush=True)
