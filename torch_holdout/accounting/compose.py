"""The privacy of charges together: the smallest valid epsilon of a set fixed beforehand.

Also the textbook compositions and group privacy (Dwork and Roth 2014, Theorems 3.16 and 3.20).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, final

from torch_holdout._shared.checks import require_between, require_instance, require_whole
from torch_holdout._shared.formulas import formula
from torch_holdout._shared.text import up
from torch_holdout.accounting.charges import (
    Charge,
    Concentrated,
    DiscreteLaplace,
    Pure,
    SampledGaussian,
)
from torch_holdout.accounting.pure import compose_pure
from torch_holdout.accounting.rdp import epsilon_at_order, epsilon_of_rdp, epsilon_of_rho
from torch_holdout.accounting.sampled_gaussian import ORDERS
from torch_holdout.errors import InvalidArgumentError

_FINEST = 2e-6  # a step of loss distributions
_WITHOUT_PURE = (Concentrated, SampledGaussian)


@final
@dataclass(frozen=True)
class Privacy:
    """(epsilon, delta) for replacing one example, and the method that gave it.

    ``relation`` is ``"add-remove"`` if a charge holds for adding or removing one example only.

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
        verb = "replacing" if self.relation == "replace-one" else "adding or removing"
        return f"epsilon {up(self.epsilon, digits=4)}{at}, {verb} one example ({self.method})"


@formula
def compose(
    charges: Sequence[Charge], delta: float | None = None, *, variation: float = 0.0
) -> Privacy:
    r"""Return the smallest of the valid compositions: basic, exact, zCDP, Renyi.

    The charges must be fixed before the first answer (their order and the queries may be adaptive).
    If they are chosen along the way, fix a cap on the sum of epsilons or rhos instead and stop
    before it is passed: ``epsilon_of_rho(cap, delta)``. The sum of what has been
    charged is not a guarantee at a delta.

    Without ``delta`` it is pure epsilon. ``variation`` is the total variation between the sampler
    and its law, over all draws: it adds :math:`(1 + e^\varepsilon)\,\mathrm{TV}` to delta.

    Example:
        >>> compose([Pure(0.01, count=200)]).epsilon
        2.0
        >>> privacy = compose([Pure(0.01, count=200)], delta=1e-6)
        >>> round(privacy.epsilon, 3), privacy.method
        (0.572, 'exact')
    """
    require_between("variation", variation, 0, 1)
    if delta is not None:
        require_between("delta", delta, 0, 1, ends=False)
    charged = [charge for charge in _listed(charges) if charge.count]
    loss = PrivacyLoss(tuple(charged))
    epsilons = {"basic": loss.pure}
    if delta is not None:
        epsilons["exact"] = _exact(charged, delta)
        epsilons["zCDP"] = epsilon_of_rho(loss.rho, delta)
        epsilons["Renyi"] = _renyi(charged, delta)
    method, epsilon = min(epsilons.items(), key=lambda item: item[1])
    relation = "add-remove" if _sampled(charged) else "replace-one"
    return Privacy(epsilon, (delta or 0.0) + sampling_delta(epsilon, variation), method, relation)


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


@formula
def epsilon_cap(steps: list[float], budget: int, delta: float | None = None) -> float:
    r"""Return the epsilon of a full sparse-vector budget at ``delta``, replacing one example.

    Constant from creation, so it covers adaptive queries and stopping early (``sparse_charges``).

    Example:
        >>> epsilon_cap([0.1], budget=20)
        4.0
        >>> epsilon_cap([0.1, 0.02], budget=20)
        4.02
        >>> round(epsilon_cap([0.01], budget=100, delta=1e-6), 3)
        0.572
    """
    require_whole("budget", budget, 0, 2**61)
    require_instance("steps", steps, list | tuple)
    for step in steps or (None,):
        require_between("steps", step, 0, math.inf)
    return compose(sparse_charges(steps, budget), delta).epsilon


def sparse_charges(steps: list[float], budget: int) -> list[Charge]:
    r"""Return what a full sparse-vector budget charges.

    ``steps`` has one :math:`a = 1/(u\sigma)` for each distinct units value. B releases are B
    answers and at most B rounds of comparisons at the largest a; each other units value may leave
    one more round open. Rounds of different units values interleave, which pure mechanisms may
    (concurrent composition, Vadhan and Wang 2021).
    """
    largest, *others = sorted(steps, reverse=True)
    return [Pure(largest, 2 * budget), *map(Pure, others)]


@final
@dataclass(frozen=True)
class PrivacyLoss:
    """Charges that were fixed beforehand, all together.

    Example:
        >>> loss = PrivacyLoss((Pure(0.01, count=200),))
        >>> loss.pure, round(loss.rho, 4), round(loss.at(1e-6), 3)
        (2.0, 0.01, 0.572)
    """

    charges: tuple[Charge, ...]

    @property
    def pure(self) -> float:
        """The sum of epsilons; infinite for Gaussian noise."""
        return math.fsum(charge.count * charge.epsilon for charge in self.charges)

    @property
    def rho(self) -> float:
        """The sum of rhos."""
        return math.fsum(charge.count * charge.rho for charge in self.charges)

    def at(self, delta: float) -> float:
        """Return the smallest valid epsilon at delta."""
        return compose(self.charges, delta).epsilon


@formula
def compose_basic(losses: list[tuple[float, float]]) -> tuple[float, float]:
    r"""Add up (epsilon, delta) pairs: always valid, also for adaptively chosen mechanisms.

    Example:
        >>> compose_basic([(0.5, 0.0), (0.25, 1e-6), (0.25, 1e-6)])
        (1.0, 2e-06)
    """
    for pair in losses if isinstance(losses, Sequence) else (losses,):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidArgumentError(
                f"Expected `losses` to be a list of pairs (epsilon, delta), but got "
                f"{type(pair).__name__} among them."
            )
        epsilon, delta = pair
        require_between("epsilon", epsilon, 0, math.inf)
        require_between("delta", delta, 0, 1)
    return math.fsum(e for e, _ in losses), math.fsum(d for _, d in losses)


@formula
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


@formula
def group_privacy(epsilon: float, group: int, delta: float = 0.0) -> tuple[float, float]:
    r"""Return :math:`(k\varepsilon, k e^{(k-1)\varepsilon}\delta)`, for replacing k examples.

    One example costs (epsilon, delta). A delta above 1 says nothing.

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


@formula
def compose_mixed(charges: Sequence[Charge], delta: float) -> Privacy:
    """Compose different kinds of charges numerically; never above ``compose``.

    Needs ``pip install 'torch-holdout[accounting]'``. Losses are rounded up to a grid fine enough
    for the smallest charge, so the result is an upper bound. Its functions are called directly: the
    package's accountant ignores the count of randomised responses.

    Example:
        >>> answers = DiscreteLaplace(scale=6_553_600, sensitivity=65536, count=100)
        >>> round(compose_mixed([Pure(0.01, count=100), answers], 1e-6).epsilon, 2)
        0.57
    """
    require_between("delta", delta, 0, 1, ends=False)
    charges = _listed(charges)
    without = compose(charges, delta)
    pure = [charge for charge in charges if charge.count and charge.epsilon]
    if not pure or any(isinstance(charge, _WITHOUT_PURE) for charge in pure):
        return without
    interval = max(_FINEST, min(1e-4, min(charge.epsilon for charge in pure) / 20))
    parts = [_distribution(charge, interval).self_compose(charge.count) for charge in pure]
    total = reduce(lambda total, part: total.compose(part), parts)
    epsilon = float(total.get_epsilon_for_delta(delta))
    return min(without, Privacy(epsilon, delta, "loss distribution"), key=lambda p: p.epsilon)


def _listed(charges: Iterable[Charge]) -> list[Charge]:
    """Return charges as a list; raise unless all of them are."""
    if not isinstance(charges, Sequence | Iterator):
        kind = type(charges).__name__
        raise InvalidArgumentError(f"Expected `charges` to be a list of charges, but got {kind}.")
    listed: list[Charge] = []
    for charge in charges:
        require_instance("charges", charge, Charge)
        listed.append(charge)
    return listed


def _exact(charged: list[Charge], delta: float) -> float:
    """Compose mechanisms as if all had the largest epsilon; exact when all are alike."""
    if not charged or any(isinstance(charge, _WITHOUT_PURE) for charge in charged):
        return math.inf
    largest = max(charge.epsilon for charge in charged)
    return compose_pure(largest, sum(charge.count for charge in charged), delta)


def _renyi(charged: list[Charge], delta: float) -> float:
    if any(math.isinf(charge.rho) for charge in charged):
        return math.inf
    curves = [(charge.count, charge.curve()) for charge in charged]

    def total(alpha: float) -> float:
        return math.fsum(count * curve(alpha) for count, curve in curves)

    epsilons = [epsilon_of_rdp(total, delta)]
    if _sampled(charged):
        epsilons += [epsilon_at_order(total(order), order, delta) for order in ORDERS]
    return max(0.0, min(epsilons))


def _sampled(charged: list[Charge]) -> bool:
    return any(isinstance(charge, SampledGaussian) for charge in charged)


def _distribution(charge: Charge, interval: float) -> Any:
    try:
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        raise InvalidArgumentError(
            "Expected dp-accounting: pip install 'torch-holdout[accounting]', or use compose()."
        ) from None
    if isinstance(charge, DiscreteLaplace) and charge.sensitivity <= 1000:
        return pld.from_discrete_laplace_mechanism(
            1 / charge.scale, sensitivity=charge.sensitivity, value_discretization_interval=interval
        )
    pure = common.DifferentialPrivacyParameters(charge.epsilon, 0)
    return pld.from_privacy_parameters(pure, value_discretization_interval=interval)
