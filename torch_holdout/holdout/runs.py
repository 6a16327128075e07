"""The name of the run or trial that asks, which the ledger keeps beside its answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch_holdout._shared.checks import require_text

_current: ContextVar[str | None] = ContextVar("torch_holdout_run", default=None)
_LONGEST = 200


@contextmanager
def named_run(name: str) -> Iterator[None]:
    """Name the run of every query inside the block, in this thread; the report compares runs.

    The name is only a label, and a repeated query keeps the name of the run that asked first.
    ``HoldoutGuard`` and the tuners name their runs themselves.

    Example:
        >>> import torch, torch_holdout as th
        >>> holdout = th.ReusableHoldout(
        ...     "memory://", name="val", size=2, statistics={"val_acc": th.ZeroOne()},
        ...     mechanism=th.Ladder(step=0.1), budget=3)
        >>> sums = holdout.accumulator("val_acc")
        >>> sums.update(torch.tensor([True, False]))
        >>> with th.named_run("baseline"):
        ...     answer = holdout.release("val_acc", sums, query="weights of the baseline")
    """
    require_text("name", name)
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def current_run() -> str | None:
    """Return the name of the run this thread is in."""
    return _current.get()


def as_run_name(text: str) -> str:
    r"""Return any text as a label: printable characters only, and the last 200 of them.

    Example:
        >>> as_run_name("logs\n/version_0")
        'logs/version_0'
    """
    shown = "".join(character for character in text if character.isprintable())
    return shown[-_LONGEST:].strip() or "unnamed"
