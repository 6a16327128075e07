"""The ``torch-holdout`` command."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

import torch_holdout

app = typer.Typer(
    name="torch-holdout",
    help="Keep a validation set honest: noisy, budgeted holdout values.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(torch_holdout.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    picture: Annotated[Path, typer.Option("--picture", help="Where the picture goes.")] = Path(
        "demo/demo.png"
    ),
    epochs: Annotated[int, typer.Option(min=2, help="At most this many epochs.")] = 60,
) -> None:
    """Train on bundled digits with a guarded validation loss, then attack a holdout.

    Example: torch-holdout demo --picture demo.png
    """
    if missing := [name for name in ("matplotlib", "sklearn") if find_spec(name) is None]:
        typer.echo(f"The demo needs {missing}: pip install 'torch-holdout[demo]'", err=True)
        raise typer.Exit(1)
    if picture.is_dir():
        picture = picture / "demo.png"
    from torch_holdout.experiments.demo import demo as run

    run(picture, epochs=epochs)


def main() -> None:
    """Run the command line."""
    app()
