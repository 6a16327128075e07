"""A cache of answers: the same query gets the same answer, free.

A free repeat reveals that the query was asked before. So each tenant has a cache of its own, and
queries are kept only as an HMAC under a secret of this process.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from torch_holdout._fingerprints.hashing import digest
from torch_holdout._noise.streams import fresh_secret
from torch_holdout._shared.locks import OwnLock
from torch_holdout._shared.tensors import TensorVersions
from torch_holdout.errors import InvalidArgumentError

_TENANTS = 10_000


@final
class AnswerCache:
    """The latest answers of every tenant, oldest forgotten first.

    Example:
        >>> import torch
        >>> cache = AnswerCache(size=2)
        >>> keys = cache.keys("tenant", torch.eye(3))
        >>> cache.put("tenant", keys, torch.tensor([4, 5, 6]))
        >>> cache.get("tenant", keys[0]) is None, cache.get("tenant", keys[2])
        (True, tensor(6))
        >>> cache.get("another tenant", keys[2]) is None
        True
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._secret = fresh_secret()
        self._weights: TensorVersions | None = None
        self._revision: object = None
        self._answers: OrderedDict[str, OrderedDict[bytes, Tensor]] = OrderedDict()
        self._lock = OwnLock()

    def keys(self, tenant: str, inputs: Tensor) -> list[bytes]:
        """Return one key per query; reads the inputs back to the host."""
        if not isinstance(inputs, Tensor) or inputs.ndim < 1:
            raise InvalidArgumentError(
                f"Expected a tensor with one row per query, but got {type(inputs).__name__}; other "
                f"inputs need cache=0. Nothing was charged."
            )
        secret, prefix = self._secret, tenant.encode(errors="surrogatepass") + b"\x00"
        rows = inputs.detach().cpu()
        return [hmac.new(secret, prefix + digest(row), hashlib.sha256).digest() for row in rows]

    def get(self, tenant: str, key: bytes) -> Tensor | None:
        """Return the answer to a query, if this tenant has had it."""
        known = self._answers.get(tenant, OrderedDict())
        if key in known:
            known.move_to_end(key)
        return known.get(key)

    def put(self, tenant: str, keys: list[bytes], answers: Tensor) -> None:
        """Keep answers; the tenant's oldest make room."""
        known = self._answers.setdefault(tenant, OrderedDict())
        self._answers.move_to_end(tenant)
        if len(self._answers) > _TENANTS:
            self._answers.popitem(last=False)
        for key, answer in zip(keys, answers.detach().cpu(), strict=True):
            known[key] = answer.clone()
        while len(known) > self._size:
            known.popitem(last=False)

    def answered(
        self,
        tenant: str,
        inputs: Tensor,
        *,
        model: nn.Module,
        ask: Callable[[Tensor], Tensor | None],
        refused: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """Answer a batch, a query per row; only queries that are new to this tenant are asked.

        ``ask`` returns answers to keep, or None if the budget does not cover them; then ``refused``
        returns a substitute, which is not kept. What was kept of other weights of ``model`` is
        forgotten first. Threads take turns, so that a query which several ask at once is paid once.
        """
        keys = self.keys(tenant, inputs)
        with self._lock:
            self.clear_if_retrained(model)
            given = {key: self.get(tenant, key) for key in keys}
            # The same query twice in a batch is one query.
            new = {key: row for row, key in enumerate(keys) if given[key] is None}
            if keys and not new:
                return _stacked(given, keys)
            rows = torch.tensor(list(new.values()), dtype=torch.int64, device=inputs.device)
            answers = ask(inputs[rows])
            if answers is not None and keys:
                self.put(tenant, list(new), answers)
        if answers is None:  # without the lock: a public model may ask us again
            answers = refused(inputs[rows])
        if not keys:
            return answers
        return _stacked(given | dict(zip(new, answers.cpu(), strict=True)), keys)

    def clear_if_retrained(self, model: nn.Module) -> None:
        """Forget everything if weights, or records that a model keeps, changed since last time."""
        tensors = [*model.parameters(), *model.buffers()]
        revision = getattr(model, "revision", None)
        same = self._weights is not None and self._weights.are_those_of(tensors)
        if not same or revision is not self._revision:
            self._answers.clear()
            self._weights, self._revision = TensorVersions(tensors), revision

    def __deepcopy__(self, memo: dict[int, Any]) -> "AnswerCache":
        return AnswerCache(self._size)  # a copy of the models is another service

    def __reduce__(self) -> tuple[Any, ...]:
        return AnswerCache, (self._size,)


def _stacked(given: dict[bytes, Tensor | None], keys: list[bytes]) -> Tensor:
    return torch.stack([answer for key in keys if (answer := given[key]) is not None])
