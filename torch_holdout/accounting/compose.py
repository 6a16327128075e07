"""The smallest valid epsilon of a set of charges that was fixed beforehand."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from torch_holdout._shared.checks import require_between
from torch_holdout._shared.text import up
from torch_holdout.accounting.charges import Charge, Concentrated
from torch_holdout.accounting.pure import compose_pure
from torch_holdout.accounting.rdp import epsilon_of_rdp
from torch_holdout.accounting.zcdp import epsilon_of_rho


@final
@dataclass(frozen=True)
class Privacy:
    """(epsilon, delta) for replacing one example, and how it was found.

    Example:
        >>> print(Privacy(1.0, 1e-6, "exact"))
        epsilon 1 at delta 1e-06, replacing one example (exact)
    """

    epsilon: float
    delta: float
    method: str
    relation: str = "replace-one"

    def __str__(self) -> str:
        at = f" at delta {self.delta:g}" if self.delta else ""
        return f"epsilon {up(self.epsilon, digits=4)}{at}, replacing one example ({self.method})"


def compose(
    charges: Sequence[Charge], delta: float | None = None, *, variation: float = 0.0
) -> Privacy:
    r"""Return the smallest of the valid compositions: basic, exact, zCDP, Renyi.

    The charges must be fixed before the first answer (their order and the queries may be adaptive).
    If they are chosen along the way, fix a cap on the sum of epsilons or rhos instead and stop
    before it is passed: ``epsilon_of_rho(cap, delta)``. What happens to have been charged is no
    guarantee at a delta.

    Args:
        charges: What is charged in all.
        delta: At which delta; None for pure epsilon.
        variation: Total variation between the sampler and its law, over all draws; adds
            :math:`(1 + e^\varepsilon)\,\mathrm{TV}` to delta.

    Example:
        >>> from torch_holdout.accounting import Pure
        >>> compose([Pure(0.01, count=200)]).epsilon
        2.0
        >>> found = compose([Pure(0.01, count=200)], delta=1e-6)
        >>> round(found.epsilon, 3), found.method
        (0.572, 'exact')
    """
    require_between("variation", variation, 0, 1)
    if delta is not None:
        require_between("delta", delta, 0, 1, ends=False)
    charged = [charge for charge in charges if charge.count]
    methods: dict[str, Callable[[], float]] = {
        "basic": lambda: math.fsum(charge.count * charge.epsilon for charge in charged)
    }
    if delta is not None:
        methods["exact"] = lambda: _exact(charged, delta)
        methods["zCDP"] = lambda: epsilon_of_rho(math.fsum(c.count * c.rho for c in charged), delta)
        methods["Renyi"] = lambda: _renyi(charged, delta)
    found = {name: method() for name, method in methods.items()}
    method = min(found, key=lambda name: found[name])
    return Privacy(found[method], (delta or 0.0) + sampling_delta(found[method], variation), method)


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


def _exact(charged: list[Charge], delta: float) -> float:
    """Compose as many mechanisms of the largest epsilon; exact when all are alike."""
    if not charged or any(isinstance(charge, Concentrated) for charge in charged):
        return math.inf
    largest = max(charge.epsilon for charge in charged)
    return compose_pure(largest, sum(charge.count for charge in charged), delta)


def _renyi(charged: list[Charge], delta: float) -> float:
    if any(math.isinf(charge.rho) for charge in charged):
        return math.inf
    curves = [(charge.count, charge.curve()) for charge in charged]
    return epsilon_of_rdp(
        lambda alpha: math.fsum(count * curve(alpha) for count, curve in curves), delta
    )
