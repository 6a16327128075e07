"""The regulariser that makes a convex problem stable enough for a private prediction."""

import math

from torch_holdout._shared.checks import require_positive, require_units
from torch_holdout._shared.formulas import formula


@formula
def convex_regulariser(
    *, lipschitz: float, loss_lipschitz: float, radius: float, units: int, epsilon: float
) -> float:
    r"""Return :math:`\lambda = 2 L_f L_\ell/(R\sqrt{n\varepsilon/(1+\varepsilon)})`: Corollary 3.

    Adding :math:`\lambda\|w\|^2` makes a convex problem strongly convex at the best price.

    Example:
        >>> facts = {"lipschitz": 1.0, "loss_lipschitz": 1.0, "radius": 1.0, "units": 20_000}
        >>> round(convex_regulariser(**facts, epsilon=1.0), 4)
        0.02
    """
    require_positive(lipschitz=lipschitz, loss_lipschitz=loss_lipschitz, radius=radius)
    require_positive(epsilon=epsilon)
    require_units(units)
    return 2 * lipschitz * loss_lipschitz / (radius * math.sqrt(units * epsilon / (1 + epsilon)))
