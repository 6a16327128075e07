"""Charges of mechanisms: their parameters, not a bare epsilon, so that they can be composed.

Example:
    >>> from torch_holdout.accounting import Charge, compose
    >>> isinstance(Pure(0.1), Charge)  # any of the classes here
    True
    >>> round(compose([Pure(0.1, count=3), Pure(0.2)], delta=None).epsilon, 6)
    0.5
"""

import math
from dataclasses import dataclass
from typing import final

from torch_holdout._shared.checks import require_between, require_whole
from torch_holdout.accounting.rdp import (
    Curve,
    rdp_of_discrete_laplace,
    rdp_of_pure,
    rdp_of_rho,
    rho_of_pure,
)
from torch_holdout.accounting.sampled_gaussian import SIGMAS, sampled_gaussian_rdp
from torch_holdout.accounting.soft_majority import soft_majority_epsilon, soft_majority_rdp


@final
@dataclass(frozen=True)
class Pure:
    """``count`` mechanisms, each ``epsilon``-private when one example is replaced.

    Example:
        >>> Pure(0.1, count=20).epsilon
        0.1
    """

    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        require_between("epsilon", self.epsilon, 0, math.inf)
        require_whole("count", self.count, 0, 2**62)

    @property
    def rho(self) -> float:
        """Concentrated privacy of one of them."""
        return rho_of_pure(self.epsilon)

    def curve(self) -> Curve:
        """Return the Renyi curve of one of them."""
        return rdp_of_pure(self.epsilon)


@final
@dataclass(frozen=True)
class DiscreteLaplace:
    """``count`` answers with integer Laplace noise of ``scale``; one example moves ``sensitivity``.

    Example:
        >>> DiscreteLaplace(scale=100.0, sensitivity=1).epsilon
        0.01
    """

    scale: float
    sensitivity: int
    count: int = 1

    def __post_init__(self) -> None:
        require_between("scale", self.scale, 0, math.inf, ends=False)
        require_whole("sensitivity", self.sensitivity, 1, 2**62)
        require_whole("count", self.count, 0, 2**62)

    @property
    def epsilon(self) -> float:
        """Pure privacy of one of them."""
        return self.sensitivity / self.scale

    @property
    def rho(self) -> float:
        """Concentrated privacy of one of them."""
        return rho_of_pure(self.epsilon)

    def curve(self) -> Curve:
        """Return the Renyi curve of one of them."""
        return rdp_of_discrete_laplace(self.scale, self.sensitivity)


@final
@dataclass(frozen=True)
class Concentrated:
    """``count`` mechanisms of ``rho``-zCDP, such as Gaussian noise. No pure epsilon exists.

    Example:
        >>> Concentrated(0.005).epsilon
        inf
    """

    rho: float
    count: int = 1

    def __post_init__(self) -> None:
        require_between("rho", self.rho, 0, math.inf)
        require_whole("count", self.count, 0, 2**62)

    @property
    def epsilon(self) -> float:
        """Pure privacy of one of them."""
        return 0.0 if self.rho == 0 else math.inf

    def curve(self) -> Curve:
        """Return the Renyi curve of one of them."""
        return rdp_of_rho(self.rho)


@final
@dataclass(frozen=True)
class SoftVote:
    r"""``count`` soft majorities over ``num_parts`` votes, exactly, whatever the votes are.

    Guarantee:
        One member replaced: the exact epsilon and Renyi curve, and :math:`\rho = \eta^2/2`, because
        the range of the loss is :math:`2\eta` (Cesar and Rogers 2021). Two members: twice the
        epsilon (group privacy) and a range of :math:`4\eta`, four times the rho.

    Example:
        >>> vote = SoftVote(0.1, num_parts=50, num_classes=10)
        >>> round(vote.epsilon, 4), round(vote.rho, 6), round(vote.curve()(10.0), 4)
        (0.1933, 0.005, 0.0365)
    """

    eta: float
    num_parts: int
    num_classes: int
    count: int = 1
    members_changed: int = 1

    def __post_init__(self) -> None:
        require_between("eta", self.eta, 0, 1e6)
        require_whole("num_parts", self.num_parts, 1, 2**20)
        require_whole("num_classes", self.num_classes, 2, 2**20)
        require_whole("count", self.count, 0, 2**62)
        require_whole("members_changed", self.members_changed, 1, 2)

    @property
    def epsilon(self) -> float:
        """Pure privacy of one of them."""
        one = soft_majority_epsilon(self.eta, self.num_parts, self.num_classes)
        return self.members_changed * one

    @property
    def rho(self) -> float:
        """Concentrated privacy of one of them."""
        return (self.members_changed * self.eta) ** 2 / 2

    def curve(self) -> Curve:
        """Return the Renyi curve of one of them."""
        if self.members_changed == 1:
            return soft_majority_rdp(self.eta, self.num_parts, self.num_classes)
        response, rho = rdp_of_pure(self.epsilon), self.rho
        return lambda alpha: min(response(alpha), alpha * rho)


@final
@dataclass(frozen=True)
class SampledGaussian:
    r"""``count`` tables of counts of a fresh secret sample, with integer Gaussian noise.

    Guarantee:
        One record *added or removed*: it is in the sample with probability ``rate``, and then moves
        the counts by a squared length of at most 2. The Renyi curve of ``sampled_gaussian_rdp``;
        :math:`\rho = 1/\sigma^2`, that of no sampling. No pure epsilon exists.

    Example:
        >>> one = SampledGaussian(rate=0.1, sigma=10.0)
        >>> one.epsilon, one.rho, round(one.curve()(8.0), 6)
        (inf, 0.01, 0.000817)
    """

    rate: float
    sigma: float
    count: int = 1

    def __post_init__(self) -> None:
        require_between("rate", self.rate, 0, 1)
        require_between("sigma", self.sigma, *SIGMAS)
        require_whole("count", self.count, 0, 2**62)

    @property
    def epsilon(self) -> float:
        """Pure privacy of one of them."""
        return 0.0 if self.rate == 0 else math.inf

    @property
    def rho(self) -> float:
        """Concentrated privacy of one of them."""
        return 0.0 if self.rate == 0 else 1 / self.sigma / self.sigma

    def curve(self) -> Curve:
        """Return the Renyi curve of one of them."""
        return sampled_gaussian_rdp(self.rate, self.sigma)


Charge = Pure | DiscreteLaplace | Concentrated | SoftVote | SampledGaussian
