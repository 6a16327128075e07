"""What ``torch-holdout`` alone says about a folder: its ledgers, their budgets, what is next."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_holdout._shared.files import ledger_url
from torch_holdout._shared.text import counted
from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.results import Status
from torch_holdout.ledger import Ledger
from torch_holdout.prediction.status import records_status
from torch_holdout.report.summary import chosen, reading_of
from torch_holdout.report.wording import named

MOST = 5  # ledgers that are opened; the others are counted


def folder_content(files: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return what the ledgers among some files hold, the one written last first.

    Files that are not ledgers, or cannot be read, are left out of the text. Nothing is charged.

    Example:
        >>> folder_content([])
        ('', {'ledgers': [], 'not_opened': 0, 'next': 'torch-holdout plan'})
    """
    ordered = sorted(files, key=_written, reverse=True)
    found = [_content(file) for file in ordered[:MOST]]
    left_out = len(ordered) - len(found)
    ledgers = [each for each in found if each["problem"] is None]
    command = _next(ledgers)
    content = {"ledgers": found, "not_opened": left_out, "next": command}
    return "\n".join(_lines(ledgers, left_out, command)), content


def _written(file: str) -> float:
    try:
        return Path(file).stat().st_mtime
    except OSError:
        return 0.0


def _content(file: str) -> dict[str, Any]:
    try:
        ledger = Ledger(ledger_url(file), reads_only=True)
        holdouts, records = chosen(ledger, None)
        accounts = [_holdout(reading_of(ledger, account).status) for account in holdouts]
        charged = [
            records_status(ledger.records_summary(account, check=True), ledger.address)
            for account in records
        ]
    except HoldoutError as error:
        return {"ledger": file, "accounts": [], "problem": str(error)}
    own = [{"name": each.name, "kind": "records", "queries": each.queries} for each in charged]
    return {"ledger": file, "accounts": [*accounts, *own], "problem": None}


def _holdout(status: Status) -> dict[str, Any]:
    return {
        "name": status.name,
        "kind": "holdout",
        "size": status.size,
        "unit": status.unit,
        "budget": status.budget,
        "budget_left": status.budget_left,
        "queries": status.queries,
        "open_runs": sum(run.state == "open" for run in status.runs),
        "closed": status.closed,
    }


def _next(ledgers: Sequence[dict[str, Any]]) -> str:
    """Return the command for the first account of the ledger that was written last."""
    accounts = [(each["ledger"], account) for each in ledgers for account in each["accounts"]]
    if not accounts:
        return "torch-holdout plan"
    ledger, account = accounts[0]
    return f"torch-holdout {_command(account)} {ledger}"


def _command(account: dict[str, Any]) -> str:
    if account["kind"] == "records" or account["open_runs"]:
        return "status"
    if account["closed"]:
        return "report"
    if account["budget_left"]:
        return "prices"
    return "close" if account["unit"] == "run" else "report"


_WHY = {
    "status": "what is left, and which runs are open",
    "prices": "before the next run: what it would say and be worth",
    "close": "no run is left: end it, and see every value with its interval",
    "report": "what may be claimed, as a page",
}


def _lines(ledgers: Sequence[dict[str, Any]], left_out: int, command: str) -> list[str]:
    if not ledgers:
        return []
    lines = ["In this folder:"]
    for each in ledgers:
        texts = [_text(account) for account in each["accounts"]] or ["no account yet"]
        lines += [f"  {each['ledger']}: {text}" for text in texts]
    if left_out:
        lines.append(f"  and {counted(left_out, 'file')} more, written earlier")
    if twice := _same_size(ledgers):
        lines.append(
            f"  {twice[0]} accounts have {twice[1]:,} examples. If they are the same ones, each "
            f"voids the other's claims."
        )
    if why := _WHY.get(command.split()[1]):
        lines += ["", "Next:", f"  {command:<59} {why}"]
    return lines


def _text(account: dict[str, Any]) -> str:
    name = named(account["name"])
    if account["kind"] == "records":
        return f"records {name}, {counted(account['queries'], 'query')} answered"
    text = f"holdout {name}, {counted(account['size'], 'example')}, "
    if account["closed"]:
        return text + "closed"
    left = counted(account["budget"], account["unit"])
    text += f"{account['budget_left']:,} of {left} left"
    return text + (f", {counted(account['open_runs'], 'run')} open" if account["open_runs"] else "")


def _same_size(ledgers: Sequence[dict[str, Any]]) -> tuple[int, int] | None:
    """Accounts of one size in several ledgers: one ledger would have compared fingerprints."""
    sizes = Counter(
        size
        for each in ledgers
        for size in {a["size"] for a in each["accounts"] if a["kind"] == "holdout"}
    )
    size, count = next(iter(sizes.most_common(1)), (0, 0))
    return (count, size) if count > 1 else None
