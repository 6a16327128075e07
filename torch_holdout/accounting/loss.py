"""The privacy of a fixed set of charges, as the theorems about generalisation need it."""

import math
from dataclasses import dataclass
from typing import final

from torch_holdout.accounting.charges import Charge
from torch_holdout.accounting.compose import compose
from torch_holdout.accounting.zcdp import epsilon_of_rho_simple


@final
@dataclass(frozen=True)
class PrivacyLoss:
    """Charges that were fixed beforehand, all together.

    Example:
        >>> from torch_holdout.accounting import Pure
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

    def roughly_at(self, delta: float) -> float:
        """Return a quick epsilon at delta, for searches: basic or simple zCDP."""
        return min(self.pure, epsilon_of_rho_simple(self.rho, delta))

    def at(self, delta: float) -> float:
        """Return the smallest valid epsilon at delta."""
        return compose(self.charges, delta).epsilon
