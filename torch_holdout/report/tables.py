"""The report for machines: an object for JSON, rows for CSV."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from torch_holdout._shared.checks import require_failure, require_instance
from torch_holdout.holdout.closed_values import published
from torch_holdout.holdout.closing import Closing
from torch_holdout.ledger import Ledger, Recorded
from torch_holdout.report import verdict
from torch_holdout.report.model_card import model_card, records_card
from torch_holdout.report.summary import Report, chosen, pages_of, reading_of, shown

COLUMNS = (
    *("holdout", "position", "asked_at", "run", "statistic", "kind", "value", "low", "high"),
    *("run_number", "evaluation"),  # of sealed runs
)


def content(report: Report) -> dict[str, Any]:
    """Return all of a report, with the sentences of the page, as plain data.

    Example:
        >>> from torch_holdout.report.summary import summarise
        >>> content(summarise(Ledger("memory://")))["holdouts"]
        ()
    """
    require_instance("report", report, Report)
    whole = asdict(report)
    for account, holdout in zip(whole["holdouts"], report.holdouts, strict=True):
        account["headline"] = verdict.headline(holdout)
        account["verdict"] = list(map(asdict, verdict.verdict(holdout)))
        account["not_promised"] = verdict.not_promised(holdout)
        account["model_card"] = model_card(holdout)
    for account, records in zip(whole["records"], report.records, strict=True):
        account["headline"] = verdict.records_headline(records)
        account["verdict"] = list(map(asdict, verdict.records_verdict(records)))
        account["not_promised"] = verdict.records_not_promised(records)
        account["model_card"] = records_card(records)
    return whole


def rows(ledger: Ledger, failure: float = 0.05, name: str | None = None) -> Iterator[str]:
    """Yield the lines of a CSV file, one for each answer of each holdout, after its heading.

    A closed holdout has another for each value of its own, of kind ``exact``. An interval takes a
    millisecond, so a hundred thousand answers take minutes; rows come as they are ready, and
    some thousand answers are in memory at once.

    Example:
        >>> list(rows(Ledger("memory://")))
        ['holdout,position,asked_at,run,statistic,kind,value,low,high,run_number,evaluation']
    """
    require_failure(failure)
    holdouts, records = chosen(ledger, name)
    for account in records:
        ledger.records_summary(account, check=True)
    readings = {account: reading_of(ledger, account) for account in holdouts}
    for reading in readings.values():  # an edited ledger is refused before the first row
        reading.require_readable()
    yield _line(COLUMNS)
    for account, reading in readings.items():
        before = 0
        for page in pages_of(ledger, account, reading.summary):
            intervals = reading.intervals(page, failure, before)
            before += sum(answer.kind == "release" for answer in page)
            for answer in page:
                row = asdict(shown(answer, intervals)) | {"holdout": reading.summary.name}
                yield _line([_cell(row.get(column)) for column in COLUMNS])
        closing = published(ledger, account, reading, failure)
        for row in [] if closing is None else _exact(closing, ledger.answers(account)):
            yield _line([_cell(row.get(column)) for column in COLUMNS])


def _exact(closing: Closing, answers: Iterable[Recorded]) -> Iterator[dict[str, Any]]:
    """Yield the holdout's own values, with the run and time of the answer or the sealed run."""
    names = {run.number: run.name for run in closing.runs}
    asked = {answer.position: answer for answer in answers}
    for value in closing.values:
        if not value.exact:
            continue  # published before, and in a row of its own
        row = asdict(value) | {"holdout": closing.name, "kind": "exact"}
        if value.run:
            yield row | {"run": names[value.run], "run_number": value.run}
        else:
            answer = asked[value.evaluation]
            own = {"position": value.evaluation, "run": answer.run, "asked_at": answer.asked_at}
            yield row | own | {"evaluation": None}


def _cell(value: str | float | None) -> str | float:
    """Keep a spreadsheet from taking text for a formula; numbers stay numbers."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return "" if value is None else value


def _line(cells: Any) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(cells)
    return written.getvalue()
