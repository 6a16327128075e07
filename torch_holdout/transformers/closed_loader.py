"""What callbacks get instead of the holdout's loader: its length."""

from collections.abc import Iterator
from typing import Any, NoReturn, final

from torch_holdout.errors import UnguardedLogError


@final
class ClosedLoader:
    """A loader with a length, for progress bars, and without batches.

    Example:
        >>> len(ClosedLoader(range(3)))
        3
    """

    def __init__(self, loader: Any) -> None:
        try:
            self._batches: int | None = len(loader)
        except TypeError:  # an iterable dataset
            self._batches = None

    def __len__(self) -> int:
        if self._batches is None:
            raise TypeError("the holdout's loader has no length")
        return self._batches

    def __iter__(self) -> Iterator[Any]:
        raise closed("a callback iterates `eval_dataloader`")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the holdout's loader is not handed to callbacks, and has no {name!r} here"
        )


def closed(what: str) -> UnguardedLogError:
    """Return the error for code that would read the holdout outside of a pass."""
    return UnguardedLogError(
        f"Expected the holdout to be read by its own evaluation only, but {what}: values computed "
        f"from its batches would be raw. Return them from HoldoutTrainer(..., values=...), one for "
        f"each example; in on_evaluate(), `metrics` has the guarded ones. For looking at examples "
        f"use another dataset. Nothing was charged."
    )
