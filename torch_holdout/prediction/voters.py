"""What a predictor needs of the models behind it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from torch_holdout.prediction.neighbours import Neighbours


class Voters(ABC):
    """Models whose raw outputs are private: an ensemble on disjoint parts, or one stable model.

    Attributes:
        num_outputs: Classes, or the size of the output; None until it is known.
    """

    num_outputs: int | None

    @property
    @abstractmethod
    def num_parts(self) -> int:
        """How many of them."""

    @property
    @abstractmethod
    def neighbours(self) -> Neighbours:
        """Which change of the training records is protected."""

    @abstractmethod
    def output_chunks(self, inputs: Any) -> Iterator[Tensor]:
        """Yield raw outputs ``[m, B, ...]`` of a few members at a time, without gradients."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what is public about their making."""
