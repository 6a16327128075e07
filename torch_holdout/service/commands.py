"""The commands of the holdout service; what they need is imported when they run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from torch_holdout._shared.files import writable
from torch_holdout._shared.terminal import plainly, print_json, require_confirmation
from torch_holdout._shared.text import counted
from torch_holdout.errors import HoldoutError
from torch_holdout.service.serve_command import installed, serve
from torch_holdout.service.submit_command import submit

if TYPE_CHECKING:
    from torch_holdout.service.server.config import BoardConfig

board = typer.Typer(
    name="board",
    help="Keep labels in a process of their own; let teams submit.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ConfigPlace = Annotated[
    Path,
    typer.Argument(metavar="BOARD.TOML", help="The board's configuration.", hidden=True),
]
TeamName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="The team's name.", hidden=True)
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the token there, mode 0600, and do not print it."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]


def add_to(app: typer.Typer) -> None:
    """Add the service's commands to ``torch-holdout``."""
    app.add_typer(board)
    app.command()(serve)
    app.command()(submit)


def _configured(path: Path) -> "BoardConfig":
    with installed():
        from torch_holdout.service.server.config import read_config
    return read_config(path)


def _print(text: str, content: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(content)
    else:
        typer.echo(text)


@board.command()
def plan(
    rows: Annotated[int, typer.Option(metavar="N", help="Labelled rows, both parts together.")],
    teams: Annotated[int, typer.Option(metavar="N", help="How many teams.")],
    submissions: Annotated[int, typer.Option(metavar="N", help="Submissions of each team in all.")],
    public: Annotated[
        float, typer.Option(metavar="SHARE", help="Share of the rows that give feedback.")
    ] = 0.3,
    finalists: Annotated[
        int, typer.Option(metavar="N", help="Submissions of each team that the vault judges.")
    ] = 2,
    releases: Annotated[
        int | None,
        typer.Option(metavar="N", help="Values told to each team; by default the usual number."),
    ] = None,
    step: Annotated[
        float, typer.Option(metavar="NUMBER", help="Smallest improvement that is told.")
    ] = 0.01,
    failure: Annotated[
        float, typer.Option(metavar="NUMBER", help="Probability that a certificate does not hold.")
    ] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Show what each kind of feedback would be worth; charges nothing.

    Example: torch-holdout board plan --rows 10000 --teams 50 --submissions 5
    """
    from torch_holdout.planning.boards import plan_board

    with plainly():
        made = plan_board(
            rows,
            teams,
            submissions,
            public=public,
            finalists=finalists,
            releases=releases,
            step=step,
            failure=failure,
        )
        from torch_holdout.planning.board_text import plan_text

        text = plan_text(made)
    content = asdict(made)
    for price in content["prices"]:
        price["half_widths"] = {f"{at:g}": width for at, width in price["half_widths"].items()}
    _print(text, content, as_json)


@board.command()
def init(config: ConfigPlace, as_json: AsJson = False) -> None:
    """Cut the labels, register the board, print the host's token.

    Example: torch-holdout board init board.toml

    BOARD.TOML is the board's configuration. The labels are cut once, at random: public.labels
    answers while the board is open, vault.labels is read at closing only. One row must be one
    unit: rows of one patient, or near duplicates, in both parts would void the vault.
    """
    with plainly():
        read = _configured(config)
        from torch_holdout.service.server.hosting import initialise

        made = initialise(read)
    vault = made.rows - made.public
    lines = [
        f"The board {read.board.name!r} has {counted(made.rows, 'row')}: {made.public:,} give "
        f"feedback (public.labels), {vault:,} wait for closing (vault.labels).",
        f"The host's token, shown once: {made.host_token}",
    ]
    if made.reader_token is not None:
        lines.append(f"The readers' token, shown once: {made.reader_token}")
    if vault:
        lines.append(
            f"Now move vault.labels and {read.data.source} away from this machine, and keep them: "
            f"the server needs neither, and nothing can judge the finalists without vault.labels."
        )
    _print("\n".join(lines), asdict(made), as_json)


@board.command("add-team")
def add_team(
    config: ConfigPlace,
    name: TeamName,
    submissions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Its submissions in all; by default as configured."),
    ] = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Add a team and print its token, once.

    Example: torch-holdout board add-team board.toml alpha

    BOARD.TOML is the board's configuration, NAME the team's name. Its releases are reserved from
    the board's budget: when that does not cover them, the team is refused.
    """
    with plainly():
        read, team = _configured(config), _named(name)
        from torch_holdout.service.server.hosting import add_team as add

        token_file = None if token_file is None else writable(token_file, f"{team}.token")
        token = add(read, team, submissions)
        shown = _kept(token, token_file)
    _print(f"The token of {team}{shown}", {"team": team, "token": token}, as_json)


@board.command()
def rotate(
    config: ConfigPlace,
    name: TeamName = None,
    host: Annotated[bool, typer.Option("--host", help="The host's token, not a team's.")] = False,
    reader: Annotated[bool, typer.Option("--reader", help="The readers' token.")] = False,
    at_once: Annotated[
        bool, typer.Option("--now", help="End the old token now, not within 24 hours.")
    ] = False,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Print a new token for a team, the host or the readers, once.

    Example: torch-holdout board rotate board.toml alpha

    BOARD.TOML is the board's configuration, NAME the team's name; instead of a name --host or
    --reader. A team that was revoked is let in again.
    """
    with plainly():
        read = _configured(config)
        if (name is not None) + host + reader != 1:
            raise HoldoutError("Expected a team's name, or --host, or --reader: one of them.")
        from torch_holdout.service.server.hosting import rotate as renew

        scope: Literal["host", "reader", "team"] = "reader" if reader else "team"
        scope = "host" if host else scope
        token_file = None if token_file is None else writable(token_file, "new.token")
        token = renew(read, scope, name, at_once=at_once)
        shown = _kept(token, token_file)
    _print(f"The new token{shown}", {"scope": scope, "team": name, "token": token}, as_json)


@board.command()
def revoke(config: ConfigPlace, name: TeamName, as_json: AsJson = False) -> None:
    """Shut a team out, at once.

    Example: torch-holdout board revoke board.toml alpha

    BOARD.TOML is the board's configuration, NAME the team's name. What it has used is not given
    back, and its submissions stay.
    """
    with plainly():
        read, team = _configured(config), _named(name)
        from torch_holdout.service.server.hosting import revoke as shut_out

        shut_out(read, team)
    _print(f"{team} is shut out.", {"team": team, "revoked": True}, as_json)


@board.command()
def status(config: ConfigPlace, as_json: AsJson = False) -> None:
    """Show teams, quotas, the budget and what the values are worth.

    Example: torch-holdout board status board.toml

    BOARD.TOML is the board's configuration.
    """
    with plainly():
        read = _configured(config)
        from torch_holdout.service.server.reading import status_content

        text, content = status_content(read)
    _print(text, content, as_json)


@board.command()
def log(
    config: ConfigPlace,
    last: Annotated[
        int, typer.Option("--last", min=1, max=100_000, metavar="N", help="How many events.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the last events: who asked what, and how it ended.

    Example: torch-holdout board log board.toml

    BOARD.TOML is the board's configuration.
    """
    with plainly():
        read = _configured(config)
        from torch_holdout.service.server.reading import log_content

        text, content = log_content(read, last)
    _print(text, content, as_json)


@board.command()
def close(
    config: ConfigPlace,
    vault: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The vault's labels; by default vault.labels in this folder."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before closing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Close a board for good, judge the finalists, write results.

    Example: torch-holdout board close board.toml --vault vault.labels

    BOARD.TOML is the board's configuration. Nothing can be submitted afterwards, and that cannot be
    undone: on a terminal you are asked for the board's name first. Closing again gives the same.
    """
    with plainly():
        read = _configured(config)
        from torch_holdout.service.server.hosting import close as close_board
        from torch_holdout.service.server.hosting import require_closable
        from torch_holdout.service.server.reading import results_text

        require_closable(read, vault)
        if not yes:
            question = f"Closing cannot be undone. Type the board's name ({read.board.name}):"
            require_confirmation(question, lambda typed: typed == read.board.name)
        results = close_board(read, vault)
        text = results_text(read, results)
    _print(text, results, as_json)


def _kept(token: str, place: Path | None) -> str:
    """Write a token to a file, or return the words that show it."""
    if place is None:
        return f", shown once: {token}"
    from torch_holdout._shared.private_files import write_private

    write_private(place, f"{token}\n".encode())
    return f" is in {place}, and nowhere else."


def _named(name: str | None) -> str:
    if not name:
        raise HoldoutError("Expected the team's name.")
    return name
