"""The ``torch-holdout`` command."""

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


def main() -> None:
    """Run the command line."""
    app()
