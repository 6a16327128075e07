"""The ``torch-holdout`` command."""

import sys
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

import torch_holdout
from torch_holdout._shared.files import ledger_url, ledgers_here, writable
from torch_holdout._shared.first_steps import EXIT_CODES, FIRST_STEPS
from torch_holdout._shared.terminal import (
    is_yes,
    plainly,
    prepare_output,
    print_json,
    require_confirmation,
)
from torch_holdout._shared.text import counted
from torch_holdout.errors import HoldoutError
from torch_holdout.service import commands

app = typer.Typer(
    name="torch-holdout",
    help="Keep a validation set honest: noisy, budgeted holdout values.",
    add_completion=True,
    pretty_exceptions_show_locals=False,
    epilog=EXIT_CODES,
    rich_markup_mode=None,  # whose tables give every flag a type, <bool>
)


class PurposeOption(str, Enum):
    """The purposes of a plan."""

    early_stopping = "early-stopping"
    curve = "curve"
    search = "search"


LedgerPlace = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER",
        help="A ledger file, or its URL.",
        autocompletion=ledgers_here,
        hidden=True,  # explained by each command: a list of arguments would show Python's type
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Failure = Annotated[
    float, typer.Option(metavar="NUMBER", help="Probability that a certificate does not hold.")
]
AccountName = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only the account of this name.")
]


def _print(text: str, content: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(content)
    else:
        typer.echo(text)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(torch_holdout.__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    if context.invoked_subcommand is None:
        _say_where_we_are(as_json)
    elif as_json:
        raise typer.BadParameter(f"Put it after {context.invoked_subcommand}.", param_hint="--json")


def _say_where_we_are(as_json: bool) -> None:
    from torch_holdout.report.here import folder_content

    with plainly():
        text, content = folder_content(ledgers_here())
    if as_json:
        print_json({"version": torch_holdout.__version__} | content)
        return
    first = next((each["ledger"] for each in content["ledgers"] if not each["problem"]), None)
    here = f"{text}\n\n" if text else ""
    facts = {"version": torch_holdout.__version__, "ledger": first or "holdout.db", "here": here}
    typer.echo(FIRST_STEPS.format(**facts), nl=False)


@app.command()
def demo(
    picture: Annotated[
        Path, typer.Option("--picture", metavar="FILE", help="Where the picture goes, a PNG.")
    ] = Path("demo/demo.png"),
    epochs: Annotated[
        int, typer.Option(min=2, metavar="N", help="Train for at most this many epochs.")
    ] = 60,
    as_json: AsJson = False,
) -> None:
    """Stop a training by raw, guarded and sealed values; then attack.

    Example: torch-holdout demo --picture demo.png

    The reports of both guarded runs go next to the picture. Without scikit-learn the digits are
    generated; without matplotlib a table is written.
    """
    with plainly():
        picture = writable(picture, "demo.png")
        if picture.suffix.lower() not in ("", ".png"):  # a PNG is written, over whatever is there
            raise typer.BadParameter(f"{picture} is not the name of a PNG file, such as demo.png.")
        from torch_holdout._demo.demo import demo as run

        shown = run(picture, epochs=epochs, quiet=as_json)
    if as_json:
        print_json(shown)


@app.command()
def plan(
    queries: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Evaluations of a run; for values: epochs or trials, times statistics.",
        ),
    ],
    size: Annotated[
        int | None,
        typer.Option(metavar="N", help="Examples in the holdout; by default as many as needed."),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Sealed runs, which show decisions and no values; by default 1."
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Releases of values; by default as size and tolerance allow."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Largest distance to the population's value, for values from 0 to 1.",
        ),
    ] = None,
    purpose: Annotated[
        PurposeOption,
        typer.Option(
            metavar="PURPOSE", help="What the values are for: early-stopping, curve or search."
        ),
    ] = PurposeOption.early_stopping,
    statistics: Annotated[
        int, typer.Option(metavar="N", help="How many statistics share the budget.")
    ] = 1,
    delta: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="The delta that epsilon is stated at.")
    ] = None,
    failure: Failure = 0.05,
    as_json: AsJson = False,
) -> None:
    """Plan a holdout's budget, mechanism and certificate; charges nothing.

    Example: torch-holdout plan --size 10000 --queries 200 --runs 1

    With --budget or --tolerance values are planned instead of decisions:
    torch-holdout plan --size 10000 --queries 200 --budget 20
    """
    from torch_holdout.planning.explanation import print_plan
    from torch_holdout.planning.plan import plan as make

    with plainly():
        made = make(
            size=size,
            queries=queries,
            runs=runs,
            budget=budget,
            tolerance=tolerance,
            purpose=purpose.value,
            statistics=statistics,
            delta=delta,
            failure=failure,
        )
    if as_json:
        content = {name: getattr(made, name) for name in made.__dataclass_fields__}
        own = {"mechanism": made.mechanism.identity(), "certificate": asdict(made.certificate)}
        print_json(content | own | {"useful": made.useful})
    else:
        print_plan(made)


@app.command()
def status(
    ledger: LedgerPlace,
    name: AccountName = None,
    failure: Failure = 0.05,
    as_json: AsJson = False,
) -> None:
    """Show what is left in a ledger, and what its values are worth.

    Example: torch-holdout status holdout.db

    LEDGER is the file that a guarded run leaves behind, or its URL. Holdouts are shown with their
    certificates; so are the accounts of training records.
    """
    from torch_holdout.ledger import Ledger
    from torch_holdout.report.console import status_content

    with plainly():
        shown = status_content(Ledger(ledger_url(ledger), reads_only=True), name, failure)
    _print(*shown, as_json)


@app.command()
def prices(
    ledger: LedgerPlace,
    name: AccountName = None,
    evaluations: Annotated[
        int | None,
        typer.Option(metavar="N", help="Evaluations of the next run; by default as planned."),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(metavar="N", help="Patience of the next run; by default bounds for any."),
    ] = None,
    failure: Failure = 0.05,
    as_json: AsJson = False,
) -> None:
    """Show what the next run would say and be worth; charges nothing.

    Example: torch-holdout prices holdout.db

    LEDGER is the file that a guarded run leaves behind, or its URL. There is a price for each
    choice of what a sealed run shows; of a holdout that answers with values, for a release.
    """
    from torch_holdout.ledger import Ledger
    from torch_holdout.report.console import prices_content

    with plainly():
        opened = Ledger(ledger_url(ledger), reads_only=True)
        shown = prices_content(opened, name, failure, evaluations, patience)
    _print(*shown, as_json)


@app.command()
def report(
    ledger: LedgerPlace,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page; by default report.html."),
    ] = None,
    name: AccountName = None,
    failure: Failure = 0.05,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a row for each answer.")] = False,
) -> None:
    """Write a page about a ledger, for people.

    Example: torch-holdout report holdout.db -o report.html

    LEDGER is the file that a guarded run leaves behind, or its URL. The page says what was asked,
    with certified intervals, and what may be reported. With --json or --csv the data is printed,
    and a page is written only with -o.
    """
    from torch_holdout.ledger import Ledger
    from torch_holdout.report import content, paragraph, rows, summarise, write

    with plainly():
        if as_json and as_csv:
            raise HoldoutError("Expected --json or --csv, but got both: they print to one place.")
        output = None if output is None else writable(output, "report.html")
        opened = Ledger(ledger_url(ledger), reads_only=True)
        summary = None if as_csv and output is None else summarise(opened, failure, name)
        if summary is not None and (output is not None or not as_json):
            place = write(summary, output or Path("report.html"))
            typer.echo(f"{place}\n{paragraph(summary)}", err=as_json or as_csv)
        lines = list(rows(opened, failure, name)) if as_csv else []  # all of it, or an error
        for line in lines:
            typer.echo(line)
    if as_json and summary is not None:
        print_json(content(summary))


@app.command()
def verify(ledger: LedgerPlace, as_json: AsJson = False) -> None:
    """Check whether anything in a ledger was edited or lost.

    Example: torch-holdout verify holdout.db

    LEDGER is the file that a guarded run leaves behind, or its URL. Every row, sum, counter and
    link is checked; problems are listed, and nothing is repaired. Exits with 0 if everything fits,
    1 if something does not, 2 if it cannot be opened.
    """
    from torch_holdout.ledger import verify as check

    with plainly():
        checked = check(ledger_url(ledger))
    if as_json:
        print_json(asdict(checked) | {"intact": not checked.findings})
    else:
        for finding in checked.findings:
            typer.echo(str(finding))
        verdict = counted(len(checked.findings), "problem") if checked.findings else "intact"
        typer.echo(f"{checked.ledger}: {verdict} ({checked.looked_at}).")
    if checked.findings:
        raise typer.Exit(1)


@app.command()
def close(
    ledger: LedgerPlace,
    name: AccountName = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Show what noise protects: epsilon is infinite from then on."),
    ] = False,
    failure: Failure = 0.05,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before closing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Close a holdout for good, and show every value with its interval.

    Example: torch-holdout close holdout.db --name val

    LEDGER is the file that a guarded run leaves behind, or its URL. Nothing can be asked
    afterwards, and that cannot be undone: on a terminal you are asked first. Closing again shows
    the same.
    """
    from torch_holdout.holdout.closed_values import close_account
    from torch_holdout.ledger import Ledger
    from torch_holdout.report.closing_words import before_closing, one_holdout

    with plainly():
        url, wanted = ledger_url(ledger), exact or None
        account, reading = one_holdout(Ledger(url, reads_only=True), name)
        if words := before_closing(reading, exact=wanted, failure=failure):
            typer.echo(words, err=True)
            if not yes:
                require_confirmation("Close it for good? [y/N]", is_yes)
        closing = close_account(Ledger(url), account, exact=wanted, failure=failure)
    _print(str(closing), asdict(closing), as_json)


@app.command()
def audit(
    draws: Annotated[
        int, typer.Option(min=100, metavar="N", help="Answers drawn for each sampled row.")
    ] = 20_000,
    as_json: AsJson = False,
) -> None:
    """Measure what each mechanism leaks, and catch broken twins.

    Example: torch-holdout audit

    Exits with 1 if more is measured than claimed, or if a twin is not detected.
    """
    from torch_holdout.audit import audit as run
    from torch_holdout.audit.evidence import print_audit

    with plainly():
        rows = run(draws=draws, progress=lambda part: typer.echo(f"auditing {part} ...", err=True))
    if as_json:
        print_json({"rows": [asdict(row) | {"right": row.right} for row in rows]})
    else:
        print_audit(rows)
    if not all(row.right for row in rows):
        raise typer.Exit(1)


commands.add_to(app)


def main() -> None:
    """Run the command line."""
    prepare_output()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # a full disk, a folder that is gone
        typer.echo(f"torch-holdout: {error.strerror}. The output is incomplete.", err=True)
        sys.exit(2)
