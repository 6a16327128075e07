"""The textbook compositions and group privacy (Dwork and Roth 2014, Theorems 3.16 and 3.20)."""

import math

from torch_holdout._shared.checks import require_between, require_whole


def compose_basic(losses: list[tuple[float, float]]) -> tuple[float, float]:
    r"""Add up (epsilon, delta) pairs: always valid, also for adaptively chosen mechanisms.

    Example:
        >>> compose_basic([(0.5, 0.0), (0.25, 1e-6), (0.25, 1e-6)])
        (1.0, 2e-06)
    """
    for epsilon, delta in losses:
        require_between("epsilon", epsilon, 0, math.inf)
        require_between("delta", delta, 0, 1)
    return math.fsum(e for e, _ in losses), math.fsum(d for _, d in losses)


def compose_advanced(
    epsilon: float, count: int, delta: float, *, each_delta: float = 0.0
) -> tuple[float, float]:
    r"""Compose k mechanisms of (epsilon, each_delta) by the closed form.

    .. math:: \varepsilon' = \sqrt{2k \ln(1/\delta')}\,\varepsilon + k\varepsilon(e^\varepsilon - 1)
        \quad\text{at}\quad k\delta_0 + \delta'

    Valid under adaptivity. Often worse than adding up: ``compose`` takes the smallest that is valid
    and the exact ``compose_pure`` is never worse for pure mechanisms.

    Example:
        >>> epsilon, delta = compose_advanced(0.01, 100, 1e-6)
        >>> round(epsilon, 3), delta
        (0.536, 1e-06)
    """
    require_between("epsilon", epsilon, 0, 700)
    require_whole("count", count, 0, 2**62)
    require_between("delta", delta, 0, 1, ends=False)
    require_between("each_delta", each_delta, 0, 1)
    spread = math.sqrt(2 * count * math.log(1 / delta)) * epsilon
    return spread + count * epsilon * math.expm1(epsilon), count * each_delta + delta


def group_privacy(epsilon: float, group: int, delta: float = 0.0) -> tuple[float, float]:
    r"""Return what replacing k examples costs.

    That is :math:`(k\varepsilon, k e^{(k-1)\varepsilon}\delta)`.

    The statement for one example is (epsilon, delta). A delta above 1 says nothing.

    Example:
        >>> group_privacy(0.5, 3)
        (1.5, 0.0)
    """
    require_between("epsilon", epsilon, 0, math.inf)
    require_whole("group", group, 1, 2**62)
    require_between("delta", delta, 0, 1)
    if delta == 0:
        return group * epsilon, 0.0
    exponent = (group - 1) * epsilon + math.log(group * delta)
    return group * epsilon, math.exp(exponent) if exponent < 0 else 1.0
