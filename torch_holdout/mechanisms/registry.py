"""The mechanisms by the name that the ledger keeps."""

from typing import Any

from torch_holdout._shared.checks import require_instance
from torch_holdout.errors import LedgerError
from torch_holdout.mechanisms.base import Mechanism
from torch_holdout.mechanisms.effective_rounds import EffectiveRounds
from torch_holdout.mechanisms.gaussian import GaussianMechanism
from torch_holdout.mechanisms.ladder import Ladder
from torch_holdout.mechanisms.laplace import LaplaceMechanism
from torch_holdout.mechanisms.sealed import Sealed
from torch_holdout.mechanisms.sparse_vector import SparseVector
from torch_holdout.mechanisms.thresholdout import Thresholdout

_MECHANISMS: list[type[Mechanism]] = [
    EffectiveRounds,
    GaussianMechanism,
    Ladder,
    LaplaceMechanism,
    Sealed,
    SparseVector,
    Thresholdout,
]
_KINDS = {mechanism.kind: mechanism for mechanism in _MECHANISMS}


def mechanism_of(identity: dict[str, Any]) -> Mechanism:
    """Return the mechanism of a stored identity.

    Example:
        >>> mechanism_of(Ladder(step=0.01).identity())
        Ladder(step=0.01, sigma=0.0)
    """
    require_instance("identity", identity, dict)
    parameters = {name: value for name, value in identity.items() if name != "kind" and value != {}}
    kind = identity.get("kind")
    try:
        return _KINDS[kind](**parameters)  # type: ignore[index]
    except (KeyError, TypeError):
        raise LedgerError(
            f"Expected a mechanism this version knows ({', '.join(_KINDS)}), but the ledger has "
            f"{kind if isinstance(kind, str) else type(kind).__name__!r}. Update torch_holdout to "
            f"read it."
        ) from None
