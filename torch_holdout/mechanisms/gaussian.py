"""The Gaussian mechanism: every query answered, with discrete Gaussian noise."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from torch_holdout.errors import InvalidArgumentError
from torch_holdout.mechanisms.base import Decision, Query, require_sigma
from torch_holdout.mechanisms.families import AnswersEverything
from torch_holdout.mechanisms.rounds import to_grid


@final
@dataclass(frozen=True, kw_only=True)
class GaussianMechanism(AnswersEverything):
    r"""Answer every query with :math:`h + N(0, \sigma^2)`, discrete, rounded to the grid.

    Guarantee:
        Replacing one holdout example costs :math:`\rho = 1/(2u^2\sigma^2)` of zero-concentrated
        privacy per answer (Canonne, Kamath and Steinke 2020): B answers :math:`B\rho`, adaptive or
        not. There is no pure epsilon; give the holdout a ``delta`` to see one. Every answer is a
        release: the certificate counts all of them.

    Args:
        sigma: Standard deviation of the noise, normalised.

    Example:
        >>> GaussianMechanism(sigma=0.01).charge_per_step(units=500)
        0.02
    """

    kind: ClassVar[str] = "gaussian"
    currency: ClassVar[Literal["epsilon", "rho"]] = "rho"

    sigma: float

    def __post_init__(self) -> None:
        require_sigma(self.sigma)
        if self.sigma == 0:
            raise InvalidArgumentError(
                "Expected `sigma` above 0, but got 0: that gives no privacy."
            )
        object.__setattr__(self, "sigma", float(self.sigma))

    def epsilon_per_step(self, units: int) -> float:
        """Return infinity: Gaussian noise has no pure epsilon."""
        return math.inf

    def charge_per_step(self, units: int) -> float:
        r"""Return :math:`\rho = 1/(2u^2\sigma^2)`."""
        return 1 / (2 * (units * self.sigma) ** 2)

    def noise_scale(self, units: int, resolution: int) -> float:
        """Return the standard deviation in levels."""
        return self.sigma * units * resolution

    def decide(self, query: Query) -> Decision:
        """Release the noisy value."""
        noisy = query.total + query.noise.gaussian(self.sigma * query.levels)
        index = to_grid(noisy, query.levels, query.grid)
        return Decision(index=index, compared=False, opened=False, threshold=query.threshold)
