"""Mixed charges by privacy loss distributions, with the optional package dp-accounting."""

from collections.abc import Sequence
from typing import Any

from torch_holdout._shared.checks import require_between
from torch_holdout.accounting.charges import Charge, Concentrated, DiscreteLaplace
from torch_holdout.accounting.compose import Privacy, compose
from torch_holdout.errors import InvalidArgumentError

_FINEST = 2e-6


def compose_mixed(charges: Sequence[Charge], delta: float) -> Privacy:
    """Compose different kinds of charges numerically; never above ``compose``.

    Needs ``pip install 'torch-holdout[accounting]'``. Losses are rounded up to a grid fine enough
    for the smallest charge, so the result is an upper bound. Its functions are called directly: the
    package's accountant ignores the count of randomised responses.

    Example:
        >>> from torch_holdout.accounting import DiscreteLaplace, Pure
        >>> answers = DiscreteLaplace(scale=6_553_600, sensitivity=65536, count=100)
        >>> round(compose_mixed([Pure(0.01, count=100), answers], 1e-6).epsilon, 2)
        0.57
    """
    require_between("delta", delta, 0, 1, ends=False)
    without = compose(charges, delta)
    pure = [charge for charge in charges if charge.count and charge.epsilon]
    if not pure or any(isinstance(charge, Concentrated) for charge in pure):
        return without
    interval = max(_FINEST, min(1e-4, min(charge.epsilon for charge in pure) / 20))
    total: Any = None
    for charge in pure:
        part = _distribution(charge, interval).self_compose(charge.count)
        total = part if total is None else total.compose(part)
    epsilon = float(total.get_epsilon_for_delta(delta))
    return min(without, Privacy(epsilon, delta, "loss distribution"), key=lambda p: p.epsilon)


def _distribution(charge: Charge, interval: float) -> Any:
    try:
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        raise InvalidArgumentError(
            "Expected the package dp-accounting for mixed charges: "
            "pip install 'torch-holdout[accounting]', or use compose()."
        ) from None
    if isinstance(charge, DiscreteLaplace) and charge.sensitivity <= 1000:
        return pld.from_discrete_laplace_mechanism(
            1 / charge.scale,
            sensitivity=charge.sensitivity,
            value_discretization_interval=interval,
        )
    return pld.from_privacy_parameters(
        common.DifferentialPrivacyParameters(charge.epsilon, 0),
        value_discretization_interval=interval,
    )
