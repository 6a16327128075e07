"""Votes with Gaussian noise: the largest noisy count wins, or only a clear one does."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._shared.checks import require_between, require_positive
from torch_holdout._shared.formulas import formula
from torch_holdout.accounting import Charge, Concentrated, largest_parameter
from torch_holdout.prediction.mechanisms.base import (
    NO_CONSENSUS,
    OneParameterVote,
    Setting,
    VoteMechanism,
)
from torch_holdout.prediction.mechanisms.votes import in_double, require_table

_SIGMAS = 1e-6, 1e9


@final
@dataclass(frozen=True, kw_only=True)
class GNMax(OneParameterVote):
    r"""Answer the class whose votes plus :math:`N(0, \sigma^2)` are largest.

    Guarantee:
        :math:`\rho = 1/\sigma^2` when one member changes, because the votes move by
        :math:`\sqrt 2` (Papernot et al. 2018, Proposition 8); four times that for two members.
        There is no pure epsilon. Only the label leaves, not the noisy counts.

    Args:
        sigma: Standard deviation of the noise, in votes.

    Example:
        >>> GNMax(sigma=8.0).charge(Setting(num_parts=50, num_outputs=3))
        Concentrated(rho=0.015625, count=1)
    """

    kind: ClassVar[str] = "gn_max"

    sigma: float

    def __post_init__(self) -> None:
        require_between("sigma", self.sigma, *_SIGMAS)
        object.__setattr__(self, "sigma", float(self.sigma))

    @classmethod
    def of_sharpness(cls, sharpness: float) -> "GNMax":
        """Return the vote whose noise is 1 / ``sharpness``."""
        require_positive(sharpness=sharpness)
        return cls(sigma=1 / float(sharpness))

    def charge(self, setting: Setting) -> Charge:
        """Return rho of one query."""
        return Concentrated((setting.members_changed / self.sigma) ** 2)

    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        """Return one label per query."""
        require_table(table, setting.num_outputs)
        return noisy_winner(in_double(table), self.sigma, uniforms).to(table.device)

    def sampler_error(self, setting: Setting) -> float:
        """Bound the total variation between one answer and its law."""
        return winner_error(self.sigma, setting)


@final
@dataclass(frozen=True, kw_only=True)
class ConfidentGNMax(VoteMechanism):
    r"""Answer as ``GNMax`` if the largest count plus noise reaches a threshold, else abstain.

    Guarantee:
        :math:`\rho = 1/(2\sigma_1^2) + 1/\sigma_2^2` when one member changes (Papernot et al.
        2018), four times that for two. Whether the check was passed is a function of the votes:
        both are charged always, and nothing is refunded for an abstention.

    Args:
        threshold: Votes that the largest count must reach.
        sigma_check: Standard deviation of the noise of the check, in votes.
        sigma_answer: Standard deviation of the noise of the answer, in votes.

    Example:
        >>> mechanism = ConfidentGNMax(threshold=30.0, sigma_check=20.0, sigma_answer=10.0)
        >>> round(mechanism.charge(Setting(num_parts=50, num_outputs=3)).rho, 6)
        0.01125
    """

    kind: ClassVar[str] = "confident_gn_max"

    threshold: float
    sigma_check: float
    sigma_answer: float

    def __post_init__(self) -> None:
        require_between("threshold", self.threshold, 0, 2**20)
        require_between("sigma_check", self.sigma_check, *_SIGMAS)
        require_between("sigma_answer", self.sigma_answer, *_SIGMAS)
        for name in ("threshold", "sigma_check", "sigma_answer"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @classmethod
    @formula
    def for_budget(
        cls,
        *,
        epsilon: float,
        delta: float | None,
        queries: int,
        num_parts: int,
        num_classes: int,
        threshold: float,
        members_changed: int = 1,
        check_to_answer: float = 3.0,
    ) -> "ConfidentGNMax":
        """Return the mechanism with the least noise that a budget pays for this often.

        ``check_to_answer`` is how much more noise the check gets than the answer.

        Example:
            >>> budget = {"epsilon": 2.0, "delta": 1e-5, "queries": 100, "threshold": 30.0}
            >>> mechanism = ConfidentGNMax.for_budget(**budget, num_parts=50, num_classes=10)
            >>> round(mechanism.sigma_check, 1), round(mechanism.sigma_answer, 1)
            (93.7, 31.2)
        """
        setting = Setting(
            num_parts=num_parts, num_outputs=num_classes, members_changed=members_changed
        )
        require_between("check_to_answer", check_to_answer, 0.01, 100)

        def at(sharpness: float) -> ConfidentGNMax:
            answer = 1 / sharpness
            check = check_to_answer * answer
            return cls(threshold=threshold, sigma_check=check, sigma_answer=answer)

        return at(largest_parameter(lambda s: at(s).charge(setting), queries, epsilon, delta))

    def charge(self, setting: Setting) -> Charge:
        """Return rho of one check and one answer, whatever the check says."""
        one = 1 / (2 * self.sigma_check**2) + 1 / self.sigma_answer**2
        return Concentrated(setting.members_changed**2 * one)

    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        """Return one label per query, or ``NO_CONSENSUS``."""
        require_table(table, setting.num_outputs)
        votes = in_double(table)
        noise = uniforms.normal((len(table),), votes.device)
        clear = votes.amax(dim=-1) + self.sigma_check * noise >= self.threshold
        label = noisy_winner(votes, self.sigma_answer, uniforms)
        return torch.where(clear, label, NO_CONSENSUS).to(table.device)

    def sampler_error(self, setting: Setting) -> float:
        """Bound the total variation between one answer and its law."""
        check = _place_error(self.sigma_check, setting.num_parts + self.threshold)
        return check + winner_error(self.sigma_answer, setting)


def noisy_winner(votes: Tensor, sigma: float, uniforms: Uniforms) -> Tensor:
    """Return the class whose count plus Gaussian noise is largest.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> noisy_winner(torch.tensor([[90.0, 0.0]]).double(), 1.0, SeededNoise(1).uniforms())
        tensor([0])
    """
    noise = uniforms.normal((votes.shape[0], votes.shape[1]), votes.device)
    return torch.add(votes, noise, alpha=sigma).argmax(dim=-1)


def winner_error(sigma: float, setting: Setting) -> float:
    r"""Bound the total variation that double precision adds to a noisy winner.

    The winner is another one only if two noisy counts are closer than the error of both; the
    density of their difference is at most :math:`1/(2\sqrt\pi\sigma)`, for each of C(C-1)/2 pairs.

    Example:
        >>> winner_error(10.0, Setting(num_parts=50, num_outputs=10)) < 1e-12
        True
    """
    pairs = setting.num_outputs * (setting.num_outputs - 1) / 2
    return pairs * _place_error(sigma, setting.num_parts)


def _place_error(sigma: float, largest: float) -> float:
    """Bound the probability that rounding decides a comparison of noisy numbers of this size.

    A normal number is wrong by a few units of the last digit (at most 9.1 standard deviations) and
    by the width of one of 2^63 steps, which is 18 times 2^-63 on average; its sum with a count by
    one more unit.
    """
    error = 9.1 * 2.0**-50 + 20 * 2.0**-63 + (largest / sigma + 9.1) * 2.0**-52
    return 2 * error / (2 * math.sqrt(math.pi)) + 2.0**-62
