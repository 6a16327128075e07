"""Output, questions and errors of the command line."""

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import typer

from torch_holdout.errors import HoldoutError, HoldoutWarning


def prepare_output() -> None:
    """Make both streams take whatever is printed."""
    # A stream that the caller closed is None, which not everything that prints expects.
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names that a terminal cannot show are escaped
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return open(os.devnull, "w")


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Print an error as a sentence, without a traceback, and exit with 2."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", HoldoutWarning)
            yield
    except HoldoutError as error:
        typer.echo(f"torch-holdout: {error}", err=True)
        raise typer.Exit(2) from None
    for warning in caught:
        typer.echo(f"torch-holdout: {warning.message}", err=True)


def is_yes(answer: str) -> bool:
    """Whether somebody has typed yes."""
    return answer.lower() in ("y", "yes")


def require_confirmation(question: str, confirms: Callable[[str], bool]) -> None:
    """Ask on a terminal, and exit with 1 unless the answer confirms; raise without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise HoldoutError(
            "Expected --yes, because there is no terminal to ask on and closing cannot be undone. "
            "Nothing was closed."
        )
    typer.echo(f"{question} ", nl=False, err=True)  # typer's prompt ends on stdout
    if not confirms(sys.stdin.readline().strip()):
        typer.echo("Nothing was closed.", err=True)
        raise typer.Exit(1)


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object."""
    # JSON has no infinity: null stands for it.
    finite = json.loads(json.dumps(content), parse_constant=lambda constant: None)
    typer.echo(json.dumps(finite, indent=2))
