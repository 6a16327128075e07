"""The ``torch-holdout`` command."""

import contextlib
import json
import math
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

import torch_holdout
from torch_holdout._shared.text import counted, up
from torch_holdout.errors import HoldoutError, HoldoutWarning

if TYPE_CHECKING:
    from torch_holdout.audit import Row
    from torch_holdout.planning.planner import Plan

app = typer.Typer(
    name="torch-holdout",
    help="Keep a validation set honest: noisy, budgeted holdout values.",
    add_completion=True,
    pretty_exceptions_show_locals=False,
)


class PlanPurpose(str, Enum):
    """What a plan is for."""

    early_stopping = "early-stopping"
    curve = "curve"
    search = "search"


_FIRST_STEPS = """\
torch-holdout {version}: keep a validation set honest.

First:
  torch-holdout demo                                          see it work, in under a minute
  torch-holdout plan --size 10000 --queries 200 --budget 20   what your own holdout is worth

With a ledger, the file a guarded run leaves behind:
  torch-holdout status {ledger:<38} budget left, and what the values are worth
  torch-holdout report {ledger:<38} the same as a page for people
  torch-holdout verify {ledger:<38} whether anything was edited or lost

About the library itself:
  torch-holdout audit                                         what every mechanism leaks, measured

torch-holdout COMMAND --help explains a command; --install-completion sets up the Tab key.
"""


def _ledgers_here(typed: str = "") -> list[str]:
    """List the files in a folder that may be ledgers."""
    folder = Path(typed) if typed.endswith("/") else Path(typed).parent
    found = sorted(folder.glob("*.db")) if folder.is_dir() else []
    return [str(path) for path in found if str(path).startswith(typed)]


LedgerPlace = Annotated[
    str,
    typer.Argument(
        metavar="LEDGER", help="A ledger file, or its URL.", autocompletion=_ledgers_here
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Failure = Annotated[float, typer.Option(help="Probability that the certificate is wrong.")]


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
) -> None:
    if context.invoked_subcommand is None:
        ledger = next(iter(_ledgers_here()), "holdout.db")
        steps = _FIRST_STEPS.format(version=torch_holdout.__version__, ledger=ledger)
        typer.echo(steps, nl=False)


@app.command()
def demo(
    picture: Annotated[Path, typer.Option("--picture", help="Where the picture goes.")] = Path(
        "demo/demo.png"
    ),
    epochs: Annotated[int, typer.Option(min=2, help="At most this many epochs.")] = 60,
    as_json: AsJson = False,
) -> None:
    """Train on bundled digits with a guarded validation loss, then attack a holdout.

    Example: torch-holdout demo --picture demo.png

    The report of the run goes beside the picture. Without scikit-learn the digits are generated;
    without matplotlib a table is written.
    """
    if picture.is_dir():
        picture = picture / "demo.png"
    if picture.suffix.lower() not in ("", ".png"):  # a PNG is written, over whatever is there
        raise typer.BadParameter(f"{picture} is no name for a picture; demo.png would be.")
    from torch_holdout._demo.demo import demo as run

    with _plainly():
        found = run(picture, epochs=epochs, quiet=as_json)
    if as_json:
        _print_json(found)


@app.command()
def plan(
    queries: Annotated[
        int, typer.Option(help="Queries you expect: epochs or trials, times statistics.")
    ],
    size: Annotated[
        int | None, typer.Option(help="Holdout examples; leave out to find how many it takes.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Releases; left out: what fits size and tolerance, else 20.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Wanted distance to the population, bounds as [0, 1].")
    ] = None,
    purpose: Annotated[PlanPurpose, typer.Option(help="What the values are for.")] = (
        PlanPurpose.early_stopping
    ),
    statistics: Annotated[int, typer.Option(help="Statistics that share the budget.")] = 1,
    delta: Annotated[float | None, typer.Option(help="State epsilon at this delta.")] = None,
    failure: Failure = 0.05,
    as_json: AsJson = False,
) -> None:
    """Say what a holdout can be used for before anything is asked; charges nothing.

    Example: torch-holdout plan --size 10000 --queries 200 --budget 20

    The other way round: torch-holdout plan --queries 200 --tolerance 0.05
    """
    from torch_holdout.planning.planner import plan as make

    with _plainly():
        found = make(
            size=size,
            queries=queries,
            budget=budget,
            tolerance=tolerance,
            purpose=purpose.value,
            statistics=statistics,
            delta=delta,
            failure=failure,
        )
    if as_json:
        content = {name: getattr(found, name) for name in found.__dataclass_fields__}
        content["mechanism"] = found.mechanism.identity()
        content["certificate"] = asdict(found.certificate)
        content["useful"] = found.useful
        _print_json(content)
    else:
        _print_plan(found)


@app.command()
def status(
    ledger: LedgerPlace,
    name: Annotated[str | None, typer.Option(help="Only the account of this name.")] = None,
    failure: Failure = 0.05,
    as_json: AsJson = False,
) -> None:
    """Show the holdouts in a ledger with their certificates, and accounts of training records.

    Example: torch-holdout status holdout.db
    """
    from torch_holdout.holdout.reading import AccountReading
    from torch_holdout.ledger import Ledger
    from torch_holdout.prediction.status import status_of
    from torch_holdout.report.summary import chosen

    with _plainly():
        opened = Ledger(_ledger_url(ledger), reads_only=True)
        holdouts, records = chosen(opened, name)
        readings = [
            AccountReading(opened.summary(account, check=True), opened.address)
            for account in holdouts
        ]
        found = [(reading.status, reading.certificate(failure)) for reading in readings]
        charged = [
            status_of(opened.records_summary(account, check=True), opened.address)
            for account in records
        ]
    if as_json:
        content = {
            "ledger": opened.address,
            "holdouts": [asdict(state) | {"certificate": asdict(claim)} for state, claim in found],
            "records": [asdict(state) for state in charged],
        }
        _print_json(content)
    elif found or charged:
        shown = [f"{state}\n{claim}" for state, claim in found]
        typer.echo("\n\n".join([*shown, *map(str, charged)]))
    else:
        typer.echo("The ledger has no account yet.")


@app.command()
def report(
    ledger: LedgerPlace,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page; report.html by default.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Only the account of this name.")] = None,
    failure: Failure = 0.05,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a row for each answer.")] = False,
) -> None:
    """Write one page about a ledger: what was asked, what it is worth, what may be reported.

    Example: torch-holdout report holdout.db -o report.html

    With --json or --csv that is printed, and a page is written only where -o says.
    """
    from torch_holdout.ledger import Ledger
    from torch_holdout.report import content, paragraph, rows, summarise, write

    with _plainly():
        if as_json and as_csv:
            raise HoldoutError("Expected --json or --csv, but got both: they print to one place.")
        opened = Ledger(_ledger_url(ledger), reads_only=True)
        summary = None if as_csv and output is None else summarise(opened, failure, name)
        if summary is not None and (output is not None or not as_json):
            place = write(summary, output or Path("report.html"))
            typer.echo(f"{place}\n{paragraph(summary)}", err=as_json or as_csv)
        for line in rows(opened, failure, name) if as_csv else ():
            typer.echo(line)
    if as_json and summary is not None:
        _print_json(content(summary))


@app.command()
def verify(
    ledger: LedgerPlace,
    as_json: AsJson = False,
) -> None:
    """Check every row, sum, counter and link of a ledger, and say what is wrong; repairs nothing.

    Example: torch-holdout verify holdout.db

    Exits with 0 if everything fits, 1 if something does not, 2 if it cannot be opened.
    """
    from torch_holdout.ledger import verify as check

    with _plainly():
        found = check(_ledger_url(ledger))
    if as_json:
        _print_json(asdict(found) | {"intact": not found.findings})
    else:
        looked = (
            f"{counted(found.holdouts, 'holdout')}, "
            f"{counted(found.records, 'account')} of training records, "
            f"{counted(found.rows, 'row')}, schema version {found.schema_version}"
        )
        for finding in found.findings:
            typer.echo(str(finding))
        verdict = counted(len(found.findings), "problem") if found.findings else "intact"
        typer.echo(f"{found.ledger}: {verdict} ({looked}).")
    if found.findings:
        raise typer.Exit(1)


@app.command()
def audit(
    draws: Annotated[int, typer.Option(min=100, help="Answers drawn for each sampled row.")] = (
        20_000
    ),
    as_json: AsJson = False,
) -> None:
    """Measure what every mechanism leaks, and catch twins that are broken on purpose.

    Example: torch-holdout audit

    Exits with 1 if more is measured than claimed, or if a twin gets through.
    """
    from torch_holdout.audit import audit as run

    def tell(part: str) -> None:
        typer.echo(f"auditing {part} ...", err=True)

    with _plainly():
        rows = run(draws=draws, progress=tell)
    if as_json:
        _print_json({"rows": [asdict(row) | {"right": row.right} for row in rows]})
    else:
        _print_audit(rows)
    if not all(row.right for row in rows):
        raise typer.Exit(1)


def _ledger_url(text: str) -> str:
    """Return a URL for a path or a URL that was typed."""
    if text.startswith("memory:"):
        raise HoldoutError("Expected a ledger file: a memory:// ledger lives in its own process.")
    return text if "://" in text else f"sqlite:///{quote(str(Path(text).absolute()))}"


def main() -> None:
    """Run the command line."""
    try:
        app()
    except OSError as error:  # a full disk, a folder that is gone
        typer.echo(f"torch-holdout: {error.strerror}. What was printed is not whole.", err=True)
        sys.exit(2)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Say what was wrong in a sentence, without a traceback, and exit with 2."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", HoldoutWarning)
            yield
    except HoldoutError as error:
        typer.echo(f"torch-holdout: {error}", err=True)
        raise typer.Exit(2) from None
    for warning in caught:
        typer.echo(f"torch-holdout: {warning.message}", err=True)


def _print_json(content: dict[str, Any]) -> None:
    typer.echo(json.dumps(_finite(content), indent=2))


def _finite(content: Any) -> Any:
    """JSON has no infinity: null stands for it."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _print_audit(rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Claimed against measured", title_justify="left")
    for heading in ("subject", "evidence", "what", "claimed", "measured", "verdict"):
        table.add_column(heading, justify="right" if heading in ("claimed", "measured") else "left")
    for row in rows:
        verdict = "caught" if row.twin and row.flagged else "MISSED" if row.twin else "holds"
        verdict = "LEAKS" if row.flagged and not row.twin else verdict
        subject = f"twin: {row.subject}" if row.twin else row.subject
        numbers = (f"{row.claimed:.4g}", f"{row.measured:.4g}")
        table.add_row(subject, row.evidence, row.what, *numbers, verdict)
    width = None if sys.stdout.isatty() else 120
    Console(highlight=False, width=width).print(table)
    ours = sum(not row.twin for row in rows)
    caught = sum(row.twin and row.flagged for row in rows)
    typer.echo(
        f"{sum(row.right for row in rows if not row.twin)} of {ours} checks hold; {caught} of "
        f"{len(rows) - ours} broken twins were caught. Sampled rows flag what is right with "
        f"probability 1e-6 together."
    )


def _brief(mechanism: dict[str, Any]) -> str:
    parameters = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in mechanism.items()
        if name != "kind" and value != {}
    )
    return f"{str(mechanism['kind']).capitalize()}: {parameters}"


def _print_plan(found: "Plan") -> None:
    from rich.console import Console
    from rich.table import Table

    from torch_holdout.bounds.certificate import confidence_text

    table = Table(
        title=f"A plan (purpose: {found.purpose})", show_header=False, title_justify="left"
    )
    shown = {
        "holdout examples": f"{found.size:,}",
        "queries": f"{found.queries:,} ({counted(found.statistics, 'statistic')})",
        "mechanism": _brief(found.mechanism.identity()),
        "budget": counted(found.budget, "release"),
        "grid": f"{found.grid} intervals",
        "certificate": "nothing"
        if found.certificate.vacuous
        else f"+-{up(found.certificate.tolerance)} (normalised)",
        "confidence": confidence_text(found.certificate.failure),
        "epsilon": up(found.epsilon)
        + ("" if found.delta is None else f" at delta {found.delta:g}"),
        "min_delta": f"{found.min_delta:.2g} (times the statistic's range)",
        "patience": str(found.patience),
    }
    for name, value in shown.items():
        table.add_row(name, value)
    width = None if sys.stdout.isatty() else 100
    console = Console(highlight=False, width=width)
    console.print(table)
    for sentence in found.explanation.splitlines():
        console.print(f"- {sentence}")
