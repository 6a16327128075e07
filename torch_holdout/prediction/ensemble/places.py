"""Where records were: which part each of a sample of them was served to, by its content.

All of it is private, as the weights are: it goes where they go, into ``state_dict``, and nowhere
else. Of up to 4,096 records all are kept; of more, 64 runs of 64 from the whole set, the last up to
its end, so that records that were moved on by one are found again. A record is known by the numbers
and texts it is read with; one that reads differently each time is never known again.
"""

from collections import Counter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from torch_holdout._fingerprints.records import as_array, read_hashes
from torch_holdout._noise.generators import lent_generators

_RUNS, _RUN = 64, 64
_KEPT = 4 * _RUNS * _RUN  # rows, over several fits
_ROW = np.dtype([("content", "<u8"), ("part", "<u4"), ("count", "<u4")])


@final
class Places:
    """The parts of some records: rows of a content's hash, a part, and how often it was there.

    Example:
        >>> import torch
        >>> records = torch.utils.data.TensorDataset(torch.arange(4.0))
        >>> halves = [torch.tensor([0, 1]), torch.tensor([2, 3])]
        >>> places = Places.of(records, halves)
        >>> others = Places.of(records, [torch.tensor([0, 2]), torch.tensor([1, 3])])
        >>> places.contradict(places), places.contradict(others)
        (False, True)
    """

    __slots__ = ("_kept",)

    def __init__(self, content: bytes = b"") -> None:
        self._kept = np.frombuffer(content, dtype=_ROW)

    @classmethod
    def of(cls, dataset: Any, assignment: list[Tensor]) -> "Places":
        """Read a sample of the records; nothing is known of what cannot be read or hashed."""
        size = sum(map(len, assignment))
        numbers, parts = sampled(size), np.empty(size, dtype=np.uint32)
        for part, own in enumerate(assignment):
            parts[own.numpy()] = part
        try:
            # Reading may draw at random, as an augmentation does: training must not notice.
            with lent_generators("places"):
                hashes = as_array(b"".join(read_hashes(dataset, numbers.tolist())))
        except Exception:  # its message may quote a record; training will meet it, and withhold it
            return cls()
        pairs = zip(hashes.tolist(), parts[numbers].tolist(), strict=True)
        return cls._counted(Counter(pairs))

    def contradict(self, later: "Places") -> bool:
        """Whether a record of one content is in another part later.

        Records may come and go: of each content, the parts before must be among those later, or
        those later among those before.
        """
        before, now = self._by_content(), later._by_content()
        return any(
            not (before[content] <= now[content] or now[content] <= before[content])
            for content in before.keys() & now.keys()
        )

    def joined(self, later: "Places") -> "Places":
        """Return both; beyond a bound, the oldest are forgotten."""
        both = Counter(later._counts()) | Counter(self._counts())
        return self._counted(Counter(dict(list(both.items())[:_KEPT])))

    def content(self) -> bytes:
        """Return what a state stores. Private."""
        return self._kept.tobytes()

    def __bool__(self) -> bool:
        return len(self._kept) > 0

    def __repr__(self) -> str:
        return "<places of records>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Places, (self.content(),)

    @classmethod
    def _counted(cls, counts: Counter[tuple[int, int]]) -> "Places":
        rows = [(*place, count) for place, count in sorted(counts.items())]
        return cls(np.array(rows, dtype=_ROW).tobytes())

    def _counts(self) -> dict[tuple[int, int], int]:
        return {(content, part): count for content, part, count in self._kept.tolist()}

    def _by_content(self) -> dict[int, Counter[int]]:
        found: dict[int, Counter[int]] = {}
        for content, part, count in self._kept.tolist():
            found.setdefault(content, Counter())[part] = count
        return found


def sampled(size: int) -> NDArray[np.int64]:
    """Return the numbers of the records that are kept: the same for sets of one size.

    Example:
        >>> len(sampled(100)), len(sampled(10**6)), int(sampled(10**6)[-1])
        (100, 4096, 999999)
    """
    if size <= _RUNS * _RUN:
        return np.arange(size)
    starts = np.arange(_RUNS) * (size - _RUN) // (_RUNS - 1)
    return (starts[:, None] + np.arange(_RUN)).reshape(-1)
