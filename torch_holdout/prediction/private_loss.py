"""What the votes that were answered cost *these* records: data-dependent, private itself."""

from typing import Any, final

from torch import Tensor

from torch_holdout._shared.checks import require_between
from torch_holdout.accounting.rdp import epsilon_at_order
from torch_holdout.errors import InvalidArgumentError
from torch_holdout.prediction.mechanisms.base import PredictionMechanism
from torch_holdout.prediction.mechanisms.soft_majority import SoftMajority
from torch_holdout.prediction.neighbours import Neighbours
from torch_holdout.prediction.private_value import PrivateValue

_ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0)


@final
class PrivateLoss:
    """Adds up, on the device, the exact Renyi loss of each answered vote of a soft majority.

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
        """Count answered votes; reads nothing back."""
        loss = self._mechanism.private_loss(table, _ORDERS)
        self._total = loss if self._total is None else self._total.to(loss.device) + loss

    def epsilon(self, delta: float) -> PrivateValue:
        """Return the epsilon of everything counted so far."""
        require_between("delta", delta, 0, 1, ends=False)
        losses = [0.0] * len(_ORDERS) if self._total is None else self._total.tolist()
        epsilon = min(epsilon_at_order(x, o, delta) for o, x in zip(_ORDERS, losses, strict=True))
        return PrivateValue(max(0.0, epsilon), f"data-dependent epsilon at delta {delta:g}")

    def __repr__(self) -> str:
        return "<private loss>"

    def __deepcopy__(self, memo: dict[int, Any]) -> "PrivateLoss":
        return PrivateLoss(self._mechanism, self._neighbours)

    def __reduce__(self) -> tuple[Any, ...]:
        return PrivateLoss, (self._mechanism, self._neighbours)
