"""The data-dependent cost of the answered votes for *these* records, which is private itself."""

from typing import Any, NoReturn, final

from torch import Tensor

from torch_holdout._shared.checks import require_between
from torch_holdout.accounting.rdp import epsilon_at_order
from torch_holdout.errors import InvalidArgumentError, SealedValueError
from torch_holdout.prediction.mechanisms.base import PredictionMechanism
from torch_holdout.prediction.mechanisms.soft_majority import SoftMajority
from torch_holdout.prediction.neighbours import Neighbours

_ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0)


@final
class PrivateValue:
    """A float that is not shown, logged, compared, stored or computed with by accident.

    A data-dependent epsilon is smaller than the one that holds for all data *because* of what the
    data is: publishing it, or stopping when it reaches a limit, leaks and is not covered by it.

    Example:
        >>> value = PrivateValue(1.25, "epsilon of these votes")
        >>> value
        <private value: epsilon of these votes>
        >>> f"{value:.2f}"
        Traceback (most recent call last):
            ...
        torch_holdout.errors.SealedValueError: ...
        >>> value.reveal()
        1.25
    """

    __slots__ = ("_value", "meaning")

    def __init__(self, value: float, meaning: str) -> None:
        self._value = value
        self.meaning = meaning

    def reveal(self) -> float:
        """Return the number, on purpose; it must not be published."""
        return self._value

    def __repr__(self) -> str:
        return f"<private value: {self.meaning}>"

    def __copy__(self) -> "PrivateValue":
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> "PrivateValue":
        return self

    def _refuse(self, *_: object) -> NoReturn:
        raise SealedValueError(
            "Expected a private value to stay unpublished: it depends on private data. Where that "
            "is meant, call reveal(); for a number that may be shown use status()."
        )

    __float__ = __int__ = __index__ = __complex__ = __bool__ = __array__ = __format__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __round__ = __neg__ = __abs__ = _refuse
    __reduce__ = __reduce_ex__ = __getstate__ = _refuse


@final
class PrivateLoss:
    """The sum, on the device, of the exact Renyi losses of the answered votes of a soft majority.

    The loss of a vote is the largest over the neighbours of the realised votes, both ways; the sum
    over queries at a fixed order converts to epsilon. Where members agree it is far below the cost
    that is charged. It lives with this object: it is not stored, pickled or restored.
    """

    def __init__(self, mechanism: PredictionMechanism, neighbours: Neighbours) -> None:
        if not isinstance(mechanism, SoftMajority) or neighbours.members_changed != 1:
            raise InvalidArgumentError(
                "Expected track_private_loss=False: a data-dependent cost is known for "
                "SoftMajority only, and where a neighbour changes one member."
            )
        self._mechanism, self._neighbours = mechanism, neighbours
        self._total: Tensor | None = None

    def add(self, table: Tensor) -> None:
        """Add the loss of answered votes; reads nothing back to the host."""
        loss = self._mechanism.private_loss(table, _ORDERS)
        self._total = loss if self._total is None else self._total.to(loss.device) + loss

    def epsilon(self, delta: float) -> PrivateValue:
        """Return the epsilon of all votes added so far."""
        require_between("delta", delta, 0, 1, ends=False)
        delta = float(delta)
        losses = [0.0] * len(_ORDERS) if self._total is None else self._total.tolist()
        epsilon = min(epsilon_at_order(x, o, delta) for o, x in zip(_ORDERS, losses, strict=True))
        return PrivateValue(max(0.0, epsilon), f"data-dependent epsilon at delta {delta:g}")

    def __repr__(self) -> str:
        return "<private loss>"

    def __deepcopy__(self, memo: dict[int, Any]) -> "PrivateLoss":
        return PrivateLoss(self._mechanism, self._neighbours)

    def __reduce__(self) -> tuple[Any, ...]:
        return PrivateLoss, (self._mechanism, self._neighbours)
