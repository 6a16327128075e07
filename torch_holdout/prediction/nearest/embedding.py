"""A public embedding: what it must be, checked with made-up rows, and how records pass through it.

Records are embedded one by one: the last bits of an embedding in a batch depend on the other rows.
"""

from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType, MethodType
from typing import Any, final

import torch
from torch import Tensor, nn

from torch_holdout._fingerprints.hashing import describe_function
from torch_holdout._fingerprints.weights import weights_fingerprint
from torch_holdout._shared.tensors import TensorVersions, is_plain
from torch_holdout._shared.tracebacks import errors_by_type
from torch_holdout.errors import HoldoutMismatchError, InvalidArgumentError
from torch_holdout.prediction.nearest.search import MOST_DIMENSIONS, whole_numbers
from torch_holdout.prediction.plain_inputs import require_plain_inputs

Embed = nn.Module | Callable[[Any], Tensor]
Layout = tuple[tuple[int, ...], str]  # shape and dtype of one row
_MADE_UP = 3


@final
class Embedding:
    """An embedding as it was when records first passed through it.

    Attributes:
        dimensions: The length of an embedding; None until a row has passed.
        identity: A digest of its weights, or of its code; None until then.

    Example:
        >>> embedding = Embedding()
        >>> embedding.require_usable(nn.Identity(), ((4,), "torch.float32"), torch.device("cpu"))
        >>> embedding.dimensions
        4
    """

    def __init__(self, dimensions: int | None = None, identity: str | None = None) -> None:
        self.dimensions = dimensions
        self.identity = identity
        self._checked: dict[Layout, Tensor] = {}  # the embeddings of made-up rows
        self._seen: TensorVersions | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Embedding, (self.dimensions, self.identity)  # elsewhere it is looked at again

    def require_usable(self, embed: Embed, layout: Layout, device: torch.device) -> None:
        """Raise unless made-up rows have embeddings that depend on the row alone."""
        made_up = self._checked.get(layout)
        if made_up is None:
            made_up = _require_stateless(embed, _made_up(layout, device))
            dimensions = made_up.shape[1]
            if self.dimensions not in (None, dimensions):
                raise InvalidArgumentError(
                    f"Expected embeddings of {self.dimensions} numbers, as of the records before, "
                    f"but `embed` gives {dimensions} for rows of shape {list(layout[0])}. "
                    f"Nothing was added."
                )
            self.dimensions = dimensions
        self.require_unchanged(embed, look=True)
        self._checked[layout] = made_up

    def require_unmoved(self, embed: Embed, layout: Layout, device: torch.device) -> None:
        """Raise if private rows have left something in the embedding that moves public rows."""
        self.require_unchanged(embed)
        rows, before = _made_up(layout, device), self._checked[layout]
        again = errors_by_type(lambda: _called(embed, rows), _refused_record)
        if again.shape != before.shape or not _are_near(whole_numbers(again).cpu(), before):
            raise _changing()

    def require_unchanged(self, embed: Embed, *, look: bool = False) -> None:
        """Raise if the weights are others than those the records were embedded with.

        They are hashed when ``look`` is set, and when a tensor was written to since; otherwise
        nothing is read from the device.
        """
        tensors = _tensors(embed)
        known = self._seen is not None and self._seen.are_those_of(tensors)
        if self.identity is not None and known and not look:
            return
        identity = _identity(embed)
        if self.identity is not None and identity != self.identity:
            raise HoldoutMismatchError(
                "Expected the embedding that the records were added with, but its weights, their "
                "number type or its code have changed since: records and queries would not match, "
                "and weights that have seen the records are not public. Restore it, or make a new "
                "EmbeddedRecords, with the same ledger and name. Nothing was charged."
            )
        if self.identity is None and self.dimensions is not None:
            self.identity = identity
        self._seen = TensorVersions(tensors)

    def queries(self, embed: Embed, inputs: Any) -> Tensor:
        """Return the whole numbers of a batch of queries; what it raises is public."""
        self.require_unchanged(embed)
        embeddings = errors_by_type(
            lambda: _called(embed, inputs),
            lambda kind: InvalidArgumentError(
                f"Expected queries that `embed` takes, one per row, but it raised {kind}. Call it "
                f"on such inputs yourself to see the message. Nothing was charged."
            ),
        )
        require_plain_inputs(embeddings)  # what follows is computed with private records
        count = len(inputs) if isinstance(inputs, Tensor) and inputs.ndim else None
        _require_embeddings(embeddings, count, self.dimensions)
        return whole_numbers(embeddings)

    def records(self, embed: Embed, rows: Iterable[Tensor]) -> Tensor:
        """Return the whole numbers of private rows [n, d] on the host, one call for each row."""
        shape = (1, self.dimensions)
        embeddings: list[Tensor] = []
        for row in rows:
            embedding = errors_by_type(partial(_called, embed, row), _refused_record)
            like = embedding if not embeddings else embeddings[0]
            if (
                type(embedding) is not Tensor
                or embedding.shape != shape
                or (embedding.dtype, embedding.device) != (like.dtype, like.device)
            ):
                raise _refused_record("no error, but another type or shape")
            embeddings.append(embedding.detach())
        if not embeddings:
            return torch.zeros((0, self.dimensions or 0))
        # Each row by itself, whatever the others are: its largest number, and elementwise.
        return whole_numbers(torch.cat(embeddings)).cpu()


@torch.no_grad()
def _called(embed: Embed, inputs: Any) -> Tensor:
    if isinstance(embed, nn.Module) and any(module.training for module in embed.modules()):
        embed.eval()
    return embed(inputs)


def _refused_record(kind: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Expected `embed` to take every record, as it took a made-up one, but for one of them "
        f"there was {kind}. The message is withheld, because it may quote the record. Nothing was "
        f"added."
    )


def _identity(embed: Embed) -> str:
    if isinstance(embed, nn.Module):
        fingerprint = weights_fingerprint(embed)
        return fingerprint.query(fingerprint.lanes.tolist())
    return describe_function(embed)


def _tensors(embed: Embed) -> list[Tensor]:
    """Return the weights of a module, or of those that a function holds."""
    tensors, waiting, seen = list[Tensor](), list[Any]([embed]), dict[int, Any]()
    while waiting:
        held = waiting.pop()
        if isinstance(held, nn.Module):
            tensors += [*held.parameters(), *held.buffers()]
        elif isinstance(held, Tensor):
            tensors.append(held)
        elif id(held) not in seen:
            seen[id(held)] = held
            waiting += _held(held)
    return tensors


def _held(function: Any) -> list[Any]:
    if isinstance(function, partial):
        return [function.func, *function.args, *function.keywords.values()]
    if isinstance(function, MethodType):
        return [function.__func__, function.__self__]
    if isinstance(function, FunctionType):
        cells = function.__closure__ or ()
        return [*(cell.cell_contents for cell in cells), *(function.__defaults__ or ())]
    return []


def _made_up(layout: Layout, device: torch.device) -> Tensor:
    """Return a few public rows of a layout: fractions, or zeros and ones for whole numbers."""
    shape, kind = layout
    dtype = getattr(torch, kind.removeprefix("torch."))
    size = _MADE_UP * torch.Size(shape).numel()
    counted = torch.arange(size, dtype=torch.float64)
    fractional = dtype.is_floating_point or dtype.is_complex
    # The golden ratio: no two fractions are near each other.
    values = (counted * 0.6180339887498949).frac() if fractional else counted % 2
    if not fractional:
        values = torch.where(counted % 5 == 0, 1 - values, values)
    return values.to(dtype).view(_MADE_UP, *shape).to(device)


def _require_stateless(embed: Embed, rows: Tensor) -> Tensor:
    """Return the rows' whole numbers, on the host; raise unless each depends on its own row alone.

    Embeddings are compared to the last bit: a state that moves slowly does not show in whole
    numbers at once.
    """
    alone = torch.cat([_asked(embed, row[None]) for row in rows])
    again = torch.cat([_asked(embed, row[None]) for row in rows.flip(0)]).flip(0)
    if alone.dtype != again.dtype or not torch.allclose(alone, again, 0, 0, equal_nan=True):
        raise _changing()
    together = whole_numbers(_asked(embed, rows)).cpu()
    if not _are_near(together, whole_numbers(alone).cpu()):
        raise InvalidArgumentError(
            "Expected `embed` to treat the rows of a batch independently, but for made-up rows an "
            "embedding depends on the other rows: records, which are embedded one by one, and "
            "queries in a batch would not match. Use fixed statistics. Nothing was added."
        )
    return together


def _asked(embed: Embed, rows: Tensor) -> Tensor:
    """Return the embeddings of public rows."""
    try:
        embeddings = _called(embed, rows.clone())
    except Exception as error:  # of public rows: it may be shown
        failure = f"{type(error).__name__}: {error}"
    else:
        require_plain_inputs(embeddings)
        _require_embeddings(embeddings, len(rows), None)
        return embeddings.detach().clone()
    raise InvalidArgumentError(
        f"Expected `embed` to take batches of {list(rows.shape)} {rows.dtype}, but for made-up "
        f"rows it raised {failure}. Nothing was added."
    )


def _are_near(one: Tensor, other: Tensor) -> bool:
    # A last bit, which threads and other rows may change, may decide a rounding.
    return one.shape == other.shape and not bool(((one - other).abs() > 1).any())


def _changing() -> InvalidArgumentError:
    return InvalidArgumentError(
        "Expected `embed` to give a row the same embedding each time, but for made-up rows it "
        "changed from call to call: it draws random numbers or keeps state, and then one "
        "record would move the embeddings of others. Switch that off. Nothing was added."
    )


def _require_embeddings(embeddings: Any, count: int | None, dimensions: int | None) -> None:
    """Raise unless what came has the shape of embeddings; no value is looked at."""
    usable = (
        isinstance(embeddings, Tensor)
        and embeddings.ndim == 2
        and is_plain(embeddings)
        and not embeddings.is_complex()
        and embeddings.dtype != torch.bool
        and (count is None or len(embeddings) == count)
        and 1 <= embeddings.shape[1] <= MOST_DIMENSIONS
        and (dimensions is None or embeddings.shape[1] == dimensions)
    )
    if usable:
        return
    tensor = isinstance(embeddings, Tensor)
    given = f"{list(embeddings.shape)} {embeddings.dtype}" if tensor else type(embeddings).__name__
    rows = "B" if count is None else str(count)
    width = f"d from 1 to {MOST_DIMENSIONS:,}" if dimensions is None else f"d = {dimensions}"
    raise InvalidArgumentError(
        f"Expected `embed` to return one embedding for each row, real numbers [{rows}, d] with "
        f"{width}, but got {given}. Reduce or reshape them in `embed`. Nothing was charged."
    )
