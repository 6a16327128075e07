"""What a holdout's whole budget costs, from its registered parameters alone."""

import math

from torch_holdout.accounting.charges import Pure
from torch_holdout.accounting.compose import compose


def epsilon_cap(steps: list[float], budget: int, delta: float | None = None) -> float:
    r"""Return the epsilon of a full sparse-vector budget at ``delta``, replacing one example.

    ``steps`` has one :math:`a = 1/(u\sigma)` for each distinct units value. B releases are B
    answers and at most B rounds of comparisons at the largest a; each other units value may leave
    one more round open. Rounds of different units values interleave, which pure mechanisms may
    (concurrent composition, Vadhan and Wang 2021). Constant from creation, so it covers adaptive
    queries and stopping early.

    Example:
        >>> epsilon_cap([0.1], budget=20)
        4.0
        >>> epsilon_cap([0.1, 0.02], budget=20)
        4.02
        >>> round(epsilon_cap([0.01], budget=100, delta=1e-6), 3)
        0.572
    """
    ordered = sorted(steps, reverse=True)
    if math.isinf(ordered[0]):
        return math.inf
    charges = [Pure(ordered[0], 2 * budget), *(Pure(step) for step in ordered[1:])]
    return compose(charges, delta).epsilon
