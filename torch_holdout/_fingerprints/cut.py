"""A dataset that was cut into parts once, and how a part reports its cut to a ledger.

The cut is identified by the records of each part, not by seed and shares: the same seed on a
dataset in another order, or with other groups, is another cut. Hashes of records stay in memory.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from torch_holdout._fingerprints.records import Hashes, as_array, read_hashes
from torch_holdout._noise.generators import lent_generators
from torch_holdout._shared.text import counted
from torch_holdout.errors import InvalidArgumentError

PARTS = ("display", "vault", "rest")
Owners = NDArray[np.int8]  # for each example the number of its part in PARTS
_SLOW_SECONDS = 10.0

_log = logging.getLogger("torch_holdout")


@final
class Whole:
    """The dataset that was cut: the part of each example, and sealed hashes once it was read.

    Example:
        >>> import numpy as np
        >>> whole = Whole(np.array([0, 2, 2], dtype=np.int8), None)
        >>> whole, whole.indices("rest").tolist()
        (<a whole of 3 examples, not read>, [1, 2])
    """

    __slots__ = ("_hashes", "_owners")

    def __init__(self, owners: Owners, hashes: Hashes | None) -> None:
        self._owners = owners
        self._hashes = hashes

    def indices(self, part: str) -> NDArray[np.int64]:
        """Return the numbers of a part's examples, ascending."""
        return np.flatnonzero(self._owners == PARTS.index(part))

    def parts(self, dataset: Any, indices: Sequence[int], own: Hashes) -> dict[str, Hashes]:
        """Return the hashes of every part, given those of one part as it is read now.

        Raises:
            InvalidArgumentError: Records change from one reading to the next, or parts share some.
        """
        chosen = np.asarray(indices, dtype=np.int64)
        hashes = self._hashes
        if hashes is None or not np.array_equal(hashes[chosen], own):  # or changed since the cut
            hashes = read_all(dataset, len(self._owners))
        if not np.array_equal(hashes[chosen], own):
            raise InvalidArgumentError(
                "Expected examples that are the same whenever they are read, but some of this part "
                "changed between two readings. Fingerprint it without random augmentation."
            )
        require_apart(hashes, self._owners)
        self._hashes = hashes
        return {part: hashes[self.indices(part)] for part in PARTS}

    def __repr__(self) -> str:
        state = "not read" if self._hashes is None else "sealed"
        return f"<a whole of {counted(len(self._owners), 'example')}, {state}>"

    def __copy__(self) -> "Whole":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Whole":
        return self

    def __reduce__(self) -> tuple[type["Whole"], tuple[Owners, None]]:
        return Whole, (self._owners, None)  # the hashes identify the data: they stay


@final
@dataclass(frozen=True, kw_only=True)
class Cut:
    """How a dataset was cut, and which part this is; see ``th.split``.

    Attributes:
        part: "display", "vault" or "rest".
        display: The share that may be watched, if one was asked for.
        vault: The share that is kept for one final number, if one was asked for.
        seed: What the permutation came from.
        groups: What was kept together: "groups", "records" or nothing.
        whole: The dataset that was cut; its hashes are sealed and in no pickle.

    Example:
        >>> import torch_holdout as th
        >>> display, sealed = th.split(list(range(10)), display=0.2, seed=3)
        >>> print(sealed.cut)
        display 0.2, seed 3, part rest
    """

    part: str
    display: float | None
    vault: float | None
    seed: int
    groups: str | None
    whole: Whole = field(repr=False, compare=False)

    def __str__(self) -> str:
        shares = [f"{name} {share!r}" for name in PARTS[:2] if (share := getattr(self, name))]
        kept = [] if self.groups is None else [f"{self.groups} together"]
        return ", ".join([*shares, f"seed {self.seed}", *kept, f"part {self.part}"])


class Part(Subset[Any]):
    """A part of a dataset, as a ``Subset``, with the ``cut`` it comes from; see ``th.split``."""

    def __init__(self, dataset: Any, indices: Sequence[int], cut: Cut) -> None:
        super().__init__(dataset, indices)
        self.cut = cut

    def records(self, own: Hashes) -> "CutRecords":
        """Return what a ledger registers, given the hashes of this part's records."""
        expected = self.cut.whole.indices(self.cut.part)
        if not np.array_equal(np.sort(np.asarray(self.indices, dtype=np.int64)), expected):
            raise InvalidArgumentError(
                "Expected the examples that th.split chose, but the part's `indices` were changed. "
                "Cut again with other shares before anything is watched, or use a "
                "torch.utils.data.Subset of the part, whose cut is not registered."
            )
        parts = self.cut.whole.parts(self.dataset, self.indices, own)
        return CutRecords(text=str(self.cut), parts=parts)


@final
@dataclass(frozen=True, kw_only=True)
class CutRecords:
    """A cut as a fingerprint carries it: its public text, and the sealed hashes of every part."""

    text: str
    parts: dict[str, Hashes] = field(repr=False)


def read_all(dataset: Any, size: int) -> Hashes:
    """Hash every record of a dataset; log how long it will take if that is long.

    The global generators are put back.

    Example:
        >>> len(read_all([1.0, 2.0, 3.0], 3))
        3
    """
    hashes, start, told = bytearray(), time.monotonic(), False
    with lent_generators("th.split"):
        for done, own in enumerate(read_hashes(dataset, range(size)), start=1):
            hashes += own
            passed = time.monotonic() - start
            if passed > _SLOW_SECONDS and not told:
                told = True
                _log.warning(
                    "th.split reads all %d examples to find records that are in two parts; about "
                    "%d seconds to go. check_duplicates=False leaves that to th.fingerprint.",
                    size,
                    round(passed * (size - done) / done),
                )
    return as_array(bytes(hashes))


def require_apart(hashes: Hashes, owners: Owners) -> None:
    """Raise if a record is in two parts."""
    order = np.argsort(hashes, kind="stable")
    ordered, parts = hashes[order], owners[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    torn = np.maximum.reduceat(parts, starts) > np.minimum.reduceat(parts, starts)
    if torn.any():
        records, copies = int(torn.sum()), np.diff(np.r_[starts, len(ordered)])[torn].sum()
        raise InvalidArgumentError(
            f"Expected every record in one part of the cut, but {counted(records, 'record')} "
            f"({counted(int(copies), 'example')}) {'is' if records == 1 else 'are'} in several: "
            f"what is watched in one part is not new in another. Pass groups='records', which "
            f"keeps equal records together, or groups= with one label for all copies of a record, "
            f"or remove the copies."
        )
