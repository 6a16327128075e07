"""Which rows of a holdout belong together: patients, users, documents, queries."""

import hashlib
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from torch_holdout._shared.labels import listed_labels, numbered_labels
from torch_holdout._shared.text import counted
from torch_holdout.errors import InvalidArgumentError

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_LARGEST = 2**63


@final
class Grouping:
    """The group of each row, in the dataset's order; groups are numbered as they first appear.

    The ids stay in this process. What is registered is how many groups there are, the sizes of the
    smallest and the largest, and a digest of which rows are together, in which ids do not matter.

    Args:
        ids: One number or text for each row: a tensor, an array or a sequence.

    Example:
        >>> Grouping(["ann", "bob", "ann"])
        <2 groups of 3 rows>
        >>> Grouping([7, 8, 7]).identity() == Grouping(["ann", "bob", "ann"]).identity()
        True
    """

    def __init__(self, ids: Any) -> None:
        if isinstance(ids, Tensor):
            ids = ids.detach().cpu()
        numbers, self._known = numbered_labels(ids)
        if not len(numbers):
            raise InvalidArgumentError(
                "Expected `groups` to have an id for each row, but got none."
            )
        self.numbers = torch.from_numpy(numbers)
        self.sizes = torch.bincount(self.numbers)
        self.smallest, self.largest = int(self.sizes.min()), int(self.sizes.max())
        self._digest = hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()
        self._on: dict[tuple[torch.device, str], Tensor] = {}

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.sizes)

    @property
    def rows(self) -> int:
        """The number of rows in all."""
        return len(self.numbers)

    def identity(self) -> dict[str, Any]:
        """Return the facts that the ledger stores and compares."""
        return {
            "count": self.count,
            "rows": self.rows,
            "fewest": self.smallest,
            "most": self.largest,
            "digest": self._digest,
        }

    def require_rows(self, size: int) -> None:
        """Raise unless there is an id for each of ``size`` rows."""
        if size != self.rows:
            raise InvalidArgumentError(
                f"Expected `groups` to have one id for each of the {counted(size, 'row')} of the "
                f"holdout (`size` counts rows, not groups), but it has {self.rows}. Give the ids "
                f"of all rows, in the dataset's order."
            )

    def at(self, positions: Tensor) -> Tensor:
        """Return the groups of rows by their places in the dataset; ``count`` beyond its end."""
        beyond = self.numbers.new_tensor([self.count])
        numbers = self._kept(positions.device, "numbers", lambda: torch.cat([self.numbers, beyond]))
        return numbers[positions.clamp(max=self.rows)]

    def of(self, ids: Any, device: torch.device) -> Tensor:
        """Return the groups of rows by their ids, on a device; ``count`` for an unknown id.

        A tensor of ids is not read.
        """
        if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
            ids = torch.from_numpy(ids.astype(np.int64))
        if isinstance(ids, Tensor):
            return self._of_tensor(ids.detach(), device)
        listed = listed_labels(ids)
        if listed is None:
            raise _unusable(type(ids).__name__)
        try:
            numbers = [self._known.get(each, self.count) for each in listed]
        except TypeError:  # a list of lists
            raise _unusable("ids that hold several values") from None
        return torch.tensor(numbers, dtype=torch.int64, device=device)

    def _of_tensor(self, ids: Tensor, device: torch.device) -> Tensor:
        if ids.ndim != 1 or ids.dtype not in _INTEGERS:
            raise _unusable(f"a tensor of {counted(ids.ndim, 'dimension')} and {ids.dtype}")
        known, numbers = self._kept(device, "ids", self._sorted)
        ids = ids.to(device=device, dtype=torch.int64)
        places = torch.searchsorted(known, ids).clamp(max=self.count - 1)
        return torch.where(known[places] == ids, numbers[places], self.count)

    def _sorted(self) -> Tensor:
        """Return the ids in ascending order, and their groups."""
        whole = all(type(each) is int and abs(each) < _LARGEST for each in self._known)
        if not whole:
            raise InvalidArgumentError(
                "Expected ids as `groups` was given, which were not whole numbers, but got a "
                "tensor. Return the ids of the batch as a list. Nothing was charged."
            )
        pairs = sorted(self._known.items())
        return torch.tensor(pairs, dtype=torch.int64).T.contiguous()

    def _kept(self, device: torch.device, name: str, make: Any) -> Tensor:
        """Return a tensor on a device, made once for each; usable in and out of inference mode."""
        if (device, name) not in self._on:
            with torch.inference_mode(False):
                self._on[device, name] = make().to(device)
        kept: Tensor = self._on[device, name]
        return kept

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Grouping)
            and self._known == other._known
            and (self._digest == other._digest)
        )

    def __hash__(self) -> int:
        return hash(self._digest)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_on": {}}

    def __repr__(self) -> str:
        return f"<{counted(self.count, 'group')} of {counted(self.rows, 'row')}>"


def _unusable(got: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Expected the ids of a batch as a tensor of whole numbers of shape [B] or a list, one for "
        f"each row, but got {got}. Nothing was charged."
    )
