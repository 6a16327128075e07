"""The soft majority: a class with probability proportional to exp(eta * votes)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from torch_holdout._noise.device import Uniforms
from torch_holdout._noise.laplace import DEVICE_BITS
from torch_holdout._shared.checks import require_between
from torch_holdout.accounting import Charge, SoftVote
from torch_holdout.accounting.soft_majority import expected_accuracy_sensitivity
from torch_holdout.prediction.mechanisms.base import KnownAccuracy, OneParameterVote, Setting
from torch_holdout.prediction.mechanisms.votes import in_double, require_table

_AT_ONCE = 2**22  # numbers held at once when all pairs of classes are compared


@final
@dataclass(frozen=True, kw_only=True)
class SoftMajority(OneParameterVote, KnownAccuracy):
    r"""Answer class b with probability :math:`\propto e^{\eta v_b}`, v the members' votes.

    Guarantee:
        When one member changes, a query costs the exact epsilon of r votes over C classes, between
        :math:`\eta` and :math:`2\eta`, and the exact Renyi curve, below :math:`\alpha\eta^2/2`
        (``soft_majority_epsilon``, ``soft_majority_rdp``). It is the exponential mechanism of
        McSherry and Talwar (2007) with :math:`\varepsilon = 2\eta`: weights
        :math:`e^{\varepsilon v}` would cost twice what they claim.

    Args:
        eta: Weight of one vote.

    Example:
        >>> from torch_holdout._noise.streams import SeededNoise
        >>> mechanism, setting = SoftMajority(eta=2.0), Setting(num_parts=50, num_outputs=3)
        >>> votes = torch.tensor([[0, 50, 0], [50, 0, 0]])
        >>> mechanism.answer(votes, setting, SeededNoise(1).uniforms())
        tensor([1, 0])
    """

    kind: ClassVar[str] = "soft_majority"

    eta: float

    def __post_init__(self) -> None:
        require_between("eta", self.eta, 1e-9, 1e3)
        object.__setattr__(self, "eta", float(self.eta))

    @classmethod
    def of_sharpness(cls, sharpness: float) -> "SoftMajority":
        """Return the vote whose eta is ``sharpness``."""
        return cls(eta=sharpness)

    @classmethod
    def charge_of(cls, sharpness: float, setting: Setting) -> Charge:
        """Return the exact charge of one query; a search may ask beyond the largest eta."""
        parts, classes = setting.num_parts, setting.num_outputs
        return SoftVote(sharpness, parts, classes, members_changed=setting.members_changed)

    def charge(self, setting: Setting) -> Charge:
        """Return the exact charge of one query."""
        return self.charge_of(self.eta, setting)

    def answer(self, table: Tensor, setting: Setting, uniforms: Uniforms) -> Tensor:
        r"""Return one label per query.

        One 63-bit integer decides: every class but the most likely one gets
        :math:`\lfloor 2^{63} p \rfloor` of its values, and the most likely one gets the rest, so a
        rare class keeps its probability to the last digits.
        """
        require_table(table, setting.num_outputs)
        most, top = table.max(dim=-1, keepdim=True)
        weights = in_double(table - most).mul_(self.eta).exp_()
        scale = weights.sum(dim=-1, keepdim=True).reciprocal_().mul_(2.0**DEVICE_BITS)
        top = top.to(weights.device)
        shares = weights.mul_(scale).scatter_(-1, top, 0.0).to(torch.int64)
        drawn = uniforms.draw((len(table), 1), shares.device)
        label = torch.searchsorted(shares.cumsum_(dim=-1), drawn, right=True)
        chosen = torch.where(label == setting.num_outputs, top, label).squeeze(-1)
        return chosen.to(table.device)

    def sampler_error(self, setting: Setting) -> float:
        r"""Bound the total variation between one answer and its law.

        Rounding to 63 bits moves less than :math:`2^{-63}` of each class but one. The exponent
        :math:`x = \eta(v - v_{\max})` is rounded to :math:`2^{-53}|x|`, which moves
        :math:`\sum p|x| \le \ln C` times that; a sum of C numbers, in any order, is right to C
        units of its last digit, and exponential, division and product to a few.
        """
        classes = setting.num_outputs
        rounding = (classes + math.log(classes) + 16) * 2.0**-53
        return rounding + (classes - 1) * 2.0**-DEVICE_BITS

    def chances(self, table: Tensor) -> Tensor:
        """Return the probability of each class, float64; as raw as the votes.

        Example:
            >>> SoftMajority(eta=0.1).chances(torch.tensor([[5, 5]]))
            tensor([[0.5000, 0.5000]], dtype=torch.float64)
        """
        votes = in_double(table)
        weights = ((votes - votes.amax(dim=-1, keepdim=True)) * self.eta).exp_()
        return weights.div_(weights.sum(dim=-1, keepdim=True))

    def label_chances(
        self, table: Tensor, labels: Tensor, num_classes: int, uniforms: Uniforms
    ) -> Tensor:
        """Return the probability of each row's label; nothing is drawn."""
        require_table(table, num_classes)
        return self.chances(table).gather(1, labels.to(table.device)[:, None])[:, 0]

    def accuracy_sensitivity(self) -> float:
        r"""Return :math:`\tanh(\eta/2)`."""
        return expected_accuracy_sensitivity(self.eta)

    def private_loss(self, table: Tensor, orders: Sequence[float]) -> Tensor:
        """Return the Renyi divergence of these queries at each order, for the votes as they are.

        The largest over every member that could change its vote, in both directions, added up over
        queries. It is a function of the private votes: never show it, and never stop on it.

        Votes [queries, classes] give one float64 for each order above 1, on their device.

        Example:
            >>> SoftMajority(eta=0.1).private_loss(torch.tensor([[50, 0]]), [10.0]) < 0.05
            tensor([True])
        """
        require_table(table, table.shape[-1])
        for order in orders:
            require_between("order", order, 1, math.inf, ends=False)
        parts = torch.split(table, max(1, _AT_ONCE // table.shape[1] ** 2))
        losses = [
            torch.stack([self._loss(part, order) for part in parts]).sum() for order in orders
        ]
        return torch.stack(losses)

    def _loss(self, table: Tensor, order: float) -> Tensor:
        return _largest_loss(self.chances(table), in_double(table) == 0, self.eta, order).sum()


def _largest_loss(chances: Tensor, empty: Tensor, eta: float, order: float) -> Tensor:
    """Return the largest divergence of each query over all pairs of classes, both directions."""
    a, b = chances.unsqueeze(2), chances.unsqueeze(1)

    def log_sum(power: float) -> Tensor:
        # ln(1 + p_a (e^-power - 1) + p_b (e^power - 1)), in units of the larger exponential.
        size = abs(power)
        up, down = (b, a) if power > 0 else (a, b)
        if size < 1:
            return torch.log1p(up * math.expm1(size) + down * math.expm1(-size))
        rest = (1 - a - b).clamp_(min=0) * math.exp(-size)
        return size + torch.log(up + down * math.exp(-2 * size) + rest)

    moved = log_sum(eta)
    away = (order - 1) * moved + log_sum(-(order - 1) * eta)
    back = -order * moved + log_sum(order * eta)
    same = torch.eye(chances.shape[1], dtype=torch.bool, device=chances.device)
    losses = torch.maximum(away, back).masked_fill(same | empty.unsqueeze(2), 0.0)
    return losses.flatten(1).amax(dim=1) / (order - 1)
