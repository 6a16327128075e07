"""What closing a holdout will do, said before it is done."""

from torch_holdout._shared.checks import require_failure
from torch_holdout._shared.text import counted
from torch_holdout.bounds.certificate import SMALLEST_FAILURE
from torch_holdout.errors import HoldoutError
from torch_holdout.holdout.reading import AccountReading
from torch_holdout.holdout.results import RunStatus
from torch_holdout.holdout.run_checks import shows_exactly
from torch_holdout.ledger import Ledger
from torch_holdout.report.summary import chosen, reading_of
from torch_holdout.report.wording import joined, named

_NAMED = 10  # open runs


def one_holdout(ledger: Ledger, name: str | None) -> tuple[str, AccountReading]:
    """Return the holdout of a name, or the only one; its rows are checked."""
    holdouts, _ = chosen(ledger, name)
    if not holdouts and name is not None:
        raise HoldoutError(
            f"Expected a holdout, but {name!r} is an account of training records, which is never "
            f"closed. Nothing was closed."
        )
    if len(holdouts) != 1:
        several = f"has the holdouts {ledger.names()}. Choose one with --name"
        raise HoldoutError(
            f"Expected one holdout to close, but the ledger {several if holdouts else 'has none'}. "
            f"Nothing was closed."
        )
    return holdouts[0], reading_of(ledger, holdouts[0])


def before_closing(reading: AccountReading, *, exact: bool | None, failure: float) -> str:
    """Return what closing will do; empty if the holdout is closed already.

    Raises where it could not be closed with these arguments, before anyone is asked.
    """
    require_failure(failure, SMALLEST_FAILURE)
    shown, status = shows_exactly(reading.mechanism, exact), reading.status
    if status.closed:
        return ""
    sentences = [
        f"Closing holdout {named(status.name)} cannot be undone: nothing can be asked afterwards.",
        *(_of_runs(status.runs) if status.unit == "run" else [_of_answers(status.queries)]),
        _of_values(reading, shown),
    ]
    if status.budget_left:
        left = counted(status.budget_left, status.unit)
        sentences.append(f"Of its budget {left} will never be used.")
    return "\n".join(sentences)


def _of_runs(runs: tuple[RunStatus, ...]) -> list[str]:
    evaluations = sum(run.evaluations for run in runs)
    made = f"It has {counted(len(runs), 'run')} with {counted(evaluations, 'evaluation')}."
    still_open = [run for run in runs if run.state == "open"]
    if not still_open:
        return [made]
    names = [
        f"run {run.number}" + ("" if run.name is None else f" ({named(run.name)})")
        for run in still_open[:_NAMED]
    ]
    if len(still_open) > _NAMED:
        names.append(f"{len(still_open) - _NAMED:,} more")
    which = "is still open, and ends" if len(still_open) == 1 else "are still open, and end"
    return [f"{made} Of these {joined(names)} {which} without an outcome."]


def _of_answers(queries: int) -> str:
    return f"It has given {counted(queries, 'answer')}; they can still be repeated."


def _of_values(reading: AccountReading, shown: bool) -> str:
    if not reading.mechanism.is_private():
        return "Every value that it has kept becomes public, with an interval."
    if reading.mechanism.shows_values:
        return "Its noise protects the examples: it has kept no sums, so no new value is published."
    if shown:
        return (
            "Every value becomes public, with an interval. Its noise then protects nobody: epsilon "
            "is infinite for good."
        )
    return (
        "Its noise protects the examples: no value is published, and the sums of all evaluations "
        "are erased for good. With --exact they are shown, and epsilon is infinite."
    )
