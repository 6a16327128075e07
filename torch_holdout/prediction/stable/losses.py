r"""Convex losses of a score vector whose slope is bounded, with the bound.

Every ``slope`` is the gradient in the scores, written out, and its norm is at most ``lipschitz``
whatever the scores and the target: that number alone carries the privacy of a stable model.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from torch_holdout._shared.checks import require_choice

OfScores = Callable[[Tensor, Tensor], Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class StableLoss:
    r"""A loss :math:`\ell(z, y)` of scores ``z`` [n, K], convex in ``z``.

    Attributes:
        lipschitz: Largest Euclidean norm of the gradient in ``z``.
        smoothness: Largest eigenvalue of the second derivative in ``z``.
        classes: Whether targets are class numbers; otherwise they are real values.
        single: Whether there is one score (K = 1); otherwise one per class.
        value: The loss of each record [n].
        slope: The gradient of each record [n, K].
    """

    value: OfScores
    slope: OfScores
    lipschitz: float = 1.0
    smoothness: float = 1.0
    classes: bool = True
    single: bool = True


def _logistic_value(scores: Tensor, labels: Tensor) -> Tensor:
    score = scores[:, 0]
    return torch.logaddexp(score, torch.zeros_like(score)) - labels * score


def _logistic_slope(scores: Tensor, labels: Tensor) -> Tensor:
    return scores.sigmoid() - labels[:, None]


def _hinge_value(scores: Tensor, labels: Tensor) -> Tensor:
    missing = 1 - (2 * labels - 1) * scores[:, 0]
    inside = missing.clamp(0, 1)
    return inside * missing - inside.square() / 2


def _hinge_slope(scores: Tensor, labels: Tensor) -> Tensor:
    sign = (2 * labels - 1)[:, None]
    return -sign * (1 - sign * scores).clamp(0, 1)


def _huber_value(scores: Tensor, targets: Tensor) -> Tensor:
    distance = scores[:, 0] - targets
    inside = distance.clamp(-1, 1)
    return inside * distance - inside.square() / 2


def _huber_slope(scores: Tensor, targets: Tensor) -> Tensor:
    return (scores - targets[:, None]).clamp(-1, 1)


def _softmax_value(scores: Tensor, labels: Tensor) -> Tensor:
    return scores.logsumexp(dim=1) - scores.gather(1, labels[:, None])[:, 0]


def _softmax_slope(scores: Tensor, labels: Tensor) -> Tensor:
    aside = torch.full_like(scores[:, :1], -1.0)
    return scores.softmax(dim=1).scatter_add(1, labels[:, None], aside)


_LOSSES = {
    "logistic": StableLoss(smoothness=0.25, value=_logistic_value, slope=_logistic_slope),
    "smooth-hinge": StableLoss(value=_hinge_value, slope=_hinge_slope),
    "softmax": StableLoss(
        lipschitz=math.sqrt(2),
        smoothness=0.5,
        single=False,
        value=_softmax_value,
        slope=_softmax_slope,
    ),
    "huber": StableLoss(classes=False, value=_huber_value, slope=_huber_slope),
}


def stable_loss(name: str) -> StableLoss:
    r"""Return a loss by name.

    - ``"logistic"``: :math:`\ln(1 + e^z) - yz` with y 0 or 1. Slope :math:`s(z) - y`, so
      :math:`L = 1`; second derivative :math:`s(1-s) \le 1/4`.
    - ``"smooth-hinge"``: with :math:`m = \pm z` it is 0 above 1, :math:`(1-m)^2/2` from 0 to 1 and
      :math:`1/2 - m` below 0. The slope is within :math:`\pm 1` and itself 1-Lipschitz.
    - ``"softmax"``: cross-entropy. Slope :math:`p - e_y`, whose squared norm
      :math:`(1-p_y)^2 + \sum_{j \ne y} p_j^2` is at most :math:`2(1-p_y)^2`, so
      :math:`L = \sqrt 2`; :math:`v^T(\mathrm{diag}(p) - pp^T)v` is a variance of numbers
      within a range of :math:`\sqrt 2\|v\|`, so at most :math:`\|v\|^2/2`.
    - ``"huber"``: for real targets; quadratic up to a distance of 1, then linear. :math:`L = 1`.

    Example:
        >>> stable_loss("logistic").lipschitz, round(stable_loss("softmax").lipschitz, 4)
        (1.0, 1.4142)
    """
    require_choice("loss", name, tuple(_LOSSES))
    return _LOSSES[name]
