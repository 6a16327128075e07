"""Private records in the order of a keyed hash of their content; a change makes a new object."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from torch_holdout.prediction.nearest.search import Searchable, record_weights

Name = int | str  # of a record, or of a user
_HASH_BYTES = 16


@final
@dataclass(frozen=True, eq=False)
class PlacedRecords:
    """Records, sorted by a hash of embedding and label under a secret of the store. Raw.

    The order between two of them depends on the two alone. Records of equal content and label are
    equal in everything that a query can see.

    Attributes:
        found: What a search reads.
        hashes: The keyed hashes, uint64 [n, 2], ascending.
        ids: The name of each record; None for one without.
        users: The user of each record; None for one without.
    """

    found: Searchable
    hashes: np.ndarray[Any, np.dtype[np.uint64]]
    ids: tuple[Name | None, ...]
    users: tuple[Name | None, ...]

    def __repr__(self) -> str:
        return "<private records>"

    def with_records(self, more: "PlacedRecords", *, by_user: bool) -> "PlacedRecords":
        """Return both together."""
        if not len(self.hashes):  # it may not know the length of an embedding
            return more
        hashes = np.concatenate([self.hashes, more.hashes])
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        codes, weights, labels = map(_joined, _tensors(self.found), _tensors(more.found))
        joined = PlacedRecords(
            Searchable(codes, weights, labels),
            hashes,
            self.ids + more.ids,
            self.users + more.users,
        )
        return joined._chosen(order, by_user)

    def without(
        self, unwanted: Callable[[Name | None, Name | None], bool], *, by_user: bool
    ) -> "PlacedRecords":
        """Return the records for which ``unwanted(id, user)`` is false."""
        pairs = enumerate(zip(self.ids, self.users, strict=True))
        kept = [place for place, (name, user) in pairs if not unwanted(name, user)]
        return self._chosen(np.array(kept, dtype=np.int64), by_user)

    def to(self, device: torch.device) -> "PlacedRecords":
        """Return the records on a device."""
        return replace(self, found=_on(self.found, device))

    def _chosen(self, order: np.ndarray[Any, Any], by_user: bool) -> "PlacedRecords":
        places, found = torch.from_numpy(order).to(self.found.labels.device), self.found
        users = tuple(self.users[place] for place in order)
        owners, count = _numbered(users) if by_user else (None, 0)
        return PlacedRecords(
            Searchable(
                found.codes[places],
                found.weights[places],
                found.labels[places],
                None if owners is None else owners.to(found.labels.device),
                count,
            ),
            self.hashes[order],
            tuple(self.ids[place] for place in order),
            users,
        )


def placed(
    codes: Tensor,
    labels: Tensor,
    ids: Sequence[Name | None],
    users: Sequence[Name | None],
    *,
    secret: bytes,
    by_user: bool,
) -> PlacedRecords:
    """Place records of whole-number embeddings, on the host.

    Example:
        >>> codes, labels = torch.tensor([[127.0, 3.0], [5.0, 127.0]]), torch.tensor([0, 1])
        >>> records = placed(codes, labels, ["a", "b"], [None] * 2, secret=b"key", by_user=False)
        >>> records, sorted(records.ids)
        (<private records>, ['a', 'b'])
    """
    content = codes.to(torch.int8).numpy()
    classes = labels.to(torch.int64).numpy()
    digests = b"".join(
        hashlib.blake2b(
            row.tobytes() + label.tobytes(), key=secret, digest_size=_HASH_BYTES
        ).digest()
        for row, label in zip(content, classes, strict=True)
    )
    hashes = np.frombuffer(digests, dtype="<u8").reshape(-1, 2)
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    unsorted = PlacedRecords(
        Searchable(codes.to(torch.float32), record_weights(codes), labels.to(torch.int64)),
        hashes,
        tuple(ids),
        tuple(users),
    )
    return unsorted._chosen(order, by_user)


def _numbered(users: Sequence[Name | None]) -> tuple[Tensor, int]:
    numbers: dict[Name | None, int] = {}
    owners = [numbers.setdefault(user, len(numbers)) for user in users]
    return torch.tensor(owners, dtype=torch.int64), len(numbers)


def _tensors(found: Searchable) -> tuple[Tensor, Tensor, Tensor]:
    return found.codes, found.weights, found.labels


def _joined(one: Tensor, other: Tensor) -> Tensor:
    return torch.cat([one, other.to(one.device)])


def _on(found: Searchable, device: torch.device) -> Searchable:
    codes, weights, labels = (tensor.to(device) for tensor in _tensors(found))
    owners = None if found.owners is None else found.owners.to(device)
    return Searchable(codes, weights, labels, owners, found.num_owners)
