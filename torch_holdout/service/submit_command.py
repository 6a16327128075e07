"""``torch-holdout submit``: predictions to a board; the exit code says what a loop does next."""

import warnings
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torch_holdout._shared.terminal import print_json
from torch_holdout._shared.text import counted
from torch_holdout.errors import (
    BoardRefusedError,
    BoardUnreachableError,
    BudgetExhaustedError,
    HoldoutClosedError,
    HoldoutError,
    HoldoutWarning,
    InvalidArgumentError,
)

if TYPE_CHECKING:
    from torch_holdout.service.client.answers import BoardStatus, RemoteAnswer
    from torch_holdout.service.client.client import RemoteBoard
    from torch_holdout.service.client.uploads import Upload

_LONGEST_TOKEN_FILE = 1000  # bytes
_SAID = {
    "release": "better",
    "record": "a new record",
    "guess": "not better",
    "no_record": "no record",
    "kept": "kept: it is the one to beat now",
    "reverted": "not certified to be better",
    "first": "the first one: it is the one to beat now",
    "sealed": "accepted; its value is shown when the board is closed",
}


class ExitCode(IntEnum):
    """How ``submit`` ends; 1 is left to crashes, so that none is read as an answer.

    Example:
        >>> ExitCode.BETTER, ExitCode.NOT_BETTER
        (<ExitCode.BETTER: 0>, <ExitCode.NOT_BETTER: 3>)
    """

    BETTER = 0  # better, kept or accepted
    USAGE = 2
    NOT_BETTER = 3
    NOTHING_LEFT = 4  # the quota, the budget, or the board is closed
    REFUSED = 5  # the token, the layout
    UNREACHABLE = 6  # safe to repeat


def submit(
    predictions: Annotated[
        str,
        typer.Argument(metavar="PREDICTIONS", help="An .npy or .csv file.", hidden=True),
    ],
    board: Annotated[str, typer.Option("--board", metavar="URL", help="The board's page.")],
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the token; by default TORCH_HOLDOUT_TOKEN."),
    ] = None,
    final: Annotated[
        bool, typer.Option("--final", help="Name it a finalist, to be judged on the vault.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check the file against the board's layout.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(min=0, max=86_400, metavar="SECONDS", help="How long to try to connect."),
    ] = 60.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only what the board sent.")
    ] = False,
) -> None:
    """Submit predictions to a board; the same again is free.

    Example: torch-holdout submit predictions.npy --board https://host/boards/digits-2026

    PREDICTIONS is a file as numpy.save writes it, or CSV where the board's rows have ids. Exits
    with 0 if it is better, kept or accepted, 3 if it is answered and not better, 4 if nothing is
    left or the board is closed, 5 if the token or the layout is refused, 6 if the board cannot be
    reached: then the same command can be repeated, and is charged once.
    """
    from torch_holdout.service.client.client import remote

    code = ExitCode.BETTER
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", HoldoutWarning)
            asked = remote(board, _token_of(token_file), wait=wait)
            code = _checked(asked, predictions, as_json) if dry_run else _submitted(
                asked, predictions, final=final, as_json=as_json
            )  # fmt: skip
        for warning in caught:
            typer.echo(f"torch-holdout: {warning.message}", err=True)
    except HoldoutError as error:
        typer.echo(f"torch-holdout: {error}", err=True)
        code = exit_code_of(error)
    raise typer.Exit(int(code))


def exit_code_of(error: HoldoutError) -> ExitCode:
    """Return how ``submit`` ends with an error.

    Example:
        >>> exit_code_of(BudgetExhaustedError("Nothing left.")).name
        'NOTHING_LEFT'
    """
    kinds: dict[type[HoldoutError], ExitCode] = {
        BudgetExhaustedError: ExitCode.NOTHING_LEFT,
        HoldoutClosedError: ExitCode.NOTHING_LEFT,
        BoardRefusedError: ExitCode.REFUSED,
        BoardUnreachableError: ExitCode.UNREACHABLE,
        InvalidArgumentError: ExitCode.USAGE,
    }
    found = (code for kind, code in kinds.items() if isinstance(error, kind))
    # What else goes wrong is no answer: a server that is something else, or a missing package.
    return next(found, ExitCode.REFUSED)


def _submitted(board: "RemoteBoard", predictions: str, *, final: bool, as_json: bool) -> ExitCode:
    answer = board.submit(Path(predictions), final=final)
    if as_json:
        print_json(dict(answer.content))
    else:
        typer.echo(_sentence(answer), err=True)
    return ExitCode.BETTER if answer.accepted else ExitCode.NOT_BETTER


def _checked(board: "RemoteBoard", predictions: str, as_json: bool) -> ExitCode:
    from torch_holdout.service.client.uploads import upload_of

    status = board.status()
    upload = upload_of(Path(predictions), status)
    if as_json:
        print_json(_found(status, upload))
    else:
        typer.echo(
            f"{predictions} fits {board.url}: {counted(status.rows, 'row')} of {status.upload}, "
            f"{len(upload.body):,} bytes. Nothing was sent. Its address is {upload.sha}.",
            err=True,
        )
    return ExitCode.BETTER


def _found(status: "BoardStatus", upload: "Upload") -> dict[str, Any]:
    return {"submission": upload.sha, "bytes": len(upload.body), "rows": status.rows, "fits": True}


def _sentence(answer: "RemoteAnswer") -> str:
    said = _SAID.get(answer.kind, answer.kind)
    if answer.kind == "repeat":
        said = (
            "known, and free; it was "
            + {True: "better", False: "not better", None: "taken"}[answer.better]
        )
    value = "" if answer.value is None else f" {_told(answer.value, better=answer.better)}"
    if answer.interval is not None:
        value += (
            f" The population's value lies in {answer.interval[0]:.6g}-{answer.interval[1]:.6g}."
        )
    left = counted(answer.quota.submissions_left, "submission")
    if answer.quota.releases_left:
        left += f" and {counted(answer.quota.releases_left, 'release')}"
    return (
        f"{answer.submission[:12]}: {said}.{value} {left} left. Position {answer.position}, chain "
        f"{answer.chain[:12]}."
    )


def _told(value: float, *, better: bool | None) -> str:
    if better is False:
        return f"What it had to beat, by a step, is {value:.6g}."
    return f"{value:.6g} is told."


def _token_of(place: Path | None) -> str | None:
    if place is None:
        return None
    try:
        with place.open("rb") as file:
            return file.read(_LONGEST_TOKEN_FILE).decode("ascii", "replace").strip()
    except OSError as error:
        raise InvalidArgumentError(
            f"Expected a token in the file of --token-file, but it cannot be read: "
            f"{error.strerror}."
        ) from None
