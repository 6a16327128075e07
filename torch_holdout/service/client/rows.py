"""The predictions of a pass: kept on the CPU, put in the dataset's order, sent by rank 0."""

from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from torch_holdout._fingerprints.weights import WeightsFingerprint
from torch_holdout._shared.distributed import gathered_objects, gathered_rows, share_of
from torch_holdout._shared.tensors import is_plain
from torch_holdout.errors import InvalidArgumentError, PartialPassError, WeightsChangedError
from torch_holdout.service.client.answers import BoardStatus
from torch_holdout.service.client.uploads import Array, are_probabilities, canonical
from torch_holdout.statistics.arrays import as_tensor
from torch_holdout.statistics.layouts import require_own_values

_FREE = "Nothing was sent."


@final
class RemoteRows:
    """The predictions of a pass over a board's rows, batch by batch.

    Classes are taken on the device at once, the largest score of each row; scores are kept in
    float32. Under data-parallel evaluation each rank keeps its own rows: row j of rank r is row
    ``j * world + r`` of the board, and what a sampler pads is left out.

    Args:
        board: The board's public facts.
        rank: This process's rank.
        world: The number of ranks.

    Example:
        >>> from torch_holdout.service.client.answers import status_from
        >>> rows = RemoteRows(status_from({
        ...     "name": "b", "title": "B", "mode": "ladder", "state": "open", "closes": None,
        ...     "rows": 3, "upload": "classes", "classes": 2, "first": "accuracy", "position": 0,
        ...     "chain": "", "statistics": {
        ...         "accuracy": {"low": 0, "high": 1, "mode": "max", "kind": "accuracy"}}}))
        >>> rows.update(torch.tensor([[0.1, 2.0], [3.0, -1.0]]))
        >>> rows.update(torch.tensor([[0.0, 0.5]]))
        >>> rows.gather().predictions()
        array([1, 0, 1], dtype=uint8)
    """

    def __init__(self, board: BoardStatus, rank: int = 0, world: int = 1) -> None:
        self.board = board
        self.world = world
        self._share = share_of(board.rows, rank, world)
        self._seen = 0
        self._batches: list[Tensor] = []

    @property
    def goes_by_place(self) -> bool:
        """Rows have no ids: their places in the dataset tell which they are."""
        return True

    def update(self, *arguments: Any, **named: Any) -> None:
        """Add a batch of predictions: scores ``[B, C]``, classes ``[B]``, or values ``[B]``."""
        if len(arguments) != 1 or named:
            raise InvalidArgumentError(
                f"Expected the predictions of a batch alone, because the board has the labels, but "
                f"got {len(arguments) + len(named)} arguments. Return e.g. "
                f"{{{self.board.first!r}: self(x)}}. {_FREE}"
            )
        values = as_tensor(arguments[0]).detach()
        if values.is_nested:
            raise InvalidArgumentError(
                f"Expected one dense tensor of predictions, but got a nested one. {_FREE}"
            )
        if not is_plain(values) or values.is_complex() or values.ndim == 0:
            raise self._other(values)
        require_own_values(values)
        rows = self._rows_of(values)
        kept = min(len(rows), max(0, self._share - min(self._seen, self._share)))
        self._seen += len(rows)
        if kept:
            self._batches.append(rows[:kept].cpu())

    def gather(self, query: object = None) -> "WholePass":
        """Return all ranks' rows; raise on every rank unless together they are one whole pass."""
        own = torch.cat(self._batches) if self._batches else torch.empty(0)
        looks = _looks(query)
        mine = _Mine(self._seen, len(own), looks, str(own.dtype) if len(own) else "")
        ranks = gathered_objects(mine, self.world)
        self._require_whole(ranks)
        if any(each.looks != ranks[0].looks or not each.looks.steady for each in ranks):
            raise WeightsChangedError(
                f"Expected the same weights and buffers throughout the pass and on every rank, but "
                f"they changed while it ran, or the ranks have different ones. Call model.eval() "
                f"first and do not train inside the pass. {_FREE}"
            )
        # A rank without rows takes part with none.
        (whole,) = gathered_rows((own,) if self._batches or self.world == 1 else (), self.world)
        return WholePass(self.board, whole)

    def _require_whole(self, ranks: "list[_Mine]") -> None:
        size, largest = self.board.rows, share_of(self.board.rows, 0, self.world)
        shares = [share_of(size, rank, self.world) for rank in range(self.world)]
        whole = all(
            each.kept == share and (each.seen == share or each.seen == largest)
            for each, share in zip(ranks, shares, strict=True)
        )
        if not whole:
            seen = sum(each.seen for each in ranks)
            raise PartialPassError(
                f"Expected a pass over all {size} rows of board {self.board.name!r}, each once, "
                f"but got {seen}. Use the whole set without drop_last, in its own order, and take "
                f"a new accumulator (or reset()) for every pass. {_FREE}"
            )
        if len({each.kind for each in ranks if each.kind}) > 1:
            raise InvalidArgumentError(
                f"Expected predictions of one type on every rank, but they differ. {_FREE}"
            )

    def _rows_of(self, values: Tensor) -> Tensor:
        """Return what is kept of a batch: classes or float32, with the rows first."""
        board = self.board
        if values.ndim == 2 and values.shape[1] == 1 and board.upload != "probabilities":
            values = values.squeeze(1)
        if board.upload == "classes":
            return self._classes_of(values)
        shape = (len(values), board.classes) if board.upload == "probabilities" else (len(values),)
        if not values.is_floating_point() or tuple(values.shape) != shape:
            raise self._other(values)
        return values.to(torch.float32)

    def _classes_of(self, values: Tensor) -> Tensor:
        classes = self.board.classes or 0
        small = torch.uint8 if classes <= 256 else torch.int64
        if values.ndim == 1 and not values.is_floating_point():
            return values.to(torch.int64)
        if values.is_floating_point() and tuple(values.shape) == (len(values), classes):
            return values.argmax(1).to(small)
        raise self._other(values)

    def _other(self, values: Tensor) -> InvalidArgumentError:
        classes = self.board.classes
        expected = {
            "classes": f"scores [B, {classes}], of which the largest is taken, or classes [B]",
            "probabilities": f"scores or probabilities [B, {classes}]",
            "scores": "floating values [B]",
        }[self.board.upload]
        return InvalidArgumentError(
            f"Expected {expected} as predictions for board {self.board.name!r}, but got "
            f"{str(values.dtype).removeprefix('torch.')} {list(values.shape)}. {_FREE}"
        )

    def __repr__(self) -> str:
        return f"<{self._seen} of {self.board.rows} rows of predictions>"


@final
class WholePass:
    """The predictions of a whole pass, in the dataset's order."""

    def __init__(self, board: BoardStatus, rows: Tensor) -> None:
        self._board = board
        self._whole = rows

    def predictions(self) -> Array:
        """Return what is sent: classes, values, or probabilities, which scores become by softmax.

        Rows that all lie in [0, 1] and sum to 1 are probabilities already.
        """
        rows = self._whole.cpu()
        if self._board.upload == "probabilities" and not are_probabilities(rows.numpy()):
            rows = rows.softmax(1)
        return canonical(rows.numpy(), self._board)


class _Looks(NamedTuple):
    """The weights as they were seen before and after a pass, and the mark of their structure."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    structure: str

    @property
    def steady(self) -> bool:
        return self.before == self.after and bool(self.structure)


class _Mine(NamedTuple):
    """What one rank tells the others of its rows."""

    seen: int
    kept: int
    looks: _Looks
    kind: str


def _looks(query: object) -> _Looks:
    if not isinstance(query, WeightsFingerprint):
        return _Looks((), (), "named by text")
    again = query.lanes if query.confirm is None else query.confirm
    return _Looks(tuple(query.lanes.tolist()), tuple(again.tolist()), query.structure)
