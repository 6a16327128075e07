"""What others know about a guard of either trainer: Lightning's or Hugging Face's."""

from collections.abc import Sequence
from typing import Any, Protocol

from torch_holdout.holdout.protocol import Door
from torch_holdout.holdout.results import Answer


class Watching(Protocol):
    """A guard as the first look knows it."""

    @property
    def public(self) -> Sequence[str]:
        """Keys, metrics and functions that may tell what they like."""

    @property
    def unguarded(self) -> str:
        """What happens to values that go another way."""

    def _warn_once(self, what: str) -> None:
        """Warn, once in a run."""


class Guarding(Watching, Protocol):
    """A guard as the course of its run knows it."""

    answers: dict[str, Answer]
    prog_bar: bool
    dataloader_idx: int

    @property
    def holdout(self) -> Door:
        """The account, or the board, that it asks."""

    @property
    def on_exhausted(self) -> str:
        """What happens when the budget is spent."""

    @property
    def public_dataloaders(self) -> tuple[int, ...]:
        """The loaders that may be watched."""

    @property
    def _fitting(self) -> bool:
        """Whether it guards a training, and not an evaluation alone."""

    def _label(self) -> str:
        """Return what the run is called."""

    def _joined(self) -> Any:
        """Return what publishes its values."""
