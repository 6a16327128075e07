r"""The records nearest to a query, in an exact order: two records are ordered by themselves alone.

In floating point, removing one record changes the last bits of others' products, and so their order
and their votes: one record would move many. Here embeddings are whole numbers of at most 127 in at
most 1,000 dimensions, so that a product of two is below :math:`2^{24}` and exact in single
precision, in any order of summation, on any device and at any setting of its matrix products. What
follows is elementwise in double precision: the product times the record's own weight, rounded to
:math:`2^{-14}`; then the record's place in the order of a keyed hash, which breaks ties.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

LARGEST = 127  # of a number of an embedding
MOST_DIMENSIONS = 1000  # LARGEST**2 times this is below 2^24
MOST_RECORDS = 2**26
ABSENT = -1  # the label of no record
_SCORE_STEPS = 2.0**14  # a score is below 127 sqrt(1000) < 2^12
_PLACES = 2.0**26
_OFFSET = 2.0**52  # makes keys positive: their bits are ordered like themselves
# How many pairs of a query and a record are compared at once: products by a large matrix, keys in
# what fits a CPU's cache; elsewhere few launches count.
_PRODUCTS_ON_CPU, _KEYS_ON_CPU, _AT_ONCE_ELSEWHERE = 2**23, 2**20, 2**25


@final
@dataclass(frozen=True, eq=False)
class Searchable:
    """Records as tensors on one device, in the order of their keyed hashes. Raw.

    Attributes:
        codes: Whole numbers of at most 127, float32 [n, d].
        weights: What a product with the record is multiplied by, float64 [n].
        labels: Classes, int64 [n].
        owners: The user of each record, numbered from 0, int64 [n]; None if each stands for itself.
        num_owners: How many users there are.
    """

    codes: Tensor
    weights: Tensor
    labels: Tensor
    owners: Tensor | None = None
    num_owners: int = 0

    def __repr__(self) -> str:
        return "<private records>"


def whole_numbers(embeddings: Tensor) -> Tensor:
    """Return embeddings [B, d] as whole numbers from -127 to 127, float32; each row by itself.

    The largest of a row becomes 127. A row with a number that is not finite becomes zeros, silently
    because a message would tell that there is one; so does a row of zeros.

    Example:
        >>> whole_numbers(torch.tensor([[0.5, -1.0], [0.0, 0.0], [float("nan"), 1.0]]))
        tensor([[  64., -127.],
                [   0.,    0.],
                [   0.,    0.]])
    """
    rows = embeddings.detach()
    rows = (rows.to("cpu") if rows.device.type == "mps" else rows).to(torch.float64)
    if not rows.shape[1]:
        return rows.to(torch.float32)
    largest = rows.abs().amax(dim=1, keepdim=True)  # passes on what is not a number
    usable = largest.isfinite() & (largest > 0)
    scaled = torch.where(usable, rows / torch.where(usable, largest, 1.0), 0.0)
    return (scaled * LARGEST).round_().to(torch.float32)


def record_weights(codes: Tensor) -> Tensor:
    """Return what products with each record are multiplied by, float64 [n]; 0 for a row of zeros.

    It is the reciprocal of the record's length, so that nearness is the angle, in steps of a score.

    Example:
        >>> (record_weights(torch.tensor([[3.0, 4.0], [0.0, 0.0]])) / 2**14).tolist()
        [0.2, 0.0]
    """
    squares = codes.to(torch.float64).square_().sum(dim=1)  # whole numbers: exact
    return torch.where(squares > 0, _SCORE_STEPS / squares.clamp(min=1).sqrt_(), 0.0)


@torch.no_grad()
def nearest_labels(queries: Tensor, records: Searchable, count: int) -> Tensor:
    """Return the labels of the records nearest to each query, int32 [B, count]. Raw.

    The nearest is first. With owners, each user enters with the record that is nearest, and is
    listed once. Places that are left over are -1. Nothing is read back to the host.

    Args:
        queries: Whole numbers of at most 127, as of ``whole_numbers``, on the records' device.
        records: What to search.
        count: How many to list; public.

    Example:
        >>> codes = whole_numbers(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
        >>> records = Searchable(codes, record_weights(codes), torch.tensor([4, 5, 6]))
        >>> nearest_labels(whole_numbers(torch.tensor([[0.1, 0.2]])), records, count=4)
        tensor([[ 5,  4,  6, -1]], dtype=torch.int32)
    """
    listed = min(count, len(records.labels) if records.owners is None else records.num_owners)
    absent = torch.full((len(queries), count - listed), ABSENT, device=queries.device)
    blocks = []
    for keys in _key_blocks(queries, records) if listed else ():
        # Positive doubles are ordered as their bits, and whole numbers are compared faster.
        best = keys.view(torch.int64).topk(listed, dim=1).values.view(torch.float64)
        place = best.sub_(_OFFSET).remainder_(_PLACES).to(torch.int64)
        labels = records.labels.expand(len(keys), -1).gather(1, place)
        blocks.append(labels.to(torch.int32))
    table = [torch.cat(blocks)] if blocks else []
    return torch.cat([*table, absent.to(torch.int32)], dim=1)


def _key_blocks(queries: Tensor, records: Searchable) -> Iterator[Tensor]:
    """Yield positive keys [b, n] (or [b, users]) of a few queries at a time: larger is nearer."""
    size = len(records.labels)
    on_cpu = queries.device.type == "cpu"
    products_at_once = _PRODUCTS_ON_CPU if on_cpu else _AT_ONCE_ELSEWHERE
    keys_at_once = _KEYS_ON_CPU if on_cpu else _AT_ONCE_ELSEWHERE
    places = torch.arange(size, dtype=torch.float64, device=queries.device).add_(_OFFSET)
    for block in torch.split(queries, max(1, products_at_once // size)):
        whole = exact_products(block, records.codes)
        for products in torch.split(whole, max(1, keys_at_once // size)):
            keys = products.to(torch.float64).mul_(records.weights).round_()
            keys = keys.mul_(_PLACES).add_(places)  # below 2^53: exact
            if records.owners is not None:  # each user enters with the nearest record
                largest = keys.new_zeros((len(keys), records.num_owners))
                keys = largest.scatter_reduce_(1, records.owners.expand_as(keys), keys, "amax")
            yield keys


def exact_products(queries: Tensor, codes: Tensor) -> Tensor:
    """Return the exact inner products [B, n] of whole numbers, float32.

    Autocast would round them to half precision.

    Example:
        >>> exact_products(torch.full((1, 1000), 127.0), torch.full((1, 1000), 127.0)).item()
        16129000.0
    """
    with torch.autocast(queries.device.type, enabled=False):
        return queries @ codes.T
