"""What the commands ``status`` and ``prices`` print: text for people, plain data for machines."""

from dataclasses import asdict
from typing import Any

from torch_holdout._shared.text import counted
from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.closed_values import published
from torch_holdout.holdout.pricing import Asked
from torch_holdout.ledger import Ledger
from torch_holdout.mechanisms import Patience
from torch_holdout.prediction.status import records_status
from torch_holdout.report.summary import chosen, reading_of


def status_content(ledger: Ledger, name: str | None, failure: float) -> tuple[str, dict[str, Any]]:
    """Return the status of every account, or of those of one name, checked."""
    holdouts, records = chosen(ledger, name)
    texts: list[str] = []
    shown: list[dict[str, Any]] = []
    for account in holdouts:
        reading = reading_of(ledger, account)
        status, claim = reading.status, reading.certificate(failure)
        closing = published(ledger, account, reading, failure)
        own = {"certificate": asdict(claim), "closing": closing and asdict(closing)}
        shown.append(asdict(status) | own)
        # A sealed holdout's certificate is about closing.
        parts = (status, None if closing and closing.runs else claim, closing)
        texts.append("\n".join(str(part) for part in parts if part is not None))
    charged = [
        records_status(ledger.records_summary(account, check=True), ledger.address)
        for account in records
    ]
    text = "\n\n".join([*texts, *map(str, charged)]) or "The ledger has no account yet."
    found = {"ledger": ledger.address, "holdouts": shown, "records": list(map(asdict, charged))}
    return text, found


def prices_content(
    ledger: Ledger,
    name: str | None,
    failure: float,
    evaluations: int | None,
    patience: int | None,
) -> tuple[str, dict[str, Any]]:
    """Return the prices of every holdout, or of the one of a name, checked."""
    holdouts, records = chosen(ledger, name)
    if name is not None and records and not holdouts:
        raise HoldoutError(
            f"Expected a holdout, but {name!r} is an account of training records: its budget is "
            f"charged by what is asked. torch-holdout status shows what is left."
        )
    found = []
    for account in holdouts:
        reading = reading_of(ledger, account)
        with reading.readable():
            first, *_ = reading.summary.registered.statistics
        stop = None if patience is None else Patience(first, patience)
        asked = Asked(failure=failure, stop=stop, evaluations=evaluations)
        found.append(reading.prices(asked, ledger.compared(account)))
    text = "\n\n".join(map(str, found)) or "The ledger has no holdout yet."
    if records and found:
        text += f"\n\n{counted(len(records), 'account')} of training records: see status."
    return text, {"ledger": ledger.address, "holdouts": list(map(asdict, found))}
