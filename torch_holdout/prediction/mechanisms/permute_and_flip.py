"""Permute and flip: the best label at a pure epsilon."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.laplace import DEVICE_BITS
from torch_holdout._shared.checks import require_between
from torch_holdout.accounting import Charge, Pure
from torch_holdout.prediction.mechanisms.base import OneParameterVote, Setting
from torch_holdout.prediction.mechanisms.votes import in_double, require_table

_LAST = 2**DEVICE_BITS - 1


@final
@dataclass(frozen=True, kw_only=True)
class PermuteAndFlip(OneParameterVote):
    r"""Try the classes in random order; take b with chance :math:`e^{\varepsilon(v_b - v_*)/2}`.

    Guarantee:
        :math:`\varepsilon`-private when one member changes: a vote count moves by at most 1
        (McKenna and Sheldon 2020, Theorem 1). Never a worse label than the exponential mechanism of
        the same epsilon. Two members cost :math:`2\varepsilon`.

    Args:
        epsilon: The cost of one query.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> mechanism, setting = PermuteAndFlip(epsilon=2.0), Setting(num_parts=50, num_outputs=3)
        >>> votes = torch.tensor([[0, 50, 0], [50, 0, 0]])
        >>> mechanism.answer(votes, setting, SeededNoise(1).uniforms())
        tensor([1, 0])
    """

    kind: ClassVar[str] = "permute_and_flip"

    epsilon: float

    def __post_init__(self) -> None:
        require_between("epsilon", self.epsilon, 1e-9, 1e6)
        object.__setattr__(self, "epsilon", float(self.epsilon))

    @classmethod
    def of_sharpness(cls, sharpness: float) -> "PermuteAndFlip":
        """Return the vote whose epsilon is ``sharpness``."""
        return cls(epsilon=sharpness)

    def charge(self, setting: Setting) -> Charge:
        """Return epsilon for each member that changes."""
        return Pure(self.epsilon * setting.members_changed)

    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        """Return one label per query: the first class in a random order whose coin says yes."""
        require_table(table, setting.num_outputs)
        votes = in_double(table)
        behind = votes.amax(dim=-1, keepdim=True) - votes
        shape = (len(table), setting.num_outputs)
        places = uniforms.draw(shape, votes.device)
        coins = uniforms.draw(shape, votes.device)
        # The largest chance below 1 is below 1 - 2^-32: it fits into 63 bits.
        chances = torch.exp(behind * (-self.epsilon / 2)).masked_fill(behind == 0, 0.0)
        heads = (behind == 0) | (coins < (chances * 2.0**DEVICE_BITS).to(torch.int64))
        return torch.where(heads, places, _LAST).argmin(dim=-1).to(table.device)

    def sampler_error(self, setting: Setting) -> float:
        r"""Bound the total variation between one answer and its law.

        A coin's chance :math:`e^{-x}` is wrong by at most :math:`xe^{-x}2^{-53}` and a few units
        of the last digit, and by :math:`2^{-63}`; two of C places are equal with probability at
        most :math:`C^2 2^{-64}`.
        """
        classes = setting.num_outputs
        return classes * 2.0**-51 + classes**2 * 2.0**-64
