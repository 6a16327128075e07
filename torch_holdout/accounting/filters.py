r"""A budget as a filter: valid although the charges are chosen along the way.

Renyi divergences of one order add up, also when each mechanism is chosen after seeing the answers
before it, as long as the order was fixed first and a charge that would pass the capacity is refused
(Feldman and Zrnic 2021). The order infinity is pure epsilon.

Amounts are kept as whole picos: charges rounded up, capacities rounded down.
"""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR

from torch_holdout._shared.checks import (
    require_between,
    require_callable,
    require_instance,
    require_whole,
)
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.numeric_search import best_argument, zero_between
from torch_holdout.accounting.charges import Charge, SampledGaussian
from torch_holdout.accounting.picos import decimal_in_picos
from torch_holdout.accounting.sampled_gaussian import ORDERS
from torch_holdout.errors import InvalidArgumentError

_LOWEST, _HIGHEST = -5.0, 16.0  # logarithms of (order - 1)
_MANY = 2**62
ChargeAt = Callable[[float], Charge]


@formula
def capacity(epsilon: float, delta: float | None, order: float) -> float:
    r"""Return the largest Renyi divergence of an order that still gives (epsilon, delta).

    Guarantee:
        :math:`R + \ln(1 - 1/\alpha) + (\ln(1/\delta) - \ln\alpha)/(\alpha - 1) \le \varepsilon`
        (Canonne, Kamath and Steinke 2020; ``rdp.epsilon_at_order`` solved for R), and R at most
        epsilon at the order infinity. Negative where the order cannot give epsilon at all.

    Epsilon and delta are those of the whole budget; delta None is pure epsilon, which only the
    order infinity gives.

    Example:
        >>> round(capacity(2.0, 1e-5, order=10.0), 4), capacity(2.0, None, order=math.inf)
        (1.082, 2.0)
    """
    _require_budget(epsilon, delta)
    _require_order(order)
    if math.isinf(order):
        return epsilon
    if delta is None:
        raise InvalidArgumentError(
            f"Expected an infinite `order` for a budget without delta, but got {order!r}. "
            "Pass delta for a budget at a finite order."
        )
    return _room(epsilon, delta, order)


def divergence(charge: Charge, order: float) -> float:
    """Return the Renyi divergence that one of a charge's mechanisms costs at an order.

    Example:
        >>> from torch_holdout.accounting import Concentrated, Pure
        >>> divergence(Concentrated(0.005), 10.0), divergence(Pure(0.1), math.inf)
        (0.05, 0.1)
    """
    _require_order(order)
    return charge.epsilon if math.isinf(order) else charge.curve()(order)


def charge_in_picos(charge: Charge, order: float) -> int | None:
    """Return what one of a charge's mechanisms costs, rounded up; None if no amount is enough.

    Example:
        >>> from torch_holdout.accounting import Concentrated
        >>> charge_in_picos(Concentrated(0.005), 10.0), charge_in_picos(Concentrated(1.0), math.inf)
        (50000000000, None)
    """
    amount = divergence(charge, order)
    return None if math.isinf(amount) else decimal_in_picos(amount, ROUND_CEILING)


def capacity_in_picos(epsilon: float, delta: float | None, order: float) -> int:
    """Return the capacity rounded down, at least 0.

    Example:
        >>> capacity_in_picos(2.0, None, math.inf)
        2000000000000
    """
    return max(0, decimal_in_picos(capacity(epsilon, delta, order), ROUND_FLOOR))


def best_order(charge: Charge, epsilon: float, delta: float | None) -> float:
    """Return the order at which a budget pays for most mechanisms of this kind.

    It depends on the public parameters only: fix it before the first charge. Without delta it is
    infinity, and with delta it is when few mechanisms simply add up to most. For a
    sample it is a whole number from 2 to 256, unless the budget has room at larger orders only.

    Example:
        >>> from torch_holdout.accounting import Concentrated
        >>> round(best_order(Concentrated(0.005), 2.0, 1e-5), 1)
        10.2
        >>> best_order(Concentrated(0.005), 2.0, None)
        inf
    """
    _require_budget(epsilon, delta)
    if delta is None:
        return math.inf
    curve = charge.curve()

    def price(order: float) -> float:
        room = _room(epsilon, delta, order)
        return curve(order) / room if room > 0 else math.inf

    if isinstance(charge, SampledGaussian) and charge.rate < 1:
        whole = min(map(float, ORDERS), key=price)
        if price(whole) < math.inf:
            return whole
    order = 1 + math.exp(best_argument(lambda log: price(1 + math.exp(log)), _LOWEST, _HIGHEST))
    return math.inf if charge.epsilon <= price(order) * epsilon else order


@formula
def queries_for(charge: Charge, epsilon: float, delta: float | None) -> int:
    """Return how many mechanisms of this kind a budget pays for; the charge's count is not read.

    Example:
        >>> from torch_holdout.accounting import Concentrated, Pure, SoftVote
        >>> queries_for(Concentrated(0.005), 2.0, 1e-5), queries_for(Pure(0.1), 2.0, None)
        (21, 20)
        >>> queries_for(SoftVote(0.05, num_parts=50, num_classes=10), 2.0, 1e-5)
        186
    """
    require_instance("charge", charge, Charge)
    order = best_order(charge, epsilon, delta)
    each = charge_in_picos(charge, order)
    if each is None:
        return 0
    room = capacity_in_picos(epsilon, delta, order)
    return min(_MANY, room // each) if each else _MANY


@formula
def largest_parameter(charge: ChargeAt, queries: int, epsilon: float, delta: float | None) -> float:
    """Return the largest parameter at which a budget still pays for this many mechanisms.

    ``charge`` gives what one mechanism costs at a parameter above 0; more for a larger one.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> round(largest_parameter(Pure, 20, 2.0, None), 9)
        0.1
    """
    require_whole("queries", queries, 1, 2**40)
    _require_budget(epsilon, delta)
    require_callable("charge", charge)
    require_instance("charge(1.0)", charge(1.0), Charge)
    if epsilon == 0 or (delta is None and math.isinf(charge(1.0).epsilon)):
        raise InvalidArgumentError(
            f"Expected a budget that can pay for a query, but got epsilon {epsilon!r} at delta "
            f"{delta!r}. Gaussian noise has no pure epsilon: pass delta, or a larger epsilon."
        )
    parameter = _balanced(charge, queries, epsilon, delta)
    shrink = 1e-13
    while queries_for(charge(parameter), epsilon, delta) < queries:
        parameter *= 1 - shrink
        shrink = min(2 * shrink, 0.5)
    return parameter


def _balanced(charge: ChargeAt, queries: int, epsilon: float, delta: float | None) -> float:
    """Solve cost = capacity on logarithmic axes, where it is nearly a straight line."""

    def excess(log: float) -> float:
        one = charge(math.exp(log))
        order = best_order(one, epsilon, delta)
        share = queries * divergence(one, order) / capacity(epsilon, delta, order)
        return math.log(share) if share > 0 else -math.inf

    before, now = 0.0, -1.0
    at_before, at_now = excess(before), excess(now)
    while at_before * at_now > 0:
        # Most costs grow like the parameter or its square: other slopes are kinks or rounding.
        slope = min(3.0, max(0.5, (at_now - at_before) / (now - before)))
        step = -1.1 * at_now / slope  # a little beyond the zero, to have it between the two
        before, at_before = now, at_now
        now += min(5.0, max(-5.0, step))
        at_now = excess(now)
    return math.exp(zero_between(excess, min(before, now), max(before, now)))


def _room(epsilon: float, delta: float, order: float) -> float:
    """Solve ``epsilon_at_order`` for the divergence.

    Ledgers hold capacities and orders that come from exactly these operations: a rearrangement
    moves the last digit, and an account would no longer open with its own parameters.
    """
    rest = (math.log(1 / delta) - math.log(order)) / (order - 1)
    return epsilon - math.log1p(-1 / order) - rest


def _require_budget(epsilon: float, delta: float | None) -> None:
    require_between("epsilon", epsilon, 0, 1e6)
    if delta is not None:
        require_between("delta", delta, 0, 1, ends=False)


def _require_order(order: float) -> None:
    require_between("order", order, 1, math.inf)
    if order == 1:
        raise InvalidArgumentError("Expected `order` to be above 1, but got 1.")
