"""What a holdout's whole budget costs, from its registered parameters alone."""

import math

from torch_holdout.accounting.pure import compose_pure


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
    largest = max(steps)
    if math.isinf(largest):
        return math.inf
    basic = 2 * budget * largest + (math.fsum(steps) - largest if len(steps) > 1 else 0.0)
    if delta is None:
        return basic
    return min(basic, compose_pure(largest, 2 * budget + len(steps) - 1, delta))


def sampling_delta(epsilon: float, variation: float) -> float:
    r"""Return :math:`(1 + e^\varepsilon)\,\mathrm{TV}`, what inexact sampling adds to delta.

    Example:
        >>> sampling_delta(1.0, 1e-70) < 1e-69
        True
    """
    if variation == 0:
        return 0.0
    exponent = epsilon + math.log(variation) + math.log1p(math.exp(-epsilon))
    return math.exp(min(exponent, 0.0))
